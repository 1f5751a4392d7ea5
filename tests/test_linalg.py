"""Matrix products, einsum and torch.linalg: every operator against PyTorch on the same arrays."""

import math
import warnings

import numpy as np
import pytest
from side_by_side import error_of, like_pytorch
from test_shaping_indexing import compare, compare_errors, compare_inplace, to_numpy

import torchgrad_jax

torch = pytest.importorskip("torch")
# torch.cholesky, qr, lu and chain_matmul announce their successors in torch.linalg.
pytestmark = [pytest.mark.operators, pytest.mark.filterwarnings("ignore:torch.[a-z_]* is deprecated")]

rng = np.random.default_rng(0)


def r(*shape):
    return rng.standard_normal(shape)


def c(*shape):
    return r(*shape) + 1j * r(*shape)


A, B, V, W, N2 = r(3, 3), r(3, 2), r(3), r(4), r(2, 3, 3)
P = A @ A.T + np.eye(3)
CA = c(3, 3)
WIDE, TALL = r(2, 4), r(4, 2)


def spd(t, a):
    return a @ a.mT + t.eye(a.shape[-1]).to(a.dtype)


def hermitian(t, a):
    return a @ a.mH + t.eye(a.shape[-1]).to(a.dtype)


PRODUCTS = {
    "addmm": (lambda t, a, b, m: t.addmm(m, a, b), A, B, r(2)),
    "addmm scaled": (lambda t, a, b, m: m.addmm(a, b, beta=0.5, alpha=2), A, B, B),
    "addmm without self": (lambda t, a, b, m: t.addmm(m, a, b, beta=0), A, B, np.full((3, 2), np.nan)),
    "addmm complex": (lambda t, a, b, m: t.addmm(m, a, b, alpha=1j), CA, CA, CA),
    "addbmm": (lambda t, m, a, b: t.addbmm(m, a, b, beta=2), A, N2, N2),
    "baddbmm": (lambda t, m, a, b: t.baddbmm(m, a, b, alpha=3), A, N2, r(2, 3, 3)),
    "addmv": (lambda t, m, a, b: t.addmv(m, a, b), V, A, V),
    "addr": (lambda t, m, a, b: t.addr(m, a, b, beta=2, alpha=3), r(3, 4), V, W),
    "outer": (lambda t, a, b: t.outer(a, b), V, W),
    "ger": (lambda t, a, b: a.ger(b), V, W),
    "inner": (lambda t, a, b: t.inner(a, b), A, r(2, 3)),
    "inner vectors": (lambda t, a, b: a.inner(b), V, V),
    "inner number": (lambda t, a, b: a.inner(b), A, np.asarray(2.0)),
    "vdot": (lambda t, a, b: t.vdot(a, b), V, V),
    "vdot complex": (lambda t, a, b: t.vdot(a, b), c(3), c(3)),
    "kron": (lambda t, a, b: t.kron(a, b), B, r(2, 3)),
    "kron ranks": (lambda t, a, b: t.kron(a, b), V, B),
    "tensordot": (lambda t, a, b: t.tensordot(a, b, 2), N2, r(3, 3, 2)),
    "tensordot lists": (lambda t, a, b: t.tensordot(a, b, ([0, 2], [1, 0])), N2, r(3, 2, 4)),
    "tensordot none": (lambda t, a, b: t.tensordot(a, b, 0), V, W),
    "chain_matmul": (lambda t, a, b: t.chain_matmul(a, a, b), A, B),
    "multi_dot": (lambda t, a, b, d: t.linalg.multi_dot([a, b, d]), V, B, r(2, 5)),
    "multi_dot long": (lambda t, a, b, d, e: t.linalg.multi_dot((a, b, d, e)), r(2, 6), r(6, 3), r(3, 5), r(5)),
    **{f"matrix_power {n}": (lambda t, a, n=n: t.matrix_power(a, n), A) for n in (0, 1, 2, 3, 5, -1, -2)},
    "matrix_power batch": (lambda t, a: t.linalg.matrix_power(a, 4), N2),
    "cross": (lambda t, a, b: t.cross(a, b, dim=0), B, r(3, 2)),
    "linalg.cross": (lambda t, a, b: t.linalg.cross(a, b), A, r(1, 3)),
    "linalg.cross complex": (lambda t, a, b: t.linalg.cross(a, b), c(3), c(3)),
    "vecdot": (lambda t, a, b: t.linalg.vecdot(a, b), A, V),
    "cov": (lambda t, a: t.cov(a), r(3, 5)),
    "cov vector": (lambda t, a: t.cov(a, correction=0), W),
    "cov weights": (lambda t, a, w: t.cov(a, fweights=t.tensor([1, 2, 3, 1]), aweights=w.detach().abs()), r(3, 4), W),
    "corrcoef": (lambda t, a: t.corrcoef(a), r(3, 5)),
    "vander": (lambda t, a: t.linalg.vander(a, N=4), V),
    "torch.vander": (lambda t, a: t.vander(a.detach()), V),
    "mH": (lambda t, a: a.mH @ a, CA),
    "H": (lambda t, a: a.H * 1, CA),
    "adjoint": (lambda t, a: t.adjoint(a), N2),
    "linalg.diagonal": (lambda t, a: t.linalg.diagonal(a), N2),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name):
    function, *arrays = PRODUCTS[name]
    second = name in ("addmm scaled", "baddbmm", "cov weights", "corrcoef", "addr", "linalg.cross complex")
    compare(torchgrad_jax, torch, function, arrays, second=second, names=name != "matrix_power 0")


INPLACE = {
    "addmm_": (lambda t, m, a, b: m.addmm_(a, b, beta=2), B, A, B),
    "baddbmm_": (lambda t, m, a, b: m.baddbmm_(a, b), N2, N2, N2),
    "addbmm_": (lambda t, m, a, b: m.addbmm_(a, b), A, N2, N2),
    "addmv_": (lambda t, m, a, b: m.addmv_(a, b), V, A, V),
    "addr_": (lambda t, m, a, b: m.addr_(a, b), A, V, V),
}


@pytest.mark.parametrize("name", INPLACE)
def test_in_place(name):
    function, *arrays = INPLACE[name]
    compare_inplace(torchgrad_jax, torch, function, arrays)


EINSUM = {
    "ij,jk->ik": (A, B),
    "ij,jk": (A, B),
    "ij->ji": (B,),
    "ba": (B,),
    "ii": (A,),
    "ii->i": (A,),
    "i,i->": (V, V),
    "i,j->ij": (V, W),
    "ij->i": (B,),
    "ij,ij->ij": (B, B),
    "bij,bjk->bik": (N2, N2),
    "...ij,...jk->...ik": (N2, A),
    "i...,i...->...": (N2, r(2, 1, 3)),
    "...,...": (N2, A),
    "bn,anm,bm->ba": (r(2, 3), r(4, 3, 5), r(2, 5)),
    "ij,ij": (r(1, 3), r(2, 3)),
    "ij,jk,kl->il": (A, A, A),
    "iij->j": (r(2, 2, 3),),
    "aB,Bc -> ca": (A, B),
    "b h q d, b h k d -> b h q k": (r(1, 2, 3, 2), r(1, 2, 4, 2)),
    "i,->i": (V, np.asarray(2.0)),
}


@pytest.mark.parametrize("equation", EINSUM)
def test_einsum(equation):
    compare(torchgrad_jax, torch, lambda t, *operands: t.einsum(equation, *operands), EINSUM[equation], second=equation.count(",") == 1, names=False)


def test_einsum_forms():
    def sublists(t, a, b):
        return t.einsum(a, [0, 1], b, [1, 2], [2, 0]), t.einsum(a, [..., 0], b, [0, 5]), t.einsum("ij,jk", [a, b])

    compare(torchgrad_jax, torch, sublists, [A, B], second=False, names=False)
    compare(torchgrad_jax, torch, lambda t, a, b: t.einsum("ij,jk->ik", a, b), [CA, CA], names=False)


def signs(t, v):
    """Columns with the sign (phase) of their largest element taken away."""
    big = v.abs().argmax(-2, keepdim=True)
    top = v.gather(-2, big)
    return v * (top.conj() / top.abs() if v.is_complex() else top.sign()).detach()


DECOMPOSITIONS = {
    "cholesky": (lambda t, a: t.linalg.cholesky(spd(t, a)), A),
    "cholesky upper": (lambda t, a: t.linalg.cholesky(a, upper=True), P),
    "cholesky reads one triangle": (lambda t, a: t.linalg.cholesky(a), np.tril(P)),
    "cholesky batch": (lambda t, a: t.linalg.cholesky(spd(t, a)), N2),
    "cholesky complex": (lambda t, a: t.linalg.cholesky(hermitian(t, a)), CA),
    "torch.cholesky": (lambda t, a: t.cholesky(a, True), P),
    "cholesky_ex": (lambda t, a: t.linalg.cholesky_ex(a), P),
    "cholesky_ex checked": (lambda t, a: t.linalg.cholesky_ex(a, check_errors=True), P),
    "cholesky_solve": (lambda t, a, b: t.cholesky_solve(b, a), np.tril(P), B),
    "cholesky_solve upper": (lambda t, a, b: b.cholesky_solve(a, upper=True), np.triu(P), B),
    "cholesky_inverse": (lambda t, a: t.cholesky_inverse(a), np.tril(P)),
    "inv": (lambda t, a: t.linalg.inv(a), A),
    "inv batch": (lambda t, a: t.inverse(a), N2),
    "inv complex": (lambda t, a: a.inverse(), CA),
    "inv_ex": (lambda t, a: t.linalg.inv_ex(a), A),
    "solve": (lambda t, a, b: t.linalg.solve(a, b), A, B),
    "solve vector": (lambda t, a, b: t.linalg.solve(a, b), A, V),
    "solve vectors": (lambda t, a, b: t.linalg.solve(a, b), N2, r(2, 3)),
    "solve broadcast": (lambda t, a, b: t.linalg.solve(a, b), N2, B),
    "solve broadcast a": (lambda t, a, b: t.linalg.solve(a, b), A, r(2, 3, 1)),
    "solve right": (lambda t, a, b: t.linalg.solve(a, b, left=False), A, r(2, 3)),
    "solve complex": (lambda t, a, b: t.linalg.solve(a, b), CA, c(3, 2)),
    "solve complex right": (lambda t, a, b: t.linalg.solve(a, b, left=False), CA, c(2, 3)),
    "solve_ex": (lambda t, a, b: t.linalg.solve_ex(a, b), A, B),
    "solve_triangular": (lambda t, a, b: t.linalg.solve_triangular(a, b, upper=True), P, B),
    "solve_triangular lower right": (lambda t, a, b: t.linalg.solve_triangular(a, b, upper=False, left=False), P, r(2, 3)),
    "solve_triangular unit": (lambda t, a, b: t.linalg.solve_triangular(a, b, upper=False, unitriangular=True), P, B),
    "solve_triangular batch": (lambda t, a, b: t.linalg.solve_triangular(a, b, upper=True), N2, B),
    "solve_triangular complex": (lambda t, a, b: t.linalg.solve_triangular(a, b, upper=True), CA + 3 * np.eye(3), c(3, 2)),
    "eigh values": (lambda t, a: t.linalg.eigh(spd(t, a))[0], A),
    "eigh": (lambda t, a: signs(t, t.linalg.eigh(a)[1]), P),
    "eigh upper": (lambda t, a: t.linalg.eigh(a, UPLO="U")[0], A),
    "eigh batch": (lambda t, a: signs(t, t.linalg.eigh(a)[1]) ** 2, N2),
    "eigh complex": (lambda t, a: t.linalg.eigh(hermitian(t, a))[1].abs(), CA),
    "eigh repeated": (lambda t, a: t.linalg.eigh(a)[0], np.eye(3)),
    "eigvalsh": (lambda t, a: t.linalg.eigvalsh(a), P),
    "eig": (lambda t, a: (t.linalg.eig(a)[0].abs(), t.linalg.eig(a)[1].abs()), A),
    "eigvals complex": (lambda t, a: t.linalg.eigvals(a), CA),
    "eig complex": (lambda t, a: t.linalg.eig(a)[1].abs(), CA),
    "svd": (lambda t, a: [signs(t, x) for x in (t.linalg.svd(a)[0], t.linalg.svd(a)[2].mT)], A),
    "svd values": (lambda t, a: t.linalg.svd(a)[1], A),
    "svd reduced tall": (lambda t, a: [(lambda u, s, v: (u.abs(), s, v.abs()))(*t.linalg.svd(a, full_matrices=False))], TALL),
    "svd reduced wide": (lambda t, a: [(lambda u, s, v: (u.abs(), s, v.abs()))(*t.linalg.svd(a, full_matrices=False))], WIDE),
    "svd full": (lambda t, a: t.linalg.svd(a)[0][:, :2].abs(), TALL),
    "svd complex": (lambda t, a: [(lambda u, s, v: (u.abs(), s, v.abs()))(*t.linalg.svd(a, full_matrices=False))], c(3, 2)),
    "svd repeated": (lambda t, a: t.linalg.svd(a)[1], np.eye(3)),
    "torch.svd": (lambda t, a: [(lambda u, s, v: (u.abs(), s, v.abs()))(*t.svd(a))], TALL),
    "svdvals": (lambda t, a: t.linalg.svdvals(a), N2),
    "qr": (lambda t, a: t.linalg.qr(a), A),
    "qr tall": (lambda t, a: t.linalg.qr(a), TALL),
    "qr wide": (lambda t, a: t.linalg.qr(a), WIDE),
    "qr complete wide": (lambda t, a: t.linalg.qr(a, mode="complete"), WIDE),
    "qr complete": (lambda t, a: t.linalg.qr(a.detach(), mode="complete"), TALL),
    "qr r": (lambda t, a: t.linalg.qr(a.detach(), mode="r"), A),
    "qr complex": (lambda t, a: t.linalg.qr(a), c(3, 2)),
    "torch.qr": (lambda t, a: a.qr(), A),
    "det": (lambda t, a: t.linalg.det(a), N2),
    "det complex": (lambda t, a: t.det(a), CA),
    "det 1 by 1": (lambda t, a: t.det(a), r(1, 1)),
    "slogdet": (lambda t, a: t.linalg.slogdet(a), N2),
    "slogdet complex": (lambda t, a: a.slogdet(), CA),
    "logdet": (lambda t, a: t.logdet(a), P),
    "pinv": (lambda t, a: t.linalg.pinv(a), TALL),
    "pinv wide": (lambda t, a: t.pinverse(a), WIDE),
    "pinv complex": (lambda t, a: t.linalg.pinv(a), c(3, 2)),
    "pinv hermitian": (lambda t, a: t.linalg.pinv(a, hermitian=True), P),
    "matrix_rank": (lambda t, a: (t.linalg.matrix_rank(a), t.linalg.matrix_rank(a, tol=100.0)), np.ones((3, 3))),
    "matrix_rank hermitian": (lambda t, a: t.linalg.matrix_rank(a, hermitian=True), np.ones((3, 3))),
    "lstsq gels": (lambda t, a, b: t.linalg.lstsq(a, b, driver="gels"), TALL, r(4, 3)),
    "matrix_exp": (lambda t, a: t.linalg.matrix_exp(a), N2),
    "matrix_exp complex": (lambda t, a: a.matrix_exp(), CA),
    "lstsq": (lambda t, a, b: t.linalg.lstsq(a, b), TALL, r(4, 3)),
    "lstsq wide": (lambda t, a, b: t.linalg.lstsq(a, b)[0], WIDE, r(2, 3)),
    "lstsq gelsd": (lambda t, a, b: [x.detach() for x in t.linalg.lstsq(a, b, driver="gelsd")], TALL, r(4, 3)),
    "lu": (lambda t, a: t.linalg.lu(a), A),
    "lu tall": (lambda t, a: t.linalg.lu(a), r(4, 3)),
    "lu wide": (lambda t, a: t.linalg.lu(a), WIDE),
    "lu complex": (lambda t, a: t.linalg.lu(a), CA),
    "lu_factor": (lambda t, a: t.linalg.lu_factor(a), N2),
    "lu_factor_ex": (lambda t, a: t.linalg.lu_factor_ex(a), WIDE),
    "torch.lu": (lambda t, a: t.lu(a), A),
    "lu_unpack": (lambda t, a: t.lu_unpack(*t.linalg.lu_factor(a)), A),
    "lu_solve": (lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b), A, B),
    "lu_solve adjoint": (lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b, adjoint=True), CA, c(3, 2)),
    "lu_solve right": (lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b, left=False), A, r(2, 3)),
    "lu_solve right adjoint": (lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b, left=False, adjoint=True), CA, c(2, 3)),
    "cond": (lambda t, a: t.linalg.cond(a), A),
    **{f"cond {p}": (lambda t, a, p=p: t.linalg.cond(a if p == -2 else a.detach(), p), A) for p in (1, -1, -2, np.inf, -np.inf, "fro", "nuc")},
    "tensorsolve": (lambda t, a, b: t.linalg.tensorsolve(a, b), r(2, 3, 6), r(2, 3)),
}  # fmt: skip
# eigenvalue derivatives amplify rounding, and some second derivatives PyTorch does not have, or not at these points.
SECOND = {
    "cholesky", "inv", "solve right", "solve complex right", "solve_triangular lower right", "eigh", "svd reduced tall", "qr wide", "det",
    "slogdet complex", "pinv", "matrix_exp", "lu tall", "lu wide", "lu_factor",
}  # fmt: skip
# Where PyTorch makes the result of several recorded operations, and one is recorded here.
OTHER_NAMES = {"cond nuc"}


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_decomposition(name):
    function, *arrays = DECOMPOSITIONS[name]
    compare(torchgrad_jax, torch, function, arrays, second=name in SECOND, names=name not in OTHER_NAMES, tolerance=1e-8)


def test_gradient_of_singular_determinant():
    for t in (torchgrad_jax, torch):
        a = t.tensor([[1.0, 2.0], [2.0, 4.0]], requires_grad=True)
        t.linalg.det(a).backward()
        assert a.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]


ERRORS = {
    "addmm": lambda t, a, v: t.addmm(v, a, a[:2]),
    "addmm self": lambda t, a, v: t.addmm(v[:2], a, a),
    "addmm dtype": lambda t, a, v: t.addmm(v.double(), a, a),
    "addmm dtypes": lambda t, a, v: t.addmm(v, a.double(), a),
    "addmm vector": lambda t, a, v: t.addmm(v, v, a),
    "baddbmm": lambda t, a, v: t.baddbmm(a, t.ones(2, 3, 3), t.ones(3, 3, 3)),
    "addbmm": lambda t, a, v: t.addbmm(a, t.ones(2, 3, 3), t.ones(3, 3, 3)),
    "addbmm self": lambda t, a, v: t.addbmm(v[:2], t.ones(2, 3, 3), t.ones(2, 3, 3)),
    "addmv": lambda t, a, v: t.addmv(v, a, v[:2]),
    "addmv vector": lambda t, a, v: t.addmv(v, v, v),
    "addmv self": lambda t, a, v: t.addmv(v[:2], a, v),
    "addr": lambda t, a, v: t.addr(a, a, v),
    "addr self": lambda t, a, v: t.addr(a[:2, :2], v, v),
    "outer": lambda t, a, v: t.outer(a, v),
    "inner": lambda t, a, v: t.inner(a, v[:2]),
    "vdot": lambda t, a, v: t.vdot(a, v),
    "tensordot": lambda t, a, v: t.tensordot(a, a[:2, :2], 1),
    "tensordot lists": lambda t, a, v: t.tensordot(a, a, ([0], [0, 1])),
    "tensordot negative": lambda t, a, v: t.tensordot(a, a, -1),
    "tensordot many": lambda t, a, v: t.tensordot(a, a, 3),
    "chain_matmul": lambda t, a, v: t.chain_matmul(v, a),
    "multi_dot one": lambda t, a, v: t.linalg.multi_dot([a]),
    "multi_dot": lambda t, a, v: t.linalg.multi_dot([a, a[:2, :2]]),
    "multi_dot ndim": lambda t, a, v: t.linalg.multi_dot([t.ones(2, 2, 2), a]),
    "matrix_power": lambda t, a, v: t.matrix_power(a[:2], 2),
    "matrix_power vector": lambda t, a, v: t.matrix_power(v, 2),
    "einsum sizes": lambda t, a, v: t.einsum("ij,jk", a, a[:2, :2]),
    "einsum sizes again": lambda t, a, v: [error_of(lambda: t.einsum("ij,jk", a, a[:2])), t.einsum("ij,jk", a, a[:2])],
    "einsum output": lambda t, a, v: t.einsum("ij,jk->il", a, a),
    "einsum ndim": lambda t, a, v: t.einsum("ijk", a),
    "einsum few": lambda t, a, v: t.einsum("ij,jk", a),
    "einsum many": lambda t, a, v: t.einsum("ij", a, a),
    "einsum twice": lambda t, a, v: t.einsum("ij->ii", a),
    "einsum dot": lambda t, a, v: t.einsum("i.j", a),
    "einsum digit": lambda t, a, v: t.einsum("i1", a),
    "einsum repeated": lambda t, a, v: t.einsum("ii", a[:2]),
    "einsum dtypes": lambda t, a, v: t.einsum("ij,jk", a, a.double()),
    "einsum none": lambda t, a, v: t.einsum("ij"),
    "cross": lambda t, a, v: t.cross(a[:, :2], a[:, :2], dim=1),
    "cross ndim": lambda t, a, v: t.linalg.cross(v, a),
    "cross dim": lambda t, a, v: t.cross(a[:2, :2], a[:2, :2]),
    "linalg.cross": lambda t, a, v: t.linalg.cross(a[:, :2], a[:, :2]),
    "cov": lambda t, a, v: t.cov(t.ones(2, 2, 2)),
    "corrcoef": lambda t, a, v: t.corrcoef(t.ones(2, 2, 2)),
    "cholesky": lambda t, a, v: t.linalg.cholesky(t.tensor([[1.0, 2], [2, 1]])),
    "cholesky batch": lambda t, a, v: t.linalg.cholesky(t.tensor([[[1.0, 0], [0, 1]], [[-1, 2], [2, 1]]])),
    "torch.cholesky": lambda t, a, v: t.cholesky(t.tensor([[1.0, 2], [2, 1]])),
    "cholesky_ex": lambda t, a, v: t.linalg.cholesky_ex(t.tensor([[1.0, 2], [2, 1]]), check_errors=True),
    "cholesky square": lambda t, a, v: t.linalg.cholesky(a[:2]),
    "cholesky vector": lambda t, a, v: t.linalg.cholesky(v),
    "cholesky_solve": lambda t, a, v: t.cholesky_solve(a, a[:2, :2]),
    "cholesky_inverse": lambda t, a, v: t.cholesky_inverse(a[:2]),
    "inv": lambda t, a, v: t.linalg.inv(a * 0),
    "inv second": lambda t, a, v: t.inverse(t.tensor([[1.0, 2], [2, 4]])),
    "inv batch": lambda t, a, v: t.linalg.inv(t.stack([t.eye(2), t.zeros(2, 2)])),
    "inv square": lambda t, a, v: t.linalg.inv(a[:2]),
    "inv integers": lambda t, a, v: t.linalg.inv(t.ones(2, 2, dtype=t.int64)),
    "inv half": lambda t, a, v: t.linalg.inv(t.ones(2, 2, dtype=t.float16)),
    "inv_ex": lambda t, a, v: t.linalg.inv_ex(a * 0, check_errors=True),
    "solve": lambda t, a, v: t.linalg.solve(a * 0, v),
    "solve batch": lambda t, a, v: t.linalg.solve(t.stack([a * 0, a]), a),
    "solve shape": lambda t, a, v: t.linalg.solve(a, a[:2]),
    "solve dtype": lambda t, a, v: t.linalg.solve(a, a.double()),
    "solve_triangular": lambda t, a, v: t.linalg.solve_triangular(a, a[:2], upper=True),
    "solve_triangular vector": lambda t, a, v: t.linalg.solve_triangular(a, v, upper=True),
    "matrix_power singular": lambda t, a, v: t.matrix_power(a * 0, -1),
    "eigh": lambda t, a, v: t.linalg.eigh(a[:2]),
    "eigh UPLO": lambda t, a, v: t.linalg.eigh(a, "X"),
    "eigh integers": lambda t, a, v: t.linalg.eigh(t.ones(2, 2, dtype=t.int64)),
    "eig infinite": lambda t, a, v: t.linalg.eig(a / 0),
    "svd infinite": lambda t, a, v: t.linalg.svd(a * float("nan")),
    "svd vector": lambda t, a, v: t.linalg.svd(v),
    "svd integers": lambda t, a, v: t.linalg.svd(t.ones(2, 2, dtype=t.int64)),
    "qr mode": lambda t, a, v: t.linalg.qr(a, "foo"),
    "qr vector": lambda t, a, v: t.linalg.qr(v),
    "qr complete": lambda t, a, v: t.linalg.qr(t.ones(3, 2, requires_grad=True), "complete")[1].sum().backward(),
    "qr r": lambda t, a, v: t.linalg.qr(a.clone().requires_grad_(), "r")[1].sum().backward(),
    "det": lambda t, a, v: t.linalg.det(a[:2]),
    "slogdet": lambda t, a, v: t.linalg.slogdet(a[:2]),
    "logdet": lambda t, a, v: t.logdet(a[:2]),
    "pinv": lambda t, a, v: t.linalg.pinv(v),
    "matrix_rank": lambda t, a, v: t.linalg.matrix_rank(v),
    "matrix_exp": lambda t, a, v: t.linalg.matrix_exp(a[:2]),
    "lstsq": lambda t, a, v: t.linalg.lstsq(a, a[:2]),
    "lstsq driver": lambda t, a, v: t.linalg.lstsq(a, a, driver="x"),
    "lu": lambda t, a, v: t.linalg.lu(v),
    "lu_factor": lambda t, a, v: t.linalg.lu_factor(a * 0),
    "lu_factor pivot": lambda t, a, v: t.linalg.lu_factor(a, pivot=False),
    "lu_solve pivots": lambda t, a, v: t.linalg.lu_solve(a, t.tensor([1, 2], dtype=t.int32), a),
    "lu_solve": lambda t, a, v: t.linalg.lu_solve(*t.linalg.lu_factor(a), a[:2]),
    "cond": lambda t, a, v: t.linalg.cond(v),
    "cond p": lambda t, a, v: t.linalg.cond(a, 5),
    "cond square": lambda t, a, v: t.linalg.cond(a[:2], 1),
    "vander": lambda t, a, v: t.linalg.vander(t.tensor(1.0)),
    "H": lambda t, a, v: v.H,
    "H batch": lambda t, a, v: t.ones(2, 2, 2).H,
    "mH": lambda t, a, v: v.mH,
    "adjoint": lambda t, a, v: v.adjoint(),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_error(name):
    compare_errors(torchgrad_jax, torch, ERRORS[name], [A.astype(np.float32), V.astype(np.float32)])


def test_failed_factorizations_without_an_error():
    for t in (torchgrad_jax, torch):
        assert t.linalg.cholesky_ex(t.tensor([[1.0, 2], [2, 1]])).info.item() == 2
        assert t.linalg.inv_ex(t.zeros(2, 2)).info.item() == 1
        assert t.linalg.solve_ex(t.zeros(2, 2), t.ones(2)).info.item() == 1
        assert np.isinf(to_numpy(t.linalg.cond(t.zeros(2, 2), 1)))


def test_a_factor_that_failed_by_rounding_alone_says_so(interpreted):
    """Matrices at the edge of being positive definite: whether a factorization gets through depends on the order in which it rounds."""
    numbers = np.random.default_rng(0)
    x = np.sort(numbers.random((400, 24)))
    noise = 3e-8 * numbers.standard_normal((400, 24, 24))
    jitter = np.logspace(-6.9, -6.3, 400)[:, None, None] * np.eye(24)
    near = np.exp(-8 * (x[:, :, None] - x[:, None]) ** 2) + noise + noise.mT + jitter
    near = near.astype(np.float32)
    factors, info = map(to_numpy, torchgrad_jax.linalg.cholesky_ex(torchgrad_jax.tensor(near)))
    assert (info > 0).any() and not (info > 0).all()
    for factor, order, matrix in zip(factors, info, near, strict=True):
        done = order - 1 if order else 24
        np.testing.assert_allclose(factor[:, :done] @ factor[:done, :done].T, matrix[:, :done], atol=1e-6)
        np.testing.assert_array_equal(factor[order:, order:], np.tril(matrix[order:, order:]) if order else factor)
        assert not order or factor[done, done] < 1e-6


@pytest.mark.parametrize("order", [1, 2, 4])
def test_a_factorization_that_failed_leaves_what_was_done(order):
    """The factor's columns before the minor that is not positive, the pivot that is not, and what was given."""

    def left(m, upper, numbers):
        matrix = m.tensor(numbers)
        matrix[..., order - 1, order - 1] = -1
        batch = m.stack([matrix, m.eye(4, dtype=matrix.dtype)])
        return m.linalg.cholesky_ex(matrix, upper=upper), m.linalg.cholesky_ex(batch, upper=upper)

    spread = np.diag(np.arange(4.0)) + np.eye(4) + 0.1
    twisted = spread + 0.2j * (np.triu(np.ones((4, 4)), 1) - np.tril(np.ones((4, 4)), -1))
    for numbers in (spread, twisted):
        for upper in (False, True):
            for ours, theirs in zip(left(torchgrad_jax, upper, numbers), left(torch, upper, numbers), strict=True):
                assert ours.info.tolist() == theirs.info.tolist()
                np.testing.assert_allclose(to_numpy(ours.L), to_numpy(theirs.L), atol=1e-12)


def test_second_gradients_of_what_is_special():
    """A Cholesky factor's unread triangle has a gradient, in the second derivative too; a determinant of one element has no second one."""
    factor = np.tril(r(3, 3)) + 3 * np.eye(3)
    cases = [
        (lambda m, x: m.cholesky_solve(m.tensor(B), x), factor), (lambda m, x: m.cholesky_solve(m.tensor(B), x, True), factor.T.copy()),
        (lambda m, x: m.cholesky_solve(m.tensor(CA), x), factor + 1j * np.tril(r(3, 3), -1)), (lambda m, x: m.linalg.det(x), np.array([[2.0]])),
        (lambda m, x: m.linalg.vecdot(x, x), V), (lambda m, x: m.linalg.vecdot(x, x, dim=0), c(3)),
    ]  # fmt: skip
    for function, values in cases:
        found = []
        for m in (torchgrad_jax, torch):
            x = m.tensor(values.tolist(), dtype=m.complex128 if np.iscomplexobj(values) else m.float64, requires_grad=True)
            y = function(m, x)
            (first,) = m.autograd.grad((y * y.conj()).real.sum(), x, create_graph=True)
            (second,) = m.autograd.grad((first * first.conj()).real.sum(), x)
            found.append([to_numpy(t.detach()) for t in (y, first, second)] + [y.grad_fn.name()])
        ours, theirs = found
        assert ours[3] == theirs[3]
        for a, b in zip(ours[:3], theirs[:3], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_reflections_tensor_inverses_and_ranks():
    """householder_product of what geqrf leaves, tensorinv, and tolerances that are tensors, with gradients."""
    cases = [
        (lambda m, x: m.linalg.householder_product(*(t.detach() for t in m.geqrf(x))), TALL), (lambda m, x: m.geqrf(x)[0], N2),
        (lambda m, x: m.linalg.householder_product(x, x[..., 0, :] * 0.3), TALL), (lambda m, x: m.orgqr(x, x[..., 0, :2]), c(2, 4, 3)),
        (lambda m, x: m.linalg.tensorinv(x), r(2, 3, 6)), (lambda m, x: m.linalg.tensorinv(x, ind=1), r(4, 2, 2)),
        (lambda m, x: m.linalg.tensorinv(x, 3), r(4, 2, 2)), (lambda m, x: m.linalg.tensorinv(x, 0), r(2, 2)),
        (lambda m, x: m.linalg.matrix_rank(x, atol=m.tensor([0.1, 2.0])), N2),
        (lambda m, x: m.linalg.matrix_rank(x[:, :0], atol=m.tensor([0.1, 2.0])), N2), (lambda m, x: m.linalg.vander(x, N=3), np.asarray(2.0)),
        (lambda m, x: m.linalg.matrix_rank(x @ x.mT, hermitian=True, rtol=m.tensor([0.1, 0.5]), atol=m.tensor([0.0, 1.0])), N2),
        (lambda m, x: m.linalg.householder_product(x, x[0]), WIDE), (lambda m, x: m.linalg.householder_product(x, x), TALL),
        (lambda m, x: m.geqrf(x)[1].sum().backward(), TALL), (lambda m, x: m.linalg.householder_product(x, x[0].float()), TALL),
    ]  # fmt: skip
    for function, values in cases:
        found = []
        for m in (torchgrad_jax, torch):
            x = m.tensor(values.tolist(), dtype=m.complex128 if np.iscomplexobj(values) else m.float64, requires_grad=True)
            seen = []
            raised = error_of(lambda m=m, x=x, seen=seen, function=function: seen.append(function(m, x)))
            if seen and seen[0].requires_grad and "Geqrf" not in seen[0].grad_fn.name():
                seen += [t for t in m.autograd.grad((seen[0] * seen[0].conj()).real.sum() + (seen[0] ** 3).real.sum(), x)]
            found.append((raised, [to_numpy(t.detach()) for t in seen]))
        assert found[0][0] == found[1][0]
        for a, b in zip(found[0][1], found[1][1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_sixteen_bits():
    """A product with a tensor added is rounded once; the exponential is there for 16 bit matrices."""
    a, b, d = r(6, 7), r(7, 5), r(6, 5)
    for call in ("addmm(d, a, b, beta=0.3, alpha=0.7)", "baddbmm(d[None], a[None], b[None], beta=0.3, alpha=0.7)"):
        for dtype in ("bfloat16", "float16"):
            found = []
            for m in (torchgrad_jax, torch):
                space = {k: m.tensor(v.tolist()).to(getattr(m, dtype)) for k, v in (("a", a), ("b", b), ("d", d))}
                found.append(eval(f"m.{call}", {"m": m, **space}).float().tolist())
            np.testing.assert_allclose(*found, rtol=1e-3)
    for m, dtype in ((torchgrad_jax, torchgrad_jax.bfloat16), (torch, torch.float64)):  # PyTorch's of 16 bits is no exponential
        found.append(m.matrix_exp(m.tensor(A.tolist(), dtype=dtype)).double().tolist())
    np.testing.assert_allclose(*found[2:], rtol=5e-2)


@like_pytorch
def test_norms_of_empty_matrices(m):
    found = []
    for shape in ((0, 0), (0, 3), (2, 3, 0), (0, 2, 2)):
        for order in (2, -2, "nuc", 1, -1, math.inf, "fro"):
            at_ends = [error_of(lambda s=shape, o=order: m.linalg.matrix_norm(m.zeros(s), o))]
            found.append(at_ends if at_ends[0] else m.linalg.matrix_norm(m.zeros(shape), order, keepdim=True))
    return found


@like_pytorch
def test_refusals(m):
    x, y = m.ones(5, 2), m.ones(3)
    calls = [
        lambda: m.linalg.cross(x, x, dim=2), lambda: m.linalg.cross(x, x, dim=-3), lambda: m.linalg.cross(x, x), lambda: m.dot(y, m.ones(4).double()),
        lambda: m.dot(y, x.double()), lambda: m.dot(y, m.ones(4)), lambda: m.linalg.vecdot(y, y.double()), lambda: m.linalg.vecdot(y, m.ones(4)),
        lambda: m.linalg.vecdot(y.long(), y.long()), lambda: 3 @ y, lambda: [1] @ y,
    ]  # fmt: skip
    places = tuple(m.empty(0, dtype=d) for d in (m.float64, m.float64, m.int64, m.float64))
    found = m.linalg.lstsq(m.tensor(A), m.tensor(B), driver="gelsd", out=places)
    turned = y.__rmatmul__(x.mT @ x @ m.ones(2, 3)), x.__rmatmul__(3)
    return [error_of(call) for call in calls], [t.shape for t in places], found[0] is places[0], turned


@like_pytorch
def test_least_squares_of_matrices_without_full_rank(m):
    rows = m.tensor([[1.0, 2.0], [2.0, 1.0], [0.5, -1.0], [3.0, 0.0]], dtype=m.float64)
    low, full, b = rows @ m.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], dtype=m.float64), m.eye(4, dtype=m.float64)[:, :3] + 1, rows.sin()
    found = []
    for driver in ("gelsy", "gelsd", "gelss"):
        for a, given in ((low, b), (full, b), (full, b[:, 0]), (m.stack([full, low]), m.stack([b, b])), (m.stack([full, full + 1]), m.stack([b, b]))):
            found.append(list(m.linalg.lstsq(a, given, driver=driver)))
    close = m.tensor([[1.0, 1.0], [1.0, 1.001], [2.0, 2.0]], dtype=m.float64)
    found += [list(m.linalg.lstsq(close, b[:3], rcond=0.1, driver=driver)) for driver in ("gels", "gelsd")]
    batches = m.func.vmap(lambda a: m.linalg.lstsq(a, b, driver="gelsd").residuals)(m.stack([full, full + 1]))
    calls = [
        lambda: m.linalg.lstsq(full, m.stack([b, b])), lambda: m.linalg.lstsq(m.stack([full, full]), b[:, 0]), lambda: m.linalg.lstsq(full, b[:3, 0]),
        lambda: m.linalg.lstsq(full, m.stack([b, b]).float()),
        lambda: m.linalg.lstsq(full * m.tensor([1.0, 0, 0], dtype=m.float64), b, driver="gels").solution.tolist(),
        lambda: m.linalg.lstsq(m.stack([full, full * 0, full * 0 + m.eye(3)[2]]), m.stack([b] * 3), driver="gels").solution.tolist(),
        lambda: m.linalg.lstsq((full * m.tensor([1.0, 1, 0], dtype=m.float64)).mT, b[:3], driver="gels").solution.tolist(),
    ]  # fmt: skip
    found.append(m.linalg.lstsq(m.zeros_like(full), b, driver="gels").solution)
    return found, batches, [error_of(call) for call in calls]


@like_pytorch
def test_magnitudes_at_a_complex_zero_have_second_derivatives(m):
    found = []
    for function in (m.abs, lambda x: m.linalg.vector_norm(x, 1, 0)):
        x = m.tensor([0, 1 + 1j], dtype=m.complex128, requires_grad=True)
        (first,) = m.autograd.grad(function(x).sum(), x, create_graph=True)
        (second,) = m.autograd.grad(first.sum(), x, m.ones((), dtype=m.complex128))
        found += [first, second.real + 0, second.imag + 0]
    return found


@pytest.mark.parametrize("call", [
    lambda m, a: m.cholesky(a), lambda m, a: m.qr(a), lambda m, a: a.lu(), lambda m, a: m.lu_solve(a, *m.linalg.lu_factor(a)),
    lambda m, a: m.triangular_solve(a, a), lambda m, a: m.chain_matmul(a, a), lambda m, a: m.cross(a, a), lambda m, a: m.linalg.cross(a, a),
    lambda m, a: m.cross(a, a, dim=0), lambda m, a: m.asarray(a.clone().requires_grad_()), lambda m, a: m.asarray(a),
])  # fmt: skip
def test_pytorchs_warnings_of_what_it_will_drop(call):
    said = []
    for m in (torchgrad_jax, torch):
        before = m.is_warn_always_enabled()
        m.set_warn_always(True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(m, m.eye(3) + 1)
        m.set_warn_always(before)
        said.append([str(w.message).partition(" (Triggered")[0].partition("\n")[0] for w in caught])
    assert said[0] == said[1]
