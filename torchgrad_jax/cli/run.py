"""``torchgrad-jax run``: execute a program as ``python`` would, with ``torch`` aliased."""

from __future__ import annotations

import argparse
import builtins
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.machinery import SourceFileLoader
from types import ModuleType

import torchgrad_jax
from torchgrad_jax.cli import alias, console, tracebacks, workers

RUN_USAGE = "torchgrad-jax run [-i] [--explain] [script.py | -c command | -m module | -] [arguments ...]"
RUN_HELP = f"""usage: {RUN_USAGE}

Run a program in which `import torch` means torchgrad_jax; the program is not modified.

  script.py    run a file
  -c command   run a command
  -m module    run a module
  -            run what standard input has
  -i           begin an interactive prompt, after the program if there is one
  --explain    say afterwards, on standard error, what ran, what was compiled and why, and what costs time
  -h, --help   show this text
Without a program it is an interactive prompt, or standard input where that is no terminal.

environment:
  TORCHGRAD_JAX_EXECUTION=eager     run each operation at once, not whole programs
  TORCHGRAD_JAX_BASELINE=off        never interpret: compile everything
  TORCHGRAD_JAX_TYPED=off           run the Python sources, not what was compiled of them at installation
  TORCHGRAD_JAX_THIRDS=off          multiply float32 matrices by float32's instructions alone
  TORCHGRAD_JAX_TABLE=off           trace each operation, also where its jaxpr is written down
  TORCHGRAD_JAX_CHECK=now           check values (indices, labels) at the call, not at the look
  TORCHGRAD_JAX_TRACEBACK=full      show all frames of tracebacks
  TORCHGRAD_JAX_NOTICES=off         no notices on the terminal about slow compilations
  TORCHGRAD_JAX_CACHE=directory     keep compiled programs for later processes
  TORCHGRAD_JAX_BERNOULLI=mkl       draw bernoulli_(number) as older PyTorch on Intel processors did
  JAX_PLATFORMS=cpu                 which of JAX's platforms to use
"""


def run(arguments: list[str]) -> None:
    """Execute the program named by `arguments` as ``__main__``.

    Exceptions, SystemExit among them, propagate: the interpreter turns them into the exit status
    it gives under ``python``.
    """
    parser = argparse.ArgumentParser(prog="torchgrad-jax run", usage=RUN_USAGE, add_help=False)
    stays = explains = False
    while arguments[:1] == ["-i"] or arguments[:1] == ["--explain"]:
        stays, explains = stays or arguments[0] == "-i", explains or arguments[0] == "--explain"
        arguments = arguments[1:]
    if not arguments:
        arguments = [""] if stays or sys.stdin.isatty() else ["-"]
    target, rest = arguments[0], arguments[1:]
    if target in ("-h", "--help"):
        print(RUN_HELP, end="")
        return
    try:
        with _explained() if explains else nullcontext():
            _run(parser, target, rest, arguments)
    except BaseException as error:
        if not (stays and target and alias.is_installed()):  # nothing has begun before that
            raise
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
    # Not while the program's exception is handled: it would be the context of all that are raised at the prompt.
    if stays and target:
        console.interact(sys.modules["__main__"])


@contextmanager
def _explained() -> Iterator[None]:
    """What is run, explained on standard error when it has come to its end, whichever that is."""
    report = torchgrad_jax.explain()  # type: ignore[operator] - the module is a function too
    try:
        with report:
            yield
    finally:
        sys.stdout.flush()
        print(report, file=sys.stderr)


def _run(parser: argparse.ArgumentParser, target: str, rest: list[str], arguments: list[str]) -> None:
    if not target:
        _prepare(arguments, "")
        console.interact(_main_module(None))
    elif target == "-c":
        if not rest:
            parser.error("-c needs a command")
        _prepare(["-c", *rest[1:]], "")
        execute(rest[0].encode(), "<string>", None)
    elif target == "-m":
        if not rest:
            parser.error("-m needs the name of a module")
        _prepare(["-m", *rest[1:]], os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif target == "-":
        source = sys.stdin.buffer.read()
        _prepare(arguments, "")
        execute(source, "<stdin>", None)
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
    execute(source, path, path)


def _prepare(arguments: list[str], directory: str) -> None:
    """Give the process the `sys` state that the program would find under ``python``."""
    sys.argv[:] = arguments
    if not sys.flags.safe_path:
        sys.path[0] = directory  # the launcher's own entry until now
    alias.install()
    workers.follow()
    tracebacks.install()


def _main_module(file: str | None) -> ModuleType:
    module = ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    if file is not None:
        module.__file__ = file
        module.__loader__ = SourceFileLoader("__main__", file)
        module.__dict__["__cached__"] = None
    # Registered, and left registered, so that pickle and atexit callbacks find the program's globals.
    sys.modules["__main__"] = module
    return module


def execute(source: bytes, filename: str, file: str | None) -> None:
    """Execute a program's text as the module ``__main__``. file: where it is, None for one that is in no file."""
    module = _main_module(file)
    # dont_inherit: the __future__ imports of this file are not the program's.
    exec(compile(source, filename, "exec", dont_inherit=True), module.__dict__)
