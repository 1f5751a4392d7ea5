"""The modes of a thread: whether operations extend the graph, whether what they make is for inference only, and how backward works."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.calling.kinds import type_name
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.memory.storage import Superseded, View
from torchgrad_jax.runtime.recorder import Recorder, per_thread

__all__ = [
    "no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "set_multithreading_enabled", "enforce_grad_layout_policy", "is_grad_enabled",
    "is_inference_mode_enabled", "is_multithreading_enabled", "is_view_replay_enabled",
]  # fmt: skip


# ---------------------------------------------------------------------- what holds in this thread


def is_grad_enabled() -> bool:
    """Whether grad mode is on in the calling thread: whether operations are recorded in a graph, outside inference mode."""
    rec = per_thread.recorder
    return rec.flags.grad_in_inference if rec.inference else rec.grad_enabled


def is_inference_mode_enabled() -> bool:
    """Whether the calling thread is in inference mode."""
    return per_thread.recorder.inference


def is_multithreading_enabled() -> bool:
    """Whether backward may use several threads."""
    return per_thread.recorder.flags.multithreading


def is_view_replay_enabled() -> bool:
    """Whether views made now get their grad_fn anew, after a write to their base, by their operations done again."""
    return per_thread.recorder.flags.view_replay


def _is_grad_layout_enforcement_enabled() -> bool:
    return per_thread.recorder.flags.grad_layout


def exchange_grad_mode(mode: bool) -> bool:
    """Set the grad mode of the calling thread. Returns what it was."""
    rec = per_thread.recorder
    if rec.inference:  # nothing is recorded in inference mode, whatever the grad mode
        before = rec.flags.grad_in_inference
        rec.flags.grad_in_inference = mode
    else:
        before = rec.grad_enabled
        rec.grad_enabled = mode
    return before


def _set_inference(rec: Recorder, mode: bool) -> None:
    rec.rare += mode - rec.inference
    rec.inference = mode


# ---------------------------------------------------------------------- contexts that decorate


class Mode:
    """A context manager that decorates functions and generators too."""

    def clone(self) -> Mode:
        """A fresh context of the same mode: a decorated function may recurse."""
        return type(self)()

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError

    def __call__(self, function: Any) -> Any:
        if inspect.isclass(function):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or methods. To "
                "preserve the current behavior of class decoration, you can directly decorate the `__init__` method and nothing else.",
                FutureWarning,
                stacklevel=2,
            )
        if inspect.isgeneratorfunction(function):
            return _wrap_generator(self.clone, function)

        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return within


def _wrap_generator(context: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The mode holds while the generator's own code runs, not between its yields."""

    @functools.wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        try:
            with context():
                response = made.send(None)
            while True:
                try:
                    request = yield response
                except GeneratorExit:
                    with context():
                        made.close()
                    raise
                except BaseException as error:
                    with context():
                        response = made.throw(error)
                else:
                    with context():
                        response = made.send(request)
        except StopIteration as stop:
            return stop.value

    return generator


# ---------------------------------------------------------------------- grad mode


class _GradMode(Mode):
    """A grad mode. It may be entered again while it holds."""

    mode: bool
    _previous: list[bool]

    def __init__(self) -> None:
        self._previous = []

    def __enter__(self) -> None:
        self.prev = exchange_grad_mode(self.mode)
        self._previous.append(self.prev)

    def __exit__(self, *exc: object) -> None:
        exchange_grad_mode(self._previous.pop())


class _OptionalCall(_GradMode):
    """`@no_grad` without parentheses decorates too."""

    def __new__(cls, function: Any = None) -> Any:
        made = object.__new__(cls)
        if function is None:
            return made
        made.__init__()
        return made(function)

    def __init__(self, function: Any = None) -> None:
        self._previous = []


class no_grad(_OptionalCall):
    """Operations inside are not recorded in a graph. Context manager and decorator."""

    mode = prev = False


class enable_grad(_OptionalCall):
    """Operations inside are recorded in a graph, also within `no_grad`. Context manager and decorator."""

    mode = True


class set_grad_enabled(_GradMode):
    """Set grad mode: at once when called, until the end of the block when used as context manager. TypeError where `mode` is no bool."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        _expect_bool("set_grad_enabled", "enabled", mode)
        self.mode = mode
        self.prev = exchange_grad_mode(mode)

    def __enter__(self) -> None:
        self._previous.append(self.prev)
        exchange_grad_mode(self.mode)

    def __call__(self, function: Any) -> Any:
        exchange_grad_mode(self.prev)
        return super().__call__(function)

    def __repr__(self) -> str:
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.mode})"

    def clone(self) -> _GradMode:
        """See Mode."""
        return type(self)(self.mode)


class inference_mode(Mode):
    """Operations inside are not recorded, and what they allocate are inference tensors: they have no version counter, may be written to in
    inference mode only, and cannot be saved for backward. ``inference_mode(False)`` is the ordinary mode inside such a block. Context manager and
    decorator."""

    def __new__(cls, mode: Any = True) -> Any:
        return object.__new__(cls) if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode: Any = True) -> None:
        self.mode: bool = mode
        self._previous: list[tuple[bool, bool, bool]] = []

    def __enter__(self) -> None:
        rec = per_thread.recorder
        self._previous.append((rec.inference, rec.grad_enabled, is_grad_enabled()))
        _set_inference(rec, self.mode)
        rec.grad_enabled = not self.mode
        rec.flags.grad_in_inference = False

    def __exit__(self, *exc: object) -> None:
        rec = per_thread.recorder
        inference, rec.grad_enabled, rec.flags.grad_in_inference = self._previous.pop()
        _set_inference(rec, inference)

    def clone(self) -> inference_mode:
        """See Mode."""
        return type(self)(self.mode)


# ---------------------------------------------------------------------- how backward works


class _Switch(Mode):
    """One of a thread's settings: changed at once when made; the end of a block puts back what was there before."""

    # The flag, and PyTorch's name of the function that sets it.
    setting: str
    setter: str

    def __init__(self, mode: bool) -> None:
        flags = per_thread.recorder.flags
        _expect_bool(self.setter, "enabled", mode)
        self.mode, self.prev = mode, getattr(flags, self.setting)
        setattr(flags, self.setting, mode)

    def __enter__(self) -> None:
        """It holds already."""

    def __exit__(self, *exc: object) -> None:
        setattr(per_thread.recorder.flags, self.setting, self.prev)

    def __call__(self, function: Any) -> Any:
        self.__exit__()
        return super().__call__(function)

    def clone(self) -> _Switch:
        """See Mode."""
        return type(self)(self.mode)


class set_multithreading_enabled(_Switch):
    """Whether backward may use several threads. Here it never does: XLA runs the whole pass, with its own threads."""

    setting, setter = "multithreading", "set_multithreading_enabled"

    def __call__(self, function: Any) -> Any:
        return Mode.__call__(self, function)  # as in PyTorch, decorating with this one leaves it changed


class enforce_grad_layout_policy(_Switch):
    """Whether the first `.grad` of a leaf must have its strides, or may have those with which it came."""

    setting, setter = "grad_layout", "set_grad_layout_enforcement_enabled"

    def __init__(self, enable: bool = True) -> None:
        super().__init__(enable)


class _force_original_view_tracking(_Switch):
    """Whether views made now get their grad_fn anew, after a write to their base, by their operations done again: ``ViewBackward0`` instead of
    ``AsStridedBackward0``."""

    setting, setter = "view_replay", "set_view_replay_enabled"

    def __init__(self, mode: bool) -> None:
        View.replayed_somewhere = True
        super().__init__(mode)


class _unsafe_preserve_version_counter(Mode):
    """Hide writes to `tensors`, a tensor or a tuple of them, from autograd: the end of the block puts their versions back as they were when this was
    made. What was saved for backward is then the new content. AssertionError for anything else; RuntimeError for inference tensors."""

    def __init__(self, tensors: Tensor | tuple[Tensor, ...]) -> None:
        self.tensors = (tensors,) if isinstance(tensors, Tensor) else tensors
        if not isinstance(self.tensors, tuple):
            raise AssertionError("Expected tensors to be a tuple")
        self.prev_versions = tuple([t._version for t in self.tensors])
        self._before = [(t._shared().value, t._content()) for t in self.tensors]

    def __enter__(self) -> None:
        """Versions are counted on inside."""

    def __exit__(self, *exc: object) -> None:
        for t, version, (whole, part) in zip(self.tensors, self.prev_versions, self._before, strict=True):
            t._shared().set_version(version, whole)
            present = t._content()
            present.version = version
            if present is not part:
                part.counter = Superseded(present)


def _unsafe_set_version_counter(tensors: Sequence[Tensor], versions: Sequence[int]) -> None:
    """Let the version counters of tensors go on from other versions. RuntimeError for inference tensors and negative versions."""
    if len(tensors) != len(versions):
        raise RuntimeError(f"tensors_len={len(tensors)}, versions_len={len(versions)}")
    for t, version in zip(tensors, versions, strict=True):
        if t.is_inference():
            raise RuntimeError(
                "Tried to call torch.autograd._unsafe_set_version() on a tensor that does not have a version counter. Was it created in inference "
                "mode?"
            )
        if version < 0:
            raise RuntimeError(f"Cannot set a version_counter to a value below 0: {version}")
        t._shared().set_version(version)


def _expect_bool(function: str, argument: str, given: Any) -> None:
    if not isinstance(given, bool):
        raise TypeError(f"{function}(): argument '{argument}' (position 1) must be bool, not {type_name(given)}")
