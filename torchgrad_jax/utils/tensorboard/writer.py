"""`torch.utils.tensorboard.writer`: the writer of tensorboardX, which is given tensors as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.converting import is_half
from torchgrad_jax.lifting.trees import tree_map
from torchgrad_jax.runtime.passing_through import refused

try:
    import tensorboardX  # type: ignore[import-not-found] - an extra
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "torch.utils.tensorboard needs the package tensorboardX: pip install 'torchgrad_jax[tensorboard]'", name=error.name
    ) from None

__all__ = ["SummaryWriter"]


def _plain(value: Any) -> Any:
    """A tensor as the NumPy array that the files can hold."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().cpu()
    return (value.float() if is_half(value._aval.dtype) else value).numpy()


def _of_arrays(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *tree_map(_plain, list(args)), **tree_map(_plain, kwargs))

    return write


class SummaryWriter(tensorboardX.SummaryWriter):
    """Writes what TensorBoard shows into a folder: `log_dir`, or runs/ with the time and the machine's name. Tensors are written as they are."""

    def __init__(
        self, log_dir: Any = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10, flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:  # fmt: skip
        super().__init__(
            logdir=None if log_dir is None else str(log_dir), comment=comment, purge_step=purge_step, max_queue=max_queue, flush_secs=flush_secs,
            filename_suffix=filename_suffix,
        )  # fmt: skip

    @property
    def log_dir(self) -> str:
        """The folder."""
        return self.logdir

    def get_logdir(self) -> str:
        """The folder."""
        return self.logdir


for _name in dir(tensorboardX.SummaryWriter):
    if _name.startswith("add_"):
        setattr(SummaryWriter, _name, _of_arrays(getattr(tensorboardX.SummaryWriter, _name)))
SummaryWriter.add_graph = refused("SummaryWriter.add_graph", "it shows graphs of TorchScript; torchgrad_jax.viz draws the graph of a result")
