"""Modules whose parameters have no shape before the first call."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.nn.parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Put before a Module among the bases: parameters may be UninitializedParameter. The first call gives its arguments to
    `initialize_parameters`, which gives them shapes; then the module is of the class `cls_to_become`, if there is one."""

    cls_to_become: type[Any] | None = None

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _non_persistent_buffers_set: set[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)  # type: ignore[attr-defined] - a Module's

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the parameters their shapes by the arguments of the call. NotImplementedError where a class does not define it."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of the module itself has no shape."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def _infer_parameters(self, module: Any, args: Any, kwargs: Any = None) -> None:
        """The hook before the first call."""
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")  # type: ignore[attr-defined] - a Module's
        module._initialize_hook.remove()
        del module._initialize_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    # ------------------------------------------------------------------ states

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """See Module: what has no shape is put in as it is."""
        for name, t in (*self._parameters.items(), *self._buffers.items()):
            if t is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = t if keep_vars or is_lazy(t) else t.detach()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """See Module: what has no shape takes that of what is loaded."""
        for name, t in (*self._parameters.items(), *self._buffers.items()):
            found = state_dict.get(prefix + name)
            if is_lazy(t) and found is not None and not is_lazy(found):
                with no_grad():
                    t.materialize(found.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[misc] - a Module's
