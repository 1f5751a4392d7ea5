"""What a Module consists of: its parameters, buffers and submodules, how they are registered, found and listed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from torchgrad_jax.core.node import RemovableHandle, registered
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor

_TABLES = ("_parameters", "_buffers", "_modules")


class _IsBuffer(type):
    """A Buffer is a tensor with the mark of one."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_IsBuffer):  # type: ignore[misc] - Tensor has a metaclass for the type checker only
    """`nn.Buffer(data, persistent=True)`: a tensor that becomes a module's buffer when it is assigned to one."""

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = Tensor()
        made = data.detach().requires_grad_(data.requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made


def _check_name(owner: Any, kind: str, name: Any, table: dict[str, Any]) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
    if hasattr(owner, name) and name not in table:
        raise KeyError(f"attribute '{name}' already exists")
    if "." in name:
        raise KeyError(f'{kind} name can\'t contain "."' + (f", got: {name}" if kind == "module" else ""))
    if name == "":
        raise KeyError(f'{kind} name can\'t be empty string ""')


Hooks = OrderedDict[int, Callable[..., Any]]

# What is asked when any module is given a member: its module, name and value. What a hook returns takes the value's place.
_global_parameter_registration_hooks: Hooks = OrderedDict()
_global_buffer_registration_hooks: Hooks = OrderedDict()
_global_module_registration_hooks: Hooks = OrderedDict()


def _as_hooks_want(hooks: Hooks, owner: Any, name: str, value: Any) -> Any:
    for hook in hooks.values():
        found = hook(owner, name, value)
        if found is not None:
            value = found
    return value


class Registry:
    """The part of Module that keeps its members in tables by name."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]

    # ------------------------------------------------------------------ registering

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under a name; None reserves the name. TypeError, KeyError where either is not fit."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        _check_name(self, "parameter", name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{_typename(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)")
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. To express '{name}' as a "
                "function of another Tensor, compute the value in the forward() method."
            )
        if _global_parameter_registration_hooks:
            param = _as_hooks_want(_global_parameter_registration_hooks, self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a buffer under a name; one that is not persistent is no part of `state_dict`. TypeError, KeyError where either is not fit."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        _check_name(self, "buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{_typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)")
        self.__put_buffer(name, tensor, persistent)

    def __put_buffer(self, name: str, tensor: Tensor | None, persistent: bool) -> None:
        if _global_buffer_registration_hooks:
            tensor = _as_hooks_want(_global_buffer_registration_hooks, self, name, tensor)
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Any) -> None:
        """Add a submodule under a name. TypeError, KeyError where either is not fit."""
        if not isinstance(module, Registry) and module is not None:
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        _check_name(self, "module", name, self._modules)
        self.__put_module(name, module)

    def __put_module(self, name: str, module: Any) -> None:
        if _global_module_registration_hooks:
            module = _as_hooks_want(_global_module_registration_hooks, self, name, module)
        self._modules[name] = module

    def register_module(self, name: str, module: Any) -> None:
        """The same as `add_module`."""
        self.add_module(name, module)

    # ------------------------------------------------------------------ attributes

    def __getattr__(self, name: str) -> Any:
        tables = self.__dict__
        for table in _TABLES:
            if table in tables and name in tables[table]:
                return tables[table][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        tables = self.__dict__
        if isinstance(value, Parameter):
            self.__assign("parameters", "_parameters", name)
            self.register_parameter(name, value)
        elif name in tables.get("_parameters", ()):
            self.__refuse(value, "parameter", name, "torch.nn.Parameter or None")
            self.register_parameter(name, value)
        elif isinstance(value, Registry):
            self.__assign("module", "_modules", name)
            self.__put_module(name, value)
        elif name in tables.get("_modules", ()):
            self.__refuse(value, "child module", name, "torch.nn.Module or None")
            self.__put_module(name, value)
        elif isinstance(value, Tensor) and isinstance(value, Buffer):
            if "_buffers" not in tables:
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            self.register_buffer(name, value, value.persistent)  # type: ignore[attr-defined] - a Buffer says it
        elif name in tables.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                self.__refuse(value, "buffer", name, "torch.nn.Buffer, torch.Tensor or None")
            self._buffers[name] = _as_hooks_want(_global_buffer_registration_hooks, self, name, value)
        else:
            object.__setattr__(self, name, value)

    def __assign(self, kind: str, table: str, name: str) -> None:
        """Prepare for a new member: the name loses what else it stood for."""
        if table not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        self.__dict__.pop(name, None)
        for other in _TABLES:
            if other != table:
                self.__dict__[other].pop(name, None)
        if table != "_buffers":
            self._non_persistent_buffers_set.discard(name)

    def __refuse(self, value: Any, kind: str, name: str, expected: str) -> None:
        if value is not None:
            raise TypeError(f"cannot assign '{_typename(value)}' as {kind} '{name}' ({expected} expected)")

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        own = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted(name for name in own if not name[0].isdigit())

    # ------------------------------------------------------------------ listing

    def named_modules(self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """The module and everything below it, each once (unless remove_duplicate is False), with dotted names."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, _join(prefix, name), remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Any]:
        """The module and everything below it, each once (unless remove_duplicate is False)."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The direct submodules, each once, with their names."""
        memo = set()
        for name, module in self._modules.items():
            if module is not None and module not in memo:
                memo.add(module)
                yield name, module

    def children(self) -> Iterator[Any]:
        """The direct submodules, each once."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self, get_members_fn: Callable[[Any], Any], prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        memo = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for module_prefix, module in modules:
            for name, member in get_members_fn(module):
                if member is None or member in memo:
                    continue
                if remove_duplicate:
                    memo.add(member)
                yield _join(module_prefix, name), member

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """The parameters with dotted names; of this module only where `recurse` is False."""
        return self._named_members(lambda module: module._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The buffers with dotted names; of this module only where `recurse` is False."""
        return self._named_members(lambda module: module._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # ------------------------------------------------------------------ by dotted name

    def get_submodule(self, target: str) -> Any:
        """The submodule of a dotted name. AttributeError where there is none."""
        found: Any = self
        for name in target.split(".") if target else ():
            found = _member(found, name)
            if not isinstance(found, Registry):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return found

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:
        """Put a module in the place of a dotted name; strict: only where there is one. ValueError for what is no name or no module, AttributeError
        where what it would be part of, or replace, is no module."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        *path, name = target.split(".")
        if not isinstance(module, Registry):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        owner = self.get_submodule(".".join(path))
        if (strict or hasattr(owner, name)) and not isinstance(_member(owner, name), Registry):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(owner, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of a dotted name. AttributeError where there is none."""
        path, _, name = target.rpartition(".")
        found = _member(self.get_submodule(path), name)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name. AttributeError where there is none."""
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        found = _member(owner, name)
        if name not in owner._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return found


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, parameter)`` when any module is given a parameter; what it returns, if anything, takes the parameter's place."""
    return registered(_global_parameter_registration_hooks, hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, buffer)`` when any module is given a buffer; what it returns, if anything, takes the buffer's place."""
    return registered(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, submodule)`` when any module is given a submodule; what it returns, if anything, takes the submodule's place."""
    return registered(_global_module_registration_hooks, hook)


def _typename(x: Any) -> str:
    """The type as PyTorch names it in messages: of tensors it tells dtype and device, of others the module."""
    if isinstance(x, Tensor):
        return x.type()
    kind = type(x)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _member(owner: Any, name: str) -> Any:
    if not hasattr(owner, name):
        raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")
    return getattr(owner, name)
