"""`torch.fft`: what its arguments mean; the transforms themselves are three operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.calling.out import with_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.declaration.schema import Schema, static, wrong_type
from torchgrad_jax.functions import views
from torchgrad_jax.functions.creation import from_host
from torchgrad_jax.functions.gathering import RunTime, call
from torchgrad_jax.functions.shaping import roll

# ---------------------------------------------------------------------- arguments


class Function:
    """A function of `torch.fft` by its schema: called with what its arguments mean, and with `out` where it has one."""

    def __init__(self, schema: str, body: Callable[..., Any]) -> None:
        self.schema, self.body = Schema(f"fft_{schema}"), body
        # PyTorch names the position of what was given by position.
        self._parameters = [(p._replace(keyword_only=False), p._replace(keyword_only=True)) for p in self.schema.parameters]

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = []
        for i, (variants, value) in enumerate(zip(self._parameters, self.schema.arguments(args, kwargs), strict=True)):
            p = variants[i >= len(args)]
            if p.type == "Tensor":
                if not isinstance(value, Tensor) and not (value is None and p.optional):
                    raise wrong_type(self.schema, p, value, i + 1)
                found.append(value)
            else:
                found.append(static(self.schema, p, value, i + 1))
        return self.body(*found)


def _function(schema: str, doc: str, body: Callable[..., Any]) -> Callable[..., Any]:
    understood = Function(schema, body)

    def function(*args: Any, **kwargs: Any) -> Any:
        return understood(args, kwargs)

    function.__name__ = function.__qualname__ = schema.partition("(")[0]
    function.__doc__ = f"torch.fft.{schema.replace('Tensor? out=None', 'Tensor? out')}\n\n{doc}"
    return function


def _promoted(x: Tensor, to_complex: bool = False) -> Tensor:
    """`x` in a dtype that can be transformed: integers in the default dtype. RuntimeError for 16 bit floats."""
    target = promotion.to_float(x._aval.dtype)
    if target.itemsize < 4:
        raise RuntimeError(f"Unsupported dtype {dtypes.of(target).title}")
    target = dtypes.to_complex(target) if to_complex else target
    return x if target == x._aval.dtype else call("_to_copy", x, target)


def _wrapped(dim: int, x: Tensor) -> int:
    if not x._aval.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return wrap_dim(dim, x._aval.ndim)


def _checked_size(n: int) -> int:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return n


_FORWARD: dict[str | None, int] = {None: 0, "backward": 0, "ortho": 1, "forward": 2}


def _normalization(norm: str | None, forward: bool) -> int:
    if norm not in _FORWARD:
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    return _FORWARD[norm] if forward else 2 - _FORWARD[norm]


def _resized(x: Tensor, dims: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
    """`x` cut, or with zeros at its end, where `dims` are to have other sizes."""
    pad = [0] * (2 * x._aval.ndim)
    for dim, size in zip(dims, sizes, strict=True):
        n = x._aval.shape[dim]
        if size < n:
            x = views.narrow(x, dim, 0, size)
        pad[2 * (x._aval.ndim - 1 - dim) + 1] = max(size - n, 0)
    return call("constant_pad_nd", x, tuple(pad), RunTime(0)) if any(pad) else x


class Extent(NamedTuple):
    """The dimensions that are transformed, and the number of points that was asked for along each; None: as many as there are."""

    dims: tuple[int, ...]
    asked: tuple[int | None, ...]

    def sizes(self, x: Tensor) -> tuple[int, ...]:
        """The numbers of points. RuntimeError where there are none."""
        return tuple(_checked_size(x._aval.shape[d] if n is None else n) for d, n in zip(self.dims, self.asked, strict=True))

    def halved(self, x: Tensor) -> tuple[tuple[int, ...], int]:
        """The numbers of points where `x` is one half of mirrored ones, and the number of them along the last dimension."""
        asked = self.asked[-1]
        last = _checked_size(2 * (x._aval.shape[self.dims[-1]] - 1) if asked is None else asked)
        return (*Extent(self.dims[:-1], self.asked[:-1]).sizes(x), last // 2 + 1), last


def _one(name: str, x: Tensor, n: int | None, dim: int) -> Extent:
    return Extent((_wrapped(dim, x),), (n,))


def _any_number(name: str, x: Tensor, s: tuple[int, ...] | None, dim: tuple[int, ...] | None) -> Extent:
    ndim = x._aval.ndim
    if dim is None:
        if s is not None and len(s) > ndim:
            raise RuntimeError(f"Got shape with {len(s)} values but input tensor only has {ndim} dimensions.")
        dims = tuple(range(ndim - (ndim if s is None else len(s)), ndim))
    else:
        dims = tuple(_wrapped(d, x) for d in dim)
        if len(set(dims)) < len(dims):
            raise RuntimeError("FFT dims must be unique")
        if s is not None and len(s) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    return Extent(dims, (None,) * len(dims) if s is None else tuple(None if n == -1 else n for n in s))


def _several(name: str, x: Tensor, s: tuple[int, ...] | None, dim: tuple[int, ...] | None) -> Extent:
    found = _any_number(name, x, s, dim)
    if not found.dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    return found


def _output(name: str, out: Tensor | None, to_complex: bool) -> None:
    """RuntimeError where `out` cannot hold the results of function `name`."""
    if out is not None:
        kind = dtypes.of(out._aval.dtype)
        if not (kind.is_complex if to_complex else kind.is_floating_point):
            wanted = "complex" if to_complex else "floating point"
            raise RuntimeError(f"{name} expects a {wanted} output tensor, but got {kind.title}")


# ---------------------------------------------------------------------- the transforms


def _fft(name: str, forward: bool, x: Tensor, n: int | None, dim: int, norm: str | None, out: Tensor | None) -> Any:
    _output(name, out, True)
    x = _promoted(x)
    extent = _one(name, x, n, dim)
    x = _resized(x, extent.dims, extent.sizes(x))
    how = _normalization(norm, forward)
    if x._aval.dtype.kind == "c":
        return with_out("_fft_c2c", out, call("_fft_c2c", x, extent.dims, how, forward))
    made = call("_fft_r2c", x, extent.dims, how, False)
    return with_out("_fft_r2c", out, made if forward else call("_conj", made))


def _fftn(name: str, forward: bool, x: Tensor, s: Any, dim: Any, norm: str | None, out: Tensor | None) -> Any:
    _output(name, out, True)
    x = _promoted(x, to_complex=True)
    extent = _any_number(name, x, s, dim)
    x = _resized(x, extent.dims, extent.sizes(x))
    return with_out("_fft_c2c", out, call("_fft_c2c", x, extent.dims, _normalization(norm, forward), forward))


_REAL_WANTED = "{name} expects a real input tensor, but got {title}", "{name} expects a real-valued input tensor, but got {title}"
_FLOAT_WANTED = "Only supports floating-point dtypes, but found: {title}"


def _from_real(name: str, forward: bool, wanted: str, extent_of: Any, x: Tensor, s: Any, dim: Any, norm: str | None, out: Tensor | None) -> Any:
    """rfft and ihfft: one half of mirrored numbers."""
    if x._aval.dtype.kind == "c":
        raise RuntimeError(wanted.format(name=name, title=dtypes.of(x._aval.dtype).title))
    _output(name, out, True)
    x = _promoted(x)
    dims, sizes = (extent := extent_of(name, x, s, dim)).dims, extent.sizes(x)
    x, how = _resized(x, dims, sizes), _normalization(norm, forward)
    if forward:
        return with_out("_fft_r2c", out, call("_fft_r2c", x, dims, how, True))
    made = call("_fft_r2c", x, dims[-1:], how, True)
    if len(dims) == 1:
        return with_out("_fft_r2c", out, call("_conj", made))
    return with_out("_fft_c2c", out, call("_fft_c2c", call("conj_physical", made), dims[:-1], how, False))


def _to_real(name: str, forward: bool, extent_of: Any, x: Tensor, s: Any, dim: Any, norm: str | None, out: Tensor | None) -> Any:
    """irfft and hfft: the real numbers whose transform is mirrored."""
    _output(name, out, False)
    x = _promoted(x, to_complex=True)
    extent = extent_of(name, x, s, dim)
    (sizes, last), dims, how = extent.halved(x), extent.dims, _normalization(norm, forward)
    x = _resized(x, dims, sizes)
    if forward:
        x = call("_conj", call("_fft_c2c", x, dims[:-1], how, True) if len(dims) > 1 else x)
        dims = dims[-1:]
    return with_out("_fft_c2r", out, call("_fft_c2r", x, dims, how, last))


# ---------------------------------------------------------------------- frequencies, and their order


def _frequencies(name: str, n: int, d: float, out: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any, requires_grad: bool) -> Any:
    if pin_memory or str(layout or "torch.strided") != "torch.strided":
        raise RuntimeError(f"{name}: torchgrad_jax has no pinned memory and no layout but torch.strided; leave both arguments out")
    target = np.dtype(dtype) if dtype is not None else dtypes.default_float() if out is None else out._aval.dtype
    if not dtypes.is_float(target):
        raise RuntimeError(f"{name} requires a floating point or complex dtype")
    if dtypes.category(target) == dtypes.COMPLEX:
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{dtypes.of(target).title}'")
    if out is not None and out._aval.dtype != target:
        a, b = dtypes.of(target).title, dtypes.of(out._aval.dtype).title
        raise RuntimeError(f"dtype {a} does not match dtype of out parameter ({b})")
    count = n if name == "fftfreq" else int(n / 2) + 1
    if count < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {count}: [{count}]")
    at = np.arange(count)
    if name == "fftfreq":
        at = np.where(at < (n + 1) // 2, at, at - n)
    with np.errstate(all="ignore"):
        step = np.float64(1) / (np.float64(n) * d)
        single = np.dtype(np.float32) if target.itemsize < 4 else target
        array = (at.astype(single) * single.type(step)).astype(target)
    return from_host(name, array, {"device": device, "requires_grad": requires_grad, "out": out})


def _shifted(inverse: bool, x: Tensor, dim: tuple[int, ...] | None) -> Tensor:
    dims = tuple(range(x._aval.ndim)) if dim is None else tuple(_wrapped(d, x) for d in dim)
    return roll(x, tuple((x._aval.shape[d] + inverse) // 2 for d in dims), dims)


# ---------------------------------------------------------------------- the table

_RAISES = "RuntimeError for 16 bit floats, sizes below 1 and an unknown `norm`; IndexError for a dimension that is not there."
_ONE, _TWO, _MANY = (
    f"Tensor input, {rest}, str? norm=None, *, Tensor? out=None"
    for rest in ("int? n=None, int dim=-1", "int[]? s=None, int[] dim=(-2, -1)", "int[]? s=None, int[]? dim=None")
)
_FACTORY = (
    "int n, float d=1.0, *, Tensor? out=None, dtype? dtype=None, any layout=None, any device=None, bool pin_memory=False, bool requires_grad=False"
)


def _publish_transforms() -> None:
    def declare(name: str, parameters: str, doc: str, body: Callable[..., Any]) -> None:
        public(f"torch.fft.{name}")(_function(f"{name}({parameters})", f"{doc} {_RAISES}", body))

    for forward, real, mirrored in ((True, "rfft", "irfft"), (False, "ihfft", "hfft")):
        half = "The transform" if forward else "The inverse transform"
        declare(real, _ONE, f"{half} of real numbers without its mirrored half: n // 2 + 1 complex numbers along `dim`.",
                lambda *a, _n=real, _f=forward: _from_real(_n, _f, _REAL_WANTED[0], _one, *a))  # fmt: skip
        whole = "The inverse of rfft" if forward else "The transform of numbers whose mirrored half is left out"
        declare(mirrored, _ONE, f"{whole}: n real numbers along `dim`, 2 (size - 1) without n.",
                lambda *a, _n=mirrored, _f=not forward: _to_real(_n, _f, _one, *a))  # fmt: skip
        for tail, parameters in (("2", _TWO), ("n", _MANY)):
            wanted = _REAL_WANTED[1] if forward else _FLOAT_WANTED
            declare(real + tail, parameters, f"{half} of real numbers along `dim`, the last of them without its mirrored half.",
                    lambda *a, _n=real + "n", _f=forward, _w=wanted: _from_real(_n, _f, _w, _several, *a))  # fmt: skip
            declare(mirrored + tail, parameters, f"{whole} along the last of `dim`: real numbers, s[-1] of them there.",
                    lambda *a, _n=mirrored + "n", _f=not forward: _to_real(_n, _f, _several, *a))  # fmt: skip
    for name, forward in (("fft", True), ("ifft", False)):
        what = "The discrete Fourier transform" if forward else "The inverse of the discrete Fourier transform"
        declare(name, _ONE, f"{what} along `dim`, n points of it: complex numbers.", lambda *a, _n=name, _f=forward: _fft(_n, _f, *a))
        for tail, parameters in (("2", _TWO), ("n", _MANY)):
            # PyTorch's errors call the inverse fftn, too.
            declare(name + tail, parameters, f"{what} along several dimensions (all without `dim`), `s` points of them: complex numbers.",
                    lambda *a, _f=forward: _fftn("fftn", _f, *a))  # fmt: skip


_publish_transforms()
for _name, _doc in (("fftfreq", "The frequencies of the n results of fft"), ("rfftfreq", "The frequencies of the n // 2 + 1 results of rfft")):
    public(f"torch.fft.{_name}")(_function(
        f"{_name}({_FACTORY})", f"{_doc}, `d` being the distance of the points. RuntimeError for integer dtypes.",
        lambda *a, _n=_name: _frequencies(_n, *a),
    ))  # fmt: skip
for _name, _doc, _inverse in (
    ("fftshift", "The halves of all dimensions, or of `dim`, exchanged, so that frequency 0 comes to stand in the middle.", False),
    ("ifftshift", "The inverse of fftshift.", True),
):
    public(f"torch.fft.{_name}")(_function(f"{_name}(Tensor input, int[]? dim=None)", _doc, lambda *a, _i=_inverse: _shifted(_i, *a)))
