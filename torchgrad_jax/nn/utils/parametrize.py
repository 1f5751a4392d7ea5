"""`torch.nn.utils.parametrize`: tensors of a module that are computed from others whenever they are asked for."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.replacing import set_data
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.container import ModuleDict, ModuleList
from torchgrad_jax.nn.modules.module import Module

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip

_cache_enabled = 0
# What was computed in the outermost `cached` block, by the module's identity and the tensor's name.
_cache: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Iterator[None]:
    """A block in which each parametrized tensor is computed once, when it is first asked for."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


# ---------------------------------------------------------------------- the parametrizations of a tensor


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, in the order in which they are applied, and the tensor `original` that they begin with: what the
    `right_inverse` of the first gives, or `original0`, `original1` ... where that gives several.

    modules: one at least. original: what the tensor is before. unsafe: do not compute it to see whether it keeps shape and dtype.
    ValueError where the modules or what they give do not fit.
    """

    original: Tensor
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor | Parameter, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with no_grad():
            new: Any = original
            for module in reversed(self):  # type: ignore[call-overload] - by its length and numbers
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):  # then it is taken for the identity
                        new = module.right_inverse(new)
        self.is_tensor = isinstance(new, Tensor)
        if isinstance(new, Tensor):
            self.ntensors = 1
            self._keep_one(original, new)
        elif isinstance(new, Sequence):
            self.ntensors = len(new)
            self._keep_several(original, new)
        else:
            raise ValueError(f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got {type(new).__name__}")
        if not unsafe:
            self._check_result(shape, dtype)

    def _keep_one(self, original: Tensor, new: Tensor) -> None:
        if original.dtype != new.dtype:
            raise ValueError(
                "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {new.dtype}"
            )
        if original.device != new.device:
            raise ValueError(
                "When `right_inverse` outputs one tensor, it may not change the device.\n"
                f"original.device: {original.device}\nright_inverse(original).device: {new.device}"
            )
        set_data(original, new)  # the tensor that an optimizer may know stays the same object
        _register(self, "original", original)

    def _keep_several(self, original: Tensor, new: Sequence[Any]) -> None:
        for i, tensor in enumerate(new):
            if not isinstance(tensor, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                    f"Got element {i} of the sequence with type {type(tensor).__name__}."
                )
            if isinstance(original, Parameter):
                tensor = Parameter(tensor, original.requires_grad)
            _register(self, f"original{i}", tensor.requires_grad_(original.requires_grad))

    def _check_result(self, shape: Any, dtype: Any) -> None:
        made = self()
        if not isinstance(made, Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
        for what, before, after in (("dtype", dtype, made.dtype), ("shape", shape, made.shape)):
            if before != after:
                raise ValueError(
                    f"Registering a parametrization may not change the {what} of the tensor, unless `unsafe` flag is enabled.\n"
                    f"unparametrized {what}: {before}\nparametrized {what}: {after}"
                )

    def _originals(self) -> list[Tensor]:
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Give `original` the content with which the parametrized tensor is `value`: what the `right_inverse` of each module gives, the last one's
        first. RuntimeError where a module has none, ValueError where what it gives does not fit."""
        with no_grad():
            given: Any = value
            for module in reversed(self):  # type: ignore[call-overload] - by its length and numbers
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type_before_parametrizations(module).__name__} does not implement right_inverse.")
                given = module.right_inverse(given)
            if self.is_tensor:
                _check_inverse(given, self.original)
                set_data(self.original, given)
                return
            if not isinstance(given, Sequence):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(given).__name__}.")
            if len(given) != self.ntensors:
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of length {len(given)}."
                )
            for i, (tensor, original) in enumerate(zip(given, self._originals(), strict=True)):
                if not isinstance(tensor, Tensor):
                    raise ValueError(f"`right_inverse` must return a sequence of tensors. Got element {i} of type {type(tensor).__name__}")
                if original.dtype != tensor.dtype:
                    raise ValueError(
                        f"Tensor {i} returned by `right_inverse` has dtype {tensor.dtype} while `original{i}` has dtype {original.dtype}"
                    )
                set_data(original, tensor)

    def forward(self) -> Any:
        """The parametrized tensor."""
        first, *others = self
        made = first(*self._originals())
        for module in others:
            made = module(made)
        return made


def _check_inverse(given: Any, original: Tensor) -> None:
    if not isinstance(given, Tensor):
        raise ValueError(f"`right_inverse` should return a tensor. Got {type(given).__name__}")
    if original.dtype != given.dtype:
        raise ValueError(f"The tensor returned by `right_inverse` has dtype {given.dtype} while `original` has dtype {original.dtype}")


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


# ---------------------------------------------------------------------- the class of a module with parametrized tensors


def _refuse_to_pickle(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _copied(self: Any, memo: dict[int, Any]) -> Any:
    if id(self) not in memo:
        twin = memo[id(self)] = object.__new__(type(self))
        twin.__dict__ = copy.deepcopy(self.__dict__, memo)
    return memo[id(self)]


def _give_class(module: Module) -> None:
    """Let the module be of a class of its own, whose properties are its parametrized tensors."""
    before: Any = type(module)
    members: dict[str, Any] = {"__getstate__": _refuse_to_pickle}
    if not hasattr(before, "__deepcopy__"):
        members["__deepcopy__"] = _copied
    module.__class__ = type(f"Parametrized{before.__name__}", (before,), members)


def _give_property(module: Module, name: str) -> None:
    def get(self: Any) -> Any:
        parametrizations = self.parametrizations[name]
        if not _cache_enabled:
            return parametrizations()
        key = id(self), name
        if key not in _cache:
            _cache[key] = parametrizations()
        return _cache[key]

    def put(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, put))


# ---------------------------------------------------------------------- registering and removing


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Let a parameter or buffer of a module be what `parametrization` makes of it. One that is parametrized already is parametrized further.

    The module's class becomes one with the tensor as a property; what it is computed of is
    ``module.parametrizations.<tensor_name>.original``. Assigning to the tensor asks the parametrization's `right_inverse`, if it has one,
    for what to compute it of. unsafe: do not check that shape and dtype stay. ValueError where the name or what the parametrization gives does
    not fit.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        listed: Any = module.parametrizations[tensor_name]
        if not unsafe:
            _check_another(getattr(module, tensor_name), parametrization, tensor_name)
        listed.append(parametrization)
        listed.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        listed = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _give_class(module)
            module.parametrizations = ModuleDict()
        _give_property(module, tensor_name)
        module.parametrizations[tensor_name] = listed
    else:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'")
    return module


def _check_another(before: Tensor, parametrization: Any, name: str) -> None:
    """ValueError where a further parametrization of a tensor changes its shape or dtype, either way."""
    after = parametrization(before)
    if not isinstance(after, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    unless = "unless the `unsafe` flag is enabled"
    text = "Registering a parametrization may not change the {what} of the tensor, " + unless + ".\nmodule.{name}.{what}: {before}\nparametrization("
    _check_like(before, after, name, text + "module.{name}).{what}: {after}")
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
    text = "The tensor returned by parametrization.right_inverse must have the same {what} as module.{name}, " + unless + ".\nmodule.{name}.{what}: "
    _check_like(before, back, name, text + "{before}\nreturned {what}: {after}")


def _check_like(before: Tensor, after: Tensor, name: str, text: str) -> None:
    """ValueError where the dtypes or the shapes of two tensors differ."""
    for what in ("dtype", "shape"):
        a, b = getattr(before, what), getattr(after, what)
        if a != b:
            raise ValueError(text.format(what=what, name=name, before=a, after=b))


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the tensor of a name, or any, of a module is parametrized."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Let a tensor be a parameter or buffer again: with the value that it has, or (leave_parametrized=False) with that of `original`, which it
    then is. ValueError where it is not parametrized, or is computed of several tensors and is not to keep its value."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    listed: Any = module.parametrizations[tensor_name]
    if listed.is_tensor:
        kept = listed.original
        if leave_parametrized:
            with no_grad():
                set_data(kept, getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        kept = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence of tensors.")
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, kept)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of a module, or the one it had before its tensors were parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: str | None = None) -> Module:
    """Parametrize the tensors of a module as those of another one are, or only the tensor of one name. Both share the parametrizations and what the
    tensors are computed of."""
    if not is_parametrized(from_module):
        return to_module
    names = [tensor_name] if tensor_name is not None else list(from_module.parametrizations)
    for name in names:
        source: Any = from_module.parametrizations[name]
        if not hasattr(to_module, name):  # what is not there is only to have a name
            setattr(to_module, name, Parameter(getattr(from_module, name)) if source.is_tensor else source.original0)
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target: Any = to_module.parametrizations[name]
        for original in ["original"] if source.is_tensor else [f"original{i}" for i in range(source.ntensors)]:
            setattr(target, original, getattr(source, original))
    return to_module
