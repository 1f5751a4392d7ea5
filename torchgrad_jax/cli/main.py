"""The command ``torchgrad-jax``."""

from __future__ import annotations

import argparse
import importlib.metadata
import shlex
import sys
from collections.abc import Sequence

from torchgrad_jax.cli import scan
from torchgrad_jax.cli.alias import PACKAGE
from torchgrad_jax.cli.diff import DIFF_USAGE, diff
from torchgrad_jax.cli.run import RUN_USAGE, run

_DESCRIPTION = "Run PyTorch programs on JAX/XLA."
_EPILOG = f"""commands:
  {RUN_USAGE}
      run a program in which `import torch` means torchgrad_jax; `torchgrad-jax run --help` tells more
  {scan.SCAN_USAGE}
      list the torch names that a code base uses and which of them are here; `torchgrad-jax scan --help` tells more
  {DIFF_USAGE}
      name the operator that gives something else than in PyTorch; `torchgrad-jax diff --help` tells more
"""


def _version() -> str:
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:  # a source tree on sys.path, not installed
        version = getattr(sys.modules[PACKAGE], "__version__", "unknown")
    return f"{PACKAGE} {version}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchgrad-jax",
        usage="torchgrad-jax [--help] [--version] command ...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_version())
    parser.add_argument("command", help="run, scan or diff")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (by default the process's) and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Only the first argument is ours; the rest belongs to the command, and beyond it to the script.
    parser = _parser()
    command = parser.parse_args(arguments[:1]).command
    if command not in ("run", "scan", "diff"):
        parser.error(f"no command {command!r}: there are run, scan and diff. To run a program: torchgrad-jax run {shlex.join(arguments)}")
    if command == "scan":
        return scan.main(arguments[1:])
    if command == "diff":
        return diff(arguments[1:])
    run(arguments[1:])
    return 0
