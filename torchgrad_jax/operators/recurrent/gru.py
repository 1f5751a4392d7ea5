"""The gated recurrent unit (Cho et al. 2014), whose reset gate acts on the product with the state:

    r, z, n = input @ weight0.T + weight2;  hr, hz, hn = h @ weight1.T + weight3
    r = sigmoid(r + hr);  z = sigmoid(z + hz);  n = tanh(n + r * hn)
    h = (h - n) * z + n

Results: the states h, the last one; and for backward the sums that r and z are functions of, those that n is a function of, and hn.
"""

from __future__ import annotations

from typing import Any

from torchgrad_jax.declaration.converting import wide
from torchgrad_jax.declaration.operator import Together, op
from torchgrad_jax.operators.recurrent import on_arrays, steps


def _check(input: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx: Any, batch_sizes: Any = None, **statics: Any) -> None:
    steps.check_sizes(input, weight0, weight1, weight2, weight3, hx)
    if 3 * hx.shape[1] != weight0.shape[0]:
        raise RuntimeError(f"weight_ih first dim must be 3 * hidden_size = {3 * hx.shape[1]}, but got {weight0.shape[0]}")


def _gradients(
    grad0: Any, grad1: Any, grad2: Any, grad3: Any, grad4: Any, input: Any, weight0: Any, weight1: Any, hx: Any, batch_sizes: Any, result0: Any,
    result2: Any, result3: Any, result4: Any, reverse: Any,
) -> dict[str, Any]:  # fmt: skip
    present = steps.there(batch_sizes, input.shape[1])
    earlier, product, width = steps.before(result0, hx, reverse), wide(result4), hx.shape[1]
    r, z = steps.parts(steps.sigmoid_of(wide(result2)), 2)
    n = steps.tanh_of(wide(result3))
    # What the sums of z and n do to h, and those of r and the product to that of n.
    of_z, of_n = (steps.chosen(present, slope, 0).conj() for slope in (z * (1 - z) * (wide(earlier) - n), (1 - z) * (1 - n * n)))
    of_r, of_product = (r * (1 - r) * product).conj(), r.conj()
    slopes, kept = steps.stacked([of_n * of_r, of_z, of_n * of_product]), steps.chosen(present, z, 1).conj()
    more = None
    if not (grad2 is None and grad3 is None and grad4 is None):
        zeros = steps.zeros(product)
        dr, dz = (zeros, zeros) if grad2 is None else steps.parts(wide(grad2), 2)
        dn = zeros if grad3 is None else wide(grad3)
        more = steps.stacked([dn * of_r + dr, dz, steps.plus(dn * of_product, None if grad4 is None else wide(grad4))])

    def step(state: Any, now: Any) -> Any:
        slope, kept, of_state, more = now
        dh = steps.plus(state, of_state)
        sums = steps.plus(dh[:, None] * slope, more).reshape(dh.shape[0], 3 * width)
        return dh * kept + steps.back(sums, weight1), (sums, dh)

    each = slopes, kept, None if grad0 is None else wide(grad0), more
    of_hx, (of_state, dh) = steps.over_time(step, steps.nothing(wide(hx), grad1), each, not reverse)
    of_input = steps.joined([of_state[..., : 2 * width], steps.plus(dh * of_n, None if grad3 is None else wide(grad3))])
    return {
        "input": steps.back(of_input, weight0), "hx": of_hx, "weight0": steps.of_weights(of_input, input),
        "weight1": steps.of_weights(of_state, earlier), "weight2": steps.added_up(of_input), "weight3": steps.added_up(of_state),
    }  # fmt: skip


def _results(
    x: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx: Any, batch_sizes: Any, reverse: bool
) -> Any:  # fmt: skip
    time, width = x.shape[:2], hx.shape[1]
    return (*time, width), hx.shape, (*time, 2 * width), (*time, width), (*time, width)


def _gru(
    x: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx: Any, batch_sizes: Any, reverse: bool
) -> tuple[Any, ...]:  # fmt: skip
    """All states, the last one, and what backward needs, of one direction."""
    width = hx.shape[1]

    def step(h: Any, now: Any) -> Any:
        of_input, present = now
        of_state = steps.affine(h, weight1, weight3)
        gates, product = of_input[:, : 2 * width] + of_state[:, : 2 * width], of_state[:, 2 * width :]
        r, z = steps.parts(steps.sigmoid_of(gates), 2)
        sums = of_input[:, 2 * width :] + r * product
        n = steps.tanh_of(sums)
        made = steps.chosen(present, (h - n) * z + n, h)
        return made, (made, gates, sums, product)

    each = steps.affine(x, weight0, weight2), steps.there(batch_sizes, x.shape[1])
    last, (states, gates, sums, products) = steps.over_time(step, hx, each, reverse)
    return states, last, gates, sums, products


_OPERANDS = ("input", "weight0", "weight1", "weight2", "weight3", "hx")


op("gru_layer(Tensor input, Tensor weight0, Tensor weight1, Tensor? weight2, Tensor? weight3, Tensor hx, Tensor? batch_sizes, bool reverse)",
   method=False, toplevel=False, results=("result0", "result1", "result2", "result3", "result4"), validate=_check,
   grads={name: Together(_gradients, name) for name in _OPERANDS}, numpy=on_arrays.layer(_gru, _results),
   numpy_grads=on_arrays.layer_grads(_gradients, 5))(_gru)  # fmt: skip
