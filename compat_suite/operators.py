"""Writes docs/operators.md: the public names that exist. ``python -m compat_suite.operators``"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import torchgrad_jax
from torchgrad_jax.ops.declare import registry

NAMESPACES = ("", "Tensor", "nn.functional", "linalg", "fft", "special", "autograd", "autograd.graph")


def names(path: str) -> list[str]:
    """The public functions and classes of a namespace."""
    found: object = torchgrad_jax
    for part in filter(None, path.split(".")):
        found = getattr(found, part)
    return sorted(n for n in dir(found) if not n.startswith("_") and not isinstance(getattr(found, n, None), ModuleType))


def page() -> str:
    """The whole page as Markdown."""
    lines = [
        "# What is available",
        "",
        f"Made by `python -m compat_suite.operators`. {len(registry)} declared operators, and what is written on top of them.",
        "",
    ]
    for path in NAMESPACES:
        found = names(path)
        lines += [f"## torch{'.' + path if path else ''} ({len(found)})", "", ", ".join(f"`{n}`" for n in found), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    target = Path(__file__).parent.parent / "docs" / "operators.md"
    target.write_text(page())
    print(f"wrote {target}")
