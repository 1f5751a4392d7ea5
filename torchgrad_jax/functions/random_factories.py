"""Random tensors made anew: `rand`, `randn`, `normal`, `bernoulli` and the like."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.calling.expecting import expect_tensor, not_a_tensor
from torchgrad_jax.calling.factory_options import check_memory, sizes_alone
from torchgrad_jax.calling.out import check_out, resize
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.level import in_transform
from torchgrad_jax.core.made import created
from torchgrad_jax.core.order import keep_order, lay_out, plain
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.declaration.memory_order import dense_order, strides_in
from torchgrad_jax.declaration.strides import contiguous_strides
from torchgrad_jax.functions.creation import checked_dtype, checked_sizes, requiring
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.random import Sample, at_levels, by_probabilities, default_generator, draw, drawn, followed, put, sampled, source_of
from torchgrad_jax.functions.resizing import resize_
from torchgrad_jax.functions.views import reshape
from torchgrad_jax.memory.formats import FORMATS, memory_order, preserve_format
from torchgrad_jax.operators.kernels import generator as host
from torchgrad_jax.operators.kernels.counts import check_multinomial
from torchgrad_jax.operators.kernels.distributions import normal_around, random_from_to, standard_normal, uniform
from torchgrad_jax.runtime import device as devices
from torchgrad_jax.runtime.device import CPU, META
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import aval_of, constant

# ---------------------------------------------------------------------- arguments


class Options(NamedTuple):
    """What the keywords of a factory say."""

    dtype: np.dtype | None
    generator: host.Generator
    out: Tensor | None
    format: Any
    device: Any
    requires_grad: bool


_INT64 = np.dtype(np.int64)
_KEYWORDS = frozenset(("dtype", "layout", "device", "requires_grad", "pin_memory", "generator"))


def _given(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
    shown = [*(type(a).__name__ for a in args), *(f"{k}={type(v).__name__}" for k, v in kwargs.items())]
    return TypeError(f"{name}() received an invalid combination of arguments - got ({', '.join(shown)})")


def _options(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], more: str = "out") -> Options:
    """The keywords understood; those that are no keywords of `name` raise TypeError, a kind of memory that there is none of RuntimeError."""
    dtype, generator = kwargs.get("dtype"), kwargs.get("generator")
    known = all(k in _KEYWORDS or k == more for k in kwargs)
    if not known or (generator is not None and not isinstance(generator, host.Generator)):
        raise _given(name, args, kwargs)
    check_memory(name, kwargs)
    if dtype is not None:
        if not isinstance(dtype, dtypes.dtype | type):
            raise _given(name, args, kwargs)
        dtype = np.dtype(checked_dtype(name, dtype).np)
    out, requires_grad = kwargs.get("out"), kwargs.get("requires_grad", False)
    return Options(dtype, generator or default_generator, out, kwargs.get("memory_format"), kwargs.get("device"), requires_grad)


class _Plain(NamedTuple):
    """What keywords say that leave a new tensor on the CPU."""

    dtype: np.dtype | None
    generator: host.Generator
    requires_grad: bool

    def draw(self, shape: tuple[int, ...], sample: Callable[[host.Generator, tuple[int, ...], np.dtype | None], np.ndarray]) -> Tensor:
        """New numbers of a shape, by `sample` of a generator, a shape and a dtype."""
        made = draw(shape, lambda size: sample(self.generator, size, self.dtype), CPU)
        return requiring(made, True) if self.requires_grad else made


def _plainly(kwargs: dict[str, Any], floating: bool) -> _Plain | None:
    """The keywords, where they are no more than a dtype (a floating one, or int64), a generator, requires_grad and the CPU; None where there is more
    to see to."""
    dtype, source, requires_grad, where = None, default_generator, False, None
    for key, value in kwargs.items():
        if key == "device" and (value is CPU or (type(value) is str and value == "cpu")):
            where = CPU
        elif key == "dtype" and type(value) is dtypes.dtype and (value.is_floating_point if floating else value.np == _INT64):
            dtype = value.np
        elif key == "requires_grad" and type(value) is bool:
            requires_grad = value
        elif key == "generator" and isinstance(value, host.Generator):
            source = value
        elif value is not None or key not in ("device", "dtype", "generator"):
            return None
    return _Plain(dtype, source, requires_grad) if where is CPU or devices.default() is CPU else None


def _made(shape: tuple[int, ...], otherwise: np.dtype, options: Options, sample: Sample) -> Tensor:
    """New numbers, or `out=` resized and filled with them."""
    out = options.out
    if out is None:
        made = draw(shape, lambda s: sample(s, options.dtype or otherwise, True), options.device)
        return requiring(made, options.requires_grad)
    if options.dtype not in (None, out._aval.dtype):
        raise RuntimeError(f"dtype {dtypes.of(options.dtype).title} does not match dtype of out parameter ({out.dtype.title})")
    return _filled(out, shape, sample)


def _resized(out: Tensor, shape: tuple[int, ...]) -> Tensor:
    if out.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    return out if out._aval.shape == shape else resize_(out, shape)


def _filled(out: Tensor, shape: tuple[int, ...], sample: Sample) -> Tensor:
    target = _resized(out, shape)
    dtype, strides = target._aval.dtype, target._strides()
    return put(target, lambda: sampled(sample, shape, dtype, strides))


def _size_of(name: str, size: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    if "size" in kwargs and not size:
        size = (kwargs.pop("size"),)
    if not size:
        raise _given(name, size, kwargs)
    return checked_sizes(size, name)


# ---------------------------------------------------------------------- of a size


def _uniform(shape: tuple[int, ...]) -> np.ndarray:
    return uniform(default_generator, shape, dtypes.default_float(), 0.0, 1.0)


def _normal(shape: tuple[int, ...]) -> np.ndarray:
    return standard_normal(default_generator, shape, dtypes.default_float())


@public("torch")
def rand(*size: Any, **kwargs: Any) -> Tensor:
    """Uniform numbers of [0, 1). Keywords: generator, out, dtype, device, requires_grad."""
    alone = sizes_alone(size, kwargs)
    if alone is not None:
        return draw(alone, _uniform)
    if kwargs and (alone := sizes_alone(size, {})) is not None and (plainly := _plainly(kwargs, True)) is not None:
        return plainly.draw(alone, lambda source, shape, dtype: source.uniform(shape, dtype or dtypes.default_float()))
    shape = _size_of("rand", size, kwargs)
    options = _options("rand", size, kwargs)
    return _made(shape, dtypes.default_float(), options, lambda s, dtype, blocks: options.generator.uniform(s, dtype))


@public("torch")
def randn(*size: Any, **kwargs: Any) -> Tensor:
    """Normal numbers of mean 0 and variance 1. Keywords: generator, out, dtype, device, requires_grad."""
    alone = sizes_alone(size, kwargs)
    if alone is not None:
        return draw(alone, _normal)
    if kwargs and (alone := sizes_alone(size, {})) is not None and (plainly := _plainly(kwargs, True)) is not None:
        return plainly.draw(alone, lambda source, shape, dtype: standard_normal(source, shape, dtype or dtypes.default_float()))
    shape = _size_of("randn", size, kwargs)
    options = _options("randn", size, kwargs)
    return _made(shape, dtypes.default_float(), options, lambda s, dtype, blocks: options.generator.normal(s, dtype, blocks=blocks))


def _integer(name: str, what: str, position: int, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}(): argument '{what}' (position {position}) must be int, not {type(value).__name__}")
    return int(value)


@public("torch")
def randint(*args: Any, **kwargs: Any) -> Tensor:
    """``randint(low=0, high, size)``: integers of [low, high). Keywords: generator, out, dtype (int64), device, requires_grad."""
    alone = sizes_alone(args[-1:], {}) if len(args) in (2, 3) and type(args[-1]) is tuple else None
    if alone is not None and all([type(bound) is int for bound in args[:-1]]) and (plainly := _plainly(kwargs, False)) is not None:
        first, last = args[:-1] if len(args) == 3 else (0, args[0])
        return plainly.draw(alone, lambda source, size, dtype: random_from_to(source, size, _INT64, first, last))
    whole = ("low", "high", "size")
    by_name = {k: kwargs[k] for k in whole if k in kwargs}
    names = whole if "low" in by_name or len(args) + len(by_name) > 2 else whole[1:]
    given = dict(zip(names, args, strict=False)) | by_name
    complete = len(given) == len(args) + len(by_name) and "high" in given and "size" in given
    if not complete or (len(args) == 3 and not isinstance(args[2], tuple | list)):
        raise _given("randint", args, kwargs)
    kwargs = {k: value for k, value in kwargs.items() if k not in whole}
    low, high = (_integer("randint", n, 1 + (n in names and names.index(n)), given.get(n, 0)) for n in ("low", "high"))
    if not isinstance(given["size"], tuple | list):
        raise TypeError(f"randint(): argument 'size' (position {len(names)}) must be tuple of ints, not {type(given['size']).__name__}")
    options = _options("randint", args, kwargs)
    shape = checked_sizes((given["size"],), "randint")
    return _made(shape, np.dtype(np.int64), options, lambda s, dtype, blocks: options.generator.randint(low, high, s, dtype))


@public("torch")
def randperm(n: int, **kwargs: Any) -> Tensor:
    """A permutation of 0 .. n-1. Keywords: generator, out, dtype (int64), device, requires_grad."""
    if type(n) is int and n > 0 and (plainly := _plainly(kwargs, False)) is not None:
        return plainly.draw((n,), lambda source, size, dtype: _permutations(source, size, _INT64))
    count = _integer("randperm", "n", 1, n)
    if count < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {count}: [{count}]")
    options = _options("randperm", (n,), kwargs)
    return _made((count,), np.dtype(np.int64), options, lambda s, dtype, blocks: _permutations(options.generator, s, dtype))


def _permutations(source: host.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Permutations along the last dimension, one after the other."""
    if len(shape) == 1:
        return source.randperm(shape[0], dtype)
    rows = [source.randperm(shape[-1], dtype) for _ in range(math.prod(shape[:-1]))]
    return np.reshape(rows, shape) if rows else np.empty(shape, dtype)


# ---------------------------------------------------------------------- like another tensor


def _like(name: str, input: Any, args: tuple[Any, ...], kwargs: dict[str, Any], sample: Any) -> Tensor:
    """Numbers in the shape, dtype, device and order in memory of `input`, where the keywords do not say otherwise."""
    if not isinstance(input, Tensor):
        raise not_a_tensor(name, input)
    if not kwargs and not per_thread.recorder.rare and plain(input):
        dtype = input._aval.dtype
        return draw(input._aval.shape, lambda size: sample(default_generator, size, dtype, True), input._aval.device)
    options = _options(name, (input, *args), kwargs, "memory_format")
    shape, format = input._aval.shape, options.format
    if format is not None and format not in FORMATS.values():
        raise _given(name, (input, *args), kwargs)
    order = memory_order(shape, input._strides()) if format in (None, preserve_format) else format.order(len(shape))
    dtype = options.dtype or input._aval.dtype
    strides = strides_in(shape, order)

    def numbers(size: tuple[int, ...]) -> np.ndarray:
        own = strides if size == shape else contiguous_strides(size)
        return sampled(lambda s, dtype, blocks: sample(options.generator, s, dtype, blocks), size, dtype, own)

    made = draw(shape, numbers, input.device if options.device is None else options.device)
    if format in (None, preserve_format) and dense_order(shape, input._strides()) is not None:
        keep_order(made, (input,))
    else:
        lay_out(made, order)
    return made.requires_grad_() if options.requires_grad else made


@public("torch")
def rand_like(input: Tensor, **kwargs: Any) -> Tensor:
    """Uniform numbers of [0, 1) in the shape, dtype and device of `input`. Keywords: generator, dtype, device, memory_format, requires_grad."""
    return _like("rand_like", input, (), kwargs, lambda g, shape, dtype, blocks: g.uniform(shape, dtype))


@public("torch")
def randn_like(input: Tensor, **kwargs: Any) -> Tensor:
    """Normal numbers in the shape, dtype and device of `input`. Keywords: generator, dtype, device, memory_format, requires_grad."""
    return _like("randn_like", input, (), kwargs, lambda g, shape, dtype, blocks: g.normal(shape, dtype, blocks=blocks))


@public("torch")
def randint_like(input: Tensor, *bounds: Any, **kwargs: Any) -> Tensor:
    """``randint_like(input, low=0, high)``: integers of [low, high) in the shape, dtype and device of `input`."""
    names = ("low", "high") if len(bounds) > 1 or "low" in kwargs or (bounds and "high" in kwargs) else ("high",)
    given = dict(zip(names, bounds, strict=False)) | {k: kwargs.pop(k) for k in ("low", "high") if k in kwargs}
    if len(bounds) > 2 or "high" not in given:
        raise _given("randint_like", (input, *bounds), kwargs)
    low, high = (_integer("randint_like", n, 2 + (n in names and names.index(n)), v.item() if isinstance(v, Tensor) else v)
                 for n, v in (("low", given.get("low", 0)), ("high", given["high"])))  # fmt: skip
    return _like("randint_like", input, bounds, kwargs, lambda g, shape, dtype, blocks: g.randint(low, high, shape, dtype))


# ---------------------------------------------------------------------- by given means, probabilities, weights, rates


def _looked_at(t: Tensor) -> np.ndarray:
    return np.asarray(t._concrete())


def drawn_of(node: str, made: Tensor, *inputs: Tensor) -> Tensor:
    """The drawn numbers, with PyTorch's node where an input needs a gradient: it gets zeros."""
    if not followed(*inputs):
        return made
    return call("_drawn_of" if len(inputs) == 1 else "_drawn_of_two", *inputs, made, node)


def _standard(source: host.Generator, std: float) -> Sample:
    return lambda shape, dtype, blocks: source.normal(shape, dtype, 0.0, std, blocks)


@public("torch")
@at_levels
def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, out: Any = None, **kwargs: Any) -> Tensor:
    """Normal numbers; `mean` and `std` are numbers (then `size` is needed) or tensors.

    RuntimeError for a negative std, and where shapes do not broadcast or do not fit `out`.
    """
    if type(size) is tuple and type(mean) is float and type(std) is float and generator is None and out is None:
        alone = sizes_alone(size, kwargs)
        if alone is not None:
            return draw(alone, lambda s: default_generator.normal(s, dtypes.default_float(), mean, std))
    given = [v for v in (mean, std) if isinstance(v, Tensor)]
    numbers = all(isinstance(v, Tensor) or (hasattr(v, "__float__") and not isinstance(v, bool)) for v in (mean, std))
    if not numbers or (size is None) != bool(given) or (size is not None and not isinstance(size, tuple | list)) or (given and kwargs):
        raise _given("normal", (mean, std, *(() if size is None else (size,))), kwargs)
    source = source_of("normal", generator)
    if size is not None:
        options = _options("normal", (mean, std, size), {"out": out, **kwargs})
        mean, std = float(mean), float(std)
        return _made(
            checked_sizes((size,), "normal"), dtypes.default_float(), options, lambda s, dtype, blocks: source.normal(s, dtype, mean, std, blocks)
        )
    center, spread = (_looked_at(v) if isinstance(v, Tensor) else float(v) for v in (mean, std))
    if out is not None:
        check_out("normal", (*given, out))
        # With a number as std, PyTorch fills `out` and adds the mean.
        filled = () if isinstance(std, Tensor) else (out._aval.shape,)
        shape = broadcast_shapes(*(v._aval.shape for v in given), *filled)
        fits = out._aval.shape == shape
        strides = out._strides() if fits else contiguous_strides(shape)
        made = normal_around(center, spread, lambda s, _, by: sampled(_standard(source, by), s, out._aval.dtype, strides))
        if fits:
            return put(out, made)
        resize(out, drawn(made, out.device)._read())
        return out
    made = normal_around(center, spread, lambda s, dtype, by: _standard(source, by)(s, dtype, True))
    node = "NormalBackward3" if len(given) == 2 else "NormalBackward1" if given[0] is mean else "NormalBackward2"
    return drawn_of(node, drawn(made, given[0].device), *given)


@public("torch", "torch.Tensor")
@at_levels
def bernoulli(input: Tensor, p: Any = None, *, generator: Any = None, out: Any = None) -> Tensor:
    """Ones with the probabilities `input` holds (or with probability `p`), else zeros."""
    expect_tensor("bernoulli", input)
    if input.is_meta and out is None:
        return created(constant(None, input._aval))
    source = source_of("bernoulli", generator)
    if p is not None:
        if out is not None:
            raise _given("bernoulli", (input, p), {"out": out})
        shape, dtype = input._aval.shape, input._aval.dtype
        made = drawn(lambda: source.bernoulli(p, shape, dtype), input.device)
        return call("bernoulli_of_number", input, made) if followed(input) else made
    if out is not None:
        check_out("bernoulli", (input, out))
        shape = input._aval.shape
        return _filled(out, shape, by_probabilities(source, input, shape, out._strides() if out._aval.shape == shape else contiguous_strides(shape)))
    return drawn_of("BernoulliBackward0", drawn(source.bernoulli_tensor(_looked_at(input)), input.device), input)


@public("torch", "torch.Tensor")
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None, out: Any = None) -> Tensor:
    """Indices drawn by the weights in each row of `input`. Looks at the weights."""
    expect_tensor("multinomial", input)
    source, count = source_of("multinomial", generator), _integer("multinomial", "num_samples", 2, num_samples)
    if out is not None and out._aval.dtype != np.int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {out.dtype.title}")
    return _chosen(input, input.ndim, count, replacement, source, out=out)


@at_levels
def _chosen(input: Tensor, dims: int, count: int, replacement: bool, source: host.Generator, *, out: Tensor | None) -> Tensor:
    """See `multinomial`. dims: what the caller's tensor has; a transform adds its own, and then all rows are drawn for as one matrix's."""
    shape = input._aval.shape
    rows = input if dims > 2 or len(shape) <= 2 else reshape(input, (-1, shape[-1]))
    check_multinomial(rows._aval, count, replacement)
    if input.is_meta and out is None:
        return created(constant(None, aval_of((*shape[:-1], count), np.dtype(np.int64), META)))
    order = memory_order(rows._aval.shape, rows._strides())
    made = source.multinomial(_looked_at(rows), count, replacement, order).reshape(*shape[:-1], count)
    return drawn(made, input.device) if out is None else put(_resized(out, made.shape), made)


def categories(weights: Tensor, count: int, shape: tuple[int, ...]) -> Tensor:
    """`count` indices for each row of `weights`, (*, n), drawn by them with replacement. The result has `shape`: first the first index of every row,
    then the second."""
    rows = reshape(weights, (-1, weights._aval.shape[-1])) if weights._aval.ndim != 2 else weights
    if in_transform():
        return reshape(multinomial(rows, count, True).mT, shape)
    check_multinomial(rows._aval, count, True)
    order = memory_order(rows._aval.shape, rows._strides())
    return drawn(default_generator.multinomial(_looked_at(rows), count, True, order).T.reshape(shape), weights.device)


@public("torch")
@at_levels
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Poisson numbers of the rates in `input`. Looks at the rates."""
    expect_tensor("poisson", input)
    return drawn_of("PoissonBackward0", drawn(source_of("poisson", generator).poisson(_looked_at(input)), input.device), input)


@public("torch")
@at_levels
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """How many of `count` trials of probability `prob` succeed. Looks at both. ValueError unless they are floating."""
    expect_tensor("binomial", count, "count", 1)
    expect_tensor("binomial", prob, "prob", 2)
    made = drawn(source_of("binomial", generator).binomial(_looked_at(count), _looked_at(prob)), count.device)
    return call("binomial_of_two", count, prob, made) if followed(count, prob) else made


@at_levels
def _by_concentrations(input: Tensor, source: host.Generator, dirichlet: bool) -> Tensor:
    return drawn((source.dirichlet if dirichlet else source.standard_gamma)(_looked_at(input)), input.device)


@public("torch")
def _standard_gamma(input: Tensor, generator: Any = None) -> Tensor:
    """Gamma numbers of rate 1 and the concentrations in `input`. Looks at these. NotImplementedError but for float32 and float64."""
    expect_tensor("_standard_gamma", input)
    made = _by_concentrations(input, source_of("_standard_gamma", generator), False)
    return call("_standard_gamma_drawn", input, made) if followed(input) else made


@public("torch")
def _sample_dirichlet(input: Tensor, generator: Any = None) -> Tensor:
    """Dirichlet numbers along the last dimension, of the concentrations in `input`. Looks at these. NotImplementedError but for float32 and
    float64."""
    expect_tensor("_sample_dirichlet", input)
    made = _by_concentrations(input, source_of("_sample_dirichlet", generator), True)
    return call("_sample_dirichlet_drawn", input, made) if followed(input) else made
