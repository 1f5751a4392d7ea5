"""BoundOp: an operator with its static arguments. Signature: a BoundOp at given input avals, ready to run or to trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from torchgrad_jax.runtime.device import CPU, device
from torchgrad_jax.runtime.value import Aval, aval_of

# A Python number is an argument by its value, which a program takes at run time; its type alone shapes the program.
NUMBER_DTYPES: dict[type, np.dtype] = {
    float: np.dtype(np.float64),
    int: np.dtype(np.int64),
    bool: np.dtype(np.int64),
    complex: np.dtype(np.complex128),
}

ArgSpec = Aval | type
Check = Callable[..., Exception]


class BoundOp(Protocol):
    """What the runtime asks of an operator whose static arguments are fixed."""

    name: str
    signatures: dict[tuple[ArgSpec, ...], Signature]
    device: device | None

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """The JAX function of arrays (Python numbers as 0-dim arrays) for inputs like `specs`. It returns an array or
        a tuple of them. Raises PyTorch's error for inputs that do not fit together."""
        ...

    def check(self, specs: Sequence[ArgSpec]) -> Check | None:
        """None, or what makes the exception from the failing inputs: then the function's last output is a boolean
        scalar that is true where the inputs' values are not allowed."""
        ...


def rounding_options(where: device) -> dict[str, Any]:
    """XLA's options for half precision: it keeps float32 between operations, and so do YNNPACK's kernels on a CPU; PyTorch rounds after each."""
    options: dict[str, Any] = {"xla_allow_excess_precision": False}
    return options | {"xla_cpu_experimental_ynn_fusion_type": ""} if where.type == "cpu" else options


class Signature:
    """A BoundOp specialized to input avals: its output avals, and its function under `jax.jit`.

    An operation made of others has them as `parts`; `stepwise` runs them one by one.
    `weight`: how many operations it is made of. `warm`: the function has been compiled by itself. `compiled_in`: how many whole programs it
    was compiled into. half: whether half precision is among its inputs or outputs.
    `plans` belongs to the layer that differentiates.
    """

    __slots__ = ("bop", "specs", "avals", "single", "function", "check", "warm", "compiled_in", "weight", "parts", "stepwise", "half", "plans")

    def __init__(self, bop: BoundOp, specs: tuple[ArgSpec, ...]) -> None:
        self.bop, self.specs = bop, specs
        self.check = bop.check(specs)
        self.function, self.avals, self.single = _trace(bop, specs, self.check is not None)
        self.warm, self.compiled_in = False, 0
        self.weight: int = getattr(bop, "weight", 1)
        self.parts: list[Signature] = getattr(bop, "parts")() if self.weight > 1 else [self]  # noqa: B009 - only those made of several have it 
        self.half = any(isinstance(a, Aval) and a.dtype.itemsize == 2 and a.dtype.kind not in "iu" for a in (*specs, *self.avals))
        self.stepwise = bop.specialize(specs) if self.weight > 1 else _rounding(self) if self.half else self.function
        self.plans: dict[Any, Any] = {}


def signature(bop: BoundOp, specs: tuple[ArgSpec, ...]) -> Signature:
    """The one Signature of `bop` at `specs`. PyTorch's error where they do not fit."""
    found = bop.signatures.get(specs)
    if found is None:
        found = bop.signatures[specs] = Signature(bop, specs)
    return found


def common_device(specs: Sequence[ArgSpec], otherwise: device | None = None) -> device:
    """The device of all the avals. RuntimeError with PyTorch's text where they differ."""
    found = otherwise
    for spec in specs:
        if not isinstance(spec, type):
            if found is None:
                found = spec.device
            elif found is not spec.device:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found at least two devices, {found} and {spec.device}!"
                )
    return found or CPU


def _rounding(sig: Signature) -> Callable[..., Any]:
    """Its compiled function that rounds half precision after each of its operations."""
    import jax

    return jax.jit(sig.function, compiler_options=rounding_options(common_device(sig.specs, sig.bop.device)))


def _trace(bop: BoundOp, specs: tuple[ArgSpec, ...], checked: bool) -> tuple[Callable[..., Any], tuple[Aval, ...], bool]:
    import jax
    from jax import lax

    where = common_device(specs, bop.device)
    raw = bop.specialize(specs)
    single = False

    def function(*arrays: Any) -> tuple[Any, ...]:
        nonlocal single
        outs = raw(*arrays)
        single = not isinstance(outs, (tuple, list))
        # Weakly typed outputs would key a second executable: make every output's dtype its own.
        return tuple(lax.convert_element_type(o, o.dtype) for o in ((outs,) if single else outs))

    function.__name__ = bop.name
    jitted = jax.jit(function)
    structs = [
        jax.ShapeDtypeStruct((), NUMBER_DTYPES[s]) if isinstance(s, type) else jax.ShapeDtypeStruct(s.shape, s.dtype)
        for s in specs
    ]
    try:
        outs = jax.eval_shape(jitted, *structs)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        # What an operator's own checks let pass and JAX refuses: one sentence, not a trace of JAX's frames.
        raise RuntimeError(f"{bop.name}: {str(error).splitlines()[0]}") from None
    shapes = outs[:-1] if checked else outs
    return jitted, tuple(aval_of(tuple(o.shape), np.dtype(o.dtype), where) for o in shapes), single or (checked and len(shapes) == 1)
