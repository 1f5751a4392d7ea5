"""Random compositions of transforms of random functions, held against PyTorch's `torch.func` and JAX's own transforms: `python -m compat_suite
compositions`.

A function is a list of steps on a vector of float64, written once and run in each namespace; a composition is a list of transforms, innermost first,
each of which makes a function of a vector from one. Every tenth is compared with JAX too.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from compat_suite.processes import in_batches, in_processes

Function = Callable[[Any], Any]
SIZE = 3
JAX_EVERY = 10
# Nested Hessians are large programs, which run once.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# Of several processes each has a processor.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NPROC": "1"}


class Torch:
    """PyTorch, or what stands for it."""

    def __init__(self, module: Any) -> None:
        self.t, self.func = module, importlib.import_module(module.__name__ + ".func")

    def array(self, content: Any) -> Any:
        """A tensor of float64."""
        return self.t.tensor(np.asarray(content, np.float64))

    def numpy(self, found: Any) -> np.ndarray:
        """The content."""
        return found.detach().numpy()

    def called(self, f: Function, x: Any) -> Any:
        """What the function returns."""
        return f(x)

    def unary(self, name: str, x: Any) -> Any:
        """A function of one tensor, by name."""
        return getattr(self.t, name)(x)

    def where(self, x: Any, a: Any, b: Any) -> Any:
        """a where x is positive, else b."""
        return self.t.where(x > 0, a, b)

    def write(self, x: Any, at: int, value: Any) -> Any:
        """A copy of x with an element written in place."""
        y = x.clone()
        y[at] = value
        return y

    def write_part(self, x: Any, factor: Any) -> Any:
        """A copy of x whose first elements are multiplied in place, through a view."""
        y = x * 1.0
        y[:2].mul_(factor)
        return y

    def cat(self, parts: list[Any]) -> Any:
        """Vectors one after the other."""
        return self.t.cat(parts)

    def flatten(self, x: Any) -> Any:
        """All elements as a vector."""
        return x.reshape(-1)

    def softmax(self, x: Any) -> Any:
        """softmax of a vector."""
        return self.t.softmax(x, 0)

    def cumsum(self, x: Any) -> Any:
        """Sums up to each element."""
        return self.t.cumsum(x, 0)

    def sort(self, x: Any) -> Any:
        """The elements in order."""
        return self.t.sort(x)[0]

    def matrix(self, x: Any, matrix: Any) -> Any:
        """A matrix times x."""
        return matrix @ x

    def gather(self, x: Any, places: list[int]) -> Any:
        """Elements at places."""
        return x[self.t.tensor(places)]

    grad = property(lambda self: self.func.grad)
    vmap = property(lambda self: self.func.vmap)
    jacrev = property(lambda self: self.func.jacrev)
    jacfwd = property(lambda self: self.func.jacfwd)
    hessian = property(lambda self: self.func.hessian)

    def jvp(self, f: Function, x: Any, v: Any) -> Any:
        """The tangent."""
        return self.func.jvp(f, (x,), (v,))[1]

    def vjp(self, f: Function, x: Any, cotangent: Function) -> Any:
        """The gradient for a cotangent made of the result."""
        y, pull = self.func.vjp(f, x)
        return pull(cotangent(y))[0]

    def linearize(self, f: Function, x: Any, v: Any) -> Any:
        """The tangent, by the linear function."""
        return self.func.linearize(f, x)[1](v)

    def through_graph(self, f: Function, x: Any) -> Any:
        """The gradient of the sum by the ordinary graph, outside of all transforms."""
        x = x.detach().clone().requires_grad_()
        y = f(x)
        if not y.requires_grad:
            return self.t.zeros_like(x)
        (g,) = self.t.autograd.grad(y.sum(), x, allow_unused=True)
        return self.t.zeros_like(x) if g is None else g


class Jax(Torch):
    """JAX by itself."""

    def __init__(self) -> None:
        self.t = jnp

    def array(self, content: Any) -> Any:
        """See Torch."""
        return jnp.asarray(content, jnp.float64)

    def numpy(self, found: Any) -> np.ndarray:
        """See Torch."""
        return np.asarray(found)

    def called(self, f: Function, x: Any) -> Any:
        """See Torch: compiled whole, which takes a tenth of the time."""
        return jax.jit(f, compiler_options=QUICKLY)(x)

    def unary(self, name: str, x: Any) -> Any:
        """See Torch."""
        return {"sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu}.get(name, getattr(jnp, name, None))(x)  # type: ignore[misc] - all are there

    def write(self, x: Any, at: int, value: Any) -> Any:
        """See Torch."""
        return x.at[at].set(value)

    def write_part(self, x: Any, factor: Any) -> Any:
        """See Torch. (`x.at[:2].multiply(x[0])` is compiled wrongly by XLA where a `cumsum` follows: torchgrad_jax/runtime/compiling/writes.py.)"""
        return jnp.concatenate([x[:2] * factor, x[2:]])

    def cat(self, parts: list[Any]) -> Any:
        """See Torch."""
        return jnp.concatenate(parts)

    def softmax(self, x: Any) -> Any:
        """See Torch."""
        return jax.nn.softmax(x, 0)

    def sort(self, x: Any) -> Any:
        """See Torch."""
        return jnp.sort(x)

    def gather(self, x: Any, places: list[int]) -> Any:
        """See Torch."""
        return x[jnp.array(places)]

    grad = property(lambda self: jax.grad)
    vmap = property(lambda self: jax.vmap)
    jacrev = property(lambda self: jax.jacrev)
    jacfwd = property(lambda self: jax.jacfwd)
    hessian = property(lambda self: jax.hessian)

    def jvp(self, f: Function, x: Any, v: Any) -> Any:
        """See Torch."""
        return jax.jvp(f, (x,), (v,))[1]

    def vjp(self, f: Function, x: Any, cotangent: Function) -> Any:
        """See Torch."""
        y, pull = jax.vjp(f, x)
        return pull(cotangent(y))[0]

    def linearize(self, f: Function, x: Any, v: Any) -> Any:
        """See Torch."""
        return jax.linearize(f, x)[1](v)

    def through_graph(self, f: Function, x: Any) -> Any:
        """See Torch."""
        return jax.grad(lambda x: f(x).sum())(x)


# ---------------------------------------------------------------------- what is drawn

UNARY = ("sin", "cos", "tanh", "exp", "sigmoid", "relu", "abs")
STEPS = (
    "unary", "unary", "unary", "product", "sum", "scale", "matrix", "constant", "where", "write", "write_part", "mean", "softmax", "cumsum", "gather",
    "outer", "captured", "sort", "mix",
)  # fmt: skip
TRANSFORMS = ("grad", "vmap", "vmap_shared", "vmap_out", "jacrev", "jacfwd", "hessian", "jvp", "vjp", "linearize", "value", "per_sample")


def steps_of(r: random.Random) -> list[tuple[Any, ...]]:
    """The steps of a random function."""
    found = []
    for _ in range(r.randint(1, 5)):
        kind = r.choice(STEPS)
        found.append((kind, r.choice(UNARY), r.randrange(SIZE), round(r.uniform(-1.2, 1.2), 3), [r.randrange(SIZE) for _ in range(SIZE)], r.random()))
    return found


def function_of(n: Any, steps: list[tuple[Any, ...]], captured: Any, matrix: Any) -> Function:
    """The steps as a function of a vector of SIZE elements to one of as many, in the namespace `n`."""

    def f(x: Any) -> Any:
        first = x
        for kind, name, at, number, places, _ in steps:
            if kind == "unary":
                x = n.unary(name, x * 0.7)
            elif kind == "product":
                x = x * first
            elif kind == "sum":
                x = x + x.sum() * number
            elif kind == "scale":
                x = x * number + 0.3
            elif kind == "matrix":
                x = n.matrix(x, matrix)
            elif kind == "constant":
                x = x + n.array([0.1, 0.2, 0.3])
            elif kind == "where":
                x = n.where(x, x * number, first)
            elif kind == "write":
                x = n.write(x, at, x.sum())
            elif kind == "write_part":
                x = n.write_part(x, first[at])
            elif kind == "mean":
                x = x - x.mean()
            elif kind == "softmax":
                x = n.softmax(x)
            elif kind == "cumsum":
                x = n.cumsum(x)
            elif kind == "gather":
                x = n.gather(x, places)
            elif kind == "outer":
                x = (x[:, None] * first[None, :]).sum(1)
            elif kind == "captured":
                x = x * captured
            elif kind == "sort":
                x = n.sort(x)
            else:
                x = n.cat([x[at:], first[:at]])
        return x

    return f


def transformed(n: Any, kind: str, f: Function, vector: Any, number: float) -> Function:
    """A function of a vector that a transform makes of one; its results are as many as SIZE, by their sum where they are more."""

    def fold(y: Any) -> Any:
        y = n.flatten(y)
        return y if y.shape[0] == SIZE else y.reshape(SIZE, -1).sum(1) if y.shape[0] % SIZE == 0 else y.sum() * vector

    if kind == "grad":
        return lambda x: n.grad(lambda x: f(x).sum())(x)
    if kind == "vmap":
        return lambda x: fold(n.vmap(f)(x[None, :] * vector[:, None]))
    if kind == "vmap_shared":
        return lambda x: fold(n.vmap(lambda s: f(x * s))(vector))
    if kind == "vmap_out":
        return lambda x: fold(n.vmap(f, 1, 1)(x[:, None] + vector[None, :]))
    if kind == "jacrev":
        return lambda x: fold(n.jacrev(f)(x))
    if kind == "jacfwd":
        return lambda x: fold(n.jacfwd(f)(x))
    if kind == "hessian":
        return lambda x: fold(n.hessian(lambda x: f(x).sum() * number)(x))
    if kind == "jvp":
        return lambda x: n.jvp(f, x, vector * x)
    if kind == "vjp":
        return lambda x: n.vjp(f, x, lambda y: y * number + vector)
    if kind == "linearize":
        return lambda x: n.linearize(f, x, vector)
    if kind == "per_sample":
        return lambda x: fold(n.vmap(n.grad(lambda w, s: (f(w) * s).sum()), (None, 0))(x, vector))
    return lambda x: f(x) * x


class Case:
    """One random composition: a function, transforms, and what it is asked for."""

    def __init__(self, seed: int) -> None:
        r = random.Random(seed)
        self.steps = steps_of(r)
        self.transforms = [(r.choice(TRANSFORMS), round(r.uniform(0.3, 1.0), 3)) for _ in range(r.choice((1, 1, 2, 2, 2, 3, 3, 4)))]
        if sum(kind in ("hessian",) for kind, _ in self.transforms) > 1 and len(self.transforms) > 2:
            self.transforms = self.transforms[:2]
        self.graph = r.random() < 0.3
        values = np.random.RandomState(seed % 2**31)
        self.x, self.vector, self.captured = values.randn(SIZE), values.randn(SIZE) * 0.7, values.randn(SIZE)
        self.matrix = values.randn(SIZE, SIZE) * 0.6

    def run(self, n: Any) -> np.ndarray:
        """The result in a namespace."""
        vector = n.array(self.vector)
        f = function_of(n, self.steps, n.array(self.captured), n.array(self.matrix))
        for kind, number in self.transforms:
            f = transformed(n, kind, f, vector, number)
        x = n.array(self.x)
        return n.numpy(n.called((lambda x: n.through_graph(f, x)) if self.graph else f, x))

    def __str__(self) -> str:
        return f"{[k for k, _ in self.transforms]}{' through the graph' if self.graph else ''} of {[s[:4] for s in self.steps]}"


def differs(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two results are not equal up to rounding, which large intermediate results make larger."""
    if a.shape != b.shape:
        return True
    finite = np.isfinite(a) & np.isfinite(b)
    scale = max(1.0, float(np.abs(a[finite]).max(initial=0.0)))
    return not np.allclose(a, b, rtol=1e-6, atol=1e-8 * scale, equal_nan=True)


def compare(case: Case, ours: Any, theirs: Any, by_hand: Any, always: bool) -> tuple[str, str]:
    """What differs, "" where nothing does; and what PyTorch alone makes of it, where JAX says as we do. What PyTorch refuses is held against JAX."""
    expected = None
    refused = ""
    try:
        expected = case.run(theirs)
    except Exception as error:
        refused = f"PyTorch: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
    try:
        found = case.run(ours)
    except Exception as error:
        return (f"raises {type(error).__name__}: {str(error)[:200]}", "") if expected is not None else ("", refused)
    differ = expected is None or differs(expected, found)
    if not (differ or always):
        return "", ""
    with jax.enable_x64(True):
        hand = case.run(by_hand)
    if differs(hand, found):
        return f"PyTorch {expected}, JAX {hand}, ours {found}", ""
    return "", (refused or f"PyTorch {expected}, JAX and ours {found}") if differ else ""


# ---------------------------------------------------------------------- the command


def options(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m compat_suite compositions", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first; that of a composition alone, with --count 1, does it again")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share them")
    parser.add_argument(
        "--batch", type=int, default=250, help="compositions that a process does before another takes its place, if there are several"
    )
    parser.add_argument("--verbose", action="store_true", help="tell too where PyTorch alone says something else")
    parser.add_argument("--json", type=Path, help="where to write what differs")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if importlib.util.find_spec("torch") is None:
        parser.error("this compares with PyTorch: install it")
    return chosen


def measure(seeds: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    """Each seed with what differs, and with what PyTorch alone makes of it."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    ours, theirs, by_hand = Torch(importlib.import_module("torchgrad_jax")), Torch(torch), Jax()
    for seed in seeds:
        case = Case(seed)
        found, apart = compare(case, ours, theirs, by_hand, seed % JAX_EVERY == 0)
        yield seed, found and f"{case}\n    {found}", apart and f"{case}\n    {apart}"


def measure_in_processes(seeds: Sequence[int], jobs: int, size: int) -> Iterator[tuple[int, str, str]]:
    """The same, by several processes."""

    def arguments(batch: list[str]) -> list[str]:
        return ["-m", "compat_suite", "compositions", "--in-process", "--seed", batch[0], "--count", str(len(batch))]

    for ended in in_processes(in_batches([str(seed) for seed in seeds], size), jobs, arguments, ONE_THREAD):
        if ended.found is None:
            seed = int(ended.batch[0])
            yield seed, f"{Case(seed)}\n    the process ended with {ended.status}", ""
        else:
            yield from (tuple(row) for row in ended.found)


def main(arguments: list[str]) -> int:
    """The command."""
    chosen = options(arguments)
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    if chosen.in_process:
        chosen.json.write_text(json.dumps(list(measure(seeds))))
        return 0
    done, wrong, alone, began = 0, [], [], time.monotonic()
    for seed, found, apart in measure(seeds) if chosen.jobs == 1 else measure_in_processes(seeds, chosen.jobs, chosen.batch):
        done += 1
        if found:
            wrong.append([seed, found])
        elif apart:
            alone.append([seed, apart])
        if found or (apart and chosen.verbose):
            print(f"{seed}: {found or apart}", flush=True)
        if done % 500 == 0:
            print(f"{done} compositions, {len(wrong)} differ, {time.monotonic() - began:.0f} s", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps({"count": done, "differ": wrong, "alone": alone}, indent=0))
    print(f"{done} compositions, {len(wrong)} differ; in {len(alone)} PyTorch alone says something else than JAX, or refuses")
    if wrong:
        print("seeds that differ, each to be done again by --count 1 --seed: " + " ".join(str(seed) for seed, _ in sorted(wrong)))
    return 1 if wrong else 0
