"""Ways to begin: `python -m torchgrad_jax`, a command, a prompt, a notebook; and the processes that a program starts."""

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import torchgrad_jax as tj
from torchgrad_jax.cli import alias, workers

pytestmark = pytest.mark.operators


def launch(*arguments, directory=None, stdin=""):
    path = os.pathsep.join(filter(None, [str(Path(tj.__path__[0]).parent), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "torchgrad_jax", *arguments]
    return subprocess.run(command, cwd=directory, env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}, input=stdin, capture_output=True,
                          text=True, timeout=100)  # fmt: skip


def test_a_command_has_the_alias_and_its_arguments():
    result = launch("run", "-c", "import gc, sys, torch; print(torch.__name__, sys.argv, gc.isenabled())", "a", "-b")
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


def test_a_notebook_loads_the_alias(monkeypatch):
    done = []
    monkeypatch.setattr(alias, "install", lambda: done.append("alias"))
    monkeypatch.setattr(workers, "follow", lambda: done.append("workers"))
    tj.load_ipython_extension(None)
    assert done == ["alias", "workers"]


def test_spawned_processes_have_the_alias(tmp_path):
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
        import multiprocessing
        import torch

        def work(n):
            return torch.ones(n).sum().item()

        def put(queue):
            queue.put(torch.__name__)

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
