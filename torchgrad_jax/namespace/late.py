"""Names of `torch` that lead to a package which is loaded when one of them is called."""

from __future__ import annotations

import pickle
from typing import Any

from torchgrad_jax import optim, serialization


def _fused_adam_(*args: Any, **kwargs: Any) -> None:
    """A step of Adam, of lists of parameters, gradients and what is remembered of them: see `Adam`."""
    optim._functional.fused_adam(*args, **kwargs)


def _fused_adamw_(*args: Any, **kwargs: Any) -> None:
    """A step of AdamW."""
    optim._functional.fused_adamw(*args, **kwargs)


def _fused_adagrad_(*args: Any, **kwargs: Any) -> None:
    """A step of Adagrad."""
    optim._functional.fused_adagrad(*args, **kwargs)


def _fused_sgd_(*args: Any, **kwargs: Any) -> None:
    """A step of SGD."""
    optim._functional.fused_sgd(*args, **kwargs)


FUNCTIONS = {f.__name__: f for f in (_fused_adam_, _fused_adamw_, _fused_adagrad_, _fused_sgd_)}


def save(
    obj: object, f: Any, pickle_module: Any = pickle, pickle_protocol: int = 2, _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:  # fmt: skip
    """Write an object to a file: see `torch.serialization.save`."""
    serialization.save(obj, f, pickle_module, pickle_protocol, _use_new_zipfile_serialization, _disable_byteorder_record)


def load(
    f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None, mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:  # fmt: skip
    """What `torch.save` wrote to a file: see `torch.serialization.load`."""
    return serialization.load(f, map_location, pickle_module, weights_only=weights_only, mmap=mmap, **pickle_load_args)
