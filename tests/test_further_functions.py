"""gradient, histogram, ormqr, range, frombuffer and smaller names of torch and Tensor, against PyTorch's."""

from __future__ import annotations

import warnings

import pytest
from side_by_side import plain, programs

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


def caught(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(call())
        except Exception as error:
            return [type(error).__name__, str(error).replace("torchgrad_jax", "torch")]


@program
def gradient_by_differences(m):
    t, T, g = m.tensor([1.0, 2, 4, 7, 11, 16]), m.arange(12.0).reshape(3, 4) ** 2, m.gradient
    at = m.tensor([0.0, 1, 3, 4, 6, 7])
    calls = [
        lambda: g(t), lambda: g(t, spacing=2.0), lambda: g(t, spacing=(at,)), lambda: g(t, edge_order=2), lambda: g(T), lambda: g(T, dim=1),
        lambda: g(T, dim=(0, 1), spacing=(2.0, 0.5)), lambda: g(T, spacing=[2.0, 3.0]), lambda: g(T, spacing=2, dim=-1),
        lambda: g(T, spacing=(m.arange(3.0), m.arange(4.0) * 2)), lambda: g(T, edge_order=2), lambda: g(T, edge_order=3), lambda: g(m.ones(1)),
        lambda: g(m.ones(2), edge_order=2), lambda: g(T, dim=(0, 0)), lambda: g(T, dim=5), lambda: g(T, spacing=(1.0, 2.0, 3.0)), lambda: g(t.int()),
        lambda: g(t.to(m.int64), spacing=2), lambda: g(t, spacing=m.tensor(2.0)), lambda: g(t, spacing=(at,), edge_order=2),
        lambda: g(t.bool()), lambda: g(t.to(m.uint8)), lambda: g(t.to(m.complex64)), lambda: g(t, spacing=(m.arange(6).double(),)),
        lambda: g(T, dim=(0,), spacing=(1.0, 2.0)),
    ]  # fmt: skip
    x = t.double().requires_grad_()
    made = g(x, spacing=(at.double(),), edge_order=2)[0]
    return [*[caught(call) for call in calls], made.grad_fn.name(), m.autograd.grad((made * made).sum(), x)]


@program
def histograms(m):
    x, h = m.tensor([1.0, 2, 1, 0.5, 3, -1]), m.histogram
    w, nan, inf = m.arange(6.0), float("nan"), float("inf")
    calls = [
        lambda: h(x, bins=4), lambda: h(x, 4, range=(0.0, 3.0)), lambda: h(x, m.tensor([0.0, 1, 2, 3])), lambda: h(x, 3, weight=w),
        lambda: h(x, 3, density=True), lambda: h(x, 4, range=(0.0, 3.0), weight=w, density=True), lambda: h(x, 0), lambda: h(x.int(), 3),
        lambda: h(m.ones(3), 3), lambda: h(m.empty(0), 3), lambda: h(x, 3, range=(1.0, 1.0)), lambda: h(x, 3, range=(2.0, 1.0)),
        lambda: h(x, m.ones(2, 2)), lambda: h(x, m.tensor([0.0, 1]).double()), lambda: h(x, 3, weight=m.ones(2)), lambda: h(x, m.tensor([0.0])),
        lambda: h(x, 3, range=(nan, 1.0)), lambda: h(m.tensor([1.0, inf]), 3), lambda: h(m.tensor([1.0, nan]), 2, range=(0.0, 2.0)),
        lambda: h(x.reshape(2, 3), 2), lambda: h(x, m.tensor([0.0, 1, 2]), density=True), lambda: h(x.double(), 2, weight=m.ones(6)),
        lambda: h(x.half(), 2), lambda: h(x.clone().requires_grad_(), 2).hist.requires_grad, lambda: h(x, 2, range=(0.0,)),
        lambda: h(x, 2, out=(m.empty(0), m.empty(0))).hist, lambda: x.histogram(3, range=(0, 1)).bin_edges, lambda: repr(h(x, 2)),
    ]  # fmt: skip
    X, d = m.tensor([[0.0, 1], [1, 0], [2, 0], [2, 2]]), m.histogramdd
    calls += [
        lambda: d(X, bins=[3, 3]), lambda: d(X, bins=[2, 2], weight=m.tensor([1.0, 2, 4, 8])), lambda: d(X, 2), lambda: d(x, [2]), lambda: d(X, [2]),
        lambda: d(X, bins=[2, 2], range=[0.0, 1.0, 0.0, 1.0], density=True), lambda: d(X, (m.tensor([0.0, 1, 2]), m.tensor([0.0, 2]))),
        lambda: d(m.ones(2, 2, 2), [2, 2]), lambda: d(X, [2, 2], range=[0.0, 1.0]), lambda: d(X.int(), [2, 2]), lambda: type(d(X, 2)).__name__,
        lambda: d(X, [2, 3], density=True, weight=m.arange(4.0)),
    ]  # fmt: skip
    return [caught(call) for call in calls]


@program
def products_with_reflections(m):
    A = m.tensor([[1.0, 2], [3, 4], [5, 7]], dtype=m.float64)
    a, tau = m.geqrf(A)
    o, eye, c = m.ormqr, m.eye(3, dtype=m.float64), m.arange(6.0, dtype=m.float64)
    calls = [
        lambda: o(a, tau, eye), lambda: o(a, tau, eye, transpose=True), lambda: o(a, tau, c.reshape(2, 3), left=False),
        lambda: o(a, tau, c.reshape(2, 3), left=False, transpose=True), lambda: o(a, tau, c.reshape(3, 2), True, True),
        lambda: o(a, m.ones(3).double(), eye), lambda: o(a, tau, m.ones(3).double()), lambda: o(a, tau.float(), eye), lambda: a.ormqr(tau, eye),
        lambda: o(a.int(), tau.int(), eye.int()), lambda: o(a[0], tau, eye), lambda: o(a[None], tau[None], eye[None]).shape,
        lambda: o(a[None], tau, eye), lambda: o(a, tau, m.ones(4, 4).double()),
    ]  # fmt: skip
    leaves = [t.clone().requires_grad_() for t in (a, tau, c.reshape(3, 2))]
    made = o(*leaves)
    kind = made.grad_fn.name()
    complex_a, complex_tau = m.geqrf(m.complex(A, A.flip(0)))
    complex_eye = eye.to(m.complex128)
    turned = [caught(lambda k=k: m.view_as_real(o(complex_a, complex_tau, complex_eye, **k))) for k in ({}, {"left": False}, {"transpose": True})]
    return [[caught(call) for call in calls], kind, m.autograd.grad((made * made * c.reshape(3, 2)).sum(), leaves), turned]


@program
def ranges_with_their_end(m):
    r = m.range
    calls = [
        lambda: r(0, 3), lambda: r(1, 2.5, 0.5), lambda: r(0, 1, -1), lambda: r(0, 3, dtype=m.int64), lambda: r(5, 0, -2), lambda: r(0, 3, 0),
        lambda: r(0, 3, out=m.empty(0)), lambda: r(0, float("inf")), lambda: r(0.5, 2, requires_grad=True), lambda: r(1, 1),
    ]  # fmt: skip
    return [[caught(call) for call in calls], m.range(0, 1)]


@program
def buffers_as_tensors(m):
    f = m.frombuffer
    one = b"\x00\x00\x80\x3f"
    calls = [
        lambda: f(bytearray(one * 3), dtype=m.float32), lambda: f(bytearray(b"abc"), dtype=m.float32), lambda: f(bytearray(b"abcd"), dtype=m.int8),
        lambda: f(bytearray(8), dtype=m.int16, count=2, offset=2), lambda: f(bytearray(8), dtype=m.int16, count=5),
        lambda: f(bytearray(8), dtype=m.int16, offset=1), lambda: f(bytearray(8), dtype=m.int16, offset=9),
        lambda: f(bytearray(8), dtype=m.int16, count=0),
        lambda: f(3, dtype=m.int16), lambda: f(bytearray(0), dtype=m.int16), lambda: f(bytearray(8), dtype=m.float64, requires_grad=True),
        lambda: f(bytearray(8), dtype=m.int64, requires_grad=True), lambda: f(memoryview(bytearray(one)), dtype=m.uint8, offset=2),
    ]  # fmt: skip
    return [caught(call) for call in calls]


@program
def orders_of_dimensions(m):
    t = m.arange(6.0).reshape(2, 3)
    e, image = m.empty_permuted, m.ones(2, 3, 4, 5)
    calls = [
        lambda: t.dim_order(), lambda: t.t().dim_order(), lambda: image.to(memory_format=m.channels_last).dim_order(), lambda: m.ones(()).dim_order(),
        lambda: m.ones(1, 1, 3, 3).dim_order(ambiguity_check=True), lambda: t.dim_order(ambiguity_check=True),
        lambda: image.dim_order(ambiguity_check=[m.contiguous_format, m.channels_last]), lambda: t.dim_order(ambiguity_check=3),
        lambda: e((2, 3, 4), (0, 2, 1)).stride(), lambda: e((2, 3), (0, 0)), lambda: e((2, 3), (0,)), lambda: e((2, 3), (1, -2)),
        lambda: [e((2, 3), (1, 0), dtype=m.float64, requires_grad=True).stride(), e((2, 3), (1, 0), requires_grad=True).is_leaf],
    ]  # fmt: skip
    return [caught(call) for call in calls]


@program
def a_tensor_as_another_part_of_its_memory(m):
    y = m.arange(6.0).reshape(2, 3)
    base = y.view(6)
    found = [y.as_strided_((3,), (2,)) is y, y, y.stride(), m.as_strided_(m.arange(6.0), (2, 2), (1, 2), 1)]
    y.fill_(9)
    return [*found, base, caught(lambda: m.arange(4.0).as_strided_((9,), (2,)))[0]]


@program
def old_norms(m):
    t = m.arange(6.0).reshape(2, 3)
    calls = [
        lambda: m.frobenius_norm(t, 1), lambda: m.frobenius_norm(t, [0, 1], True), lambda: m.nuclear_norm(t), lambda: m.nuclear_norm(t, [0, 1], True),
        lambda: m.nuclear_norm(t, True), lambda: m.frobenius_norm(t, dim=-1),
    ]  # fmt: skip
    return [caught(call) for call in calls]


@program
def names_of_types_and_devices(m):
    calls = [
        lambda: m.typename(m.ones(1)), lambda: m.typename(3), lambda: m.typename(m.nn.Linear(1, 1)).partition(".")[2],
        lambda: m.typename(m.nn.Linear).partition(".")[2],
        lambda: m.typename(m.nn.Parameter(m.ones(1))), lambda: m.typename(None), lambda: m.typename("a"), lambda: m.typename(int),
        lambda: m.get_device(m.ones(1)), lambda: m.get_device(3),
    ]  # fmt: skip
    return [caught(call) for call in calls]


@program
def warnings_that_are_given_once_or_always(m):
    found = [m.is_warn_always_enabled(), m.set_warn_always(True), m.is_warn_always_enabled(), caught(lambda: m.set_warn_always(3))]
    return [*found, m.set_warn_always(False), m.is_warn_always_enabled()]


def test_warnings_given_always():
    a = tj.ones(2, 2)
    tj.set_warn_always(True)
    try:
        for _ in range(2):
            with pytest.warns(UserWarning, match="nuclear_norm is deprecated"):
                tj.nuclear_norm(a)
    finally:
        tj.set_warn_always(False)


@program
def old_names_of_tensors(m):
    t = m.arange(6.0).reshape(2, 3)
    return [t.resize(3, 2), t.resize_as(m.ones(6)), caught(lambda: t.resize(7))]


@program
def the_default_type_of_old(m):
    found = []
    try:
        for t in (m.DoubleTensor, "torch.FloatTensor", "torch.IntTensor", 3, m.float32, "torch.HalfTensor"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append([caught(lambda t=t: m.set_default_tensor_type(t)), str(m.get_default_dtype())])
    finally:
        m.set_default_dtype(m.float32)
    return found


@program
def what_a_parameter_becomes_when_a_state_is_loaded(m):
    t, other = m.zeros(2, requires_grad=True), m.ones(2)
    with m.no_grad():
        made = t.module_load(other)
        assigned = t.module_load(other, assign=True)
    return [made, t, made.data_ptr() == t.data_ptr(), assigned.data_ptr() == other.data_ptr(), assigned.requires_grad]


@program
def a_slice_back_in_what_was_sliced(m):
    base = m.arange(6.0)
    found = m.slice_inverse(base[1:3], base, 0, 1, 3)
    return [found, found.data_ptr() == base.data_ptr(), caught(lambda: m.ones(2).slice_inverse(base))[0]]


@program
def what_pytorch_has_removed(m):
    a = m.ones(2, 2)
    calls = [lambda: a.eig(), lambda: a.lstsq(a), lambda: a.solve(a), lambda: a.symeig(eigenvectors=True), lambda: a.reinforce(1.0)]
    calls += [lambda: m.eig(a), lambda: m.lstsq(a, a), lambda: m.solve(a, a), lambda: m.symeig(a), lambda: m.matrix_rank(a)]
    return [[error[0], error[1][:24]] for error in map(caught, calls)]


def test_grad_scaler_is_found_at_the_top():
    assert tj.GradScaler is tj.amp.GradScaler
