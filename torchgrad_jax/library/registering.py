"""What `torch.library` registers for operators: by their names, or as methods of what `custom_op` returns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torchgrad_jax._ops import OpOverload, OpOverloadPacket, Tag, ops
from torchgrad_jax.library.operators import DEFAULT, CustomOperator, Overload, Packet, operator_named, operators, tags_of
from torchgrad_jax.library.schema import infer_schema
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.user_code import warn_user

__all__ = [
    "CustomOpDef", "custom_op", "register_autocast", "register_autograd", "register_fake", "register_kernel", "register_torch_dispatch",
    "register_vmap", "triton_op", "wrap_triton",
]  # fmt: skip


_NOT_ITS_OWN = "torch.library: {} is none of the user's operators, and nothing can be registered for it; custom_op makes one"


def operator_of(op: Any) -> CustomOperator:
    """The operator that a name, an overload or a definition means. AttributeError where there is none, TypeError for anything else."""
    if isinstance(op, CustomOpDef):
        return op._operator
    if isinstance(op, (Packet, Overload)):
        return (op if isinstance(op, Packet) else op.packet).operator
    if isinstance(op, (OpOverload, OpOverloadPacket)):
        raise NotImplementedError(_NOT_ITS_OWN.format(op))
    if not isinstance(op, str):
        raise ValueError(f"get_op({op}): got unexpected type for op: {type(op)}")
    name = operator_named(op).name
    found = operators[name]
    if found.schema is None:
        namespace, short = name.split("::")
        getattr(getattr(ops, namespace), short)  # which raises where there is none at all
        raise NotImplementedError(_NOT_ITS_OWN.format(name))
    return found


def _decorating(register: Callable[[Any], None], func: Any) -> Any:
    """Register a function, or give what does so as a decorator."""

    def decorate(function: Any) -> Any:
        register(function)
        return function

    return decorate if func is None else decorate(func)


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """The implementation for a type of device, several, or (None) all: ``"cpu"``, ``"cuda"``. Decorator without `func`. RuntimeError for unknown
    types."""
    operator = operator_of(op)
    types = (DEFAULT,)
    if device_types is not None:
        types = tuple([device(kind).type for kind in ((device_types,) if isinstance(device_types, str) else device_types)])

    def register(function: Callable[..., Any]) -> None:
        for kind in types:
            operator.kernels[kind] = function

    found = _decorating(register, func)
    return found if func is None else None


def register_autograd(op: Any, backward: Callable[..., Any], /, *, setup_context: Any = None, lib: Any = None) -> None:
    """The gradient: ``backward(ctx, *grads)`` gives one for each argument, ``setup_context(ctx, inputs, output)`` saves what it needs; with
    keyword-only arguments it takes `keyword_only_inputs` too. RuntimeError for an operator that writes to its arguments."""
    operator = operator_of(op)
    assert operator.schema is not None
    if operator.schema.mutates:
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {op} with schema {operator.schema}. Please create a "
            "functional operator and register an autograd formula for that."
        )
    operator.backward, operator.setup_context = backward, setup_context


def register_fake(op: Any, func: Any = None, /, *, lib: Any = None, allow_override: bool = True) -> Any:
    """What results are like, given tensors that are: used by `opcheck`. Programs here need none, since operators run when they are called."""
    if isinstance(op, str) and (op not in operators or operators[op].schema is None):
        raise RuntimeError(f"operator {op} does not exist")
    operator = operator_of(op)
    if operator.fake is not None and not allow_override:
        raise RuntimeError(f"register_fake(...): the operator {operator.name} already has an fake impl registered")
    return _decorating(lambda function: setattr(operator, "fake", function), func)


def impl_abstract(qualname: str, func: Any = None, *, lib: Any = None, _stacklevel: int = 1) -> Any:
    """`register_fake` by its former name."""
    warn_user(
        "`torch.library.impl_abstract` was renamed to `torch.library.register_fake`. Please use that instead; we will remove "
        "`torch.library.impl_abstract` in a future version of PyTorch.", FutureWarning,
    )  # fmt: skip
    return register_fake(qualname, func, lib=lib)


def register_vmap(op: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """The rule for `torch.vmap`: ``func(info, in_dims, *args)`` gives outputs and where their batch dimensions are. Without one the operator is
    called for each part of a batch."""
    operator = operator_of(op)
    found = _decorating(lambda function: setattr(operator, "rule", function), func)
    return found if func is None else None


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """Under autocast for a type of device, floating point arguments are converted to `cast_inputs`, and autocast is off within. ValueError for
    other types of devices than ``"cpu"`` and ``"cuda"``."""
    if device_type not in ("cpu", "cuda"):
        raise ValueError(f"Unknown device type: {device_type}")
    operator_of(op).autocast[device_type] = cast_inputs


def register_torch_dispatch(op: Any, torch_dispatch_class: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """NotImplementedError: there is no `__torch_dispatch__` here."""
    raise NotImplementedError("torch.library.register_torch_dispatch: torchgrad_jax has no __torch_dispatch__; use __torch_function__")


class CustomOpDef:
    """An operator that `custom_op` has made of a function: it can be called, and more can be registered for it."""

    def __init__(self, operator: CustomOperator, function: Callable[..., Any]) -> None:
        self._operator, self._init_fn = operator, function
        self._qualname = operator.name
        self._namespace, self._name = operator.name.split("::")
        self._opoverload = operator.packet.default
        self._schema = "" if operator.schema is None else operator.schema.text

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def register_kernel(self, device_types: Any, fn: Any = None, /) -> Any:
        """See `torch.library.register_kernel`."""
        return register_kernel(self, device_types, fn)

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Any = None) -> None:
        """See `torch.library.register_autograd`."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_fake(self, fn: Any, /) -> Any:
        """See `torch.library.register_fake`."""
        return register_fake(self, fn)

    def register_vmap(self, func: Any = None) -> Any:
        """See `torch.library.register_vmap`."""
        return register_vmap(self, func)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """See `torch.library.register_autocast`."""
        register_autocast(self, device_type, cast_inputs)

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Any = None, /) -> Any:
        """See `torch.library.register_torch_dispatch`."""
        return register_torch_dispatch(self, torch_dispatch_class, fn)

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Within the block, the kernel of a type of device is left out, or not; without it the function that the operator was made of runs."""
        disabled = self._operator.disabled
        before = device_type in disabled
        (disabled.discard if enabled else disabled.add)(device_type)
        try:
            yield
        finally:
            (disabled.add if before else disabled.discard)(device_type)


def custom_op(name: str, fn: Any = None, /, *, mutates_args: Any, device_types: Any = None, schema: str | None = None, tags: Any = None) -> Any:
    """An operator that runs a Python function which nothing looks into: autograd, `vmap` and `jit` take it as a whole.

    name: ``"namespace::name"``, under which it is ``torch.ops.namespace.name`` too. mutates_args: the names of the arguments that the function
    writes to, or "unknown". device_types: those that the function is for; all by default. schema: else that of its annotations (`infer_schema`).
    A result may be no argument, nor share memory with one. Gradients are registered by `register_autograd`. ValueError for names and annotations
    that will not do. tags: of `torch.Tag`, one or several, which its overload tells.

    Example::

        @torch.library.custom_op("mylib::numpy_sin", mutates_args=())
        def numpy_sin(x: Tensor) -> Tensor:
            return torch.from_numpy(np.sin(x.numpy()))
    """
    told = (Tag.pt2_compliant_tag, *tags_of(tags))

    def make(function: Callable[..., Any]) -> CustomOpDef:
        text = infer_schema(function, mutates_args=mutates_args) if schema is None else schema
        operator_named(name)
        operators[name] = operator = CustomOperator(name)  # a second definition takes the place of the first
        operator.own_node = operator.refuses_aliases = True
        operator.define(text, told)
        made = CustomOpDef(operator, function)
        register_kernel(made, device_types, function)
        return made

    return make if fn is None else make(fn)


_NO_TRITON = (
    "torchgrad_jax has no Triton, which needs PyTorch's GPU runtime: write the kernel with jax.experimental.pallas and make it an operator with "
    "torchgrad_jax.from_jax, or use torch.library.custom_op"
)


def triton_op(name: str, fn: Any = None, /, *, mutates_args: Any, schema: str | None = None) -> Any:
    """`custom_op`: Triton's kernels, which only `wrap_triton` calls, are not there, but what has one for a GPU runs on a CPU without it."""
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def wrap_triton(triton_kernel: Any, /) -> Any:
    """NotImplementedError, with what to use instead."""
    raise NotImplementedError(f"torch.library.wrap_triton: {_NO_TRITON}")
