"""Anomaly mode: what it says of a backward pass that fails or gives NaN, as PyTorch says it, and of what PyTorch does not look at."""

import linecache
import subprocess
import sys
import threading
import warnings

import pytest
from anomalies import ENABLED, MODIFIED, NOT_NOTED, off_again, said, told  # noqa: F401 - a fixture among them
from test_anomaly_like_pytorch import nan_of_a_root, nan_without_a_forward_pass_noted, saved_tensor_that_was_written_to

import torchgrad_jax as tj
from torchgrad_jax.autograd import engine, function
from torchgrad_jax.core import dispatch, history, writing
from torchgrad_jax.runtime import modes

pytestmark = pytest.mark.filterwarnings("ignore:Using backward")


def loss_of_roots(x):
    y = x.sqrt()
    return (y * 0).sum()


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
