"""Writes the table of jaxprs that need no trace: those of element-wise operators, their gradients and the gradients of these, and of reductions,
products with vectors and gradients of what was broadcast, which are the same for all sizes.

``python -m compat_suite.jaxprs [--check]`` writes `torchgrad_jax/runtime/jaxprs/table.txt`; or prints the lines of it that traces give otherwise.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import combinations, product
from typing import Any

import jax

import torchgrad_jax as torch
from torchgrad_jax.autograd import forward_ad
from torchgrad_jax.declaration.derivative import plan
from torchgrad_jax.declaration.operator import ARRAY, BoundOperator, all_bound, forget_signatures, registry
from torchgrad_jax.declaration.schema import REQUIRED
from torchgrad_jax.runtime import jaxprs
from torchgrad_jax.runtime.baseline import Plan
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.operation import of_vectors as of_elements
from torchgrad_jax.runtime.value import Aval, aval_of
from torchgrad_jax.runtime.vectors import LENGTH

F = torch.nn.functional
SINGLE, DOUBLE, LONG, BOOL, COMPLEX, HALF = map(jax.numpy.dtype, ("float32", "float64", "int64", "bool", "complex64", "bfloat16"))
VECTOR, SCALAR = (LENGTH,), ()
# A plan of more steps is not written down.
MOST_EQUATIONS = 28
# Operators that few programs begin with, by what their names begin with.
RARE = ("special_", "polygamma", "digamma", "mvlgamma", "igamma", "i0", "_dirichlet", "ldexp", "float_power", "gcd", "lcm", "nextafter", "frexp")
# What is differentiated twice, beside what has one operand.
TWICE = ("add", "sub", "rsub", "mul", "div", "pow_tensor", "mse_loss", "where_self", "add_scaled", "sub_scaled", "maximum", "minimum")
# Calls that give operators the static arguments that people give them: x is a tensor of numbers between 0 and 1, y another, b of bools.
CALLS = """
F.hardtanh(x); F.relu6(x); F.hardtanh(x, -2.0, 2.0); F.hardsigmoid(x); F.hardswish(x); F.leaky_relu(x); F.leaky_relu(x, 0.2); F.leaky_relu(x, 0.1)
F.elu(x); F.selu(x); F.celu(x); F.gelu(x); F.gelu(x, approximate="tanh"); F.softplus(x); torch.nn.Softplus()(x); F.silu(x); F.mish(x)
F.threshold(x, 0.1, 0.0); F.softshrink(x); F.hardshrink(x); F.tanhshrink(x); F.softsign(x); F.logsigmoid(x); F.rrelu(x); F.dropout(x, 0.1)
F.relu(x); x.sigmoid(); x.tanh(); x**2; x**3; x**4; x**2.0; x**3.0; x**0.5; x**-1; x**-1.0; x**-0.5; x**1.5; x**-2; x**5; x**y; 2**x; 2.0**x
x.square(); x.sqrt(); x.rsqrt(); torch.add(x, y, alpha=2); torch.sub(x, y, alpha=2); torch.add(x, y, alpha=0.5); x.add(1, alpha=2)
torch.rsub(x, y, alpha=2); 1 - x; 1.0 - x; 1 / x; torch.addcmul(x, x, y); torch.addcmul(x, x, y, value=0.5); torch.addcdiv(x, x, y)
torch.addcdiv(x, x, y, value=-0.1); torch.where(b, x, y); torch.where(b, x, 0.0); torch.where(b, 0.0, x); torch.where(b, 1, 0); torch.where(b, x, 0)
x.masked_fill(b, 0.0); x.masked_fill(b, float("-inf")); x.clamp(0.1, 0.9); x.clamp(min=0.1); x.clamp(max=0.9); x.clamp(min=y); x.clamp(max=y)
x.clamp(x, y); x.clamp_min(0); torch.isclose(x, y); F.mse_loss(x, y); F.mse_loss(x, y, reduction="sum"); F.mse_loss(x, y, reduction="none")
F.l1_loss(x, y); F.smooth_l1_loss(x, y); F.smooth_l1_loss(x, y, reduction="none"); F.huber_loss(x, y); F.huber_loss(x, y, reduction="none")
F.binary_cross_entropy(x, y); F.binary_cross_entropy(x, y, reduction="none"); F.binary_cross_entropy_with_logits(x, y)
F.binary_cross_entropy_with_logits(x, y, reduction="none"); F.soft_margin_loss(x, y); F.kl_div(x, y); F.poisson_nll_loss(x, y); x // y; x // 2
x % y; x % 2; torch.div(x, y, rounding_mode="trunc"); torch.fmod(x, y); x.lerp(y, 0.1); x.lerp(y, x); x.logit(); x.logit(1e-6); x.round()
torch.dist(x, y)
x.round(decimals=2); x.float(); x.double(); x.long(); x.int(); x.bool(); x.to(torch.bfloat16); x.clone(); x + 1; x - 1; x * 2; x / 2; x.abs()
x.sign(); x.neg(); x.exp(); x.log(); x.sin(); x.cos(); x.tan(); x.erf(); x.atan(); x.floor(); x.ceil(); x.log1p(); x.expm1(); x.reciprocal(); x == y
x != y; x < y; x <= y; x > y; x >= y; b & b; b | b; ~b; b ^ b; torch.logical_not(b); torch.logical_and(b, b); torch.logical_or(b, b)
torch.maximum(x, y); torch.minimum(x, y); torch.atan2(x, y); torch.hypot(x, y); torch.xlogy(x, y); torch.logaddexp(x, y); torch.isnan(x)
torch.isfinite(x); torch.isinf(x); torch.nan_to_num(x); torch.heaviside(x, y); torch.copysign(x, y); torch.fmax(x, y); torch.signbit(x)
torch.lgamma(x); torch.erfinv(x); torch.sinc(x); torch.deg2rad(x); torch.isclose(x, y, atol=1e-6); x.asin(); x.acos(); x.sinh(); x.cosh(); x.asinh()
x.acosh(); x.atanh(); x.trunc(); x.frac(); x.exp2(); x.log2(); x.log10(); torch.bitwise_and(x > 0, b); torch.remainder(x, 2); x.erfc()
"""

# Those that are carried forward, too; and operators that none but others call.
ARITHMETIC = """
x + y; x - y; x * y; x / y; -x; x * 2; x + 1; x - 1; 1 - x; x / 2; 2 / x; x**2; x**3; x.exp(); x.log(); x.sin(); x.cos(); x.tanh(); x.sigmoid()
x.sqrt(); x.square(); F.silu(x); F.softplus(x); F.relu(x); F.gelu(x); x.abs(); x.reciprocal(); torch.maximum(x, y); torch.where(b, x, y)
x.clamp(min=0.1)
"""
INNER = ("_mul_number", "_add_number")

# Calls of a tensor X of one to four dimensions; and of some whose shapes are those of `called_with`.
SIZED = """
X.sum(); X.sum(-1); X.sum(0); X.sum(-1, keepdim=True); X.sum(0, keepdim=True); X.long().sum(); (X > 0.5).sum(); (X > 0.5).sum(-1)
(X > 0.5).float().sum(-1); X.max(); X.min(); X.amax(-1); X.amin(-1); X.amax(-1, keepdim=True); X.amax(0); X.prod(); (X > 0.5).all(); (X > 0.5).any()
(X > 0.5).all(-1); (X > 0.5).any(-1); (X > 0.5).all(0); (X > 0.5).any(0); X.long().max(); X.long().min(); torch.count_nonzero(X); X.norm()
X.norm(dim=-1); X.norm(dim=-1, keepdim=True); torch.linalg.norm(X); torch.linalg.norm(X, dim=-1); torch.linalg.norm(X, dim=-1, keepdim=True)
X.norm(p=1); X.norm(p=1, dim=-1); X.norm(2, -1); X.norm(2, dim=-1, keepdim=True); X.logsumexp(-1); X.logsumexp(-1, keepdim=True); X.logsumexp(0)
F.normalize(X, dim=-1); F.cosine_similarity(X, X, dim=-1); F.mse_loss(X, X + 1); torch.dist(X, X + 1); X.square().sum().sqrt()
X.masked_fill(X > 0.5, 0.0); X.masked_fill(X > 0.5, float("-inf")); torch.where(X > 0.5, X, 0.0)
"""
RANKED = """
t.sum(1); t.sum(1, keepdim=True); t.amax(1); t.norm(dim=1); t.norm(dim=0); t.norm(dim=1, keepdim=True); t.norm(p=2, dim=1); t.logsumexp(1)
(t > 0.5).any(1); t.logsumexp(1, keepdim=True); F.normalize(t); F.normalize(t, dim=1); F.cosine_similarity(t, t); F.cosine_similarity(t, t, dim=1)
(t > 0.5).all(1); t.sum((0, 1)); u.sum(1); u.sum(2); u.sum((1, 2)); u.sum((0, 1)); u.sum((-2, -1)); u.sum(1, keepdim=True); u.sum(2, keepdim=True)
u.amax(1); u.norm(dim=1); u.norm(dim=2); u.norm(dim=2, keepdim=True); u.logsumexp(1); u.logsumexp(2); F.normalize(u); F.normalize(u, dim=1)
F.normalize(u, dim=2); u.sum(-2); u.sum(-2, keepdim=True); t.sum(-2); v.sum((2, 3)); v.sum((0, 2, 3)); v.sum(1); v.sum((2, 3), keepdim=True)
v.sum(1, keepdim=True); v.sum(2); t @ s; r @ t; r @ r; r.dot(r); r @ r.detach(); r.detach() @ r; torch.mv(t, s); torch.outer(r, s); t.mv(s)
torch.cdist(t, t)
torch.cdist(t, t + 1); torch.baddbmm(u, u, w); t + s; t - s; t * s; t / s; s - t; s / t; t + k; t - k; t * k; t / k; k - t; k / t; r[:, None] + s
r[:, None] - s; r[:, None] * s; r[:, None] / s; u + c; u - c; u * c; u / c; u + f; u - f; u * f; u + e; u - e; u * e; u / e; u + g; u * g; u - g
u / g; u + h; u * h; u - h; u / h; c * u; v + m; v * m; v - m; v / m; v + n; v * n; v - n; t[:, None] - t; t[:, None] + t; t[:, None] * t; u * o
u + o; u - o; v * p; v + p; v - p; v + q; torch.maximum(t, s); torch.minimum(t, s); torch.where(t > 0.5, t, s); torch.maximum(t, k); t.clamp(min=k)
torch.pow(t, s); t**k; t * z; t + z; t / z; t * i; t + i; i * t; t - i; t / i; r * i; r - i; r + i; t**i; u * z; u + z; u / z; t - z; z * t; z - t
z / t
"""
# Sizes that no product makes of others: few elements, more of them, and, by how many dimensions there are, as many as a line of the table is for.
SETS = ((3, 5, 7, 11), (7, 11, 13, 17), (13, 17, 19, 7), (113, 131, 5, 3), (29, 31, 17, 3), (11, 13, 17, 5))
# Which of them are equal, and which are 1: it is told for each by itself.
ALIKE = ("abcd", "aacd", "abbd", "aaad", "1bcd", "a1cd", "ab1d", "abcc", "1bcc", "a1cc")


def _evaluate(calls: str, names: dict[str, Any]) -> None:
    """Make calls; and, of what carries a gradient, go backward."""
    leaves = [x for x in names.values() if x.requires_grad]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in calls.replace("\n", ";").split(";"):
            found = eval(text.strip() or "torch.zeros(())", {"torch": torch, "F": F, **names})
            if found.requires_grad:
                with suppress(RuntimeError):  # some have no derivative
                    torch.autograd.grad(found, leaves, torch.ones_like(found), allow_unused=True)


def called() -> None:
    """Make the calls of element-wise operators, with a graph and without."""
    for needs in (False, True):
        names = {"x": torch.rand(4, 5), "y": torch.rand(4, 5), "b": torch.rand(4, 5) > 0.5}
        names["x"].requires_grad_(needs)
        _evaluate(CALLS, names)
    with forward_ad.dual_level():
        x, y = forward_ad.make_dual(names["x"].detach(), torch.ones(4, 5)), forward_ad.make_dual(names["y"], torch.ones(4, 5))
        for also in ({}, {"y": y}, {"x": x, "y": y.detach()}):
            _evaluate(ARITHMETIC, {**names, "x": x, **also})
    for name in INNER:
        registry[name].bind((ARRAY, ARRAY))


def called_with(sizes: tuple[int, ...]) -> None:
    """Make the calls with tensors of these sizes; gradients of all, and of some."""
    a, b, c, d = sizes
    shapes = {"r": (a,), "s": (b,), "t": (a, b), "k": (a, 1), "u": (a, b, c), "c": (c,), "f": (b, c), "e": (a, b, 1), "g": (a, 1, c), "h": (1, b, c),
              "o": (b, 1), "v": (a, b, c, d), "m": (d,), "n": (b, 1, 1), "p": (a, b, c, 1), "q": (a, 1, c, d), "w": (a, c, c), "z": (),
              "i": (1,)}  # fmt: skip
    for needs in ("", "rtuv", "skcfeghomnpqwzi", "".join(shapes)):
        names = {name: torch.rand(shape) for name, shape in shapes.items()}
        for name in needs:
            names[name].requires_grad_()
        _evaluate(RANKED, names)
        for x in "rtuv":
            _evaluate(SIZED, {"X": names[x]})


def operands(bound: BoundOperator) -> Iterator[tuple[Any, ...]]:
    """What an operator is written down for: tensors of one dtype, or one of bools or integers among them, vectors and scalars; numbers."""
    kinds = [bound.operator.schema.by_name[name].type for name in bound.names]
    tensors = [i for i, kind in enumerate(kinds) if kind != "Scalar"]
    for dtypes in _dtypes(len(tensors)):
        many = {*dtypes} == {SINGLE} if len(tensors) < 3 else {*dtypes[1:]} == {SINGLE} and dtypes[0] == BOOL
        many = many or (len(tensors) < 3 and {*dtypes} in ({LONG}, {BOOL}))
        choices: list[list[Any]] = []
        for i, kind in enumerate(kinds):
            dtype = None if kind == "Scalar" else dtypes[tensors.index(i)]
            arrays = [] if dtype is None else [aval_of(VECTOR, dtype), *([aval_of(SCALAR, dtype)] if many else [])]
            choices.append([*arrays, *([float, int] if kind != "Tensor" and dtype in (None, dtypes[0], dtypes[-1]) else [])])
        yield from (chosen for chosen in product(*choices) if any(isinstance(s, Aval) for s in chosen))


def _dtypes(count: int) -> Iterator[tuple[Any, ...]]:
    yield from ((dtype,) * count for dtype in (SINGLE, DOUBLE, LONG, BOOL, HALF, COMPLEX)[: 6 if count < 3 else 2])
    if count == 2:
        yield from ((SINGLE, BOOL), (BOOL, SINGLE), (SINGLE, LONG), (LONG, SINGLE))
    elif count > 2:
        yield from ((BOOL, *(other,) * (count - 1)) for other in (SINGLE, DOUBLE, LONG))
        yield from ((other, BOOL, *(other,) * (count - 2)) for other in (SINGLE, DOUBLE, LONG))


def signatures() -> Iterator[Signature]:
    """Of element-wise operators that were called, or that people often call; of their gradients, and the gradients of these."""
    for bound in all_bound():
        operator = getattr(bound, "operator", None)
        if operator is None or not operator.elementwise or operator.check is not None or operator.name.startswith(RARE) or bound.device is not None:
            continue
        if any(value is REQUIRED for value in bound.statics.values()):  # which some test left
            continue
        for specs in operands(bound):
            found = _signature(bound, specs)
            if found is not None:
                yield found
                yield from _gradients(found, 2 if _is_plain(specs) and (len(specs) == 1 or operator.name in TWICE) else 1)


def _is_plain(specs: Sequence[Any]) -> bool:
    return all(isinstance(s, type) or s is aval_of(VECTOR, SINGLE) for s in specs)


def _gradients(sig: Signature, depth: int) -> Iterator[Signature]:
    floats = [i for i, s in enumerate(sig.specs) if isinstance(s, Aval) and s.dtype.kind in "fc"]
    for count in range(1, len(floats) + 1):
        for inputs in combinations(floats, count):
            for vjp, specs in _backward(sig, inputs):
                found = _signature(vjp, specs)
                if found is not None:
                    yield found
                    if depth > 1:
                        yield from _gradients(found, depth - 1)


def _backward(sig: Signature, inputs: tuple[int, ...]) -> list[tuple[Any, tuple[Any, ...]]]:
    """The operation that backward is, with its operands. Where the numbers are reduced after that, the gradient is one number."""
    try:
        made = plan(sig, inputs)
        vjp = None if made is None or made.passes or made.zeros else made.vjp_of((True,) * len(sig.avals))
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return []
    if made is None or vjp is None:
        return []
    saved = [sig.specs[i] if i >= 0 else sig.avals[-1 - i] for i in made.saves]
    found = [(vjp, (*sig.avals, *saved))]
    return [*found, (vjp, (aval_of(SCALAR, sig.avals[0].dtype), *saved))] if "loss" in sig.bop.name or "entropy" in sig.bop.name else found


def _signature(bop: Any, specs: tuple[Any, ...]) -> Signature | None:
    try:
        return signature(bop, specs)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None


def _line(sig: Signature) -> tuple[str, str] | None:
    """What an operation is called, and its jaxpr; None of what is not written down."""
    sizes: dict[int, str] = {}
    key = jaxprs.key_of(sig.bop, sig.specs, sizes)
    if key is None or " at 0x" in key or sig.check is not None:
        return None
    closed, single = sig.traced_anew()
    if len(closed.jaxpr.eqns) > MOST_EQUATIONS:
        return None
    try:
        return key, jaxprs.written(closed, single, sizes)
    except jaxprs.NotWritten:
        return None


def of_vectors() -> dict[str, str]:
    """What there is to write down of vectors and scalars."""
    called()
    forward = [sig for bop in all_bound() if getattr(bop, "which", None) == "forward" for sig in list(bop.signatures.values())]
    found = {sig: None for sig in (*signatures(), *forward) if getattr(sig.baseline, "everywhere", False) and not has_a_shape(sig)}
    return dict([line for sig in found if (line := _line(sig)) is not None])


def of_any_sizes() -> dict[str, str]:
    """And of other shapes: what is the same for all sets of sizes."""
    found: dict[str, str] = {}
    told: dict[str, int] = {}
    for alike, sizes in product(ALIKE, SETS):
        called_with(tuple([sizes["abcd".index(letter)] if letter != "1" else 1 for letter in alike]))
        every = [sig for bop in all_bound() for sig in list(getattr(bop, "signatures", {}).values())]
        forget_signatures()
        for sig in every:
            line = _line(sig) if has_a_shape(sig) and _is_of_any_size(sig) else None
            if line is not None and found.setdefault(*line) != line[1]:
                found[line[0]] = ""  # it depends on the sizes
            elif line is not None:
                told[line[0]] = told.get(line[0], 0) + 1
    return {key: text for key, text in found.items() if text and told[key] > 2}


def has_a_shape(sig: Signature) -> bool:
    """Whether some operand is neither a vector of the length that stands for all nor a scalar."""
    return any(isinstance(s, Aval) and s.shape not in (VECTOR, SCALAR) for s in sig.specs)


def _is_of_any_size(sig: Signature) -> bool:
    return type(sig.baseline) is Plan and sig.baseline.any_sizes and not (sig.baseline.everywhere and of_elements(sig.bop))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m compat_suite.jaxprs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; print the lines that differ")
    check = parser.parse_args().check
    known = jaxprs.table() if check else {}
    if not check:
        jaxprs.write({})  # an older one may be read otherwise
    found = {jaxprs.VERSION: jax.__version__, **of_any_sizes(), **of_vectors()}
    if not check:
        jaxprs.write(found)
        print(f"{len(found)} jaxprs")
        return 0
    differ = sorted(key for key in {*found, *known} if found.get(key) != known.get(key))
    for key in differ:
        print(f"{key}\n    is written as {known.get(key)}\n    and traced as {found.get(key)}")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
