"""Tests in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import torchgrad_jax


def in_a_process_of_its_own(test):
    """For a test of what is learned as a process goes on, such as what an operation is estimated to take."""

    def run():
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import {test.__module__} as tests; tests.{test.__name__}.within()"
        root = str(Path(torchgrad_jax.__file__).parents[1])
        own = {k: v for k, v in os.environ.items() if not k.startswith("TORCHGRAD_JAX_")} | {"PYTHONPATH": root}
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=own)
        assert ended.returncode == 0, ended.stderr

    run.within = test
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
