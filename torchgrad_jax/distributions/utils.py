"""Parameters: made tensors of one shape, given in one of several equivalent ways, probabilities and their logits, triangles as vectors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from numbers import Number
from typing import Any

from torchgrad_jax.autograd.grad_mode import enable_grad
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import tensor
from torchgrad_jax.functions.limits import finfo
from torchgrad_jax.functions.random_factories import randn
from torchgrad_jax.functions.shaping import broadcast_tensors

__all__ = [
    "broadcast_all", "logits_to_probs", "clamp_probs", "probs_to_logits", "lazy_property", "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip

# Euler's constant, the mean of a standard Gumbel distribution.
euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors of one shape. Numbers have dtype and device of the first tensor, or the default dtype where there is none.

    Raises ValueError where a value is neither number nor tensor."""
    given = tensors(*values)
    return broadcast_tensors(*given) if given else ()


def tensors(*values: Any) -> tuple[Tensor, ...]:
    """The values as tensors; see `broadcast_all`."""
    first = None
    for value in values:
        if isinstance(value, Tensor):
            first = value if first is None else first
        elif (not isinstance(value, Number) or isinstance(value, complex)) and not hasattr(type(value), "__torch_function__"):
            raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__.")
    options: dict[str, Any] = {"dtype": dtypes.get_default_dtype()} if first is None else {"dtype": first.dtype, "device": first.device}
    return tuple(tensor(value, **options) if isinstance(value, Number) else value for value in values)


# ---------------------------------------------------------------------- sums and samples


def sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """The sums over the last `dim` dimensions."""
    return value.sum(tuple(range(-min(dim, value.dim()), 0))) if dim else value


def standard_normal(shape: Any, dtype: dtypes.dtype, device: Any) -> Tensor:
    """Samples of the normal distribution of mean 0 and variance 1."""
    return randn(shape, dtype=dtype, device=device)


# Under these names distributions of other packages import them.
_sum_rightmost, _standard_normal = sum_rightmost, standard_normal

# ---------------------------------------------------------------------- one parameter in several ways


class lazy_property:  # noqa: N801 - PyTorch's name
    """A method's result as an attribute, computed (gradients being recorded) when it is first asked for, and kept."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            found = self.wrapped(instance)
        vars(instance)[getattr(self, "name", None) or self.wrapped.__name__] = found
        return found


class Equivalent(lazy_property):
    """A parameter that says the same as others of the distribution: it was given, or follows from whichever of them was.

    `Equivalent(logits=torch.sigmoid)` is what `probs` is: where `logits` were given, their sigmoid.
    """

    def __init__(self, **formulas: Callable[[Tensor], Tensor]) -> None:
        super().__init__(self._follow)
        self.formulas = formulas

    def _follow(self, instance: Any) -> Tensor:
        for source, formula in self.formulas.items():
            if source in vars(instance):
                return formula(vars(instance)[source])
        raise AttributeError(f"{type(instance).__name__!r} object has no attribute {self.name!r}")


def the_given(**candidates: Any) -> tuple[str, Any]:
    """Which of several equivalent parameters was given, and its value. Raises ValueError unless exactly one was."""
    found = [(name, value) for name, value in candidates.items() if value is not None]
    if len(found) == 1:
        return found[0]
    if "probs" in candidates:
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")
    raise ValueError(f"Exactly one of {' or '.join(candidates)} may be specified.")


# ---------------------------------------------------------------------- probabilities


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities of which logarithm and logarithm of the complement are finite."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of logarithms of odds, or, unless `is_binary`, of logarithms along the last dimension."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The logarithms of the odds, or, unless `is_binary`, those of the probabilities; finite."""
    inside = clamp_probs(probs)
    return inside.log() - (-inside).log1p() if is_binary else inside.log()


# ---------------------------------------------------------------------- triangles


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangles of (*, n, n) matrices, up to the diagonal `diag`, as vectors: row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat.flatten(-2)[..., _places(n, diag, mat.device)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The (*, n, n) matrices of which the lower triangles, up to the diagonal `diag`, are the given vectors; elsewhere 0."""
    length = vec.shape[-1]
    n = next(n for n in count(max(1, 1 - diag)) if _entries(n, diag) >= length)
    if _entries(n, diag) != length:
        raise ValueError(f"The size of last dimension is {length} which cannot be expressed as the lower triangular part of a square D x D matrix.")
    places = _places(n, diag, vec.device).expand(vec.shape)
    return vec.new_zeros((*vec.shape[:-1], n * n)).scatter(-1, places, vec).unflatten(-1, (n, n))


def _places(n: int, diag: int, device: Any) -> Tensor:
    """Where the triangle's entries are in the flattened matrix."""
    return tensor([row * n + column for row in range(n) for column in range(min(row + 1 + diag, n))], dtype=dtypes.int64, device=device)


def _entries(n: int, diag: int) -> int:
    return sum(min(max(row + 1 + diag, 0), n) for row in range(n))
