"""One operation on Values: recorded, or called at once where an input is a tracer."""

from __future__ import annotations

from typing import Any

import jax

from torchgrad_jax.runtime._jax_compat import has_x64
from torchgrad_jax.runtime.device import for_user, put
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.recorder import DeviceChange, Recorder, TracedInput, per_thread, record
from torchgrad_jax.runtime.value import Lifted, Value, constant, is_tracer

ESCAPED = (
    "A Tensor has no value: it was made inside a function that JAX transforms (jit, grad, vmap ...), or written to in there, and is used outside. "
    "Let the function return it."
)


def run(rec: Recorder, bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
    """Record an operation on Values and numbers, or call it at once if an input is a tracer. Its Values, and its Signature."""
    if True in [type(v) is Value and is_tracer(v.array) for v in values]:  # most that come here: an error less to be raised
        return _call_traced(bound, values)
    try:
        outs = record(rec, bound, values)
        return outs, (outs if type(outs) is Value else outs[0]).signature
    except TracedInput:
        return _call_traced(bound, values)
    except DeviceChange:
        rec.switch_device(next(v.aval.device for v in values if type(v) is Value))
        return run(rec, bound, _on_one_device(values))


def _call_traced(bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
    """An operation inside a transformation: one of ours, or of the user's by JAX. Where `jax_enable_x64` is off there, arrays have 32 bits where
    their Values say 64."""
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


def _depth(level: Any) -> int:
    return level.depth


def _on_one_device(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """PyTorch lets a 0-dim host tensor meet tensors of another device; any other mix is an error, raised by the signature."""
    tensors = [v for v in values if type(v) is Value]
    main = next((v.aval.device for v in tensors if v.aval.device.type != "cpu"), tensors[0].aval.device)
    found: list[Any] = []
    for v in values:
        if type(v) is Value and v.aval.device is not main and v.aval.ndim == 0 and v.aval.device.type == "cpu":
            v = constant(put(v.concrete(), main))
        found.append(v)
    signature_devices = {v.aval.device for v in found if type(v) is Value}
    if len(signature_devices) > 1:
        a, b = sorted(map(str, signature_devices), reverse=True)[:2]
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {a} and {b}!")
    if main is not per_thread.recorder.device:
        per_thread.recorder.switch_device(main)
    return tuple(found)


def call_values(bound: Any, values: tuple[Any, ...]) -> Any:
    """`run` in the calling thread's recorder, without the Signature."""
    rec = per_thread.recorder
    try:
        return record(rec, bound, values)
    except (TracedInput, DeviceChange):
        return run(rec, bound, values)[0]
