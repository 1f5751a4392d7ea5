"""Running a program's calls one after the other. Compiled where there is a compiler (`torchgrad_jax/_typed`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.runtime.baseline.carrying import Prepared
from torchgrad_jax.runtime.recording.fields import CallFields
from torchgrad_jax.runtime.structure import operands, store


def step_through(
    calls: list[Any], plans: list[Any], dying: list[Any] | None, env: dict[int, Any], numbers: dict[str, Any], alone: Callable[[Any, Any], Any]
) -> list[Any]:
    """Make the calls of a program, each by its plan, or where that is None by `alone`. Returns the outcomes of its checks.

    env: the arrays by slot, at first the inputs. dying: for each call the slots that nothing after it reads, whose arrays are dropped, or None.
    """
    flags: list[Any] = []
    for i in range(len(calls)):
        call: CallFields = calls[i]
        plan = plans[i]
        given: Any = operands(env, numbers, call)
        outs: Any
        if plan is None:
            outs = alone(call.signature, given)
        elif isinstance(plan, Prepared):
            ready: Prepared = plan
            outs = ready.of(given)
        else:
            outs = plan(*given)
        store(env, call, outs, flags)
        if dying is not None and dying[i]:
            given = outs = None
            for slot in dying[i]:
                env.pop(slot, None)
    return flags
