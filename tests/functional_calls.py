"""Calls of the six functions of `torch.autograd.functional`, and tests of each of them by one program."""

from __future__ import annotations

import pytest
from side_by_side import like_pytorch, plain

PRODUCTS, SECOND = ("vjp", "jvp"), ("vhp", "hvp")
ALL = (*PRODUCTS, "jacobian", *SECOND, "hessian")


def values(m, *numbers, dtype="float64"):
    return m.tensor(list(numbers), dtype=getattr(m, dtype))


def call(m, name, func, inputs, v=None, **options):
    """One of the six functions; those that take no vector are given none."""
    function = getattr(m.autograd.functional, name)
    return function(func, inputs, **options) if name in ("jacobian", "hessian") else function(func, inputs, v, **options)


def outcomes(m, cases):
    """What each of several calls returns or raises."""
    found = []
    for case in cases:
        try:
            found.append(plain(case()))
        except Exception as error:
            found.append([type(error).__name__, str(error)])
    return found


def structure(x):
    return [type(x).__name__, [structure(y) for y in x]] if isinstance(x, (tuple, list)) else list(x.shape)


def for_all(program):
    """A test for each of the six functions."""

    @pytest.mark.parametrize("name", ALL)
    def test(name):
        like_pytorch(lambda m: program(m, name))()

    test.__name__, test.__doc__ = program.__name__, program.__doc__
    return test


def of(name):
    """A function of one tensor whose derivative this is: of its elements, or for a Hessian a number."""
    return (lambda x: (x**3).sum()) if name in (*SECOND, "hessian") else (lambda x: x.exp())
