"""In which module of PyTorch's its classes are, by which its files name them."""

from __future__ import annotations

import importlib
import inspect
from collections import defaultdict
from pathlib import Path

# Where users find them. What is not public need not be here: its module is asked for by its own name.
PACKAGES = (
    "torch.nn", "torch.nn.utils", "torch.nn.utils.rnn", "torch.nn.utils.parametrize", "torch.nn.utils.parametrizations", "torch.nn.utils.prune",
    "torch.optim", "torch.optim.lr_scheduler", "torch.optim.swa_utils", "torch.distributions", "torch.distributions.transforms",
    "torch.distributions.constraints", "torch.utils.data", "torch.utils.data.sampler",
)  # fmt: skip
MODULES = ("torch.nn", "torch.optim", "torch.distributions", "torch.utils")


def table() -> str:
    """Lines ``module: name name ...``, as the package keeps them."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in PACKAGES:
        home = importlib.import_module(package)
        for name, value in vars(home).items():
            if name[0] != "_" and inspect.isclass(value) and value.__module__.startswith(MODULES) and value.__qualname__ == name:
                found[value.__module__].add(name)
    return "".join(f"{module}: {' '.join(sorted(names))}\n" for module, names in sorted(found.items()))


def write(path: Path) -> None:
    """Write the table."""
    path.write_text(table())
