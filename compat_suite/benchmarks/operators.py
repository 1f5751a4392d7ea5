"""Time of single operators, forward and with their gradients, at a small and a large size, as ratios to PyTorch eager.

Each call is looked at before the next: at the small size that is the cost of one operation and of handing its result out, at the large size the
kernel's. Rounds follow one another over all backends and the best time counts. Gradients are those of all operands for a gradient of ones.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compat_suite.benchmarks.backends import LABELS, namespace, tensor_maker
from compat_suite.benchmarks.processes import in_fresh_process
from compat_suite.benchmarks.report import Report, duration, table
from compat_suite.benchmarks.speed import best_time

SIZES = ("small", "large")
STEADY_CALLS, STEADY_SECONDS = 10, 0.01  # a time that counts is of this many calls, in the warm-up, or of as many as fill the seconds
WARM_UP = 2.0  # seconds after which a call is measured though its time still falls
WORST = 5.0  # times PyTorch's time: more at the large size is to be explained in docs/benchmarks.md

# Each operator of tier 1 (views with one more operation, which reads them): a call on the operands of `operands`. Names of leaves are lower-case: the
# call is differentiated by those that it uses.
CALLS = {
    "to": "x.to(torch.float64)", "zeros": "torch.zeros(N, N)", "item": "S.item()", "cat": "torch.cat([x, y])", "view": "x.view(-1) + 1",
    "nn.functional.linear": "F.linear(x, w, v)", "mean": "x.mean()", "reshape": "x.t().reshape(-1)", "ones": "torch.ones(N, N)",
    "clone": "x.clone()", "unsqueeze": "x.unsqueeze(0) + 1", "randn": "torch.randn(N, N)", "sum": "x.sum()", "sum(dim)": "x.sum(0)",
    "stack": "torch.stack([x, y])", "zeros_like": "torch.zeros_like(X)", "float": "IDS.float()", "exp": "x.exp()",
    "max.binary": "torch.max(x, y)", "max.reduction_no_dim": "x.max()", "max.reduction_with_dim": "x.max(1)[0]", "abs": "x.abs()",
    "flatten": "cube.flatten() + 1", "squeeze": "x.unsqueeze(0).squeeze() + 1", "transpose": "x.transpose(0, 1) + 1",
    "transpose (contiguous)": "x.transpose(0, 1).contiguous()", "arange": "torch.arange(N * N)", "sqrt": "p.sqrt()",
    "ones_like": "torch.ones_like(X)", "all": "MASK.all()", "linspace": "torch.linspace(0, 1, N * N)", "sin": "x.sin()", "long": "X.long()",
    "clamp": "x.clamp(-0.5, 0.5)", "T": "x.T + 1", "expand": "v.expand(N, N) + 1", "pow": "p.pow(2.5)", "norm": "x.norm()",
    "nn.functional.conv2d": "F.conv2d(image, kernel, padding=1)", "nn.functional.conv2d (stride 2)": "F.conv2d(image, kernel, stride=2, padding=1)",
    "nn.functional.conv2d (1x1)": "F.conv2d(image, point)", "allclose": "torch.allclose(X, X)", "cos": "x.cos()", "repeat": "v.repeat(N, 1)",
    "min.binary": "torch.min(x, y)", "min.reduction_no_dim": "x.min()", "min.reduction_with_dim": "x.min(1)[0]", "sigmoid": "x.sigmoid()",
    "tanh": "x.tanh()", "matmul": "x @ y", "matmul (batched)": "cube @ cube", "eye": "torch.eye(N)", "empty": "torch.empty(N, N)",
    "where": "torch.where(MASK, x, y)", "randint": "torch.randint(0, 9, (N, N))", "permute": "cube.permute(2, 0, 1).contiguous()",
    "nn.functional.relu": "F.relu(x)", "einsum": "torch.einsum('bij,bjk->bik', cube, cube)",
    "meshgrid.variadic_tensors": "torch.meshgrid(v, v, indexing='ij')[0] + 1", "flip": "x.flip(0)", "mul": "x * y", "zero_": "X.zero_()",
    "nn.functional.dropout": "F.dropout(x, 0.5)", "randn_like": "torch.randn_like(X)", "full": "torch.full((N, N), 2.0)", "diag": "v.diag()",
    "log": "p.log()", "div.no_rounding_mode": "x / p", "any": "MASK.any()", "linalg.norm": "torch.linalg.norm(x)", "argmax": "X.argmax(1)",
    "eq": "X == Y", "equal": "torch.equal(X, X)", "std": "x.std()", "double": "x.double()", "mm": "x.mm(y)", "isfinite": "torch.isfinite(X)",
    "sign": "X.sign()", "sort": "x.sort()[0]", "full_like": "torch.full_like(X, 2.0)", "dot": "row.dot(row)",
    "linalg.cholesky": "torch.linalg.cholesky(spd)", "isnan": "torch.isnan(X)",
    "linalg.solve_triangular": "torch.linalg.solve_triangular(tri, a, upper=False)",
    "nn.functional.batch_norm": "F.batch_norm(image, None, None, training=True)", "masked_fill": "x.masked_fill(MASK, 0.0)",
    "nn.functional.embedding": "F.embedding(WORDS, words)", "nn.functional.elu": "F.elu(x)", "empty_like": "torch.empty_like(X)",
    "nn.functional.cross_entropy": "F.cross_entropy(logits, LABELS)", "nn.functional.softplus": "F.softplus(x)", "softmax": "x.softmax(1)",
    "nn.functional.pad.constant": "F.pad(x, (1, 2, 3, 4))", "nn.functional.max_pool2d": "F.max_pool2d(image, 2)",
    "gather": "x.gather(1, IDS)", "square": "x.square()", "var": "x.var(1)", "nn.functional.one_hot": "F.one_hot(LABELS, CLASSES)",
    "rand_like": "torch.rand_like(X)", "reciprocal": "p.reciprocal()", "tril": "x.tril()", "topk": "x.topk(5)[0]",
    "nn.functional.gelu": "F.gelu(x)", "cdist": "torch.cdist(points, others)", "mT": "x.mT + 1", "nn.functional.mse_loss": "F.mse_loss(x, y)",
    "nn.functional.conv1d": "F.conv1d(sound, filter, padding=2)", "linalg.inv": "torch.linalg.inv(a)", "cumsum": "x.cumsum(1)",
    "prod": "near.prod(1)", "split": "x.split(N // 2)[1] + 1", "chunk": "x.chunk(2)[1] + 1", "bmm": "cube.bmm(cube)", "add": "x + y",
    "add (scalar)": "x + 2.0",
    "linalg.solve": "torch.linalg.solve(a, spd)", "log_softmax": "x.log_softmax(1)", "lt": "X < Y", "linalg.eigh": "torch.linalg.eigh(spd)[0]",
    "linalg.svd": "torch.linalg.svd(a)[1]", "nn.functional.silu": "F.silu(x)", "index_select": "x.index_select(0, ROWS)",
    "neg": "-x",
    "nn.functional.layer_norm": "F.layer_norm(x, (N,), v, v)", "round": "X.round()", "unbind": "x.unbind()[1] + 1", "argmin": "X.argmin(1)",
    "gt": "X > Y",
    "clamp_min": "x.clamp_min(0.1)", "nn.functional.scaled_dot_product_attention": "F.scaled_dot_product_attention(query, key, value)",
    "log1p": "p.log1p()", "rsqrt": "p.rsqrt()", "nn.functional.leaky_relu": "F.leaky_relu(x)",
    "nn.functional.nll_loss": "F.nll_loss(logits, LABELS)", "logsumexp": "x.logsumexp(1)", "minimum": "torch.minimum(x, y)",
    "__getitem__": "x[1:, ::2] + 1", "__getitem__ (rows)": "x[ROWS]", "__getitem__ (elements)": "x[IDS, IDS]", "__getitem__ (mask)": "x[MASK]",
    "floor": "X.floor()", "logical_and": "MASK.logical_and(MASK)",
    "nn.functional.binary_cross_entropy_with_logits": "F.binary_cross_entropy_with_logits(x, UNIT)", "erf": "x.erf()", "ge": "X >= Y",
    "sub": "x - y", "nn.functional.binary_cross_entropy": "F.binary_cross_entropy(unit, UNIT)", "maximum": "torch.maximum(x, y)", "ne": "X != Y",
    "le": "X <= Y", "__rmul__": "2.0 * x", "fill": "torch.fill(X, 2.0)", "__radd__": "2.0 + x", "__rdiv__": "2.0 / p", "__rpow__": "2.0 ** x",
    "__rsub__": "2.0 - x", "index_put": "x.index_put((ROWS,), y)", "index_put (accumulate)": "x.index_put((ROWS,), y, accumulate=True)",
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``operators``."""
    parser.add_argument("--operators", default=",".join(CALLS), metavar="NAMES", help="comma-separated (default: all)")
    parser.add_argument("--operator-rounds", type=int, default=2)
    parser.add_argument("--operator-seconds", type=float, default=0.1, help="of timing for each call, size, backend and round")


def quick(options: argparse.Namespace) -> None:
    """Make the options so small that only errors can be seen."""
    options.operator_rounds, options.operator_seconds = 1, 0.0
    options.operators = "exp,nn.functional.conv2d,sort,__getitem__ (mask)"


# ---------------------------------------------------------------------- in the measured process


def operands(T: Any, make: Callable[..., Any], large: bool) -> dict[str, Any]:
    """What the names in `CALLS` stand for."""
    random = np.random.RandomState(0)
    n, k = (1024, 256) if large else (32, 16)
    pictures, in_, out, side = (16, 32, 64, 56) if large else (2, 3, 4, 8)
    batch, classes = (1024, 1000) if large else (16, 10)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape).astype(np.float32)

    square = normal(k, k)
    leaves = {
        "x": normal(n, n), "y": normal(n, n), "w": normal(n, n), "v": normal(n), "p": np.abs(normal(n, n)) + 0.1, "row": normal(n * n),
        "near": 1 + 0.01 * normal(n, n), "unit": random.uniform(0.05, 0.95, (n, n)).astype(np.float32),
        "cube": normal(16, n // 8, n // 8), "a": square + k * np.eye(k, dtype=np.float32),
        "spd": (square @ square.T / k + np.eye(k)).astype(np.float32), "tri": (np.tril(square) + k * np.eye(k)).astype(np.float32),
        "image": normal(pictures, in_, side, side), "kernel": normal(out, in_, 3, 3), "point": normal(out, in_, 1, 1),
        "sound": normal(pictures, in_, 8 * side), "filter": normal(out, in_, 5), "logits": normal(batch, classes),
        "words": normal(20000 if large else 100, 64), "points": normal(n, 16), "others": normal(n, 16),
        **{name: normal(*((8, 8, 256, 64) if large else (1, 2, 8, 8))) for name in ("query", "key", "value")},
    }  # fmt: skip
    found = {name: make(array, requires_grad=True) for name, array in leaves.items()}
    constants = {
        "X": normal(n, n), "Y": normal(n, n), "S": normal(), "MASK": random.rand(n, n) > 0.5, "IDS": random.randint(0, n, (n, n)),
        "ROWS": random.permutation(n), "LABELS": random.randint(0, classes, batch), "WORDS": random.randint(0, 100, (64, 256) if large else (4, 8)),
        "UNIT": random.uniform(0.05, 0.95, (n, n)).astype(np.float32),
    }  # fmt: skip
    found |= {name: make(np.asarray(array)) for name, array in constants.items()}
    return found | {"torch": T, "F": T.nn.functional, "N": n, "CLASSES": classes}


def looked_at(T: Any, found: Any) -> None:
    """Wait until what a call returned is there."""
    if T.__name__ == "torch":
        return
    for t in found if isinstance(found, tuple) else (found,):
        if isinstance(t, T.Tensor):
            array = t._concrete()
            if not isinstance(array, np.ndarray):
                array.block_until_ready()


def warmed_up(call: Callable[[], None]) -> Callable[[], None]:
    """`call`, after it was called until three blocks of calls one after another were no faster than the best before them: a program is compiled
    when it has come back, numbers and threads find their places, and none of that is what a call costs."""
    best, slower, end = math.inf, 0, time.perf_counter() + WARM_UP
    while slower < 3 and time.perf_counter() < end:
        start, calls = time.perf_counter(), 0
        while calls < STEADY_CALLS and (calls < 2 or time.perf_counter() - start < STEADY_SECONDS):
            call()
            calls += 1
        one = (time.perf_counter() - start) / calls
        slower = slower + 1 if one > 0.95 * best else 0
        best = min(best, one)
    return call


def measure(backend: str, device: str, names: list[str], seconds: float) -> Iterator[dict[str, Any]]:
    """The times of the calls in this process."""
    T = namespace(backend)

    def timed(call: Callable[[], None]) -> float:
        return best_time(warmed_up(call) if seconds else call, 1, seconds)

    for size in SIZES:
        known = operands(T, tensor_maker(T, device), size == "large")
        for name in names:
            code = compile(CALLS[name], name, "eval")
            leaves = [known[n] for n in code.co_names if n in known and isinstance(known[n], T.Tensor) and known[n].requires_grad]

            def forward(code: Any = code, known: Any = known) -> None:
                with T.no_grad():
                    looked_at(T, eval(code, known))

            def backward(code: Any = code, known: Any = known, leaves: Any = leaves) -> None:
                out = eval(code, known)
                looked_at(T, T.autograd.grad(out, leaves, known["ones"]))

            try:
                yield {"name": f"{name} {size} forward", "seconds": timed(forward)}
                if leaves:
                    known["ones"] = T.ones_like(eval(code, known)).detach()
                    looked_at(T, known["ones"])  # made beforehand: a compiler must not know what is in it
                    yield {"name": f"{name} {size} with gradients", "seconds": timed(backward)}
            except Exception as error:
                yield {"name": f"{name} {size} forward", "error": f"{type(error).__name__}: {error}"[:200]}


# ---------------------------------------------------------------------- in the driver


def run(options: argparse.Namespace) -> Report:
    """Measure and tabulate."""
    names = options.operators.split(",")
    unknown = [n for n in names if n not in CALLS]
    if unknown:
        raise ValueError(f"no operator {', '.join(unknown)}; there are {', '.join(CALLS)}")
    backends = [b for b in options.backends if b != "jax"]
    best: dict[tuple[str, str], float] = {}
    problems: dict[str, None] = {}
    for _ in range(options.operator_rounds):
        for backend in backends:
            outcome = in_fresh_process(
                "operators", "measure", backend, options.device, options.timeout, names=names, seconds=options.operator_seconds
            )  # fmt: skip
            if outcome.error:
                problems[f"operators, {LABELS[backend]}: {outcome.error}"] = None
            for result in outcome.results:
                key = result["name"], backend
                if "error" in result:
                    problems[f"operators, {LABELS[backend]}, {result['name']}: {result['error']}"] = None
                else:
                    best[key] = min(best.get(key, math.inf), result["seconds"])
    return Report(tabulate(names, backends, best), list(problems))


def tabulate(names: list[str], backends: list[str], best: dict[tuple[str, str], float]) -> str:
    """Markdown of PyTorch's times and the ratios to them, and of the operators that are slowest by comparison."""
    others = [b for b in backends if b != "torch"]
    header = ["operator", *(f"{size}{grads}" for size in SIZES for grads in ("", ", gradients"))]
    parts, slow = [], []
    for backend in others:
        rows = []
        for name in names:
            row = [f"`{name}`"]
            for size in SIZES:
                for kind in ("forward", "with gradients"):
                    key = f"{name} {size} {kind}"
                    ours, theirs = best.get((key, backend)), best.get((key, "torch"))
                    if ours is None or theirs is None:
                        row.append("-" if ours is None else duration(ours))
                        continue
                    row.append(f"{duration(ours)} ({theirs / ours:.2f}x)")
                    slow.append((theirs / ours, f"{LABELS[backend]}, {key}"))
            rows.append(row)
        parts.append(f"### {LABELS[backend]}\n\n{table(header, rows)}\n")
    worst = sorted(s for s in slow if " large " in s[1])[:20]
    listed = "\n".join(f"- {what}: {ratio:.2f}x{', to be explained' if ratio < 1 / WORST else ''}" for ratio, what in worst)
    lead = "## Operators\n\nTime per call; in brackets, how many times faster than PyTorch eager.\n\n"
    return lead + "\n".join(parts) + f"\nThe slowest at the large size:\n\n{listed}\n"
