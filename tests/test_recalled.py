"""Calls that are recalled give what they give when they are made for the first time, whatever the tensors hold by then."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.calling import entries
from torchgrad_jax.calling.learning import MOST

F = tj.nn.functional
# Each is called with a and b of (4, 6), v of 6, m of booleans, i of indices.
CALLS = (
    "a.view(6, 4)", "a.reshape(2, -1)", "a.permute(1, 0)", "a.select(1, 2)", "v.expand(4, 6)", "v.unsqueeze(-1)", "a.chunk(3, 1)", "a.unbind()",
    "tj.split(a, [1, 5], dim=1)", "a.t().reshape(-1)", "a.t().unsqueeze(0)", "a.t().sum(0)", "tj.cat([a, b], dim=1)", "tj.stack((a, b, a))",
    "tj.where(m, a, b)", "tj.where(m, a, 0.5)", "tj.where(m, a, a)", "a.clamp(-0.5, 0.5)", "a.clamp(min=0)", "a.masked_fill(m, -1.0)",
    "a.sum(1, keepdim=True)", "a.max(1)", "tj.topk(a, 2)", "a.sort(descending=True)", "a.std(0)", "a.norm(dim=1)", "F.softmax(a, dim=-1)",
    "m.float()", "tj.addmm(tj.zeros(4, dtype=a.dtype), a, b.t())", "tj.bmm(a[None], b.t()[None])", "tj.cdist(a, b)", "tj.einsum('ij,kj->ik', a, b)",
    "F.layer_norm(a, (6,), v)", "F.mse_loss(a, b)", "F.cross_entropy(a, i)", "F.nll_loss(a, i)", "a.gather(1, i[:, None])", "a.index_select(0, i)",
    "a.scatter(0, i[:, None], b)", "a.scatter(1, i[:, None], 2.0)", "a.scatter_add(1, i[:, None], b)", "a.index_add(0, i, b, alpha=2)",
    "a.index_fill(1, i, 3.0)", "a.index_copy(0, i[:1], b[:1])", "a.scatter_reduce(0, i[None], b, 'sum')", "tj.take_along_dim(a, i[:, None], 1)",
    "tj.fft.fft(a)", "tj.fft.rfft(a, dim=0)", "tj.fft.irfft(tj.complex(a, b), n=5)", "tj.fft.fftn(a, norm='ortho')", "tj.fft.fftshift(a)",
    "F.embedding(i, a)", "F.one_hot(i, 6)", "F.pad(a, (1, 2))", "tj.zeros_like(a)", "tj.arange(5)",
    "i % 3", "i // 2", "a % 0.7", "a // 0.3", "tj.fmod(a, 0.7)", "tj.remainder(a, v)",
    "tj.div(a, 0.3, rounding_mode='floor')", "tj.div(i, 2, rounding_mode='trunc')", "tj.full((2, 2), 1.5)",
    "tj.lstm_cell(a, (b[:, :2] * 1, a[:, :2] * 1), a[0].expand(8, 6), a[0, :2].expand(8, 2))",
)  # fmt: skip


def forget():
    entries.forget_all()


def operands(seed, dtype, tracked):
    random = np.random.default_rng(seed)
    a, b, v = (tj.tensor(random.normal(size=s), dtype=dtype).requires_grad_(tracked) for s in ((4, 6), (4, 6), (6,)))
    return a, b, v, tj.tensor(random.normal(size=(4, 6)) > 0), tj.tensor(random.integers(0, 4, 4))


def nodes(node, depth=4):
    return None if node is None else (node.name(), *[nodes(n, depth - 1) for n, _ in node.next_functions if depth])


def described(found):
    if isinstance(found, tj.Tensor):
        return found.dtype, found.shape, found.stride(), found.storage_offset(), found._is_view(), nodes(found.grad_fn), found.tolist()
    return type(found), [described(f) for f in found]


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("dtype", [tj.float32, tj.float64])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_recalled_gives_what_the_first_gives(interpreted, name, dtype, tracked):
    code, second = compile(name, name, "eval"), operands(2, dtype, tracked)

    def call(*given):
        return eval(code, {"tj": tj, "F": F}, dict(zip("abvmi", given, strict=True)))

    forget()
    wanted = described(call(*second))
    call(*operands(1, dtype, tracked))
    assert described(call(*second)) == wanted
    with tj.no_grad():
        forget()
        wanted = described(call(*second))
        call(*second)
        assert described(call(*second)) == wanted


def known():
    return [e for reference in entries._all if (calls := reference()) is not None for e in calls.kinds() if e.bound is not None]


@pytest.mark.operators  # of programs: in eager mode there are none
def test_calls_are_learned():
    forget()
    a, b = tj.ones(2, 3), tj.ones(2, 3)
    for _ in range(2):
        tj.cat([a, b]), a.view(3, 2), a.max(1), tj.zeros(3)
    assert {e.bound.operator.name for e in known()} >= {"cat", "view", "_constant"}


def test_what_is_given_is_told_apart_by_type_and_sign():
    x = tj.tensor([-1.0, 0.0, 2.0])
    for _ in range(3):
        assert [math.copysign(1, x.clamp(max=high)[2].item()) for high in (0.0, -0.0)] == [1, -1]
        assert [math.copysign(1, n) for n in tj.full((2,), 0.0).tolist()] == [1, 1]
        assert [math.copysign(1, n) for n in tj.full((2,), -0.0).tolist()] == [-1, -1]
        assert (tj.full((1,), 1).dtype, tj.full((1,), 1.0).dtype, tj.full((1,), True).dtype) == (tj.int64, tj.float32, tj.bool)
        assert tj.sum(x, 0).shape == () and tj.sum(x, 0, True).shape == (1,)


def test_indices_out_of_range_are_told_as_before():
    rows, good, bad = tj.ones(3, 2), tj.tensor([0, 2]), tj.tensor([0, 3])
    for _ in range(3):
        rows.index_select(0, good), F.embedding(good, rows)
    for call in (lambda: rows.index_select(0, bad), lambda: F.embedding(bad, rows)):
        with pytest.raises((IndexError, RuntimeError)):
            call()
    written = {
        "scatter": lambda i: rows.scatter(0, i[:, None], rows[:2]), "scatter_add": lambda i: rows.scatter_add(0, i[:, None], rows[:2]),
        "scatter_reduce": lambda i: rows.scatter_reduce(0, i[:, None], rows[:2], "amax"), "index_add": lambda i: rows.index_add(0, i, rows[:2]),
        "index_copy": lambda i: rows.index_copy(0, i, rows[:2]), "index_fill": lambda i: rows.index_fill(0, i, 1.0),
        "take": lambda i: rows.take(i * 2),
    }  # fmt: skip
    for call in written.values():
        for _ in range(3):
            assert call(good).sum().item() > 0
        for index in (bad, bad + 0, bad - 5):
            with pytest.raises((IndexError, RuntimeError)):
                call(index).sum().item()
        assert call(good).sum().item() > 0
    computed = good + 0
    rows.index_select(0, computed)
    with pytest.raises((IndexError, RuntimeError)):
        rows.index_select(0, bad + 0).sum().item()
    with pytest.raises((IndexError, RuntimeError)):
        rows.index_select(0, bad.view(2)).sum().item()


def test_views_that_are_recalled_share_memory_and_are_checked():
    for _ in range(3):
        x = tj.ones(4, requires_grad=True)
        y = x * 2
        part, (left, right) = y.view(2, 2), y.chunk(2)
        part.mul_(3)
        assert y.tolist() == [6, 6, 6, 6] and left.tolist() == right.tolist() == [6, 6]
        with pytest.raises(RuntimeError, match="returns multiple views"):
            right.add_(1)
        squared = (part * part).sum()
        y.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            squared.backward()


def test_what_is_made_is_nobody_elses():
    for _ in range(3):
        numbers = tj.arange(4)
        numbers[0] = 9
        assert tj.arange(4).tolist() == [0, 1, 2, 3]
        leaf = tj.zeros(2, requires_grad=True)
        assert leaf.is_leaf and leaf.requires_grad and not tj.zeros(2).requires_grad


def test_the_default_dtype_is_asked_anew():
    for _ in range(3):
        assert tj.full((1,), 2.0).dtype == tj.zeros(1).dtype == tj.arange(2.0).dtype == tj.float32
    tj.set_default_dtype(tj.float64)
    try:
        for _ in range(2):
            assert tj.full((1,), 2.0).dtype == tj.zeros(1).dtype == tj.arange(2.0).dtype == tj.float64
    finally:
        tj.set_default_dtype(tj.float32)


def test_modes_see_each_call():
    class Counting(tj.overrides.TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = tj.ones(2, 3)
    for _ in range(3):
        x.view(6), tj.cat([x, x]), tj.zeros(2)
    with Counting() as mode:
        x.view(6), tj.cat([x, x]), tj.zeros(2)
    assert mode.names == ["view", "cat", "zeros"]


def test_warnings_come_each_time():
    x = tj.ones(1, 3)
    for _ in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x.std(0)
        assert len(caught) == 1


def test_a_number_is_asked_of_a_tensor_each_time():
    x = tj.tensor([1.0, 5.0])
    for high in (2.0, 3.0, 4.0):
        assert x.clamp(tj.tensor(0.0), tj.tensor(high)).tolist() == [1.0, high]
        assert tj.add(x, x, alpha=tj.tensor(high)).tolist() == [1 + high, 5 + 5 * high]


def test_what_makes_tensors_asks_those_among_its_limits_sizes_and_fillings_each_time():
    x = tj.zeros(1)
    for n in (2, 3, 4):
        size, number = tj.tensor(n), tj.tensor(float(n))
        assert tj.linspace(0, number, 2).tolist() == tj.linspace(start=number * 0, end=number, steps=2).tolist() == [0, n]
        assert tj.arange(size).tolist() == tj.arange(0, number).tolist() == list(range(n))
        assert [*tj.zeros(size).shape] == [*tj.ones((size,)).shape] == [*x.new_empty([size]).shape] == [*tj.eye(size)[0].shape] == [n]
        assert tj.full((1,), number).tolist() == tj.full_like(x, number).tolist() == x.new_full((1,), number).tolist() == [n]


MADE_OF_A_NUMBER = (
    "tj.zeros(n)", "tj.zeros(n, 2)", "tj.ones((2, n))", "tj.empty(n)", "tj.full((n,), 1.5)", "tj.full((2,), n)", "tj.arange(n)", "tj.arange(0, n)",
    "tj.arange(0, 12, n)", "tj.eye(n)", "tj.eye(2, m=n)", "tj.linspace(0, n, 3)", "tj.linspace(0, 1, steps=n)", "x.new_zeros(n)", "x.new_ones(n, 2)",
    "x.new_full((2,), n)", "x.new_full((n,), 0.5)", "tj.full_like(x, n)", "tj.zeros(size=(n, 1))", "F.one_hot(tj.tensor([0, 1]), n)",
    "x.narrow(0, 0, n)", "x.repeat(n)", "x.expand(n, 6)", "x.roll(n)", "x.topk(n).values", "tj.nn.Linear(n, n).weight.detach() * 0",
)  # fmt: skip


@pytest.mark.parametrize("call", MADE_OF_A_NUMBER)
@pytest.mark.parametrize("number", ["tj.tensor(k)", "tj.tensor([k, 1]).max()", "tj.tensor(k, dtype=tj.int32)"])
def test_what_is_made_of_a_number_in_a_tensor_is_made_of_this_one(call, number):
    forget()
    x = tj.arange(6.0)
    for k in (2, 3, 4, 2):
        made, expected = (eval(call, {"tj": tj, "F": F, "x": x, "n": n}) for n in (eval(number, {"tj": tj, "k": k}), k))
        assert described(made) == described(expected)


@pytest.mark.parametrize("view", ["x.movedim(0, -1)", "x.t()", "x.transpose(0, 1)", "x.permute(1, 0)", "x[1]", "x.narrow(0, 1, 1)", "x.unsqueeze(0)"])
def test_a_view_of_a_result_that_is_laid_out_in_another_order_is_a_view_each_time(view):
    forget()
    for _ in range(4):
        x = tj.ones(2, 3).t() + 1
        assert x.stride() == (1, 3)
        y = eval(view, {"x": x})
        y.add_(5)
        assert y._version == x._version == 1 and (x == 7).sum() == y.numel()
        x = tj.ones(2, 3).t_()
        eval(view, {"x": x}).add_(5)
        assert x._version == 2 and (x == 6).sum() == y.numel()


def test_tangents_and_transforms_are_seen():
    x = tj.ones(3)
    for _ in range(3):
        x.view(3, 1), x.sum(0), tj.stack([x, x])
    assert tj.func.jvp(lambda t: tj.stack([t, t]).sum(0), (x,), (x * 2,))[1].tolist() == [4, 4, 4]
    assert tj.func.vmap(lambda t: t.view(3, 1).sum(0))(tj.ones(2, 3)).tolist() == [[3], [3]]
    assert tj.func.grad(lambda t: t.view(3, 1).pow(2).sum())(x).tolist() == [2, 2, 2]


@pytest.mark.operators
def test_calls_of_many_shapes_are_known_side_by_side():
    """As many as a text has lengths: of what is generated word by word each call comes once a text."""
    forget()
    tensors = [tj.ones(n, 2) for n in range(1, 101)]
    for _ in range(2):
        for t in tensors:
            tj.cat([t, t[:1]]), t.clamp(min=0.5)
    joined, clipped = ([e for e in known() if e.bound.operator.name == name] for name in ("cat", "clamp_number"))
    assert len(joined) == len(clipped) == 100
    for n in range(700):
        tj.ones(n + 1, 3).clamp(min=0.5)
    assert all(calls.count == len(calls.kinds()) <= MOST for reference in entries._all if (calls := reference()) is not None)
    assert [t.clamp(min=0.5).shape for t in tensors] == [t.shape for t in tensors]


def test_lists_and_tensors_beside_other_keys_pick_what_they_pick_in_pytorch():
    pytorch = pytest.importorskip("torch")
    keys = ["[-1]", ":, [-1]", "[0, 2], 1", "1, [0, -3]", ":, [0], 1:", "i, :2", "i, 1", ":, 1, i % 2", "..., i", "i, ..., 1", "None, i", "1:, i % 3"]
    for key in keys:
        for source in ("[[0, 2], [1, 1]]", "[2, 0]"):
            found = []
            for lib in (tj, pytorch):
                x = lib.arange(60.0).view(3, 4, 5).requires_grad_()
                for _ in range(3):
                    y = eval(f"x[{key}]", {"x": x, "i": lib.tensor(eval(source))})
                    (y * y).sum().backward()
                found.append((y.tolist(), y.stride(), y.grad_fn.name(), x.grad.tolist()))
            assert found[0] == found[1], key
    x = tj.arange(6.0).view(3, 2).requires_grad_()
    picked = x[[-1, 0]]
    picked.grad_fn._saved_indices[0].add_(1)  # a list that is kept is nobody's to write to
    assert x[[-1, 0]].tolist() == [[4, 5], [0, 1]]
    for key in ("[3]", "[-4]", ":, [4]", "i + 3, :2", "i, 7", "i, i, i, i"):
        for lib in (tj, pytorch):
            with pytest.raises(IndexError):
                eval(f"x[{key}]", {"x": lib.zeros(3, 4, 5), "i": lib.tensor([2, 0])}).sum().item()


def test_numbers_are_written_at_masks_of_views():
    pytorch = pytest.importorskip("torch")
    found = []
    for lib in (tj, pytorch):
        y = lib.arange(24.0).view(2, 3, 4)
        for part in (y[:, -1, :], y.permute(2, 0, 1), y[:, :, ::2].transpose(0, 1)):
            part[part > 15] = -1.5
        x = lib.arange(6.0).as_strided((3, 3), (1, 1))
        x[x > 2] = 0
        found.append((y.tolist(), x.tolist(), y._version))
    assert found[0] == found[1]


def test_functions_whose_calls_never_repeat_are_let_be():
    x = tj.ones(4)
    for k in range(300):
        assert tj.full((2,), float(k)).tolist() == [k, k]
        x.clamp(max=float(k))
    assert all(calls.count == len(calls.kinds()) <= MOST for reference in entries._all if (calls := reference()) is not None)


def test_results_that_a_function_lays_out_lie_so_again():
    pytorch = pytest.importorskip("torch")
    for lib in (tj, pytorch):
        found = []
        for n in range(4):
            base = (lib.arange(2 * 3 * 4 * 8.0) * (n + 1) / 100).reshape(2, 3, 4, 8)
            q, k = base.transpose(1, 2), (base + 1).transpose(1, 2)
            joined = lib.cat([k, q], 2)
            again = lib.cat([joined, k], 2)
            attended = lib.nn.functional.scaled_dot_product_attention(q, again, again)
            square = attended[0, :, :3, :3] + 9 * lib.eye(3)
            inverse = lib.linalg.inv(square)
            found.append([(t.stride(), t.tolist()) for t in (joined, again, attended, inverse, inverse.transpose(-1, -2) * 1)])
        if lib is tj:
            ours = found
    for a, b in zip(ours, found, strict=True):
        for (stride, values), (expected, theirs) in zip(a, b, strict=True):
            assert stride == expected
            assert tj.allclose(tj.tensor(values), tj.tensor(theirs), rtol=1e-3, atol=1e-4)


def test_which_kernels_of_attention_may_be_chosen_is_asked_again():
    q = tj.ones(1, 2, 3, 4, requires_grad=True)
    attend = tj.nn.functional.scaled_dot_product_attention
    kinds = tj.nn.attention.SDPBackend
    for _ in range(3):
        assert "FlashAttention" in attend(q, q, q).grad_fn.name()
        with tj.nn.attention.sdpa_kernel(kinds.MATH):
            assert "FlashAttention" not in attend(q, q, q).grad_fn.name()


@pytest.mark.parametrize("same_first", [True, False])
@pytest.mark.parametrize("call", ["addcmul_", "addcmul", "addmm", "where"])
def test_the_same_tensor_twice_is_not_two_others(call, same_first):
    """What is learned of calls with one tensor at two places holds for those alone; and it is learned."""
    rng = np.random.RandomState(0)

    def tensor():
        return tj.tensor(rng.standard_normal((3, 3)))

    def check(y, z):
        x, mask = tensor(), tensor() > 0
        a, b, c = x.numpy().copy(), y.numpy(), z.numpy()
        if call == "where":
            found, wanted = tj.where(mask, y, z), np.where(mask.numpy(), b, c)
        elif call == "addmm":
            found, wanted = tj.addmm(x, y, z, alpha=0.5), a + 0.5 * (b @ c)
        else:
            found, wanted = getattr(x, call)(y, z, value=0.5), a + 0.5 * b * c
            assert (found is x) == call.endswith("_")
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)

    forget()
    for turn in range(6):
        y = tensor()
        check(y, y if (turn % 2 == 0) == same_first else tensor())


@pytest.mark.operators  # of programs
def test_calls_with_one_tensor_twice_are_learned():
    forget()
    for _ in range(2):
        x, y = tj.ones(2, 2), tj.ones(2, 2)
        x.addcmul_(y, y, value=0.5), tj.where(y > 0, y, y)
    twice = {e.bound.operator.name: e.twins for e in known() if e.twins}
    assert twice == {"addcmul": ((1, 2),), "where_self": ((1, 2),)}


def test_divisors_of_integers_are_asked_each_time():
    i = tj.tensor([7, -8, 9])
    forget()
    for _ in range(8):
        assert (i // 2).tolist() == [3, -4, 4] and (i % 3).tolist() == [1, 1, 0]
        assert (i // tj.tensor([2, 3, 4])).tolist() == [3, -3, 2]
        assert tj.remainder(i, other=tj.tensor([2, 3, 4])).tolist() == [1, 1, 1]
    for divide in (tj.floor_divide, tj.remainder, tj.fmod, lambda a, b: a // b, lambda a, b: a % b, lambda a, b: tj.div(a, b, rounding_mode="floor")):
        for zero in (0, tj.tensor([2, 0, 4]), tj.tensor([1, 0, 1]) * 2):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                divide(i, zero).tolist()
