"""The API reference (docs/api) has every public name, with its signature and what it does, and the site's hook fills it in."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import torchgrad_jax as tj

pytestmark = pytest.mark.operators
DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "api").glob("*.md"))
# Namespaces of the package with public names that no user is meant to look for: layers, and modules that hold nothing by themselves.
INTERNAL = {
    "calling", "cli", "comparing", "core", "declaration", "determinism", "functions", "interop", "lifting", "memory", "namespace", "operators",
    "saving",
}  # fmt: skip
ELSEWHERE = {
    "backends": "has modules of flags alone", "functional": "names of torch's again", "mps": "a device that is never there",
    "xpu": "a device that is never there",
    "return_types": "classes without a constructor of their own", "types": "names of types for annotations", "utils": "has modules alone",
    "version": "has texts alone",
}  # fmt: skip
MORE = (
    "autograd.forward_ad", "autograd.functional", "autograd.graph", "autograd.profiler", "nn.functional", "nn.init", "utils.checkpoint", "utils.data",
)  # fmt: skip


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("reference", DOCS / "hooks" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def filled(hook):
    return {page.stem: hook.on_page_markdown(page.read_text(encoding="utf-8")) for page in PAGES}


def sections(text):
    """The names under headings, each with the lines below its heading."""
    parts = re.split(r"^### (.*)$", text, flags=re.M)
    return dict(zip(parts[1::2], (re.split(r"^## ", p, flags=re.M)[0] for p in parts[2::2]), strict=True))


def rows(text):
    """The names in tables, each with what the row says."""
    return {name: said for name, said in re.findall(r"^\| `([^`]*)`(?: `[^`]*`)? \|(.*)\|$", text, flags=re.M)}


def test_every_public_name_is_in_the_reference(hook, filled):
    shown = {f"torchgrad_jax.{name}" for text in filled.values() for name in sections(text)}
    directives = {line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()}
    tables = rows("\n".join(filled.values()))
    spaces = [n for n, m in vars(tj).items() if inspect.ismodule(m) and m is not tj and n[0] != "_" and n not in INTERNAL | ELSEWHERE.keys()]
    assert {"autograd", "func", "nn", "viz", "runtime", "testing"} <= set(spaces)
    for space in (*spaces, *MORE):
        module = hook.resolved(f"torchgrad_jax.{space}")
        in_a_table = f"::: torchgrad_jax.{space} table" in directives
        for name, _ in hook.members(module):
            assert f"torchgrad_jax.{space}.{name}" in shown or (in_a_table and name in tables), f"{space}.{name}"


@pytest.mark.parametrize("page, value", [("torch", tj), ("torch", tj.linalg), ("torch", tj.fft), ("torch", tj.special), ("tensor", tj.Tensor)])
def test_the_tables_have_every_public_function(filled, page, value):
    public = {n for n in dir(value) if not n.startswith("_") and inspect.isroutine(inspect.getattr_static(value, n))}
    assert len(public) > 20 and public - rows(filled[page]).keys() == set()


def test_every_name_has_a_signature_and_says_what_it_does(filled):
    for page, text in filled.items():
        for name, said in sections(text).items():
            words = re.sub(r"```.*?```", "", said, flags=re.S).strip()
            assert words, f"{page}: {name} says nothing"
            assert "```python" in said or name in ("runtime.counters", "utils.checkpoint.SAC_IGNORED_OPS") or words.startswith("`"), f"{page}: {name}"
        for name, said in rows(text).items():
            assert said.strip(), f"{page}: {name} says nothing"


def test_no_place_in_memory_is_shown(filled):
    assert not [line for text in filled.values() for line in text.splitlines() if " at 0x" in line]


def test_a_long_signature_has_a_line_for_each_parameter(hook):
    def function(first, second: tuple[int, str] = (1, "a, b"), *, third=len) -> str:
        """Something."""

    assert hook.signature("f", function, 20) == "f(\n    first,\n    second: tuple[int, str] = (1, 'a, b'),\n    *,\n    third=len,\n) -> str"
    assert hook.signature("f", function, 200) == "f(first, second: tuple[int, str] = (1, 'a, b'), *, third=len) -> str"


def test_explanations_of_parameters_become_a_list(hook):
    def function(a, b, c_d):
        """Some of `a`*b.

        a, b: the <first>. c_d: the second; not b: at all. Returns both.

            >>> 1 * 2
            2

            >>> 3
        """

    assert hook.described(function, hook.fields(function)).splitlines() == [
        "Some of `a`\\*b.", "", "- `a`, `b`: the \\<first>.", "- `c_d`: the second; not b: at all.", "", "Returns both.", "",
        "```pycon", ">>> 1 * 2", "2", "", ">>> 3", "```",
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["::: torchgrad_jax.no_such", "::: torchgrad_jax.func.no_such", "::: torchgrad_jax.func tabel", ":::"])
def test_a_directive_that_leads_to_nothing_is_refused(hook, line):
    with pytest.raises(ValueError, match="no_such|not a directive"):
        hook.expanded(line)


def test_other_lines_stay_as_they_are(hook):
    assert hook.on_page_markdown("# A\n\ntext\n") == "# A\n\ntext\n"


def test_the_command_shows_its_help(filled):
    assert "usage: torchgrad-jax scan" in filled["cli"] and "--explain" in filled["cli"] and "--replay" in filled["cli"]
