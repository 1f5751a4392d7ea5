"""Makes docs/operators.md and docs/operators/: what there is by family, what each operator can do, how far it agrees with PyTorch.

``python -m compat_suite --write`` measures and makes all of them. ``python -m compat_suite.operators`` makes all but docs/operators/agreement.md
anew and keeps what was measured and tried: for new names, and after docs/differences.md was changed. With ``--try`` it tries again what operators
can do, in some minutes, by the calls of PyTorch's operator database: PyTorch must be installed. With ``--check`` it fails where the pages are not
what it would write.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from compat_suite.families import FAMILIES, Row, index, row_named, rows, space
from torchgrad_jax.cli.scanning.differences import names_in

DOCS = Path(__file__).parents[1] / "docs"
MEASURED = "operators/agreement.md"
# The namespaces whose names are listed.
AVAILABLE = (
    "torch", "Tensor", "nn.functional", "linalg", "fft", "special", "nn", "nn.init", "autograd", "autograd.graph", "autograd.forward_ad",
    "autograd.functional", "func", "utils.checkpoint", "testing", "profiler",
)  # fmt: skip
# Modules within `torch` that are not for users.
INTERNAL = frozenset({
    "calling", "cli", "comparing", "core", "declaration", "determinism", "functions", "interop", "lifting", "memory", "namespace", "operators",
})  # fmt: skip
# What PyTorch does not have.
OURS = {"torch": ("explain", "from_jax", "load_ipython_extension", "runtime", "to_jax", "viz"), "testing": ("compare",)}
# What the columns of the table of agreement are called in sentences.
SAID = {"second": "second gradient", "error": "errors", "error_text": "texts of errors", "out": "out=", "inplace": "in place"}


# ---------------------------------------------------------------------- what was measured


def percent(agree: int, samples: int) -> str:
    """A share in words: empty where nothing was compared."""
    return "" if not samples else "100" if agree == samples else f"{100 * agree / samples:.1f}"


def agreement(found: dict[str, Any], tier_of: dict[str, int]) -> list[str]:
    """The table of agreement as Markdown lines. found: by "operator check dtype" the counts of agreeing and of all samples."""
    counts: dict[tuple[str, str], list[int]] = {}
    for key, (agree, samples, _) in found.items():
        name, check, _ = key.split(" ")
        for row in ((name, check), (f"tier {tier_of.get(name, 3)}", check)):
            count = counts.setdefault(row, [0, 0])
            count[0] += agree
            count[1] += samples
    checks = list(dict.fromkeys(check for _, check in counts))
    lines = ["| operator | tier | " + " | ".join(checks) + " |", "|---|---|" + "---:|" * len(checks)]
    for tier in sorted(set(tier_of.values())):
        named = [f"tier {tier}", *sorted(n for n in tier_of if tier_of[n] == tier)]
        for name in named:
            row = [percent(*counts.get((name, check), (0, 0))) for check in checks]
            if any(row):
                shown = f"**all of tier {tier}**" if name == named[0] else f"`{name}`"
                lines.append(f"| {shown} | {tier} | " + " | ".join(row) + " |")
    return lines


MEASURED_LEAD = """# Agreement with PyTorch, measured

Made by `python -m compat_suite --write`; [operators](../operators.md) has them by family. The table
is the share, in percent, of the sample inputs of PyTorch's own operator database on which both
libraries agree (float32, float64, complex128, int64, bool and bfloat16 where the operator takes
them; at most {samples} samples an operator and dtype), and of its bad inputs for which the class
(`error`) and the text (`error_text`) of what is raised are PyTorch's. `node`: whether results require
grad alike and have a `grad_fn` of the same name. Numbers agree where they differ by at most 1e-4
relative or 2e-5 absolute (float32), 1e-7 or 1e-8 (float64, complex128), 1.6e-2 or 1e-3 (bfloat16);
gradients and tangents twice that, second gradients five times. What is chance in PyTorch is compared
as far as it is none: the order of equal elements, the phase of eigenvectors, the content of empty
tensors. Empty: the operator has no such form. Tier 1 is what nearly every program uses, tier 2 what
a serious user meets. What differs and why is in [differences](../differences.md).
"""


def measured(found: dict[str, Any], tier_of: dict[str, int], samples: int) -> str:
    """The page of what was measured as Markdown."""
    return "\n".join([MEASURED_LEAD.format(samples=samples), *agreement(found, tier_of), ""])


class Table(NamedTuple):
    """What the page of agreement says. checks: its columns; whole: the rows of whole tiers; of: for each operator its percentages by check."""

    checks: list[str]
    whole: list[list[str]]
    of: dict[str, dict[str, str]]


def read(page: str) -> Table:
    """The table of a page of agreement."""
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    checks = cells[0][2:]
    whole = [row for row in cells[2:] if row[0].startswith("**")]
    return Table(checks, whole, {row[0].strip("`"): dict(zip(checks, row[2:], strict=True)) for row in cells[2:] if row not in whole})


# ---------------------------------------------------------------------- where operators differ


class Note(NamedTuple):
    """A row of docs/differences.md. heading: what it stands under, "" at the top; about: its first cell."""

    heading: str
    about: str


def slug(heading: str) -> str:
    """The anchor of a heading, as Python-Markdown makes it."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def notes(page: str) -> Iterator[Note]:
    """The rows of the tables of docs/differences.md."""
    heading, columns = "", None
    for line in page.splitlines():
        if line.startswith("#"):
            level, _, text = line.partition(" ")
            heading = "" if level == "#" else text
        cells = [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            columns = None
        elif columns is None:
            columns = cells
        elif "here" in columns and not set(cells[0]) <= set("-: "):
            yield Note(heading, cells[0])


def notes_of(places: dict[tuple[str, str], Row], page: str) -> dict[Row, list[Note]]:
    """For each operator the rows that are about it: those that begin with names are about these, others about all that they name."""
    found: dict[Row, list[Note]] = {}
    for note in notes(page):
        named = [n.removeprefix("torch.").removeprefix("Tensor.") for n in names_in(note.about)]
        if not named:
            codes = [c.removeprefix("torch.") for c in re.findall(r"`([\w.]+)", note.about)]
            named = [f"{where}{c}" for c in codes for where in ("", "nn.functional.", "linalg.") if "." not in c and len(c) > 1]
        about = dict.fromkeys(row for name in named if (row := row_named(places, name)) is not None)
        for row in about:
            if not any(row.shown[0] in other.parameters for other in about):  # `clamp` by `min`
                found.setdefault(row, []).append(note)
    return found


def link(note: Note) -> str:
    """A note as a link to its row's section."""
    anchor = f"#{slug(note.heading)}" if note.heading else ""
    text = textwrap.shorten(note.about.replace("`", ""), 70, placeholder=" ...")
    escaped = re.sub(r"([_*|[\]])", r"\\\1", text)
    return f"[{escaped}](../differences.md{anchor})"


# ---------------------------------------------------------------------- the pages of families


def told(row: Row, percentages: dict[str, dict[str, str]]) -> str:
    """How far an operator agrees: 100, or what is less. percentages: by its names in the database, some of which are of one form alone."""
    short = []
    for name, checks in percentages.items():
        less = [f"{SAID.get(check, check)} {text.removesuffix('.0')}" for check, text in checks.items() if text not in ("", "100")]
        if less:
            form = name.rpartition(".")[2]
            short.append(("" if form in row.shown else f"`{form}` ") + ", ".join(less))
    return "; ".join(short) or ("100" if percentages else "")


HEAD = (
    "| operator | in | gradient | forward | vmap | in place | out= | agrees, % | differs in |",
    "|---|---|:---:|:---:|:---:|---|:---:|---|---|",
)
# By what an operator's line begins with, its names and where they are found: the marks for its abilities.
Place = tuple[str, str]
Marks = dict[Place, tuple[str, ...]]
FORMLESS = "tensors"  # the page of what computes nothing: no derivatives, no agreement to be asked for


def place_of(row: Row) -> Place:
    """What an operator's line begins with."""
    return ", ".join(f"`{n}`" for n in row.shown), ", ".join(row.spaces)


def line_of(row: Row, marks: Marks, percentages: dict[str, dict[str, str]], differences: list[Note]) -> str:
    """An operator as a line of a table."""
    place = place_of(row)
    cells = [
        *place, *marks.get(place, ("", "", "")), ", ".join(f"`{n}`" for n in row.writing), "✓" if row.out else "", told(row, percentages),
        "; ".join(map(link, differences)),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def short_line_of(row: Row, differences: list[Note]) -> str:
    """The same without what such a row does not have."""
    return f"| {' | '.join((*place_of(row), '; '.join(map(link, differences))))} |"


def family(name: str, found: list[Row], line: Callable[[Row], str]) -> str:
    """The page of a family."""
    title, sections = FAMILIES[name]
    head = HEAD if name != FORMLESS else ("| name | in | differs in |", "|---|---|---|")
    lines = [f"# {title}", "", "Made by `python -m compat_suite.operators`. What the columns mean is told in [operators](../operators.md).", ""]
    for section, modules in sections.items():
        lines += [f"## {section}", "", *head, *(line(row) for row in found if row.module in modules), ""]
    return "\n".join(lines)


LEAD = """# Operators

Every function, method and attribute that computes something, by family: whether it has a gradient,
works in forward mode and under `vmap`, has a form that writes in place and takes `out=`, how far it
agrees with PyTorch, and a link where it differs. Search finds an operator by its name.

{families}

[Available names](operators/available.md) lists all public names by namespace; the
[API reference](api/index.md) has their signatures.

## What the columns say

- **in**: where the operator is found: `torch.X`, a method or attribute `Tensor.X`,
  `torch.nn.functional.X`, `torch.linalg.X` and so on.
- **gradient**, **forward**, **vmap**: marked where a call of PyTorch's operator database (or one of
  our own, where that has none) has a gradient, has a tangent in forward mode, can be mapped by
  `torch.func.vmap`. They were found by trying; of several operands one is enough.
- **in place**: the form that writes into its first argument, or `inplace=`.
- **agrees**: 100 where in every sample of the database all that was compared is PyTorch's: values,
  gradients, second gradients, tangents, `grad_fn`, errors. Else what is less, in percent. Empty: not
  measured.
  [All numbers, and what was compared](operators/agreement.md).
- **differs in**: rows of [differences](differences.md) that name it.

## Agreement as a whole

Percent of samples, of what nearly every program uses (tier 1) and what a serious user meets (tier 2).

{tiers}
"""


def overview(table: Table, counts: dict[str, int]) -> str:
    """docs/operators.md."""
    families = ["| family | operators | |", "|---|---:|---|"]
    for name, (title, sections) in FAMILIES.items():
        families.append(f"| [{title}](operators/{name}.md) | {counts[name]} | {'; '.join(sections)} |")
    tiers = ["| | " + " | ".join(SAID.get(c, c) for c in table.checks) + " |", "|---|" + "---:|" * len(table.checks)]
    tiers += [f"| {row[0].strip('*').removeprefix('all of ')} | " + " | ".join(row[2:]) + " |" for row in table.whole]
    return LEAD.format(families="\n".join(families), tiers="\n".join(tiers))


# ---------------------------------------------------------------------- what is available


def names(where: str) -> list[str]:
    """The public functions, classes and other objects of a namespace."""
    found = space(where)
    listed = getattr(found, "__all__", None) or dir(found)
    held = {n: getattr(found, n, None) for n in listed if not n.startswith("_") and n not in INTERNAL}
    return sorted(n for n, value in held.items() if inspect.isclass(found) or is_public(value))


def is_public(value: Any) -> bool:
    """Whether what a module holds is this package's, or a plain number such as `torch.inf`, and not something that it has imported."""
    if isinstance(value, ModuleType):
        return callable(value) or value.__name__ in (f"torchgrad_jax.{n}" for n in OURS["torch"])
    # Some classes are said to be in PyTorch's modules, for pickles and messages.
    return value is None or isinstance(value, float) or str(getattr(value, "__module__", "")).startswith("torch")


def available() -> str:
    """docs/operators/available.md."""
    ours = [f"`torch.{n}`" if where == "torch" else f"`torch.{where}.{n}`" for where, found in OURS.items() for n in found]
    lines = [
        "# Available names", "", "Made by `python -m compat_suite.operators`. All of them are PyTorch's, but for those of our own: " + ", ".join(ours)
        + ", and `torch.jit`, which is a function too.", "",
    ]  # fmt: skip
    for where in AVAILABLE:
        found = [n for n in names(where) if n not in OURS.get(where, ())]
        lines += [f"## torch{'' if where == 'torch' else f'.{where}'} ({len(found)})", "", ", ".join(f"`{n}`" for n in found), ""]
    return "\n".join(lines)


# ---------------------------------------------------------------------- all pages


def tried() -> Marks:
    """What operators can do, found out by trying."""
    from compat_suite import abilities
    from compat_suite.transforms.sources import Database, Records

    sources: list[Database | Records] = [Database(), Records()]
    places = index(rows())
    found: dict[Row, abilities.Abilities] = {}
    for name in dict.fromkeys(name for source in sources for name in source.names()):
        row = row_named(places, name)
        if row is not None and (able := abilities.of(name, sources)) is not None:
            found[row] = found[row] | able if row in found else able
    return {place_of(row): tuple("✓" if able else "" for able in (a.gradient, a.forward, a.vmap)) for row, a in found.items()}


def kept() -> Marks:
    """What the pages say that operators can do."""
    found: Marks = {}
    for name in FAMILIES:
        for line in (DOCS / f"operators/{name}.md").read_text(encoding="utf-8").splitlines():
            cells = [c.strip() for c in line.split("|")[1:-1]]
            if len(cells) >= HEAD[0].count("|") - 1:
                found[cells[0], cells[1]] = tuple(cells[2:5])
    return found


def pages(marks: Marks) -> dict[str, str]:
    """All pages but that of agreement, by their paths in docs."""
    table, differences = read((DOCS / MEASURED).read_text(encoding="utf-8")), (DOCS / "differences.md").read_text(encoding="utf-8")
    found = rows()
    places = index(found)
    percentages: dict[Row, dict[str, dict[str, str]]] = {}
    for name, checks in table.of.items():
        if (row := row_named(places, name)) is not None:
            percentages.setdefault(row, {})[name] = checks
    noted = notes_of(places, differences)
    counts = {name: sum(row.module in modules_of(name) for row in found) for name in FAMILIES}
    made = {"operators.md": overview(table, counts), "operators/available.md": available()}
    for name in FAMILIES:
        if name == FORMLESS:
            made[f"operators/{name}.md"] = family(name, found, lambda row: short_line_of(row, noted.get(row, [])))
        else:
            made[f"operators/{name}.md"] = family(name, found, lambda row: line_of(row, marks, percentages.get(row, {}), noted.get(row, [])))
    return made


def modules_of(name: str) -> frozenset[str]:
    """The modules of a family."""
    return frozenset(module for modules in FAMILIES[name][1].values() for module in modules)


def main(arguments: list[str]) -> int:
    """The command."""
    made = pages(tried() if "--try" in arguments else kept())
    stale = [path for path, text in made.items() if (DOCS / path).read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" in arguments:
            print(f"docs/{path} is not what `python -m compat_suite.operators` writes", file=sys.stderr)
        else:
            (DOCS / path).write_text(made[path], encoding="utf-8")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
