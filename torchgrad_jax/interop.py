"""Tensors among JAX's own: a pytree of one array, usable wherever JAX takes arrays.

What would change on the way and say nothing is refused: a gradient or a tangent that would be lost, a dtype that JAX does not have.
"""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import numpy as np

from torchgrad_jax.calling import return_types
from torchgrad_jax.core.duals import seen_tangent
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.from_jax import refuse_captured
from torchgrad_jax.lifting.level import held_tensor
from torchgrad_jax.runtime._jax_compat import call_x64, has_x64, refuse_as_array
from torchgrad_jax.runtime.device import for_user
from torchgrad_jax.runtime.value import Value, aval_of, constant, is_tracer

_PRECISE = {np.dtype(np.float64): "float32", np.dtype(np.complex128): "complex64"}
_WIDE = {np.dtype(np.int64): np.iinfo(np.int32), np.dtype(np.uint64): np.iinfo(np.uint32)}
LOST = (
    "Can't give JAX a Tensor that requires grad, since its gradient would be lost. Use tensor.detach(), or make the JAX function an operator with "
    "torchgrad_jax.from_jax."
)


# ---------------------------------------------------------------------- as a pytree


def _flatten(t: Tensor) -> tuple[tuple[Any], tuple[bool, np.dtype | None]]:
    """The array, and beside it whether the tensor requires grad, and its dtype where JAX's array has half of its bits."""
    nested = None if t._extra is None else t._extra.nested
    if nested is not None and held_tensor(t) is None and nested._read() is t._read():
        return (nested,), (t.requires_grad, None)
    array, dtype = _content(t), t._aval.dtype
    if t._node is not None and not is_tracer(t._concrete()):  # a leaf is a parameter, which JAX may well be given
        raise RuntimeError(LOST)
    return (array,), (t.requires_grad, None if array.dtype == dtype else dtype)


def _unflatten(aside: tuple[bool, np.dtype | None], children: tuple[Any]) -> Any:
    (array,) = children
    requires_grad, dtype = aside
    if isinstance(array, Tensor):  # a Jacobian is to JAX a tree of the results that holds trees of the arguments
        t = wrap(array._read())
        t._own_extra().nested = array
    elif not hasattr(array, "dtype"):  # JAX puts placeholders into pytrees
        return array
    else:
        t = wrap(constant(array) if dtype is None else _widened(array, dtype))
    t._rg = requires_grad
    return t


def _widened(array: Any, dtype: np.dtype) -> Value:
    """What a tensor of 64 bits was before JAX had it: inside a transformation it is called what it was. Another dtype is the user's doing."""
    if array.dtype != jax.dtypes.canonicalize_dtype(dtype):
        return constant(array)
    if is_tracer(array):
        return constant(array, aval_of(tuple(array.shape), dtype))
    return constant(call_x64(array.astype, dtype))


# ---------------------------------------------------------------------- as an array


def _content(t: Tensor) -> Any:
    """The array as the user's JAX has it. OverflowError for integers that its 32 bits do not hold."""
    if held_tensor(t) is not None:
        raise RuntimeError(
            "Can't give JAX a Tensor of a function that is being transformed: it has no array. Make the JAX function an operator with "
            "torchgrad_jax.from_jax."
        )
    array = t._concrete()
    refuse_captured(array)
    if t._aval.dtype in _WIDE and not is_tracer(array) and not has_x64():
        known, limits = t._read().known_bounds(), _WIDE[t._aval.dtype]
        least, most = known or (call_x64(_bounds, array) if t._aval.size else (0, 0))
        if least < limits.min or most > limits.max:
            raise OverflowError(
                f"{most if most > limits.max else least} does not fit into the 32-bit integers that JAX has while jax_enable_x64 is off; "
                "call jax.config.update('jax_enable_x64', True)"
            )
    return for_user(array)


def _bounds(array: Any) -> tuple[int, int]:
    return int(array.min()), int(array.max())


def _jax_array(self: Tensor) -> Any:
    """What functions of `jax.numpy` see. RuntimeError for a tensor that requires grad or has a tangent, TypeError for one of double precision while
    JAX has none."""
    array = _content(self)
    if not is_tracer(self._concrete()):  # in a transformation of the user's JAX follows the gradients
        if self.requires_grad:
            raise RuntimeError(LOST)
        if self._aval.dtype in _PRECISE and not has_x64():
            kind = str(self._aval.dtype)
            raise TypeError(
                f"JAX would make {_PRECISE[self._aval.dtype]} of this {kind} Tensor, since jax_enable_x64 is off. "
                "Call jax.config.update('jax_enable_x64', True), or convert the tensor."
            )
    if seen_tangent(self) is not None:
        raise RuntimeError(
            "Can't make a JAX array of a dual Tensor, since its tangent would be lost. Make the JAX function an operator with torchgrad_jax.from_jax."
        )
    return array


def _refuse(t: Tensor) -> NoReturn:
    raise RuntimeError(
        "JAX needs an array here and was given a Tensor. A function that jax.grad differentiates returns an array: return jax.numpy.asarray(result), "
        "or differentiate torchgrad_jax.to_jax(function). As an argument or an index pass jax.numpy.asarray(tensor)."
    )


# ---------------------------------------------------------------------- making them known to JAX


def _register_named(kind: type) -> None:
    jax.tree_util.register_pytree_node(kind, lambda pair: (tuple(pair), None), lambda _, children: tuple.__new__(kind, children))


def register() -> None:
    """Make Tensor and the results with names pytree nodes, and Tensor an array for `jax.numpy`."""
    jax.tree_util.register_pytree_node(Tensor, _flatten, _unflatten)
    for kind in return_types.known.values():
        _register_named(kind)
    return_types.listeners.append(_register_named)
    refuse_as_array(Tensor, _refuse)
    setattr(Tensor, "__jax_array__", _jax_array)  # noqa: B010 - Tensor's own attributes are declared in its class
