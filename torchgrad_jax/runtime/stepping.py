"""Running a program's calls one after the other. Compiled where there is a compiler (`torchgrad_jax/_typed`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.runtime.baseline.carrying import Prepared, Product
from torchgrad_jax.runtime.baseline.form import NumPyForm
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
        elif type(plan) is NumPyForm and plan.quick:
            outs = _quickly(plan.quick, given)
        else:
            outs = plan(*given)
        store(env, call, outs, flags)
        if dying is not None and dying[i]:
            given = outs = None
            for slot in dying[i]:
                env.pop(slot, None)
    return flags


def _quickly(steps: tuple[Any, ...], given: list[Any]) -> Any:
    """The results of a form's `quick` steps."""
    outs: list[Any] = []
    for step in steps:
        function: Any = step[0]
        places: Any = step[1]
        if len(places) == 2 and type(function) is Product:
            product: Any = function
            outs.append(product.of(given[places[0]], given[places[1]]))
        elif len(places) == 1:
            outs.append(function(given[places[0]]))
        else:
            outs.append(function(*[given[p] for p in places]))
    return outs[0] if len(steps) == 1 and type(outs[0]) is list else outs
