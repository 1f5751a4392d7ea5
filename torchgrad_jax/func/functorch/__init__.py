"""`functorch`, as what `torch.func` was before PyTorch 2.0: each of its functions says under which name it is now, and is that.

Under ``torchgrad-jax run`` it is what `import functorch` finds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from torchgrad_jax.func import forward, functionalizing, jacobians, reverse, vmapping
from torchgrad_jax.func.functorch.make_functional import (
    FunctionalModule,
    FunctionalModuleWithBuffers,
    combine_state_for_ensemble,
    make_functional,
    make_functional_with_buffers,
)
from torchgrad_jax.func.functorch.moved import warn_of

__all__ = [
    "FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd",
    "jacrev", "jvp", "make_functional", "make_functional_with_buffers", "make_fx", "vjp", "vmap",
]  # fmt: skip


def _moved(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def deprecated(*args: Any, **kwargs: Any) -> Any:
        warn_of(function.__name__, name)
        return function(*args, **kwargs)

    return deprecated


vmap = _moved(vmapping.vmap, "torch.vmap")
grad = _moved(reverse.grad, "torch.func.grad")
grad_and_value = _moved(reverse.grad_and_value, "torch.func.grad_and_value")
vjp = _moved(reverse.vjp, "torch.func.vjp")
jvp = _moved(forward.jvp, "torch.func.jvp")
jacrev = _moved(jacobians.jacrev, "torch.func.jacrev")
jacfwd = _moved(jacobians.jacfwd, "torch.func.jacfwd")
hessian = _moved(jacobians.hessian, "torch.func.hessian")
functionalize = _moved(functionalizing.functionalize, "torch.func.functionalize")


def make_fx(*args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError: no graphs are made of the operators below autograd."""
    raise NotImplementedError(
        "functorch.make_fx makes a graph of PyTorch's operators below autograd, which torchgrad_jax does not have. torch.fx.symbolic_trace makes "
        "one of what a program calls; what runs are XLA programs: jax.make_jaxpr shows that of a function of JAX arrays."
    )
