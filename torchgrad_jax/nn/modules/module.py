"""`torch.nn.Module`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Self, TypeVar, overload

from torchgrad_jax.__future__ import get_overwrite_module_params_on_conversion, get_swap_module_params_on_conversion
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.calling.owning import give_methods
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.replacing import set_data
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.conversion import parse_to
from torchgrad_jax.functions.creation import empty_like
from torchgrad_jax.functions.questions import share_memory_
from torchgrad_jax.lifting.jitting import compile
from torchgrad_jax.nn.modules.calling import (
    Called,
    hooks_of_all,
    register_module_backward_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from torchgrad_jax.nn.modules.registry import (
    Registry,
    _global_buffer_registration_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torchgrad_jax.nn.modules.state import _EXTRA as _EXTRA_STATE_KEY_SUFFIX  # noqa: F401 - by this name of PyTorch's, in programs
from torchgrad_jax.nn.modules.state import IncompatibleKeys as _IncompatibleKeys
from torchgrad_jax.nn.modules.state import Stateful
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.user_code import warn_user

__all__ = [
    "Module", "_IncompatibleKeys", "_global_buffer_registration_hooks", "_global_module_registration_hooks", "_global_parameter_registration_hooks",
    "register_module_backward_hook", "register_module_buffer_registration_hook", "register_module_forward_hook",
    "register_module_forward_pre_hook", "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook", "register_module_parameter_registration_hook",
]  # fmt: skip

_HOOKS = (
    "_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip

_COMPLEX = (
    "Complex modules are a new feature under active development whose design may change, and some modules might not work as expected when using "
    "complex tensors as parameters or buffers. Please file an issue at https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml if a "
    "complex module does not work as expected."
)
NO_DATA = (
    "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving module from meta to "
    "a different device."
)

T_destination = TypeVar("T_destination", bound=dict[str, Any])


class Module(Registry, Called, Stateful):
    """The base of what has parameters: a subclass calls ``super().__init__()``, assigns its members and defines `forward`."""

    T_destination = T_destination
    dump_patches: bool = False
    training: bool
    # Whether classes after Module in the order of inheritance are initialized too, with the arguments.
    call_super_init: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if self.call_super_init is False:
            if kwargs:
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
            if args:
                raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        self.__dict__.update(
            training=True, _parameters={}, _buffers={}, _non_persistent_buffers_set=set(), _backward_pre_hooks=OrderedDict(),
            _backward_hooks=OrderedDict(), _is_full_backward_hook=None, _forward_hooks=OrderedDict(), _forward_hooks_with_kwargs=OrderedDict(),
            _forward_hooks_always_called=OrderedDict(), _forward_pre_hooks=OrderedDict(), _forward_pre_hooks_with_kwargs=OrderedDict(),
            _state_dict_hooks=OrderedDict(), _state_dict_pre_hooks=OrderedDict(), _load_state_dict_pre_hooks=OrderedDict(),
            _load_state_dict_post_hooks=OrderedDict(), _modules={},
        )  # fmt: skip
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over the state of a pickle. What old ones lack is empty."""
        self.__dict__.update(state)
        for table in _HOOKS:
            if table not in self.__dict__:
                self.__dict__[table] = OrderedDict()
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes. NotImplementedError where a class does not define it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # ------------------------------------------------------------------ modes

    def train(self, mode: bool = True) -> Self:
        """Set `training` here and below. ValueError where mode is no bool."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """``train(False)``."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether the parameters require gradients."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the parameters' gradients, or (set_to_none=False) set them to zero."""
        for p in self.parameters():
            grad = p.grad
            if grad is None:
                continue
            if set_to_none:
                p.grad = None  # type: ignore[attr-defined] - put onto Tensor by autograd
            else:
                grad.detach_() if grad.grad_fn is not None else grad.requires_grad_(False)
                grad.zero_()

    # ------------------------------------------------------------------ conversion

    def apply(self, fn: Callable[[Any], Any]) -> Self:
        """Call `fn` with every module below this one, then with this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Give parameters, their gradients and buffers the content `fn` makes of them. Parameters stay the same objects, unless
        `torch.__future__.set_overwrite_module_params_on_conversion` says otherwise, or they come to or from the device "meta"."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, p in self._parameters.items():
            if p is not None:
                self.__convert(name, p, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def __convert(self, name: str, p: Parameter, fn: Callable[[Tensor], Tensor]) -> None:
        grad: Any = p.grad
        with no_grad():
            made, made_grad = fn(p), None if grad is None else fn(grad)
        alike = made.is_meta == p.is_meta  # what has content has another memory than what has none
        if alike and (get_swap_module_params_on_conversion() or not get_overwrite_module_params_on_conversion()):
            set_data(p, made)
            if grad is not None:
                set_data(grad, made_grad)
            return
        self._parameters[name] = other = Parameter(made, p.requires_grad)
        if made_grad is not None:
            other.grad = made_grad.requires_grad_(grad.requires_grad)  # type: ignore[attr-defined] - put onto Tensor by autograd

    @overload
    def to(self, device: Any = ..., dtype: dtypes.dtype | None = ..., non_blocking: bool = ..., *, memory_format: Any = ...) -> Self: ...

    @overload
    def to(self, dtype: dtypes.dtype, non_blocking: bool = ..., *, memory_format: Any = ...) -> Self: ...

    @overload
    def to(self, tensor: Tensor, non_blocking: bool = ..., *, memory_format: Any = ...) -> Self: ...

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move the module in place: ``to(device)``, ``to(dtype)``, ``to(device, dtype)``, ``to(tensor)``; memory_format: that of parameters and
        buffers of 4 or 5 dimensions. Only floats change their dtype. TypeError where the dtype is not one of floating point or complex numbers."""
        where, dtype, _, layout = parse_to(args, kwargs)  # every copy is asynchronous
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")
            if dtype.is_complex:
                warn_user(_COMPLEX, UserWarning)

        def convert(t: Tensor) -> Tensor:
            if t.is_meta and where is not None and where.type != "meta":
                raise NotImplementedError(NO_DATA)
            to_dtype = dtype if t.is_floating_point() or t.is_complex() else None
            layout_of = layout if layout is not None and t.dim() in (4, 5) else None
            return t.to(device=where, dtype=to_dtype, memory_format=layout_of)

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Move the module in place without the content of its parameters and buffers, which is not initialized. recurse: what is below it too."""
        return self._apply(lambda t: empty_like(t, device=device), recurse=recurse)

    def share_memory(self) -> Self:
        """`Tensor.share_memory_` of the parameters and buffers."""
        return self._apply(share_memory_)

    def __cast(self, dtype: Any) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def double(self) -> Self:
        """Floats become float64."""
        return self.__cast(dtypes.float64)

    def float(self) -> Self:
        """Floats become float32."""
        return self.__cast(dtypes.float32)

    def half(self) -> Self:
        """Floats become float16."""
        return self.__cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Floats become bfloat16."""
        return self.__cast(dtypes.bfloat16)

    def type(self, dst_type: Any) -> Self:
        """Everything becomes of the dtype."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self) -> Self:
        """Move to the host."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Self:
        """Move to a GPU."""
        return self._apply(lambda t: t.cuda(device))

    def __move(self, kind: str, where: Any) -> Self:
        to = device(kind) if where is None else device(where) if isinstance(where, (str, device)) else device(kind, where)
        return self._apply(lambda t: t.to(to))

    def xpu(self, device: Any = None) -> Self:
        """``to("xpu")``, which is a device that JAX has none of: NotImplementedError."""
        return self.__move("xpu", device)

    def ipu(self, device: Any = None) -> Self:
        """``to("ipu")``, which is a device that JAX has none of: NotImplementedError."""
        return self.__move("ipu", device)

    def mtia(self, device: Any = None) -> Self:
        """``to("mtia")``, which is a device that JAX has none of: NotImplementedError."""
        return self.__move("mtia", device)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing but look at the options of `torch.compile`: what a module does is compiled in any case. `torch.compile(module)` makes one
        program of it."""
        compile(self._call_impl, *args, **kwargs)

    def __optimized__(self, called: Callable[..., Any]) -> OptimizedModule:
        """What `torch.compile` makes of the module, which is called so."""
        return OptimizedModule(self, called)

    # ------------------------------------------------------------------ text

    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """What `repr` says of the module beside its submodules."""
        return ""

    def __repr__(self) -> str:
        own = self.extra_repr()
        below = [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        lines = own.split("\n") if own else []
        if len(lines) == 1 and not below:
            return f"{self._get_name()}({own})"
        return framed(self._get_name(), [*lines, *below])


def framed(name: str, lines: list[str]) -> str:
    """``name(...)`` with each of the lines on one of its own."""
    return f"{name}(" + "".join(f"\n  {line}" for line in lines) + ("\n)" if lines else ")")


def _addindent(s_: str, numSpaces: int) -> str:
    """A text each of whose lines but the first begins with so many spaces more: by this name in modules of programs."""
    return s_.replace("\n", "\n" + " " * numSpaces)


# What an OptimizedModule has of its own when it is set, beside what `Module.__init__` makes.
_OWN = frozenset(("forward", "_orig_mod"))

_CALLED_TWICE = (
    "Using `torch.compile(module)` when there are global hooks on modules (e.g., from `register_module_forward_hook`); this will cause the hooks to "
    "fire an extra time for the `OptimizedModule` created by `torch.compile(module)`. If this causes undesired behavior, please try using "
    "`module.compile()`, or use the per-module hooks instead"
)


class OptimizedModule(Module):
    """What `torch.compile` makes of a module: one whose only child is that module, `_orig_mod`, and whose `forward` is a compiled call of it.

    Names of its parameters and of its state begin with ``_orig_mod.``. It has hooks of its own, around the module's. All other attributes are the
    module's, to read, to set and to delete.
    """

    forward: Any

    def __init__(self, mod: Module, called: Callable[..., Any]) -> None:
        super().__init__()
        del self.__dict__["training"]  # the module's is
        self._modules["_orig_mod"] = mod
        self.__dict__["forward"] = called

    @property
    def training(self) -> bool:  # type: ignore[override] - the same to who reads and sets it
        """Whether the module is in training."""
        return self._modules["_orig_mod"].training

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See Module. Warns where hooks of every module see this one, beside the module that it is made of."""
        if any(hooks_of_all):
            warn_user(_CALLED_TWICE)
        return self._call_impl(*args, **kwargs)

    def __optimized__(self, called: Callable[..., Any]) -> OptimizedModule:
        return OptimizedModule(self._modules["_orig_mod"], called)

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__["_modules"]
        return modules["_orig_mod"] if name == "_orig_mod" else getattr(modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or name in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in _OWN or name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __len__(self) -> int:
        if hasattr(self._orig_mod, "__len__"):
            return len(self._orig_mod)
        raise TypeError(f"{type(self._orig_mod).__name__} does not support len()")

    @property
    def dynamo_ctx(self) -> Callable[..., Any]:
        """What compiles the module: the compiled call. Trainers take its presence for the sign that a module is compiled."""
        return self.forward

    @property
    def recompilations(self) -> list[str]:
        """See `torchgrad_jax.jit`."""
        return self.forward.recompilations

    def explain(self) -> str:
        """See `torchgrad_jax.jit`."""
        return self.forward.explain()


give_methods(Module, (Registry, Called, Stateful))
OptimizedModule.__module__ = "torchgrad_jax._dynamo.eval_frame"  # where PyTorch has it, and pickles find it
