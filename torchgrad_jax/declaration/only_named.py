"""Dtypes, layouts and quantization schemes that there are no tensors of here. Programs name them in tables and comparisons, and these work; a tensor
of one is refused."""

from __future__ import annotations

from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from torchgrad_jax.declaration.dtypes import COMPLEX, FLOAT, INT, dtype, float16
from torchgrad_jax.declaration.refusals import NO_COMPLEX32
from torchgrad_jax.declaration.strides import layout
from torchgrad_jax.runtime.passing_through import never_made


class NamedDtype(dtype):
    """A dtype that is told from others, and has no arrays. signed: what the error says where PyTorch does not tell. limits: the
    type whose limits `finfo` tells."""

    __slots__ = ("_signed", "_size", "_limits")

    def __init__(self, name: str, category: int, title: str, size: int, signed: bool | str, limits: Any = None) -> None:
        self.name, self.category, self.title, self.word = name, category, title, title
        self._size, self._signed, self._limits = size, signed, limits

    @property
    def np(self) -> NoReturn:  # type: ignore[override] - whatever would make an array of it asks for this
        """RuntimeError, always."""
        if self.is_complex:
            raise RuntimeError(NO_COMPLEX32)
        instead = "float32, float16 or bfloat16" if self.is_floating_point else "int8, uint8 or a larger type of integers"
        raise RuntimeError(f"torchgrad_jax has no tensors of the dtype {self!r}: use {instead}")

    @property
    def limits(self) -> np.dtype:
        """The type whose limits `finfo` tells. TypeError, in its words, where there is none."""
        if self._limits is None:
            raise TypeError("torch.finfo() requires a floating point input type. Use torch.iinfo to handle 'torch.finfo'")
        return np.dtype(self._limits)

    @property
    def is_signed(self) -> bool:
        """Whether negative numbers can be represented. RuntimeError where PyTorch does not say."""
        if isinstance(self._signed, str):
            raise RuntimeError(self._signed)
        return self._signed

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self._size

    def to_complex(self) -> dtype:
        """A complex type itself. RuntimeError for others."""
        if self.is_complex:
            return self
        raise RuntimeError(f"Unknown Complex ScalarType for {self.title}")

    def to_real(self) -> dtype:
        """The real type of this precision."""
        return float16 if self.is_complex else self


def _dtypes() -> list[NamedDtype]:
    found = [NamedDtype("complex32", COMPLEX, "ComplexHalf", 4, True, np.float16)]
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"):
        found.append(NamedDtype(name, FLOAT, name.capitalize(), 1, name != "float8_e8m0fnu", getattr(ml_dtypes, name)))
    found.append(NamedDtype("float4_e2m1fn_x2", FLOAT, "Float4_e2m1fn_x2", 1, True))
    for bits in range(1, 8):
        found.append(NamedDtype(f"int{bits}", INT, f"Int{bits}", 1, True))
        found.append(NamedDtype(f"uint{bits}", INT, f"UInt{bits}", 1, False))
    for name, size in (("bits1x8", 1), ("bits2x4", 1), ("bits4x2", 1), ("bits8", 1), ("bits16", 2)):
        found.append(NamedDtype(name, INT, name.capitalize(), size, "Bits types are undefined"))
    for title in ("QInt8", "QInt32", "QUInt8", "QUInt4x2", "QUInt2x4"):
        found.append(NamedDtype(title.lower(), INT, title, 4 if title == "QInt32" else 1, "isSignedType not supported for quantized types"))
    return found


class qscheme:
    """How numbers would be quantized: there are no quantized tensors here."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


NamedDtype.__module__ = qscheme.__module__ = "torchgrad_jax"  # where pickles look for them

DTYPES = {d.name: d for d in _dtypes()}
DTYPES |= {"chalf": DTYPES["complex32"], "bit": DTYPES["uint1"]}
LAYOUTS = {name: layout(name) for name in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn")}
QSCHEMES = {
    name: qscheme(name)
    for name in (
        "per_channel_affine",
        "per_channel_affine_float_qparams",
        "per_channel_symmetric",
        "per_tensor_affine",
        "per_tensor_symmetric",
    )  # fmt: skip
}
CLASSES = {name: never_made(f"torch.{name}", "torch.save and torch.load write and read files") for name in ("PyTorchFileReader", "PyTorchFileWriter")}
ALL: dict[str, Any] = {**DTYPES, **LAYOUTS, **QSCHEMES, **CLASSES, "qscheme": qscheme}
