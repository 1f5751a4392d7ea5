"""The checks of one call: each raises Difference where a transform of it is not what it must be equal to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

import torchgrad_jax as tj
from compat_suite.counting import Difference, NotApplicable
from compat_suite.transforms import through
from compat_suite.transforms.case import Case, array, inner, like, others, same, same_arrays, tensor

SIZE = 2  # of batches
MOST_ALONE = 4  # operands that are mapped one by one


# ---------------------------------------------------------------------- vmap


def _choices(places: Sequence[int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Which of the operands at these places are mapped: each alone, and all together."""
    if len(places) > 1:
        for i in places[:MOST_ALONE]:
            yield f"operand {i} mapped", (i,)
    yield "all mapped", tuple(places)


def _stacked(parts: Sequence[np.ndarray], dim: int) -> np.ndarray:
    return np.ascontiguousarray(np.stack(parts, dim))


def _looped(call: Callable[[Sequence[Any]], list[Any]], rows: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """The results of the call for each row of arrays. NotApplicable where it cannot be called with one."""
    found = []
    for row in rows:
        try:
            found.append([array(t) for t in call([tensor(a) for a in row])])
        except Exception as error:
            raise NotApplicable(str(error)) from None
    return found


def _settle(case: Case, arrays: list[np.ndarray], dims: Sequence[Sequence[int | None]], call: Callable[[], Any]) -> Any:
    """What the call returns. NotApplicable where it raises what vmap in PyTorch may raise too."""
    try:
        return call()
    except Exception as error:
        if _refused(case, arrays, dims, error):
            raise NotApplicable(str(error)) from None
        raise Difference(f"{type(error).__name__}: {error}") from error


def _refused(case: Case, arrays: list[np.ndarray], dims: Sequence[Sequence[int | None]], error: Exception) -> bool:
    """Whether PyTorch's vmap raises too. Where there is no PyTorch: whether the error is one of those that it has. A sample that itself seeds the
    generator cannot be traced, nor can one whose results' shapes are told by values."""
    if "result's shape depends on it" in str(error) and _shapes_are_told_by_values(case):
        return True
    if case.theirs is None:
        return isinstance(error, RuntimeError | ValueError) and str(error).startswith("vmap: ")
    if "seeds the random generator" in str(error):
        return True
    try:
        case.theirs(arrays, dims)
    except Exception:
        return True
    return False


def _shapes_are_told_by_values(case: Case) -> bool:
    shapes = []
    for arrays in (case.arrays, [np.zeros_like(a) for a in case.arrays]):
        try:
            shapes.append([t.shape for t in case.results([tensor(a) for a in arrays])])
        except Exception:
            return False
    return shapes[0] != shapes[1]


def _mapped_is_looped(case: Case, what: str, chosen: tuple[int, ...], last: bool) -> None:
    """vmap over some operands, along their first or their last dimension, is the loop."""
    rows = [[others(a, SIZE)[b] if i in chosen else a for i, a in enumerate(case.arrays)] for b in range(SIZE)]
    expected = _looped(case.results, rows)
    dims = [(a.ndim if last and i % 2 == 0 else 0) if i in chosen else None for i, a in enumerate(case.arrays)]
    given = [a if d is None else _stacked([row[i] for row in rows], d) for i, (a, d) in enumerate(zip(case.arrays, dims, strict=True))]
    out_dim = -1 if last else 0
    found = _settle(case, given, [dims], lambda: through.vmap(case.results, [tensor(a) for a in given], dims, out_dim))
    _same_batches(case, found, expected, what, out_dim)


def _same_batches(case: Case, found: list[Any], expected: list[list[np.ndarray]], what: str, out_dim: int) -> None:
    if len(found) != len(expected[0]):
        raise Difference(f"{what}: {len(found)} results, expected {len(expected[0])}")
    for i, (t, *parts) in enumerate(zip(found, *expected, strict=True)):
        if len({p.shape for p in parts}) > 1:
            raise Difference(f"{what}: result {i} is one although the shape depends on the values")
        same(t, _stacked(parts, parts[0].ndim if out_dim else 0), f"{what}: result[{i}]", 2.0, case.unfilled)


def _nested(case: Case) -> None:
    """A vmap in a vmap, all operands mapped by both."""
    rows = [[others(a, SIZE * SIZE)[b] for a in case.arrays] for b in range(SIZE * SIZE)]
    expected = _looped(case.results, rows)
    given = [np.stack([row[i] for row in rows]).reshape(SIZE, SIZE, *a.shape) for i, a in enumerate(case.arrays)]
    dims = [0] * len(given)
    inside = lambda ts: through.vmap(case.results, ts, dims)  # noqa: E731
    found = _settle(case, given, [dims, dims], lambda: through.vmap(inside, [tensor(a) for a in given], dims))
    for i, (t, *parts) in enumerate(zip(found, *expected, strict=True)):
        same(t, np.stack(parts).reshape(SIZE, SIZE, *parts[0].shape), f"vmap of vmap: result[{i}]", 2.0, case.unfilled)


def check_vmap(case: Case) -> None:
    """vmap is a loop: over each operand alone, all together, and by a vmap in a vmap."""
    if not case.arrays or not _looped(case.results, [case.arrays])[0]:
        raise NotApplicable("no tensors")
    done = 0
    for k, (what, chosen) in enumerate(_choices(range(len(case.arrays)))):
        try:
            _mapped_is_looped(case, what, chosen, bool(k % 2))
            done += 1
        except NotApplicable:
            continue
    try:
        _nested(case)
    except NotApplicable:
        if not done:
            raise


# ---------------------------------------------------------------------- derivatives


def _weights(case: Case, seed: int = 1, size: int = 0) -> Callable[[list[Any]], list[Any]]:
    """Gives random gradients for results; a batch of them if there is a size."""

    def gradients(results: list[Any]) -> list[Any]:
        random = np.random.default_rng(seed)
        shapes = [np.broadcast_to(np.zeros((), str(t.dtype).rpartition(".")[2]), ((size,) if size else ()) + tuple(t.shape)) for t in results]
        return [tensor(like(a, random)) for a in shapes]

    return gradients


def _leaves(case: Case) -> list[np.ndarray]:
    if not case.leaves:
        raise NotApplicable("nothing to differentiate")
    return [case.arrays[i] for i in case.leaves]


def _gradients(case: Case, leaves: Sequence[np.ndarray], weights: Sequence[np.ndarray] | None = None) -> tuple[list[np.ndarray], list[Any]]:
    """The gradients by an ordinary backward pass, outside of every transform, and the gradients of the results that they are for."""
    given = [tensor(a).requires_grad_() for a in leaves]
    try:
        results = case.differentiated(given)
    except Exception as error:
        raise NotApplicable(str(error)) from None
    chosen = _weights(case)(results) if weights is None else [tensor(a) for a in weights]
    pairs = [(t, w) for t, w in zip(results, chosen, strict=True) if t.requires_grad]
    if not pairs:
        raise NotApplicable("nothing to differentiate")
    found = tj.autograd.grad([t for t, _ in pairs], given, [w for _, w in pairs], allow_unused=True)
    return [np.zeros_like(a) if g is None else array(g) for g, a in zip(found, leaves, strict=True)], [array(w) for w in chosen]


def _coarse(case: Case) -> float:
    """How much coarser than doubles the numbers of a call are."""
    return 1.0 if all(a.dtype.name in ("float64", "complex128") for a in case.arrays if a.dtype.kind in "fc") else 1e4


def check_transpose(case: Case) -> None:
    """<u, jvp(v)> is <vjp(u), v>."""
    leaves = _leaves(case)
    _, weights = _gradients(case, leaves)
    random = np.random.default_rng(2)
    directions = [like(a, random) for a in leaves]
    given = [tensor(a) for a in leaves]
    tangents = through.jvp(case.differentiated, given, [tensor(d) for d in directions])
    gradients = through.vjp(case.differentiated, given, lambda results: [tensor(w) for w in weights])
    ahead, size = inner(weights, [None if t is None else array(t) for t in tangents])
    back, other = inner([None if g is None else array(g) for g in gradients], directions)
    if not (abs(ahead - back) <= 1e-8 * _coarse(case) * (1 + size + other) or (np.isnan(ahead) and np.isnan(back)) or ahead == back):
        raise Difference(f"<u, jvp(v)> = {ahead}, <vjp(u), v> = {back}")


def _scalar(results: list[Any]) -> Any:
    """A real number of the results that has second derivatives, whatever they are of."""
    total: Any = 0.0
    for i, t in enumerate(results):
        squares = (t * t.conj()).real if t.is_complex() else t * t
        total = total + (1 + i / 4) * squares.sum()
    return total


def check_second(case: Case) -> None:
    """Forward over reverse is reverse over reverse: products of a Hessian with a vector."""
    leaves = _leaves(case)
    _gradients(case, leaves)
    random = np.random.default_rng(3)
    directions = [tensor(like(a, random)) for a in leaves]
    given = [tensor(a) for a in leaves]

    def gradients(ts: Sequence[Any]) -> list[Any]:
        found = through.vjp(lambda inside: [_scalar(case.differentiated(inside))], ts, lambda results: [tj.ones_like(r) for r in results])
        return [tj.zeros_like(t) if g is None else g for g, t in zip(found, ts, strict=True)]

    def product(ts: Sequence[Any]) -> list[Any]:
        pairs = zip(gradients(ts), directions, strict=True)
        return [sum(((d.conj() * g).real if g.is_complex() else d * g).sum() for g, d in pairs)]

    forward = through.jvp(gradients, given, directions)
    reverse = through.vjp(product, given, lambda results: [tj.ones_like(r) for r in results])
    for i, (f, r, a) in enumerate(zip(forward, reverse, leaves, strict=True)):
        same(tensor(np.zeros_like(a)) if f is None else f, np.zeros_like(a) if r is None else array(r), f"Hessian product[{i}]", 5.0 * _coarse(case))


# ---------------------------------------------------------------------- both


def _all(case: Case, leaves: Sequence[np.ndarray], dims: Sequence[int | None]) -> tuple[list[np.ndarray], list[list[int | None]]]:
    """The arrays of all operands and which dimension of each is mapped, given those of the leaves."""
    arrays, mapped = list(case.arrays), [None] * len(case.arrays)
    for i, a, d in zip(case.leaves, leaves, dims, strict=True):
        arrays[i], mapped[i] = a, d
    return arrays, [mapped]


def check_vmap_of_vjp(case: Case) -> None:
    """vmap of a vjp is a loop of vjps: gradients and what they are taken at mapped."""
    leaves = _leaves(case)
    rows = [[others(a, SIZE)[b] for a in leaves] for b in range(SIZE)]
    _, weights = _gradients(case, leaves)
    cotangents = [others(w, SIZE) for w in weights]
    expected = [_gradients(case, row, [c[b] for c in cotangents])[0] for b, row in enumerate(rows)]
    n = len(leaves)
    given = [np.stack([row[i] for row in rows]) for i in range(n)] + [np.stack(c) for c in cotangents]

    def gradients(ts: Sequence[Any]) -> list[Any]:
        found = through.vjp(case.differentiated, ts[:n], lambda results: list(ts[n:]))
        return [tj.zeros_like(t) if g is None else g for g, t in zip(found, ts[:n], strict=True)]

    dims = [0] * len(given)
    found = _settle(case, *_all(case, given[:n], dims[:n]), lambda: through.vmap(gradients, [tensor(a) for a in given], dims))
    for i, (t, *parts) in enumerate(zip(found, *expected, strict=True)):
        same(t, np.stack(parts), f"gradient[{i}]", 2.0)


def _gradient_of_vmap(case: Case, what: str, chosen: tuple[int, ...]) -> None:
    """The gradients through a vmap over some leaves: those of what is not mapped are added up."""
    leaves = [case.arrays[i] for i in case.leaves]
    rows = [[others(a, SIZE)[b] if i in chosen else a for i, a in enumerate(leaves)] for b in range(SIZE)]
    parts = [_gradients(case, row) for row in rows]
    expected = [np.stack([g[i] for g, _ in parts]) if i in chosen else sum(g[i] for g, _ in parts) for i in range(len(leaves))]
    if any(len({w.shape for w in weights}) > 1 for weights in zip(*[w for _, w in parts], strict=True)):
        raise NotApplicable("shapes depend on values")
    weights = [np.stack(w) for w in zip(*[w for _, w in parts], strict=True)]
    dims = [0 if i in chosen else None for i in range(len(leaves))]
    given = [tensor(_stacked([row[i] for row in rows], 0) if i in chosen else a) for i, a in enumerate(leaves)]

    def outside(ts: Sequence[Any]) -> list[Any]:
        return through.vmap(case.differentiated, ts, dims)

    def plainly() -> list[Any]:
        """By an ordinary backward pass: of what is not mapped the function has captured."""
        asked = [t.detach().requires_grad_() for t in given]
        pairs = [(t, tensor(w)) for t, w in zip(outside(asked), weights, strict=True) if t.requires_grad]
        return list(tj.autograd.grad([t for t, _ in pairs], asked, [w for _, w in pairs], allow_unused=True))

    ways = {"backward": plainly, "vjp": lambda: through.vjp(outside, given, lambda results: [tensor(w) for w in weights])}
    for way, call in ways.items():
        found = _settle(case, *_all(case, [array(t) for t in given], dims), call)
        for i, (g, e) in enumerate(zip(found, expected, strict=True)):
            same(tensor(np.zeros_like(e)) if g is None else g, e, f"{what}, {way}: gradient[{i}]", 2.0)


def check_grad_of_vmap(case: Case) -> None:
    """The gradient of a vmap is the sum of gradients, or their stack."""
    done = 0
    _leaves(case)
    for what, chosen in _choices(range(len(case.leaves))):
        try:
            _gradient_of_vmap(case, what, chosen)
            done += 1
        except NotApplicable:
            continue
    if not done:
        raise NotApplicable("nothing to differentiate")


# ---------------------------------------------------------------------- programs


def _again(case: Case) -> list[list[np.ndarray]]:
    """The operands of three calls: the last is as the first."""
    rows = [[others(a, SIZE)[b] for a in case.arrays] for b in range(SIZE)]
    return [rows[0], rows[1], rows[0]]


def check_jit(case: Case) -> None:
    """`jit` is the function itself, call after call, and so are gradients through it."""
    jitted = tj.jit(case.unseeded)
    for row in _again(case):
        (expected,) = _looped(case.results, [row])
        tj.manual_seed(0)
        found = jitted(*[tensor(a) for a in row])
        if len(found) != len(expected):
            raise Difference(f"{len(found)} results, expected {len(expected)}")
        for i, (t, e) in enumerate(zip(found, expected, strict=True)):
            same(t, e, f"result[{i}]", 2.0, case.unfilled)


def check_grad_of_jit(case: Case) -> None:
    """Gradients through `jit` are those of the function itself."""
    _leaves(case)
    jitted = tj.jit(case.unseeded_of_leaves)
    for row in _again(case):
        leaves = [row[i] for i in case.leaves]
        expected, weights = _gradients(case, leaves)
        tj.manual_seed(0)
        given = [tensor(a).requires_grad_() for a in leaves]
        pairs = [(t, tensor(w)) for t, w in zip(jitted(*given), weights, strict=True) if t.requires_grad]
        found = tj.autograd.grad([t for t, _ in pairs], given, [w for _, w in pairs], allow_unused=True)
        for i, (g, e) in enumerate(zip(found, expected, strict=True)):
            same(tensor(np.zeros_like(e)) if g is None else g, e, f"gradient[{i}]", 2.0)


def _all_stacked(case: Case) -> tuple[list[np.ndarray], list[list[int | None]]]:
    """All operands twice, all mapped: what PyTorch's vmap refuses, as shapes that depend on values, may be refused where it is traced."""
    return [np.stack([a, a]) for a in case.arrays], [[0] * len(case.arrays)]


def check_to_jax(case: Case) -> None:
    """`to_jax` is the function itself, under `jax.jit` too."""
    (expected,) = _looped(case.results, [case.arrays])
    with jax.enable_x64(True):
        pure, given = tj.to_jax(case.unseeded), [jnp.asarray(a) for a in case.arrays]
        for call in (pure, jax.jit(pure)):
            tj.manual_seed(0)
            found = _settle(case, *_all_stacked(case), lambda call=call: call(*given))
            for i, (a, e) in enumerate(zip(found, expected, strict=True)):
                same_arrays(np.asarray(a), e, f"result[{i}]", 2.0, case.unfilled)


def check_grad_of_to_jax(case: Case) -> None:
    """JAX's gradients of `to_jax` are ours; of complex numbers the conjugates."""
    leaves = _leaves(case)
    expected, weights = _gradients(case, leaves)
    with jax.enable_x64(True):
        pure = tj.to_jax(case.unseeded_of_leaves)

        def total(*given: Any) -> Any:
            return sum((jnp.conj(w) * a).real.sum() for w, a in zip(weights, pure(*given), strict=True))

        tj.manual_seed(0)
        gradients = jax.grad(total, tuple(range(len(leaves))))
        found = _settle(case, *_all_stacked(case), lambda: gradients(*[jnp.asarray(a) for a in leaves]))
        for i, (g, e) in enumerate(zip(found, expected, strict=True)):
            same_arrays(np.conj(np.asarray(g)), e, f"gradient[{i}]", 2.0)


CHECKS: dict[str, Callable[[Case], None]] = {
    "vmap": check_vmap,
    "inplace": check_vmap,
    "transpose": check_transpose,
    "second": check_second,
    "vmap_of_vjp": check_vmap_of_vjp,
    "grad_of_vmap": check_grad_of_vmap,
    "jit": check_jit,
    "grad_of_jit": check_grad_of_jit,
    "to_jax": check_to_jax,
    "grad_of_to_jax": check_grad_of_to_jax,
}
VALUES = frozenset({"vmap", "inplace", "jit", "to_jax"})
DERIVATIVES = frozenset(CHECKS) - VALUES
