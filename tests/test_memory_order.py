"""Results of which PyTorch's kernels choose the order in memory have its strides: matrices of LAPACK, images, Fourier transforms."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

CALLS = """
linalg.cholesky(p); linalg.cholesky(p, upper=True); cholesky(p); linalg.cholesky_ex(p)[0]; cholesky_inverse(p); cholesky_solve(b, p)
linalg.inv(p); linalg.inv(p[0]); inverse(p); linalg.inv_ex(p)[0]; linalg.solve(p, b); linalg.solve(p, b[..., :1]); linalg.solve(p, b[..., 0])
linalg.solve(p, b.mT, left=False); linalg.solve(p[0], b[0]); linalg.solve_ex(p, b)[0]; linalg.lu_factor(w)[0]; linalg.lu_factor(w)[1]
linalg.lu(w)[1]; linalg.lu(w)[2]; linalg.lu_solve(*linalg.lu_factor(p), b); linalg.lu_solve(*linalg.lu_factor(p), b.mT, left=False)
linalg.qr(w)[0]; linalg.qr(w)[1]; linalg.qr(w.mT)[1]; linalg.qr(w, "complete")[0]; qr(w)[0]; geqrf(w)[0]; orgqr(*geqrf(w))
linalg.svd(w)[0]; linalg.svd(w)[1]; linalg.svd(w)[2]; linalg.svd(w.mT, full_matrices=False)[2]; svd(w)[2]; linalg.eigh(p)[0]; linalg.eigh(p)[1]
linalg.eig(p)[1]; linalg.lstsq(p, b)[0]; linalg.pinv(w); linalg.solve_triangular(p, b, upper=True); triangular_solve(b, p)[0]
linalg.solve_triangular(p, b.mT, upper=True, left=False); linalg.matrix_power(p, -1); linalg.matrix_power(p.mT, 2); linalg.det(p)
fft.fft(q); fft.fft(q.mT); fft.fft2(q.mT); fft.fftn(q.mT); fft.fft(q, dim=0); fft.rfft(q.mT); fft.rfftn(q.transpose(0, 2)); fft.ihfft2(q)
fft.ifft(last); fft.hfft(last); fft.hfftn(last); fft.ihfft(last); fill(t, 2)
fft.irfft(q.mT); fft.irfftn(q.mT); fft.fftn(last); fft.fft(last); fft.rfftn(last); fft.fft(q[:1].expand(3, 3, 4, 4))
rot90(w[0]); rot90(w[0], 2); rot90(w[0].t()); rot90(w[0], -1); rot90(w[0], 0); rot90(last, 1, (1, 3)); nonzero(w[0]); argwhere(w)
linalg.cross(b.mT[:, :3], b.mT[:, :3], dim=1); cross(t, t); slice_scatter(t, t[:1], 0, 0, 1); select_scatter(t, t[0], 0, 1)
diagonal_scatter(t, t.diagonal()); mvlgamma(t + 3, 1); special.ndtr(t); rsub(t, t.contiguous()); rsub(t.contiguous(), t); tensor(t)
pow(2, t); float_power(2, t); pow(t, 2); pow(tensor(2.0), t); linalg.matrix_power(t, 1)
w.new_tensor(t); native_dropout(t, 0.5, True)[0]; native_dropout(t, 0.5, True)[1]
nn.functional.conv2d(last, torch.ones(2, 3, 2, 2)); nn.functional.conv2d(q, torch.ones(2, 3, 2, 2).contiguous(memory_format=torch.channels_last))
nn.functional.conv2d(last, torch.ones(2, 3, 4, 4)); nn.functional.max_pool2d(last, 2); nn.functional.avg_pool2d(last, 2)
nn.functional.max_pool2d(last, 2, return_indices=True)[1]; nn.functional.adaptive_avg_pool2d(last, 2); nn.functional.interpolate(last, scale_factor=2)
nn.functional.interpolate(last, scale_factor=2, mode="bilinear"); nn.functional.group_norm(last, 1); nn.functional.pad(last, (1, 1))
nn.functional.pixel_shuffle(torch.ones(1, 4, 2, 2).to(memory_format=torch.channels_last), 2); nn.functional.max_pool2d(q.mT, 2)
"""
EXPRESSIONS = [e.strip() for e in CALLS.replace("\n", ";").split(";") if e.strip()]


def strides(m, expression):
    w = m.arange(40.0).reshape(2, 5, 4).sin()
    q = m.arange(96.0).reshape(2, 3, 4, 4).cos()
    names = {"w": w, "p": w.mT @ w + m.eye(4), "b": m.arange(24.0).reshape(2, 4, 3).cos(), "q": q, "t": m.arange(9.0).reshape(3, 3).cos().t(),
             "last": q.to(memory_format=m.channels_last), "torch": m}  # fmt: skip
    text = expression if expression.startswith("w.new") else f"torch.{expression}"
    made = eval(text.replace("(tensor(", "(torch.tensor(").replace("*linalg.", "*torch.linalg.").replace("*geqrf", "*torch.geqrf"), {}, names)
    return made.stride(), made.is_contiguous(), made.is_contiguous(memory_format=m.channels_last) if made.ndim == 4 else None


@pytest.mark.operators
@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.filterwarnings("ignore")
def test_strides(expression):
    assert strides(tj, expression) == strides(torch, expression)


# By name: the size and the strides of a part of memory, some of them in dimensions of size 1, where any will do.
OF_SIZE_1 = {"one": ((1, 1), (6, 1)), "row": ((1, 6), (9, 1)), "column": ((4, 1), (1, 7)), "gaps": ((4, 1), (6, 1)), "turned": ((1, 4), (1, 6)),
             "last": ((1, 1, 3), (5, 8, 1)), "between": ((2, 1, 3), (1, 7, 2)), "expanded": ((3, 1), (0, 4)),
             "overlapping": ((3, 2), (1, 1))}  # fmt: skip
OF_ONE = """x.clone(); x.to(torch.float64); x.bool(); torch.empty_like(x); torch.zeros_like(x); torch.rand_like(x); torch.tensor(x); x.flip(0)
x.sin(); x + x; x * 2; 2 - x; x > 0; x + torch.ones(1); torch.ones(x.shape) + x; x > x.double(); x.double() * x
x.relu(); x.clamp(0); x.softmax(-1); x.cumsum(0); torch.where(x > 0, x, x); x.lerp(x, 0.5); x.detach().clone(); x.contiguous(); -x; x.roll(1, 0)
torch.nn.functional.gelu(x); x.new_empty(x.shape); (x.t() if x.ndim == 2 else x) + x.sum()"""


@pytest.mark.operators
@pytest.mark.parametrize("name", OF_SIZE_1)
@pytest.mark.parametrize("expression", [e.strip() for e in OF_ONE.replace("\n", ";").split(";")])
@pytest.mark.filterwarnings("ignore")
def test_strides_where_a_dimension_has_size_1(name, expression):
    made = [eval(expression, {"torch": m, "x": m.arange(24.0).as_strided(*OF_SIZE_1[name])}) for m in (tj, torch)]
    assert made[0].stride() == made[1].stride()


def test_values_gradients_and_writes_of_what_lies_in_columns():
    def program(m):
        x = (m.arange(9.0).reshape(3, 3).sin() + 2 * m.eye(3)).requires_grad_()
        y = m.linalg.inv(x)
        (y * y).sum().backward()
        z = m.linalg.inv(x.detach())
        z[0] = 1.0
        z.t().mul_(2)
        return [t.detach().numpy().tolist() for t in (y, x.grad, z, z.as_strided((9,), (1,)))]

    for a, b in zip(program(tj), program(torch), strict=True):
        assert torch.allclose(torch.tensor(a), torch.tensor(b), atol=1e-4)


def test_the_error_of_linear_algebra_has_pytorchs_name():
    assert tj.linalg.LinAlgError.__name__ == torch.linalg.LinAlgError.__name__


@st.composite
def _decreasing(draw):
    """A shape, with dimensions of size 1 among others, and strides that decrease, with gaps or without."""
    shape = draw(st.lists(st.sampled_from((1, 1, 2, 3)), min_size=1, max_size=3))
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step = strides[0] * n + draw(st.integers(0 if n > 1 else 1, 3))
    return tuple(shape), tuple(strides)


@pytest.mark.operators
@given(_decreasing(), _decreasing(), st.sampled_from(("x + 1", "x * y", "y - x", "torch.where(x > 0, x, y)", "x.sin()", "x.clone()", "x.double()",
                                                       "x.flip(0)", "x.clone() + y", "x.exp().clone()", "x.to(torch.float64) * 2")))  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_what_has_dimensions_of_size_1_lies_as_in_pytorch(first, second, call):
    found, values = [], []
    for module in (torch, tj):
        x, y = [module.arange(400.0).as_strided(*s) for s in (first, second)]
        try:
            made = [eval(call, {"x": x, "y": y, "torch": module}) for _ in range(2)]
        except RuntimeError:  # they do not broadcast
            found.append("refused")
            continue
        found.append([(tuple(m.shape), m.stride()) for m in made])
        values.append([m.flatten().tolist() for m in made])
    assert found[0] == found[1]
    for ours, theirs in zip(*values, strict=True) if values else ():
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)
