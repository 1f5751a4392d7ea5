"""The benchmarks' workloads compute what PyTorch computes, and their driver notices where one does not. No time is measured."""

import importlib.util

import numpy as np
import pytest

from compat_suite.benchmarks import speed
from compat_suite.benchmarks.__main__ import main
from compat_suite.benchmarks.backends import available, environment
from compat_suite.benchmarks.processes import in_fresh_process
from compat_suite.benchmarks.report import duration, table
from compat_suite.benchmarks.workloads import WORKLOADS

pytestmark = pytest.mark.operators

REFERENCE = "torch" if importlib.util.find_spec("torch") else "jax"


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """PyTorch's threads wait for each other in a loop, which takes very long where tests run side by side."""
    if REFERENCE != "torch":
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def two_steps(name, backend):
    step, gradients = speed.build(name, backend, "cpu"), []
    losses = [step(gradients), step()]
    return {"losses": losses, "gradients": [float(abs(g).sum()) for g in gradients]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name == "rnn50" else ()) for name in WORKLOADS])
def test_workload_has_the_losses_and_gradients_of_pytorch(name):
    """And what is written by hand in JAX has them too."""
    expected = two_steps(name, REFERENCE)
    assert np.isfinite(expected["losses"]).all() and all(expected["gradients"])
    by_hand = ["jax"] if REFERENCE == "torch" and WORKLOADS[name].in_jax else []
    for backend in ["fused", *by_hand]:
        found = two_steps(name, backend)
        assert speed.equal_results(found, expected), (backend, found, expected)


def result(seconds, loss=1.0, gradient=2.0):
    return {"seconds": seconds, "warm_up": 1.0, "losses": [loss] * speed.LOSSES, "gradients": [gradient]}


def test_table_gives_the_ratio_to_pytorch():
    text, problems = speed.tabulate(["chain16"], ["torch", "fused"], {("chain16", "torch"): result(2e-3), ("chain16", "fused"): result(1e-3)})
    assert "1 ms (2.00x)" in text and not problems


@pytest.mark.parametrize("wrong", [result(1e-3, loss=1.01), result(1e-3, gradient=2.1), result(1e-3, loss=float("nan"))])
def test_table_says_wrong_where_losses_or_gradients_differ(wrong):
    text, problems = speed.tabulate(["chain16"], ["torch", "fused"], {("chain16", "torch"): result(2e-3), ("chain16", "fused"): wrong})
    assert "WRONG" in text and "x)" not in text and len(problems) == 1


def test_table_says_where_a_workload_failed():
    found = {("chain16", "torch"): result(2e-3), ("chain16", "fused"): {"error": "RuntimeError: no"}}
    text, problems = speed.tabulate(["chain16"], ["torch", "fused"], found)
    assert "error" in text and "RuntimeError: no" in problems[0]


def test_best_round_counts_and_an_error_outlives_it():
    assert speed.better(result(2.0), result(1.0))["seconds"] == 1.0
    assert "error" in speed.better({"error": "E"}, result(1.0)) and "error" in speed.better(result(1.0), {"error": "E"})


def test_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="no backend 'tensorflow'"):
        available(["tensorflow"])


def test_process_of_a_backend_has_its_execution_mode():
    assert environment("eager", "cpu")["TORCHGRAD_JAX_EXECUTION"] == "eager"
    assert "TORCHGRAD_JAX_EXECUTION" not in environment("torch", "cpu")


def test_failure_of_a_process_is_its_result():
    outcome = in_fresh_process("speed", "measure", "jax", "cpu", 60, names=["chain16"], seconds="not a number")
    assert "error" in outcome.results[0] or outcome.error


@pytest.mark.parametrize(("seconds", "text"), [(2.0, "2 s"), (0.0123, "12.3 ms"), (4.5e-5, "45 us"), (0.25, "250 ms")])
def test_durations_are_readable(seconds, text):
    assert duration(seconds) == text


def test_markdown_table_is_aligned():
    assert table(["name", "n"], [["a", "10"]]) == "| name |   n |\n| ---- | --: |\n| a    |  10 |"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["speed", "--only", "chain16", "--backends", "jax,fused"],
        ["memory", "--backends", "jax,fused", "--width", "64", "--batch", "64"],
        ["checkpointing", "--backends", "fused", "--quick"],
        ["profiling", "--backends", "fused,eager"],
        ["loop", "--backends", "fused", "--parts", "steady"],
        ["changing", "--backends", "fused", "--loops", "operators,everything"],
        ["loading", "--backends", "fused"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_command_writes_its_report(arguments, tmp_path, capsys):
    out = tmp_path / "report.md"
    status = main([*arguments, "--quick", "--out", str(out)])
    text = out.read_text()
    assert "| torchgrad_jax" in text or "torchgrad_jax |" in text or "\ntorchgrad_jax\n" in text
    assert status == (1 if "## Problems" in text else 0)
    assert "error" not in text.lower() and "WRONG" not in text, text
