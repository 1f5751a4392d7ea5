"""The pages of docs/ keep their word: their programs run, and print what is shown below them. Each page is a process of its own, as a reader's is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import Forked
from pages import agrees, blocks

pytestmark = pytest.mark.operators

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
# Pages whose programs a test of their own tries, since more than what is printed is checked there.
ELSEWHERE = {
    "anomaly.md": "test_anomaly_docs.py",
    "autograd_from_scratch.md": "test_from_scratch.py",
    "derivatives.md": "test_derivatives_page.py",
    "diff.md": "test_diff.py",
    "explain.md": "test_explain_docs.py",
    "extending.md": "test_extending.py",
    "func.md": "test_func_docs.py",
    "profiler.md": "test_profiler_docs.py",
    "scan.md": "test_scan_and_viz_docs.py",
    "viz.md": "test_scan_and_viz_docs.py",
}
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if str(page.relative_to(DOCS)) not in ELSEWHERE]


def runnable(page):
    return any(block.kind in ("python", "sh") for block in blocks(page))


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    """What the pages' processes are forked from; None where processes cannot be forked."""
    if not hasattr(os, "fork"):
        yield None
        return
    # They show what is interpreted and what is compiled, as it is unless somebody has it otherwise.
    environ = {name: value for name, value in os.environ.items() if name not in ("TORCHGRAD_JAX_BASELINE", "TORCHGRAD_JAX_EXECUTION")}
    path = os.pathsep.join(filter(None, [str(HERE), str(HERE.parent), environ.get("PYTHONPATH")]))
    server = Forked({**environ, "PYTHONPATH": path}, tmp_path_factory.mktemp("forked"), "torchgrad_jax", "pages")
    yield server
    server.close()


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=lambda page: str(page.relative_to(DOCS)))
def test_page(page, forked, tmp_path):
    done = anew(page) if forked is None else forked(str(page), folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def anew(page):
    return subprocess.run([sys.executable, str(HERE / "pages.py"), str(page)], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_no_block_is_overlooked(page):
    """Such as one that is indented, which the search would not find."""
    fences = [line for line in page.read_text().splitlines() if line.lstrip().startswith("```")]
    assert len(fences) == 2 * len(blocks(page))


def test_pages_with_tests_of_their_own_are_named_there():
    for page, test in ELSEWHERE.items():
        assert page in (HERE / test).read_text() and (DOCS / page).exists()


@pytest.mark.parametrize(
    ("shown", "printed", "agree"),
    [
        ("a\nb", "a  \nb\n", True),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("took ... ms", "took 3.5 ms", True),
        ("a", "b", False),
        ("a", "a\nb", False),
        ("took ... ms", "took 3.5 s", False),
        ("(1)", "1", False),
    ],
)
def test_what_is_shown_and_what_is_printed(shown, printed, agree):
    assert agrees(shown, printed) is agree


def broken(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    return anew(page)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```python\nprint(1)\n```\n```text\n2\n```\n", "page.md:2 prints\n1"),
        ("```python\n1 / 0\n```\n", "shows nothing of\nZeroDivisionError: division by zero"),
        ("```sh\nfalse\n```\n", "shows nothing of"),
        ("```python title=\"a.py\"\nprint('a')\n```\n```sh\npython a.py\n```\n```text\nb\n```\n", "prints\na"),
    ],
)
def test_a_page_that_does_not_keep_its_word_fails(tmp_path, text, told):
    done = broken(tmp_path, text)
    assert done.returncode == 1 and told in done.stderr


def test_a_page_that_does(tmp_path):
    text = "```python\nimport warnings\nwarnings.warn('old')\nraise ValueError('x')\n```\n```text\nUserWarning: old\nValueError: x\n```\n"
    text += '```python title="a.py"\nprint(1)\n```\n```sh\npython a.py\n```\n```text\n1\n```\n```{.python .norun}\nnonsense\n```\n'
    assert "2 compared" in broken(tmp_path, text).stdout
