"""The functions of NumPy's BLAS."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


def found(names: Iterable[str]) -> Any:
    """The first function that goes by one of these names, None where there is none. Called, it keeps Python's lock, which takes longer to let go than
    most such calls."""
    names = tuple(names)
    for libraries in (_calling, _beside):
        for library in libraries():
            for name in names:
                if hasattr(library, name):
                    return getattr(library, name)
    return None


@cache
def _calling() -> list[Any]:
    """What NumPy multiplies by, with all that it is linked to."""
    return _loaded([str(import_module("numpy._core._multiarray_umath").__file__)])


@cache
def _beside() -> list[Any]:
    """Since not every system finds what it is linked to so: what NumPy's wheels bring. To look for that takes longer than all the rest."""
    beside = Path(np.__file__).parent
    folders = [folder for folder in (beside.parent / "numpy.libs", beside / ".dylibs", beside) if folder.is_dir()]
    return _loaded([path for folder in folders for path in sorted(folder.glob("*openblas*"))])


def _loaded(paths: Iterable[Any]) -> list[Any]:
    found = []
    for path in paths:
        with suppress(OSError):
            found.append(ctypes.PyDLL(os.fspath(path)))
    return found
