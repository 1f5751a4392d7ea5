"""torch.fft against PyTorch: values, first and second gradients, nodes, errors."""

from __future__ import annotations

import numpy as np
import pytest
from side_by_side import error_of

import torchgrad_jax as tj
from torchgrad_jax.operators.kernels import numpy_fourier

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators

rng = np.random.default_rng(0)
REAL, COMPLEX = rng.standard_normal((3, 4, 5)), rng.standard_normal((3, 4, 5)) + 1j * rng.standard_normal((3, 4, 5))
ONE = ["", "n=3, dim=0, norm='forward'", "8, 1, 'ortho'"]
TWO, MANY = ["s=(3, 6), norm='ortho'", "s=(-1, 7), dim=(0, 1)"], ["", "dim=(2,), norm='forward'", "dim=(0, 2, 1), s=(3, 4, 6)"]
OF_REAL, OF_EITHER = ("rfft", "ihfft"), ("fft", "ifft", "irfft", "hfft")


def array(x):
    return np.array(x.detach()._concrete()) if isinstance(x, tj.Tensor) else x.detach().resolve_conj().numpy()


def nodes(t):
    found, node = [], t.grad_fn
    while node is not None and node.next_functions:
        found.append(node.name())
        node = node.next_functions[0][0]
    return found


def outcome(m, call, values, twice):
    """The result, its chain of nodes, the gradient for a varied gradient, and the gradient of that one's square if `twice`."""
    x = m.tensor(values.tolist(), dtype=m.complex128 if np.iscomplexobj(values) else m.float64, requires_grad=True)
    y = eval(f"m.fft.{call}", {"m": m, "x": x})
    weight = m.arange(1, y.numel() + 1, dtype=m.float64).reshape(tuple(y.shape)).to(y.dtype)
    weight = (weight * (1 + 0.5j) if y.is_complex() else weight) / y.numel()
    found = [y, *m.autograd.grad(y * y, x, weight, create_graph=twice)]
    if twice:
        found += m.autograd.grad((found[1] * found[1].conj()).real.sum(), x)
    return list(map(array, found)), nodes(y), y.dtype


@pytest.mark.parametrize("name", [*OF_REAL, *OF_EITHER])
def test_transforms(name):
    """One dimension, two and many; inputs cut and filled up; every normalization."""
    for tail, arguments in ("", ONE), ("2", TWO), ("n", MANY):
        for i, rest in enumerate(arguments):
            for values in [REAL] if name in OF_REAL or i else [REAL, COMPLEX]:
                call = f"{name}{tail}(x, {rest})"
                (ours, our_nodes, our_dtype), (theirs, their_nodes, dtype) = (outcome(m, call, values, not i) for m in (tj, torch))
                assert our_nodes == their_nodes and str(our_dtype) == str(dtype), call
                for a, b in zip(ours, theirs, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=call)


def test_forward_derivative():
    """JAX differentiates each transform forward: it is linear, so the tangent is the transform of the tangent."""
    import jax

    from torchgrad_jax.operators import registry

    for name, x, options in (
        ("_fft_c2c", COMPLEX, {"dim": (0, 2), "normalization": 1, "forward": True}),
        ("_fft_r2c", REAL, {"dim": (1, 2), "normalization": 0, "onesided": True}),
        ("_fft_c2r", COMPLEX, {"dim": (0, 2), "normalization": 2, "last_dim_size": 8}),
    ):
        out, tangent = jax.jvp(lambda x, f=registry[name].function, o=options: f(x, **o), (x,), (x,))
        np.testing.assert_allclose(out, tangent, rtol=1e-12)


CALLS = """
fft(i) irfft(b) fft(h)
rfft(h.bfloat16()) rfft(c) ihfft(c) rfftn(c) ihfft2(c) fft(s) fftn(s) rfftn(s) fft2(s) fft2(x[0]) fft(x,n=0) irfft(x,n=-1)
irfft(x[:,:1]) fftn(x,s=(-3,2)) fftn(x,s=(1,2,3)) fft2(x,s=(3,)) fftn(x,dim=(0,0)) fftn(x,dim=(0,5)) fftn(x,dim=()) rfftn(x,dim=()) fft(x,norm="no")
fft(x,norm=3) fft(x,n=2.5) fft(x,"a") fft(x,dim=(0,)) fft([1,2]) fft(x,foo=1) fft() fft2(x,dim=None) fft(x,out=x) irfft(c,out=c) ifftn(x,out=x)
fft(x,out=torch.empty(0,dtype=torch.complex128)) hfft(c,out=torch.empty(0)) fftfreq(5) fftfreq(6,0.3,dtype=torch.float64) rfftfreq(5,d=2)
fftfreq(0)
rfftfreq(-4) fftfreq(-1) fftfreq(5,dtype=torch.int64) fftfreq(5,dtype=torch.complex64) fftfreq(2.5) fftfreq(5,d=0)
fftfreq(5,dtype=torch.float16,d=0.3)
fftfreq(4,out=torch.empty(0)) fftfreq(4,out=torch.empty(0),dtype=torch.float64) rfftfreq(4,requires_grad=True) fftshift(x) ifftshift(x,1)
fftshift(x,(0,0)) fftshift(x,dim=2) fftshift(s) ifftshift(b,dim=(0,))
"""


def test_arguments():
    """Dtypes, refusals, frequencies and shifts."""
    for call in CALLS.split():
        seen = []
        for m in (tj, torch):
            space = {
                "torch": m, "x": m.arange(12.0).reshape(4, 3).requires_grad_(), "c": m.ones(4, 3).to(m.complex64), "i": m.ones(4, 3, dtype=m.int64),
                "b": m.ones(4, 3, dtype=m.bool), "h": m.ones(4, 3, dtype=m.float16), "s": m.tensor(1.0),
            }  # fmt: skip
            found = []
            raised = error_of(lambda call=call, space=space, found=found: found.append(eval(f"torch.fft.{call}", space)))
            seen.append((raised, [(str(y.dtype), y.requires_grad, tuple(y.shape)) for y in found], [array(y) for y in found]))
        (ours, our_kind, our_values), (theirs, kind, values) = seen
        assert (ours, our_kind) == (theirs, kind), (call, ours, theirs)
        for a, b in zip(our_values, values, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=call)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_forms_by_loops_of_numpy_and_by_what_it_says_of_itself(known, dtype, monkeypatch):
    if not known:
        monkeypatch.setattr(numpy_fourier, "_loop", lambda name: None)

    def found(m, call):
        x = m.arange(40.0, dtype=getattr(m, dtype)).sin().reshape(2, 4, 5).requires_grad_()
        z = m.complex(x, x.flip(0) * 2)
        y = eval(call, {"m": m, "x": x, "z": z})
        (y.abs() * m.arange(1, 1 + y.numel(), dtype=x.dtype).reshape(tuple(y.shape))).sum().backward()
        return array(y), array(x.grad)

    calls = [f"m.fft.{name}({x}, dim={dim}, norm='{norm}')" for name, x, norm in (
        ("fft", "z", "backward"), ("ifft", "z", "backward"), ("fft", "x", "ortho"), ("rfft", "x", "forward"), ("rfft", "x", "backward"),
        ("irfft", "z", "backward"), ("irfft", "z", "ortho"), ("hfft", "z", "backward"), ("ihfft", "x", "forward")) for dim in (0, 1, 2)]  # fmt: skip
    for call in [*calls, "m.fft.fft2(z)", "m.fft.rfftn(x)", "m.fft.irfftn(z, s=(2, 4, 7))", "m.fft.irfft(z[..., :1], n=1)"]:
        for ours, theirs in zip(found(tj, call), found(torch, call), strict=True):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, call
            size = 1 + np.abs(theirs).max()
            np.testing.assert_allclose(ours / size, theirs / size, atol=1e-12 if dtype == "float64" else 1e-6, rtol=0, err_msg=call)
