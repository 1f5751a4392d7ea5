"""Modules as functions of tuples of parameters and buffers: what was before `functional_call`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.func.functorch.moved import warn_of
from torchgrad_jax.func.modules import check_alike
from torchgrad_jax.functions.shaping import stack
from torchgrad_jax.functions.views import detach
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.utils.stateless import called


class _Functional(Module):
    """A module without a state of its own. param_names, buffer_names: in the order in which tensors are given."""

    def __init__(self, stateless_model: Module, param_names: Sequence[str], buffer_names: Sequence[str]) -> None:
        super().__init__()
        self.stateless_model, self.param_names, self.buffer_names = stateless_model, tuple(param_names), tuple(buffer_names)

    def _called(self, params: Sequence[Tensor], buffers: Sequence[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = {}
        for what, names, tensors in (("parameters", self.param_names, params), ("buffers", self.buffer_names, buffers)):
            if len(names) != len(tensors):
                raise ValueError(f"Expected {len(names)} {what}, got {len(tensors)}: {', '.join(names)}")
            given.update(zip(names, tensors, strict=True))
        return called(self.stateless_model, given, args, kwargs)


class FunctionalModule(_Functional):
    """What `make_functional` gives: called as ``module(params, *args, **kwargs)``. ValueError for another number of parameters."""

    def __init__(self, stateless_model: Module, param_names: Sequence[str]) -> None:
        super().__init__(stateless_model, param_names, ())

    def forward(self, params: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        """What the module computes with these parameters."""
        return self._called(params, (), args, kwargs)


class FunctionalModuleWithBuffers(_Functional):
    """What `make_functional_with_buffers` gives: called as ``module(params, buffers, *args, **kwargs)``. ValueError for another number of them."""

    def forward(self, params: Sequence[Tensor], buffers: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        """What the module computes with these parameters and buffers."""
        return self._called(params, buffers, args, kwargs)


def make_functional(model: Module, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """Deprecated: `torch.func.functional_call`. The model as a function of its parameters, and copies of these; its buffers stay its own.

    disable_autograd_tracking: the copies do not require grad.
    """
    warn_of("make_functional", "torch.func.functional_call")
    model = copy.deepcopy(model)
    named = dict(model.named_parameters())
    return FunctionalModule(model, tuple(named)), _parameters(named, disable_autograd_tracking)


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Deprecated: `torch.func.functional_call`. The model as a function of its parameters and buffers, and copies of these.

    disable_autograd_tracking: the copies of parameters do not require grad.
    """
    warn_of("make_functional_with_buffers", "torch.func.functional_call")
    return _with_buffers(model, disable_autograd_tracking)


def combine_state_for_ensemble(models: Sequence[Module]) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Deprecated: `torch.func.stack_module_state`. Modules of one class as a function of parameters and buffers, and those of all of them stacked.
    RuntimeError where there is no module, or not all are of one class and mode."""
    warn_of("combine_state_for_ensemble", "torch.func.stack_module_state")
    check_alike("combine_state_for_ensemble", models)
    made = [_with_buffers(model, False) for model in models]
    params, buffers = (
        tuple(stack([detach(t) for t in column]) for column in zip(*parts, strict=True)) for parts in list(zip(*made, strict=True))[1:]
    )
    return made[0][0], params, buffers


def _with_buffers(model: Module, untracked: bool) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    model = copy.deepcopy(model)
    named, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    return FunctionalModuleWithBuffers(model, tuple(named), tuple(buffers)), _parameters(named, untracked), tuple(buffers.values())


def _parameters(named: dict[str, Any], untracked: bool) -> tuple[Tensor, ...]:
    if untracked:
        for p in named.values():
            p.requires_grad_(False)
    return tuple(named.values())
