"""A JAX function as a differentiable operator: its calls are recorded, fused and differentiated like those of the declared operators.

What a call is made of beside its arrays (the structure of its arguments, and those that are no arrays) is static: a `JaxFunction` is the function
with all of this fixed, and traced once for each set of shapes and dtypes.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax import lax, tree_util
from jax import numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import bound_ever
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.runtime import device as devices
from torchgrad_jax.runtime._jax_compat import has_x64, traced_by_user
from torchgrad_jax.runtime.keeping import Memo
from torchgrad_jax.runtime.operation import ArgSpec, Signature
from torchgrad_jax.runtime.user_code import innermost_line
from torchgrad_jax.runtime.value import constant, is_tracer

_ARRAY = "an array"
_WIDE = {np.dtype(np.int64): np.dtype(np.int32), np.dtype(np.uint64): np.dtype(np.uint32)}
_PRECISE = (np.dtype(np.float64), np.dtype(np.complex128))


def from_jax(function: Callable[..., Any]) -> Callable[..., Any]:
    """A JAX function as an operator on Tensors. Usable as a decorator.

    The operator takes and returns what the function does, with Tensors in place of arrays, in any pytree. Tensors, JAX's and NumPy's arrays and keys
    of `jax.random` among its arguments are operands, of any shape and dtype; everything else is static: the function is traced anew for each value
    of it, which must be hashable. Numbers that the function returns come as 0-dim Tensors.

    A call is recorded like any other operation. Its derivatives of any order, in both directions, are JAX's of the function (`jax.custom_vjp` and
    `jax.custom_jvp` are heeded), under PyTorch's convention for complex numbers. Integer results carry no gradient.

    The function is called when it is traced and its graph kept, as with `jax.jit`: it must be pure, and must not read Tensors that are not among its
    arguments. It is traced with the user's `jax_enable_x64`; a float64 or complex128 argument turns 64-bit types on for the call. Without them
    64-bit integers reach it as 32-bit ones, as JAX has it, and a value that does not fit raises OverflowError.

    TypeError for what is not callable, for arguments that are neither arrays nor hashable, and for results that are no arrays. RuntimeError, in one
    sentence and with the line, for what JAX refuses. The function's own exceptions pass as they are.

    Example::

        @torchgrad_jax.from_jax
        def heat(u, steps):                       # steps is static
            return jax.lax.fori_loop(0, steps, lambda _, u: u + 0.1 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)), u)

        u = torch.randn(64, requires_grad=True)
        heat(u, 100).square().sum().backward()
    """
    if not callable(function):
        raise TypeError(f"from_jax(): argument 'function' (position 1) must be a function, not {type(function).__name__}")
    try:
        calls = _calls_of(function)
    except TypeError:  # not hashable
        calls = Calls(function)

    def operator(*args: Any, **kwargs: Any) -> Any:
        return calls(args, kwargs)

    return functools.wraps(function)(operator)


class Calls:
    """A function, and what its calls with different static arguments are."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        name = getattr(function, "__name__", None) or type(getattr(function, "func", function)).__name__
        self.name = name if name.isidentifier() else "from_jax"  # a lambda
        self.known = Memo()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, tree = tree_util.tree_flatten((args, kwargs), is_leaf=_is_tensor)
        operands: list[Tensor] = []
        layout = tuple([self._place(leaf, operands) for leaf in leaves])
        precise = has_x64() or any([t._aval.dtype in _PRECISE for t in operands])
        where = None if operands else devices.settled(devices.default())
        key = (tree, layout, precise, where)
        bound = self.known.get(key)
        if bound is None:
            bound = self.known.keep(key, JaxFunction(self, tree, layout, precise, where))
        staged = bound.staged_at(tuple([t._aval for t in operands]))
        made = apply(bound, operands) if staged.count else ()
        return tree_util.tree_unflatten(staged.tree, made if type(made) is tuple else (made,))

    def _place(self, leaf: Any, operands: list[Tensor]) -> Any:
        """What stands in the layout for an argument: that of an array goes to `operands`."""
        if isinstance(leaf, Tensor):
            operands.append(leaf)
        elif isinstance(leaf, jax.Array):
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                operands.append(wrap(constant(jax.random.key_data(leaf))))
                return Key(str(jax.random.key_impl(leaf)))
            operands.append(wrap(constant(leaf)))
        elif isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind not in "OSUMm":
            operands.append(wrap(from_data(leaf, None, None)))
        else:
            return Fixed(self.name, leaf)
        return _ARRAY


@functools.lru_cache(maxsize=256)
def _calls_of(function: Callable[..., Any]) -> Calls:
    """One for each function, so that ``from_jax(f)(x)`` in a loop traces once."""
    return Calls(function)


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


class Key(str):
    """In a layout: a key of `jax.random`, whose bits are an operand. It is the name of its generator."""

    __slots__ = ()


class Fixed:
    """In a layout: a static argument. 1, 1.0 and True differ, and so do 0.0 and -0.0."""

    __slots__ = ("value", "key", "hash")

    def __init__(self, name: str, value: Any) -> None:
        self.value = value
        self.key = (type(value), repr(value) if isinstance(value, (float, complex)) else value)
        try:
            self.hash = hash(self.key)
        except TypeError:
            raise TypeError(
                f"{name}: an argument of type {type(value).__name__} is neither an array nor hashable; "
                "what from_jax makes of a function takes Tensors, arrays, and hashable static arguments"
            ) from None

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and self.key == other.key


class JaxFunction:
    """A JAX function with its static arguments: the runtime's BoundOp."""

    __slots__ = (
        "name", "node_name", "signatures", "device", "differentiable", "setting", "calls", "tree", "layout", "precise", "_staged", "__weakref__",
    )  # fmt: skip
    keeps_order, order = False, None

    def __init__(self, calls: Calls, tree: Any, layout: tuple[Any, ...], precise: bool, where: devices.device | None) -> None:
        self.name, self.node_name, self.device, self.differentiable = calls.name, f"{calls.name}Backward", where, True
        self.signatures: dict[tuple[ArgSpec, ...], Signature] = {}
        self.calls, self.tree, self.layout, self.precise = calls, tree, layout, precise
        self.setting = functools.partial(traced_by_user, precise)
        # As long as a Signature is kept, so is what it was made of.
        self._staged: weakref.WeakValueDictionary[tuple[ArgSpec, ...], Staged] = weakref.WeakValueDictionary()
        bound_ever.append(weakref.ref(self))

    def staged_at(self, specs: tuple[ArgSpec, ...]) -> Staged:
        """The function traced for operands like `specs`."""
        found = self._staged.get(specs)
        if found is None:
            found = self._staged[specs] = Staged(self, specs)
        return found

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""
        return self.staged_at(tuple(specs))

    def check(self, specs: Sequence[ArgSpec]) -> Callable[..., Exception] | None:
        """See the runtime's BoundOp."""
        return self._overflow if self.narrowed(specs) else None

    def _overflow(self, offender: int) -> Exception:
        return OverflowError(
            f"{self.name}: {offender} does not fit into the 32-bit integers that JAX has while jax_enable_x64 is off; "
            "call jax.config.update('jax_enable_x64', True)"
        )

    def narrowed(self, specs: Sequence[Any]) -> list[int]:
        """Which operands reach the function with half of their bits."""
        return [] if self.precise else [i for i, s in enumerate(specs) if s.dtype in _WIDE]

    def call(self, arrays: Sequence[Any]) -> tuple[list[Any], Any]:
        """The function's results as a list of arrays, and the structure that they are the leaves of. What JAX refuses is one sentence."""
        rest = iter(arrays)
        filled = [item.value if type(item) is Fixed else _key(item, next(rest)) if type(item) is Key else next(rest) for item in self.layout]
        args, kwargs = tree_util.tree_unflatten(self.tree, filled)
        with _inside(self.name):
            try:
                found = self.calls.function(*args, **kwargs)
            except Exception as error:
                refused = _in_one_sentence(self.name, error)
                if refused is None:
                    raise
                raise refused from None
            leaves, tree = tree_util.tree_flatten(found, is_leaf=_is_tensor)
            return [self._array(leaf) for leaf in leaves], tree

    def _array(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            leaf = leaf._concrete()
        elif not isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
            raise TypeError(f"{self.name}: the function returns an object of type {type(leaf).__name__}; what from_jax takes returns arrays")
        array = jnp.asarray(leaf)
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            raise TypeError(f"{self.name}: the function returns a key of jax.random; let it return jax.random.key_data of it")
        if not dtypes.is_known(np.dtype(array.dtype)):
            raise TypeError(f"{self.name}: the function returns an array of dtype {array.dtype}, which no Tensor has")
        return array

    def __repr__(self) -> str:
        return f"<from_jax {self.name}>"


def _key(generator: Key, data: Any) -> Any:
    return jax.random.wrap_key_data(data, impl=str(generator))


class Staged:
    """A JaxFunction traced for operands of given shapes and dtypes: a function of arrays. tree: the structure of its results, count: their number."""

    __slots__ = ("bound", "specs", "tree", "count", "_run", "_narrowed", "__weakref__")

    def __init__(self, bound: JaxFunction, specs: tuple[Any, ...]) -> None:
        self.bound, self.specs, self._narrowed = bound, specs, bound.narrowed(specs)
        given = [jax.ShapeDtypeStruct(s.shape, _WIDE[s.dtype] if i in self._narrowed else s.dtype) for i, s in enumerate(specs)]
        trees: list[Any] = []

        def flat(*arrays: Any) -> list[Any]:
            leaves, tree = bound.call(arrays)
            trees.append(tree)
            return leaves

        closed = traced_by_user(bound.precise, jax.make_jaxpr(flat))(*given)
        if any(map(is_tracer, closed.consts)):
            raise RuntimeError(f"{bound.name}: the function reads a traced array that is not among its arguments; pass it as an argument")
        if any(map(_is_ordered, closed.effects)):
            raise RuntimeError(f"{bound.name}: the function has ordered side effects, which a recorded operation cannot keep; use ordered=False")
        self.tree, self.count = trees[0], len(closed.out_avals)
        self._run = jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, [_on_host(c) for c in closed.consts]))

    def __call__(self, *arrays: Any) -> Any:
        outs, beyond = traced_by_user(self.bound.precise, self._results)(*arrays)
        if self._narrowed:
            # Within a derivative there are no 64-bit types, and the check was made before.
            outs.append(_first_beyond(beyond) if has_x64() else jnp.zeros(2, jnp.int32))
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _results(self, *arrays: Any) -> tuple[list[Any], list[Any]]:
        given = list(arrays)
        wide = []
        for i in self._narrowed:
            if given[i].dtype in _WIDE:
                wide.append(given[i])
                given[i] = lax.convert_element_type(given[i], _WIDE[given[i].dtype])
        alike = all([a.dtype == (_WIDE[s.dtype] if i in self._narrowed else s.dtype) for i, (a, s) in enumerate(zip(given, self.specs, strict=True))])
        # Inside a transformation of the user's without 64-bit types the operands are not what they were traced as.
        return list(self._run(*given) if alike else self.bound.call(given)[0]), wide


def _is_ordered(effect: Any) -> bool:
    return "Ordered" in type(effect).__name__


def _on_host(array: Any) -> Any:
    """A constant of the function's as host data: it lives in the client of the user's JAX."""
    return array if jnp.issubdtype(array.dtype, jax.dtypes.extended) else np.asarray(array)


def _first_beyond(arrays: Sequence[Any]) -> Any:
    """The check of integers that were narrowed: whether one did not fit, and the first of these."""
    pair = jnp.zeros(2, jnp.int64)
    for a in reversed(arrays):
        if a.size:
            flat = a.reshape(-1)
            beyond = flat != lax.convert_element_type(lax.convert_element_type(flat, _WIDE[a.dtype]), a.dtype)
            where = jnp.argmax(beyond)
            own = jnp.stack([beyond[where].astype(jnp.int64), flat[where].astype(jnp.int64)])
            pair = jnp.where(beyond[where], own, pair)
    return pair


# ---------------------------------------------------------------------- what a function must not do


class _Running(threading.local):
    names: tuple[str, ...] = ()


_running = _Running()


@contextmanager
def _inside(name: str):  # type: ignore[no-untyped-def] - a generator
    before = _running.names
    _running.names = (*before, name)
    try:
        yield
    finally:
        _running.names = before


def refuse_captured(array: Any) -> None:
    """RuntimeError where a function that is being traced asks for the array of a Tensor that is not among its arguments: what it is now would stay
    in the program, and no gradient would lead to it."""
    if _running.names and not is_tracer(array):
        raise RuntimeError(
            f"{_running.names[-1]}: the function that from_jax was given reads a Tensor that is not among its arguments; pass it as an argument"
        )


def _in_one_sentence(name: str, error: Exception) -> Exception | None:
    """JAX's refusal as one sentence with the user's line; None for an exception that is the function's own."""
    text = str(error).partition("\n")[0].strip()
    if not _is_of_jax(error):
        return None
    line = innermost_line(error, ("jax", "jaxlib", "torchgrad_jax"))
    return RuntimeError(f"{name}: {text}" + (f" (at {line})" if line else ""))


def _is_of_jax(error: Exception) -> bool:
    """Whether JAX raised it: the innermost frame is JAX's, or JAX says that it has taken its frames away."""
    if isinstance(error, jax.errors.JAXTypeError | jax.errors.JAXIndexError):
        return True
    if any("JAX has removed its internal frames" in note for note in getattr(error, "__notes__", ())):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in ("jax", "jaxlib")
