"""`state_dict` and `load_state_dict`: a Module's parameters and persistent buffers as one flat dictionary."""

from __future__ import annotations

import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from torchgrad_jax.__future__ import get_swap_module_params_on_conversion
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.node import RemovableHandle, registered
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.replacing import set_data
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.parameter import is_lazy
from torchgrad_jax.runtime.user_code import warn_user

_EXTRA = "_extra_state"


class IncompatibleKeys(namedtuple("_IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` returns: the names that were not given, and those that nothing was known about."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<All keys matched successfully>" if not (self.missing_keys or self.unexpected_keys) else super().__repr__()

    __str__ = __repr__


# As it is printed and pickled.
IncompatibleKeys.__module__, IncompatibleKeys.__name__, IncompatibleKeys.__qualname__ = "torchgrad_jax.nn.modules.module", *["_IncompatibleKeys"] * 2


_NO_EXTRA = "Reached a code path in Module.{}_extra_state() that should never be called. A class that has extra state overrides it."
Hooks = OrderedDict[int, Any]


class _OfModule:
    """A hook that is given, first, the module it was registered with. It does not keep the module alive; in a copy of the module it is given the
    copy."""

    __slots__ = ("hook", "module")

    def __init__(self, hook: Callable[..., Any], module: Any) -> None:
        self.hook, self.module = hook, weakref.ref(module)

    def __call__(self, *args: Any) -> Any:
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args)

    def __getstate__(self) -> tuple[Any, Any]:
        return self.hook, self.module()

    def __setstate__(self, state: tuple[Any, Any]) -> None:
        self.hook, self.module = state[0], weakref.ref(state[1])


class Stateful:
    """The part of Module that is saved and loaded."""

    _version = 1
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_pre_hooks: Hooks
    _state_dict_hooks: Hooks
    _load_state_dict_pre_hooks: Hooks
    _load_state_dict_post_hooks: Hooks

    def get_extra_state(self) -> Any:
        """What belongs into the state beside tensors; a class that overrides it overrides `set_extra_state` too."""
        raise RuntimeError(_NO_EXTRA.format("get"))

    def set_extra_state(self, state: Any) -> None:
        """Take over what `get_extra_state` gave."""
        raise RuntimeError(_NO_EXTRA.format("set"))

    # ------------------------------------------------------------------ hooks

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before this module's part of a `state_dict` is made."""
        return registered(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` when this module's part of a `state_dict`, and what is below it, is made. It
        changes the dictionary in place: RuntimeError where it returns something."""
        return registered(self._state_dict_hooks, _Public(hook))

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Like `register_state_dict_post_hook`; but what the hook returns, if anything, takes the dictionary's place."""
        return registered(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`` before this module takes its
        part of a state."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> RemovableHandle:
        """The same, without the module unless `with_module`."""
        return registered(self._load_state_dict_pre_hooks, _OfModule(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable[[Any, IncompatibleKeys], None]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after a state was loaded; it may empty the lists, so that nothing is raised."""
        return registered(self._load_state_dict_post_hooks, hook)

    # ------------------------------------------------------------------ saving

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """The parameters and persistent buffers by dotted name, detached unless keep_vars; put into `destination` if it is given. Deprecated: these
        three by position."""
        if args:
            warn_user(_BY_POSITION, FutureWarning)
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and prefix == "" else prefix
            keep_vars = args[2] if len(args) > 2 and keep_vars is False else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()  # the versions of the modules that it is the state of
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            found = hook(self, destination, prefix, metadata)
            if found is not None:
                destination = found
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Put in what is this module's own."""
        for name, t in self.__state().items():
            destination[prefix + name] = t if keep_vars else t.detach()
        if type(self).get_extra_state is not Stateful.get_extra_state:
            destination[prefix + _EXTRA] = self.get_extra_state()

    def __state(self) -> dict[str, Tensor]:
        buffers = {name: t for name, t in self._buffers.items() if name not in self._non_persistent_buffers_set}
        return {name: t for name, t in (*self._parameters.items(), *buffers.items()) if t is not None}

    # ------------------------------------------------------------------ loading

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> IncompatibleKeys:
        """Copy a state into the module's tensors, or (assign) make its tensors the module's.

        TypeError where it is no mapping. RuntimeError, after everything that fits was loaded, where shapes differ and, if `strict`, names.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        metadata = getattr(state_dict, "_metadata", None)
        given: Any = OrderedDict(state_dict)
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        self.__load(given, "", metadata, assign, missing, unexpected, errors)
        if strict:
            if unexpected:
                errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
            if missing:
                errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
        if errors:
            raise RuntimeError("Error(s) in loading state_dict for {}:\n\t{}".format(type(self).__name__, "\n\t".join(errors)))
        return IncompatibleKeys(missing, unexpected)

    def __load(self, given: Any, prefix: str, metadata: Any, assign: bool, missing: list[str], unexpected: list[str], errors: list[str]) -> None:
        local = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
        if assign:
            local["assign_to_params_buffers"] = True
        self._load_from_state_dict(given, prefix, local, True, missing, unexpected, errors)
        for name, module in self._modules.items():
            if module is not None:
                below = f"{prefix}{name}."
                module.__load({k: v for k, v in given.items() if k.startswith(below)}, below, metadata, assign, missing, unexpected, errors)
        keys = IncompatibleKeys(missing, unexpected)
        for hook in self._load_state_dict_post_hooks.values():
            if hook(self, keys) is not None:
                raise AssertionError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values, if incompatible_keys need "
                    "to be modified, it should be done inplace."
                )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool, missing_keys: list[str], unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Take over what is this module's own; add to the lists what is missing, not known or does not fit."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = self.__state()
        for name, t in own.items():
            if prefix + name not in state_dict:
                if strict:
                    missing_keys.append(prefix + name)
                continue
            if not is_lazy(t):  # without a shape there is nothing to copy
                self.__take(name, t, prefix + name, state_dict[prefix + name], assign, error_msgs)
        extra = prefix + _EXTRA
        if type(self).set_extra_state is not Stateful.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                name, dot, _ = key[len(prefix) :].partition(".")
                if key.startswith(prefix) and key != extra and name not in (self._modules if dot else own):
                    unexpected_keys.append(key)

    def __take(self, name: str, t: Tensor, key: str, new: Any, assign: bool, errors: list[str]) -> None:
        if not isinstance(new, Tensor):
            errors.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from checkpoint but received {type(new)}'
            )
            return
        if t.ndim == 0 and new.ndim == 1 and len(new) == 1:  # as old versions of PyTorch saved numbers
            new = new[0]
        if new.shape != t.shape:
            errors.append(
                f"size mismatch for {key}: copying a param with shape {new.shape} from checkpoint, the shape in current model is {t.shape}."
            )
            return
        if t.is_meta and not new.is_meta and not assign:
            warn_user(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, which is a no-op. "
                "(Did you mean to pass `assign=True` to assign items in the state dictionary to their corresponding key in the module instead of "
                "copying them in place?)"
            )
        try:
            if not assign:
                with no_grad():
                    t.copy_(new)
            elif get_swap_module_params_on_conversion():
                set_data(t, new)
            else:
                if isinstance(t, Parameter):
                    new = new.requires_grad_(t.requires_grad) if isinstance(new, Parameter) else Parameter(new, t.requires_grad)
                setattr(self, name, new)
        except Exception as error:
            errors.append(
                f'While copying the parameter named "{key}", whose dimensions in the model are {t.size()} and whose dimensions in the checkpoint '
                f"are {new.size()}, an exception occurred : {error.args}."
            )


_BY_POSITION = (
    "Positional args are being deprecated, use kwargs instead. Refer to "
    "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.state_dict for details."
)


class _Public:
    """A hook of `register_state_dict_post_hook`, which returns nothing."""

    __slots__ = ("hook",)

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, *args: Any) -> None:
        if self.hook(*args) is not None:
            raise RuntimeError("state_dict post-hook must return None")


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
