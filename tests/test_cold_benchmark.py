"""The cold benchmark runs its loops in fresh processes, and notices what differs from PyTorch. No time is tested."""

import importlib.util
import re
from argparse import Namespace

import pytest

from compat_suite.benchmarks import cold
from compat_suite.benchmarks.__main__ import main, parser
from compat_suite.benchmarks.cold import Run
from compat_suite.benchmarks.programs.catalog import LOOPS, PACKAGES, PROGRAMS, Program
from compat_suite.benchmarks.workloads import WORKLOADS

pytestmark = pytest.mark.operators

BOTH = ["torch", "fused"]


def runs(*seconds, numbers=None, tests=None, name="whole process"):
    result = {"tests": tests} if tests else {"numbers": numbers or {"loss": [1.0, 2.0]}}
    return [Run({"whole process": 1.0, "program": 1.0, name: value}, result) for value in seconds]


def tables(name, theirs, ours):
    return cold.tabulate({(name, "torch"): theirs, (name, "fused"): ours}, BOTH)


def test_table_gives_ours_to_pytorch_by_the_shortest_times_and_by_the_medians():
    text, problems = tables("newton", runs(2.0, 4.0, 4.0), runs(3.0, 8.0, 9.0))
    assert "1.50 / 2.00" in text and "agree" in text and not problems


def test_loop_has_a_row_for_each_number_of_steps():
    text, _ = tables("mlp32", runs(0.1, name="step 10"), runs(0.3, name="step 10"))
    (row,) = [line for line in text.splitlines() if re.match(r"\| mlp32 +\| +step 10 ", line)]
    assert "300 ms / 300 ms" in row and "3.00 / 3.00" in row


def test_summary_names_the_largest_ratio_and_leaves_out_the_imports():
    found = {
        ("imports alone", "torch"): runs(1.0),
        ("imports alone", "fused"): runs(100.0),
        ("newton", "torch"): runs(1.0),
        ("newton", "fused"): runs(2.0),
        ("lbfgs", "torch"): runs(1.0),
        ("lbfgs", "fused"): runs(8.0),
    }
    (row,) = [line for line in cold.tabulate(found, BOTH)[0].splitlines() if line.startswith("| whole process")]
    assert "4.00 / 4.00" in row and "8.00 (lbfgs)" in row


@pytest.mark.parametrize("wrong", [[1.0, 2.01], [1.0, float("nan")], [1.0], 1.0])
def test_number_that_differs_is_wrong(wrong):
    text, problems = tables("newton", runs(1.0), runs(1.0, numbers={"loss": wrong}))
    assert "WRONG" in text and "loss" in problems[0]


def test_number_that_is_not_there_is_wrong():
    assert cold.compare({"numbers": {}}, {"numbers": {"loss": 1.0}})[0] == "WRONG"


def test_small_numbers_beside_large_ones_need_not_have_their_digits():
    assert cold.equal([100.0, 1e-4], [100.0, 2e-4]) and not cold.equal([100.0, 1.0], [100.0, 1.1]) and not cold.equal(1e-4, 2e-4)


def test_tests_that_pytorch_alone_passes_are_named():
    theirs = {"a": "passed", "b": "passed", "c": "failed"}
    text, problems = tables("entmax_tests", runs(1.0, tests=theirs), runs(1.0, tests={"a": "passed", "b": "failed", "c": "passed"}))
    assert "2, PyTorch 2 pass" in text and problems == ["cold, entmax_tests: 1 of 2 tests pass with PyTorch alone: b"]


def test_error_of_one_backend_is_a_problem_and_leaves_the_other():
    text, problems = tables("newton", runs(2.0), [Run({}, {}, "RuntimeError: no")])
    assert "2 s / 2 s" in text and "error" in text and problems == ["cold, newton, torchgrad_jax: RuntimeError: no"]


def test_missing_package_is_skipped_with_a_line_that_says_so(monkeypatch):
    monkeypatch.setattr(cold, "installed", lambda package: None)
    programs, remarks = cold.chosen(["entmax", "newton"], 10)
    assert list(programs) == ["newton"] and "entmax is not installed" in remarks[0] and "entmax==" in remarks[0]


def test_unknown_program_is_refused():
    with pytest.raises(ValueError, match="no program nothing"):
        cold.chosen(["nothing"], 10)


def test_catalog_is_complete():
    assert set(LOOPS) >= set(WORKLOADS) and not set(LOOPS) & set(PROGRAMS)
    for program in PROGRAMS.values():
        assert set(program.needs) <= set(PACKAGES)


def test_command_line_of_all_benchmarks_leaves_only_to_another():
    options = parser().parse_args(["all", "--only", "chain16"])
    assert options.only == "chain16" and options.programs.startswith("einops,")


def test_devices_other_than_the_cpu_are_left_out():
    assert "Left out" in cold.run(Namespace(backends=BOTH, device="cuda")).text


def test_failing_process_tells_its_last_line(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("import torch\nraise RuntimeError('sought in vain')\n")
    assert cold.start(Program((str(script),)), "fused", 120).error == "RuntimeError: sought in vain"
    script.write_text("import time\ntime.sleep(60)\n")
    assert cold.start(Program((str(script),)), "fused", 0.5).error == "stopped after 0.5 s"


@pytest.mark.slow
def test_command_writes_its_report(tmp_path):
    out, backends = tmp_path / "report.md", BOTH if importlib.util.find_spec("torch") else ["fused"]
    status = main(["cold", "--quick", "--only", "mlp32", "--backends", ",".join(backends), "--out", str(out)])
    text = out.read_text()
    assert status == 0 and "error" not in text, text
    assert all(re.search(rf"\| mlp32 +\| +{what} ", text) for what in ("step 1", "step 10", "whole process")), text
    assert "agree" in text or backends == ["fused"]
