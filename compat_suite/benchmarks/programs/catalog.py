"""The programs of the cold benchmark: scripts, test suites that packages install with themselves, and training loops.

Left out are packages whose import or main path needs what torchgrad_jax does not have.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

FOLDER = Path(__file__).parent
IMPORTS = "imports alone"  # the name of the program that does nothing

# Versions whose programs were seen to give the same results with PyTorch and with torchgrad_jax.
PACKAGES = {
    "einops": "0.8.2",
    "entmax": "1.3",
    "geomloss": "0.3.1",
    "normflows": "1.7.3",
    "opt_einsum": "3.4.0",
    "pytest": "9.2.0",
    "pytorch_msssim": "1.0.0",
    "torch_dct": "0.1.6",
    "torchcde": "0.2.5",
    "torchdiffeq": "0.2.5",
    "torchsde": "0.2.6",
    "xitorch": "0.5.1",
}


class Program(NamedTuple):
    """What to give to ``python`` or to ``torchgrad-jax run``, the packages needed by their names in `PACKAGES`, and environment variables."""

    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    variables: Mapping[str, str] = MappingProxyType({})


def script(name: str, *needs: str) -> Program:
    """A script of this folder."""
    return Program((str(FOLDER / f"{name}.py"),), needs)


def suite(package: str, *modules: str, **variables: str) -> Program:
    """Test modules of an installed package. No settings of the working directory's project, no other plugins, no files left behind."""
    names = [f"{package}.{module}" for module in modules]
    # os.devnull is a settings file with nothing in it.
    arguments = ("-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "pytest_clock", "--pyargs", *names)
    found = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "COLD_PACKAGE": package, **variables}
    return Program(arguments, (package, "pytest"), found)


def loop(name: str, most_steps: int) -> Program:
    """A training loop of `LOOPS`, timed after each of its numbers of steps up to `most_steps`, and over the steps of `WARM` more."""
    steps = [n for n in LOOPS[name] if n <= most_steps]
    return Program((str(FOLDER / "first_steps.py"), name, ",".join(map(str, steps)), str(min(WARM.get(name, 0), most_steps))))


NOTHING = script("empty")

PROGRAMS = {
    "einops": script("einops_mixer", "einops"),
    "einops_tests": suite("einops", "tests.test_packing", "tests.test_examples", "tests.test_einsum", EINOPS_TEST_BACKENDS="torch"),
    "opt_einsum": script("opt_einsum_network", "opt_einsum"),
    "entmax": script("entmax_attention", "entmax"),
    "entmax_tests": suite("entmax", "test_topk", "test_mask"),
    "geomloss": script("geomloss_flow", "geomloss"),
    "xitorch": script("xitorch_solvers", "xitorch"),
    "xitorch_tests": suite("xitorch", "_tests.test_linop"),
    "torchdiffeq": script("torchdiffeq_fit", "torchdiffeq"),
    "torchcde": script("torchcde_classify", "torchcde"),
    "torchsde": script("torchsde_fit", "torchsde"),
    "pytorch_msssim": script("msssim_restore", "pytorch_msssim"),
    "torch_dct": script("dct_denoise", "torch_dct"),
    "normflows": script("normflows_density", "normflows"),
    "normflows_tests": suite("normflows", "flows.affine.autoregressive_test", "flows.mixing_test"),
    "normflows_spline_tests": suite("normflows", "flows.neural_spline.coupling_test"),
    "newton": script("newton"),
    "lbfgs": script("lbfgs"),
}

# After which steps to take the time: a thousand only where they take PyTorch less than about three seconds on two cores.
HUNDRED, THOUSAND = (1, 10, 100), (1, 10, 100, 1000)
LOOPS = {
    "chain16": THOUSAND,
    "chain256": THOUSAND,
    "chain1024": (1, 10),
    "mlp_small": THOUSAND,
    "mlp_medium": HUNDRED,
    "mlp_deep": THOUSAND,
    "mlp_adam": HUNDRED,
    "attention": HUNDRED,
    "cnn": HUNDRED,
    "rnn50": HUNDRED,
    "rnn_dynamic": HUNDRED,
    "pinn": THOUSAND,
    "custom_function": HUNDRED,
    "hooks": THOUSAND,
    "inplace_views": THOUSAND,
    "gpt": (1, 10),
    "resnet8": HUNDRED,
    "lstm_layers": HUNDRED,
    "adam100": HUNDRED,
    "mlp32": THOUSAND,
    "transformer12": (1, 10),
    "lstm": (1, 10, 25),
    "gru50": (1, 10),
    # Of sizes that are new at each step.
    "growing_pinn": HUNDRED,
    "growing_clouds": HUNDRED,
    "growing_text": HUNDRED,
    "growing_graphs": HUNDRED,
    "growing_gaussian_process": HUNDRED,
    "growing_filter": HUNDRED,
}
WARM = {"gru50": 30}
