"""`state_dict` and `load_state_dict`: a Module's parameters and persistent buffers as one flat dictionary."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.node import HookList, RemovableHandle
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor

_EXTRA = "_extra_state"


class IncompatibleKeys(namedtuple("_IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` returns: the names that were not given, and those that nothing was known about."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<All keys matched successfully>" if not (self.missing_keys or self.unexpected_keys) else super().__repr__()

    __str__ = __repr__


IncompatibleKeys.__name__ = "_IncompatibleKeys"


class Stateful:
    """The part of Module that is saved and loaded."""

    _version = 1
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _load_state_dict_post_hooks: HookList

    def __init__(self) -> None:
        object.__setattr__(self, "_load_state_dict_post_hooks", HookList())

    def get_extra_state(self) -> Any:
        """What belongs into the state beside tensors; a class that overrides it overrides `set_extra_state` too."""
        raise RuntimeError("Module.get_extra_state() is not overridden by this class")

    def set_extra_state(self, state: Any) -> None:
        """Take over what `get_extra_state` gave."""
        raise RuntimeError("Module.set_extra_state() is not overridden by this class")

    def register_load_state_dict_post_hook(self, hook: Callable[[Any, IncompatibleKeys], None]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after a state was loaded; it may empty the lists, so that nothing is raised."""
        return self._load_state_dict_post_hooks.add(hook)

    # ------------------------------------------------------------------ saving

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """The parameters and persistent buffers by dotted name, detached unless keep_vars; put into `destination` if it is given."""
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()  # the versions of the modules that it is the state of
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Put in what is this module's own."""
        for name, t in self._state().items():
            destination[prefix + name] = t if keep_vars else t.detach()
        if type(self).get_extra_state is not Stateful.get_extra_state:
            destination[prefix + _EXTRA] = self.get_extra_state()

    def _state(self) -> dict[str, Tensor]:
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
        self._load(given, "", metadata, assign, missing, unexpected, errors)
        if strict:
            if unexpected:
                errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
            if missing:
                errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
        if errors:
            raise RuntimeError("Error(s) in loading state_dict for {}:\n\t{}".format(type(self).__name__, "\n\t".join(errors)))
        return IncompatibleKeys(missing, unexpected)

    def _load(self, given: Any, prefix: str, metadata: Any, assign: bool, missing: list[str], unexpected: list[str], errors: list[str]) -> None:
        local = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
        if assign:
            local["assign_to_params_buffers"] = True
        self._load_from_state_dict(given, prefix, local, True, missing, unexpected, errors)
        for name, module in self._modules.items():
            if module is not None:
                below = f"{prefix}{name}."
                module._load({k: v for k, v in given.items() if k.startswith(below)}, below, metadata, assign, missing, unexpected, errors)
        keys = IncompatibleKeys(missing, unexpected)
        for hook in list(self._load_state_dict_post_hooks.values()):
            if hook(self, keys) is not None:
                raise AssertionError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are notexpected to return new values, if incompatible_keys need "
                    "to be modified,it should be done inplace."
                )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool, missing_keys: list[str], unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Take over what is this module's own; add to the lists what is missing, not known or does not fit."""
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = self._state()
        for name, t in own.items():
            if prefix + name not in state_dict:
                if strict:
                    missing_keys.append(prefix + name)
                continue
            self._take(name, t, prefix + name, state_dict[prefix + name], assign, error_msgs)
        has_extra = type(self).set_extra_state is not Stateful.set_extra_state
        if has_extra and prefix + _EXTRA in state_dict:
            self.set_extra_state(state_dict[prefix + _EXTRA])
        elif has_extra and strict:
            missing_keys.append(prefix + _EXTRA)
        if strict:
            for key in state_dict:
                name, _, below = key[len(prefix) :].partition(".")
                known = name in self._modules or (not below and (name in own or (name == _EXTRA and has_extra)))
                if key.startswith(prefix) and not known:
                    unexpected_keys.append(key)

    def _take(self, name: str, t: Tensor, key: str, new: Any, assign: bool, errors: list[str]) -> None:
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
        if assign:
            if isinstance(t, Parameter):
                new = new.requires_grad_(t.requires_grad) if isinstance(new, Parameter) else Parameter(new, t.requires_grad)
            setattr(self, name, new)
            return
        try:
            with no_grad():
                t.copy_(new)
        except Exception as error:
            errors.append(
                f'While copying the parameter named "{key}", whose dimensions in the model are {t.size()} and whose dimensions in the checkpoint '
                f"are {new.size()}, an exception occurred : {error.args}."
            )


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
