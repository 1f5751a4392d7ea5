"""Anomaly mode: what it says of a backward pass that fails or gives NaN, as PyTorch says it, and of what PyTorch does not look at."""

import linecache
import subprocess
import sys
import threading
import warnings

import pytest

import torchgrad_jax as tj
from torchgrad_jax.autograd import engine, function
from torchgrad_jax.core import dispatch, history, writing
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.recorder import per_thread

pytestmark = pytest.mark.filterwarnings("ignore:Using backward")
NAN = float("nan")
ENABLED = "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging."
NOT_NOTED = "No forward pass information available. Enable detect anomaly during forward pass for more information."
MODIFIED = "one of the variables needed for gradient computation has been modified by an inplace operation"


@pytest.fixture(autouse=True)
def off_again():
    yield
    tj.autograd.set_detect_anomaly(False)
    assert per_thread.recorder.rare == 0


def own_lines(text):
    """A warning as its heading and the code of this file's lines in it: PyTorch shows its own frames too."""
    heading, *rest = text.partition(" (Triggered internally")[0].strip().splitlines()
    code = [rest[i + 1].strip() for i, line in enumerate(rest[:-1]) if line.startswith(f'  File "{__file__}"')]
    return [heading, *[c for c in code if c not in PLUMBING]]


PLUMBING = ("returned.append(program(m))", "said(m, program)", "return said(m, program)")


def said(m, program):
    """What a program returns or raises, and its warnings."""
    returned, raised = [], None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            returned.append(program(m))
        except Exception as error:
            raised = [type(error).__name__, str(error)]
        finally:
            m.autograd.set_detect_anomaly(False)
    told = [[w.category.__name__, own_lines(str(w.message))] for w in caught if not str(w.message).startswith("Using backward")]
    return [returned, raised, told]


def told(program):
    """What ours raises, and the code of the lines that its warnings name last: those that are at fault."""
    returned, raised, warned = said(tj, program)
    assert raised is not None, returned
    return raised[1], [lines[-1] for _, lines in warned if lines[0] != ENABLED]


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


# ---------------------------------------------------------------------- what is told


def test_warnings_name_the_line():
    message, lines = told(nan_of_a_root)
    assert message == "Function 'SqrtBackward0' returned nan values in its 0th output."
    assert lines == ["y = x.sqrt()"]


def test_our_own_frames_are_left_out():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with tj.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="returned nan values"):
            tj.func.grad(loss_of_roots)(tj.zeros(2))
    assert [str(caught[0].message), caught[0].filename] == [ENABLED, __file__]
    assert caught[1].filename == __file__
    assert "tj.func.grad(loss_of_roots)" in linecache.getline(__file__, caught[1].lineno)
    assert "torchgrad_jax/" not in str(caught[1].message)
    assert str(caught[1].message).endswith(", in loss_of_roots\n    y = x.sqrt()\n")


def test_all_frames_are_shown_on_request(monkeypatch):
    monkeypatch.setenv("TORCHGRAD_JAX_TRACEBACK", "full")
    with tj.autograd.set_detect_anomaly(True):
        y = tj.nn.functional.linear(tj.ones(2), tj.ones(2, 2, requires_grad=True))
    assert "torchgrad_jax/nn/linear.py" in "".join(y.grad_fn.metadata["traceback_"])


def test_a_second_derivative_tells_both_lines():
    def twice(m):
        with m.autograd.set_detect_anomaly(True):
            x = m.zeros(1, requires_grad=True)
            y = x**1.5
            (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
            (g * 0).sum().backward()

    message, lines = told(twice)
    assert message.startswith("Function 'PowBackward0' returned nan values in its")
    assert lines == ["(g,) = m.autograd.grad(y.sum(), x, create_graph=True)", "y = x**1.5"]
    headings = [w[1][0] for w in said(tj, twice)[2]]
    assert headings[1] == "Previous calculation was induced by PowBackward0. Traceback of forward call that induced the previous calculation:"


def test_a_third_derivative_tells_three_lines():
    def thrice(m):
        with m.autograd.set_detect_anomaly(True):
            x = m.zeros(1, requires_grad=True)
            y = x**2.5
            (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
            (h,) = m.autograd.grad(g.sum(), x, create_graph=True)
            (h * 0).sum().backward()

    assert [line.split(" = ")[0] for line in told(thrice)[1]] == ["(h,)", "(g,)", "y"]


def test_a_graph_from_before_is_said_to_have_no_notes():
    def half(m):
        x = m.zeros(1, requires_grad=True)
        y = x**1.5
        with m.autograd.set_detect_anomaly(True):
            (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
            (g * 0).sum().backward()

    _, raised, warned = said(tj, half)
    assert raised is not None
    assert [lines[0] for _, lines in warned][1] == f"Error detected in PowBackward0. {NOT_NOTED}"


def test_where_warnings_are_errors_they_are_printed(capsys):
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="returned nan values") as caught:
        warnings.simplefilter("error")
        nan_without_a_forward_pass_noted(tj)
    assert caught.value.__cause__ is None
    assert capsys.readouterr().err == f"UserWarning: Error detected in SqrtBackward0. {NOT_NOTED}\n"


def test_the_error_of_a_saved_tensor_points_at_the_warning():
    message, lines = told(saved_tensor_that_was_written_to)
    assert message.startswith(MODIFIED) and message.endswith("was changed in there or anywhere later. Good luck!")
    assert lines == ["y = m.ones(2, requires_grad=True).exp()"]


def test_a_failing_pass_leaves_the_mode_as_it_was():
    with tj.autograd.set_detect_anomaly(True):
        with pytest.raises(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss_of_roots(tj.zeros(2, requires_grad=True)).backward()
        assert "parent_" not in tj.ones(1, requires_grad=True).exp().grad_fn.metadata


def test_nodes_and_gradients_are_let_go():
    """The notes make no circle."""
    import gc
    import weakref

    gc.disable()
    try:
        with tj.autograd.set_detect_anomaly(True):
            x = tj.ones(2, requires_grad=True)
            y = (x**3).sum()
            (g,) = tj.autograd.grad(y, x, create_graph=True)
            dead = weakref.ref(g.grad_fn), weakref.ref(y.grad_fn)
            assert g.grad_fn.metadata["parent_"] is not None
            del g, y
        assert [r() for r in dead] == [None, None]
    finally:
        gc.enable()


# ---------------------------------------------------------------------- how it goes with the rest


def test_nobody_asks_while_it_is_off(monkeypatch):
    def asked(*args):
        raise AssertionError("asked while it is off")

    for where in (dispatch, writing, engine, history, function):
        for name in ("noticed", "note_node", "watch_of", "check_operation"):
            if hasattr(where, name):
                monkeypatch.setattr(where, name, asked)
    w = tj.ones(2, requires_grad=True)
    for _ in range(3):
        y = tj.cat((w.exp(), w.clone()))
        y[:1].mul_(w[:1])
        y.sum().backward()
        with tj.no_grad():
            w -= 0.1 * w.grad
        tj.autograd.grad((w**3).sum(), w, create_graph=True)
    assert w.grad is not None


def test_it_is_on_in_a_thread_that_was_running_before():
    ready, go, found = threading.Event(), threading.Event(), []

    def work():
        loss_of_roots(tj.ones(2, requires_grad=True)).backward()
        ready.set()
        go.wait()
        found.append(sorted(tj.ones(2, requires_grad=True).exp().grad_fn.metadata))

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    with tj.autograd.set_detect_anomaly(True):
        go.set()
        thread.join()
    assert found == [["traceback_"]]


def test_a_graph_that_was_seen_before_is_walked_again():
    """Without the mode a graph that comes back is one operation, in which there are no nodes to look at."""

    def step(x):
        x.grad = None
        loss_of_roots(x).backward()

    x = tj.ones(2, requires_grad=True)
    for _ in range(3):
        step(x)
    with tj.autograd.set_detect_anomaly(True):
        step(x)
        with tj.no_grad():
            x.zero_()
        with pytest.warns(UserWarning, match="SqrtBackward0"), pytest.raises(RuntimeError, match="SqrtBackward0"):
            step(x)
    step(x)
    assert x.grad.isnan().all()


def test_a_batch_of_gradients_is_looked_at():
    """PyTorch cannot: it raises an error about `item`."""
    x = tj.tensor([1.0, 0.0], requires_grad=True)
    with tj.autograd.set_detect_anomaly(True):
        (g,) = tj.autograd.grad(x * x, x, tj.ones(3, 2), is_grads_batched=True)
        assert g.tolist() == [[2, 0]] * 3 and not g.requires_grad
        with pytest.warns(UserWarning, match="SqrtBackward0"), pytest.raises(RuntimeError, match="SqrtBackward0"):
            tj.autograd.grad(x.sqrt(), x, tj.zeros(3, 2), is_grads_batched=True)


@pytest.mark.parametrize("reentrant", [True, False])
def test_inside_a_checkpoint(reentrant):
    def checkpointed(m):
        with m.autograd.set_detect_anomaly(True):
            y = m.utils.checkpoint.checkpoint(loss_of_roots, m.zeros(2, requires_grad=True), use_reentrant=reentrant)
            y.backward()

    message, lines = told(checkpointed)
    assert message == "Function 'SqrtBackward0' returned nan values in its 0th output."
    assert lines[0] == "y = x.sqrt()"


@pytest.mark.skipif(modes.execution == "eager", reason="there everything is computed at once")
def test_nothing_is_computed_where_nothing_is_looked_for():
    with tj.autograd.set_detect_anomaly(True, check_nan=False):
        x = tj.ones(2, requires_grad=True)
        loss_of_roots(x).backward()
        assert x.grad._value.array is None


def test_under_the_launcher_the_program_alone_is_shown(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n\ntorch.autograd.set_detect_anomaly(True)\nx = torch.zeros(2, requires_grad=True)\n(x.sqrt() * 0).sum().backward()\n"
    )
    run = subprocess.run([sys.executable, "-m", "torchgrad_jax.cli", "run", str(script)], capture_output=True, text=True)
    assert run.stderr.startswith(
        f"{script}:5: UserWarning: Error detected in SqrtBackward0. Traceback of forward call that caused the error:\n"
        f'  File "{script}", line 5, in <module>\n    (x.sqrt() * 0).sum().backward()\n\n'
    )
    assert run.stderr.endswith("RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.\n")


def test_it_may_be_turned_on_and_off_inside_a_transform():
    def function(mode):
        def square(x):
            tj.autograd.set_detect_anomaly(mode)
            return x * x

        return square

    for mode in (True, False):
        assert tj.func.grad(function(mode))(tj.tensor(3.0)).item() == 6
        assert ("traceback_" in tj.ones(1, requires_grad=True).exp().grad_fn.metadata) is mode
