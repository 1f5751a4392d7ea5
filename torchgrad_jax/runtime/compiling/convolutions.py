"""Convolutions of images by loops of C's: forward, and both gradients.

XLA's CPU compiler has a convolution's operands exchange their dimensions, and takes for the kernel's gradient one with a kernel as large as the
image. 64 images of 3 x 32 x 32 and a kernel of 16 x 3 x 3 x 3 take it 2.5 ms forward and 1.2 for the kernel's gradient; these loops 0.4 and 0.4.
A program calls a foreign function, `convolving.pxd`, for each. That needs the typed core; else, and for other dtypes, convolutions stay XLA's. Those
of volumes, in groups of channels, and those that are dilated, are a primitive of ours (`operators/convolution.py`).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.extend.core import Literal

from torchgrad_jax.runtime.baseline import jaxprs_in
from torchgrad_jax.runtime.baseline.convolutions import fits_loops, how_of, is_of_kernel
from torchgrad_jax.runtime.compiling.equations import calling, rewritten_within
from torchgrad_jax.runtime.compiling.foreign import CONVOLUTION, knows_convolutions


def by_loops(closed: Any) -> Any:
    """A closed jaxpr with foreign functions in the place of its convolutions, within loops and branches too."""
    return closed.replace(jaxpr=_rewritten(closed.jaxpr)) if _convolves(closed.jaxpr) and knows_convolutions() else closed


def _convolves(jaxpr: Any) -> bool:
    return any([fits_loops(eqn) or any(map(_convolves, jaxprs_in(eqn))) for eqn in jaxpr.eqns])


def _rewritten(jaxpr: Any) -> Any:
    if not _convolves(jaxpr):
        return jaxpr
    turned = {eqn.outvars[0]: eqn.invars[0] for eqn in jaxpr.eqns if _turns(eqn)}
    eqns = []
    for eqn in jaxpr.eqns:
        if fits_loops(eqn):
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
    """The equation of a call. turned: what those were before that are arrays with batch and channels exchanged."""
    (x, kernel), (out,), of_kernel, how = eqn.invars, eqn.outvars, is_of_kernel(eqn), how_of(eqn)
    read = [turned.get(v, v) if of_kernel else v for v in (x, kernel)]

    def convolution(*operands: Any) -> Any:
        a, b = operands
        if of_kernel:
            a, b = (array if v is found else jnp.swapaxes(array, 0, 1) for array, v, found in zip(operands, turned_back, read, strict=True))
        features, images, *sizes = out.aval.shape
        shape = (images, features, *sizes) if of_kernel else out.aval.shape
        made = jax.ffi.ffi_call(CONVOLUTION, jax.ShapeDtypeStruct(shape, np.float32))(a, b, how=how)
        return jnp.swapaxes(made, 0, 1) if of_kernel else made

    turned_back = [turned.get(v) for v in (x, kernel)]
    return calling(convolution, [v.aval for v in read]).jaxpr.eqns[0].replace(invars=read, outvars=[out])
