"""Operators' forms as steps of merged programs: the same bits at the first run and at every other, and no trace for a size that is new."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.declaration.numpy_rows import is_for_rows
from torchgrad_jax.runtime.baseline import Forms, Merged, NumPyForm, Part
from torchgrad_jax.runtime.operation import Signature

MEANS = [(shape, dim, keepdim) for shape in ((7, 5), (300, 3), (3, 300), (4, 5, 6), (64,), (2, 3, 4, 5))
         for dim in (None, 0, -1, (0, -1)) for keepdim in (False, True) if len(shape) > 1 or dim != (0, -1)]  # fmt: skip


@pytest.mark.operators
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "dim", "keepdim"), MEANS)
def test_a_mean_has_the_same_bits_in_each_run(shape, dim, keepdim, dtype):
    x = tj.from_numpy(np.random.default_rng(1).standard_normal(shape).astype(dtype))
    found = []
    for _ in range(6):
        y = x.mean(dim, keepdim=keepdim)
        z = (x - y) * 2 if keepdim else y * 3 + 1
        found.append((y.numpy().tobytes(), z.numpy().tobytes()))
    assert found == found[:1] * 6
    expected = np.asarray(x.numpy().mean(dim, keepdims=keepdim))
    y = x.mean(dim, keepdim=keepdim).numpy()
    assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(y, expected, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-6 if dtype == "float32" else 1e-14)


def test_a_mean_of_a_size_that_is_new_is_not_traced(monkeypatch):
    def run(n):
        x = tj.ones(n, 3, requires_grad=True)
        for _ in range(8):
            x.mean(0).sum().backward()
            x.mean().item()
        return x.grad

    run(5)
    traced = []
    monkeypatch.setattr(Signature, "_trace", lambda self: traced.append(self.bop.name))
    monkeypatch.setattr(Signature, "_plan", lambda self: traced.append(self.bop.name))
    np.testing.assert_allclose(run(1013).numpy(), np.full((1013, 3), 8 / 1013), rtol=1e-6)
    assert not traced


F = tj.nn.functional
ROWS = {
    "softmax": lambda x, w, b: F.softmax(x, -1),
    "softmax of the first": lambda x, w, b: F.softmax(x, 0),
    "log_softmax": lambda x, w, b: F.log_softmax(x, 1),
    "layer_norm": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
    "layer_norm without bias": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w),
    "layer_norm alone": lambda x, w, b: F.layer_norm(x, x.shape[-1:]),
    "layer_norm of two": lambda x, w, b: F.layer_norm(x, x.shape[-2:]),
}


@pytest.mark.operators
@pytest.mark.parametrize("needs", ["x", "w", "b", "xw", "wb", "xwb"])
@pytest.mark.parametrize("name", ROWS)
def test_rows_have_the_same_bits_in_each_run(name, needs, monkeypatch):
    def run(size, times):
        random = np.random.default_rng(size)
        given = [tj.from_numpy(random.standard_normal(shape).astype("float32")) for shape in ((3, 4, size), (size,), (size,))]
        for x, letter in zip(given, "xwb", strict=True):
            x.requires_grad_(letter in needs)
        found = []
        for _ in range(times):
            y = ROWS[name](*given) * given[0].detach() + 1
            leaves = [x for x in given if x.requires_grad] if y.requires_grad else []
            grads = tj.autograd.grad(y.square().sum(), leaves, allow_unused=True) if leaves else ()
            found.append([t.detach().numpy().tobytes() for t in (y, *grads) if t is not None])
        return found

    first = run(5, 14)
    assert first == first[:1] * 14
    traced = []
    by_loops = is_for_rows(np.ones(1, np.float32))
    if by_loops and name != "layer_norm of two" and (name, needs) != ("layer_norm without bias", "x"):  # a bias might be its weight
        monkeypatch.setattr(Signature, "_plan", lambda self: traced.append(self.bop.name))
    steps = run(11, 14)
    assert steps == steps[:1] * 14 and not traced


def test_steps_may_be_of_operands_of_earlier_ones_and_of_constants():
    ten = np.array(10.0)
    steps: list = [(np.add, (0, 1)), (np.multiply, (-1, ten)), (np.subtract, (-2, 0)), (np.negative, (-1,))]
    form = NumPyForm(Forms(lambda a, b: ((a + b) * ten - a, -(a + b))), False, 0, 1)
    form.step_by(lambda: steps, ())
    merged = Merged([Part(form, ["a", "b"], ["c", "d"]), Part(form, ["d", "c"], ["e", "f"])], ["a", "b"], ["c", "d", "e", "f"])
    a, b = np.arange(3.0), np.arange(3.0) ** 2
    for _ in range(3):
        c, d, e, f = merged([a, b])
        np.testing.assert_array_equal(c, (a + b) * 10 - a)
        np.testing.assert_array_equal(d, -(a + b))
        np.testing.assert_array_equal(e, (c + d) * 10 - d)
        np.testing.assert_array_equal(f, -(c + d))


def test_a_step_may_give_several_results():
    """Of which the last ones are the operator's."""
    form = NumPyForm(Forms(lambda a: (a.max(), a.sum()), fresh=True), False, 0, 1)
    form.step_by(lambda: [(lambda a: [a.min(), a.max()], (0,), 2), (np.sum, (0,))], ())
    merged = Merged([Part(form, ["a"], ["largest", "sum"])], ["a"], ["largest", "sum"])
    for _ in range(3):
        assert [float(x) for x in merged([np.arange(4.0)])] == [3, 6]


@pytest.mark.operators
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(7, 5), (5, 100), (100, 5), (3, 4, 6)])
@pytest.mark.parametrize("call", [
    "x.max(0)", "x.min(-1)", "x.max(1, keepdim=True)", "x.argmax(0)", "x.argmin(-1)", "x.argmax(-1, keepdim=True)", "x.argmax()", "x.cumsum(0)",
    "x.cumsum(-1)", "x.cumprod(0)", "x.cummax(0)", "x.cummin(-1)", "x.median(0)", "x.kthvalue(2, 1)", "x.double().logcumsumexp(0)",
    "x.cumsum(0, dtype=tj.float64)", "x.nanmedian(-1, keepdim=True)", "x.argmax(0, keepdim=True)", "x.sum(0).argmin()", "tj.cat([x, x + 1], -1)",
    "tj.cat([x[:1], x, x[:0]])", "tj.stack([x, x + 1, x.flip(0)], 1)", "tj.stack([x.max(), x.min()])", "x[tj.tensor([0, 2, 0])]",
    "x[:, tj.tensor([[1], [0]])]", "tj.nn.functional.pad(x, (1, -1, 2, 0))",
])  # fmt: skip
def test_what_goes_along_a_dimension_has_the_same_results_in_each_run(call, shape, dtype):
    x = tj.from_numpy((np.random.default_rng(1).standard_normal(shape) * 3).astype(dtype))
    code, found = compile(call, call, "eval"), []
    for _ in range(6):
        made = eval(code, {"x": x * 1, "tj": tj})
        made = made if isinstance(made, tuple) else (made,)
        found.append([(t.numpy().tobytes(), t.shape, t.dtype) for t in made])
    assert found == found[:1] * 6
    expected = eval(code, {"x": tj.from_numpy(x.numpy()[None]).squeeze(0), "tj": tj})
    assert [(t.shape, t.dtype) for t in (expected if isinstance(expected, tuple) else (expected,))] == [(s, d) for _, s, d in found[0]]


def test_a_step_of_several_results_stands_beside_one_that_writes_over_its_operand():
    def adding(a):
        a += 1
        return a

    doubled = NumPyForm(Forms(lambda a: a * 2, fresh=True), True, 0, 1)
    raised = NumPyForm(Forms(lambda a: a + 1, fresh=True, overwriting=adding), True, 0, 1)
    form = NumPyForm(Forms(lambda a: (a, a)), False, 0, 1)
    form.step_by(lambda: [(lambda a: [a - 1, a + 1], (0,), 2)], ())
    parts = [Part(doubled, ["a"], ["b"]), Part(form, ["b"], ["c", "d"]), Part(raised, ["b"], ["e"]), Part(raised, ["c"], ["f"])]
    merged = Merged(parts, ["a"], ["c", "d", "e", "f"])
    for _ in range(3):
        assert [x.tolist() for x in merged([np.ones(3)])] == [[1] * 3, [3] * 3, [3] * 3, [2] * 3]


@pytest.mark.parametrize(("steps", "results", "quick"), [
    ([(np.add, (0, 1))], 1, True), ([(np.add, (0, 1)), (np.negative, (0,))], 2, True), ([(lambda a: [a, a], (0,), 2)], 2, True),
    ([(np.add, (0, 1)), (np.negative, (-1,))], 1, False), ([(np.add, (0, np.ones(())))], 1, False), ([(lambda a: [a, a], (0,), 2)], 1, False),
])  # fmt: skip
def test_steps_of_operands_alone_take_the_place_of_the_form(steps, results, quick):
    form = NumPyForm(Forms(lambda a, b: a + b if results == 1 else (a + b, -a)), results == 1, 0, 1)
    form.step_by(lambda: steps, ())
    assert form.quick is None
    form(np.ones(2), np.ones(2))
    assert form.quick is False  # of what is new most is not called again
    form(np.ones(2), np.ones(2))
    assert bool(form.quick) is quick


def test_forms_and_their_steps_give_the_same_in_programs_that_are_new_each_time():
    """Until they are one list, operations run one by one: at first by their forms, then by the steps of these."""
    random = np.random.default_rng(0)
    x, w, b = [tj.from_numpy(random.standard_normal(s).astype("float32")) for s in ((5, 4), (4, 3), (3,))]
    found = []
    for i in range(5):
        p, q, r = [t.clone().requires_grad_() for t in (x, w, b)]
        y = tj.addmm(r, p, q)
        for _ in range(i):  # another program each time
            y = y + 0
        (y.max(1).values.sum() + y.mean() + y.cumsum(1)[0, 0]).backward()
        found.append([t.grad.numpy().tobytes() for t in (p, q, r)])
    assert found == found[:1] * 5
