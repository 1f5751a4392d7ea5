"""Makes docs/operators.md: how far each operator agrees with PyTorch, and the public names that exist. ``python -m compat_suite --write``"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torchgrad_jax
from torchgrad_jax.operators import registry

NAMESPACES = ("", "Tensor", "nn.functional", "linalg", "fft", "special", "autograd", "autograd.graph", "autograd.forward_ad")


def names(path: str) -> list[str]:
    """The public functions and classes of a namespace."""
    found: object = torchgrad_jax
    for part in filter(None, path.split(".")):
        found = getattr(found, part)
    return sorted(n for n in dir(found) if not n.startswith("_") and not isinstance(getattr(found, n, None), ModuleType))


def percent(agree: int, samples: int) -> str:
    """A share in words: empty where nothing was compared."""
    return "" if not samples else "100" if agree == samples else f"{100 * agree / samples:.1f}"


def agreement(found: dict[str, Any], tier_of: dict[str, int]) -> list[str]:
    """The table of agreement as Markdown lines. found: by "operator check dtype" the counts of agreeing and of all samples."""
    counts: dict[tuple[str, str], list[int]] = {}
    for key, (agree, samples, _) in found.items():
        name, check, _ = key.split(" ")
        for row in ((name, check), (f"tier {tier_of.get(name, 3)}", check)):
            count = counts.setdefault(row, [0, 0])
            count[0] += agree
            count[1] += samples
    checks = list(dict.fromkeys(check for _, check in counts))
    lines = ["| operator | tier | " + " | ".join(checks) + " |", "|---|---|" + "---:|" * len(checks)]
    for tier in sorted(set(tier_of.values())):
        named = [f"tier {tier}", *sorted(n for n in tier_of if tier_of[n] == tier)]
        for name in named:
            row = [percent(*counts.get((name, check), (0, 0))) for check in checks]
            if any(row):
                shown = f"**all of tier {tier}**" if name == named[0] else f"`{name}`"
                lines.append(f"| {shown} | {tier} | " + " | ".join(row) + " |")
    return lines


LEAD = """# Operators

Made by `python -m compat_suite --write`. The table is the share, in percent, of the sample inputs
of PyTorch's own operator database on which both libraries agree (float32, float64, complex128,
int64, bool and bfloat16 where the operator takes them; at most {samples} samples an operator and
dtype), and of its bad inputs for which the class (`error`) and the text (`error_text`) of what is
raised are PyTorch's. `node`: whether results require grad alike and have a `grad_fn` of the same
name. Numbers agree where they differ by at most 1e-4 relative or 2e-5 absolute (float32), 1e-7 or
1e-8 (float64, complex128), 1.6e-2 or 1e-3 (bfloat16); gradients and tangents twice that, second
gradients five times. What is chance in PyTorch is compared as far as it is none: the order of equal
elements, the phase of eigenvectors, the content of empty tensors. Empty: the operator has no such
form. What differs and why is in [differences.md](differences.md).
"""


def page(found: dict[str, Any], tier_of: dict[str, int], samples: int) -> str:
    """The whole page as Markdown."""
    lines = [LEAD.format(samples=samples), *agreement(found, tier_of), "", "## What is available", ""]
    lines += [f"{len(registry)} declared operators, and what is written on top of them.", ""]
    for path in NAMESPACES:
        available = names(path)
        lines += [f"### torch{'.' + path if path else ''} ({len(available)})", "", ", ".join(f"`{n}`" for n in available), ""]
    return "\n".join(lines)
