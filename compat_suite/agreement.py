"""The checks of one operator against PyTorch: each counts the samples on which both libraries agree and keeps the first difference in words."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import torchgrad_jax as tj
from compat_suite.counting import TOLERANCES, Count, Difference, NotApplicable
from compat_suite.database import Entry, Sample
from compat_suite.translate import array_of, call, named, ours, ours_alike, rebound

# The sign, or the phase, of vectors is LAPACK's choice: compared is what the database differentiates, which does not depend on it.
PHASE_FREE = {"linalg.eig", "linalg.eigh", "linalg.svd", "svd"}


# ---------------------------------------------------------------------- comparing


def same(a: Any, b: Any, what: str = "result", tolerance: float = 1.0) -> None:
    """Compare what is ours with what is PyTorch's, containers element by element. Difference where they are not alike."""
    if isinstance(b, torch.Tensor):
        _same_tensor(a, b, what, tolerance)
    elif isinstance(b, list | tuple):
        if not isinstance(a, list | tuple) or len(a) != len(b):
            raise Difference(f"{what}: {_short(a)}, PyTorch {_short(b)}")
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{what}[{i}]", tolerance)
    elif isinstance(b, torch.dtype | torch.device):
        if str(a).removeprefix("torchgrad_jax.").removeprefix("torch.") != str(b).removeprefix("torch."):
            raise Difference(f"{what}: {a}, PyTorch {b}")
    elif isinstance(b, float | complex) and isinstance(a, float | complex):
        if not np.allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=True):
            raise Difference(f"{what}: {a}, PyTorch {b}")
    elif type(a) is not type(b) or a != b:
        raise Difference(f"{what}: {_short(a)}, PyTorch {_short(b)}")


def _same_tensor(a: Any, b: torch.Tensor, what: str, tolerance: float) -> None:
    if not isinstance(a, tj.Tensor):
        raise Difference(f"{what}: {_short(a)}, PyTorch a tensor")
    dtype = str(b.dtype).removeprefix("torch.")
    if str(a.dtype).rpartition(".")[2] != dtype or tuple(a.shape) != tuple(b.shape):
        raise Difference(f"{what}: {a.dtype}{tuple(a.shape)}, PyTorch {b.dtype}{tuple(b.shape)}")
    x, y = array_of(a), array_of(b)
    if dtype in TOLERANCES:
        relative, absolute = (t * tolerance for t in TOLERANCES[dtype])
        if dtype == "bfloat16":
            x, y = x.astype(np.float32), y.astype(np.float32)
        with np.errstate(all="ignore"):
            agree = np.allclose(x, y, rtol=relative, atol=absolute, equal_nan=True) or _complex_alike(x, y, relative, absolute)
    else:
        agree = np.array_equal(x, y)
    if not agree:
        with np.errstate(all="ignore"):
            apart = np.abs(x.astype(np.complex128) - y.astype(np.complex128))
            if dtype in TOLERANCES:  # the number furthest out of tolerance, not the largest
                apart = apart / (TOLERANCES[dtype][0] * np.abs(y.astype(np.complex128)) + TOLERANCES[dtype][1])
            at = np.unravel_index(np.nanargmax(np.where(np.isnan(apart), np.inf, apart)), apart.shape)
        raise Difference(f"{what} {dtype}{list(x.shape)} at {tuple(map(int, at))}: {x[at]}, PyTorch {y[at]}")


def _complex_alike(x: np.ndarray, y: np.ndarray, relative: float, absolute: float) -> bool:
    """Whether the parts of complex numbers are alike, each infinite or not a number where the other's is."""
    if x.dtype.kind != "c":
        return False
    return all(np.allclose(p, q, rtol=relative, atol=absolute, equal_nan=True) for p, q in ((x.real, y.real), (x.imag, y.imag)))


def _short(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:80]}"


def tensors(value: Any) -> list[Any]:
    """The tensors of either library in a value, in order."""
    if isinstance(value, torch.Tensor | tj.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [t for v in value for t in tensors(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    return []


def replaced(value: Any, made: Iterator[Any]) -> Any:
    """The value with its tensors taken from `made`, in the order of `tensors`."""
    if isinstance(value, torch.Tensor | tj.Tensor):
        return next(made)
    if isinstance(value, list | tuple):
        parts = [replaced(v, made) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {k: replaced(v, made) for k, v in value.items()}
    return value


def _is_float(t: Any) -> bool:
    return t.is_floating_point() or t.is_complex()


def _alike(found: Any, expected: Any) -> bool:
    """Whether either raised; Difference where only one did, or another class."""
    if isinstance(expected, Exception):
        if not isinstance(found, Exception):
            raise Difference(f"nothing raised, PyTorch {type(expected).__name__}: {expected}")
        if not isinstance(found, type(expected)):
            raise Difference(f"{type(found).__name__}: {str(found)[:150]}; PyTorch {type(expected).__name__}: {str(expected)[:150]}")
        return True
    if isinstance(found, Exception):
        raise Difference(f"{type(found).__name__}: {found}")
    return False


# The places of `dim` among the arguments of what gives the indices of equal elements in no certain order.
_UNORDERED = {"sort": 1, "topk": 2, "argsort": 1, "kthvalue": 2}


def _settled(entry: Entry, sample: Sample, results: Any, x: Any, processed: Callable[[Any], Any]) -> Any:
    """The results without what is chance in PyTorch: indices whose order among equal elements is, replaced by the elements of `x` that they name;
    the phases of vectors; what is in an empty tensor. processed: what is done to results before they are differentiated."""
    if entry.name in PHASE_FREE:
        return processed(results)
    if entry.info.name in UNFILLED:
        return results.zero_()
    stable = sample.keywords.get("stable") or (entry.name == "sort" and True in sample.arguments[3:])
    if entry.name not in _UNORDERED or not x.ndim or stable:
        return results
    place = _UNORDERED[entry.name]
    dim = sample.keywords.get("dim", sample.arguments[place] if len(sample.arguments) > place else -1)
    if entry.name == "argsort":
        return x.gather(dim, results)
    values, indices = results
    if indices.ndim < x.ndim:
        indices = indices.unsqueeze(dim)
    return values, x.gather(dim, indices)


def _in_any_order(entry: Entry, grads: Any) -> Any:
    """Gradients or tangents, those of equal elements in either order."""
    return [None if g is None else g.reshape(-1).sort()[0] for g in grads] if entry.name in (*_UNORDERED, "msort") else grads


# ---------------------------------------------------------------------- both libraries


class Side:
    """One library at work on a sample."""

    def __init__(self, library: Any, function: Callable[..., Any], sample: Sample, entry: Entry) -> None:
        self.library = library
        mine = library is tj
        self.arguments, self.keywords = (ours(sample.arguments), ours(sample.keywords)) if mine else (sample.arguments, sample.keywords)
        self.processed = rebound(sample.processed) if mine else sample.processed
        self.function, self.wrapped = function, entry.wrapped(rebound(function) if mine else function)

    def value(self) -> Any:
        """What the call returns or raises, without gradients."""
        self.library.manual_seed(0)
        with self.library.no_grad():
            return call(self.function, self.arguments, self.keywords)

    def differentiated(self) -> tuple[list[Any], list[Any]] | Exception:
        """The leaves that require grad, and the results that do."""
        self.library.manual_seed(0)
        leaves = [t for t in tensors((self.arguments, self.keywords)) if t.requires_grad]
        found = call(lambda: self.processed(self.wrapped(*self.arguments, **self.keywords)), (), {})
        return found if isinstance(found, Exception) else (leaves, [t for t in tensors(found) if _is_float(t) and t.requires_grad])

    def gradients(self, outputs: list[Any], leaves: list[Any], create_graph: bool, seed: int) -> Any:
        """Gradients for random gradients of the outputs."""
        weights = [self.random(t, seed + i) for i, t in enumerate(outputs)]
        return call(
            self.library.autograd.grad, (outputs, leaves, weights), {"create_graph": create_graph, "retain_graph": True, "allow_unused": True}
        )

    def random(self, like: Any, seed: int) -> Any:
        """Numbers near 1, the same in both libraries."""
        generator = np.random.default_rng(seed)
        array = generator.uniform(0.5, 1.5, tuple(like.shape))
        if like.is_complex():
            array = array + 1j * generator.uniform(-0.5, 0.5, tuple(like.shape))
        dtype = str(like.dtype).rpartition(".")[2]
        return self.library.tensor(array.tolist(), dtype=getattr(self.library, dtype)).reshape(tuple(like.shape))


def sides(entry: Entry, sample: Sample) -> tuple[Side, Side]:
    """Ours and PyTorch's."""
    if entry.ours is None:
        raise Difference("missing")
    return Side(tj, entry.ours, sample, entry), Side(torch, entry.theirs, sample, entry)


# ---------------------------------------------------------------------- the checks


# What these hold is not said.
UNFILLED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}


def check_value(entry: Entry, sample: Sample) -> None:
    """Values, dtypes, shapes; what is raised where PyTorch raises."""
    mine, theirs = sides(entry, sample)
    expected, found = theirs.value(), mine.value()
    if not _alike(found, expected):
        wanted = _settled(entry, sample, expected, theirs.arguments[0], theirs.processed)
        same(_settled(entry, sample, found, mine.arguments[0], mine.processed), wanted)


def check_gradient(entry: Entry, sample: Sample) -> None:
    """First gradients; and that results require grad where PyTorch's do, with a node of the same name."""
    mine, theirs = sides(entry, sample)
    expected, found = theirs.differentiated(), mine.differentiated()
    if _alike(found, expected):
        return
    assert isinstance(expected, tuple) and isinstance(found, tuple)
    (leaves, outputs), (my_leaves, my_outputs) = expected, found
    if len(outputs) != len(my_outputs):
        raise Difference(f"{len(my_outputs)} results require grad, PyTorch {len(outputs)}")
    if outputs and leaves:
        wanted, got = theirs.gradients(outputs, leaves, False, 1), mine.gradients(my_outputs, my_leaves, False, 1)
        if not _alike(got, wanted):
            same(_in_any_order(entry, got), _in_any_order(entry, wanted), "gradient", 2.0)


def check_second(entry: Entry, sample: Sample) -> None:
    """Gradients of gradients."""
    mine, theirs = sides(entry, sample)
    expected, found = theirs.differentiated(), mine.differentiated()
    if _alike(found, expected):
        return
    grads = []
    for side, (leaves, outputs) in ((theirs, expected), (mine, found)):  # type: ignore[misc]
        first = side.gradients(outputs, leaves, True, 1) if outputs and leaves else ()
        if isinstance(first, Exception):
            grads.append(first)
            continue
        again = [g for g in first if g is not None and g.requires_grad]
        grads.append(side.gradients(again, leaves, False, 100) if again else ())
    wanted, got = grads
    if not _alike(got, wanted):
        _same_or_zero(got, wanted)


def _same_or_zero(got: Any, wanted: Any) -> None:
    """Compare gradients where one library may leave out what the other says is zero."""
    if len(got) != len(wanted):
        if any(np.any(array_of(g)) for g in (*got, *wanted) if g is not None):
            raise Difference(f"{len(got)} second gradients, PyTorch {len(wanted)}")
        return
    for i, (g, w) in enumerate(zip(got, wanted, strict=True)):
        if g is not None and w is not None:
            same(g, w, f"second gradient[{i}]", 5.0)
        elif g is not w and np.any(array_of(w if g is None else g)):
            raise Difference(f"second gradient[{i}]: {'none' if g is None else 'some'}, PyTorch {'none' if w is None else 'some'}")


def check_forward(entry: Entry, sample: Sample) -> None:
    """Forward derivatives by dual tensors."""
    mine, theirs = sides(entry, sample)
    results = []
    for side in (theirs, mine):
        results.append(call(_tangents, (side,), {}))
    wanted, got = results
    if not _alike(got, wanted):
        same(_in_any_order(entry, got), _in_any_order(entry, wanted), "tangent", 2.0)


def _tangents(side: Side) -> list[Any]:
    forward = side.library.autograd.forward_ad
    side.library.manual_seed(0)
    found = tensors((side.arguments, side.keywords))
    with forward.dual_level():
        duals = [
            forward.make_dual(t.detach(), side.random(t, i)) if t.requires_grad else t for i, t in enumerate(found)
        ]  # fmt: skip
        arguments, keywords = replaced((side.arguments, side.keywords), iter(duals))
        out = side.processed(side.wrapped(*arguments, **keywords))
        return [forward.unpack_dual(t).tangent for t in tensors(out) if _is_float(t)]


def check_node(entry: Entry, sample: Sample) -> None:
    """requires_grad and the name of grad_fn of each result."""
    mine, theirs = sides(entry, sample)
    seen = []
    for side in (theirs, mine):
        side.library.manual_seed(0)
        out = call(side.function, side.arguments, side.keywords)
        seen.append(out if isinstance(out, Exception) else [(t.requires_grad, t.grad_fn and t.grad_fn.name()) for t in tensors(out)])
    wanted, got = seen
    if not _alike(got, wanted) and got != wanted:
        raise Difference(f"{got}, PyTorch {wanted}")


def check_inplace(entry: Entry, sample: Sample) -> None:
    """The in-place twin: result, and that it is the first argument."""
    theirs = entry.info.get_inplace()
    if isinstance(theirs, functools.partial):
        mine, name = functools.partial(named(f"nn.functional.{theirs.func.__name__}"), **theirs.keywords), theirs.func.__name__
    else:
        name = theirs.__name__
        mine = rebound(theirs) if name == "<lambda>" else getattr(tj.Tensor, name, None)
    if mine is None:
        raise Difference(f"missing {name}")
    results = []
    for library, function, (args, kwargs) in (
        (torch, theirs, (sample.arguments, sample.keywords)), (tj, mine, (ours(sample.arguments), ours(sample.keywords))),
    ):  # fmt: skip
        library.manual_seed(0)
        with library.no_grad():
            first = args[0].clone()
            out = call(function, (first, *args[1:]), kwargs)
        results.append(out if isinstance(out, Exception) else (out, out is first))
    wanted, got = results
    if not _alike(got, wanted):
        same(got, wanted)


def check_out(entry: Entry, sample: Sample) -> None:
    """Results written to `out=`."""
    results = []
    for library, function, (args, kwargs) in (
        (torch, entry.theirs, (sample.arguments, sample.keywords)), (tj, entry.ours, (ours(sample.arguments), ours(sample.keywords))),
    ):  # fmt: skip
        processed = sample.processed if library is torch else rebound(sample.processed)
        with library.no_grad():
            library.manual_seed(0)
            value = call(function, args, kwargs)
            if isinstance(value, Exception):
                results.append(value)
                continue
            places = tensors(value)
            if not places:
                raise NotApplicable("a bool, say, which no tensor can take")
            outs = tuple(library.zeros(tuple(t.shape), dtype=t.dtype) for t in places)
            library.manual_seed(0)
            found = call(function, args, {**kwargs, "out": outs if isinstance(value, list | tuple) else outs[0]})
            if not isinstance(found, Exception):
                both = found, outs if isinstance(value, list | tuple) else outs[0]
                found = tuple(_settled(entry, sample, f, args[0], processed) for f in both)
            results.append(found)
    wanted, got = results
    if isinstance(wanted, Exception):
        raise NotApplicable(str(wanted))
    if not _alike(got, wanted):
        same(got, wanted)


def _raised(entry: Entry, bad: Any) -> Exception:
    """What our function raises for bad input. Difference where it raises nothing."""
    if entry.ours is None:
        raise Difference("missing")
    s = bad.sample_input
    arguments, keywords = ours_alike(((s.input, *s.args), s.kwargs))
    found = call(entry.ours, arguments, keywords)
    if not isinstance(call(entry.theirs, (s.input, *s.args), s.kwargs), Exception):
        raise NotApplicable("PyTorch takes it")
    if not isinstance(found, Exception):
        raise Difference(f"nothing raised, PyTorch {bad.error_type.__name__}: {bad.error_regex}")
    return found


def check_error(entry: Entry, bad: Any) -> None:
    """The class of what is raised for bad input."""
    found = _raised(entry, bad)
    if not isinstance(found, bad.error_type):
        raise Difference(f"{type(found).__name__}: {str(found)[:150]}; PyTorch {bad.error_type.__name__}: {bad.error_regex[:150]}")


def check_error_text(entry: Entry, bad: Any) -> None:
    """The text of what is raised for bad input."""
    found = _raised(entry, bad)
    if not re.search(bad.error_regex, str(found)):
        raise Difference(f"{type(found).__name__}: {str(found)[:180]}; PyTorch: {bad.error_regex[:180]}")


SAMPLED: dict[str, Callable[[Entry, Sample], None]] = {
    "value": check_value, "gradient": check_gradient, "second": check_second, "forward": check_forward, "node": check_node,
    "inplace": check_inplace, "out": check_out,
}  # fmt: skip
CHECKS = (*SAMPLED, "error", "error_text")
NEEDS_GRADIENT = {"gradient", "second", "forward", "node"}


def applies(entry: Entry, check: str, dtype: str) -> bool:
    """Whether PyTorch's operator can do what is checked."""
    info = entry.info
    if check in NEEDS_GRADIENT:
        if not info.supports_autograd or dtype not in entry.dtypes(backward=True) or dtype in ("int64", "bool"):
            return False
        return {"second": info.supports_gradgrad, "forward": info.supports_forward_ad}.get(check, True)
    if check == "inplace":
        return info.get_inplace() is not None
    if check == "out":
        return info.supports_out
    return True


def agreement(entry: Entry, check: str, dtype: str, most: int) -> Count:
    """The count of one check for one dtype."""
    count = Count()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if check.startswith("error"):
            cases, run = entry.errors(), check_error if check == "error" else check_error_text
        else:
            cases, run = entry.samples(dtype, check in NEEDS_GRADIENT, most), SAMPLED[check]
        for case in cases:
            try:
                run(entry, case)
                count.add(None)
            except NotApplicable:
                continue
            except Difference as found:
                count.add(f"{found}{_told(case)}")
            except Exception as error:  # the harness could not compare: that is no agreement
                count.add(f"{type(error).__name__} in the comparison: {error}{_told(case)}")
    return count


def _told(case: Any) -> str:
    if isinstance(case, Sample):
        arguments: Any = case.arguments, case.keywords
    else:
        arguments = case.sample_input.input, case.sample_input.args, case.sample_input.kwargs
    return " <- " + ", ".join(_shape(a) for a in arguments)[:160]


def _shape(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_shape, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}={_shape(v)}' for k, v in value.items())}}}"
    return str(value)[:40]
