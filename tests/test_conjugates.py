"""Conjugates and imaginary parts of conjugates are views of the memory that they are read from."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from side_by_side import error_of, like_pytorch  # noqa: E402 - needs torch


def given(m, requires_grad=True):
    return m.tensor([[1 + 2j, 3 - 1j], [0.5j, 2 + 0j]], dtype=m.complex128, requires_grad=requires_grad)


@like_pytorch
def test_which_tensors_are_conjugated(m):
    x = given(m)
    y = x.conj()
    found = [y, y.conj(), y.T, y[0], y.clone(), y.contiguous(), y + 1, y.resolve_conj(), y.detach(), y.data, x.mH, x.H, x.adjoint(), y.real, x @ y]
    same = [y._is_view(), y._base is x, y.grad_fn.name(), y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr(), m.is_conj(y)]
    return [same, [t.is_conj() for t in found], [t.is_neg() for t in found], x.resolve_conj() is x, m.conj(m.ones(2)).is_conj(), y]


@like_pytorch
def test_which_tensors_are_negated(m):
    y = given(m).conj()
    found = [y.imag, y.real, y.imag[0], y.imag.T, y.imag.clone(), y.imag.resolve_neg(), y.imag + 0, y.imag.detach(), y.conj().imag, y.T.imag]
    return [[t.is_neg() for t in found], y.imag, y.imag.grad_fn.name(), y.real.resolve_neg() is y.real, m.is_neg(y.imag)]


@like_pytorch
def test_memory_that_is_shown_otherwise_is_not_handed_out(m):
    y = given(m, False).conj()
    calls = [lambda: m.view_as_real(y), y.numpy, y.imag.numpy]
    return [error_of(call) for call in calls], m.view_as_real(y.resolve_conj()), y.numpy(force=True).tolist(), y.imag.numpy(force=True).tolist()


@like_pytorch
def test_writes_go_through_conjugates(m):
    x = given(m, False)
    y = x.conj()
    y[0, 0] = 5 + 5j
    y.mul_(1j)
    y.imag.add_(1)
    y.T[1].real.zero_()
    return x, y, y.is_conj(), x._version


@like_pytorch
def test_histories_lead_through_conjugates(m):
    x = given(m)
    a = x.clone()
    b = a.conj()
    c = b.imag
    b.mul_(2 - 1j)
    names = [t.grad_fn.name() for t in (a, b, c)]
    c.exp_()
    names += [t.grad_fn.name() for t in (a, b, c)]
    ((a * b).real.sum() + c.sum() + (x.conj() ** 2).imag.sum()).backward()
    return names, a, b, c, x.grad


@like_pytorch
def test_tangents_of_conjugates_are_views_too(m):
    fw, x = m.autograd.forward_ad, given(m, False)
    with fw.dual_level():
        tangent = x.flip(0)
        y = fw.make_dual(x, tangent).conj()
        y.imag.mul_(3)
        return fw.unpack_dual(y).tangent, tangent, fw.unpack_dual(y * y).tangent


@like_pytorch
def test_a_real_tensor_is_its_own_physical_conjugate(m):
    x = m.zeros(3)
    x.conj_physical().add_(1)
    leaf, written, z = m.ones(2, requires_grad=True), m.empty(2), given(m)
    y = m.conj_physical(z)
    same = [m.conj_physical(t) is t for t in (leaf, leaf[1:], m.tensor([True]), z)]
    return x, same, m.conj_physical(leaf.detach(), out=written) is written, written, y, y.grad_fn.name(), y._is_view()
