"""Anomaly mode says of a backward pass that fails or gives NaN what PyTorch says, word for word."""

import threading

import pytest
from anomalies import NAN, off_again, said  # noqa: F401 - a fixture among them

import torchgrad_jax as tj

pytestmark = pytest.mark.filterwarnings("ignore:Using backward")


def loss_of_roots(x):
    y = x.sqrt()
    return (y * 0).sum()


def fails(m):
    """A Function whose backward raises."""

    class Fails(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("bad luck")

    return Fails


# ---------------------------------------------------------------------- programs for both

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


@program
def nan_of_a_root(m):
    with m.autograd.detect_anomaly():
        loss_of_roots(m.zeros(2, requires_grad=True)).backward()


@program
def nan_without_a_forward_pass_noted(m):
    loss = loss_of_roots(m.zeros(2, requires_grad=True))
    with m.autograd.set_detect_anomaly(True):
        loss.backward()


@program
def nan_is_not_looked_for(m):
    with m.autograd.detect_anomaly(check_nan=False):
        x = m.zeros(2, requires_grad=True)
        loss_of_roots(x).backward()
        return [v != v for v in x.grad.tolist()]


@program
def backward_that_raises(m):
    with m.autograd.set_detect_anomaly(True, check_nan=False):
        y = fails(m).apply(m.ones(2, requires_grad=True))
        (y * 2).sum().backward()


@program
def function_that_gives_nan_in_its_second_gradient(m):
    class Spoils(m.autograd.Function):
        @staticmethod
        def forward(ctx, x, number, y):
            return x * 1, y * number

        @staticmethod
        def backward(ctx, gx, gy):
            return gx, None, gy * NAN

    with m.autograd.set_detect_anomaly(True):
        a, b = Spoils.apply(m.ones(2, requires_grad=True), 2.0, m.ones(2, requires_grad=True))
        (a + b).sum().backward()


def hooked(where):
    def with_hook(m):
        def hook(*given):
            raise ValueError(where)

        with m.autograd.set_detect_anomaly(True):
            x = m.ones(2, requires_grad=True)
            y = x * 2
            if where == "tensor":
                y.register_hook(hook)
            elif where == "leaf":
                x.register_hook(hook)
            elif where == "pre":
                y.grad_fn.register_prehook(hook)
            elif where == "post":
                y.grad_fn.register_hook(hook)
            else:
                x.register_post_accumulate_grad_hook(hook)
            (y * 3).sum().backward()

    with_hook.__name__ = f"hook_{where}_that_raises"
    return program(with_hook)


for place in ("tensor", "leaf", "pre", "post", "accumulated"):
    hooked(place)


@program
def hook_of_the_node_repairs(m):
    with m.autograd.set_detect_anomaly(True):
        x = m.zeros(2, requires_grad=True)
        y = x.sqrt()
        y.grad_fn.register_hook(lambda grads, given: (m.zeros(2),))
        (y * 0).sum().backward()
        return x.grad.tolist()


@program
def hook_of_the_leaf_comes_too_late(m):
    with m.autograd.set_detect_anomaly(True):
        x = m.zeros(2, requires_grad=True)
        x.register_hook(lambda grad: m.zeros(2))
        loss_of_roots(x).backward()


@program
def hook_that_makes_nan(m):
    with m.autograd.set_detect_anomaly(True):
        x = m.ones(2, requires_grad=True)
        y = x * 2
        y.register_hook(lambda grad: grad * NAN)
        (y * 3).sum().backward()


@program
def nan_that_goes_into_a_leaf_alone(m):
    with m.autograd.set_detect_anomaly(True):
        x = m.ones(2, requires_grad=True)
        x.backward(m.tensor([NAN, 1.0]))
        x.register_hook(lambda grad: grad * NAN)
        (x * 3).sum().backward()
        return [v != v for v in x.grad.tolist()]


@program
def nan_to_begin_with(m):
    with m.autograd.set_detect_anomaly(True):
        y = m.ones(2, 1, requires_grad=True).clone()
        y.backward(m.full((2, 1), NAN))


@program
def nan_in_a_gradient_that_is_not_asked_for(m):
    with m.autograd.set_detect_anomaly(True):
        x, y = m.zeros(2, requires_grad=True), m.full((2,), NAN, requires_grad=True)
        return [g.tolist() for g in m.autograd.grad((x * y).sum(), y)]


@program
def nan_of_an_imaginary_part(m):
    with m.autograd.set_detect_anomaly(True):
        x = m.ones(1, dtype=m.complex64, requires_grad=True)
        (x * 2).backward(m.tensor([complex(0, NAN)]))


def of_dtype(name):
    def roots(m):
        dtype = getattr(m, name)
        with m.autograd.set_detect_anomaly(True):
            x = m.zeros(2, requires_grad=True, dtype=dtype)
            (x.sqrt() * 0).sum().backward(m.tensor(0, dtype=dtype))

    roots.__name__ = f"nan_of_{name}"
    return program(roots)


for dtype in ("float64", "float16", "bfloat16", "complex128"):
    of_dtype(dtype)


@program
def nothing_to_look_at(m):
    with m.autograd.set_detect_anomaly(True):
        x = m.ones(0, requires_grad=True)
        y = m.ones(3, requires_grad=True)
        ((x * 2).sum() + y[m.tensor([0, 2])].sum() + y.sort().values[0]).backward()
        return [x.grad.tolist(), y.grad.tolist()]


@program
def gradients_of_gradients(m):
    with m.autograd.set_detect_anomaly(True):
        x = m.zeros(1, requires_grad=True)
        y = x.log1p().sqrt()
        (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
        return g.tolist()


@program
def parents_of_nodes(m):
    with m.autograd.set_detect_anomaly(True):
        x = m.ones(2, requires_grad=True)
        y = x * x
        z = y + x
        (g,) = m.autograd.grad(z.sum(), x, create_graph=True)
        node = g.grad_fn
        parents = [node.metadata["parent_"], *[n.metadata["parent_"] for n, _ in node.next_functions]]
        return [node.name(), [p is y.grad_fn for p in parents], "parent_" in y.grad_fn.metadata, sorted(node.metadata)]


@program
def hooks_have_parents(m):
    found = []

    def hook(*given):
        with m.enable_grad():
            found.append(m.ones(1, requires_grad=True).exp().grad_fn.metadata.get("parent_"))

    with m.autograd.set_detect_anomaly(True):
        x = m.zeros(2, requires_grad=True)
        y = x * 2
        y.register_hook(hook)
        y.grad_fn.register_hook(hook)
        y.grad_fn.register_prehook(hook)
        x.register_hook(hook)
        (y * 2).sum().backward()
        hook()
    return [None if node is None else node.name() for node in found]


@program
def notes_of_the_user_take_the_place_of_ours(m):
    with m.autograd.set_detect_anomaly(True):
        y = m.zeros(2, requires_grad=True).sqrt()
        y.grad_fn.metadata["traceback_"] = ["hello\n", "world\n"]
        y.backward(m.tensor([NAN, 1.0]))


@program
def no_notes_while_it_is_off(m):
    with m.autograd.set_detect_anomaly(True):
        x = m.ones(2, requires_grad=True)
        y = x * 2
        leaf = y.grad_fn.next_functions[0][0]
    return [sorted(y.grad_fn.metadata), sorted(leaf.metadata), sorted((x * 2).grad_fn.metadata)]


@program
def writes_and_views_have_notes(m):
    with m.autograd.set_detect_anomaly(True):
        x = m.ones(3, requires_grad=True)
        whole = x.clone()
        part = whole[:1]
        part.mul_(2)
        whole.t_()
        nodes = [whole.grad_fn, whole.grad_fn.next_functions[0][0], part.grad_fn]
        return [[n.name(), sorted(n.metadata)] for n in nodes]


@program
def pass_within_a_pass(m):
    class Reenters(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            with m.enable_grad():
                again = x.detach().requires_grad_()
                loss_of_roots(again).backward()
            return again.grad

    with m.autograd.set_detect_anomaly(True):
        y = Reenters.apply(m.zeros(2, requires_grad=True))
        (y * 2).sum().backward()


@program
def saved_tensor_that_was_written_to(m):
    with m.autograd.set_detect_anomaly(True):
        y = m.ones(2, requires_grad=True).exp()
        y.add_(1)
        y.sum().backward()


@program
def graph_that_was_freed(m):
    with m.autograd.set_detect_anomaly(True):
        y = m.ones(2, requires_grad=True).exp()
        y.sum().backward()
        y.sum().backward()


@program
def gradient_of_a_transform(m):
    with m.autograd.set_detect_anomaly(True):
        m.func.grad(loss_of_roots)(m.zeros(2))


@program
def gradients_of_a_batch(m):
    with m.autograd.set_detect_anomaly(True):
        per_sample = m.func.vmap(m.func.grad(loss_of_roots))
        found = per_sample(m.ones(2, 2)).tolist()
        assert found == [[0, 0], [0, 0]]
        per_sample(m.tensor([[1.0, 1.0], [1.0, 0.0]]))


@program
def what_holds_when(m):
    seen = []

    def look():
        seen.append((m.is_anomaly_enabled(), m.is_anomaly_check_nan_enabled()))

    detect, switch = m.autograd.detect_anomaly, m.autograd.set_detect_anomaly
    with detect():
        look()
        with switch(False):
            look()
        with switch(True, False):
            look()
            with detect(check_nan=True):
                look()
            look()
        look()
    look()
    switch(True, False)
    look()
    switch(False)
    look()
    block = detect(check_nan=False)
    look()
    block.__enter__()
    look()
    block.__exit__()
    look()
    kept = switch(True, False)
    look()
    with kept:
        look()
    look()
    with switch(False, False):
        look()
    look()
    return [seen, block.prev, block.check_nan, block.prev_check_nan, kept.prev, kept.prev_check_nan]


def misuse(name, call):
    call.__name__ = f"misuse_{name}"
    return program(call)


misuse("mode", lambda m: m.autograd.set_detect_anomaly(1))
misuse("check_nan", lambda m: m.autograd.set_detect_anomaly(True, 1))
misuse("check_nan_by_name", lambda m: m.autograd.set_detect_anomaly(True, check_nan=None))
misuse("detect", lambda m: m.autograd.detect_anomaly(1).__enter__())


@program
def all_threads(m):
    seen, here, there = [], threading.Event(), threading.Event()

    def other():
        seen.append(m.is_anomaly_enabled())
        try:
            loss_of_roots(m.zeros(2, requires_grad=True)).backward()
        except RuntimeError as error:
            seen.append(str(error))
        with m.autograd.set_detect_anomaly(False):
            there.set()
            here.wait()

    with m.autograd.set_detect_anomaly(True):
        thread = threading.Thread(target=other)
        thread.start()
        there.wait()
        seen.append(m.is_anomaly_enabled())
        here.set()
        thread.join()
        seen.append(m.is_anomaly_enabled())
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_says_what_pytorch_says(name):
    torch = pytest.importorskip("torch")
    assert said(tj, PROGRAMS[name]) == said(torch, PROGRAMS[name])
