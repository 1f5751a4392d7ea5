"""Linear functions, dropout and attention, against PyTorch itself."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torchgrad_jax as ours  # noqa: E402
from tests.neural_functions import (  # noqa: E402
    INF,
    MASK,
    OURS,
    PLAIN,
    THEIRS,
    Function,
    batched,
    compare,
    name_of,
    normal,
    outcome,
    same,
)
from torchgrad_jax.calling.public import published  # noqa: E402
from torchgrad_jax.functions.random import default_generator  # noqa: E402

pytestmark = [pytest.mark.operators, pytest.mark.filterwarnings("error")]

# ---------------------------------------------------------------------- linear


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 1, 3, 4), (0, 4), (2, 0, 4)])
@batched
def test_linear(shape: tuple[int, ...]) -> None:
    compare(lambda t, f, x, w, b: f.linear(x, w, b), normal(*shape), normal(5, 4), normal(5))
    compare(lambda t, f, x, w: f.linear(x, w), normal(*shape), normal(5, 4), node=len(shape) > 1)
    if 0 not in shape:
        compare(lambda t, f, x, w: f.linear(x, w), normal(*shape), normal(4))
    compare(lambda t, f, x, w, b: f.linear(x.detach(), w, b), normal(*shape), normal(5, 4), normal(5))
    compare(lambda t, f, x, w, b: f.linear(x, w.detach(), b.detach()), normal(*shape), normal(5, 4), normal(5))
    compare(lambda t, f, x, w, b: f.linear(x, w.detach(), b), normal(*shape), normal(5, 4), normal(5))


@batched
def test_linear_of_other_layouts() -> None:
    compare(lambda t, f, x, w, b: f.linear(x.transpose(0, 1), w, b), normal(3, 2, 4), normal(5, 4), normal(5))
    compare(lambda t, f, x, w, b: f.linear(x.t(), w, b), normal(4, 2), normal(5, 4), normal(5))
    compare(lambda t, f, x, w, b: f.linear(x, w, b), normal(3, 4), normal(5, 4), normal(1))
    compare(lambda t, f, x, w, b: f.linear(x, w, b), normal(3, 4), normal(5, 4), normal(3, 5))
    compare(lambda t, f, x, w, b: f.linear(x, w, b), normal(2, 3, 4), normal(5, 4), normal(3, 5))
    compare(lambda t, f, x: f.linear(x, x), np.arange(12).reshape(3, 4))


@pytest.mark.parametrize("through", ["input", "weight", "both"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_nodes_of_linear_are_counted_as_in_pytorch(through: str, bias: bool) -> None:
    found = []
    for m in (torch, ours):
        x, w, b = m.ones(2, 3, 4), m.ones(5, 4), m.ones(5) if bias else None
        for name, t in (("input", x), ("weight", w)):
            t.requires_grad_(through in (name, "both"))
        nodes, left = [], [m.nn.functional.linear(x, w, b).grad_fn]
        while left:
            node = left.pop()
            if "AccumulateGrad" not in node.name():
                nodes.append((node._sequence_nr(), node.name()))
            left += [inner for inner, _ in node.next_functions if inner is not None]
        first = min(nodes)[0]
        found.append([(number - first, name) for number, name in nodes])
    assert found[0] == found[1]


@pytest.mark.parametrize("written", ["x", "w"])
def test_linear_of_batches_without_a_bias_notices_writes(written: str) -> None:
    for t, f in ((torch, THEIRS), (ours, OURS)):
        x, w = (t.tensor(a, requires_grad=True) for a in (normal(2, 3, 4), normal(5, 4)))
        x, w = x * 1, w * 1
        y = f.linear(x, w)
        with t.no_grad():
            (x if written == "x" else w).mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            t.autograd.grad(y, w if written == "x" else x, t.ones_like(y))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "shapes", [((2, 3, 4, 5), (2, 3, 5, 6)), ((1, 3, 4, 5), (2, 3, 5, 6)), ((2, 0, 4, 5), (2, 0, 5, 6)), ((2, 3, 4, 5), (2, 3, 6, 6))]
)
def test_products_of_batches_that_nobody_follows(shapes: Any, turned: bool) -> None:
    def program(m: Any) -> Any:
        a, b = (m.arange(float(np.prod(shape))).reshape(shape) for shape in shapes)
        b = b.mT.contiguous().mT if turned else b
        found = []
        for mode in (m.no_grad, m.enable_grad, m.inference_mode):
            try:
                with mode():
                    made = a @ b
                found.append((made.tolist(), made.stride(), made._is_view(), made.is_inference(), made.requires_grad))
            except RuntimeError as error:
                found.append(str(error))
        return found

    assert program(ours) == program(torch)


def test_the_graph_of_linear() -> None:
    for shape in ((3, 4), (2, 3, 4)):
        found = []
        for t, f in ((torch, THEIRS), (ours, OURS)):
            x, w, b = (t.tensor(a, requires_grad=True) for a in (normal(*shape), normal(5, 4), normal(5)))
            nodes, level = [], [f.linear(x, w, b).grad_fn]
            while level:
                nodes.append([name_of(n) for n in level])
                level = [n for node in level if node is not None for n, _ in node.next_functions]
            found.append(nodes)
        assert found[0] == found[1]


@pytest.mark.parametrize("written", ["x", "w"])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_linear_notices_writes(written: str, shape: tuple[int, ...]) -> None:
    for t, f in ((torch, THEIRS), (ours, OURS)):
        x, w, b = (t.tensor(a, requires_grad=True) for a in (normal(*shape), normal(5, 4), normal(5)))
        x = x * 1
        y = f.linear(x, w.detach() if written == "x" else w, b)
        with t.no_grad():
            (x if written == "x" else w).mul_(2)
        if written == "x":  # nothing that this gradient needs was changed
            t.autograd.grad(y, b, t.ones_like(y))
        else:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                t.autograd.grad(y, b, t.ones_like(y))


@pytest.mark.parametrize("function", [
    lambda t, f, x: f.linear(t.ones(3, 3), t.ones(5, 4)), lambda t, f, x: f.linear(t.ones(2, 3, 3), t.ones(5, 4)),
    lambda t, f, x: f.linear(t.ones(3), t.ones(5, 4)), lambda t, f, x: f.linear(t.ones(3, 4), t.ones(5, 4), t.ones(4)),
    lambda t, f, x: f.linear(x, t.ones(5, 4)), lambda t, f, x: f.linear(x, t.ones(5, 4), t.ones(5)),
    lambda t, f, x: f.linear(t.ones(3, 4), t.ones(2, 5, 4)), lambda t, f, x: f.linear(3, t.ones(5, 4)), lambda t, f, x: f.linear(x, 3),
    lambda t, f, x: f.linear(t.ones(3, 4), t.ones(3)), lambda t, f, x: f.linear(t.tensor(1.0), t.ones(5, 4)),
    lambda t, f, x: f.linear(t.ones(3, 3), t.ones(5, 4), t.ones(5)), lambda t, f, x: f.linear(t.ones(2, 2, 4), t.ones(5, 4), t.ones(4)),
    lambda t, f, x: f.linear(t.ones(4), t.ones(5, 4), t.ones(4)), lambda t, f, x: f.linear(t.ones(3, 4), t.ones(4), t.tensor(1.0)),
    lambda t, f, x: f.bilinear(t.ones(3, 4), t.ones(2, 5), t.ones(6, 4, 5)), lambda t, f, x: f.bilinear(t.ones(3, 3), t.ones(3, 5), t.ones(6, 4, 5)),
    lambda t, f, x: f.bilinear(t.ones(3, 4), t.ones(3, 4), t.ones(6, 4, 5)),
    lambda t, f, x: f.bilinear(t.ones(2, 3, 4), t.ones(3, 5), t.ones(6, 4, 5)),
    lambda t, f, x: f.bilinear(t.ones(3, 4), t.ones(3, 5), t.ones(6, 4, 5), t.ones(5)),
])  # fmt: skip
@batched
def test_linear_errors(function: Function) -> None:
    compare(function, normal(3, 4))


@batched
def test_bilinear() -> None:
    compare(lambda t, f, x, y, w, b: f.bilinear(x, y, w, b), normal(3, 4), normal(3, 5), normal(6, 4, 5), normal(6))
    compare(lambda t, f, x, y, w: f.bilinear(x, y, w), normal(2, 3, 4), normal(2, 3, 5), normal(6, 4, 5))


# ---------------------------------------------------------------------- dropout


def seeded(function: Function) -> Function:
    """The function with both default generators at the same place."""

    def call(t: Any, f: Any, *tensors: Any) -> Any:
        if t is torch:
            torch.manual_seed(7)
        else:
            default_generator.manual_seed(7)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(t, f, *tensors)

    return call


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"])
@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
@batched
def test_dropout(name: str, p: float) -> None:
    for shape in ((3, 4), (2, 3, 4), (2, 3, 4, 2), (2, 3, 4, 2, 2), (0, 3, 4)):
        compare(seeded(lambda t, f, x: getattr(f, name)(x, p, True)), normal(*shape), rtol=1e-12)
        compare(seeded(lambda t, f, x: getattr(f, name)(x, p, False)), normal(*shape), rtol=1e-12)
        node = name not in ("dropout1d", "dropout3d")
        compare(seeded(lambda t, f, x: getattr(f, name)(x * 1, p, True, True)), normal(*shape), rtol=1e-12, second=False, node=node)
    for dtype, rtol in (("float32", 1e-6), ("float16", 1e-2), ("bfloat16", 1e-2)):
        compare(seeded(lambda t, f, x: getattr(f, name)(x, p, True)), normal(2, 3, 4), dtype=dtype, rtol=rtol, second=False)
    compare(seeded(lambda t, f, x: getattr(f, name)(x, 1.5)), normal(2, 3, 4))
    compare(seeded(lambda t, f, x: getattr(f, name)(x, -0.5)), normal(2, 3, 4))
    if 0 < p < 1:
        compare(seeded(lambda t, f, x: getattr(f, name)(x, p, True)), np.ones((2, 3, 4), np.int64))


def test_dropout_outside_training_is_the_tensor_itself() -> None:
    x = ours.ones(3)
    assert OURS.dropout(x, 0.5, False) is x and OURS.dropout(x, 0.0) is x and OURS.alpha_dropout(x) is x


@batched
def test_rrelu_in_training() -> None:
    compare(seeded(lambda t, f, x: f.rrelu(x, training=True)), PLAIN, second=False)
    compare(seeded(lambda t, f, x: f.rrelu(x * 1, training=True, inplace=True)), PLAIN, second=False)
    compare(seeded(lambda t, f, x: f.rrelu(x, 0.2, 0.4, training=True)), PLAIN, second=False, dtype="float32", rtol=1e-6)


# ---------------------------------------------------------------------- attention


def attend(**options: Any) -> Function:
    return lambda t, f, q, k, v, *m: f.scaled_dot_product_attention(q, k, v, *m, **options)


@pytest.mark.parametrize("shape", [(4, 8), (3, 4, 8), (2, 3, 4, 8), (1, 2, 3, 4, 8)])
@batched
def test_attention(shape: tuple[int, ...]) -> None:
    operands = [normal(*shape, seed=i) for i in range(3)]
    second = len(shape) != 4  # PyTorch's fused kernel has no second derivative
    for function in (attend(), attend(scale=0.3), attend(is_causal=True)):
        compare(function, *operands, second=second, rtol=1e-8)
    compare(attend(), *operands, MASK, second=second, rtol=1e-8)
    compare(attend(), *operands, normal(4, 4), second=True, rtol=1e-8)
    compare(lambda t, f, q, k, v, m: f.scaled_dot_product_attention(q, k, v, m.detach()), *operands, normal(4, 4), second=False, rtol=1e-8)
    added = np.where(MASK, 0, -INF)
    compare(lambda t, f, q, k, v: f.scaled_dot_product_attention(q, k, v, t.tensor(added)), *operands, second=False)
    compare(attend(is_causal=True), *operands, MASK, second=False, rtol=1e-8)
    compare(seeded(attend(dropout_p=0.4)), *operands, rtol=1e-8)
    longer = [operands[0], *(normal(*shape[:-2], 6, 8, seed=i) for i in (4, 5))]
    compare(attend(), *longer, second=False, rtol=1e-8)
    compare(attend(is_causal=True), *longer, second=False, rtol=1e-8)
    compare(attend(), *longer[:2], normal(*shape[:-2], 6, 5), second=True, rtol=1e-8)
    for dtype, rtol in (("float32", 1e-5), ("float16", 1e-2), ("bfloat16", 6e-2)):
        compare(attend(), *operands, dtype=dtype, rtol=rtol, second=False)


@batched
def test_attention_with_shared_and_expanded_heads() -> None:
    compare(attend(enable_gqa=True), normal(2, 6, 4, 8), normal(2, 3, 5, 8), normal(2, 3, 5, 8, seed=1), second=False, rtol=1e-8)
    compare(attend(enable_gqa=True), normal(6, 4, 8), normal(3, 5, 8), normal(3, 5, 8, seed=1), rtol=1e-8)
    compare(attend(), normal(2, 6, 4, 8), normal(1, 6, 5, 8), normal(1, 6, 5, 8, seed=1), rtol=1e-8)
    for mask in (normal(2, 1, 1, 4), normal(2, 3, 4, 4), normal(3, 4, 4)):
        compare(attend(), *(normal(2, 3, 4, 8, seed=i) for i in range(3)), mask, rtol=1e-8)


@batched
def test_attention_of_nothing() -> None:
    compare(attend(), normal(2, 3, 0, 8), normal(2, 3, 4, 8), normal(2, 3, 4, 8), second=False, node=False)
    compare(attend(), normal(2, 3, 4, 8), normal(2, 3, 0, 8), normal(2, 3, 0, 8), second=False, node=False)


@pytest.mark.parametrize("function", [
    lambda t, f, q: f.scaled_dot_product_attention(q, q.float(), q),
    lambda t, f, q: f.scaled_dot_product_attention(q[0, 0, 0], q[0, 0, 0], q[0, 0, 0]),
    lambda t, f, q: f.scaled_dot_product_attention(q, q, q, t.ones(4, 4, dtype=t.int64)),
    lambda t, f, q: f.scaled_dot_product_attention(q.float(), q.float(), q.float(), t.ones(4, 4).double()),
    lambda t, f, q: f.scaled_dot_product_attention(q, q, q, t.ones(5, 4)), lambda t, f, q: f.scaled_dot_product_attention(q, q, q, t.ones(4)),
    lambda t, f, q: f.scaled_dot_product_attention(q, q[..., :7], q), lambda t, f, q: f.scaled_dot_product_attention(q, q[:, :2], q[:, :2]),
    lambda t, f, q: f.scaled_dot_product_attention(q, q[:, :2], q[:, :2], enable_gqa=True), lambda t, f, q: f.scaled_dot_product_attention(3, q, q),
    lambda t, f, q: f.scaled_dot_product_attention(q, q, q, dropout_p=1.5),
    lambda t, f, q: f.scaled_dot_product_attention(q.long(), q.long(), q.long()),
    lambda t, f, q: f.scaled_dot_product_attention(q[0, 0], q[0, 0, :, :7], q[0, 0]),
])  # fmt: skip
@batched
def test_attention_errors(function: Function) -> None:
    compare(function, normal(2, 3, 4, 8))


# ---------------------------------------------------------------------- torch.X and Tensor.X


@pytest.mark.parametrize(("shape", "mask"), [
    ((1, 2, 3, 4), (2, 1, 3, 3)), ((2, 3, 4), (1, 1, 3, 3)), ((3, 4), (1, 3, 3)), ((1, 2, 1, 4), (3, 1)), ((1, 1, 3, 4), (1, 2, 3, 3)),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64", "bool"])
@pytest.mark.parametrize("grad", [True, False])
def test_a_mask_for_more_than_there_is_is_refused(shape: tuple[int, ...], mask: tuple[int, ...], dtype: str, grad: bool) -> None:
    """It is added to the scores in place."""

    def message(m: Any) -> str:
        x = m.ones(shape, dtype=m.float64 if dtype == "float64" else m.float32, requires_grad=grad)
        with pytest.raises(RuntimeError) as error:
            m.nn.functional.scaled_dot_product_attention(x, x, x, m.ones(mask, dtype=getattr(m, dtype)))
        return str(error.value)

    assert message(ours) == message(torch)


def test_functions_of_the_top_level() -> None:
    x = normal(3, 4)
    places = [published[place].items() for place in ("torch", "torch.Tensor")]
    tables, methods = ({k: v for k, v in place if callable(v) and v.__module__.startswith("torchgrad_jax.nn.")} for place in places)
    assert len(tables) > 20 and len(methods) > 3
    for name in tables:
        assert hasattr(torch, name), name
    for name in methods:
        assert hasattr(torch.Tensor, name), name
    for name in ("softmax", "log_softmax"):
        same(getattr(torch, name)(torch.tensor(x), 1), tables[name](ours.tensor(x), 1), 1e-12, name)
        same(getattr(torch, name)(torch.tensor(x), dim=0, dtype=torch.float32), tables[name](ours.tensor(x), dim=0, dtype=ours.float32), 1e-6, name)
        for call in ((), ("a",)):
            a = outcome(lambda t, f, x: f(x, *call), None, getattr(torch, name), [torch.tensor(x)])  # noqa: B023 - called at once
            b = outcome(lambda t, f, x: f(x, *call), None, tables[name], [ours.tensor(x)])  # noqa: B023 - called at once
            assert (type(a), str(a)) == (type(b), str(b))
    torch.manual_seed(3)
    default_generator.manual_seed(3)
    for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "dropout_", "alpha_dropout_"):
        same(getattr(torch, name)(torch.tensor(x), 0.4, True), tables[name](ours.tensor(x), 0.4, True), 1e-12, name)
        a = outcome(lambda t, f, x: f(x, 1.5, True), None, getattr(torch, name), [torch.tensor(x)])
        b = outcome(lambda t, f, x: f(x, 1.5, True), None, tables[name], [ours.tensor(x)])
        assert (type(a), str(a)) == (type(b), str(b))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 3)])
@pytest.mark.parametrize("biased", [True, False])
def test_nodes_of_linear_are_counted_alike_whichever_way_it_goes(shape: tuple[int, ...], biased: bool) -> None:
    def names() -> list[str]:
        x, w = ours.ones(shape, requires_grad=True).exp(), ours.ones(4, 3, requires_grad=True)
        stack, found = [ours.nn.functional.linear(x, w, ours.ones(4) if biased else None).grad_fn], set()
        while stack:
            node = stack.pop()
            if node is not None and node not in found:
                found.add(node)
                stack += [target for target, _ in node.next_functions]
        return [n.name() for n in sorted(found, key=lambda n: n._sequence_nr())]

    plain = names()
    with ours.autograd.set_detect_anomaly(True):
        assert names() == plain


def test_a_probability_in_a_tensor_is_asked_each_time():
    p: Any = ours.tensor(0.5)  # PyTorch takes one, whatever its annotations say
    x = ours.ones(100)
    for probability, factor in ((0.5, 2.0), (0.75, 4.0)):
        p.fill_(probability)
        for drop in (ours.nn.functional.dropout, ours.nn.Dropout(p)):
            made = drop(x, p) if drop is ours.nn.functional.dropout else drop(x)
            assert set(made.tolist()) == {0.0, factor}
