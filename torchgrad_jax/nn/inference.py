"""An encoder layer as one operation, where PyTorch computes it by its inference kernel: nobody follows what happens in it, and no hook is called.

What it does is an ordinary function of tensors. At the third call of its kind it has been rehearsed, without computing anything, and what it recorded
is recorded as one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torchgrad_jax.nn.functional as F
from torchgrad_jax.autograd.batched import standing_for
from torchgrad_jax.core.made import fresh, wrap
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.composite import Composed, Looked, composed, rehearsing
from torchgrad_jax.runtime.keeping import Memo
from torchgrad_jax.runtime.recorder import Recorder, call_values, per_thread
from torchgrad_jax.runtime.recording.interrupts import from_outside
from torchgrad_jax.runtime.value import Value, is_tracer

_are_plain = frozenset((Tensor, Parameter)).issuperset
# Of a kind that was seen once, and of one that cannot be rehearsed.
_ONCE, _NEVER = object(), object()
_kept = Memo()


class EncoderLayer(NamedTuple):
    """All of an encoder layer but its tensors. mask, padding: whether there are such, numbers that are added to scores."""

    heads: int
    norm_first: bool
    gelu: bool
    eps: float
    mask: bool
    padding: bool

    def __call__(self, x: Tensor, *tensors: Tensor) -> Tensor:
        """(N, S, E) to the same. tensors: weight and bias of attention's two projections, of two normalizations, of two linear maps; masks."""
        projections, outwards, first, second, widening, narrowing = [(tensors[i], tensors[i + 1]) for i in range(0, 12, 2)]
        masks = iter(tensors[12:])
        mask, padding = next(masks) if self.mask else None, next(masks) if self.padding else None
        size = x.shape[-1:]

        def attended(y: Tensor) -> Tensor:
            y = y.transpose(1, 0)
            made, _ = F.multi_head_attention_forward(
                y, y, y, size[0], self.heads, *projections, None, None, False, 0.0, *outwards, training=False, key_padding_mask=padding,
                need_weights=self.mask or self.padding, attn_mask=mask,
            )  # fmt: skip
            return made.transpose(1, 0)

        def fed_forward(y: Tensor) -> Tensor:
            return F.linear((F.gelu if self.gelu else F.relu)(F.linear(y, *widening)), *narrowing)

        if self.norm_first:
            x = x + attended(F.layer_norm(x, size, *first, self.eps))
            return x + fed_forward(F.layer_norm(x, size, *second, self.eps))
        x = F.layer_norm(x + attended(x), size, *first, self.eps)
        return F.layer_norm(x + fed_forward(x), size, *second, self.eps)


def at_once(name: str, function: Callable[..., Tensor], tensors: Sequence[Tensor]) -> Tensor:
    """What `function`, which is pure and tells by its hash what it does, makes of tensors: recorded as one operation of this name where it was seen
    before, and nothing but its result can be seen."""
    rec = per_thread.recorder
    if rec.rare or modes.execution == "eager" or not _are_plain(map(type, tensors)):
        return function(*tensors)
    values = [t._read() for t in tensors]
    key = (name, function, rec.grad_enabled, dtypes.get_default_dtype(), modes.matmul_precision, *[v.aval for v in values])
    found = _kept.get(key)
    if found is None:
        _kept.keep(key, _ONCE)
    elif found is _ONCE:
        found = _kept.keep(key, _rehearsed(rec, name, function, values) or _NEVER)
    if type(found) is not Composed or any([v.array is not None and is_tracer(v.array) for v in values]):
        return function(*tensors)
    made = call_values(found.whole, (*values, *found.constants, *found.numbers))
    return fresh(rec, made[0] if type(made) is tuple else made)


def _rehearsed(rec: Recorder, name: str, function: Callable[..., Tensor], values: Sequence[Value]) -> Composed | None:
    """The call as one operation; None where its result is not a new tensor in row-major order."""
    given = [standing_for(v.aval.shape, v.aval) for v in values]
    try:
        with rehearsing(rec) as scratch:
            made = function(*map(wrap, given))
            return composed(name, scratch, [made._read()], given) if made.is_contiguous() and made._view is None else None
    except (Exception, Looked) as error:  # the user is told by the same function of his tensors
        if from_outside(error):
            raise
        return None


def tensors_of(layer: Any) -> list[Any]:
    """Those of an encoder layer, in the order in which `EncoderLayer` takes them."""
    attention = layer.self_attn
    parts = (attention.out_proj, layer.norm1, layer.norm2, layer.linear1, layer.linear2)
    return [attention.in_proj_weight, attention.in_proj_bias, *[t for part in parts for t in (part.weight, part.bias)]]
