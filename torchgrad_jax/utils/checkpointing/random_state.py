"""The state of the random generators, kept and put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.random import default_generator, get_rng_state, set_rng_state


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The indices of the accelerators that tensors among `args` are on (in lists, tuples and dicts too), and the state of each one's generator."""
    indices = sorted({t.get_device() for t in _tensors(args) if t.device.type != "cpu"})
    return indices, [get_rng_state() for _ in indices]


def set_device_states(devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None) -> None:
    """Set the states that `get_device_states` gave. There is one generator for all devices, so `device_type` makes no difference."""
    for _, state in zip(devices, states, strict=False):
        set_rng_state(state)


def _tensors(found: Any) -> Iterator[Tensor]:
    if isinstance(found, Tensor):
        yield found
    elif isinstance(found, dict):
        yield from _tensors(list(found.values()))
    elif isinstance(found, (list, tuple)):
        for x in found:
            yield from _tensors(x)


class _Snapshot:
    """The generator's state. Those of one position are one object: asking for a state costs more than recording what a small layer computes."""

    last: _Snapshot | None = None

    def __init__(self) -> None:
        self.position, self.state = default_generator.position, default_generator.get_state()

    @staticmethod
    def now() -> _Snapshot:
        """The present one."""
        found = _Snapshot.last
        if found is None or found.position != default_generator.position:
            found = _Snapshot.last = _Snapshot()
        return found

    def back(self) -> None:
        """Put the generator where it was."""
        if default_generator.position != self.position:
            default_generator.set_state(self.state)
            default_generator.position = self.position


class RandomState:
    """What the generator's state was when this was made: recomputation draws the same numbers."""

    __slots__ = ("snapshot",)

    def __init__(self) -> None:
        self.snapshot = _Snapshot.now()

    @contextmanager
    def again(self) -> Iterator[None]:
        """Within the block the generator goes on from that state; after it, from where it was."""
        before = _Snapshot.now()
        self.snapshot.back()
        try:
            yield
        finally:
            before.back()
