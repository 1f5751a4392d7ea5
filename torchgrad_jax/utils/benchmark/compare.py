"""Tables of measurements: a row for each label, a column for each description."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.utils.benchmark.measurement import Measurement, ordered_unique, select_unit, spread, trim_sigfig, unit_to_english

__all__ = ["Compare"]

_BEST, _GOOD, _POOR, _RESET = "\033[92m\033[1m", "\033[34m", "\033[31m\033[1m", "\033[0m\033[0m"


class Compare:
    """Measurements as tables, one for each label, with their times side by side."""

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trimmed = self._colored = self._warned = False

    def extend_results(self, results: Any) -> None:
        """Add measurements. ValueError for anything else."""
        self._results.extend(spread(results))

    def trim_significant_figures(self) -> None:
        """Show no digits that cannot be relied on."""
        self._trimmed = True

    def colorize(self, rowwise: bool = False) -> None:
        """Show the best and the worst of a column, or of a row, in colours."""
        self._colored, self._rowwise = True, rowwise

    def highlight_warnings(self) -> None:
        """Mark measurements whose runs differ much."""
        self._warned = True

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def __str__(self) -> str:
        merged = Measurement.merge(self._results)
        by_label = ordered_unique(m.task_spec.label for m in merged)
        return "\n".join(self._table([m for m in merged if m.task_spec.label == label]) for label in by_label)

    def _table(self, results: list[Measurement]) -> str:
        unit, scale = select_unit(min(r.median for r in results))
        columns = ordered_unique((r.task_spec.description or "", r.task_spec.env) for r in results)
        rows = sorted(ordered_unique((r.task_spec.num_threads, r.task_spec.env, r.as_row_name) for r in results), key=lambda row: row[0])
        found = {((r.task_spec.num_threads, r.task_spec.env, r.as_row_name), (r.task_spec.description or "", r.task_spec.env)): r for r in results}
        texts = {place: self._number(r, scale) for place, r in found.items()}
        first = max(len(name) for *_, name in rows)
        widths = {c: max([len(c[0])] + [len(t) for (_, column), t in texts.items() if column == c]) for c in columns}
        lines = [f"{'':{first + 6}}  |  " + "  |  ".join(c[0].center(widths[c]) for c in columns)]
        threads = None
        for row in rows:
            if row[0] != threads:
                threads = row[0]
                lines.append(f"{threads} threads: ")
            cells = [self._cell(texts.get((row, c), ""), widths[c], row, c, found) for c in columns]
            lines.append(f"      {row[2]:<{first}}  |  " + "  |  ".join(cells))
        plain = max(len(line) for line in lines if "\033" not in line)
        lines = [line if not line.endswith("threads: ") else line + "-" * (plain - len(line)) for line in lines]
        title = f" {results[0].task_spec.label or results[0].task_spec.stmt} "
        head = f"[{title:-^{max(plain - 2, len(title))}}]"
        tail = f"\nTimes are in {unit_to_english(unit)}s ({unit}).\n"
        if self._warned and any(r.has_warnings for r in results):
            tail += "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.\n"
        return "\n".join([head, *lines, tail])

    def _number(self, r: Measurement, scale: float) -> str:
        value = r.median / scale
        if self._trimmed:
            digits = r.significant_figures
            value = trim_sigfig(value, digits)
            text = f"{value:.{max(digits - len(str(int(value))), 0)}f}"
        else:
            text = f"{value:.1f}"
        if self._warned and r.has_warnings:
            text += f" (! {r.iqr / r.median:.0%})"
        return text

    def _cell(self, text: str, width: int, row: Any, column: Any, found: dict[Any, Measurement]) -> str:
        padded = f"{text:>{width}}"
        if not self._colored or (row, column) not in found:
            return padded
        rivals = [m.median for (r, c), m in found.items() if (r == row if self._rowwise else c == column and r[0] == row[0])]
        mine, best, worst = found[row, column].median, min(rivals), max(rivals)
        color = _BEST if mine <= best * 1.01 else _POOR if mine >= worst * 0.99 else _GOOD if mine <= best * 1.2 else ""
        return f"{color}{padded}{_RESET}" if color else padded
