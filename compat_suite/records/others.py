"""Operators of neither tier whose declaration alone does not tell what they take."""

from __future__ import annotations

import torchgrad_jax as tj
from compat_suite.records.record import REAL, Record, given, pairs

square = lambda make: [make.matrix(3, 3)]  # noqa: E731
integers = lambda make: [(make.integers(3, 4, low=1), make.integers(4, low=1))]  # noqa: E731
of_second = lambda make: [(make(3, low=0.5).detach().abs(), make(3, low=0.5, high=1.5))]  # noqa: E731

RECORDS = [
    Record("addbmm", pairs(((3, 4), (2, 3, 5), (2, 5, 4)))),
    Record("addr", pairs(((3, 4), (3,), (4,)))),
    Record("vdot", pairs(((4,), (4,)))),
    Record("cholesky_inverse", square, function=lambda a: tj.cholesky_inverse(a.tril()), dtypes=REAL),
    Record("igamma", of_second, dtypes=REAL),
    Record("igammac", of_second, dtypes=REAL),
    Record("geqrf", given(((3, 3),)), dtypes=REAL, derivatives=None),
    Record("ormqr", given(((3, 2), (2,), (3, 4))), dtypes=REAL),
    *(Record(name, integers, dtypes=REAL) for name in ("bitwise_xor", "gcd", "lcm", "bitwise_left_shift", "bitwise_right_shift")),
]
