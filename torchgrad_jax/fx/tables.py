"""Plain tables of text."""

from __future__ import annotations


def simple_table(headers: list[str], rows: list[list[str]]) -> str:
    """Columns of equal width under their headers, with a rule between."""
    widths = [max(len(header) + 2, *(len(row[i]) for row in rows)) for i, header in enumerate(headers)]
    lines = [headers, ["-" * width for width in widths], *rows]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
