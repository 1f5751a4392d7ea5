"""Optimizer: parameters in groups, what an optimizer remembers of each, and the hooks around its steps."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from itertools import chain
from typing import Any, TypeAlias, TypeVar

from torchgrad_jax.autograd.grad_mode import enable_grad, exchange_grad_mode, set_grad_enabled
from torchgrad_jax.core.node import RemovableHandle, registered
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.views import view_as_real
from torchgrad_jax.lifting.reach import everywhere
from torchgrad_jax.runtime.recorder import per_thread

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
_F = TypeVar("_F", bound=Callable[..., Any])


class _RequiredParameter:
    """Marks a setting without a default."""

    def __repr__(self) -> str:
        return "<required parameter>"


required: Any = _RequiredParameter()
_global_optimizer_pre_hooks: OrderedDict[int, Any] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, Any] = OrderedDict()
everywhere += (_global_optimizer_pre_hooks, _global_optimizer_post_hooks)


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before each step of every optimizer, before the hooks of its own. What it returns, if anything, is the
    pair (args, kwargs) that the step is called with. The handle's `remove` takes it back."""
    return registered(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after each step of every optimizer, after the hooks of its own."""
    return registered(_global_optimizer_post_hooks, hook)


def _use_grad_for_differentiable(step: _F) -> _F:
    """A step that is part of a graph where the optimizer's ``differentiable`` says so, and of none otherwise."""

    @functools.wraps(step)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        follows = self.defaults.get("differentiable", False)
        if follows is not False:
            with set_grad_enabled(follows):
                return step(self, *args, **kwargs)
        before = exchange_grad_mode(False)
        try:
            return step(self, *args, **kwargs)
        finally:
            exchange_grad_mode(before)

    return wrapper  # type: ignore[return-value] - of the same signature


def evaluated(closure: Callable[[], Any] | None) -> Any:
    """What the user's closure returns, computed with a graph; None if there is none."""
    if closure is None:
        return None
    with enable_grad():
        return closure()


def _range(optimizer: Any, method: str) -> AbstractContextManager[None]:
    """A range named after a method in profiles, where one is being made."""
    watch = per_thread.recorder.flags.watch
    return _NOTHING if watch is None else _watched(watch, f"Optimizer.{method}#{type(optimizer).__name__}.{method}")


_NOTHING = nullcontext()


@contextmanager
def _watched(watch: Any, name: str) -> Iterator[None]:
    begun = watch.begin_range(name)
    try:
        yield
    finally:
        watch.end(begun)


class Optimizer:
    """The base of all optimizers: parameter groups, state and hooks. A subclass has a `step`.

    params: Tensors, (name, Tensor) pairs, or dicts, which are parameter groups: "params" with settings of their own. defaults: the settings of groups
    that do not have them. TypeError for anything else, ValueError for no parameter, one that is no leaf, or one in several groups.

    state: what is remembered of a parameter, by the parameter. param_groups: dicts with "params" and the settings, which may be changed at any time.
    """

    OptimizerPreHook = Callable[["Optimizer", tuple[Any, ...], dict[str, Any]], "tuple[tuple[Any, ...], dict[str, Any]] | None"]
    OptimizerPostHook = Callable[["Optimizer", tuple[Any, ...], dict[str, Any]], None]

    state: defaultdict[Any, Any]
    param_groups: list[dict[str, Any]]
    defaults: dict[str, Any]
    _optimizer_step_pre_hooks: OrderedDict[int, Any]
    _optimizer_step_post_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Any]
    __KINDS_OF_HOOKS = ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post")

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.__without_hooks()
        self._patch_step_function()
        if isinstance(params, Tensor):
            raise TypeError(f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got {params.type()}")
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __without_hooks(self) -> None:
        for kind in self.__KINDS_OF_HOOKS:
            setattr(self, f"_optimizer_{kind}_hooks", OrderedDict())

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_optimizer_step_pre_hooks" not in self.__dict__:
            self.__without_hooks()
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
            lines.append("")
        return "\n".join(lines[:-1]) + "\n)"

    # ------------------------------------------------------------------ a step

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients. closure: computes the loss anew, and its gradients, and returns it; so does `step` then."""
        raise NotImplementedError

    @staticmethod
    def profile_hook_step(func: _F) -> _F:
        """A step with the hooks around it, under its name in profiles. RuntimeError where a hook returns what it may not."""

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self: Optimizer = args[0]
            with _range(self, "step"):
                for hook in chain(_global_optimizer_pre_hooks.values(), self._optimizer_step_pre_hooks.values()):
                    result = hook(self, args, kwargs)
                    if result is not None:
                        if not (isinstance(result, tuple) and len(result) == 2):
                            raise RuntimeError(f"{func} must return None or a tuple of (new_args, new_kwargs), but got {result}.")
                        args, kwargs = result
                out = func(*args, **kwargs)
                self._optimizer_step_code()
                for hook in chain(self._optimizer_step_post_hooks.values(), _global_optimizer_post_hooks.values()):
                    hook(self, args, kwargs)
                return out

        return wrapper  # type: ignore[return-value] - of the same signature

    def _optimizer_step_code(self) -> None:
        """Called after each step, for tools that put something else in its place."""

    def _accelerator_graph_capture_health_check(self) -> None:
        """Nothing can go wrong with captures: there are none. Called by optimizers that are written like PyTorch's own."""

    def _cuda_graph_capture_health_check(self) -> None:
        """Its name from before. Warns."""
        warnings.warn("Use _accelerator_graph_capture_health_check instead", DeprecationWarning, stacklevel=2)

    @staticmethod
    def _group_tensors_by_device_and_dtype(
        tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
    ) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
        """Lists of tensors that belong together, by the device and the dtype of those in the first; with_indices: and their places."""
        found: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
        for i, t in enumerate(tensorlistlist[0]):
            lists, places = found.setdefault((t.device, t.dtype), ([[] for _ in tensorlistlist], []))
            for to, given in zip(lists, tensorlistlist, strict=True):
                if len(given):
                    to.append(given[i])
            if with_indices:
                places.append(i)
        return found

    def _patch_step_function(self) -> None:
        kind: Any = type(self)
        if not getattr(kind.step, "hooked", None):
            kind.step = self.profile_hook_step(kind.step)
            kind.step.hooked = True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Take the gradients of all parameters away, or (set_to_none=False) make them zero."""
        with _range(self, "zero_grad"):
            for p in _params_of(self.param_groups):
                if set_to_none:
                    p.grad = None
                    continue
                if p.grad is None:
                    continue
                if p.grad.grad_fn is not None:
                    p.grad.detach_()
                else:
                    p.grad.requires_grad_(False)
                p.grad.zero_()

    # ------------------------------------------------------------------ parameter groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group: "params", and settings other than the defaults. The errors are those of the constructor."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets will change between runs. "
                "Please use a list instead."
            )
        param_group["params"] = params = list(params)
        _take_names_apart(param_group)
        self.__check_params(param_group["params"])
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        self.__check_group(param_group)
        self.param_groups.append(param_group)

    def __check_params(self, params: list[Any]) -> None:
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {_typename(p)}")
            if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")

    def __check_group(self, group: dict[str, Any]) -> None:
        params = group["params"]
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=4,
            )
        known: set[Any] = set()
        for other in self.param_groups:
            known.update(other["params"])
            if ("param_names" in group) != ("param_names" in other):
                which = "with" if "param_names" in group else "without"
                raise ValueError(
                    f"all optimizer param groups should be with/without names. cannot add param group {which} names to the optimizer"
                )  # fmt: skip
        if not known.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")

    # ------------------------------------------------------------------ hooks

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step, args with the optimizer as its first; see `register_optimizer_step_pre_hook`."""
        return registered(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return registered(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before `state_dict`. prepend: before the hooks that are there already."""
        return registered(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` on what `state_dict` is about to return: that is what the hook returns, unless that is None."""
        return registered(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before `load_state_dict`, with a shallow copy; what it returns, unless None, is loaded instead."""
        return registered(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` after `load_state_dict`."""
        return registered(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # ------------------------------------------------------------------ states as dicts

    def state_dict(self) -> dict[str, Any]:
        """{"state": ..., "param_groups": ...}, with parameters by their number over all groups. The tensors are the optimizer's own."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            groups.append({k: v for k, v in group.items() if k != "params"} | {"params": [numbers[id(p)] for p in group["params"]]})
        state = {(numbers[id(k)] if isinstance(k, Tensor) else k): v for k, v in self.state.items()}
        found: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, found)
            if changed is not None:
                found = changed
        return found

    @staticmethod
    def _process_value_according_to_param_policy(
        param: Tensor, value: Tensor, param_id: int, param_groups: list[dict[str, Any]], key: Any = None
    ) -> Tensor:
        """A tensor of a loaded state as it belongs to `param`: of its device, and of its dtype if that is floating-point. A step count keeps its own,
        but where the group is capturable or fused it is on the parameter's device."""
        if key == "step":
            group = next((g for g in param_groups if param_id in g["params"]), {})
            return value.to(dtype=dtypes.float32, device=param.device) if group.get("capturable") or group.get("fused") else value
        return value.to(dtype=param.dtype, device=param.device) if param.is_floating_point() else value.to(device=param.device)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what another's `state_dict` returned. ValueError where its groups are others in number or size. Names of parameters, if this
        optimizer has some and the other had none, stay."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved, strict=True)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        of_number = dict(zip(_params_of(saved), _params_of(groups), strict=True))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            p = of_number.get(key)
            state[key if p is None else p] = value if p is None else self.__cast(p, value, key, state_dict["param_groups"])
        for group, new in zip(groups, saved, strict=True):
            new["params"] = group["params"]
            if "param_names" in group and "param_names" not in new:
                new["param_names"] = group["param_names"]
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def __cast(self, param: Tensor, value: Any, number: int, groups: list[dict[str, Any]], key: Any = None) -> Any:
        if isinstance(value, Tensor):
            return Optimizer._process_value_according_to_param_policy(param, value, number, groups, key)
        if isinstance(value, dict):
            return {k: self.__cast(param, v, number, groups, k) for k, v in value.items()}
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
            return type(value)(self.__cast(param, v, number, groups) for v in value)  # type: ignore[call-arg] - lists, tuples and the like
        return value


def _params_of(groups: list[dict[str, Any]]) -> list[Any]:
    return [p for group in groups for p in group["params"]]


def _typename(o: Any) -> str:
    module = type(o).__module__
    return type(o).__qualname__ if module in ("builtins", "__builtin__") else f"{module}.{type(o).__qualname__}"


def _take_names_apart(group: dict[str, Any]) -> None:
    """Of a group of (name, Tensor) pairs make one of tensors, with their names beside them. ValueError where some have no name."""
    pairs = [isinstance(p, tuple) for p in group["params"]]
    if any(pairs):
        if not all(pairs):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        group["param_names"] = [p[0] for p in group["params"]]
        group["params"] = [p[1] for p in group["params"]]


# ---------------------------------------------------------------------- what optimizers that are written like PyTorch's own import


def _get_value(x: Any) -> Any:
    """The number that a tensor is, or the number itself."""
    return x.item() if isinstance(x, Tensor) else x


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Put pairs of real numbers in the places of complex ones, in all lists where the first has some."""
    for i, p in enumerate(params):
        if p.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[i] = view_as_real(tensors[i])


def _default_to_fused_or_foreach(params: list[Tensor], differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """Whether to take the fused and the foreach form, where nobody asked for one: neither, as for PyTorch on a CPU."""
    return False, False
