"""Optimizers as functions of lists, which their callers keep: `torch.optim.adam.adam`, `torch._fused_adam_` and the like."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from torchgrad_jax.autograd.grad_mode import is_grad_enabled, set_grad_enabled
from torchgrad_jax.optim.by_parameter import ByParameter
from torchgrad_jax.optim.scalars import settings_of

# Settings that are pairs, by the names of their parts.
_PAIRS = {
    "betas": ("beta1", "beta2"), "eps": ("eps1", "eps2"), "etas": ("etaminus", "etaplus"), "step_sizes": ("step_size_min", "step_size_max")
}  # fmt: skip
_DEFAULTS: dict[str, Any] = {"foreach": None, "fused": None, "grad_scale": None, "found_inf": None}
_WRONG_LENGTH = (
    "Expected {}.size() == n_tensors to be true, but got false.  (Could this error message be improved?  If so, please report an enhancement request "
    "to PyTorch.)"
)


def of_lists(kind: type[ByParameter], lists: str, flags: str, settings: str, **fixed: Any) -> Callable[..., None]:
    """The step of an optimizer as a function of parameters, gradients, and lists of what is remembered of them.

    lists: ``name=state`` for each list, with the name of its tensors in a state. flags: parameters with defaults, which may be given by their places;
    settings: those that must be named. fixed: settings that are no parameters; ``fused=True`` is said of the functions of `torch` itself, whose steps
    are counted before they are called, and which are part of no graph. RuntimeError for lists of several lengths.
    """
    columns = dict(pair.split("=") for pair in lists.split())
    several = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("self" if fixed.get("fused") else "params", "grads", *columns)]
    optional = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=_DEFAULTS.get(name, False)) for name in flags.split()]
    named = [Parameter(name, Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name, Parameter.empty)) for name in settings.split()]
    signature = Signature([*several, *optional, *named])

    def step(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {**bound.arguments, **fixed}
        with set_grad_enabled(is_grad_enabled() and "fused" not in fixed):
            _step(kind, given, columns, "fused" in fixed)

    step.__signature__ = signature  # type: ignore[attr-defined]
    step.__doc__ = f"A step of {kind.__name__}, of lists of parameters, gradients and what is remembered of them: see there."
    return step


def _step(kind: type[ByParameter], given: dict[str, Any], columns: dict[str, str], counted: bool) -> None:
    params, grads = (given.pop(name) for name in list(given)[:2])
    lists = {name: given.pop(name) for name in columns}
    scale, overflow = given.pop("grad_scale", None), given.pop("found_inf", None)
    if overflow is not None and bool(overflow):
        return
    for pair, parts in _PAIRS.items():
        if parts[0] in given:
            given[pair] = tuple([given.pop(part) for part in parts])
    names = kind._rule_names(given)
    wanted = {name: state for name, state in columns.items() if state in names or state in kind._rule_scalars}
    for name, tensors in (("grads", grads), *[(name, lists[name]) for name in wanted]):
        if len(tensors) != len(params):
            raise RuntimeError(_WRONG_LENGTH.format(name))
    if given.pop("is_first_step", False):
        given["dampening"] = 0.0
        for name in wanted:
            for t in lists[name]:
                t.zero_()
    if scale is not None:
        for grad in grads:
            grad.div_(scale)
    states = [{state: lists[name][i] for name, state in wanted.items() if lists[name][i] is not None} for i in range(len(params))]
    kind._rule_update(settings_of(given), names, params, grads, states, counted)
    for name, state in wanted.items():
        for i, found in enumerate(states):
            if lists[name][i] is None and state in found:
                lists[name][i] = found[state]
