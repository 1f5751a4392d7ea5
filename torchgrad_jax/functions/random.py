"""Random numbers: the generators, and filling tensors. All are drawn on the host in PyTorch's order, so that a seed gives PyTorch's numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.duals import passes, tangents_of
from torchgrad_jax.core.level import in_transform
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import apply_inplace, check_writable, overwrite, rewrite
from torchgrad_jax.declaration.converting import check_expands
from torchgrad_jax.declaration.operator import ARRAY
from torchgrad_jax.declaration.strides import is_contiguous
from torchgrad_jax.functions.creation import as_device, requiring
from torchgrad_jax.memory.formats import memory_order
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.kernels import generator as host
from torchgrad_jax.operators.kernels.distributions import ordered
from torchgrad_jax.runtime import device as devices
from torchgrad_jax.runtime.device import CPU, META
from torchgrad_jax.runtime.device import device as device_type
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import aval_of, constant


@public("torch")
class Generator(host.Generator):
    """`torch.Generator`: a stream of random numbers with a state of its own. It runs on the host, whatever its device is called."""

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__(device_type(device))

    def get_state(self) -> Any:
        """The state as a uint8 tensor."""
        return created(constant(super().get_state()))

    def set_state(self, new_state: Any) -> Any:
        """Take over a state that `get_state` gave. Returns self."""
        return super().set_state(np.asarray(new_state._concrete()) if isinstance(new_state, Tensor) else new_state)

    def get_offset(self) -> int:
        """RuntimeError: this stream has no offset."""
        raise RuntimeError("CPU Generator does not use offset")

    def set_offset(self, offset: int) -> None:
        """See `get_offset`."""
        self.get_offset()

    def __reduce__(self) -> Any:
        return type(self), (self.device,), (self.initial_seed(), None, self.get_state())

    def __setstate__(self, state: Any) -> None:
        self.set_state(state[2])


Generator.__module__ = "torchgrad_jax"  # where pickles look for it
default_generator = public("torch.default_generator")(Generator())
default_generator.seed()  # another one in each process; a new `Generator` begins with the same


@public("torch")
def manual_seed(seed: int) -> Generator:
    """Seed the default generator; the same seed gives PyTorch's CPU numbers."""
    default_generator.manual_seed(int(seed))
    return default_generator


@public("torch")
def seed() -> int:
    """Seed the default generator from the operating system; returns the seed."""
    return default_generator.seed()


@public("torch")
def initial_seed() -> int:
    """The seed last given to the default generator."""
    return default_generator.initial_seed()


@public("torch")
def get_rng_state() -> Tensor:
    """The default generator's state as a uint8 tensor."""
    return default_generator.get_state()


@public("torch")
def set_rng_state(new_state: Tensor) -> None:
    """Set the default generator's state."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, device_type: str = "cuda") -> Iterator[None]:
    """Restore the default generator's state when the block ends. There is one generator for all devices, so which are named makes no difference."""
    state = default_generator.get_state() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            default_generator.set_state(state)


def source_of(name: str, generator: Any) -> host.Generator:
    """Where numbers come from. TypeError for what is no generator."""
    if generator is None:
        return default_generator
    if not isinstance(generator, host.Generator):
        raise TypeError(f"{name}(): argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    return generator


def state_of_random() -> np.ndarray:
    """The default generator's state as an array."""
    return host.Generator.get_state(default_generator)


def set_state_of_random(state: np.ndarray) -> None:
    """Set the default generator's state to what `state_of_random` gave."""
    host.Generator.set_state(default_generator, state)


def drawn(make: np.ndarray | Callable[[], np.ndarray], device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of numbers that `make` draws on the host, or that were drawn."""
    level = per_thread.recorder.level
    array: Any = make
    where = CPU if device is CPU or (device is None and devices.default() is CPU) else as_device(device)
    if where is META:
        return _undrawn(make, requires_grad)
    if callable(make):
        array = make() if level is None else level.draws(make)
    array = np.ascontiguousarray(array) if array.ndim else array
    value = constant(array, aval_of(array.shape, array.dtype, where))
    if level is not None and callable(make):
        level.drew(value, make)
    return requiring(created(value), requires_grad) if requires_grad else created(value)


def _undrawn(make: np.ndarray | Callable[[], np.ndarray], requires_grad: bool) -> Tensor:
    """A tensor of the device "meta", for which no numbers are drawn: the generator is as before."""
    before = state_of_random()
    array = make() if callable(make) else make
    set_state_of_random(before)
    return requiring(created(constant(None, aval_of(array.shape, array.dtype, META))), requires_grad)


def draw(shape: tuple[int, ...], sample: Callable[[tuple[int, ...]], np.ndarray], device: Any = None, into: Tensor | None = None) -> Tensor:
    """A tensor of numbers that `sample` draws for a shape: inside of a transform perhaps for a batch of it. into: what they will be written to."""
    rec = per_thread.recorder
    if rec.rare and rec.level is not None:
        return rec.level.random(shape, lambda s: drawn(lambda: sample(s), device), into)
    if rec.level is None and (device is CPU or (device is None and devices.default() is CPU)):
        array = sample(shape)
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        return created(constant(array, aval_of(array.shape, array.dtype)))
    if shape and as_device(device) is META:
        found = _undrawn(lambda: sample((0, *shape[1:])), False)  # it may be too large to be drawn
        return created(constant(None, aval_of(shape, found._aval.dtype, META)))
    return drawn(lambda: sample(shape), device)


def at_levels(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let a function that looks at the values of tensors to draw numbers be called with what these hold, inside of a transform."""

    @functools.wraps(function)
    def _called(*args: Any, **kwargs: Any) -> Tensor:
        rec = per_thread.recorder
        if rec.rare and rec.level is not None:
            tensors = [a for a in args if isinstance(a, Tensor)]

            def with_tensors(*given: Tensor) -> Tensor:
                rest = iter(given)
                return _called(*[next(rest) if isinstance(a, Tensor) else a for a in args], **kwargs)

            found = rec.level.random_of(with_tensors, tensors) if tensors else NotImplemented
            if found is not NotImplemented:
                return found
        return function(*args, **kwargs)

    return _called


def uniform_between(shape: tuple[int, ...], dtype: np.dtype, low: float, high: float) -> np.ndarray:
    """Numbers of [low, high) from the default generator, on the host; in a complex dtype real and imaginary parts are drawn in turn."""
    if dtype.kind != "c":
        return default_generator.uniform(shape, dtype, float(low), float(high))
    parts = default_generator.uniform((*shape, 2), np.real(np.empty(0, dtype)).dtype, float(low), float(high))
    return parts.view(dtype).reshape(shape)


# Draws for a shape and a dtype; in blocks or, as PyTorch does where the target is not contiguous, one after the other.
Sample = Callable[[tuple[int, ...], np.dtype, bool], np.ndarray]


def sampled(sample: Sample, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...]) -> np.ndarray:
    """Numbers for a target of these strides, drawn in the order in which its elements lie in memory."""
    if is_contiguous(shape, strides):
        return sample(shape, dtype, True)
    return ordered(shape, memory_order(shape, strides), lambda permuted: sample(permuted, dtype, False))


# ---------------------------------------------------------------------- in place


def put(t: Tensor, array: np.ndarray | Callable[[], np.ndarray]) -> Tensor:
    """Write drawn numbers into `t`, without a graph."""
    check_writable(per_thread.recorder, t)
    rewrite(t, drawn(array, t._aval.device)._value, "random")
    return t


def followed(*tensors: Tensor) -> bool:
    """Whether a graph or forward mode follows what is done to one of these."""
    rec = per_thread.recorder
    return (rec.grad_enabled and any(t.requires_grad for t in tensors)) or (passes(rec) and bool(tangents_of(tensors)))


def fill(t: Tensor, name: str, sample: Sample) -> Tensor:
    """Fill `t` with numbers; `name`: which node a graph gets."""
    aval = t._aval
    if not per_thread.recorder.rare and t._view is None and aval.device is CPU and not followed(t):
        array = sample(aval.shape, aval.dtype, True)
        overwrite(t, constant(array if array.flags.c_contiguous else np.ascontiguousarray(array), aval))
        return t
    if aval.device is META:
        made = created(constant(None, t._aval))
        return apply_inplace(registry["copy"].bind((ARRAY, ARRAY)), (t, made))
    if in_transform():
        made = draw(t._aval.shape, lambda shape: sample(shape, t._aval.dtype, True), t.device, t)
        return apply_inplace(registry["copy"].bind((ARRAY, ARRAY)), (t, made))
    shape, dtype, strides = aval.shape, aval.dtype, t._strides()

    def make() -> np.ndarray:
        return sampled(sample, shape, dtype, strides)

    if followed(t):
        return apply_inplace(registry[f"{name}_drawn"].bind((ARRAY, ARRAY)), (t, drawn(make, t.device)))
    return put(t, make)


def _real(name: str, what: str, position: int, value: Any) -> float:
    """A number argument. TypeError for what is none."""
    if type(value) is float:
        return value
    if isinstance(value, Tensor) and value._aval.ndim == 0 and not value.requires_grad:
        value = value.item()
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}(): argument '{what}' (position {position}) must be float, not {type(value).__name__}")
    return float(value)


@public("torch.Tensor")
def uniform_(self: Tensor, *bounds: Any, generator: Any = None, **named: Any) -> Tensor:
    """``uniform_(from=0, to=1)``: fill with uniform numbers of [from, to)."""
    if len(bounds) > 2:
        raise TypeError(f"uniform_() takes from 0 to 2 positional arguments but {len(bounds)} were given")
    given = dict(zip(("from", "to"), bounds, strict=False))
    for name in named:
        if name not in ("from", "to") or name in given:
            raise TypeError(f"uniform_() got an unexpected keyword argument '{name}'")
    given |= named
    low, high = _real("uniform_", "from", 1, given.get("from", 0.0)), _real("uniform_", "to", 2, given.get("to", 1.0))
    g = source_of("uniform_", generator)
    return fill(self, "uniform", lambda shape, dtype, blocks: g.uniform(shape, dtype, low, high))


@public("torch.Tensor")
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with normal numbers."""
    g, mean, std = source_of("normal_", generator), _real("normal_", "mean", 1, mean), _real("normal_", "std", 2, std)
    return fill(self, "normal", lambda shape, dtype, blocks: g.normal(shape, dtype, mean, std, blocks))


@public("torch.Tensor")
def random_(self: Tensor, *bounds: Any, generator: Any = None, **named: Any) -> Tensor:
    """``random_()``, ``random_(to)``, ``random_(from, to)``: fill with integers of [from, to); up to the last that the dtype represents where
    there is no `to`, or it is None."""
    given = dict(zip(("to",) if len(bounds) == 1 and "to" not in named else ("from", "to"), bounds, strict=False)) | named
    wrong = len(given) != len(bounds) + len(named) or given.keys() - {"from", "to"} or "from" in given and "to" not in given
    if wrong or not all(v is None or (hasattr(v, "__index__") and not isinstance(v, bool)) for v in given.values()):
        shown = [*(type(v).__name__ for v in bounds), *(f"{k}={type(v).__name__}" for k, v in named.items())]
        raise TypeError(
            f"random_() received an invalid combination of arguments - got ({', '.join(shown)}), but expected one of:\n"
            " * (*, torch.Generator generator = None)\n * (int from, int to, *, torch.Generator generator = None)\n"
            " * (int to, *, torch.Generator generator = None)\n"
        )
    low, high = (None if given.get(n) is None else int(given[n]) for n in ("from", "to"))
    g, kind = source_of("random_", generator), {0: "random", 1: "random_to", 2: "random_from_to"}[len(given)]
    return fill(self, kind, lambda shape, dtype, blocks: g.random(shape, dtype, low, high))


@public("torch.Tensor")
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fill with ones with probability p (a number, or a tensor of them), else zeros."""
    g = source_of("bernoulli_", generator)
    if not isinstance(p, Tensor):
        number = _real("bernoulli_", "p", 1, p)
        return fill(self, "bernoulli", lambda shape, dtype, blocks: g.bernoulli(number, shape, dtype))
    if in_transform():
        found = per_thread.recorder.level.random_of(
            lambda t: drawn(g.bernoulli_tensor(np.asarray(t._concrete())), t.device), [p.expand(self._aval.shape)]
        )
        return apply_inplace(registry["copy"].bind((ARRAY, ARRAY)), (self, found))
    sample = by_probabilities(g, p, self._aval.shape, self._strides())
    if followed(self) or (per_thread.recorder.grad_enabled and p.requires_grad):
        made = drawn(sampled(sample, self._aval.shape, self._aval.dtype, self._strides()), self.device)
        return apply_inplace(registry["bernoulli_of_tensor_drawn"].bind((ARRAY,) * 3), (self, p, made))
    return fill(self, "bernoulli", sample)


def by_probabilities(g: host.Generator, p: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Sample:
    """Bernoulli numbers for a target of this shape and these strides. RuntimeError where p does not expand to it."""
    check_expands(p._aval, shape)
    probabilities = np.broadcast_to(np.asarray(p._concrete()), shape)
    if not is_contiguous(shape, strides):
        probabilities = probabilities.transpose(memory_order(shape, strides))
    return lambda permuted, dtype, blocks: g.bernoulli_tensor(probabilities, dtype)


@public("torch.Tensor")
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with exponentially distributed numbers of rate lambd."""
    g, lambd = source_of("exponential_", generator), _real("exponential_", "lambd", 1, lambd)
    return fill(self, "exponential", lambda shape, dtype, blocks: g.exponential(shape, dtype, lambd))


@public("torch.Tensor")
def geometric_(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Fill with the numbers of trials up to the first success of probability p."""
    g, p = source_of("geometric_", generator), _real("geometric_", "p", 1, p)
    return fill(self, "geometric", lambda shape, dtype, blocks: g.geometric(p, shape, dtype))


@public("torch.Tensor")
def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with Cauchy numbers."""
    g, median, sigma = source_of("cauchy_", generator), _real("cauchy_", "median", 1, median), _real("cauchy_", "sigma", 2, sigma)
    return fill(self, "cauchy", lambda shape, dtype, blocks: g.cauchy(shape, dtype, median, sigma))


@public("torch.Tensor")
def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    """Fill with numbers whose logarithm is normal."""
    g, mean, std = source_of("log_normal_", generator), _real("log_normal_", "mean", 1, mean), _real("log_normal_", "std", 2, std)
    return fill(self, "log_normal", lambda shape, dtype, blocks: g.log_normal(shape, dtype, mean, std))
