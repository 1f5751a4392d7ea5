"""``torchgrad-jax run``: execute a program as ``python`` would, with ``torch`` aliased."""

from __future__ import annotations

import argparse
import builtins
import os
import runpy
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

from torchgrad_jax.cli import alias, tracebacks

RUN_USAGE = "torchgrad-jax run (script.py | -m module | -) [arguments ...]"


def run(arguments: list[str]) -> None:
    """Execute the program named by `arguments` as ``__main__``.

    Exceptions, SystemExit among them, propagate: the interpreter turns them into the exit status
    it gives under ``python``.
    """
    parser = argparse.ArgumentParser(prog="torchgrad-jax run", usage=RUN_USAGE, add_help=False)
    if not arguments:
        parser.error("a script, -m module or - is required")
    target, rest = arguments[0], arguments[1:]
    if target in ("-h", "--help"):
        parser.print_help()
    elif target == "-m":
        if not rest:
            parser.error("-m needs the name of a module")
        _prepare(["-m", *rest[1:]], os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif target == "-":
        source = sys.stdin.buffer.read()
        _prepare(arguments, "")
        _execute(source, "<stdin>", None)
    elif target.startswith("-"):
        parser.error(f"unrecognized option {target}")
    else:
        _run_script(target, arguments)


def _run_script(script: str, arguments: list[str]) -> None:
    path = os.path.abspath(script)
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"torchgrad-jax: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    _prepare(arguments, os.path.dirname(os.path.realpath(script)))
    _execute(source, path, path)


def _prepare(arguments: list[str], directory: str) -> None:
    """Give the process the `sys` state that the program would find under ``python``."""
    sys.argv[:] = arguments
    if not sys.flags.safe_path:
        sys.path[0] = directory  # the launcher's own entry until now
    alias.install()
    tracebacks.install()


def _execute(source: bytes, filename: str, file: str | None) -> None:
    module = ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    if file is not None:
        module.__file__ = file
        module.__loader__ = SourceFileLoader("__main__", file)
        module.__dict__["__cached__"] = None
    # Registered, and left registered, so that pickle and atexit callbacks find the program's globals.
    sys.modules["__main__"] = module
    # dont_inherit: the __future__ imports of this file are not the program's.
    exec(compile(source, filename, "exec", dont_inherit=True), module.__dict__)
