"""Convolutions of images by loops of C's: forward, and both gradients.

XLA's CPU compiler has a convolution's operands exchange their dimensions, and takes for the kernel's gradient one with a kernel as large as the
image. 64 images of 3 x 32 x 32 and a kernel of 16 x 3 x 3 x 3 take it 2.5 ms forward and 1.2 for the kernel's gradient; these loops 0.4 and 0.4.
A program calls a foreign function, `convolving.pxd`, for each. That needs the typed core; else, and for other dtypes, groups of channels and
volumes, convolutions stay XLA's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.extend.core import Literal

from torchgrad_jax.runtime.baseline import jaxprs_in
from torchgrad_jax.runtime.compiling.equations import calling, rewritten_within
from torchgrad_jax.runtime.compiling.foreign import CONVOLUTION, knows_convolutions

# Narrower ones leave most of a vector empty.
_LEAST_WIDTH = 6


def by_loops(closed: Any) -> Any:
    """A closed jaxpr with foreign functions in the place of its convolutions, within loops and branches too."""
    return closed.replace(jaxpr=_rewritten(closed.jaxpr)) if _convolves(closed.jaxpr) and knows_convolutions() else closed


def _convolves(jaxpr: Any) -> bool:
    return any([_fits(eqn) or any(map(_convolves, jaxprs_in(eqn))) for eqn in jaxpr.eqns])


def _fits(eqn: Any) -> bool:
    """Whether an equation is a convolution of images, or of lines, with one kernel for all channels."""
    if eqn.primitive.name != "conv_general_dilated":
        return False
    x, kernel, out = (v.aval for v in (*eqn.invars, *eqn.outvars))
    order = tuple(range(x.ndim))
    if x.ndim not in (3, 4) or tuple(eqn.params["dimension_numbers"]) != (order, order, order) or 0 in (x.size, kernel.size, out.size):
        return False
    grouped = eqn.params["feature_group_count"] * eqn.params["batch_group_count"] > 1
    wide = max(kernel.shape[-1], out.shape[-1]) >= _LEAST_WIDTH
    return wide and not grouped and all([a.dtype == np.float32 for a in (x, kernel, out)])


def _rewritten(jaxpr: Any) -> Any:
    if not _convolves(jaxpr):
        return jaxpr
    turned = {eqn.outvars[0]: eqn.invars[0] for eqn in jaxpr.eqns if _turns(eqn)}
    eqns = []
    for eqn in jaxpr.eqns:
        if _fits(eqn):
            eqns.append(_by_loops(eqn, turned))
        elif any(map(_convolves, jaxprs_in(eqn))):
            eqns.append(rewritten_within(eqn, _rewritten))
        else:
            eqns.append(eqn)
    return jaxpr.replace(eqns=eqns)


def _turns(eqn: Any) -> bool:
    """Whether an equation exchanges the first two dimensions, those of the batch and the channels."""
    if eqn.primitive.name != "transpose" or isinstance(eqn.invars[0], Literal):
        return False
    permutation = tuple(eqn.params["permutation"])
    return permutation == (1, 0, *range(2, len(permutation))) and len(permutation) > 1


def _by_loops(eqn: Any, turned: dict[Any, Any]) -> Any:
    """The equation of a call. For the kernel's gradient JAX convolves with a kernel that is as large as the image, of both with batch and channels
    exchanged: the function reads them as they were before."""
    (x, kernel), (out,), params = eqn.invars, eqn.outvars, eqn.params
    of_kernel = kernel.aval.shape[-1] > out.aval.shape[-1]
    read = [turned.get(v, v) if of_kernel else v for v in (x, kernel)]
    sizes, strides, dilations = kernel.aval.shape[2:], params["window_strides"], params["rhs_dilation"]
    if of_kernel:
        sizes, strides, dilations = out.aval.shape[2:], dilations, strides
    before = [low for low, _ in params["padding"]]
    pairs = [_pair(sizes, 1), _pair(strides, 1), _pair(before, 0), _pair(params["lhs_dilation"], 1), _pair(dilations, 1)]
    how = np.array([*[n for pair in pairs for n in pair], int(of_kernel)], np.int64)

    def convolution(*operands: Any) -> Any:
        a, b = operands
        if of_kernel:
            a, b = (array if v is found else jnp.swapaxes(array, 0, 1) for array, v, found in zip(operands, turned_back, read, strict=True))
        a, b = _as_images(a), _as_images(b)
        outer = (b.shape[1], a.shape[1]) if of_kernel else (a.shape[0], b.shape[0])
        made = jax.ffi.ffi_call(CONVOLUTION, jax.ShapeDtypeStruct((*outer, *_pair(out.aval.shape[2:], 1)), np.float32))(a, b, how=how)
        return (jnp.swapaxes(made, 0, 1) if of_kernel else made).reshape(out.aval.shape)

    turned_back = [turned.get(v) for v in (x, kernel)]
    return calling(convolution, [v.aval for v in read]).jaxpr.eqns[0].replace(invars=read, outvars=[out])


def _pair(numbers: Sequence[int], missing: int) -> tuple[int, int]:
    """Both dimensions' numbers; lines have one."""
    return (missing, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def _as_images(x: Any) -> Any:
    """Lines as images of one row."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], 1, x.shape[2])
