"""What a file may name where only weights are loaded, and what happens then: nothing in it is code of the file's choice."""

from __future__ import annotations

import codecs
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from pickle import UnpicklingError
from typing import Any

from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.strides import layout
from torchgrad_jax.functions import legacy
from torchgrad_jax.functions.storages import TypedStorage, UntypedStorage, old_classes
from torchgrad_jax.runtime.device import device
from torchgrad_jax.saving import names

_user: list[Any] = []


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let files name these functions and classes where only weights are loaded: they may then be called. Each is one, or a pair of one and the
    dotted name that files have for it."""
    for found in safe_globals:
        if found not in _user:
            _user.append(found)


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` was given."""
    return list(_user)


def clear_safe_globals() -> None:
    """Forget what `add_safe_globals` was given."""
    _user.clear()


class safe_globals:
    """``with safe_globals([...]):`` `add_safe_globals` for a while."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self.safe_globals = safe_globals

    def __enter__(self) -> None:
        self._before = get_safe_globals()
        add_safe_globals(self.safe_globals)

    def __exit__(self, *exc: object) -> None:
        _user[:] = self._before


def users() -> dict[str, Any]:
    """What the user has allowed, by the name in files. TypeError for what cannot be named."""
    found: dict[str, Any] = {}
    for given in _user:
        what, name = given if isinstance(given, tuple) else (given, None)
        if name is None:
            if not callable(what):
                raise TypeError(f"add_safe_globals takes functions and classes, not {type(what).__name__}")
            name = names.text_of(what)
        found[name.removeprefix("builtins.")] = what
    return found


# ---------------------------------------------------------------------- what is allowed to all


class Call:
    """A function or class that files may call. check: refuses other arguments. instead: what is called in its place."""

    __slots__ = ("function", "least", "most", "check", "instead")

    def __init__(self, function: Any, least: int, most: int, check: Callable[..., Any] | None = None, instead: Any = None) -> None:
        self.function, self.least, self.most, self.check, self.instead = function, least, most, check, instead or function

    def __call__(self, *args: Any) -> Any:
        if not self.least <= len(args) <= self.most:
            raise TypeError(f"{self.function.__name__}() takes {self.least} to {self.most} arguments, not {len(args)}")
        if self.check is not None:
            self.check(*args)
        return self.instead(*args)


# Of a key: hashing goes through all of it, without end where it holds itself over and over.
_DEEPEST, _LARGEST = 50, 10_000


def check_keys(keys: Iterable[Any]) -> None:
    """UnpicklingError for a key of a dictionary or element of a set that is too large to be hashed."""
    for key in keys:
        if isinstance(key, tuple):
            _check_key(key)
        elif isinstance(key, (list, dict, set, bytearray)):
            raise UnpicklingError(f"unhashable type: '{type(key).__name__}'")


def _check_key(key: Any) -> None:
    seen, layer = 0, [key]
    for _ in range(_DEEPEST):
        layer = [part for one in layer if isinstance(one, tuple) for part in one]
        if any(isinstance(part, (list, dict, set, bytearray)) for part in layer):
            raise UnpicklingError("unhashable type in a tuple")
        seen += len(layer)
        if seen > _LARGEST:
            break
        if not layer:
            return
    raise UnpicklingError("a key of a dictionary, or element of a set, is nested too deeply or too large")


def _want(*kinds: Any) -> Callable[..., None]:
    """A check that each argument is of one of its kinds."""

    def check(*args: Any) -> None:
        for at, (found, kind) in enumerate(zip(args, kinds, strict=False)):
            if not isinstance(found, kind) or (kind is not object and isinstance(found, bool) and kind is int):
                raise TypeError(f"argument {at} is a {type(found).__name__}")

    return check


def _check_items(*args: Any) -> None:
    """Of a dictionary: another one, or pairs of keys and values; Python 2 wrote lists of two."""
    for given in args:
        if isinstance(given, (list, tuple)):
            check_keys(x[0] if type(x) in (list, tuple) and x else x for x in given)
        else:
            _check_counted(given)


def _check_counted(*args: Any) -> None:
    for given in args:
        if not isinstance(given, (dict, list, tuple)):
            raise TypeError(f"cannot be made of a {type(given).__name__}")
        check_keys(given)


def _check_set(elements: Any) -> None:
    if not isinstance(elements, (list, tuple)):
        raise TypeError(f"a set cannot be made of a {type(elements).__name__}")
    check_keys(elements)


def _check_encode(text: Any, encoding: Any = "utf-8") -> None:
    if not isinstance(text, str) or encoding not in ("latin1", "utf-8", "ascii"):
        raise TypeError("only texts are encoded, as latin1, utf-8 or ascii")


def _check_numbers(numbers: Any = ()) -> None:
    if not isinstance(numbers, (list, tuple)) or not all(type(n) is int for n in numbers):
        raise TypeError("a torch.Size has integers")


def _check_bytes(content: Any = b"", encoding: Any = "") -> None:
    if not (isinstance(content, (bytes, bytearray)) or (isinstance(content, str) and encoding in ("latin1", "utf-8"))):
        raise TypeError("a bytearray is made of bytes")


def _from_type(func: Any, new_type: Any, args: Any, state: Any) -> Any:
    call = BY_FUNCTION.get(id(func))
    if call is None or not isinstance(args, tuple):
        raise TypeError("a tensor with attributes is rebuilt by a function that rebuilds tensors")
    if new_type is not None and not (isinstance(new_type, type) and issubclass(new_type, Tensor)):
        raise TypeError("a tensor is of a class of tensors")
    if not (state is None or isinstance(state, dict) or (new_type is not None and new_type not in (Tensor, Parameter))):
        raise TypeError("the attributes of a tensor are a dictionary")
    return _REBUILD_FROM_TYPE(call, new_type, args, state)


def _refusal(name: str, what: str) -> Call:
    def refuse(*args: Any) -> None:
        raise RuntimeError(f"torchgrad_jax has no {what}, which the file has: {name}. Make ordinary tensors of them before saving.")

    return Call(refuse, 0, 100)


# What files have for the hooks of a tensor without any; the oldest have None.
_NO_HOOKS = (dict, type(None))
_STORED = _want((TypedStorage, UntypedStorage), int, (tuple, list), (tuple, list), bool, _NO_HOOKS, (dict, dtypes.dtype), dict)


def _check_part(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, backward_hooks: Any, *more: Any) -> None:
    _STORED(storage, offset, size, stride, requires_grad, backward_hooks, *more)
    if backward_hooks:
        raise TypeError("a tensor that has hooks")
    dtype = more[0] if more and isinstance(more[0], dtypes.dtype) else storage.dtype
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError("only Tensors of floating point dtype can require gradients")


def _check_parameter(data: Any, requires_grad: Any, backward_hooks: Any, state: Any = None) -> None:
    if not isinstance(data, Tensor) or not isinstance(requires_grad, bool) or not isinstance(backward_hooks, _NO_HOOKS) or backward_hooks:
        raise TypeError("a Parameter is made of a tensor")


def _check_contentless(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> None:
    _check_numbers(size)
    _check_numbers(stride)
    if not isinstance(dtype, dtypes.dtype) or not isinstance(requires_grad, bool) or len(size) != len(stride):
        raise TypeError("a tensor without content has a dtype, sizes and strides")


def _check_sparse(kind: Any, data: Any) -> None:
    if not isinstance(kind, layout) or not isinstance(data, tuple) or not 3 <= len(data) <= 4:
        raise TypeError("a sparse tensor has a layout and parts")
    places = data[:-1] if isinstance(data[-1], bool) else data
    if not all(isinstance(part, Tensor) for part in places[:-1]) or not isinstance(places[-1], (tuple, list)):
        raise TypeError("a sparse tensor is made of tensors and a size")
    _check_numbers(places[-1])


def _ours(name: str) -> Any:
    return names.find("torch._utils", name)


_REBUILD_FROM_TYPE = names.find("torch._tensor", "_rebuild_from_type_v2")
# By the name in files.
CALLS = {
    "torch._utils._rebuild_tensor": Call(_ours("_rebuild_tensor"), 4, 4, _STORED),
    "torch._utils._rebuild_tensor_v2": Call(_ours("_rebuild_tensor_v2"), 6, 7, _check_part),
    "torch._utils._rebuild_tensor_v3": Call(_ours("_rebuild_tensor_v3"), 7, 8, _check_part),
    "torch._utils._rebuild_meta_tensor_no_storage": Call(_ours("_rebuild_meta_tensor_no_storage"), 4, 4, _check_contentless),
    "torch._utils._rebuild_parameter": Call(_ours("_rebuild_parameter"), 3, 3, _check_parameter),
    "torch._utils._rebuild_parameter_with_state": Call(_ours("_rebuild_parameter_with_state"), 4, 4, _check_parameter),
    "torch._utils._rebuild_sparse_tensor": Call(_ours("_rebuild_sparse_tensor"), 2, 2, _check_sparse),
    "torch._tensor._rebuild_from_type_v2": Call(_REBUILD_FROM_TYPE, 4, 4, None, _from_type),
    "torch.serialization._get_layout": Call(names.find("torch.serialization", "_get_layout"), 1, 1, _want(str)),
    "torch.Size": Call(Size, 0, 1, _check_numbers),
    "torch.device": Call(device, 1, 2, _want(str, int)),
    "collections.OrderedDict": Call(OrderedDict, 0, 1, _check_items),
    "collections.Counter": Call(Counter, 0, 1, _check_counted),
    "set": Call(set, 1, 1, _check_set),
    "complex": Call(complex, 1, 2, _want((float, int), (float, int))),
    "bytearray": Call(bytearray, 0, 2, _check_bytes),
    "_codecs.encode": Call(codecs.encode, 1, 2, _check_encode),
}
for _name, _what in (
    ("_rebuild_qtensor", "quantized tensors"), ("_rebuild_nested_tensor", "nested tensors"),
    ("_rebuild_wrapper_subclass", "tensors that wrap others"),
    ("_rebuild_device_tensor_from_numpy", "tensors of other back ends"), ("_rebuild_device_tensor_from_cpu_tensor", "tensors of other back ends"),
):  # fmt: skip
    CALLS[f"torch._utils.{_name}"] = _refusal(f"torch._utils.{_name}", _what)
BY_FUNCTION = {id(call.function): call for call in CALLS.values()}
# What may be named and is not called.
NAMED: dict[str, Any] = {
    **{f"torch.{d.name}": d for d in dtypes.ALL},
    **{f"torch.{name}": kind for name, kind in legacy.classes().items()},
    **{f"torch.{kind.__name__}": kind for kind in old_classes.values()},
    "torch.storage.UntypedStorage": UntypedStorage,
    "torch.storage.TypedStorage": TypedStorage,
    "torch.Tensor": Tensor,
    "torch.nn.parameter.Parameter": Parameter,
}
BLOCKED = {"sys", "os", "posix", "nt"}


def lookup(module: str, name: str, allowed: dict[str, Any]) -> Any:
    """What a file may name so; None if it may not. allowed: the user's."""
    dotted = dotted_name(module, name)
    if dotted in allowed:
        return allowed[dotted]
    call = CALLS.get(dotted)
    return call.function if call is not None else NAMED.get(dotted)


def dotted_name(module: str, name: str) -> str:
    """How messages and `add_safe_globals` name what a file names."""
    return name if module in ("builtins", "__builtin__") else f"{module}.{name}"
