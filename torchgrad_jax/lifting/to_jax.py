"""`to_jax`: PyTorch-style code as a pure function of JAX's arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from torchgrad_jax.core.autocasting import autocast_key
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.lifting.pure import Pure
from torchgrad_jax.lifting.reach import Reach
from torchgrad_jax.lifting.structures import BY_VALUE, Same
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime._jax_compat import has_x64
from torchgrad_jax.runtime.device import for_user
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval, aval_of

# So many traces of one function are kept.
MOST = 64


class ToJax:
    """A pure function of arrays (and of pytrees of them), traced once for each combination of shapes, dtypes and other arguments."""

    def __init__(self, function: Callable[..., Any], reached: Any, frozen: int | None = None) -> None:
        """reached: what the function reaches besides its arguments; frozen: the argument that has no gradient, if one has none."""
        self._function, self._reached, self._frozen = function, reached, frozen
        self._traces: dict[Any, list[tuple[Reach, Pure]]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree_util.tree_flatten((args, kwargs), is_leaf=lambda x: isinstance(x, Tensor))
        arrays: list[Any] = []
        avals: list[Aval] = []
        shape: list[Any] = []
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                leaf = for_user(leaf._concrete())
            if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
                leaf = leaf if isinstance(leaf, jax.Array) else jax.numpy.asarray(leaf)
                arrays.append(leaf)
                avals.append(_aval(leaf))
                shape.append(avals[-1])
            else:
                shape.append((type(leaf), leaf.hex() if type(leaf) is float else leaf) if isinstance(leaf, (float, *BY_VALUE)) else Same(leaf))
        frozen = range(0)
        if self._frozen is not None:
            begin, count = (len(jax.tree_util.tree_leaves(part)) for part in (args[: self._frozen], args[self._frozen : self._frozen + 1]))
            frozen = range(begin, begin + count)
        key = (tree, tuple(shape), has_x64(), autocast_key(per_thread.recorder), dtypes.default_float(), modes.matmul_precision)
        for reach, pure in self._traces.get(key, ()):
            if reach.holds():
                return pure(arrays)
        reach = Reach(self._reached, [s.object for s in shape if type(s) is Same])
        pure = Pure(functools.partial(self._on_tensors, leaves, tree), avals, frozen)
        found = self._traces.setdefault(key, [])
        found.insert(0, (reach, pure))
        del found[MOST:]
        return pure(arrays)

    def _on_tensors(self, leaves: list[Any], tree: Any, tensors: list[Tensor]) -> Any:
        rest = iter(tensors)
        filled = [next(rest) if isinstance(leaf, (Tensor, jax.Array, np.ndarray, np.generic)) else leaf for leaf in leaves]
        args, kwargs = jax.tree_util.tree_unflatten(tree, filled)
        return self._function(*args, **kwargs)


def _aval(array: Any) -> Aval:
    """What a tensor of an array is. Without 64-bit types int32 is what JAX has made of int64."""
    dtype = np.dtype(array.dtype)
    if dtype == np.int32 and not has_x64():
        dtype = np.dtype(np.int64)
    return aval_of(tuple(array.shape), dtype)


def to_jax(function: Any) -> Any:
    """A pure JAX function from PyTorch-style code.

    For a function: a function of JAX arrays and pytrees of them that returns arrays in the place of tensors. It can be jitted, differentiated, mapped
    and sharded by JAX. Numbers, strings and other objects among the arguments are static. Tensors that the function reads from outside are read
    anew at each call, and are constants to JAX's derivatives.

    For a module: ``(apply, params, buffers)``, where params and buffers are dicts of arrays by name, and ``apply(params, buffers, *args, **kwargs)``
    returns what the module returns, and the buffers as they are afterwards.

    The derivatives are those that backward would give. TypeError for what cannot be called. When called: TracingError where the function asks for a
    value, changes a tensor from outside, or draws random numbers.
    """
    if not callable(function):
        raise TypeError(f"to_jax() takes a function or a module, not {type(function).__name__}")
    if hasattr(function, "_parameters") and hasattr(function, "_modules"):
        return _of_module(function)
    return functools.update_wrapper(ToJax(function, function), function)


def _of_module(module: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    params, buffers = ({name: for_user(t._concrete()) for name, t in named} for named in (module.named_parameters(), module.named_buffers()))

    def apply(params: dict[str, Any], buffers: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        tables = [(m, kind) for m in module.modules() for kind in ("_parameters", "_buffers")]
        before = [(getattr(m, kind), dict(getattr(m, kind))) for m, kind in tables]
        given = {"_parameters": (dict(module.named_parameters()), params), "_buffers": (dict(module.named_buffers()), buffers)}
        places = {}
        for kind, (own, new) in given.items():
            if own.keys() != new.keys():
                odd = sorted(own.keys() ^ new.keys())
                raise KeyError(f"{kind[1:]} do not fit the module: {', '.join(odd)} are only in one of them")
            for name, t in own.items():
                if new[name].shape != t.shape:
                    raise ValueError(f"{name} has shape {tuple(new[name].shape)} and not {tuple(t.shape)}")
                places[id(t)] = new[name]
        try:
            try:
                for m, kind in tables:
                    table = getattr(m, kind)
                    for name, t in table.items():
                        if t is not None:
                            table[name] = places[id(t)]
                result = module(*args, **kwargs)
                return result, dict(module.named_buffers())
            finally:
                _put_back(before)
        except BaseException:  # an interrupt may have come while they were put back
            _put_back(before)
            raise

    return functools.update_wrapper(ToJax(apply, module, 1), apply), params, buffers


def _put_back(tables: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    for table, content in tables:
        table.clear()
        table.update(content)
