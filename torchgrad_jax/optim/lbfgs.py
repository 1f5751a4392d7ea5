"""L-BFGS, with a line search if that is wanted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.autograd.grad_mode import enable_grad, no_grad
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.operator import ARRAY
from torchgrad_jax.functions.creation import tensor
from torchgrad_jax.functions.shaping import cat
from torchgrad_jax.functions.views import view_as_real
from torchgrad_jax.operators import registry
from torchgrad_jax.optim.arithmetic import add_
from torchgrad_jax.optim.checks import check_lr
from torchgrad_jax.optim.optimizer import Optimizer

__all__ = ["LBFGS"]

# What is remembered from one iteration to the next.
_REMEMBERED = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")
# Up to so many numbers, the changes of each kind are the operands of one operation, for which XLA's programs bring them together in memory; more
# are those of operations of their own.
_TOGETHER = 1 << 23
# Of how many pairs that operation is at least.
_LEAST = 8


class LBFGS(Optimizer):
    """L-BFGS: Liu and Nocedal, "On the limited memory BFGS method for large scale optimization" (1989); after Schmidt's minFunc (2005).

    A step is up to `max_iter` iterations, each with at least one evaluation of the closure, `max_eval` (None: 5/4 of that) in all. It ends where no
    gradient is larger than tolerance_grad, or where parameters or loss change by less than tolerance_change. history_size: how many pairs of changes
    stand for the Hessian. line_search_fn: None for steps of lr, or "strong_wolfe".

    There is one parameter group. ValueError for more, and for a negative lr; RuntimeError for another line search.
    """

    # Pairs of no meaning and the factors of the last direction, see `_by_one_operation`.
    __made_up: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    __factors: Tensor | None = None

    def __init__(
        self, params: Any, lr: float | Tensor = 1, max_iter: int = 20, max_eval: int | None = None, tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        check_lr(lr)
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval, "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change, "history_size": history_size, "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params: list[Any] = self.param_groups[0]["params"]

    # ------------------------------------------------------------------ all parameters as one vector

    def _gather_flat_grad(self) -> Tensor:
        return cat([_real(p.new_zeros(p.shape) if p.grad is None else p.grad.to_dense()).reshape(-1) for p in self._params])

    def _add_grad(self, step_size: Any, direction: Tensor) -> None:
        begin = 0
        for p in map(_real, self._params):
            add_(p, direction[begin : begin + p.numel()].view_as(p), step_size)
            begin += p.numel()

    def __evaluate(self, closure: Callable[[], Any]) -> tuple[Any, Tensor]:
        """The loss, which is not looked at yet, and the gradient."""
        with enable_grad():
            loss = closure()
        return loss, self._gather_flat_grad()

    def __evaluate_at(self, closure: Callable[[], Any], start: list[Tensor], step_size: Any, direction: Tensor) -> tuple[Any, Tensor]:
        """The loss and the gradient at `step_size * direction` from `start`, where the parameters are and remain."""
        self._add_grad(step_size, direction)
        found = self.__evaluate(closure)
        for p, before in zip(self._params, start, strict=True):
            p.copy_(before)
        return found

    # ------------------------------------------------------------------ a step

    @no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override] - without a closure there is no step
        """See Optimizer. Returns the loss that the closure returned first. AssertionError where groups were added."""
        if len(self.param_groups) != 1:
            raise AssertionError(f"Expected exactly one param_group, but got {len(self.param_groups)}")
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        with enable_grad():
            first = closure()
        loss, grad = float(first), self._gather_flat_grad()
        evaluations = 1
        state["func_evals"] += 1
        if bool(grad.abs().max() <= group["tolerance_grad"]):
            return first
        memory = {name: state.get(name) for name in _REMEMBERED}
        iteration = 0
        while iteration < group["max_iter"]:
            iteration += 1
            state["n_iter"] += 1
            memory["d"] = direction = self.__direction(state, memory, group, grad)
            memory["prev_flat_grad"], memory["prev_loss"] = grad.clone(), loss
            t = memory["t"] = min(1.0, 1.0 / grad.abs().sum()) * group["lr"] if state["n_iter"] == 1 else group["lr"]
            slope = grad.dot(direction)
            if bool(slope > -group["tolerance_change"]):
                break
            before, evaluated = loss, 0
            if group["line_search_fn"] is not None:
                if group["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                loss, grad, t, evaluated = _strong_wolfe(
                    partial(self.__evaluate_at, closure), [p.clone() for p in self._params], t, direction, loss, grad, slope,
                    max_ls=group["max_eval"] - evaluations,
                )  # fmt: skip
                memory["t"] = t
                self._add_grad(t, direction)
            else:
                self._add_grad(t, direction)
                if iteration != group["max_iter"]:
                    found, grad = self.__evaluate(closure)
                    loss, evaluated = float(found), 1
            evaluations += evaluated
            state["func_evals"] += evaluated
            if evaluations >= group["max_eval"] or bool(grad.abs().max() <= group["tolerance_grad"]):
                break
            if bool((direction * t).abs().max() <= group["tolerance_change"]) or abs(loss - before) < group["tolerance_change"]:
                break
        state.update(memory)
        return first

    def __direction(self, state: dict[str, Any], memory: dict[str, Any], group: dict[str, Any], grad: Tensor) -> Tensor:
        """The direction of an iteration: Nocedal's two loops over the pairs of changes, of the gradient ("old_dirs") and of the parameters
        ("old_stps")."""
        if state["n_iter"] == 1:
            memory.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return grad.neg()
        al = state.setdefault("al", [None] * group["history_size"])
        changes, steps, ro = memory["old_dirs"], memory["old_stps"], memory["ro"]
        y, s = grad - memory["prev_flat_grad"], memory["d"] * memory["t"]
        ys = y.dot(s)
        inverse, scale = 1.0 / ys, ys / y.dot(y)  # computed before the look, and so inputs of what is computed next, as all other pairs are
        if bool(ys > 1e-10):
            if len(changes) == group["history_size"]:
                for old in (changes, steps, ro):
                    old.pop(0)
            changes.append(y)
            steps.append(s)
            ro.append(inverse)
            memory["H_diag"] = scale
        if not changes:
            return grad.neg() * memory["H_diag"]
        room = min(max(_LEAST, 1 << (len(changes) - 1).bit_length()), group["history_size"])
        if room * grad.numel() <= _TOGETHER and {t._aval for t in changes + steps} == {grad._aval}:
            return self.__by_one_operation(grad, memory, room)
        self.__factors = None
        q = grad.neg()
        for i in reversed(range(len(changes))):
            al[i] = steps[i].dot(q) * ro[i]
            q = q - changes[i] * al[i]
        r = q * memory["H_diag"]
        for i in range(len(changes)):
            r = r + steps[i] * (al[i] - changes[i].dot(r) * ro[i])
        return r

    def __by_one_operation(self, grad: Tensor, memory: dict[str, Any], room: int) -> Tensor:
        """The two loops as one operation of `room` pairs, those that are missing made up, so that it is another one only now and then."""
        pairs = memory["old_dirs"], memory["old_stps"], memory["ro"]
        count = len(pairs[0])
        if not self.__made_up[0] or self.__made_up[0][0]._aval is not grad._aval:
            self.__made_up = ([], [], [])
        operands: list[Any] = [grad, memory["H_diag"]]
        for given, made_up, shape in zip(pairs, self.__made_up, (grad.shape, grad.shape, ()), strict=True):
            made_up += [grad.new_zeros(shape) for _ in range(room - count - len(made_up))]
            operands += given + made_up[: room - count]
        bound = registry["_lbfgs_direction"].bind((ARRAY, ARRAY, room, room, room, ARRAY))
        direction, self.__factors = apply(bound, (*operands, count))
        return direction

    def state_dict(self) -> dict[str, Any]:
        """See Optimizer."""
        self.__list_factors()
        return super().state_dict()

    def __getstate__(self) -> dict[str, Any]:
        self.__list_factors()
        return super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._params, self.__factors = self.param_groups[0]["params"], None

    def __list_factors(self) -> None:
        """Put the factors into the state one by one, as PyTorch has them. No step needs that, and it would make each another program."""
        if self.__factors is not None:
            state = self.state[self._params[0]]
            count = len(state["old_dirs"])
            state["al"][:count] = self.__factors[:count].unbind()
            self.__factors = None


def _real(t: Tensor) -> Tensor:
    return view_as_real(t) if t.is_complex() else t


class _Point(NamedTuple):
    """A place on the line: how far from its beginning, the loss and the gradient there, and the gradient along the line."""

    t: Any
    f: float
    grad: Tensor
    slope: Any


def _strong_wolfe(
    obj_func: Callable[[Any, Any, Tensor], tuple[Any, Tensor]], x: Any, t: Any, d: Tensor, f: Any, g: Tensor, gtd: Any, c1: float = 1e-4,
    c2: float = 0.9, tolerance_change: float = 1e-9, max_ls: int = 25,
) -> tuple[Any, Tensor, Any, int]:  # fmt: skip
    """A point x + t d that satisfies the strong conditions of Wolfe, by `_LineSearch`: the loss and the gradient there, t, and how many calls of
    `obj_func(x, t, d)`, which gives loss and gradient, that took. At x these are f and g, and gtd is the gradient along d; t is tried first. c1 and
    c2 are of the conditions of Armijo and of Wolfe. The search ends after max_ls steps, or where nothing changes by more than tolerance_change."""
    search = _LineSearch(partial(obj_func, x), d, _Point(0, f, g, gtd), (c1, c2, tolerance_change, max_ls))
    found = search.run(t)
    return found.f, found.grad, tensor(found.t) if isinstance(found.t, np.floating) else found.t, search.evaluations


def _number(x: Any) -> Any:
    """A 0-dim tensor as NumPy's number of its dtype: with Python's numbers it computes what the tensor would, without being looked at each time."""
    return np.asarray(x._concrete())[()] if isinstance(x, Tensor) and x._aval.dtype in (np.float32, np.float64) else x


# What overflows is no more told of numbers than of tensors.
_quietly = np.errstate(all="ignore")


@_quietly
def _times(a: Any, b: Any) -> Any:
    return a * b


class _LineSearch:
    """Nocedal and Wright, "Numerical Optimization" (2006), algorithms 3.5 and 3.6, with the safeguards of minFunc. evaluate: the loss and the
    gradient at a distance along a direction. limits: see `_strong_wolfe`."""

    def __init__(
        self, evaluate: Callable[[Any, Tensor], tuple[Any, Tensor]], direction: Tensor, start: _Point, limits: tuple[float, float, float, int]
    ) -> None:
        self.evaluate, self.direction, self.start = evaluate, direction, start._replace(slope=_number(start.slope))
        self.c1, self.c2, self.tolerance, self.most = limits
        self.evaluations = 0

    def run(self, t: Any) -> _Point:
        """The point found. t: the distance to try first."""
        ends, done, steps = self._bracket(_number(t))
        return self._zoom(ends, done, steps)

    def _at(self, t: Any) -> _Point:
        self.evaluations += 1
        f, grad = self.evaluate(float(t) if isinstance(t, np.floating) else t, self.direction)
        slope = grad.dot(self.direction)
        return _Point(t, float(f), grad, _number(slope))

    @_quietly
    def _too_high(self, point: _Point) -> bool:
        return bool(point.f > self.start.f + self.c1 * point.t * self.start.slope)

    def _is_flat(self, point: _Point) -> bool:
        return bool(abs(point.slope) <= -self.c2 * self.start.slope)

    def _bracket(self, t: Any) -> tuple[list[_Point], bool, int]:
        """Two points between which there is one that is wanted, or that one; whether it is; how many steps that took."""
        before, point = self.start, self._at(t)
        for steps in range(self.most):
            if self._too_high(point) or (steps > 1 and point.f >= before.f):
                return [before, point], False, steps
            if self._is_flat(point):
                return [point], True, steps
            if bool(point.slope >= 0):
                return [before, point], False, steps
            bounds = point.t + 0.01 * (point.t - before.t), point.t * 10
            before, point = point, self._at(_minimum(before, point, bounds))
        return [self.start, point], False, self.most

    def _zoom(self, ends: list[_Point], done: bool, steps: int) -> _Point:
        low, high = (0, len(ends) - 1) if ends[0].f <= ends[-1].f else (1, 0)
        width = _number(self.direction.abs().max())
        stalled = False
        while not done and steps < self.most:
            if bool(_times(abs(ends[1].t - ends[0].t), width) < self.tolerance):
                break
            t, stalled = _within(_minimum(ends[0], ends[1]), min(ends[0].t, ends[1].t), max(ends[0].t, ends[1].t), stalled)
            point = self._at(t)
            steps += 1
            if self._too_high(point) or point.f >= ends[low].f:
                ends[high] = point
                low, high = (0, 1) if ends[0].f <= ends[1].f else (1, 0)
                continue
            if self._is_flat(point):
                done = True
            elif bool(_times(point.slope, ends[high].t - ends[low].t) >= 0):
                ends[high] = ends[low]
            ends[low] = point
        return ends[low]


@_quietly
def _within(t: Any, least: Any, most: Any, stalled: bool) -> tuple[Any, bool]:
    """A distance that is not close to an end of the interval twice in succession, and whether it is close now."""
    margin = 0.1 * (most - least)
    if not bool(min(most - t, t - least) < margin):
        return t, False
    if not (stalled or bool(t >= most) or bool(t <= least)):
        return t, True
    return (most - margin if bool(abs(t - most) < abs(t - least)) else least + margin), False


def _minimum(a: _Point, b: _Point, bounds: tuple[Any, Any] | None = None) -> Any:
    return _cubic_interpolate(a.t, a.f, a.slope, b.t, b.f, b.slope, bounds)


@_quietly
def _cubic_interpolate(x1: Any, f1: Any, g1: Any, x2: Any, f2: Any, g2: Any, bounds: tuple[Any, Any] | None = None) -> Any:
    """Where the cubic through two points with these slopes is least, within `bounds`, or between them: Nocedal and Wright (3.59)."""
    if not bool(x1 <= x2):
        x1, f1, g1, x2, f2, g2 = x2, f2, g2, x1, f1, g1
    least, most = (x1, x2) if bounds is None else bounds
    along = x1 - x2
    # A number by a tensor is its reciprocal times the number.
    d1 = g1 + g2 - (1 / along * (3 * (f1 - f2)) if isinstance(along, np.floating) else 3 * (f1 - f2) / along)
    square = d1**2 - g1 * g2
    if not bool(square >= 0):
        return (least + most) / 2.0
    d2 = np.sqrt(square) if isinstance(square, np.floating) else square**0.5
    t = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    return min(max(t, least), most)
