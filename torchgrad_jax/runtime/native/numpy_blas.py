"""The functions of NumPy's BLAS."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


def found(names: Iterable[str]) -> Any:
    """The first function that goes by one of these names, None where there is none. Called, it keeps Python's lock, which takes longer to let go than
    most such calls."""
    return next((getattr(library, name) for library in _libraries() for name in names if hasattr(library, name)), None)


@cache
def _libraries() -> tuple[Any, ...]:
    return tuple(_loaded())


def _loaded() -> Iterator[Any]:
    """What NumPy multiplies by, with all that it is linked to; and, since not every system finds the latter so, what its wheels bring."""
    calling = str(import_module("numpy._core._multiarray_umath").__file__)
    beside = Path(np.__file__).parent
    folders = [folder for folder in (beside.parent / "numpy.libs", beside / ".dylibs", beside) if folder.is_dir()]
    for path in (calling, *[path for folder in folders for path in sorted(folder.glob("*openblas*"))]):
        try:
            yield ctypes.PyDLL(os.fspath(path))
        except OSError:
            continue
