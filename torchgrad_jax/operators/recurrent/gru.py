"""The gated recurrent unit (Cho et al. 2014), whose reset gate acts on the product with the state:

    r, z, n = input @ weight0.T + weight2;  hr, hz, hn = h @ weight1.T + weight3
    r = sigmoid(r + hr);  z = sigmoid(z + hz);  n = tanh(n + r * hn)
    h = (h - n) * z + n

Results: the states h, the last one; and for backward the sums that r, z and n are functions of, followed by hn.
"""

from __future__ import annotations

from typing import Any

from jax import numpy as jnp

from torchgrad_jax.declaration.converting import wide
from torchgrad_jax.declaration.operator import Together, op
from torchgrad_jax.operators.activation import sigmoid_of
from torchgrad_jax.operators.kernels import loops
from torchgrad_jax.operators.recurrent import steps


def _check(input: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx: Any, batch_sizes: Any = None, **statics: Any) -> None:
    steps.check_sizes(input, weight0, weight1, weight2, weight3, hx)
    if 3 * hx.shape[1] != weight0.shape[0]:
        raise RuntimeError(f"weight_ih first dim must be 3 * hidden_size = {3 * hx.shape[1]}, but got {weight0.shape[0]}")


def _gradients(
    grad0: Any, grad1: Any, grad2: Any, input: Any, weight0: Any, weight1: Any, hx: Any, batch_sizes: Any, result0: Any, result2: Any, reverse: Any
) -> dict[str, Any]:  # fmt: skip
    present, weight1 = steps.there(batch_sizes, input.shape[1]), wide(weight1)
    earlier = steps.before(result0, hx, reverse)
    r, z, n, product = steps.parts(wide(result2), 4)
    r, z, n = sigmoid_of(r), sigmoid_of(z), steps.tanh_of(n)
    # What the sums of z and n do to h, r's to n's, and the product to n's.
    of_z, of_n = (steps.chosen(present, slope, 0).conj() for slope in (z * (1 - z) * (wide(earlier) - n), (1 - z) * (1 - n * n)))
    of_r, of_product, kept = (r * (1 - r) * product).conj(), r.conj(), steps.chosen(present, z, 1).conj()
    given = None if grad0 is None else wide(grad0), None if grad2 is None else tuple(steps.parts(wide(grad2), 4))

    def step(state: Any, now: Any) -> Any:
        of_z, of_n, of_r, of_product, kept, of_state, of_sums = now
        more = (None,) * 4 if of_sums is None else of_sums
        dh = steps.plus(state, of_state)
        dz, dn = steps.plus(dh * of_z, more[1]), steps.plus(dh * of_n, more[2])
        dr, dproduct = steps.plus(dn * of_r, more[0]), steps.plus(dn * of_product, more[3])
        sums = jnp.concatenate([dr, dz, dproduct], -1)
        return dh * kept + steps.back(sums, weight1), (sums, dn)

    each = (of_z, of_n, of_r, of_product, kept, *given)
    of_hx, (of_state, dn) = loops.scan(step, steps.nothing(wide(hx), grad1), each, reverse=not reverse)
    of_input = jnp.concatenate([of_state[..., : -dn.shape[-1]], dn], -1)
    return {
        "input": steps.back(of_input, weight0), "hx": of_hx, "weight0": steps.of_weights(of_input, input),
        "weight1": steps.of_weights(of_state, earlier), "weight2": steps.added_up(of_input), "weight3": steps.added_up(of_state),
    }  # fmt: skip


_OPERANDS = ("input", "weight0", "weight1", "weight2", "weight3", "hx")


@op("gru_layer(Tensor input, Tensor weight0, Tensor weight1, Tensor? weight2, Tensor? weight3, Tensor hx, Tensor? batch_sizes, bool reverse)",
    method=False, toplevel=False, results=("result0", "result1", "result2"), validate=_check,
    grads={name: Together(_gradients, name) for name in _OPERANDS})  # fmt: skip
def gru(
    x: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx: Any, batch_sizes: Any, reverse: bool
) -> tuple[Any, Any, Any]:  # fmt: skip
    """All states, the last one, and what backward needs, of one direction."""

    def step(h: Any, now: Any) -> Any:
        of_input, present = now
        of_state = steps.parts(steps.affine(h, weight1, weight3), 3)
        of_input = steps.parts(of_input, 3)
        r, z = of_input[0] + of_state[0], of_input[1] + of_state[1]
        n = of_input[2] + sigmoid_of(r) * of_state[2]
        new = steps.tanh_of(n)
        made = steps.chosen(present, (h - new) * sigmoid_of(z) + new, h)
        return made, (made, jnp.concatenate([r, z, n, of_state[2]], -1))

    last, (states, sums) = loops.scan(step, hx, (steps.affine(x, weight0, weight2), steps.there(batch_sizes, x.shape[1])), reverse=reverse)
    return states, last, sums
