"""Which dtypes linear algebra takes and which it refuses, and how: against PyTorch, the class and the first line of the error."""

from __future__ import annotations

import warnings

import pytest
from side_by_side import error_of, like_pytorch, plain

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators

DTYPES = ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "complex64")
# Well-conditioned; none; a batch of none; none of some size; not square; no matrix; a batch.
SHAPES = ((2, 2), (0, 0), (2, 0, 0), (0, 2, 2), (2, 3), (0, 3), (2,), (2, 3, 3))


def made(m, shape, dtype):
    """Identity matrices, or ones for other shapes."""
    square = len(shape) > 1 and shape[-1] == shape[-2]
    return (m.eye(shape[-1]).expand(shape) if square else m.ones(shape)).to(getattr(m, dtype))


def kinds(x):
    """The dtypes and the shapes of results: what they are the other tests know."""
    return [kinds(v) for v in x] if isinstance(x, (tuple, list)) else [str(x.dtype), list(x.shape)]


def outcome(m, program, *args):
    found = []
    raised = error_of(lambda: found.append(kinds(program(m, *args))))
    return found if raised is None else [raised[0], raised[1].partition("\n")[0]]


def first_pivots(m, a):
    return m.ones(a.shape[:-1], dtype=m.int32)


DECOMPOSITIONS = {
    "cholesky": lambda m, a: m.cholesky(a),
    "linalg.cholesky": lambda m, a: m.linalg.cholesky(a),
    "cholesky_ex": lambda m, a: m.linalg.cholesky_ex(a),
    "cholesky_inverse": lambda m, a: m.cholesky_inverse(a),
    "cholesky_solve": lambda m, a: m.cholesky_solve(a, a),
    "inv": lambda m, a: m.linalg.inv(a),
    "solve": lambda m, a: m.linalg.solve(a, a),
    "solve_ex": lambda m, a: m.linalg.solve_ex(a, a, left=False),
    "det": lambda m, a: m.linalg.det(a),
    "slogdet": lambda m, a: m.linalg.slogdet(a),
    "logdet": lambda m, a: m.logdet(a),
    "eigh": lambda m, a: m.linalg.eigh(a),
    "eigvalsh": lambda m, a: m.linalg.eigvalsh(a),
    "eig": lambda m, a: m.linalg.eig(a),
    "eigvals": lambda m, a: m.linalg.eigvals(a),
    "svd": lambda m, a: m.svd(a),
    "svd without vectors": lambda m, a: m.svd(a, compute_uv=False),
    "linalg.svd": lambda m, a: m.linalg.svd(a),
    "svdvals": lambda m, a: m.linalg.svdvals(a),
    "qr": lambda m, a: m.linalg.qr(a),
    "lu": lambda m, a: m.linalg.lu(a),
    "lu_factor": lambda m, a: m.linalg.lu_factor_ex(a),
    "lu_solve": lambda m, a: m.linalg.lu_solve(a, first_pivots(m, a), a),
    "solve_triangular": lambda m, a: m.linalg.solve_triangular(a, a, upper=True),
    "triangular_solve": lambda m, a: m.triangular_solve(a, a),
    "cond": lambda m, a: m.linalg.cond(a),
    "cond fro": lambda m, a: m.linalg.cond(a, "fro"),
    "cond 1": lambda m, a: m.linalg.cond(a, 1),
    "cond nuc": lambda m, a: m.linalg.cond(a, "nuc"),
    "pinv": lambda m, a: m.linalg.pinv(a),
    "pinv hermitian": lambda m, a: m.linalg.pinv(a, hermitian=True),
    "matrix_rank": lambda m, a: m.linalg.matrix_rank(a),
    "matrix_rank atol": lambda m, a: m.linalg.matrix_rank(a, atol=0.1),
    "matrix_rank tol": lambda m, a: m.linalg.matrix_rank(a, tol=0.1),
    "matrix_rank hermitian": lambda m, a: m.linalg.matrix_rank(a, tol=0.1, hermitian=True),
    "lstsq": lambda m, a: m.linalg.lstsq(a, a),
    "lstsq rcond": lambda m, a: m.linalg.lstsq(a, a, rcond=0.1),
    "tensorsolve": lambda m, a: m.linalg.tensorsolve(a, a.sum(1).to(a.dtype)),
    "tensorinv": lambda m, a: m.linalg.tensorinv(a, ind=1),
    "matrix_exp": lambda m, a: m.matrix_exp(a),
    "geqrf": lambda m, a: m.geqrf(a),
    "norm 2": lambda m, a: m.linalg.matrix_norm(a, 2),
    "norm fro": lambda m, a: m.linalg.matrix_norm(a, "fro"),
    "norm nuc": lambda m, a: m.norm(a, "nuc"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_decompositions(name):
    different = {}
    for dtype in DTYPES:
        for shape in SHAPES:
            ours, theirs = (outcome(m, DECOMPOSITIONS[name], made(m, shape, dtype)) for m in (tj, torch))
            if ours != theirs:
                different[dtype, shape] = ours, theirs
    assert not different


# Statements about tensors of two dtypes: `x` makes one of the first, `y` of the second.
PRODUCTS = [
    "m.addbmm(x(2, 2), y(3, 2, 2), y(3, 2, 2))", "m.addbmm(x(2, 2), x(3, 2, 2), y(3, 2, 2))", "m.vdot(x(2), y(2))", "m.dot(x(0), y(0))",
    "m.cross(x(2, 3), y(2, 3))", "m.linalg.cross(x(3), y(3))", "m.linalg.cross(x(0, 3), y(3))", "m.linalg.cross(x(2), y(2))",
    "m.tensordot(x(1, 2), y(2, 1), 1)", "m.tensordot(x(2, 2, 1), y(2, 1, 2), ([0, 1], [2, 0]))", "m.tensordot(x(2, 2), y(2, 2), ([0, 1], [1, 0]))",
    "m.tensordot(x(2, 1), x(2, 2), 1)", "m.inner(x(1, 4), y(4))",
    "m.einsum('ij,jk->ik', x(2, 2), x(2, 2))", "m.einsum('i,i->i', x(2), y(2))", "m.einsum('i,i->', x(2), x(2))",
    "m.einsum('ij,k->ik', x(2, 2), x(2))", "m.einsum('ij->i', x(2, 2))",
    "m.cdist(x(2, 3), y(2, 3))", "m.cdist(x(30, 3), y(30, 3))", "m.cdist(x(2, 3), y(2, 3), 1.0)", "m.cdist(x(0, 3), y(2, 3))",
    "m.cdist(x(2, 0), y(2, 0))", "m.cdist(x(2, 3), y(3))", "m.cdist(x(2, 3), y(2, 4))", "m.pdist(x(2, 3))", "m.pdist(x(1, 3))", "m.pdist(x(2))",
    "m.pdist(x(2, 3), -1)", "m.cov(m.ones(2, 3), aweights=x(3))", "m.cov(m.ones(2, 3), fweights=x(3))",
    "m.linalg.vander(x(3))", "m.linalg.vander(x(1))", "m.linalg.vander(x(3), N=2)", "m.vander(x(3))", "m.vander(x(3), 0)",
    "m.mvlgamma(x(3), 1)", "m.mvlgamma(x(3), 0)", "x(3).sum(dtype=m.bool)",
    "m.cholesky_solve(x(2, 2), y(2, 2))", "m.cholesky_solve(x(3, 2, 2), y(4, 2, 2))", "m.triangular_solve(x(2, 3), y(2, 2))",
    "m.triangular_solve(x(3, 2, 2), y(4, 2, 2))", "m.triangular_solve(x(3, 2), y(2, 2))", "m.linalg.solve(x(2, 2), y(3, 2))",
    "m.linalg.solve(x(3, 2, 2), y(4, 2, 2))", "m.linalg.solve_triangular(x(2, 2), y(2, 2), upper=True)",
    "m.linalg.lu_solve(x(2, 2), m.ones(2).int(), y(2, 2))", "m.linalg.lu_solve(x(2, 2), m.ones(2), y(2, 2))", "m.linalg.lstsq(x(2, 2), y(2, 2))",
    "m.linalg.lstsq(m.ones(3, 2, 2), m.ones(4, 2, 2))", "m.linalg.matrix_norm(x(2, 2), 'fro', dtype=y(1).dtype)",
    "m.linalg.matrix_norm(x(2, 2), 2, (0, 0), dtype=y(1).dtype)", "m.linalg.matrix_norm(x(2, 2), 3)", "m.linalg.vector_norm(x(2), dtype=y(1).dtype)",
    "m.linalg.pinv(x(2, 2), rtol=m.tensor(1j))", "m.linalg.pinv(x(2, 2), y(1)[0])", "m.linalg.matrix_rank(x(2, 2), atol=m.tensor(1j))",
    "m.linalg.matrix_rank(x(2, 2, 2), atol=m.ones(2))", "m.linalg.matrix_rank(x(2, 2, 2), rtol=m.ones(2))", "m.norm(x(2, 2, 2), 'nuc')",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("statement", PRODUCTS)
def test_products_and_pairs(statement):
    program = eval(f"lambda m, x, y: {statement}")
    different = {}
    for first in DTYPES:
        for second in (first, "int64", "float16", "float32", "complex64"):
            makers = [[lambda *shape, m=m, dtype=dtype: m.ones(shape, dtype=getattr(m, dtype)) for dtype in (first, second)] for m in (tj, torch)]
            ours, theirs = (outcome(m, program, *own) for m, own in zip((tj, torch), makers, strict=True))
            if ours != theirs:
                different[first, second] = ours, theirs
    assert not different


@like_pytorch
def test_nothing_of_a_dtype_without_routines_is_decomposed(m):
    a = m.zeros(2, 0, 0, dtype=m.float16)
    values, vectors = m.linalg.eigh(m.zeros(0, 3, 3, dtype=m.int64))
    with warnings.catch_warnings():  # the first call in a process says that it is deprecated
        warnings.simplefilter("ignore")
        factor = m.cholesky(m.ones(0, 3))
    return m.linalg.det(a), m.linalg.svdvals(a), m.linalg.cholesky(a), m.linalg.solve(a, a), values, vectors, m.linalg.cond(a), factor


@like_pytorch
def test_a_full_contraction_of_turned_tensors_is_a_sum(m):
    a, b = (m.arange(6.0).reshape(shape).requires_grad_() for shape in ((2, 3, 1), (3, 1, 2)))
    made = m.tensordot(a, b, ([0, 1], [2, 0]))
    made.sum().backward()
    inner = m.inner(a[:, :, 0].reshape(1, 6), b.reshape(6))
    return made, a.grad, b.grad, [f.grad_fn.next_functions[0][0].name() for f in (made, inner)]


def test_sums_of_booleans_as_booleans_say_whether_there_is_one():
    for m in (tj, torch):
        assert plain(m.tensor([[True, False], [False, False]]).sum(1, dtype=m.bool)) == ["torch.bool", [2], False, [True, False]]
