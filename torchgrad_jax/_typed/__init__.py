"""The typed core: the modules that each operation goes through, compiled by Cython where there was a C compiler at installation.

There is one source. Next to a module ``x.py`` stands ``x.pxd``, which says which of its classes, fields, arguments and local variables have C types;
Python does not read it. `build.py` makes extension modules of both in a folder of this package, named after the interpreter they are for; here
they are found in place of the modules' sources, all of them or none: only while they are of these very sources, and unless
``TORCHGRAD_JAX_TYPED=off`` says otherwise.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
# What is compiled, as paths from ROOT without a suffix, and what its typed declarations refer to beside it.
MODULES = (
    "runtime/counters", "runtime/recording/step", "runtime/recording/epoch", "runtime/recording/fields", "runtime/value", "runtime/recorder",
    "runtime/baseline/carrying", "runtime/baseline/blocks", "runtime/baseline/copying", "runtime/native/handlers",
    "runtime/structure", "runtime/stepping", "runtime/kinship", "runtime/tiers/costs", "runtime/settled",
    "declaration/fields", "memory/fields", "memory/storage",
    "memory/at_hand", "core/level", "core/fields", "core/node", "core/made", "core/saved",
    "core/op_node", "core/dispatch", "core/history", "core/order", "core/tracked_view", "core/autocasting",
    "core/writing", "core/elements", "core/replacing", "core/hot", "core/viewing", "core/duals",
    "autograd/tape", "autograd/interrupted", "autograd/walk", "autograd/sparse_gradients", "autograd/hooks", "autograd/engine",
    "autograd/backward", "autograd/function",
    "calling/entries", "calling/recalled", "calling/guards", "calling/understood", "functions/looking", "functions/views",
    "functions/matmul", "lifting/replaced", "lifting/purity", "operators/kernels/drawing",
)  # fmt: skip
DECLARATIONS = (
    "runtime/baseline/lanes", "runtime/baseline/within", "runtime/baseline/moving",
    "runtime/native/arrays", "runtime/native/sharing", "runtime/native/buffers", "runtime/native/tiling", "runtime/native/multiplying",
    "runtime/native/attending",
    "runtime/native/convolving", "runtime/native/looping", "runtime/native/ordering", "runtime/native/pooling", "runtime/native/recurring",
    "runtime/native/reducing", "runtime/native/resampling", "runtime/native/rowwise", "runtime/native/sampling", "runtime/native/special",
    "runtime/native/vectors",
    "runtime/recording/making", "runtime/recording/holding",
    "core/blank", "lifting/tags", "operators/kernels/box_muller", "operators/kernels/choosing", "operators/kernels/rejecting",
    "operators/kernels/twister",
)  # fmt: skip
# Of C's, which declarations include.
_HEADERS = (
    "tiles", "thirds", "images", "functions", "halves", "reduce", "windows", "scans", "along", "groups", "spelling", "small", "spreading",
    "triangular", "gammas", "remainders", "normal", "bessel", "incomplete", "implicit", "polynomials",
    "parts", "gathering", "doubles",
)  # fmt: skip
HEADERS = tuple([f"runtime/native/{name}.h" for name in _HEADERS])
DIGEST = "digest.txt"
VARIABLE = "TORCHGRAD_JAX_TYPED"


def wanted() -> bool:
    """Whether the environment allows what is compiled. ValueError for a value that is neither on nor off."""
    switch = os.environ.get(VARIABLE, "on")
    if switch not in ("on", "off"):
        raise ValueError(f"{VARIABLE} must be on or off, not {switch!r}")
    return switch == "on"


def folder() -> Path:
    """Where what is compiled for this interpreter lies."""
    return HERE / (sysconfig.get_config_var("SOABI") or EXTENSION_SUFFIXES[0].strip(".").removesuffix(".pyd"))


def sources(root: Path = ROOT) -> list[str]:
    """What is compiled: modules, the types of those that have some, and declarations."""
    typed = [f"{m}.pxd" for m in (*MODULES, *DECLARATIONS) if (root / f"{m}.pxd").exists()]
    return sorted([*[f"{m}.py" for m in MODULES], *typed, *HEADERS])


def digest(root: Path = ROOT) -> str:
    """What tells the present sources from others."""
    found = hashlib.sha256()
    for name in sources(root):
        found.update(name.encode() + (root / name).read_bytes())
    return found.hexdigest()


class Finder:
    """Finds extension modules by the names of the modules that they stand for."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def find_spec(self, name: str, path: Iterable[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        file = self.files.get(name)
        return None if file is None else spec_from_file_location(name, file, loader=ExtensionFileLoader(name, file))


def is_used() -> bool:
    """Whether what each operation goes through is compiled here, and not Python."""
    return any(isinstance(finder, Finder) for finder in sys.meta_path)


def use() -> bool:
    """Let the modules be found compiled, if they are of these sources. Whether they are."""
    kept = folder() / DIGEST
    if not wanted() or not kept.exists() or kept.read_text() != digest():
        return False
    package = __name__.partition(".")[0]
    files = {f"{package}.{m.replace('/', '.')}": str(kept.parent / (m.replace("/", ".") + EXTENSION_SUFFIXES[0])) for m in MODULES}
    sys.meta_path.insert(0, Finder(files))
    return True
