"""`functional_call` and `stack_module_state`: modules as functions of their parameters and buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.shaping import stack
from torchgrad_jax.functions.views import detach
from torchgrad_jax.nn.modules.batchnorm import _BatchNorm
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.utils.stateless import State, called


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: State | Sequence[State],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """What `module` returns when parameters and buffers are those given, by name; the module's own are in their places again afterwards.

    parameter_and_buffer_dicts: a dict, or several without a name in common. args: a tuple of positional arguments, or the only one. tie_weights: a
    name stands for all names of the same tensor in the module. strict: all names, and no others, must be given. What the module assigns to a name
    during the call is found in the dict afterwards, if it is one.

    ValueError for other kinds of dicts, names in several of them, and different tensors for tied names; RuntimeError for missing and unexpected names
    under `strict`; AttributeError, TypeError for names that lead to no module or to what is no tensor.

        >>> linear = torch.nn.Linear(2, 1)
        >>> torch.func.functional_call(linear, {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, torch.ones(2))
        tensor([2.])
    """
    given = _merged(parameter_and_buffer_dicts)
    return called(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def _merged(dicts: Any) -> State:
    if isinstance(dicts, dict):
        return dicts
    if not isinstance(dicts, (list, tuple)):
        raise ValueError(f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(dicts)}")
    if not all(isinstance(d, dict) for d in dicts):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    twice = [name for name, count in Counter(name for d in dicts for name in d).items() if count > 1]
    if twice:
        raise ValueError(f"{twice} appeared in multiple dictionaries; behavior of functional call is ambiguous")
    return {name: value for d in dicts for name, value in d.items()}


# ---------------------------------------------------------------------- several modules as one


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, buffers) of modules of one class, by name, stacked along a new first dimension: for `vmap` over `functional_call`.

    The stacked parameters are new leaves, which require grad where the modules' do. RuntimeError where there is no module, where they are not of one
    class and one training mode, or where a parameter requires grad in some of them only.

        >>> models = [torch.nn.Linear(2, 1) for _ in range(3)]
        >>> parameters, buffers = torch.func.stack_module_state(models)
        >>> parameters["weight"].shape
        torch.Size([3, 1, 2])
    """
    check_alike("stack_module_state", models)
    return _stacked([dict(m.named_parameters()) for m in models]), _stacked([dict(m.named_buffers()) for m in models])


def check_alike(function: str, models: Sequence[Module]) -> None:
    """RuntimeError where there is no module, or not all are of one class and mode."""
    if len(models) == 0:
        raise RuntimeError(f"{function}: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or not any(m.training for m in models)):
        raise RuntimeError(f"{function}: Expected all models to have the same training/eval mode.")
    if not all(type(m) is type(models[0]) for m in models):
        raise RuntimeError(f"{function}: Expected all models to be of the same class.")


def _stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    found = {}
    for name in states[0]:
        tensors = [state[name] for state in states]
        wanted = {t.requires_grad for t in tensors}
        if len(wanted) > 1:
            raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
        found[name] = detach(stack([detach(t) for t in tensors])).requires_grad_(wanted.pop())
    return found


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let the batch norms in `root` use the statistics of the batch alone: they have no running ones, and so nothing to write to. Gives `root`
    back."""
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            names: Any = module
            names.running_mean = names.running_var = names.num_batches_tracked = None
            names.track_running_stats = False
    return root
