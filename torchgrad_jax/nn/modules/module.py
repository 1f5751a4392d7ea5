"""`torch.nn.Module`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.replacing import set_data
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.lifting.jitting import compile
from torchgrad_jax.nn.modules.calling import (
    Called,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from torchgrad_jax.nn.modules.registry import Registry
from torchgrad_jax.nn.modules.state import Stateful
from torchgrad_jax.runtime.device import device

__all__ = [
    "Module", "register_module_forward_hook", "register_module_forward_pre_hook", "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]  # fmt: skip


class Module(Registry, Called, Stateful):
    """The base of what has parameters: a subclass calls ``super().__init__()``, assigns its members and defines `forward`."""

    training: bool

    def __init__(self) -> None:
        Registry.__init__(self)
        Called.__init__(self)
        Stateful.__init__(self)

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
        """Give parameters, their gradients and buffers the content `fn` makes of them; parameters stay the same objects."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for p in self._parameters.values():
            if p is None:
                continue
            with no_grad():
                made, grad = fn(p), None if p.grad is None else fn(p.grad)
            set_data(p, made)
            if grad is not None and p.grad is not None:
                set_data(p.grad, grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move the module in place: ``to(device)``, ``to(dtype)``, ``to(device, dtype)``, ``to(tensor)``. Only floats change their dtype. TypeError
        where the dtype is not one of floating point or complex numbers."""
        where, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        options = {name: kwargs.pop(name) for name in ("non_blocking", "memory_format") if name in kwargs}
        options.pop("non_blocking", None)  # every copy is asynchronous
        layout = options.pop("memory_format", None)
        for a in args:
            if isinstance(a, dtypes.dtype):
                dtype = a
            elif isinstance(a, Tensor):
                where, dtype = a.device, a.dtype
            elif isinstance(a, (str, device)) or (isinstance(a, int) and not isinstance(a, bool)):
                where = a
            elif a is not None and not isinstance(a, bool):
                raise TypeError(f"to() received an invalid combination of arguments - got ({', '.join(type(x).__name__ for x in args)})")
        if kwargs:
            raise TypeError(f"to() received an invalid combination of arguments - got ({', '.join(kwargs)})")
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")

        def convert(t: Tensor) -> Tensor:
            to_dtype = dtype if t.is_floating_point() or t.is_complex() else None
            layout_of = layout if layout is not None and t.dim() in (4, 5) else None
            return t.to(device=where, dtype=to_dtype, memory_format=layout_of)

        return self._apply(convert)

    def _cast(self, dtype: Any) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def double(self) -> Self:
        """Floats become float64."""
        return self._cast(dtypes.float64)

    def float(self) -> Self:
        """Floats become float32."""
        return self._cast(dtypes.float32)

    def half(self) -> Self:
        """Floats become float16."""
        return self._cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Floats become bfloat16."""
        return self._cast(dtypes.bfloat16)

    def type(self, dst_type: Any) -> Self:
        """Everything becomes of the dtype."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self) -> Self:
        """Move to the host."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Self:
        """Move to a GPU."""
        return self._apply(lambda t: t.cuda(device))

    def compile(self, **options: Any) -> None:
        """Does nothing but look at the options of `torch.compile`: what a module does is compiled in any case. `torch.compile(module)` makes one
        program of it."""
        compile(self, **options)

    # ------------------------------------------------------------------ text

    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """What `repr` says of the module beside its submodules."""
        return ""

    def __repr__(self) -> str:
        own = self.extra_repr()
        below = [f"({name}): {_indented(repr(module))}" for name, module in self._modules.items()]
        lines = own.split("\n") if own else []
        if len(lines) == 1 and not below:
            return f"{self._get_name()}({own})"
        return framed(self._get_name(), [*lines, *below])


def framed(name: str, lines: list[str]) -> str:
    """``name(...)`` with each of the lines on one of its own."""
    return f"{name}(" + "".join(f"\n  {line}" for line in lines) + ("\n)" if lines else ")")


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")
