"""What holds while plans are carried out: NumPy warns of nothing, and its BLAS uses one thread."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

# The function of OpenBLAS that sets the number of threads and returns what it was, by its names in NumPy's builds.
_NAMES = ("openblas_set_num_threads_local", "openblas_set_num_threads_local64_", "scipy_openblas_set_num_threads_local64_")


class carrying_out:
    """Context manager around what is interpreted.

    OpenBLAS hands every product of more than 260,000 multiply-adds to all processors and waits for them spinning: where another process has one of
    them, 64 x 128 x 128 took 25 ms in place of 0.04. What is large enough to gain by threads is soon compiled.
    """

    __slots__ = ("_quiet", "_threads")

    def __enter__(self) -> None:
        self._quiet = np.errstate(all="ignore")
        self._quiet.__enter__()
        limit = _limit()
        self._threads = limit(1) if limit is not None else 0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        limit = _limit()
        if limit is not None:
            limit(self._threads)
        self._quiet.__exit__(kind, error, trace)


@cache
def _limit() -> Callable[[int], int] | None:
    """Set the threads of NumPy's BLAS; None where it is none that is known, as on macOS."""
    beside = Path(np.__file__).parent
    for folder in (beside.parent / "numpy.libs", beside / ".dylibs", beside):
        for path in sorted(folder.glob("*openblas*")) if folder.is_dir() else ():
            found = _function(path)
            if found is not None:
                return found
    return None


def _function(path: Path) -> Any:
    try:
        library = ctypes.PyDLL(os.fspath(path))  # loaded already; PyDLL keeps Python's lock, which takes longer to let go than the call
    except OSError:
        return None
    for name in _NAMES:
        found = getattr(library, name, None)
        if found is not None:
            found.argtypes, found.restype = [ctypes.c_int], ctypes.c_int
            return found
    return None
