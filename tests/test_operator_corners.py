"""Corners of reductions, shapes, indexing and order that PyTorch's operator database asks for."""

import math

import pytest

import torchgrad_jax as tj

pytest.importorskip("torch")

from side_by_side import error_of, like_pytorch  # noqa: E402 - needs torch

from compat_suite.fuzz.programs import same  # noqa: E402

pytestmark = pytest.mark.operators


def tried(*calls):
    """What each call returns, or the exception's class and first line."""
    found = []
    for call in calls:
        results = []
        error = error_of(lambda call=call, results=results: results.append(call()))
        found.append(results if error is None else [error[0], error[1].split("\n")[0]])
    return found


@like_pytorch
def test_int_sequences_by_name(m):
    x = m.arange(6.0).reshape(2, 3)
    return [x.flip(dims=(0,)), m.flip(x, dims=[0, 1]), x.permute(dims=(1, 0)), x[:1].expand(size=(4, 3)), x.repeat(repeats=(2, 1)),
            x.tile(dims=(2,)), x.view(size=(3, 2)), x.reshape(shape=(6,)), x.sum_to_size(size=(1, 3))]  # fmt: skip


@like_pytorch
def test_booleans_accumulate(m):
    x, at = m.tensor([True, False, False]), m.tensor([0, 1, 1])
    on = m.tensor([False, True, False])
    return [
        x.index_put((at,), on, accumulate=True), x.scatter(0, at, True, reduce="add"), x.scatter(0, at, False, reduce="multiply"),
        x.scatter_reduce(0, at, on, "sum"), x.scatter_reduce(0, at, on, "prod", include_self=False), x.index_add(0, at, on, alpha=False),
        x.index_add(0, at, on),
    ]  # fmt: skip


@like_pytorch
def test_indices_of_numbers(m):
    return [m.nonzero(m.tensor(2.0)), m.nonzero(m.tensor(0)), m.argwhere(m.tensor(3)), m.argwhere(m.tensor([[0, 1], [2, 0]])),
            m.tensor([1.0, 0.0]).argwhere(), m.nonzero(m.tensor(2), as_tuple=True)]  # fmt: skip


@like_pytorch
def test_areas_of_integers(m):
    y = m.arange(6).reshape(2, 3)
    return [m.trapezoid(y), m.trapezoid(y, y), m.trapezoid(y, dx=2), m.cumulative_trapezoid(y), m.cumulative_trapezoid(y, y),
            tried(lambda: m.trapezoid(y.bool()), lambda: m.trapezoid(y, dx=1j))]  # fmt: skip


@like_pytorch
def test_searching_in_nothing(m):
    return [m.searchsorted(m.zeros(*shape), m.zeros(*shape)) for shape in ((0, 0), (2, 0), (0, 2), (0,))]


@like_pytorch
def test_running_log_sums(m):
    """Equal elements differentiated twice; complex numbers, whose imaginary part is not brought into one turn."""
    x = m.tensor([1.0, 1.0, 2.0, 1.0], dtype=m.float64, requires_grad=True)
    (g,) = m.autograd.grad(m.logcumsumexp(x, 0), x, m.tensor([0.5, 1.0, 1.5, 0.7], dtype=m.float64), create_graph=True)
    (h,) = m.autograd.grad(g, x, m.tensor([1.0, 0.5, 0.7, 1.2], dtype=m.float64))
    z = m.logcumsumexp(m.tensor([1 + 3j, 1 + 9j, 1 - 20j, 2 - 3j], dtype=m.complex128), 0)
    return [g, h, m.view_as_real(z), m.logcumsumexp(m.tensor([float("-inf"), float("-inf"), 1.0]), 0)]


@like_pytorch
def test_slices_shortened(m):
    x = m.tensor([[3.0, 4.0], [0.1, 0.2], [0.0, 0.0]], dtype=m.float64, requires_grad=True)
    found = []
    for p, dim in ((2, 0), (1, 1), (3.5, -2), (float("inf"), 0)):
        y = m.renorm(x, p, dim, 1.0)
        (g,) = m.autograd.grad((y * y).sum(), x, create_graph=True)
        found += [y, g, m.autograd.grad(g.sum(), x)[0].nan_to_num(77), y.grad_fn.name()]
    z = x.detach().clone()
    bad = tried(lambda: m.renorm(z, 0, 0, 1), lambda: m.renorm(z, 1, 0, -1), lambda: m.renorm(z[0], 1, 0, 1), lambda: m.renorm(z, 1, 3, 1))
    return [found, z.renorm_(2, 0, 1.0), z, bad]


@like_pytorch
def test_filling_diagonals(m):
    found = [m.zeros(*shape).fill_diagonal_(1, wrap) for shape in ((3, 3), (7, 3), (8, 3), (2, 4), (9, 1)) for wrap in (False, True)]
    x = m.ones(3, 3, requires_grad=True)
    y = (x * 2).fill_diagonal_(5.0)
    y.sum().backward()
    turned = m.zeros(4, 2).t().fill_diagonal_(2)
    bad = tried(lambda: m.zeros(3).fill_diagonal_(1), lambda: m.zeros(3, 3, 4).fill_diagonal_(1))
    return [found, y, y.grad_fn.name(), x.grad, turned, m.zeros(2, 2, 2).fill_diagonal_(3), bad]


@like_pytorch
def test_copies_of_views(m):
    x = m.arange(12.0).reshape(3, 4).clone().requires_grad_()
    c = m.tensor([1 + 2j, 3j], requires_grad=True)
    calls = {
        "alias": (), "as_strided": ((2, 2), (1, 2), 1), "diagonal": (1,), "expand": ((2, 3, 4),), "permute": ((1, 0),), "select": (1, -1),
        "slice": (1, 1, 9, 2), "squeeze": (0,), "t": (), "transpose": (0, 1), "unfold": (1, 2, 1), "unsqueeze": (1,), "view": ((12,),),
        "unbind": (1,), "split": (2,), "split_with_sizes": ([1, 2],), "narrow": (1, 1, 2),
    }  # fmt: skip
    found = []
    for name, arguments in calls.items():
        made = getattr(m, name + "_copy")(x, *arguments)
        for part in made if isinstance(made, tuple) else (made,):
            w = m.arange(float(part.numel())).reshape(part.shape)
            found += [part, part._is_view(), part.grad_fn.name(), m.autograd.grad((part * w).sum(), x)]
    shown = m.view_as_real_copy(c)
    found += [shown, shown.grad_fn.name(), m.permute_copy(x[1:], (1, 0)), m.as_strided_copy(x.detach()[1:], (2,), (1,))]
    kept = m.detach_copy(x)
    return [*found, kept, kept.grad_fn.name(), m.select_copy(x.detach(), 0, 1, out=m.zeros(4)), tried(lambda: kept.sum().backward())]


@like_pytorch
def test_out_of_another_dtype(m):
    x, at = m.tensor([3.0, 1.0, 2.0]), m.tensor([0, 2])
    wide, whole = m.zeros(2, dtype=m.float64), m.zeros((), dtype=m.int32)
    pair = (m.zeros((), dtype=m.float64), m.zeros((), dtype=m.int64))
    return tried(
        lambda: m.gather(x, 0, at, out=wide), lambda: m.index_select(x, 0, at, out=wide), lambda: m.masked_select(x, x > 1, out=wide),
        lambda: m.amax(x, 0, out=wide[0]), lambda: m.max(x, 0, out=pair), lambda: m.sort(x, 0, out=pair), lambda: m.argmax(x, out=whole),
        lambda: m.cat([x, x], out=m.zeros(6, dtype=m.int32)), lambda: m.nonzero(x, out=whole), lambda: m.searchsorted(x, x, out=whole),
        lambda: m.sum(x, 0, out=whole), lambda: m.prod(x, 0, out=whole), lambda: m.mean(x, 0, out=whole), lambda: m.cummax(x, 0, out=pair),
        lambda: m.max(x, x, out=m.zeros(3, dtype=m.float64)), lambda: m.masked_select(x, x > 1, out=m.zeros(2)),
    )  # fmt: skip


@like_pytorch
def test_out_that_is_read(m):
    x, at = m.arange(6.0), m.tensor([0, 2, 1])
    return tried(
        lambda: m.gather(x, 0, at, out=x[:3]), lambda: m.index_select(x, 0, at, out=x[2:5]), lambda: m.cat([x[:2], x[2:3]], out=x[1:4]),
        lambda: m.masked_select(x, x > 2, out=x[:3]), lambda: m.gather(x[:3], 0, at, out=x[3:]), lambda: m.cat([x[:1], x[1:2]], out=x[4:]),
    )  # fmt: skip


@like_pytorch
def test_words_for_shapes_that_do_not_fit(m):
    x, one = m.arange(6.0).reshape(2, 3), m.tensor(1.0)
    return tried(
        lambda: m.zeros(1).view(0, -1), lambda: m.zeros(0).view(0, -1), lambda: m.roll(one, 0, 0), lambda: m.roll(one, 1),
        lambda: m.narrow(x, 1, 4, 0), lambda: m.narrow(x, 1, m.tensor([1]), 1), lambda: m.narrow(x, 1, m.tensor(1), 2),
        lambda: m.narrow(x, 1, one, 1),
        lambda: m.movedim(x, (0, -2), (0, 1)), lambda: m.movedim(x, (0, 1), (0, -2)), lambda: m.movedim(x, (0, -1), (0,)),
        lambda: m.mean(x, dtype=m.int64), lambda: m.mean(x.long()),
    )  # fmt: skip


@like_pytorch
def test_places_in_row_major_order(m):
    i, x = m.tensor([22, 41, -1]), m.tensor([[0, 3], [2, 0]])
    found = [m.unravel_index(i, (7, 6)), m.unravel_index(i.int(), 50), m.nonzero_static(x, size=1), m.nonzero_static(x, size=3, fill_value=7)]
    return [found, tried(lambda: m.unravel_index(i.float(), (7,)), lambda: m.unravel_index(i, (7, -6)), lambda: m.nonzero_static(x, size=-1))]


@like_pytorch
def test_a_copy_with_a_part_by_strides(m):
    x, src = m.arange(6.0), m.tensor([[10.0, 20.0], [30.0, 40.0]], requires_grad=True)
    y = m.as_strided_scatter(x, src, (2, 2), (2, 1), 1)
    (y * m.arange(6.0)).sum().backward()
    return [x, y, y.grad_fn.name(), src.grad, tried(lambda: m.as_strided_scatter(x, src, (2, 3), (2, 1), 0))]


@like_pytorch
def test_products_of_booleans_and_sums_of_half_precision(m):
    b, h = m.tensor([[True, False], [True, True]]), m.tensor([[7.84375], [3.46875], [-26.25]], dtype=m.bfloat16)
    return [b.prod(1, dtype=m.bool), b.prod(dtype=m.bool), h.sum(0, keepdim=True), h.mean(0, keepdim=True)]


@like_pytorch
def test_pieces_written_to_out(m):
    x, first, second = m.arange(4.0).reshape(2, 2), m.zeros(2), m.zeros(2)
    none = m.unbind_copy(x, 1, out=[first, second])
    bad = tried(lambda: m.unbind_copy(m.tensor(1.0)), lambda: m.narrow_copy(x, 0, 3, 0), lambda: m.narrow_copy(x[0, 0], 0, 0, 1))
    return [none, first, second, m.narrow_copy(x, 1, m.tensor(1), 1, out=m.zeros(2, 1)), m.isin(x, first, out=m.zeros(2, 2, dtype=m.bool)), bad]


@like_pytorch
def test_a_place_filled_twice_has_one_gradient(m):
    value = m.tensor(0.5, requires_grad=True)
    filled = m.zeros(3, 4).index_fill(1, m.tensor([0, 0, 1]), value)
    return [filled, m.autograd.grad(filled.sum(), value)]


@like_pytorch
def test_no_difference_takes_nothing_along(m):
    x, more = m.arange(6.0).reshape(2, 3).requires_grad_(), m.ones(2, 2)
    return [m.diff(x, 0, 1, more, more), m.diff(x, 1, 1, more, more), m.autograd.grad(m.diff(x, 0, 1, more, more).sum(), x)]


@like_pytorch
def test_no_operand_of_cat_is_written_to(m):
    empty = m.zeros(0)
    return tried(lambda: m.cat((empty, m.ones(2, 3)), out=empty))


def test_booleans_are_not_multiplied_as_matrices():
    same("""
        b = leaf(2, 2, dtype='bool')
        v = leaf(2, dtype='bool')
        c = leaf(1, 2, 2, dtype='bool')
        x = b @ b
        x = b @ v
        x = v @ v
        x = c @ c
        x = torch.addmm(b, b, b)
        x = torch.addmv(v, b, v)
        x = torch.baddbmm(c, c, c)
        x = b[:0] @ b
        x = torch.outer(v, v)
    """)


def test_nan_to_num_gives_a_gradient_of_infinity_times_zero():
    same("""
        x = special(2, 2, seed=1, dtype='float32')
        y = (x - x.nan_to_num(0.5)).square()
        y.sum().backward()
    """)


def test_booleans_of_an_expanded_tensor_are_added_in_place():
    same("""
        x = (leaf(dtype='bool') == True).expand((2,))
        x.index_put_((torch.tensor([1, 0]),), torch.tensor(True), accumulate=True)
    """)


@pytest.mark.parametrize("name", ["minimum", "maximum"])
@pytest.mark.parametrize("arriving", [math.inf, math.nan])
def test_the_loser_of_two_gets_no_part_of_an_infinite_gradient(name, arriving):
    x, y = tj.tensor([1.0, 2.0, 5.0], requires_grad=True), tj.tensor([3.0, 2.0, 2.0], requires_grad=True)
    getattr(tj, name)(x, y).backward(tj.full((3,), arriving))
    lost = (0, 2) if name == "maximum" else (2, 0)
    assert x.grad[lost[0]].item() == 0 == y.grad[lost[1]].item()
    assert not x.grad[[1, lost[1]]].isfinite().any() and not y.grad[[1, lost[0]]].isfinite().any()


def test_copy_takes_numbers_and_converts_them_as_elements():
    assert tj.zeros(2).copy_(3).tolist() == [3, 3]
    assert tj.zeros(2, dtype=tj.int64).copy_(2.7).tolist() == [2, 2]
    assert tj.zeros(2, dtype=tj.uint8).copy_(300).tolist() == [44, 44]


def test_softmax_of_nothing_is_of_any_dtype():
    assert tj.zeros(0, dtype=tj.int64).softmax(0).dtype is tj.int64
    assert tj.zeros(2, 0, dtype=tj.bool).log_softmax(0).shape == (2, 0)
