"""Modules called with other parameters and buffers than their own: `torch.nn.utils.stateless`, and what `torch.func.functional_call` stands on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.module import Module, OptimizedModule
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["functional_call"]

State = dict[str, Any]


def functional_call(
    module: Module,
    parameters_and_buffers: State,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Deprecated: `torch.func.functional_call`, for a single dict."""
    warn_user(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future version of PyTorch. Please use "
        "`torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
    )
    if not isinstance(parameters_and_buffers, Mapping):
        raise AttributeError(f"'{type(parameters_and_buffers).__name__}' object has no attribute 'keys': parameters_and_buffers must be a dict")
    return called(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


def called(
    module: Module,
    parameters_and_buffers: State,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """What the module returns with the given tensors in the places of its own. See `torch.func.functional_call`."""
    if not isinstance(module, Module):
        raise AttributeError(f"'{type(module).__name__}' object has no attribute 'named_parameters': functional_call needs a torch.nn.Module")
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with replaced(module, parameters_and_buffers, tie_weights, strict, stack_weights=True):
        return module(*arguments, **({} if kwargs is None else kwargs))


# ---------------------------------------------------------------------- tensors in the places of others


@contextmanager
def replaced(
    module: Module, parameters_and_buffers: State, tie_weights: bool = False, strict: bool = False, stack_weights: bool = False
) -> Iterator[None]:
    """Parameters and buffers are those given; afterwards the module's own again, and the dict has what was assigned meanwhile.

    tie_weights: a tensor that the module has under several names is replaced under all of them. strict: RuntimeError unless all names are given, and
    no others. stack_weights: put the module's own back in the reverse order, which matters where two names given mean the same place.
    """
    given = parameters_and_buffers
    values = untied(module, given) if tie_weights else dict(given)
    if strict:
        _check_names(module, set(values), set(_named_tensors(module)))
    places = {name: _Place(module, name) for name in values}
    own: State = {}
    there = False
    try:
        try:
            for name, place in places.items():
                own[name] = place.names.get(place.attribute, _ABSENT)
                place.put(values[name])
            there = True
            yield
        finally:
            for name in _back(own, stack_weights):
                left = places[name].put(own[name])
                if there and name in given and left is not _ABSENT:
                    given[name] = left
    except BaseException:  # an interrupt may have come while they were put back
        for name in _back(own, stack_weights):
            places[name].put(own[name])
        raise


def _back(own: State, stack_weights: bool) -> list[str]:
    return list(reversed(own)) if stack_weights else list(own)


def _named_tensors(module: Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}


def untied(module: Module, parameters_and_buffers: State) -> State:
    """What is given, under all names of the tensors that it stands for. ValueError where two of them are given different tensors."""
    groups: dict[int, list[str]] = {}
    for name, t in _named_tensors(module).items():
        groups.setdefault(id(t), []).append(name)
    given, found = parameters_and_buffers, dict(parameters_and_buffers)
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


# Under these names other packages import them.
_functional_call, _reparametrize_module, _untie_named_tensors_map = called, replaced, untied

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
        if isinstance(owner, OptimizedModule):
            owner = owner._orig_mod
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
