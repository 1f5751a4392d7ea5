"""`functional_call` and `stack_module_state`: modules as functions of their parameters and buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.shaping import stack
from torchgrad_jax.functions.views import detach
from torchgrad_jax.nn.modules.layers import _BatchNorm
from torchgrad_jax.nn.modules.module import Module

State = dict[str, Any]


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

    parameter_and_buffer_dicts: a dict, or several without a name in common. args: a tuple of positional arguments, or the only one. tie_weights: a name
    stands for all names of the same tensor in the module. strict: all names, and no others, must be given. What the module assigns to a name during the
    call is found in the dict afterwards, if it is one.

    ValueError for other kinds of dicts, names in several of them, and different tensors for tied names; RuntimeError for missing and unexpected names
    under `strict`; AttributeError, TypeError for names that lead to no module or to what is no tensor.

        >>> linear = torch.nn.Linear(2, 1)
        >>> torch.func.functional_call(linear, {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, torch.ones(2))
        tensor([2.])
    """
    given = _merged(parameter_and_buffer_dicts)
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with replaced(module, given, tie_weights, strict):
        return module(*arguments, **({} if kwargs is None else kwargs))


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


# ---------------------------------------------------------------------- tensors in the places of others


@contextmanager
def replaced(module: Module, given: State, tie_weights: bool, strict: bool) -> Iterator[None]:
    """Parameters and buffers are those given; afterwards the module's own again, and `given` has what was assigned meanwhile."""
    named = _named_tensors(module)
    values = _untied(named, given) if tie_weights else dict(given)
    if strict:
        _check_names(module, set(values), set(named))
    places = {name: _Place(module, name) for name in values}
    own: dict[str, Any] = {}
    try:
        for name, place in places.items():
            own[name] = place.put(values[name])
        yield
    finally:
        for name in reversed(list(own)):
            left = places[name].put(own[name])
            if name in given and left is not _ABSENT:
                given[name] = left


def _named_tensors(module: Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}


def _untied(named: Mapping[str, Tensor], given: State) -> State:
    """What is given, under all names of the tensors that it stands for."""
    groups: dict[int, list[str]] = {}
    for name, t in named.items():
        groups.setdefault(id(t), []).append(name)
    found = dict(given)
    for names in groups.values():
        there = sorted(name for name in names if name in given)
        if not there:
            continue
        if any(given[name] is not given[there[0]] for name in there):
            raise ValueError(f"functional_call got multiple values for keys {there}, which are tied. Consider using tie_weights=False")
        found.update(dict.fromkeys(names, given[there[0]]))
    return found


def _check_names(module: Module, given: set[str], named: set[str]) -> None:
    lines = [
        f"\n\t{what} key(s): {', '.join(map(repr, sorted(names)))}."
        for what, names in (("Unexpected", given - named), ("Missing", named - given))
        if names
    ]
    if lines:
        raise RuntimeError(f"Error(s) in reparametrizing for {type(module).__name__}:{''.join(lines)}")


_ABSENT: Any = object()


class _Place:
    """Where a module, or one within it, keeps the tensor of a name."""

    __slots__ = ("owner", "attribute", "names")

    def __init__(self, module: Module, name: str) -> None:
        *path, self.attribute = name.split(".")
        owner: Any = module
        for i, part in enumerate(path):
            if not hasattr(owner, part):
                raise AttributeError(f"{type(owner).__name__} has no attribute `{part}`")
            owner = getattr(owner, part)
            if not isinstance(owner, Module):
                raise TypeError(f"submodule `{'.'.join(path[: i + 1])}`: {owner} is not an instance of torch.nn.Module")
        if not self.attribute:
            raise KeyError('tensor name can\'t be empty string ""')
        self.owner, self.names = owner, _registered(owner, self.attribute)

    def put(self, value: Any) -> Any:
        """Put a tensor, or nothing, into the place; what was there is given back. TypeError where one of them is no tensor."""
        if not (value is None or value is _ABSENT or isinstance(value, Tensor)):
            raise TypeError(f"{value} is not an instance of torch.Tensor")
        before = self._taken()
        if value is not _ABSENT:
            self.names[self.attribute] = value
        elif before is not _ABSENT:
            del self.names[self.attribute]
        return before

    def _taken(self) -> Any:
        """What is found under the name; the module may have put it elsewhere meanwhile, from where it is removed."""
        before = self.names.get(self.attribute, _ABSENT)
        for names in (self.owner._parameters, self.owner._buffers, vars(self.owner)):
            if names is not self.names and self.attribute in names:
                before = names.pop(self.attribute)
        return before


def _registered(owner: Module, attribute: str) -> dict[str, Any]:
    """The dict of a module that has, or would have, the attribute. TypeError where it is no tensor."""
    for names in (owner._parameters, owner._buffers):
        if attribute in names:
            return names
    if hasattr(owner, attribute) and not isinstance(found := getattr(owner, attribute), Tensor):
        raise TypeError(f"attribute `{attribute}`: {found} is not an instance of torch.Tensor")
    return vars(owner)


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
    """Let the batch norms in `root` use the statistics of the batch alone: they have no running ones, and so nothing to write to. Gives `root` back."""
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            names: Any = module
            names.running_mean = names.running_var = names.num_batches_tracked = None
            names.track_running_stats = False
    return root
