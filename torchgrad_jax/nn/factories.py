"""The factories by which modules make what they hold and begin with. They are those that users call, not implementations: modes are asked about what
a module consists of, as in PyTorch, which is how one is made on another device or with another dtype."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.calling.overrides import guarded
from torchgrad_jax.functions import creation

_factories: Any = guarded("torch", {name: getattr(creation, name) for name in ("empty", "ones", "tensor", "zeros")})
empty, ones, tensor, zeros = (_factories[name] for name in ("empty", "ones", "tensor", "zeros"))
