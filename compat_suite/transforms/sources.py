"""Where the calls come from: PyTorch's operator database where it is installed, and the suite's own records."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import torchgrad_jax as tj
from compat_suite.records import RECORDS, Make, split
from compat_suite.transforms.case import Case, tensors
from compat_suite.transforms.checks import VALUES

UNFILLED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}


def inplace(function: Callable[..., Any]) -> Callable[..., Any]:
    """The in-place function, called with a copy of its first argument."""

    def called(first: Any, *arguments: Any, **keywords: Any) -> Any:
        changed = first.clone()
        function(changed, *arguments, **keywords)
        return changed

    return called


def spread(found: list[Any], most: int) -> list[Any]:
    """At most `most` (0: all), spread over all."""
    return found if not most or len(found) <= most else [found[i * len(found) // most] for i in range(most)]


class Records:
    """The calls of the suite's own records. Needs no PyTorch."""

    def names(self) -> list[str]:
        """The operators."""
        return list(RECORDS)

    def dtypes(self, name: str, derivatives: bool) -> list[str]:
        """In which dtypes an operator is checked."""
        return list(RECORDS[name].dtypes)

    def applies(self, name: str, check: str) -> bool:
        """Whether the operator can do what is checked."""
        record = RECORDS[name]
        wanted = 0 if check in VALUES else 2 if check == "second" else 1
        if check in ("transpose", "second") and not record.forward:
            return False
        if check == "inplace":
            return self._inplace(name) is not None
        return (record.derivatives or 0) >= wanted

    def cases(self, name: str, dtype: str, check: str, most: int) -> Iterator[Case]:
        """The calls, at most `most`."""
        record = RECORDS[name]
        function = self._inplace(name) if check == "inplace" else record.call()
        assert function is not None
        for made in spread(list(record.samples(Make(dtype))), most):
            arguments, keywords = split(made)
            if check != "inplace" or (arguments and isinstance(arguments[0], tj.Tensor)):
                yield Case(function, arguments, keywords, unfilled=name in UNFILLED)

    def _inplace(self, name: str) -> Callable[..., Any] | None:
        twin = getattr(tj.Tensor, name.split(".")[0] + "_", None)
        return None if twin is None or RECORDS[name].function is not None else inplace(twin)


class Database:
    """The calls of PyTorch's operator database."""

    def __init__(self) -> None:
        from compat_suite.database import entries

        self.entries = entries()

    def names(self) -> list[str]:
        """The operators."""
        return list(self.entries)

    def dtypes(self, name: str, derivatives: bool) -> list[str]:
        """In which dtypes an operator is checked."""
        return self.entries[name].dtypes(derivatives)

    def applies(self, name: str, check: str) -> bool:
        """Whether PyTorch's operator can do what is checked."""
        info = self.entries[name].info
        if check == "inplace":
            return info.get_inplace() is not None
        if check in VALUES:
            return True
        if check == "transpose" and not info.supports_forward_ad:
            return False
        if check == "second" and not (info.supports_gradgrad and info.supports_fwgrad_bwgrad):
            return False
        return info.supports_autograd

    def cases(self, name: str, dtype: str, check: str, most: int) -> Iterator[Case]:
        """The calls, at most `most`."""
        from compat_suite.agreement import PHASE_FREE
        from compat_suite.translate import ours, rebound

        entry = self.entries[name]
        if entry.ours is None:
            raise LookupError("missing")
        for sample in entry.samples(dtype, check not in VALUES, most):
            arguments, keywords, processed = ours(sample.arguments), ours(sample.keywords), rebound(sample.processed)
            if not isinstance(arguments[0], tj.Tensor) and check == "inplace":
                continue
            function, theirs = (self._inplace(name)) if check == "inplace" else (entry.ours, entry.theirs)
            wrapped = entry.wrapped(rebound(function))
            derived = lambda *a, wrapped=wrapped, processed=processed, **k: processed(wrapped(*a, **k))  # noqa: E731
            unfilled = entry.info.name in UNFILLED
            asked = _asked(theirs, sample.arguments, sample.keywords)
            yield Case(derived if name in PHASE_FREE else function, arguments, keywords, derived, asked, unfilled)

    def _inplace(self, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
        import functools

        from compat_suite.translate import named, rebound

        theirs = self.entries[name].info.get_inplace()
        if isinstance(theirs, functools.partial):
            mine = functools.partial(named(f"nn.functional.{theirs.func.__name__}"), **theirs.keywords)
        else:
            mine = rebound(theirs) if theirs.__name__ == "<lambda>" else getattr(tj.Tensor, theirs.__name__)
        return inplace(mine), inplace(theirs)


def _asked(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Callable[..., Any]:
    """PyTorch's function of the tensors' content, mapped over as the dimensions say."""
    import torch

    from compat_suite.agreement import replaced
    from compat_suite.agreement import tensors as theirs

    def call(arrays: list[np.ndarray], dims: Sequence[Sequence[int | None]]) -> Any:
        places = [t.dtype for t in theirs((arguments, keywords))]
        given = [torch.tensor(a.tolist(), dtype=t).reshape(a.shape) for a, t in zip(arrays, places, strict=True)]

        def one(*ts: Any) -> Any:
            torch.manual_seed(0)
            a, k = replaced((arguments, keywords), iter(ts))
            found = function(*a, **k)
            return tuple(t for t in theirs(found))

        mapped: Any = one
        for dim in reversed(list(dims)):
            mapped = torch.func.vmap(mapped, tuple(dim), randomness="same")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mapped(*given)

    return call


__all__ = ["Database", "Records", "inplace", "spread", "tensors"]
