"""`torch.nn.functional`: `linear` and `bilinear`."""

from __future__ import annotations

import math
from typing import Any

from torchgrad_jax.nn.activation import expect_tensor
from torchgrad_jax.ops import dtypes
from torchgrad_jax.ops import linear as ops_linear  # noqa: F401 - declares the operators used here
from torchgrad_jax.ops.declare import ARRAY, Static, registry
from torchgrad_jax.runtime.keeping import Memo
from torchgrad_jax.runtime.recorder import DeviceChange, Recorder, TracedInput, per_thread, record, record1
from torchgrad_jax.tensor.dispatch import apply, plan_of, turn
from torchgrad_jax.tensor.functions import matmul
from torchgrad_jax.tensor.gathering import with_out
from torchgrad_jax.tensor.tensor import Tensor, result
from torchgrad_jax.tensor.views import reshape, t

__all__ = ["bilinear", "linear"]

_ADDMM = registry["linear_addmm"].bind((ARRAY, ARRAY, ARRAY))
_MM = registry["mm"].bind((ARRAY, ARRAY))
_T = registry["t"].bind((ARRAY,))
_TRILINEAR = registry["_trilinear"].bind((ARRAY, ARRAY, ARRAY))
_new = object.__new__
_views = Memo()


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias, for any number of leading dimensions; a one-dimensional weight gives one output without dimension.

    TypeError, RuntimeError where types, shapes or dtypes do not fit.
    """
    rec = per_thread.recorder
    if type(input) is Tensor and isinstance(weight, Tensor) and not rec.rare and (bias is None or isinstance(bias, Tensor)):
        made = _recorded(rec, input, weight, bias)
        if made is not None:
            return made if out is None else with_out("linear", out, made)
    return with_out("linear", out, _composed(input, weight, bias))


def _composed(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    expect_tensor("linear", input)
    expect_tensor("linear", weight, "weight", 2)
    if bias is not None:
        expect_tensor("linear", bias, "bias", 3)
    x, w = input._aval, weight._aval
    if x.ndim == 0 or w.ndim == 0:
        raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are {x.ndim}D and {w.ndim}D")
    turned = t(weight)
    if bias is None:
        return matmul(input, turned)
    if x.ndim == 2:
        return apply(_ADDMM, (bias, input, turned))
    if (x.ndim == 1 or input.is_contiguous()) and bias._aval.ndim == 1 and w.ndim == 2:
        rows = reshape(input, (math.prod(x.shape[:-1]), x.shape[-1]))
        return reshape(apply(_ADDMM, (bias, rows, turned)), (*x.shape[:-1], w.shape[0]))
    return matmul(input, turned) + bias


def _recorded(rec: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """`_composed` written out for matrices, and for batches of rows with a bias: the same operations and nodes without the tensors in
    between, which nobody sees (a third of the cost). None for anything else."""
    a = input._value if input._storage is None else input._read()
    w = weight._value if weight._storage is None else weight._read()
    shape = a.aval.shape
    if w.aval.ndim != 2 or not shape:
        return None
    flat = len(shape) == 2
    if not flat and (bias is None or bias._aval.ndim != 1 or (input._view is not None and not input.is_contiguous())):
        return None
    tracked = rec.grad_enabled
    through_input, through_weight = tracked and input._rg, tracked and weight._rg
    through_bias = tracked and bias is not None and bias._rg
    saving = through_input or through_weight or through_bias
    if saving and rec.turned and turn(rec):
        return None
    try:
        left, source = a, input._edge() if through_input else None
        if not flat:
            left, source = _same_memory(rec, input, _view(math.prod(shape[:-1]), shape[-1]), a, source, saving)
        right, target = _same_memory(rec, weight, _T, w, weight._edge() if through_weight else None, saving)
        if bias is None:
            values: tuple[Any, ...] = (left, right)
            edges = (source, target)
            value = record(rec, _MM, values)
        else:
            values = (bias._value if bias._storage is None else bias._read(), left, right)
            edges = (bias._edge() if through_bias else None, source, target)
            value = record(rec, _ADDMM, values)
        node = _node(rec, value.signature, edges, values)
        if not flat:
            value = record1(rec, _view(*shape[:-1], w.aval.shape[0]), value)
            node = None if node is None else _node(rec, value.signature, ((node, 0),), ())
    except (TracedInput, DeviceChange):
        return None
    return result(value, node, 0)


def _view(*size: int) -> Any:
    found = _views.get(size)
    if found is None:
        found = _views.keep(size, registry["view"].bind((ARRAY, Static(size))))
    return found


def _same_memory(rec: Recorder, t: Tensor, bound: Any, value: Any, edge: Any, saving: bool) -> tuple[Any, Any]:
    """A view of `t`, and the edge to its node: as a Value of t's storage, so that a write to `t` before backward is noticed."""
    made = record1(rec, bound, value)
    if saving:
        counter = (t._storage or t._shared()).counter
        made.counter, made.version = counter, counter.version
    return made, None if edge is None else (_node(rec, made.signature, (edge,), ()), 0)


def _node(rec: Recorder, sig: Any, edges: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
    """The node of an operation, for the operands that have an edge; None where none has."""
    mask = 0
    for i, edge in enumerate(edges):
        if edge is not None:
            mask |= 1 << i
    if not mask:
        return None
    plan = sig.plans.get(mask) or plan_of(sig, mask)
    node = _new(plan.node_class)
    node.plan = plan
    node.saved = tuple([values[i] for i in plan.saves]) if plan.saves else ()
    node.next = tuple([edges[i] for i in plan.inputs])
    node.seq = rec.sequence
    rec.sequence += 1
    node.hooks = None
    return node


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """For each output k, input1 @ weight[k] @ input2, plus bias[k]. RuntimeError where sizes or dtypes do not fit."""
    for i, x in enumerate((input1, input2, weight)):
        expect_tensor("bilinear", x, ("input1", "input2", "weight")[i], i + 1)
    a, b, w = input1._aval, input2._aval, weight._aval
    if not a.dtype == b.dtype == w.dtype == (a if bias is None else bias._aval).dtype:
        given = {"input1": a, "input2": b, "weight": w} | ({} if bias is None else {"bias": bias._aval})
        shown = ", ".join(f"{name}: {dtypes.of(x.dtype).word}" for name, x in given.items())
        raise RuntimeError(f"All tensors must have the same dtype, got {shown}")
    if a.ndim != b.ndim:
        raise RuntimeError(f"bilinear(): input dimensions do not match: got {a.ndim} and {b.ndim}")
    for i in range(a.ndim - 1):
        if a.shape[i] != b.shape[i]:
            raise RuntimeError(f"bilinear(): input batch dimensions do not match at dim {i}: got {a.shape[i]} and {b.shape[i]}")
    for name, x, n in (("input1", a.shape[-1], w.shape[1]), ("input2", b.shape[-1], w.shape[2])):
        if x != n:
            raise RuntimeError(f"bilinear(): {name} size does not match weight size: got {x} but expected {n}")
    if bias is not None and bias._aval.shape[0] != w.shape[0]:
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {bias._aval.shape[0]} but expected {w.shape[0]}")
    rows = math.prod(a.shape[:-1])
    made = apply(_TRILINEAR, (reshape(input1, (rows, a.shape[-1])), weight, reshape(input2, (rows, b.shape[-1]))))
    made = reshape(made, (*a.shape[:-1], w.shape[0]))
    return made if bias is None else made + bias


TOPLEVEL: dict[str, Any] = {"bilinear": bilinear}
METHODS: dict[str, Any] = {}
