"""Ways to begin: `python -m torchgrad_jax`, a command, a prompt, a notebook; and the processes that a program starts."""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import pytest

import torchgrad_jax as tj
from torchgrad_jax.cli import alias, tracebacks, workers
from torchgrad_jax.cli.main import main

pytestmark = pytest.mark.operators


def launch(*arguments, directory=None, stdin=""):
    path = os.pathsep.join(filter(None, [str(Path(tj.__path__[0]).parent), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "torchgrad_jax", *arguments]
    env = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "TORCHGRAD_JAX_TRACEBACK": ""}
    return subprocess.run(command, cwd=directory, env=env, input=stdin, capture_output=True, text=True, timeout=100)


def test_a_command_has_the_alias_and_its_arguments():
    result = launch("run", "-c", "import gc, sys, torch; print(torch.__spec__.name, sys.argv, gc.isenabled())", "a", "-b")
    assert (result.stdout, result.returncode) == ("torchgrad_jax ['-c', 'a', '-b'] True\n", 0)


def test_help_names_options_and_variables():
    text = launch("run", "--help").stdout
    assert all(word in text for word in ("-c command", "-m module", "-i ", "TORCHGRAD_JAX_EXECUTION", "TORCHGRAD_JAX_TRACEBACK"))


def test_a_prompt_reads_statements_and_shows_values():
    result = launch("run", "-i", stdin="import torch\ntorch.ones(2) + 1\n")
    assert ">>> tensor([2., 2.])" in result.stdout
    assert "`import torch` means torchgrad_jax" in result.stderr


def test_a_prompt_after_a_program_has_its_names():
    assert ">>> 5" in launch("run", "-i", "-c", "y = 5", stdin="y\n").stdout


def test_what_is_raised_at_a_prompt_has_no_context_of_the_program():
    result = launch("run", "-i", "-c", "y = 5; 1 / 0", stdin="y\nz\n")
    assert ">>> 5" in result.stdout and result.returncode == 0
    assert result.stderr.count("ZeroDivisionError") == 1 and "NameError" in result.stderr and "During handling" not in result.stderr


def test_a_prompt_does_not_begin_for_what_cannot_begin(tmp_path):
    result = launch("run", "-i", "nothing.py", directory=tmp_path)
    assert (result.stdout, result.returncode) == ("", 2) and "can't open file" in result.stderr


def test_a_program_without_a_command_is_told_how_to_run(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train.py", "--name", "a b"])
    assert ended.value.code == 2 and "torchgrad-jax run train.py --name 'a b'\n" in capsys.readouterr().err


class Shell:
    """As much of IPython's shell as is asked of it."""

    custom_exceptions = ()

    def set_custom_exc(self, exceptions, handler):
        self.custom_exceptions, self.handler = exceptions, handler

    def showtraceback(self, shown, tb_offset=None):
        self.shown = shown

    def run(self, cell):
        try:
            cell()
        except self.custom_exceptions as error:
            self.handler(self, type(error), error, error.__traceback__, tb_offset=1)


def test_a_notebook_loads_the_alias(monkeypatch):
    done = []
    monkeypatch.setattr(alias, "install", lambda: done.append("alias"))
    monkeypatch.setattr(workers, "follow", lambda: done.append("workers"))
    tj.load_ipython_extension(Shell())
    assert done == ["alias", "workers"]


def test_a_notebook_shows_the_lines_of_its_cells(monkeypatch, capsys):
    monkeypatch.setenv("TORCHGRAD_JAX_TRACEBACK", "")
    shell = Shell()
    tracebacks.install_in(shell)
    shell.run(lambda: tj.ones(2) @ tj.ones(3))
    kind, _, shown = shell.shown
    assert kind is RuntimeError and [entry.filename for entry in traceback.extract_tb(shown)] == [__file__] * 2
    assert re.search(r"^\[\d+ frames in torchgrad_jax folded; TORCHGRAD_JAX_TRACEBACK=full", capsys.readouterr().err)


@pytest.mark.parametrize(("switch", "mine"), [("full", ()), ("", (KeyError,))])
def test_a_notebook_keeps_full_tracebacks_and_handlers_of_the_users(monkeypatch, switch, mine):
    monkeypatch.setenv("TORCHGRAD_JAX_TRACEBACK", switch)
    shell = Shell()
    shell.custom_exceptions = mine
    tracebacks.install_in(shell)
    assert shell.custom_exceptions == mine


def test_pytest_reports_the_lines_of_the_tests(tmp_path):
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent("""
        import torch

        def test_operator():
            torch.ones(2) @ torch.ones(3)

        def test_close():
            torch.testing.assert_close(torch.ones(2), torch.zeros(2))
    """)
    )
    text = launch("run", "-m", "pytest", "-p", "no:cacheprovider", "test_it.py", directory=tmp_path).stdout
    assert "test_it.py:5: RuntimeError" in text and "test_it.py:8: AssertionError" in text and "2 failed" in text
    assert "overloads.py" not in text and "comparison.py" not in text


def test_spawned_processes_have_the_alias(tmp_path):
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
        import multiprocessing
        import torch

        def work(n):
            return torch.ones(n).sum().item()

        def put(queue):
            queue.put(torch.__spec__.name)

        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            with context.Pool(1) as pool:
                print(pool.map(work, [2, 3]))
            queue = context.Queue()
            process = context.Process(target=put, args=(queue,))
            process.start()
            print(queue.get(timeout=60))
            process.join()
    """)
    )
    result = launch("run", "script.py", directory=tmp_path)
    assert result.stdout == "[2.0, 3.0]\ntorchgrad_jax\n", result.stderr


def test_types_ship_with_the_package():
    spec = importlib.util.find_spec("torchgrad_jax")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    assert (folder / "py.typed").exists()
    assert (folder / "calling" / "signatures.txt").stat().st_size > 10_000
