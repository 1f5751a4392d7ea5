"""docs/explain.md shows what is printed. Estimates are learned as a process goes on, so its programs run in one of their own."""

import contextlib
import io
import linecache
import re
from pathlib import Path

import pytest
from processes import in_a_process_of_its_own

pytestmark = pytest.mark.operators

PAGE = Path(__file__).parents[1] / "docs" / "explain.md"


def blocks():
    """What the document shows as printed, in pieces of the page, and what its examples print there."""
    names, printed, found = {}, "", []
    for part in re.split(r"(```(?:python|text)\n.*?```)", PAGE.read_text(), flags=re.S):
        kind, _, block = part.removesuffix("```").partition("\n")
        if kind == "```python":
            linecache.cache["train.py"] = (len(block), None, block.splitlines(True), "train.py")
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(block, "train.py", "exec"), names)
            printed = out.getvalue()
        elif kind == "```text":
            found.append((part, f"```text\n{printed}```"))
            continue
        found.append((part, None))
    return found


def without_estimates(text):
    return re.sub(r"\d[\d.]* (ms|us|s)\b|\d+%|would take \d+", "some", re.sub(r" +", " ", text))


@in_a_process_of_its_own
def test_the_document_shows_what_is_printed():
    """``python tests/test_explain_docs.py`` writes it anew."""
    compared = [(shown, printed) for shown, printed in blocks() if printed is not None]
    assert len(compared) == 6
    for shown, printed in compared:
        assert without_estimates(shown) == without_estimates(printed)


if __name__ == "__main__":
    PAGE.write_text("".join([printed or shown for shown, printed in blocks()]))
