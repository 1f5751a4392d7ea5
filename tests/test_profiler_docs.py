"""docs/profiler.md keeps its word: its examples run, and give what the comments say."""

import re
from pathlib import Path

import pytest

import torchgrad_jax as torch

pytestmark = pytest.mark.operators

TEXT = (Path(__file__).parents[1] / "docs" / "profiler.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.S)


def test_what_is_shown_is_what_is_given(capsys):
    """An expression with its result in the comment below it."""
    names, compared = {}, 0
    with torch.runtime.execution_mode("fused"):
        for block in BLOCKS:
            lines, done = block.splitlines(), 0
            for i, line in enumerate(lines):
                if line.startswith("# "):
                    exec("\n".join(lines[done : i - 1]), names)
                    assert repr(eval(lines[i - 1], names)) == line[2:]
                    done, compared = i + 1, compared + 1
            exec("\n".join(lines[done:]), names)
    assert compared == 11
    assert "Self CPU time total:" in capsys.readouterr().out


def test_public_names_are_there():
    for name in ("emit_nvtx", "emit_itt", "load_nvprof", "record_function", "fused=True", "export_chrome_trace", "jax_trace_dir"):
        assert name in TEXT
