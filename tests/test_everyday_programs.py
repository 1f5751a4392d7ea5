"""The programs that people write compute what they compute with PyTorch, and their driver notices where one does not. No time is measured."""

import importlib.util
import math

import pytest

from compat_suite.benchmarks.__main__ import main, parser
from compat_suite.benchmarks.backends import namespace
from compat_suite.benchmarks.everyday import PROGRAMS, driver
from compat_suite.benchmarks.report import Report
from compat_suite.benchmarks.speed import LOSSES, equal_results

pytestmark = pytest.mark.operators

HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """PyTorch's threads wait for each other in a loop, which takes very long where tests run side by side."""
    if not HAS_TORCH:
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def two_steps(name, backend):
    step = PROGRAMS[name](namespace(backend))
    return {"losses": [step(), step()], "gradients": []}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # which PyTorch's forward mode calls
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_has_the_losses_of_pytorch_or_else_the_same_ones_again(name):
    ours, expected = two_steps(name, "fused"), two_steps(name, "torch" if HAS_TORCH else "fused")
    assert all(map(math.isfinite, ours["losses"]))
    assert equal_results(ours, expected), (ours, expected)


def result(seconds, loss=1.0):
    return {"seconds": seconds, "warm_up": 0.5, "losses": [loss] * LOSSES, "gradients": []}


def table_of(ours):
    return driver.tabulate(["kmeans"], ["torch", "fused"], {("kmeans", "torch"): result(2e-3), ("kmeans", "fused"): ours})


def test_table_gives_the_ratio_to_pytorch_and_the_first_steps():
    text, problems = table_of(result(1e-3))
    assert "1 ms (2.00x)" in text and "| geometric mean |" in text and "500 ms" in text and not problems


@pytest.mark.parametrize("loss", [1.01, math.nan])
def test_table_says_wrong_where_losses_differ(loss):
    text, problems = table_of(result(1e-3, loss))
    assert "WRONG" in text and "x)" not in text and problems == ["everyday, kmeans, torchgrad_jax: results differ from PyTorch's"]


def test_table_says_where_a_program_failed():
    text, problems = table_of({"error": "RuntimeError: no"})
    assert "error" in text and problems == ["everyday, kmeans, torchgrad_jax: RuntimeError: no"]


def test_failure_of_a_program_is_its_result():
    (found,) = driver.measure("fused", "cpu", ["no such program"], 0.0)
    assert found["name"] == "no such program" and "KeyError" in found["error"]


def options(*arguments):
    found = parser().parse_args(["everyday", *arguments])
    found.backends = found.backends.split(",")
    return found


def test_unknown_program_is_refused():
    with pytest.raises(ValueError, match="no program tetris; there are vae, gan"):
        driver.run(options("--everyday-programs", "tetris"))


@pytest.mark.parametrize("arguments", [["--device", "cuda"], ["--backends", "jax"]])
def test_programs_are_left_out_where_there_is_nothing_to_compare(arguments):
    assert driver.run(options(*arguments)) == Report(driver.TITLE + driver.LEFT_OUT, [])


def test_quick_settings_keep_the_programs_that_were_chosen():
    chosen, default = options("--everyday-programs", "vae"), options()
    driver.quick(chosen)
    driver.quick(default)
    assert chosen.everyday_programs == "vae" and set(default.everyday_programs.split(",")) < set(PROGRAMS)


def test_command_writes_its_report(tmp_path, capsys):
    out = tmp_path / "report.md"
    assert main(["everyday", "--quick", "--everyday-programs", "kmeans", "--backends", "jax,fused", "--out", str(out)]) == 0
    assert "| kmeans " in out.read_text() and "JAX by hand" not in out.read_text()
