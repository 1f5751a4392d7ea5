"""Optimizers that treat each parameter by itself: what they are beside their formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import overlaps
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import tensor, zeros, zeros_like
from torchgrad_jax.optim import together
from torchgrad_jax.optim.formula import whole_formula
from torchgrad_jax.optim.optimizer import Optimizer, _use_grad_for_differentiable, evaluated
from torchgrad_jax.optim.scalars import by_scalars, settings_of, write_scalars
from torchgrad_jax.sparse.tensors import is_sparse

FUSED_DTYPES = (
    "`fused=True` requires all the params to be floating point Tensors of supported devices: "
    "['mps', 'cuda', 'xpu', 'hpu', 'cpu', 'mtia', 'privateuseone'] but {} and {}"
)


class ByParameter(Optimizer):
    """An optimizer whose step does the same to each parameter by itself. A subclass says, after ``_rule_`` that keeps these names from those of
    programs, which have subclasses of their own,

    - `formula`: what a step does to one parameter that has a gradient, in place. It is not told of `maximize`, of `weight_decay`, and of complex
      numbers, which are pairs of real ones to it (`as_pairs`);
    - `remembered`: the tensors that are remembered of a parameter from its first step on, which the formula is given. Where settings decide which
      `names` says it, and where they do not begin as zeros beside a count of steps `state_of` does;
    - `scalars`: which 0-dim tensors of it the host keeps, and in `advance` what becomes of them before a step, in `settle` what after it;
    - `numbers`: what the formula is told of the step: numbers made of the group's settings and of the scalars, and settings.

    Settings and scalars are Python's numbers where their values are at hand, else tensors: `numbers`, `advance` and `settle` are to compute with
    either. So a schedule of the learning rate, and the count of steps, change numbers of a program and nothing of its structure.
    """

    _rule_remembered: tuple[str, ...] = ()
    _rule_scalars: tuple[str, ...] = ("step",)
    _rule_as_pairs = True
    # Refuses a parameter that has a gradient, given its group, by RuntimeError.
    _rule_check: Callable[[dict[str, Any], Tensor], None] | None = None
    # Whether the formula takes sparse gradients, and what else is said where it does not.
    _rule_takes_sparse, _rule_sparse_advice = False, ""
    _rule_fused_sparse = "`fused` does not support sparse grad or complex param"

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """Change `p` and the tensors of its state `s`, given the gradient and the numbers `n` of the step."""
        raise NotImplementedError

    def _rule_state_of(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter before its first step."""
        return {"step": step_count(group, p), **{name: zeros_like(p) for name in self._rule_names(group)}}

    @classmethod
    def _rule_names(cls, group: dict[str, Any]) -> Sequence[str]:
        """Which tensors of a state the formula is given."""
        return cls._rule_remembered

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """What the formula is told: of the settings `h` and the scalars `c`."""
        raise NotImplementedError

    @staticmethod
    def _rule_advance(h: SimpleNamespace, c: SimpleNamespace) -> None:
        """Change the scalars before a step."""
        c.step = c.step + 1

    @staticmethod
    def _rule_settle(h: SimpleNamespace, c: SimpleNamespace) -> None:
        """Change the scalars after a step."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        known = [*state.get("defaults", self.__dict__.get("defaults", ()))]
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("capturable", "differentiable", "maximize", "foreach", "fused"):  # which older states may lack
                if name in known:
                    group.setdefault(name, None if name in ("foreach", "fused") else False)
            for p in group["params"]:
                count = self.state.get(p, {}).get("step")
                if count is not None and not isinstance(count, Tensor):
                    self.state[p]["step"] = step_count(group, p).fill_(float(count))

    @_use_grad_for_differentiable
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """See Optimizer."""
        loss = evaluated(closure)
        scale, overflow = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)  # which a GradScaler sets of fused optimizers
        if overflow is not None and bool(overflow):
            return loss
        for group in self.param_groups:
            if scale is not None:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.div_(scale)
            self._rule_step(group)
        return loss

    def _rule_step(self, group: dict[str, Any]) -> None:
        params, grads, states = [], [], []
        h, names, check = settings_of(group), self._rule_names(group), self._rule_check
        has_state = bool(names or self._rule_scalars)
        for p in group["params"]:
            grad = p.grad
            if grad is not None:
                if check is not None:
                    check(group, p)
                if type(grad) is not Tensor and is_sparse(grad):
                    self._rule_check_sparse(group)
                if h.fused and not p.is_floating_point():
                    raise RuntimeError(FUSED_DTYPES.format(p.dtype, p.device))
                state = self.state[p] if has_state else {}
                if has_state and not state:
                    state.update(self._rule_state_of(p, group))
                params.append(p)
                grads.append(grad)
                states.append(state)
        if len(set(map(id, params))) == len(params):
            rest = [i for i, grad in enumerate(grads) if type(grad) is Tensor or not is_sparse(grad)]
            if len(rest) < len(grads):  # those that are not are updated apart, each by its formula
                apart = [i for i in range(len(grads)) if i not in rest]
                for part in (apart, rest) if rest else (apart,):
                    self._rule_update(h, names, [params[i] for i in part], [grads[i] for i in part], [states[i] for i in part])
            else:
                self._rule_update(h, names, params, grads, states)
        else:  # a parameter that is there twice is changed twice
            for p, grad, state in zip(params, grads, states, strict=True):
                self._rule_update(h, names, [p], [grad], [state])

    @classmethod
    def _rule_check_sparse(cls, group: dict[str, Any]) -> None:
        """Refuse a sparse gradient, where the formula takes none, or where it is one in PyTorch that takes none. RuntimeError."""
        if group.get("fused"):
            raise RuntimeError(cls._rule_fused_sparse)
        if not cls._rule_takes_sparse:
            raise RuntimeError(f"{cls.__name__.removesuffix('W')} does not support sparse gradients{cls._rule_sparse_advice}")

    @classmethod
    def _rule_update(
        cls, h: SimpleNamespace, names: Sequence[str], params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict[str, Any]],
        counted: bool = False,
    ) -> None:  # fmt: skip
        """A step of these parameters. names: of the tensors of their states that the formula is given. counted: whether the step was counted
        before."""
        if not counted and "step" in cls._rule_scalars and len(states) > 1 and not _count_apart([state["step"] for state in states]):
            if not (getattr(h, "foreach", False) or h.fused):  # one after the other, each with the count that it finds
                for p, grad, state in zip(params, grads, states, strict=True):
                    cls._rule_update(h, names, [p], [grad], [state])
                return
            _count_those_before([state["step"] for state in states])
        whole = whole_formula(cls._rule_formula, cls._rule_as_pairs)
        for c, members in by_scalars(cls._rule_scalars, states):
            before = vars(c).copy()
            if not counted and before:
                cls._rule_advance(h, c)
                write_scalars(c, before, [states[i] for i in members])
            numbers = {"maximize": h.maximize, "fused": h.fused, **cls._rule_numbers(h, c)}
            for begin in range(0, len(members), together.MAX_ROWS):
                part = members[begin : begin + together.MAX_ROWS]
                rows = [(params[i], grads[i], *map(states[i].get, names)) for i in part]
                found = together.update(f"{cls.__name__}.step", whole, names, rows, numbers)
                for i, s in zip(part, found or (), strict=False):
                    states[i].update({n: t for n, t in vars(s).items() if t is not None})
            before = vars(c).copy()
            cls._rule_settle(h, c)
            write_scalars(c, before, [states[i] for i in members])


def _count_apart(steps: Sequence[Tensor]) -> bool:
    """Whether no two parameters have one count, which then counts the step of each of them."""
    return len({id(t._storage or t) for t in steps}) == len(steps)


def _count_those_before(steps: Sequence[Tensor]) -> None:
    """Of parameters that have one count, count the steps of all but one."""
    first: list[Tensor] = []
    for t in steps:
        if any([overlaps(t, other) for other in first]):
            t.add_(1)
        else:
            first.append(t)


def scalar_dtype() -> dtypes.dtype:
    """The dtype of the scalars of a state."""
    return dtypes.float64 if dtypes.get_default_dtype() is dtypes.float64 else dtypes.float32


def step_count(group: dict[str, Any], p: Tensor) -> Tensor:
    """The count of the steps that a parameter has seen: on the host, or beside a parameter whose group is capturable or fused."""
    if group.get("capturable") or group.get("fused"):
        return zeros((), dtype=dtypes.float32 if group.get("fused") else scalar_dtype(), device=p.device)
    return tensor(0.0, dtype=scalar_dtype())
