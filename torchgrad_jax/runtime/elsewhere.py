"""Where an operation is carried out that the pending program cannot take: at once where an input is a tracer, on another device."""

from __future__ import annotations

from typing import Any

import jax

from torchgrad_jax.runtime._jax_compat import has_x64
from torchgrad_jax.runtime.device import CPU, META, for_user
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.value import Contentless, Lifted, Value, constant, moved

ESCAPED = (
    "A Tensor has no value: it was made inside a function that JAX transforms (jit, grad, vmap ...), or written to in there, and is used outside. "
    "Let the function return it."
)


class Elsewhere(Exception):
    """An operation is not for the program that is pending: what a recorder raises in place of recording."""

    def call(self, rec: Any, bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
        """Carry the operation out where it belongs. Its Values, and its Signature."""
        raise NotImplementedError


class TracedInput(Elsewhere):
    """An input is a tracer: the operation is called at once, inside a transformation that is one of ours, or the user's by JAX."""

    def call(self, rec: Any, bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
        """See Elsewhere. Where JAX's `jax_enable_x64` is off, arrays have 32 bits where their Values say 64."""
        lifted = [v.array.level for v in values if type(v) is Value and isinstance(v.array, Lifted)]
        if lifted:
            return max(lifted, key=_depth).call(bound, values)
        sig = signature(bound, tuple(v.aval if type(v) is Value else type(v) for v in values))
        arrays = [v.concrete() if type(v) is Value else v for v in values]
        if not has_x64():
            arrays = [for_user(a) if type(v) is Value else a for v, a in zip(values, arrays, strict=True)]
        try:
            outs = sig.traced(*arrays) if has_x64() else sig.in_32_bits(arrays)
        except jax.errors.UnexpectedTracerError:
            raise RuntimeError(ESCAPED) from None
        made = tuple(constant(o, aval) for o, aval in zip(outs, sig.avals, strict=False))
        return (made[0] if sig.single else made), sig


class DeviceChange(Elsewhere):
    """An input lives on another device than the pending program, which ends."""

    def call(self, rec: Any, bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
        """See Elsewhere."""
        rec.switch_device(next(v.aval.device for v in values if type(v) is Value))
        values, main = _on_one_device(values)
        if main is not rec.device:
            rec.switch_device(main)
        return rec.call(bound, values)


class Shapes:
    """The level of tensors of the device "meta", below all others: results have the shapes and dtypes that an operation would give."""

    depth = -1

    def call(self, bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
        """The Values of the results, and the Signature. RuntimeError for a tensor of another device, unless it is a number on the CPU."""
        specs = []
        for v in values:
            if type(v) is Value and v.aval.device is not META:
                if v.aval.ndim or v.aval.device is not CPU:
                    raise RuntimeError(f"Tensor on device {v.aval.device} is not on the expected device meta!") from None
                v = moved(v, META)
            specs.append(v.aval if type(v) is Value else type(v))
        sig = signature(bound, tuple(specs))
        made = tuple([constant(None, aval) for aval in sig.avals])
        return (made[0] if sig.single else made), sig


Contentless.level = Shapes()


def _depth(level: Any) -> int:
    return level.depth


def _on_one_device(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    """The operands on one device, and which. PyTorch lets a 0-dim host tensor meet tensors of another device; any other mix is an error."""
    devices = [v.aval.device for v in values if type(v) is Value]
    main = next((d for d in devices if d is not CPU), CPU)
    found = [moved(v, main) if type(v) is Value and v.aval.device is CPU and main is not CPU and not v.aval.ndim else v for v in values]
    signature_devices = {v.aval.device for v in found if type(v) is Value}
    if len(signature_devices) > 1:
        a, b = sorted(map(str, signature_devices), reverse=True)[:2]
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {a} and {b}!") from None
    return tuple(found), main
