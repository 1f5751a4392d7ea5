"""Random calls of all kinds under one `manual_seed`, in PyTorch and here: do the numbers agree, and the generator's states after them?

``python -m compat_suite.random_calls [--all]`` prints the calls that differ (or all of them), both libraries side by side, and how many agree.
Without PyTorch it prints ours.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

import numpy as np

import torchgrad_jax as tj

SEED = 20240607

# Each is one expression; `g` is a generator of its own, `keep` holds what later calls use.
CALLS = [
    # factories of float32: without elements, of one, below 16, above, of blocks and a rest, large
    *(f"torch.{name}({size})" for name in ("rand", "randn") for size in ("0", "()", "1", "3, 4", "16", "17", "3, 100", "1000, 33")),
    *(f"torch.{name}({size}, dtype=torch.{dtype})" for name in ("rand", "randn") for size in (5, "4, 9", 1001)
      for dtype in ("float16", "bfloat16", "float64", "complex64", "complex128")),
    "torch.rand(size=(2, 3))", "torch.randn([2, 3])", "torch.randn(torch.Size([4, 4]))", "torch.rand(3, requires_grad=True)",
    "torch.randn(5, generator=g)", "torch.rand(20, generator=g, dtype=torch.float64)", "torch.normal(0.0, 1.0, (3,), generator=g)",
    # integers
    "torch.randint(10, (5,))", "torch.randint(-7, 7, (4, 4))", "torch.randint(3, 9, ())", "torch.randint(0, 2**40, (6,))",
    "torch.randint(low=2, high=5, size=(3,), dtype=torch.int32)", "torch.randint(0, 2, (7,), dtype=torch.bool)",
    "torch.randint(256, (9,), dtype=torch.uint8)", "torch.randint(-128, 128, (9,), dtype=torch.int8)",
    "torch.randint(100, (5,), dtype=torch.float32)", "torch.randint(100, (5,), dtype=torch.bfloat16)", "torch.randint(9, (3,), generator=g)",
    "torch.randint(-(2**63), 2**63 - 1, (4,))", "torch.randint(0, 2**32, (4,))", "torch.randint(0, 2**32 + 1, (4,))",
    # like another tensor, also of another order in memory
    "torch.rand_like(torch.zeros(3, 4))", "torch.randn_like(torch.zeros(5, 7))", "torch.randn_like(torch.zeros(20, dtype=torch.float64))",
    "torch.randn_like(torch.zeros(5, 7).t())", "torch.rand_like(torch.zeros(2, 3).t())", "torch.randn_like(torch.zeros(2, 3).t())",
    "torch.randint_like(torch.zeros(4), 10)", "torch.randint_like(torch.zeros(4, dtype=torch.int64), 3, 9)",
    "torch.randint_like(torch.zeros(4, 3).t(), 3, 9, dtype=torch.int32)", "torch.rand_like(torch.zeros(4), dtype=torch.float64)",
    "torch.randn_like(torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last))",
    "torch.randn_like(torch.zeros(5, 7).t(), memory_format=torch.contiguous_format)",
    "torch.rand_like(torch.zeros(4, 1).expand(4, 3))", "torch.randn_like(torch.zeros(8, 6)[:, ::2])", "torch.zeros(3).new_empty(4).uniform_()",
    # permutations
    "torch.randperm(0)", "torch.randperm(1)", "torch.randperm(12)", "torch.randperm(1000)", "torch.randperm(9, dtype=torch.int32)",
    "torch.randperm(9, dtype=torch.float32)", "torch.randperm(9, generator=g)", "torch.randperm(40000)[:5]",
    # normal numbers around given ones
    "torch.normal(1.5, 0.5, (4,))", "torch.normal(1.5, 0.5, (40,))", "torch.normal(2, 3, (4,), dtype=torch.float64)",
    "torch.normal(torch.arange(5.0))", "torch.normal(torch.arange(30.0), 2.0)", "torch.normal(1.0, torch.arange(1.0, 6))",
    "torch.normal(mean=torch.arange(4.0), std=torch.arange(4.0))", "torch.normal(torch.zeros(4, 1), torch.ones(5))",
    "torch.normal(torch.zeros(6, 5).t(), torch.ones(5, 6))", "torch.normal(torch.zeros(3, 2).t(), torch.ones(2, 3))",
    "torch.normal(torch.zeros(20, dtype=torch.bfloat16), 1.0)",
    "torch.normal(torch.zeros(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64))",
    "torch.normal(torch.zeros(3, dtype=torch.complex64), 1.0)",
    # drawn by given probabilities
    "torch.bernoulli(torch.full((3, 4), 0.3))", "torch.bernoulli(torch.full((50,), 0.7, dtype=torch.float64))",
    "torch.bernoulli(torch.full((5,), 0.5, dtype=torch.bfloat16))", "torch.bernoulli(torch.linspace(0, 1, 12).reshape(3, 4).t())",
    "torch.bernoulli(torch.zeros(6), 0.5)", "torch.full((4,), 0.5).bernoulli()", "torch.zeros(9).bernoulli(0.25)",
    "torch.bernoulli(torch.full((3,), 0.5), generator=g)",
    "torch.multinomial(torch.tensor([0.1, 0.2, 0.7]), 1)", "torch.multinomial(torch.arange(1.0, 9), 4)",
    "torch.multinomial(torch.arange(1.0, 9), 20, True)", "torch.multinomial(torch.arange(1.0, 13).reshape(3, 4), 2)",
    "torch.multinomial(torch.arange(1.0, 13).reshape(3, 4), 7, replacement=True)", "torch.multinomial(torch.arange(1.0, 13).reshape(4, 3).t(), 3)",
    "torch.arange(1.0, 6).multinomial(3)", "torch.multinomial(torch.arange(1.0, 9, dtype=torch.float64), 4)",
    "torch.multinomial(torch.tensor([0.0, 1.0, 3.0]), 2)", "torch.multinomial(torch.ones(5), 2, generator=g)",
    "torch.poisson(torch.tensor([0.0, 0.5, 3.0, 30.0]))", "torch.poisson(torch.full((20,), 7.0))",
    "torch.poisson(torch.full((4,), 100.0, dtype=torch.float64))",
    "torch.poisson(torch.arange(6.0).reshape(2, 3).t())", "torch.poisson(torch.full((3,), 2.0), generator=g)",
    "torch.binomial(torch.full((6,), 20.0), torch.linspace(0.1, 0.9, 6))", "torch.binomial(torch.full((4,), 200.0), torch.full((4,), 0.4))",
    "torch.binomial(torch.full((3, 4), 9.0), torch.full((3, 4), 0.5))",
    # in place: every dtype, one element, a few, many, parts of other tensors
    *(f"torch.empty({size}, dtype=torch.{dtype}).{call}" for size in ("()", "7", "40")
      for dtype in ("float16", "bfloat16", "float32", "float64")
      for call in ("uniform_()", "normal_()", "exponential_()", "cauchy_()", "log_normal_()", "geometric_(0.3)", "random_()", "bernoulli_(0.4)")),
    *(f"torch.empty(6, dtype=torch.{dtype}).{call}" for dtype in ("int64", "int32", "uint8", "bool")
      for call in ("random_()", "bernoulli_()", "random_(2)", "random_(0, 2)")),
    *(f"torch.zeros({target}.{call}" for target in ("6, 5).t()", "3, 2).t()", "40, 3)[:, 1]", "8, 6)[::2, 1:]", "2, 3, 4).permute(2, 0, 1)")
      for call in ("uniform_(-1, 1)", "normal_(2, 0.5)", "exponential_()", "random_(100)", "bernoulli_(0.5)", "cauchy_()", "geometric_(0.5)",
                   "log_normal_()")),
    "torch.empty(5, dtype=torch.complex64).normal_()", "torch.empty(20, dtype=torch.complex128).normal_(0, 2)",
    "torch.empty(5).uniform_(2, 2)", "torch.empty(5).uniform_(-1e30, 1e30)", "torch.empty(20, dtype=torch.float64).uniform_(-3, 8)",
    "torch.empty(5).exponential_(2.5)", "torch.empty(5).cauchy_(1, 3)", "torch.empty(5).log_normal_(0.5, 0.25)",
    "torch.empty(5, dtype=torch.int64).geometric_(0.1)",
    "torch.empty(5).random_(3, 8)", "torch.empty(5, dtype=torch.int8).random_(-5, 5)", "torch.empty(5, dtype=torch.int64).random_(-(2**63), None)",
    "torch.empty(5, dtype=torch.int64).random_(5, None)", "torch.empty(5).random_(generator=g)", "torch.empty(5).uniform_(generator=g)",
    "torch.zeros(3, 4).bernoulli_(torch.linspace(0, 1, 4))", "torch.zeros(4, 3).t().bernoulli_(torch.linspace(0, 1, 12).reshape(3, 4))",
    "torch.zeros(5, dtype=torch.int64).bernoulli_(torch.full((5,), 0.5, dtype=torch.float64))",
    # written to other tensors
    "torch.rand(3, out=torch.empty(3))", "torch.randn(2, 9, out=torch.empty(2, 9, dtype=torch.float64))",
    "torch.randint(5, (3,), out=torch.empty(3, dtype=torch.int32))",
    "torch.randperm(5, out=torch.empty(5, dtype=torch.int64))", "torch.normal(0.0, 1.0, (4,), out=torch.empty(4))",
    "torch.bernoulli(torch.full((4,), 0.5), out=torch.empty(4))", "torch.multinomial(torch.ones(4), 2, out=torch.empty(2, dtype=torch.int64))",
    "torch.normal(torch.zeros(4), 1.0, out=torch.empty(4))",
    # neural networks
    *(f"F.{name}(torch.ones({shape}), 0.3, True)" for name, shape in (
      ("dropout", "4, 5"), ("alpha_dropout", "4, 5"), ("feature_alpha_dropout", "2, 3, 4"), ("dropout1d", "2, 3, 4"),
      ("dropout2d", "2, 3, 4, 5"), ("dropout3d", "1, 2, 2, 3, 2"), ("dropout1d", "3, 4"), ("dropout3d", "2, 2, 3, 2"))),
    "F.dropout(torch.ones(4, 6).t(), 0.5)", "F.dropout(torch.ones(30, dtype=torch.float64), 0.5, True, True)", "F.dropout(torch.ones(9), 0.0)",
    "F.dropout(torch.ones(9), 1.0)", "F.dropout(torch.ones(9), 0.5, False)", "F.dropout(torch.ones(9, dtype=torch.bfloat16), 0.2)",
    "F.dropout2d(torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), 0.5)", "F.alpha_dropout(torch.ones(4, 6).t(), 0.5, True)",
    "torch.dropout(torch.ones(7), 0.4, True)", "torch.native_dropout(torch.ones(7), 0.4, True)", "torch.dropout_(torch.ones(7), 0.4, True)",
    "torch.feature_dropout(torch.ones(2, 9, 2), 0.4, True)", "torch.nn.Dropout(0.5)(torch.ones(9))", "torch.nn.AlphaDropout(0.5)(torch.ones(9))",
    "F.rrelu(torch.linspace(-2, 2, 9), 0.1, 0.4, True)", "F.rrelu(torch.linspace(-2, 2, 24, dtype=torch.float64).reshape(4, 6).t(), training=True)",
    "torch.rrelu(torch.linspace(-2, 2, 9), training=True)", "F.rrelu_(torch.linspace(-2, 2, 9), 0.1, 0.4, True)",
    "F.gumbel_softmax(torch.arange(12.0).reshape(3, 4))", "F.gumbel_softmax(torch.zeros(3, 7), tau=0.5, hard=True)",
    "F.gumbel_softmax(torch.zeros(7, 3).t(), dim=0)",
    "F.scaled_dot_product_attention(torch.ones(2, 3, 4), torch.ones(2, 5, 4), torch.ones(2, 5, 4), dropout_p=0.5)",
    "torch.nn.init.xavier_uniform_(torch.empty(4, 5))", "torch.nn.init.xavier_normal_(torch.empty(4, 5))",
    "torch.nn.init.kaiming_uniform_(torch.empty(4, 5))",
    "torch.nn.init.kaiming_normal_(torch.empty(4, 5), mode='fan_out', nonlinearity='relu')", "torch.nn.init.trunc_normal_(torch.empty(4, 5))",
    "torch.nn.init.orthogonal_(torch.empty(4, 5))", "torch.nn.init.sparse_(torch.empty(4, 5), 0.5)",
    "torch.nn.Linear(7, 3).weight", "torch.nn.Linear(7, 3).bias", "torch.nn.Conv2d(2, 3, 3).weight",
    # the state of the generator
    "keep.setdefault('state', torch.get_rng_state())[:40]", "torch.randn(3)", "torch.set_rng_state(keep['state'])", "torch.randn(3)",
    "torch.randn(2, dtype=torch.float64)", "keep.setdefault('half', torch.get_rng_state())[-56:]", "torch.randn(1)",
    "torch.set_rng_state(keep['half'])",
    "torch.randn(1)", "torch.initial_seed()", "torch.default_generator.get_state()[:60]", "g.get_state()[:60]", "g.initial_seed()",
    "g.manual_seed(7).initial_seed()", "torch.rand(2, generator=g)", "g.set_state(torch.get_rng_state())", "torch.rand(2, generator=g)",
    "g.clone_state().get_state()[8:50]", "torch.Generator().manual_seed(3).get_state()[:20]", "torch.Generator('cpu').initial_seed()",
    "torch.random.initial_seed()",
    "torch.random.get_rng_state()[:16]", "forked(torch)", "torch.randn(3)", "torch.rand(2, 3).device", "str(g.device)",
]  # fmt: skip


def forked(library: Any) -> Any:
    """A number drawn where the state is restored afterwards."""
    with library.random.fork_rng():
        library.manual_seed(5)
        return library.rand(3)


class Session:
    """One library, seeded, at work on one call after the other."""

    def __init__(self, library: Any) -> None:
        self.library = library
        library.manual_seed(SEED)
        self.generator = library.Generator().manual_seed(SEED + 1)
        self.names = {"torch": library, "F": library.nn.functional, "g": self.generator, "keep": {}, "forked": forked}

    def outcome(self, call: str) -> Any:
        """What a call gives: an array or a text."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _plain(eval(call, self.names), self.library)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def states(self) -> list[np.ndarray]:
        """The states of the default generator and of `g`."""
        return [_numbers(s) for s in (self.library.get_rng_state(), self.generator.get_state())]

    def take_over(self, states: list[np.ndarray]) -> None:
        """Set both states."""
        default, own = (self.library.tensor(s.tolist(), dtype=self.library.uint8) for s in states)
        self.library.set_rng_state(default)
        self.generator.set_state(own)


def _plain(made: Any, library: Any) -> Any:
    if isinstance(made, library.Tensor):
        return _numbers(made)
    if isinstance(made, tuple):
        return np.concatenate([_numbers(m).ravel().astype(np.float64) for m in made])
    return np.asarray(made) if isinstance(made, int | float) else "a generator" if isinstance(made, library.Generator) else str(made)


def _numbers(t: Any) -> np.ndarray:
    t = t.detach()
    narrow = str(t.dtype).endswith(("bfloat16", "float16"))
    return np.array((t.float() if narrow else t).tolist(), _DTYPES[str(t.dtype).rpartition(".")[2]])


_DTYPES = {n: np.dtype(n) for n in ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128")}
_DTYPES |= {"float16": np.dtype("float32"), "bfloat16": np.dtype("float32")}
# How many units of the last place logarithms and sines may differ by.
_RELATIVE = {"float32": 5e-7, "complex64": 5e-7, "float64": 1e-14, "complex128": 1e-14}


def exactly(a: Any, b: Any) -> bool:
    """Whether two outcomes are the same to the last digit."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return isinstance(a, str) and isinstance(b, str) and a == b
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def to_rounding(a: Any, b: Any) -> bool:
    """Whether two outcomes are the same but for the last digits of logarithms and sines."""
    if exactly(a, b):
        return True
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray) or a.dtype != b.dtype or a.shape != b.shape or a.dtype.kind not in "fc":
        return False
    near = _RELATIVE[a.dtype.name]
    return np.allclose(a, b, rtol=near, atol=near, equal_nan=True)


def _shown(found: Any) -> str:
    return str(found)[:60] if isinstance(found, str) else np.array2string(found.ravel()[:4], precision=8, max_line_width=200)


def compare(everything: bool = False, calls: list[str] = CALLS) -> int:
    """Print both libraries side by side; how many calls or states differ. After a state that differs ours goes on from PyTorch's."""
    try:
        import torch
    except ImportError:
        ours = Session(tj)
        for call in calls:
            print(f"{call:75} {_shown(ours.outcome(call))}")
        return 0
    ours, theirs = Session(tj), Session(torch)
    close = last = states = 0
    for call in calls:
        found, wanted = ours.outcome(call), theirs.outcome(call)
        after = theirs.states()
        near, kept = to_rounding(found, wanted), all(map(np.array_equal, ours.states(), after))
        close, last, states = close + near, last + exactly(found, wanted), states + kept
        if not kept:
            ours.take_over(after)
        if everything or not (near and kept):
            print(f"{'same' if near else 'OTHER'} numbers, {'same' if kept else 'OTHER'} state: {call}")
            print(f"    {_shown(found)}\n    {_shown(wanted)}")
    print(f"{len(calls)} calls: {close} agree to rounding, {last} of them to the last digit; {states} states after them agree")
    return 2 * len(calls) - close - states


def main() -> None:
    """Compare, report."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--all", action="store_true", help="print the calls that agree, too")
    sys.exit(bool(compare(arguments.parse_args().all)))


if __name__ == "__main__":
    main()
