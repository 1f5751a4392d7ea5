"""What JAX says of the GPUs of this process, for `torch.cuda` and its neighbours. Asking starts JAX's backend."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime.device import device, gpus, jax_device, select_gpu, selected_gpu
from torchgrad_jax.runtime.recorder import recorder


def index_of(where: Any) -> int:
    """Which GPU is meant: None is the current one. ValueError for what is no GPU."""
    if where is None:
        return selected_gpu()
    if isinstance(where, int):
        return selected_gpu() if where < 0 else where
    found = device(where)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    return selected_gpu() if found.index is None else found.index


def gpu(where: Any = None) -> Any:
    """The JAX device that is meant. AssertionError, PyTorch's class, where there is none at all, RuntimeError for one that is not there."""
    return jax_device(device("cuda", index_of(where)))


def set_gpu(where: Any) -> None:
    """Make a GPU the one that ``"cuda"`` means from here on; a negative number changes nothing."""
    if isinstance(where, int) and where < 0:
        return
    gpu(where)
    select_gpu(index_of(where))


def memory(where: Any = None) -> dict[str, int]:
    """What JAX counts of a GPU's memory; nothing where there is no GPU, or where its allocator does not count."""
    return dict(gpu(where).memory_stats() or {}) if gpus() else {}


def wait(where: Any = None) -> None:
    """Run what this thread has recorded and wait until a GPU is done with all that it was given."""
    import jax

    recorder().flush("synchronize")
    target = gpu(where)
    # A device carries out what it is given in order.
    jax.device_put(0, target).block_until_ready()
    for array in jax.live_arrays():
        if target in array.devices() and not array.is_deleted():
            array.block_until_ready()
