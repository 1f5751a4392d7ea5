"""Measures how far the optimizers agree with PyTorch's: `python -m compat_suite optimizers`.

The settings are those of PyTorch's optimizer database, each with every implementation that it can be asked for. Checked are parameters after some
steps, state dicts, what follows when they are loaded, what is printed, gradients through differentiable steps, and refusals.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compat_suite.comparing import Comparison, compare
from compat_suite.counting import Count, Difference, NotApplicable

DTYPES = ("float32", "float64", "bfloat16", "complex64", "complex128")
CHECKS = ("parameters", "state", "loading", "text", "gradients", "errors")
STEPS = 6
SHAPES = ((3, 4), (16,), (), (2, 3, 2))
# Of vectors of less than 16 elements PyTorch's loops round each product of bfloat16 by itself.
LONG = ((32, 2), (64,), (2, 4, 8))
_OURS, _THEIRS = "torchgrad_jax", "torch"
# Its line searches and updates compare losses and multiply curvatures: near the minimum one rounding becomes another path.
LOOSE = {"LBFGS": 100.0, "Muon": 10.0}


class Sample:
    """Settings of an optimizer from the database, with an implementation asked for."""

    def __init__(self, info: Any, settings: dict[str, Any]) -> None:
        self.info, self.settings = info, settings
        self.name: str = info.optim_cls.__name__

    def differentiable(self) -> bool:
        """Whether its steps are part of a graph."""
        return bool(self.settings.get("differentiable"))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.settings.items())})"


def samples(info: Any) -> Iterator[Sample]:
    """The settings that the database has for an optimizer."""
    for given in info.optim_inputs_func(device="cpu"):
        yield Sample(info, dict(given.kwargs))
        for implementation in info.supported_impls:
            if implementation == "fused" and "cpu" not in info.supports_fused_on:
                continue
            tensor_lr = hasattr(given.kwargs.get("lr"), "numel")
            if not (implementation == "foreach" and tensor_lr):
                yield Sample(info, {**given.kwargs, implementation: True})


def applies(sample: Sample, check: str, dtype: str) -> bool:
    """Whether a check is made of a sample in a dtype."""
    if dtype.startswith("complex") and not sample.info.supports_complex:
        return False
    # Of bfloat16, PyTorch's fused SGD leaves 16 elements and more as they are, and `foreach` rounds the numbers of a step to it first.
    if dtype == "bfloat16" and (sample.settings.get("foreach") or (sample.name == "SGD" and sample.settings.get("fused"))):
        return False
    if sample.info.only_supports_sparse_grads:
        return check == "text" and dtype == "float32"
    return sample.differentiable() == (check == "gradients") or check == "text"


# ---------------------------------------------------------------------- runs, in either library


def _array(numbers: np.random.RandomState, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    made = numbers.randn(*shape)
    return made + 1j * numbers.randn(*shape) if dtype.startswith("complex") else made


class Run:
    """A sample in one library: tensors, the optimizer, and its steps."""

    def __init__(self, library: str, sample: Sample, dtype: str) -> None:
        self.m, self.sample, self.dtype = importlib.import_module(library), sample, dtype
        self.numbers = np.random.RandomState(0)
        shapes = SHAPES[:1] * 2 if sample.name == "Muon" else LONG if dtype == "bfloat16" else SHAPES
        self.starts = [self.tensor(s) for s in shapes]
        self.targets = [self.tensor(s) for s in shapes]
        if sample.differentiable():
            for start in self.starts:
                start.requires_grad_()
        self.params = [start.clone() if sample.differentiable() else self.m.nn.Parameter(start) for start in self.starts]
        self.optimizer = self.made(self.params)
        self.count = 0

    def tensor(self, shape: tuple[int, ...]) -> Any:
        """Random numbers, the same in both libraries."""
        return self.m.tensor(_array(self.numbers, shape, self.dtype), dtype=getattr(self.m, self.dtype))

    def made(self, params: Any) -> Any:
        """The sample's optimizer of parameters."""
        settings = {k: self.m.tensor(v.tolist()) if hasattr(v, "numel") else v for k, v in self.sample.settings.items()}
        return getattr(self.m.optim, self.sample.name)(params, **settings)

    def step(self, optimizer: Any = None) -> None:
        """A step by gradients that are other ones each time; some parameters have none."""
        optimizer = optimizer or self.optimizer
        if self.sample.info.step_requires_closure:
            optimizer.step(self.closure)
            return
        for i, (p, start) in enumerate(zip(self.params, self.starts, strict=True)):
            source = start if self.sample.differentiable() else p.detach()
            noise = self.tensor(tuple(p.shape))
            p.grad = None if (i + self.count) % 5 == 4 else source * 0.5 + noise
        self.count += 1
        for group in optimizer.param_groups:
            if isinstance(group["lr"], float):
                group["lr"] *= 0.9
        optimizer.step()

    def closure(self) -> Any:
        """A loss that is no quadratic one, with its gradients."""
        self.optimizer.zero_grad()
        loss: Any = 0.0
        for p, target in zip(self.params, self.targets, strict=True):
            square = ((p - target) * (p - target).conj()).real
            loss = loss + square.sum() + (square * square).sum() * 0.1
        loss.backward()
        return loss

    def steps(self) -> Run:
        """All steps."""
        for _ in range(1 if self.sample.info.step_requires_closure else STEPS):
            self.step()
        return self


def _values(state: Any) -> list[Any]:
    """A state dict without what says in which library it was made: keys, and values with their places."""
    state = {**state, "state": {k: list(v.items()) for k, v in state["state"].items()}}
    return [list(state), list(state["state"].items()), [sorted(g.items()) for g in state["param_groups"]]]


def _parameters(run: Run) -> Any:
    run.steps()
    return [p.detach() for p in run.params]


def _state(run: Run) -> Any:
    return _values(run.steps().optimizer.state_dict())


def _loading(run: Run) -> Any:
    state = run.steps().optimizer.state_dict()
    run.optimizer = run.made(run.params)
    run.optimizer.load_state_dict(state)
    run.step()
    return [p.detach() for p in run.params], _values(run.optimizer.state_dict())


def _text(run: Run) -> Any:
    return repr(run.optimizer), [*run.optimizer.defaults.items()]


def _gradients(run: Run) -> Any:
    run.step()
    total = sum(((p * p.conj()).real if p.is_complex() else p * p).sum() for p in run.params)
    return run.m.autograd.grad(total, run.starts)


RUNS: dict[str, Callable[[Run], Any]] = {
    "parameters": _parameters, "state": _state, "loading": _loading, "text": _text, "gradients": _gradients
}  # fmt: skip


# ---------------------------------------------------------------------- comparing


def _difference(check: str, sample: Sample, dtype: str) -> str | None:
    """What differs, in words; None where nothing does."""
    from compat_suite.agreement import same

    found = []
    for library in (_OURS, _THEIRS):
        try:
            found.append(RUNS[check](Run(library, sample, dtype)))
        except Exception as error:
            found.append(f"{type(error).__name__}: {str(error)[:200]}")
    try:
        same(found[0], found[1], "result", LOOSE.get(sample.name, 1.0))
    except Difference as difference:
        return f"{difference} <- {sample}"
    return None


def _refusal(library: str, name: str, params: Any, settings: dict[str, Any], steps: bool) -> str:
    """The class and the text of what an optimizer raises or warns of, if anything."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            optimizer = getattr(importlib.import_module(library).optim, name)(params, **settings)
            if steps:
                optimizer.step()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return "; ".join(f"{w.category.__name__}: {w.message}" for w in told)


def _translated(given: Any, made: dict[int, Any]) -> Any:
    """Arguments of PyTorch's as ours; what is the same tensor stays so. NotApplicable for sparse tensors, which there are none of."""
    from compat_suite.translate import ours

    if isinstance(given, dict):
        return {k: _translated(v, made) for k, v in given.items()}
    if isinstance(given, (list, tuple)):
        return type(given)(_translated(v, made) for v in given)
    if not hasattr(given, "requires_grad"):
        return given
    if given.is_sparse:
        raise NotApplicable
    if id(given) not in made:
        found = made[id(given)] = ours(given.detach()).requires_grad_(given.requires_grad)
        found.grad = None if given.grad is None else ours(given.grad)
    return made[id(given)]


def _errors(info: Any, count: Count) -> None:
    torch = importlib.import_module("torch")
    for wrong in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
        given, made = wrong.optimizer_error_input, dict[int, Any]()
        name, steps = info.optim_cls.__name__, "STEP" in str(wrong.error_on)
        try:
            found = _refusal(_OURS, name, _translated(given.params, made), _translated(given.kwargs, made), steps)
        except NotApplicable:
            continue
        expected = _refusal(_THEIRS, name, given.params, given.kwargs, steps)
        count.add(None if found == expected else f"{found!r}, PyTorch {expected!r} <- {given.desc}")


def measure(names: list[str], dtypes: list[str], checks: list[str]) -> dict[str, Any]:
    """The counts, by optimizer, check and dtype."""
    from torch.testing._internal.common_optimizers import optim_db

    found: dict[str, Any] = {}
    every: list[Any] = list(optim_db)
    for info in every:
        name = info.optim_cls.__name__
        if names and name not in names:
            continue
        for check in checks:
            for dtype in ("float32",) if check == "errors" else dtypes:
                count = Count()
                if check == "errors":
                    _errors(info, count)
                else:
                    for sample in samples(info):
                        if applies(sample, check, dtype):
                            count.add(_difference(check, sample, dtype))
                if count.samples:
                    found[f"{name} {check} {dtype}"] = [count.agree, count.samples, count.differences]
    return found


def main(arguments: list[str]) -> int:
    """Measure, report. Returns 1 where something differs."""
    return compare(Comparison("optimizers", "optimizers of PyTorch's database", __doc__, DTYPES, CHECKS, measure), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
