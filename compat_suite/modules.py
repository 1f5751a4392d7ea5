"""Measures how far the modules agree with PyTorch's: `python -m compat_suite modules`.

The arguments are those of PyTorch's module database. In both libraries a module is made with the same seed and called; checked are its state at
first, what comes out, gradients of inputs and parameters, its state afterwards, what is printed and how it may be called, and refusals. Modules that
only PyTorch has count as differing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compat_suite.comparing import Comparison, compare
from compat_suite.counting import Count, Difference, NotApplicable

DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
CHECKS = ("initial", "output", "gradients", "after", "text", "errors")
SEED = 5


class Sample:
    """Arguments of a module from the database. training: whether it is called in training."""

    def __init__(self, info: Any, given: Any, training: bool) -> None:
        self.info, self.made, self.called, self.training = info, given.constructor_input, given.forward_input, training
        self.name: str = info.module_cls.__name__

    def __str__(self) -> str:
        def shown(f: Any) -> str:
            return ", ".join([*map(_shown, f.args), *(f"{k}={_shown(v)}" for k, v in f.kwargs.items())])

        called = "" if self.called is None else f"({shown(self.called)})"
        return f"{self.name}({shown(self.made)}){'' if self.training else '.eval()'}{called}"


def _shown(value: Any) -> str:
    if hasattr(value, "requires_grad"):
        return f"{value.dtype}{list(value.shape)}".removeprefix("torch.")
    return "(" + ", ".join(map(_shown, value)) + ")" if isinstance(value, tuple) else repr(value).replace("\n", "")[:60]


def samples(info: Any, dtype: str, most: int = 0) -> list[Sample]:
    """The arguments that the database has for a module, in training and, if that makes a difference, in evaluation; of these at most so many."""
    import torch

    found: list[Sample] = []
    for training in (True, False) if info.train_and_eval_differ else (True,):
        torch.manual_seed(0)
        with _recorded():
            given = info.module_inputs_func(info, device="cpu", dtype=getattr(torch, dtype), requires_grad=True, training=training)
        found += [Sample(info, one, training) for one in given]
    if not most or len(found) <= most:
        return found
    return [found[i * len(found) // most] for i in range(most)]


@contextlib.contextmanager
def _recorded() -> Iterator[None]:
    """Let modules of PyTorch's remember what they are made of, so that they can be made once more."""
    import torch

    classes = [c for n in torch.nn.modules.__all__ if isinstance(c := getattr(torch.nn, n), type) and issubclass(c, torch.nn.Module)]
    kept = [(c, vars(c)["__init__"]) for c in classes if "__init__" in vars(c)]

    def recording(init: Any) -> Any:
        @functools.wraps(init)
        def made(self: Any, *args: Any, **kwargs: Any) -> None:
            self.__dict__.setdefault("_made_of", (args, kwargs))
            init(self, *args, **kwargs)

        return made

    for c, init in kept:
        c.__init__ = recording(init)
    try:
        yield
    finally:
        for c, init in kept:
            c.__init__ = init


class Carried:
    """Arguments carried over to a library: tensors as leaves, the same ones once."""

    def __init__(self, library: Any) -> None:
        self.library, self.known = library, dict[int, Any]()

    def __call__(self, value: Any) -> Any:
        """A value of PyTorch's in the library."""
        import torch

        if isinstance(value, torch.Tensor):
            return self.known.setdefault(id(value), self._leaf(value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self, value))
        if isinstance(value, dict):
            return {k: self(v) for k, v in value.items()}
        return value if self.library is torch else self._other(value)

    def _leaf(self, t: Any) -> Any:
        import torch

        from compat_suite.translate import ours

        if self.library is not torch:
            return ours(t)
        return t.detach().clone().requires_grad_(t.requires_grad)

    def _other(self, value: Any) -> Any:
        import torch

        from compat_suite.translate import named, ours

        home = type(value).__module__
        if isinstance(value, torch.nn.Module):
            args, kwargs = value.__dict__["_made_of"]
            made = getattr(self.library.nn, type(value).__name__)(*self(args), **self(kwargs))
            made.load_state_dict({k: ours(v) for k, v in value.state_dict().items()})
            return made.train(value.training)
        if inspect.isbuiltin(value):
            return named(value.__name__) or named(f"nn.functional.{value.__name__}", value)
        if dataclasses.is_dataclass(value) and home.startswith("torch."):
            fields = {f.name: self(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return getattr(self.library.nn, type(value).__name__)(**fields)
        return ours(value)

    def leaves(self) -> list[Any]:
        """The tensors that require gradients, in the order in which they came."""
        return [t for t in self.known.values() if t.requires_grad]


def _state(module: Any) -> Any:
    state = module.state_dict()
    metadata = [(k, list(v.items())) for k, v in state._metadata.items()]
    lazy = [type(v).__name__.startswith("Uninitialized") for v in state.values()]
    return [list(state), metadata, lazy, [v for v, is_lazy in zip(state.values(), lazy, strict=True) if not is_lazy]]


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    return [value] if hasattr(value, "requires_grad") else []


class Run:
    """A sample in one library."""

    def __init__(self, library: str, sample: Sample, dtype: str) -> None:
        self.m, self.sample, self.dtype = importlib.import_module(library), sample, dtype
        self.carried = Carried(self.m)
        self.m.manual_seed(SEED)
        self.module = getattr(self.m.nn, sample.name)(*self.carried(sample.made.args), **self.carried(sample.made.kwargs))

    def made(self) -> Any:
        """The module, of the sample's dtype."""
        return self.module.to(getattr(self.m, self.dtype)).train(self.sample.training)

    def called(self) -> Any:
        """What a call gives. NotApplicable for what is only made."""
        given = self.sample.called
        if given is None:
            raise NotApplicable
        self.m.manual_seed(SEED)
        return self.made()(*self.carried(given.args), **self.carried(given.kwargs))

    def backward(self) -> list[Any]:
        """The gradients of inputs and parameters. NotApplicable where nothing requires one."""
        numbers = np.random.RandomState(0)
        total: Any = 0.0
        for out in _tensors(self.called()):
            if out.requires_grad:
                factor = self.m.tensor(numbers.rand(*out.shape) + 0.5, dtype=out.dtype)
                product = out * factor
                total = total + (product.real if product.is_complex() else product).sum()
        if isinstance(total, float):
            raise NotApplicable
        total.backward()
        return [t.grad for t in (*self.carried.leaves(), *self.module.parameters())]


def _initial(run: Run) -> Any:
    return _state(run.module)


def _output(run: Run) -> Any:
    return run.called()


def _gradients(run: Run) -> Any:
    return run.backward()


def _after(run: Run) -> Any:
    run.called()
    return _state(run.module)


def _text(run: Run) -> Any:
    module = run.made()
    constants = list(getattr(module, "__constants__", ()))
    return repr(module), str(module.training), constants, _signature(type(module)), _signature(module.forward)


def _signature(function: Any) -> list[str]:
    found = inspect.signature(function).parameters.values()
    return [f"{p.kind.name} {p.name}{'' if p.default is p.empty else '=' + _default(p.default)}" for p in found]


def _default(value: Any) -> str:
    return getattr(value, "__name__", repr(value))


RUNS: dict[str, Callable[[Run], Any]] = {
    "initial": _initial, "output": _output, "gradients": _gradients, "after": _after, "text": _text
}  # fmt: skip


# ---------------------------------------------------------------------- comparing


def _told(act: Callable[[], Any]) -> Any:
    """What it gives and the texts of its warnings, or class and text of what it raises."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = act()
        except NotApplicable:
            raise
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:300]}"
    return found, sorted({f"{w.category.__name__}: {w.message}" for w in told if issubclass(w.category, (UserWarning, FutureWarning))})


def _difference(check: str, sample: Sample, dtype: str) -> str | None:
    """What differs, in words; None where nothing does. NotApplicable where there is nothing to compare."""
    from compat_suite.agreement import same

    found = [_told(lambda library=library: RUNS[check](Run(library, sample, dtype))) for library in ("torchgrad_jax", "torch")]
    try:
        same(found[0], found[1], check)
    except Difference as difference:
        return f"{difference} <- {sample}"
    return None


def _errors(info: Any, count: Count) -> None:
    import torch

    if info.module_error_inputs_func is None:
        return
    for training in (True, False) if info.train_and_eval_differ else (True,):
        for wrong in info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=training):
            sample = Sample(info, wrong.module_error_input, training)

            def run(library: str, sample: Sample = sample, forward: bool = "FORWARD" in str(wrong.error_on)) -> str:
                made = _told(lambda: Run(library, sample, "float32"))
                made = made if isinstance(made, str) or not forward else _told(made[0].called)
                return made if isinstance(made, str) else "nothing raised"

            found, expected = run("torchgrad_jax"), run("torch")
            count.add(None if found == expected else f"{found!r}, PyTorch {expected!r} <- {sample}")


def _is_missing(name: str) -> bool:
    return not hasattr(importlib.import_module("torchgrad_jax").nn, name)


def measure(names: list[str], dtypes: list[str], checks: list[str], most: int = 0) -> dict[str, Any]:
    """The counts, by module, check and dtype; of at most so many samples each, if not 0."""
    from torch.testing._internal.common_modules import module_db

    found: dict[str, Any] = {}
    every: list[Any] = list(module_db)
    for info in every:
        name = info.module_cls.__name__
        if names and name not in names:
            continue
        if _is_missing(name):
            found[f"{name} missing float32"] = [0, 1, ["there is no such module"]]
            continue
        supported = {str(d).removeprefix("torch.") for d in info.dtypes}
        for dtype in [d for d in dtypes if d in supported]:
            given = samples(info, dtype, most)
            for check in checks:
                if check != "errors" or dtype == "float32":
                    found[f"{name} {check} {dtype}"] = _counted(info, check, dtype, given)
    return {key: count for key, count in found.items() if count[1]}


def _counted(info: Any, check: str, dtype: str, given: list[Sample]) -> list[Any]:
    count = Count()
    if check == "errors":
        _errors(info, count)
        return [count.agree, count.samples, count.differences]
    for sample in given:
        with contextlib.suppress(NotApplicable):
            count.add(_difference(check, sample, dtype))
    return [count.agree, count.samples, count.differences]


def main(arguments: list[str]) -> int:
    """Measure, report. Returns 1 where something differs."""
    return compare(Comparison("modules", "modules of PyTorch's database", __doc__, DTYPES, CHECKS, measure, samples=True, by_name=True), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
