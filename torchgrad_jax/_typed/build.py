"""Compiles the typed core: when a wheel is built (a hook of hatchling's), and by ``python torchgrad_jax/_typed/build.py`` in a clone.

Where there is no C compiler, or no Cython, or ``TORCHGRAD_JAX_TYPED=off``, nothing is compiled, one line says so, and the package is pure Python.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent


def _finder() -> Any:
    """`torchgrad_jax._typed`, without the package around it, which needs JAX."""
    spec = importlib.util.spec_from_file_location("torchgrad_jax_typed", _HERE / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


typed = _finder()
# Types are those of the .pxd files alone: annotations say more to a reader (a subclass of tuple is a tuple) than to Cython.
DIRECTIVES = {"language_level": 3, "auto_pickle": False, "annotation_typing": False, "initializedcheck": False}
# Debug information doubles the time that it takes, and -O2 adds half of it. These cost nothing and gain most of what that does: up to 5 % where
# programs are of many kinds of operations.
_OF_O2 = ["-freorder-blocks-and-partition", "-freorder-functions", "-finline-small-functions"]
OPTIONS = [] if sys.platform == "win32" else ["-O1", "-g0", *_OF_O2, "-fno-plt", "-fno-semantic-interposition"]
# This one makes a pointer of a number, where len() is assigned to a name that held an object.
MISCOMPILING = {"3.3.0"}
# Loops over numbers: by the processor's vectors, with IEEE 754's results.
_VECTORS = [] if sys.platform == "win32" else ["-O3", "-fno-trapping-math", "-fno-math-errno", "-ffp-contract=off"]
# The same, but products and sums are rounded once, as by BLAS: polynomials take three quarters of the time.
_FUSED = [*_VECTORS[:-1], "-ffp-contract=fast"] if _VECTORS else []
LOOPS = {"runtime/baseline/copying": _VECTORS, "operators/kernels/drawing": _VECTORS, "runtime/baseline/blocks": _FUSED}
LOOPS["runtime/native/handlers"] = [*_FUSED, "-Wno-psabi"] if _FUSED else []


def build() -> str:
    """Compile, unless what is there is of these sources. Returns "" or why the package stays pure Python."""
    if not typed.wanted():
        return f"{typed.VARIABLE}=off"
    kept = typed.folder()
    if (kept / typed.DIGEST).exists() and (kept / typed.DIGEST).read_text() == typed.digest():
        return ""
    with tempfile.TemporaryDirectory() as scratch:
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                _compile(Path(scratch))
        except (Exception, SystemExit) as error:  # whatever the compiler's absence looks like on this machine
            return f"{type(error).__name__}: {error}".splitlines()[0]
        ready = kept.with_name(kept.name + ".new")  # an interrupt leaves nothing that looks whole
        shutil.rmtree(ready, ignore_errors=True)
        shutil.copytree(Path(scratch) / "made", ready)
        shutil.rmtree(kept, ignore_errors=True)
        ready.rename(kept)
    return ""


def _compile(scratch: Path) -> None:
    """Make the extension modules and their digest in a folder "made". Raises what setuptools, Cython and the compiler raise."""
    import numpy
    from Cython import __version__ as version  # type: ignore[import-not-found]
    from Cython.Build import cythonize  # type: ignore[import-not-found]
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    if version in MISCOMPILING:
        raise RuntimeError(f"Cython {version} compiles some of it to what crashes: take another version")
    for name in typed.sources():
        target = scratch / "torchgrad_jax" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(typed.ROOT / name, target)
        for parent in target.parent.relative_to(scratch).parents:
            (scratch / parent / "__init__.py").touch()
        (target.parent / "__init__.py").touch()
    before = os.getcwd()
    os.chdir(scratch)  # so that tracebacks name files from the package on
    try:
        extensions = [
            Extension(
                "torchgrad_jax." + m.replace("/", "."),
                [f"torchgrad_jax/{m}.py"],
                include_dirs=[".", numpy.get_include()],
                extra_compile_args=[*OPTIONS, *LOOPS.get(m, ())],
            )
            for m in typed.MODULES
        ]
        workers = os.cpu_count() or 1
        forked = workers if sys.platform == "linux" else 0  # elsewhere a process would begin by importing the main module
        command: Any = build_ext(Distribution({"ext_modules": cythonize(extensions, nthreads=forked, compiler_directives=DIRECTIVES, quiet=True)}))
        command.build_lib, command.build_temp, command.parallel = "built", "objects", workers
        command.ensure_finalized()
        command.run()
        made = scratch / "made"
        made.mkdir()
        for extension in extensions:
            shutil.copyfile(command.get_ext_fullpath(extension.name), made / (extension.name.partition(".")[2] + typed.EXTENSION_SUFFIXES[0]))
        (made / typed.DIGEST).write_text(typed.digest())
    finally:
        os.chdir(before)


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # type: ignore[import-not-found]
except ImportError:  # compiled by hand
    BuildHookInterface = object


class TypedCore(BuildHookInterface):  # type: ignore[misc]
    """hatchling's hook: what is compiled goes into the wheel, which is then for this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See `BuildHookInterface`."""
        reason = build()
        if reason:
            self.app.display_warning(f"torchgrad_jax is installed as pure Python, which is slower where operations are small: {reason}")
            return
        build_data["pure_python"], build_data["infer_tag"] = False, True
        build_data["artifacts"].append(f"/torchgrad_jax/_typed/{typed.folder().name}/*")


if __name__ == "__main__":
    told = build()
    print(f"not compiled: {told}" if told else f"compiled, in {typed.folder()}")
    sys.exit(bool(told))
