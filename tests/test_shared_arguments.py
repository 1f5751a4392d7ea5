"""Arguments of a transformed function that lie in one memory: what is written to one is what the others are, inside as outside."""

import gc
import weakref

import pytest

import torchgrad_jax as torch
from torchgrad_jax import func


def vector():
    return torch.tensor([1.0, 2.0])


ALIKE = {
    "the same": lambda x: x,
    "a view": lambda x: x.view(2),
    "a twin": lambda x: x.detach(),
    "a part that overlaps": lambda x: x[:],
}


def write_first(a, b):
    a.mul_(3)
    return a * b


def write_second(a, b):
    b.mul_(3)
    return a * b


def write_part_of_a_view(a, b):
    c = a.view(2, 1)
    b[0] = 5
    return c.view(2) * b


# What it gives for [1, 2] twice, and what [1, 2] is then.
RESULTS = {write_first: ([9, 36], [3, 6]), write_second: ([9, 36], [3, 6]), write_part_of_a_view: ([25, 4], [5, 2])}
TRANSFORMS = {
    "vmap": lambda f, a, b: func.vmap(f)(a, b),
    "vmap over one": lambda f, a, b: func.vmap(f, in_dims=(None, 0))(a, b).diagonal(),
    "vmap in chunks": lambda f, a, b: func.vmap(f, chunk_size=1)(a, b),
    "vmap of vmap": lambda f, a, b: func.vmap(func.vmap(f))(a.view(2, 1), b.view(2, 1)).view(2),
    "jvp": lambda f, a, b: func.jvp(f, (a, b), (torch.ones(2), torch.ones(2)))[0],
    "grad": lambda f, a, b: func.grad(lambda k, a, b: ((r := f(a, b)).sum() * k, r), has_aux=True)(torch.ones(()), a, b)[1],
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("function", RESULTS)
@pytest.mark.parametrize("other", ALIKE)
def test_a_write_is_seen_by_the_others(other, function, transform):
    if transform == "vmap over one" and function is not write_second or (transform.startswith("vmap") and function is write_part_of_a_view):
        pytest.skip("vmap refuses to write a batch to what is none, and its parts are numbers here")
    for _ in range(4):
        x = vector()
        found = TRANSFORMS[transform](function, x, ALIKE[other](x))
        assert found.tolist() == RESULTS[function][0] and x.tolist() == RESULTS[function][1]


def test_the_same_under_another_dimension():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = func.vmap(write_second, in_dims=(0, 1))(x, x)
    assert found.tolist() == [[9, 54], [54, 144]] and x.tolist() == [[3, 6], [9, 12]]


def test_tangents_stay_what_they_were():
    x = vector()
    value, move = func.jvp(write_first, (x, x), (torch.ones(2), torch.ones(2)))
    assert value.tolist() == [9, 36] and move.tolist() == [12, 24]


def test_parts_of_one_memory_are_written_to_beside_what_was_saved():
    x = torch.arange(4.0)

    def f(a, b):
        y = a * a
        b.mul_(2)
        return y.sum()

    assert func.grad(f)(x[:2], x[2:]).tolist() == [0, 2] and x.tolist() == [0, 1, 4, 6]


def test_arguments_are_let_go_when_the_level_is_left():
    kept = []

    def f(a, b):
        kept.append(weakref.ref(a))
        return a * b

    x = vector()
    gc.collect()
    gc.disable()
    try:
        func.vmap(f)(x, x)
        assert kept[0]() is None
    finally:
        gc.enable()


# How a function is differentiated, and which of its two arguments it writes to; what [1, 2, 3] is twice makes 4 * x ** 2 or 8 * x ** 2 of it.
JACOBIANS = [(func.jacfwd, 0, 0, 8), (func.jacfwd, 1, 0, 8), (func.jacfwd, 0, 1, 4), (func.jacrev, 0, 1, 4), (func.grad, 0, 1, 4)]


@pytest.mark.parametrize("alike", ALIKE.values(), ids=ALIKE)
@pytest.mark.parametrize("transform, argnums, written, factor", JACOBIANS)
def test_arguments_that_are_not_differentiated_lie_there_too(transform, argnums, written, factor, alike):
    def f(*args):
        args[written].mul_(2)
        return (args[0] * args[1] * args[1]).sum()

    x = torch.tensor([1.0, 2.0, 3.0])
    found = transform(f, argnums)(x, alike(x) if alike is not ALIKE["a view"] else x.view(3))
    assert found.tolist() == [factor * v * v for v in (1, 2, 3)] and x.tolist() == [2, 4, 6]


def test_second_derivatives_where_a_shared_argument_is_written_to():
    def f(a, b):
        a.mul_(2)
        return (a * b * b).sum()

    x = torch.tensor([1.0, 2.0, 3.0])
    assert func.hessian(f, 1)(x, x).diagonal().tolist() == [4, 8, 12] and x.tolist() == [2, 4, 6]
