"""The pages of operators (docs/operators.md, docs/operators) list what there is, and say what was measured."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import torchgrad_jax as tj
from compat_suite import abilities, operators
from compat_suite.families import FAMILIES, HOME, index, row_named, rows
from compat_suite.reporting import tiers
from compat_suite.transforms.sources import Records

pytestmark = pytest.mark.operators


@pytest.fixture(scope="module")
def found():
    return rows()


def test_the_pages_are_what_would_be_made():
    # In a process of its own: what is loaded late would be there too.
    done = subprocess.run([sys.executable, "-m", "compat_suite.operators", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_operator_belongs_to_one_family(found):
    families = [module for name in FAMILIES for modules in FAMILIES[name][1].values() for module in modules]
    assert len(families) == len(set(families))
    assert [(row.module, row.names) for row in found if row.module not in families] == []
    assert set(families) == {row.module for row in found}
    assert set(HOME) <= {name for row in found for _, name in row.names}


def test_every_operator_of_the_tiers_has_a_row(found):
    places = index(found)
    assert [name for name in tiers() if row_named(places, name) is None] == []


@pytest.mark.parametrize("name, shown, spaces, inplace, out", [
    ("abs", ["abs", "absolute"], ["torch", "Tensor"], ["abs_", "absolute_"], True),
    ("__radd__", ["add"], ["torch", "Tensor"], ["add_"], True),
    ("max.binary", ["max"], ["torch", "Tensor"], [], True),
    ("nn.functional.relu", ["relu"], ["torch", "Tensor", "nn.functional"], ["relu_", "inplace="], False),
    ("linalg.norm", ["norm"], ["linalg"], [], True),
    ("nn.functional.unfold", ["unfold"], ["nn.functional"], [], False),
    ("unfold", ["unfold"], ["Tensor"], [], False),
    ("special.erf", ["erf"], ["torch", "Tensor", "special"], ["erf_"], True),
    ("zero_", ["zero_"], ["torch", "Tensor"], [], False),
])  # fmt: skip
def test_names_of_one_operator_are_one_row(found, name, shown, spaces, inplace, out):
    row = row_named(index(found), name)
    assert (row.shown, row.spaces, row.writing, row.out) == (shown, spaces, inplace, out)


@pytest.mark.parametrize("name, can", [
    ("sin", (True, True, True)), ("index_add", (True, True, True)), ("eq", (False, False, True)), ("nonzero", (False, False, False)),
    ("poisson", (True, True, True)), ("detach", (False, False, True)), ("nn.functional.native_channel_shuffle", (False, False, True)),
])  # fmt: skip
def test_abilities_are_found_by_trying(name, can):
    assert abilities.of(name, [Records()]) == abilities.Abilities(*can)
    assert abilities.of("no_such", [Records()]) is None


def test_what_is_available_is_there_and_no_helper():
    for where in operators.AVAILABLE:
        listed = operators.names(where)
        assert listed and not {"Any", "Callable", "NamedTuple", "Public", "annotations", "guard"} & set(listed)
    assert {"sin", "float32", "inf", "jit", "to_jax"} <= set(operators.names("torch")) and "calling" not in operators.names("torch")


def test_what_is_available_is_pytorchs_or_named_as_ours():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.utils.checkpoint")  # PyTorch loads it when it is asked for
    for where in operators.AVAILABLE:
        theirs = torch
        for part in () if where == "torch" else where.split("."):
            theirs = getattr(theirs, part)
        assert {n for n in operators.names(where) if not hasattr(theirs, n)} <= set(operators.OURS.get(where, ()))
    for where, names in operators.OURS.items():
        assert all(hasattr(tj if where == "torch" else getattr(tj, where), n) for n in names)


MEASURED = {"f value float32": [2, 2, []], "f value int64": [1, 2, []], "f out float32": [3, 3, []], "g.form value float32": [1, 3, []]}


def test_the_table_of_what_was_measured_can_be_read_back():
    page = operators.measured(MEASURED, {"f": 1, "g.form": 2}, 3)
    table = operators.read(page)
    assert "at most 3 samples" in page
    assert table.checks == ["value", "out"] and [row[0] for row in table.whole] == ["**all of tier 1**", "**all of tier 2**"]
    assert table.of == {"f": {"value": "75.0", "out": "100"}, "g.form": {"value": "33.3", "out": ""}}


@pytest.mark.parametrize("percentages, said", [
    ({}, ""),
    ({"add": {"value": "100", "out": ""}}, "100"),
    ({"add": {"value": "99.5", "second": "75.0"}}, "value 99.5, second gradient 75"),
    ({"add": {"value": "100"}, "__radd__": {"error": "50.0"}}, "`__radd__` errors 50"),
])  # fmt: skip
def test_agreement_in_words(found, percentages, said):
    assert operators.told(row_named(index(found), "add"), percentages) == said


PAGE = """# Differences

| what | PyTorch | here |
|---|---|---|
| `torch.empty` | any | zeros |

## Single operators, and more

| operator | here |
|---|---|
| `sort` (not stable), `argsort` | in `dim`'s order |
| the backward of `atan2` of `a \\| b` | computes |
| in forward mode, `clamp` by a `max` | `t` |
"""


NOTED = ("empty", "sort", "argsort", "atan2", "sin", "clamp", "max", "t")


def test_notes_lead_to_the_rows_that_name_an_operator(found):
    places = index(found)
    noted = operators.notes_of(places, PAGE)
    shown = {name: [operators.link(note) for note in noted.get(row_named(places, name), [])] for name in NOTED}
    single = "(../differences.md#single-operators-and-more)"
    assert shown == {
        "empty": ["[torch.empty](../differences.md)"], "sort": [f"[sort (not stable), argsort]{single}"],
        "argsort": [f"[sort (not stable), argsort]{single}"], "atan2": [f"[the backward of atan2 of a \\| b]{single}"], "sin": [],
        "clamp": [f"[in forward mode, clamp by a max]{single}"], "max": [], "t": [],
    }  # fmt: skip


def test_links_lead_to_headings_of_the_page_of_differences():
    text = (operators.DOCS / "differences.md").read_text(encoding="utf-8")
    anchors = {operators.slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.M)}
    for name in FAMILIES:
        page = (operators.DOCS / f"operators/{name}.md").read_text(encoding="utf-8")
        assert set(re.findall(r"differences\.md#([\w-]+)", page)) <= anchors
