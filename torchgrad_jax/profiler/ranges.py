"""`emit_nvtx` and `emit_itt`: operations as ranges for NVIDIA's and Intel's profilers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torchgrad_jax.profiler.watching import FORWARD, USER, Watch


class _Ranges(Watch):
    """Pushes a range for what begins, and pops it when it is over."""

    def __init__(self, push: Callable[[str], Any], pop: Callable[[], Any], shapes: bool) -> None:
        super().__init__(shapes=shapes)
        self.push, self.pop = push, pop

    def begin(self, name: str, scope: int = FORWARD, sequence: int = -1, fwd_thread: int = 0, shapes: Any = (), inputs: Any = ()) -> None:
        """See Watch."""
        parts = [name]
        if scope != USER:
            if fwd_thread:
                parts.append(f"stashed seq = {sequence}")
            elif sequence >= 0:
                parts.append(f"seq = {sequence}")
            if self.shapes and shapes:
                parts.append(f"sizes = {[list(s) for s in shapes]}")
        self.push(", ".join(parts))

    def end(self, begun: Any) -> None:
        """See Watch."""
        self.pop()

    def begin_range(self, name: str, inputs: Any = ()) -> None:
        """The user's range begins."""
        self.begin(name, USER)


class _Emitting:
    """A context manager within which operations are ranges."""

    _entered_twice: str

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled, self.record_shapes = enabled, record_shapes
        self.entered = False
        self._watch: _Ranges | None = None

    def _ranges(self) -> tuple[Callable[[str], Any], Callable[[], Any]]:
        raise NotImplementedError

    def __enter__(self) -> Any:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError(self._entered_twice)
        push, pop = self._ranges()
        self.entered = True
        self._watch = _Ranges(push, pop, self.record_shapes)
        self._watch.start()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> bool | None:
        if not self.enabled or self._watch is None:
            return None
        self._watch.stop()
        self._watch = None
        return False


def _package(name: str, what: str, tool: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RuntimeError(
            f"{what} pushes ranges by the package {name!r}, which is not installed: pip install {name}. Without {tool}, "
            "torch.autograd.profiler.profile shows the same operations."
        ) from error


class emit_nvtx(_Emitting):
    """Context manager that makes every operation an NVTX range, for Nsight Systems and nvprof. It needs the package ``nvtx``.

    enabled: False makes it do nothing. record_shapes: the names of ranges have the shapes of arguments.

    A forward operation's range has ``seq = N``, a backward function's ``stashed seq = N``: the same N where one belongs to the other. RuntimeError
    where ``nvtx`` is not installed, or if it is entered twice.
    """

    _entered_twice = "NVTX annotation context manager is not reentrant"

    def _ranges(self) -> tuple[Callable[[str], Any], Callable[[], Any]]:
        nvtx = _package("nvtx", "emit_nvtx", "NVIDIA's profilers")
        return nvtx.push_range, nvtx.pop_range


class emit_itt(_Emitting):
    """Context manager that makes every operation a task of Intel's ITT, for VTune. It needs the package ``ittapi``.

    enabled, record_shapes, and the names of ranges: see `emit_nvtx`. RuntimeError where ``ittapi`` is not installed, or if it is entered twice.
    """

    _entered_twice = "ITT annotation context manager is not reentrant"

    def _ranges(self) -> tuple[Callable[[str], Any], Callable[[], Any]]:
        package = _package("ittapi", "emit_itt", "VTune")
        domain = package.domain("PyTorch")
        return (lambda name: package.task_begin(domain, package.string_handle(name))), (lambda: package.task_end(domain))
