"""A hook of mkdocs: fills in the pages of docs/api from the docstrings and signatures of what they name.

A line of its own that begins with three colons stands for what can be imported:

    ::: torchgrad_jax.func                        every public name of a module, each under a heading
    ::: torchgrad_jax.func.vmap                   one function or class
    ::: torchgrad_jax.lifting.jitting.jit as torchgrad_jax.jit      the same under the name that users know
    ::: torchgrad_jax.Tensor table                the names of a module or class as a table
    ::: torchgrad-jax run --help                  what the command prints

Names are asked of the running package, since most of the namespace is made when it is imported, and no reader of source finds it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import importlib
import inspect
import io
import itertools
import os
import re
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from torchgrad_jax.cli.main import main

DIRECTIVE = re.compile(r"::: (?P<path>[\w.]+)(?: as (?P<name>[\w.]+))?(?P<table> table)?")
COMMAND = "::: torchgrad-jax"
PACKAGE = "torchgrad_jax"
WIDTH = 88  # a longer signature has a line for each parameter


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of each page."""
    return "\n".join(expanded(line) for line in markdown.split("\n"))


def expanded(line: str) -> str:
    """A line of a page, with what it stands for in place of a directive. ValueError for one that cannot be read or leads to nothing."""
    if not line.startswith(":::"):
        return line
    if line.startswith(f"{COMMAND} "):
        return f"```text\n{printed(line.removeprefix(COMMAND).split())}```\n"
    asked = DIRECTIVE.fullmatch(line)
    if asked is None:
        raise ValueError(f"not a directive: {line}")
    value, name = resolved(asked["path"]), asked["name"] or asked["path"]
    if asked["table"]:
        return "\n".join(table(value))
    if isinstance(value, ModuleType):
        return "\n".join(text for n, v in members(value) for text in entry(f"{name}.{n}", v))
    return "\n".join(entry(name, value))


def printed(arguments: list[str]) -> str:
    """What the command prints in a terminal of 100 columns."""
    text = io.StringIO()
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            main(arguments)
    finally:
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns
    return text.getvalue()


def resolved(path: str) -> Any:
    """What a dotted name leads to. ValueError where it leads to nothing."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        try:
            for part in parts[end:]:
                found = getattr(found, part)
        except AttributeError:
            break
        return found
    raise ValueError(f"there is no {path}")


def members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public functions, classes and objects of a module, by name."""
    listed = getattr(module, "__all__", None)
    for name in sorted(dir(module) if listed is None else listed, key=str.lower):
        value = getattr(module, name)
        if not name.startswith("_") and not isinstance(value, ModuleType) and (is_ours(value) if callable(value) or listed is None else True):
            yield name, value


def is_ours(value: Any) -> bool:
    """Whether a function or class is written in this package, and not something that a module has imported. Some are said to be in PyTorch's modules,
    for pickles and messages."""
    return (getattr(value, "__module__", None) or "").partition(".")[0] in (PACKAGE, "torch")


# ---------------------------------------------------------------------- one entry


def entry(name: str, value: Any) -> Iterator[str]:
    """The Markdown of a function, class or object."""
    short = name.removeprefix(f"{PACKAGE}.")
    yield f"### {short}\n"
    if callable(value):
        yield f"```python\n{signature(name, value)}\n```\n"
    yield described(value, fields(value)) + "\n"
    if inspect.isclass(value):
        bases = [k.__name__ for k in value.__bases__ if is_ours(k)]
        if bases := [f"`{name}`" for name in bases if not name.startswith("_") and name != value.__name__]:
            yield f"Bases: {', '.join(bases)}.\n"
        found = [bullet(n, v) for n, v in own_members(value)]
        yield from (["**Methods and attributes**\n", *found, ""] if found else [])


def own_members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class adds, itself or by a private base; without those that carry out another's protocol, whose
    docstrings say no more than where that is."""
    found: dict[str, Any] = {}
    for base in reversed([k for k in kind.__mro__ if k is kind or (is_ours(k) and k.__name__.startswith("_"))]):
        found |= vars(base)
    for name, value in found.items():
        if name.startswith("_") or not (inspect.isroutine(value) or isinstance(value, (property, staticmethod, classmethod))):
            continue
        if not (inspect.getdoc(getattr(value, "__func__", value)) or "").startswith("See "):
            yield name, value


def bullet(name: str, value: Any) -> str:
    """A method or property as an item of a list."""
    plain = value.fget if isinstance(value, property) else value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    shown = name if isinstance(value, property) else signature(name, plain, 10**6)
    text = described(value if isinstance(value, property) else plain, fields(plain) if callable(plain) else ())
    return f"- `{shown}`\n\n" + "\n".join(f"    {line}".rstrip() for line in text.split("\n")) + "\n"


def signature(name: str, value: Any, width: int = WIDTH) -> str:
    """How something is called, as Python would write it; of an enumeration its members."""
    if isinstance(value, enum.EnumMeta):
        return "\n".join(f"{name}.{m.name}" for m in value)
    try:
        known = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    parameters = [p for i, p in enumerate(known.parameters.values()) if i or p.name not in ("self", "cls")]
    returned = inspect.Signature.empty if inspect.isclass(value) else as_written(known.return_annotation)
    text = f"{name}{known.replace(parameters=[readable(p) for p in parameters], return_annotation=returned)}"
    if len(text) <= width:
        return text
    ahead, _, returned = text.rpartition(")")
    lines = [f"    {part},\n" for part in apart(ahead[len(name) + 1 :]) if part]
    return f"{name}(\n{''.join(lines)}){returned}" if lines else text


def apart(parameters: str) -> list[str]:
    """Parameters, which are separated by commas outside of brackets and quotes."""
    found, depth, quoted = [""], 0, ""
    for c in parameters:
        quoted = ("" if c == quoted else quoted) if quoted else c if c in "'\"" else ""
        depth += (c in "([{") - (c in ")]}") if not quoted else 0
        if c == "," and not depth and not quoted:
            found.append("")
        else:
            found[-1] += c
    return [part.strip() for part in found]


class Text:
    """Shown as it is, where a signature shows annotations and defaults by `repr`."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def as_written(annotation: Any) -> Any:
    """An annotation as the source has it."""
    if annotation is inspect.Signature.empty:
        return annotation
    return Text(annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", None) or inspect.formatannotation(annotation))


def readable(p: inspect.Parameter) -> inspect.Parameter:
    """A parameter whose default is shown by name where it is a function or a class."""
    default = p.default
    if default is not p.empty and getattr(default, "__qualname__", None):
        default = Text(default.__qualname__)
    elif default is not p.empty and " at 0x" in repr(default):
        default = Text("...")
    return p.replace(annotation=as_written(p.annotation), default=default)


def fields(value: Any) -> tuple[str, ...]:
    """The names that a docstring may explain: of parameters, of what a class of data holds."""
    found = {f.name for f in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    if inspect.isclass(value):
        found |= {name for name, member in vars(value).items() if isinstance(member, property)}
    found |= set(getattr(value, "_fields", ())) | set(getattr(value, "__annotations__", ())) | set(getattr(type(value), "__slots__", ()))
    with contextlib.suppress(TypeError, ValueError):
        found |= set(inspect.signature(value).parameters)
    return tuple(found)


# ---------------------------------------------------------------------- docstrings as Markdown


def described(value: Any, names: tuple[str, ...]) -> str:
    """A docstring as Markdown. Explanations of the parameters `names` become a list."""
    if not callable(value) and not isinstance(value, property) and not is_ours(value):
        return f"`{value!r}`"
    blocks = re.split(r"\n\s*\n", inspect.getdoc(value) or "")
    if re.fullmatch(r"[\w.]+\(.*\)", blocks[0], re.DOTALL) and len(blocks) > 1:
        del blocks[0]  # the schema of a declared operator
    parts = []
    for is_example, found in itertools.groupby(blocks, lambda block: block.startswith("    ")):
        several = list(found)
        parts += [example("\n\n".join(several))] if is_example else [paragraph(block, names) for block in several]
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(parts)).strip()


def example(block: str) -> str:
    """Indented lines of a docstring as a block of code."""
    code = textwrap.dedent(block)
    return f"```{'pycon' if code.startswith('>>> ') else 'python'}\n{code}\n```"


def paragraph(block: str, names: tuple[str, ...]) -> str:
    """A paragraph of a docstring."""
    text = " ".join(line.strip() for line in block.split("\n"))
    text = re.sub(r"::$", ":", text).replace("``", "`")
    text = outside_code(text, lambda part: re.sub(r"([*_<\[])", r"\\\1", part))
    begins = explanations(text, names)
    if not begins:
        return text
    lines = [text[: begins[0].start()].strip(), ""]
    for begin, end in zip(begins, [*(b.start() for b in begins[1:]), len(text)], strict=True):
        said = text[begin.end() : end].strip()
        lines.append(f"- {listed(begin)}: {said}" if begin["names"] else f"\n{said}")
    return "\n".join(lines)


def explanations(text: str, names: tuple[str, ...]) -> list[re.Match[str]]:
    """Where a paragraph begins to explain parameters, several of which may share an explanation ("a, b: "), and where it goes on to what is returned
    or raised."""
    one = r"(?:\\?\*){0,2}(?:" + "|".join(re.escape(n).replace("_", r"\\_") for n in sorted(names, key=len, reverse=True)) + ")"
    named = rf"(?:^|(?<=[.;] ))(?P<names>{one}(?:, {one})*)(?P<aside> \([^)]*\))?: "
    found = list(re.finditer(rf"{named}|(?<=\. )(?=Returns |Gives |[A-Z]\w*Error\b)", text)) if names else []
    return list(itertools.dropwhile(lambda m: not m["names"], found))


def listed(begin: re.Match[str]) -> str:
    """The parameters that an explanation is of."""
    return ", ".join(f"`{name}`" for name in begin["names"].replace("\\", "").split(", ")) + (begin["aside"] or "")


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text with what is not between backticks changed."""
    return "".join(part if part.startswith("`") else change(part) for part in re.split(r"(`[^`]*`)", text))


# ---------------------------------------------------------------------- tables


def table(value: Any) -> Iterator[str]:
    """The public names of a module or class with what each says, without examples."""
    yield from ("| name | what it does |", "|---|---|")
    for name, found in sorted(members(value) if isinstance(value, ModuleType) else of_class(value), key=lambda pair: pair[0].lower()):
        text = re.sub(r"```.*?```", "", described(found, ()), flags=re.DOTALL).strip()
        text = re.sub(r"\s*\n\s*", "<br>", text).replace("|", r"\|")
        # The name by itself, which the style keeps whole and the search finds; then how it is called.
        called = signature("", found, 10**6).partition(" -> ")[0] if callable(found) and not inspect.isclass(found) else ""
        yield f"| `{name}`{f' `{called}`' if called else ''} | {text} |"


def of_class(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and attributes of a class."""
    for name in dir(kind):
        value = inspect.getattr_static(kind, name)
        if not name.startswith("_") and (callable(value) or isinstance(value, (property, staticmethod, classmethod))):
            yield name, value
