"""`torch.dtype`, the default dtype, and the order of dtypes among themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

BOOL, INT, FLOAT, COMPLEX = range(4)
_WITH_CLASSES = frozenset(("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"))  # torch.FloatTensor and the like


class dtype:
    """An element type by PyTorch's name. The members are the module's `float32`, `int64` and so on."""

    __slots__ = ("name", "np", "category", "title", "word")
    name: str
    np: np.dtype
    category: int
    # What PyTorch's errors call it: its scalar type, or the type's name in C++.
    title: str
    word: str

    def __init__(self, name: str, array_type: Any, category: int, title: str, word: str) -> None:
        self.name, self.np, self.category, self.title, self.word = name, np.dtype(array_type), category, title, word

    @property
    def is_floating_point(self) -> bool:
        """Whether this is a real floating point type."""
        return self.category == FLOAT

    @property
    def is_complex(self) -> bool:
        """Whether this is a complex type."""
        return self.category == COMPLEX

    @property
    def tensor_type(self) -> str:
        """What PyTorch calls a CPU tensor of this type in messages: `torch.FloatTensor` where Python has such a class, else `CPUBoolType`."""
        return f"torch.{self.title}Tensor" if self.name in _WITH_CLASSES else f"CPU{self.title}Type"

    @property
    def is_signed(self) -> bool:
        """Whether negative numbers can be represented."""
        return self.np.kind != "u" and self.category != BOOL

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.np.itemsize

    def to_complex(self) -> dtype:
        """The complex type of this precision."""
        return of(to_complex(self.np))

    def to_real(self) -> dtype:
        """The real type of this precision."""
        return of(to_real(self.np))

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


dtype.__module__ = "torchgrad_jax"  # where pickles look for them
bool_ = dtype("bool", np.bool_, BOOL, "Bool", "bool")
uint8 = dtype("uint8", np.uint8, INT, "Byte", "unsigned char")
int8 = dtype("int8", np.int8, INT, "Char", "signed char")
int16 = dtype("int16", np.int16, INT, "Short", "short int")
int32 = dtype("int32", np.int32, INT, "Int", "int")
int64 = dtype("int64", np.int64, INT, "Long", "long int")
uint16 = dtype("uint16", np.uint16, INT, "UInt16", "short unsigned int")
uint32 = dtype("uint32", np.uint32, INT, "UInt32", "unsigned int")
uint64 = dtype("uint64", np.uint64, INT, "UInt64", "long unsigned int")
float16 = dtype("float16", np.float16, FLOAT, "Half", "c10::Half")
bfloat16 = dtype("bfloat16", ml_dtypes.bfloat16, FLOAT, "BFloat16", "c10::BFloat16")
float32 = dtype("float32", np.float32, FLOAT, "Float", "float")
float64 = dtype("float64", np.float64, FLOAT, "Double", "double")
complex64 = dtype("complex64", np.complex64, COMPLEX, "ComplexFloat", "c10::complex<float>")
complex128 = dtype("complex128", np.complex128, COMPLEX, "ComplexDouble", "c10::complex<double>")

ALL = (
    bool_, uint8, int8, int16, int32, int64, uint16, uint32, uint64, float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
ALIASES = {
    "half": float16, "float": float32, "double": float64, "short": int16, "int": int32, "long": int64,
    "cfloat": complex64, "cdouble": complex128,
}  # fmt: skip
# Python's own types stand for dtypes.
PYTHON: dict[Any, dtype] = {float: float64, int: int64, bool: bool_, complex: complex128}
_BY_NUMPY = {d.np: d for d in ALL}
_PYTHON = {float: float, int: np.dtype(np.int64), bool: np.dtype(np.bool_), complex: complex}


def of(array_type: np.dtype) -> dtype:
    """The torch dtype of a NumPy dtype. TypeError with PyTorch's text where there is none."""
    found = _BY_NUMPY.get(array_type)
    if found is None:
        kind = array_type.type
        raise TypeError(
            f"can't convert np.ndarray of type {kind.__module__}.{kind.__name__}. The only supported types are: float64, float32, float16, "
            "complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool."
        )
    return found


def is_known(array_type: np.dtype) -> bool:
    """Whether there is a torch dtype of this NumPy dtype."""
    return array_type in _BY_NUMPY


def category(array_type: np.dtype) -> int:
    """BOOL, INT, FLOAT or COMPLEX."""
    return _BY_NUMPY[array_type].category


def is_float(array_type: np.dtype) -> bool:
    """Whether values of this type can carry a gradient: floating point or complex."""
    return _BY_NUMPY[array_type].category >= FLOAT


def to_complex(array_type: np.dtype) -> np.dtype:
    """The complex type that holds this real type's values."""
    return complex128.np if array_type in (float64.np, complex128.np) else complex64.np


def to_real(array_type: np.dtype) -> np.dtype:
    """The real type of a complex type's parts; a real type itself."""
    return {complex64.np: float32.np, complex128.np: float64.np}.get(array_type, array_type)


_default = float32
# What is to be done when it has changed.
after_default_changed: list[Callable[[], None]] = []


def get_default_dtype() -> dtype:
    """The dtype of floating point results that nothing else determines."""
    return _default


def set_default_dtype(d: dtype) -> None:
    """Set the default floating point dtype. TypeError unless it is one."""
    global _default
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {d!r}")
    if d is not _default:
        _default = d
        for forget in after_default_changed:
            forget()


def default_float() -> np.dtype:
    """The default dtype as NumPy's."""
    return _default.np


def of_number(kind: type) -> np.dtype:
    """The dtype a tensor made from a Python number of this type has."""
    if kind is float:
        return _default.np
    if kind is complex:
        return to_complex(_default.np)
    return bool_.np if kind is bool else int64.np
