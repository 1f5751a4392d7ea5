"""The interactive prompt of ``torchgrad-jax run``."""

from __future__ import annotations

import code
import contextlib
import importlib.metadata
import sys
from types import ModuleType


def interact(namespace: ModuleType) -> None:
    """Read statements and perform them in `namespace` until the input ends."""
    with contextlib.suppress(ImportError):  # not on every platform
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(namespace.__dict__).complete)
        readline.parse_and_bind("tab: complete")
    jax = importlib.metadata.version("jax")
    banner = f"Python {sys.version.split()[0]}; `import torch` means torchgrad_jax on JAX {jax}. Ctrl-D ends."
    code.InteractiveConsole(namespace.__dict__).interact(banner, exitmsg="")
