"""Processes that a program starts by multiprocessing's spawn or forkserver: `import torch` means the same in them.

A new interpreter unpickles the data that prepare it before it imports the program, so what installs the alias is put among these data.
"""

from __future__ import annotations

import multiprocessing.spawn
from pathlib import Path
from typing import Any

_ROOT = str(Path(__file__).parents[2])
# The parent's sys.path is not there yet when this runs; it replaces the entry made here.
_SOURCE = f"""
import sys
try:
    import torchgrad_jax
except ModuleNotFoundError:
    sys.path.append({_ROOT!r})
from torchgrad_jax.cli import alias
alias.install()
"""


class _Alias:
    """Unpickled, it installs the alias."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (_SOURCE,)


_prepared = multiprocessing.spawn.get_preparation_data


def _with_alias(name: str) -> dict[str, Any]:
    return {**_prepared(name), "torchgrad_jax": _Alias()}


def follow() -> None:
    """Let new processes have the alias."""
    multiprocessing.spawn.get_preparation_data = _with_alias
