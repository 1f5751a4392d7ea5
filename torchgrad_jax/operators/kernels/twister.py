"""Samples of the MT19937 engine of NumPy's, drawn and turned into what is asked for at once; in compiled modules by loops of C: `twister.pxd`."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.operators.kernels import box_muller

# Kinds of samples: float32 of [0, 1), of the low 24 bits of a draw; float64 of [0, 1), of the low 53 bits of a pair, its first draw being the high
# word; whether those bits, shifted to the top, are less than `span`, as bool; a draw, or a pair, modulo `span` plus `base`, wrapping, as int64. Of a
# draw `span` is at most 2**31; of a pair 0 says that it is 2**64.
UNIT, WIDE, HIT, REST, WIDE_REST = range(5)


def knows(source: Any, key: Any, at: int) -> bool:
    """Whether the memory of a bit generator, whose words are these and which is at this one, is as it is expected to be."""
    return True


def draw(source: Any, kind: int, out: Any, span: int, base: int) -> None:
    """Fill `out` (n,) with samples of a `numpy.random.MT19937`."""
    words = source.random_raw(out.size * (1 if kind in (UNIT, REST) else 2))
    if kind == UNIT:
        box_muller.units(words, out)
    elif kind == WIDE:
        box_muller.wide_units(words, out)
    elif kind == REST:
        np.add((words % np.uint64(span)).view(np.int64), base, out)
    else:
        pairs = words[0::2] << np.uint64(32) | words[1::2]
        if kind == HIT:
            np.less(pairs << np.uint64(11), np.uint64(span), out.view(np.bool_))
        else:
            np.add(pairs % np.uint64(span) if span else pairs, np.uint64(base % 2**64), out.view(np.uint64))


def shuffle(source: Any, order: Any) -> None:
    """Exchange each of `order`, int64 (n,), with one that is drawn of those from it on."""
    n = len(order)
    if n < 2:
        return
    others = (source.random_raw(n - 1) % np.arange(n, 1, -1, dtype=np.uint64)).astype(np.int64) + np.arange(n - 1)
    found = order.tolist()
    for i, j in enumerate(others.tolist()):
        found[i], found[j] = found[j], found[i]
    order[:] = found
