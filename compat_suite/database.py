"""PyTorch's operator database: for each operator of tiers 1 and 2 its sample inputs, and the function that is ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

import torchgrad_jax as tj
from compat_suite.translate import named, rebound

# The database forbids the whole process to set the flags of PyTorch's backends.
with mock.patch.object(torch.backends, "disable_global_flags", lambda: None):
    from torch.testing._internal.common_methods_invocations import op_db

DTYPES = ("float32", "float64", "complex128", "int64", "bool", "bfloat16")


@dataclass
class Sample:
    """One call: arguments of PyTorch's, and what is done to its result before it is differentiated."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    processed: Callable[[Any], Any]


class Entry:
    """An operator of the database."""

    def __init__(self, info: Any) -> None:
        self.info = info
        self.name: str = info.name + ("." + info.variant_test_name if info.variant_test_name else "")
        self.theirs: Callable[..., Any] = info.get_op()
        self.ours: Callable[..., Any] | None = self._ours()

    def _ours(self) -> Any:
        info = self.info
        function = info.get_op()
        if function.__class__.__name__ == "function" and function.__module__.startswith("torch.testing"):
            return rebound(function)
        found = named(info.name)
        return found if callable(found) else getattr(tj.Tensor, info.name, None)

    def dtypes(self, backward: bool = False) -> list[str]:
        """Those of `DTYPES` that PyTorch's operator takes on a CPU."""
        info = self.info
        taken = info.supported_backward_dtypes("cpu") if backward else info.supported_dtypes("cpu")
        return [d for d in DTYPES if getattr(torch, d) in taken]

    def samples(self, dtype: str, requires_grad: bool, most: int) -> Iterator[Sample]:
        """At most `most` of its samples (0: all), spread over all of them."""
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = list(self.info.sample_inputs("cpu", getattr(torch, dtype), requires_grad=requires_grad))
        chosen = found if not most or len(found) <= most else [found[i * len(found) // most] for i in range(most)]
        for s in chosen:
            yield Sample((s.input, *s.args), dict(s.kwargs), s.output_process_fn_grad)

    def errors(self) -> list[Any]:
        """The bad inputs that the database has, each with the class and the pattern of the text of what PyTorch raises."""
        if self.info.error_inputs_func is None:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # NumPy cannot carry more than 64 dimensions from one library to the other.
            return [e for e in self.info.error_inputs("cpu") if getattr(e.sample_input.input, "ndim", 0) <= 64]

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as it is differentiated: made symmetric first, say."""
        wrapper = self.info.gradcheck_wrapper
        if wrapper.__name__ == "<lambda>":
            return lambda *args, **kwargs: function(*args, **kwargs)
        return lambda *args, **kwargs: wrapper(function, *args, **kwargs)


def entries() -> dict[str, Entry]:
    """All operators of the database by name."""
    found: dict[str, Entry] = {}
    for info in op_db:
        entry = Entry(info)
        found.setdefault(entry.name, entry)
    return found
