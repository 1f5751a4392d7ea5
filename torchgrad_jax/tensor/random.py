"""Random tensors: drawn on the host in PyTorch's order, so that the same seed gives PyTorch's numbers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import numpy as np
from jax import numpy as jnp

from torchgrad_jax.ops import dtypes
from torchgrad_jax.ops import generator as host
from torchgrad_jax.ops.declare import ARRAY, NOT_IMPLEMENTED, no_derivative, op, registry
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import aval_of, constant
from torchgrad_jax.tensor.creation import _requiring, _sizes, as_device
from torchgrad_jax.tensor.duals import seen_tangent, write_tangent, zeros_like
from torchgrad_jax.tensor.gathering import call
from torchgrad_jax.tensor.inplace import apply_inplace, check_writable, overwrite
from torchgrad_jax.tensor.tensor import Tensor, created


class Generator(host.Generator):
    """`torch.Generator`: a stream of random numbers with a state of its own."""

    def get_state(self) -> Any:
        """The state as a uint8 tensor."""
        return created(constant(super().get_state()))

    def set_state(self, new_state: Any) -> None:
        """Take over a state that `get_state` gave."""
        super().set_state(np.asarray(new_state._concrete()) if isinstance(new_state, Tensor) else new_state)


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator; the same seed gives PyTorch's CPU numbers."""
    default_generator.manual_seed(int(seed))
    return default_generator


def seed() -> int:
    """Seed the default generator from the operating system; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed last given to the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state as a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the default generator's state."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Any = (), enabled: bool = True) -> Any:
    """Restore the default generator's state when the block ends."""
    state = default_generator.get_state() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            default_generator.set_state(state)


def drawn(array: np.ndarray, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of numbers drawn on the host."""
    return _requiring(created(constant(array, aval_of(array.shape, array.dtype, as_device(device)))), requires_grad)


def uniform_between(shape: tuple[int, ...], dtype: np.dtype, low: float, high: float) -> np.ndarray:
    """Numbers of [low, high) from the default generator, on the host; in a complex dtype real and imaginary parts are drawn in turn."""
    if dtype.kind != "c":
        return default_generator.uniform(shape, dtype, float(low), float(high))
    parts = default_generator.uniform((*shape, 2), np.real(np.empty(0, dtype)).dtype, float(low), float(high))
    return parts.view(dtype).reshape(shape)


# ---------------------------------------------------------------------- factories


def _shape_and_options(size: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[int, ...], np.dtype, host.Generator, dict[str, Any]]:
    if "size" in kwargs:
        size = (kwargs.pop("size"),)
    dtype = kwargs.pop("dtype", None)
    generator = kwargs.pop("generator", None) or default_generator
    for ignored in ("layout", "pin_memory", "memory_format"):
        kwargs.pop(ignored, None)
    return _sizes(size), dtypes.default_float() if dtype is None else dtype.np, generator, kwargs


def rand(*size: Any, **kwargs: Any) -> Tensor:
    """Uniform numbers of [0, 1). Keywords: generator, dtype, device, requires_grad."""
    shape, dtype, generator, rest = _shape_and_options(size, kwargs)
    return drawn(generator.uniform(shape, dtype), **rest)


def randn(*size: Any, **kwargs: Any) -> Tensor:
    """Normal numbers of mean 0 and variance 1. Keywords: generator, dtype, device, requires_grad."""
    shape, dtype, generator, rest = _shape_and_options(size, kwargs)
    return drawn(generator.normal(shape, dtype), **rest)


def randint(*args: Any, **kwargs: Any) -> Tensor:
    """``randint(low=0, high, size)``: integers of [low, high). Keywords: generator, dtype (int64), device."""
    low, high = kwargs.pop("low", None), kwargs.pop("high", None)
    values = list(args)
    if "size" not in kwargs:
        kwargs["size"] = values.pop()
    numbers = [v for v in (low, *values, high) if v is not None]
    low, high = numbers if len(numbers) == 2 else (0, numbers[0])
    kwargs.setdefault("dtype", dtypes.int64)
    shape, dtype, generator, rest = _shape_and_options((), kwargs)
    return drawn(generator.randint(int(low), int(high), shape, dtype), **rest)


def randperm(n: int, **kwargs: Any) -> Tensor:
    """A permutation of 0 .. n-1. Keywords: generator, dtype (int64), device."""
    kwargs.setdefault("dtype", dtypes.int64)
    _, dtype, generator, rest = _shape_and_options((), kwargs)
    return drawn(generator.randperm(n, dtype), **rest)


def _like(t: Tensor, kwargs: dict[str, Any]) -> dict[str, Any]:
    kwargs["dtype"] = kwargs.get("dtype") or t.dtype
    kwargs["device"] = kwargs.get("device") or t.device
    return kwargs


def rand_like(input: Tensor, **kwargs: Any) -> Tensor:
    """Uniform numbers of [0, 1) in the shape, dtype and device of `input`."""
    return rand(*input.shape, **_like(input, kwargs))


def randn_like(input: Tensor, **kwargs: Any) -> Tensor:
    """Normal numbers in the shape, dtype and device of `input`."""
    return randn(*input.shape, **_like(input, kwargs))


def randint_like(input: Tensor, *bounds: int, **kwargs: Any) -> Tensor:
    """Integers of [low, high) in the shape, dtype and device of `input`."""
    return randint(*bounds, size=tuple(input.shape), **_like(input, kwargs))


def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, **kwargs: Any) -> Tensor:
    """Normal numbers; `mean` and `std` are numbers (then `size` is needed) or tensors."""
    source = generator or default_generator
    if size is not None:
        dtype = kwargs.pop("dtype", None)
        return drawn(source.normal(_sizes((size,)), dtypes.default_float() if dtype is None else dtype.np, float(mean), float(std)), **kwargs)
    host_values = [np.asarray(v._concrete()) if isinstance(v, Tensor) else v for v in (mean, std)]
    given = [v for v in (mean, std) if isinstance(v, Tensor)]
    node = "NormalBackward3" if len(given) == 2 else "NormalBackward1" if given[0] is mean else "NormalBackward2"
    return _drawn_of(node, drawn(source.normal_tensor(*host_values), given[0].device), *given)


def bernoulli(input: Tensor, p: float | None = None, *, generator: Any = None) -> Tensor:
    """Ones with the probabilities `input` holds (or with probability `p`), else zeros."""
    source = generator or default_generator
    if p is not None:
        made = drawn(source.bernoulli(p, tuple(input.shape), input._aval.dtype), input.device)
        tracked = per_thread.recorder.grad_enabled and input.requires_grad
        return call("bernoulli_of_number", input, made) if tracked else made
    return _drawn_of("BernoulliBackward0", drawn(source.bernoulli_tensor(np.asarray(input._concrete())), input.device), input)


def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """Indices drawn by the weights in each row of `input`. Looks at the weights."""
    return drawn((generator or default_generator).multinomial(np.asarray(input._concrete()), num_samples, replacement), input.device)


def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Poisson numbers of the rates in `input`. Looks at the rates."""
    return _drawn_of("PoissonBackward0", drawn((generator or default_generator).poisson(np.asarray(input._concrete())), input.device), input)


# ---------------------------------------------------------------------- in place

_NODES = {
    "uniform": "UniformBackward0", "normal": "NormalBackward0", "exponential": "ExponentialBackward0", "geometric": "GeometricBackward0",
    "cauchy": "CauchyBackward0", "log_normal": "LogNormalBackward0", "bernoulli": "BernoulliBackward2",
    "random": "RandomBackward2", "random_to": "RandomBackward1", "random_from_to": "RandomBackward0",
}  # fmt: skip
for _name, _node in _NODES.items():

    @op(f"{_name}_drawn(Tensor self, Tensor src)", method=False, toplevel=False, node=_node,
        grads={"self": lambda grad: grad * 0})  # fmt: skip
    def _replace(x: Any, src: Any) -> Any:
        return src


@op("bernoulli_of_tensor_drawn(Tensor self, Tensor p, Tensor src)", method=False, toplevel=False, node="BernoulliBackward1",
    grads={"self": lambda grad: grad * 0, "p": lambda grad: jnp.zeros((), grad.dtype)})  # fmt: skip
def _replace_by_tensor(x: Any, p: Any, src: Any) -> Any:
    return src


@op("_drawn_of(Tensor self, Tensor src, str node)", method=False, toplevel=False, edges=("self",), node=lambda node: node,
    grads={"self": lambda grad: grad * 0})  # fmt: skip
def _of_one(x: Any, src: Any, node: str) -> Any:
    return src


@op("_drawn_of_two(Tensor self, Tensor other, Tensor src, str node)", method=False, toplevel=False, edges=("self", "other"),
    node=lambda node: node, grads={n: lambda grad: jnp.zeros((), grad.dtype) for n in ("self", "other")})  # fmt: skip
def _of_two(x: Any, y: Any, src: Any, node: str) -> Any:
    return src


@op("bernoulli_of_number(Tensor self, Tensor src)", method=False, toplevel=False, node=NOT_IMPLEMENTED, grads={"self": no_derivative("bernoulli")})
def _of_number(x: Any, src: Any) -> Any:
    return src


def _drawn_of(node: str, made: Tensor, *inputs: Tensor) -> Tensor:
    """The drawn numbers, with PyTorch's node where an input needs a gradient: it gets zeros."""
    recording = per_thread.recorder.grad_enabled and any(t.requires_grad for t in inputs)
    if not recording and all(seen_tangent(t) is None for t in inputs):
        return made
    return call("_drawn_of" if len(inputs) == 1 else "_drawn_of_two", *inputs, made, node)


def _fill(t: Tensor, name: str, array: np.ndarray) -> Tensor:
    """Write drawn numbers into `t`."""
    source = drawn(array, t.device)
    rec = per_thread.recorder
    if rec.grad_enabled and t.requires_grad:
        return apply_inplace(registry[f"{name}_drawn"].bind((ARRAY, ARRAY)), (t, source))
    check_writable(rec, t)
    overwrite(t, source._value)
    if seen_tangent(t) is not None:
        write_tangent(t, zeros_like(t))
    return t


def uniform_(self: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Any = None, **kwargs: Any) -> Tensor:
    """Fill with uniform numbers of [from, to)."""
    low = kwargs.pop("from", from_)
    return _fill(self, "uniform", (generator or default_generator).uniform(tuple(self.shape), self._aval.dtype, float(low), float(to)))


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with normal numbers."""
    return _fill(self, "normal", (generator or default_generator).normal(tuple(self.shape), self._aval.dtype, float(mean), float(std)))


def random_(self: Tensor, from_: int | None = None, to: int | None = None, *, generator: Any = None) -> Tensor:
    """Fill with integers: of [from, to), of [0, to) if one number is given, of all that the dtype represents if none is."""
    if to is None and from_ is not None:
        from_, to = None, from_
    kind = "random" if to is None else "random_to" if from_ is None else "random_from_to"
    return _fill(self, kind, (generator or default_generator).random(tuple(self.shape), self._aval.dtype, from_, to))


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fill with ones with probability p (a number, or a tensor of them), else zeros."""
    source = generator or default_generator
    if isinstance(p, Tensor):
        probabilities = np.broadcast_to(np.asarray(p._concrete()), tuple(self.shape))
        made = source.bernoulli_tensor(probabilities, self._aval.dtype)
        if per_thread.recorder.grad_enabled and (self.requires_grad or p.requires_grad):
            return apply_inplace(registry["bernoulli_of_tensor_drawn"].bind((ARRAY,) * 3), (self, p, drawn(made, self.device)))
        return _fill(self, "bernoulli", made)
    return _fill(self, "bernoulli", source.bernoulli(float(p), tuple(self.shape), self._aval.dtype))


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with exponentially distributed numbers of rate lambd."""
    return _fill(self, "exponential", (generator or default_generator).exponential(tuple(self.shape), self._aval.dtype, float(lambd)))


def geometric_(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Fill with the numbers of trials up to the first success of probability p."""
    return _fill(self, "geometric", (generator or default_generator).geometric(float(p), tuple(self.shape), self._aval.dtype))


def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with Cauchy numbers."""
    return _fill(self, "cauchy", (generator or default_generator).cauchy(tuple(self.shape), self._aval.dtype, float(median), float(sigma)))


def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    """Fill with numbers whose logarithm is normal."""
    return _fill(self, "log_normal", (generator or default_generator).log_normal(tuple(self.shape), self._aval.dtype, float(mean), float(std)))


TOPLEVEL = {
    "Generator": Generator, "default_generator": default_generator, "manual_seed": manual_seed, "seed": seed, "initial_seed": initial_seed,
    "get_rng_state": get_rng_state, "set_rng_state": set_rng_state, "rand": rand, "randn": randn, "randint": randint, "randperm": randperm,
    "rand_like": rand_like, "randn_like": randn_like, "randint_like": randint_like, "normal": normal, "bernoulli": bernoulli,
    "multinomial": multinomial, "poisson": poisson,
}  # fmt: skip
METHODS = {
    "uniform_": uniform_, "normal_": normal_, "random_": random_, "bernoulli_": bernoulli_, "bernoulli": bernoulli, "exponential_": exponential_,
    "geometric_": geometric_, "cauchy_": cauchy_, "log_normal_": log_normal_, "multinomial": multinomial,
}  # fmt: skip
