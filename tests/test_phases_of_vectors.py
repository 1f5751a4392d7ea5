"""Complex eigenvectors and singular vectors are given up to a phase: backward refuses losses that depend on it, as in PyTorch's words."""

import pytest

import torchgrad_jax as torch

pytestmark = pytest.mark.operators

MATRIX = torch.tensor([[1.0 + 0.5j, 2.0 - 1j, 0.25j], [0.5, -1.0 + 1j, 3.0], [1j, 0.75 - 0.5j, 2.0]], dtype=torch.complex128)


def hermitian():
    return (MATRIX + MATRIX.mH).requires_grad_()


VECTORS = {
    "linalg_eigh_backward": (hermitian, lambda a: torch.linalg.eigh(a)[1]),
    "linalg_eig_backward": (lambda: MATRIX.clone().requires_grad_(), lambda a: torch.linalg.eig(a)[1]),
    "linalg_eig_backward.*phi": (
        lambda: torch.tensor([[1.0, 2.0, 0.0], [-3.0, 1.0, 1.0], [0.5, 0.0, 2.0]], requires_grad=True),
        lambda a: torch.linalg.eig(a)[1],
    ),
    "svd_backward": (lambda: MATRIX.clone().requires_grad_(), lambda a: torch.linalg.svd(a)[0]),
    "svd_backward.*phase": (lambda: MATRIX.clone().requires_grad_(), lambda a: torch.linalg.svd(a)[2]),
    "svd_backward.*ill-defined": (lambda: MATRIX.clone().requires_grad_(), lambda a: torch.svd(a)[2]),
}


@pytest.mark.parametrize("text", VECTORS)
def test_a_loss_that_depends_on_phases_is_refused(text):
    made, vectors = VECTORS[text]
    for _ in range(4):  # what is called again and again is recalled
        with pytest.raises(RuntimeError, match=text):
            (vectors(made()) * 1j).sum().abs().square().add((vectors(made()).real * 3).sum()).backward()
        a = made()
        vectors(a).abs().pow(4).sum().backward()
        assert a.grad is not None and a.grad.abs().sum() > 0


def test_phases_that_vectors_have_in_common_do_not_matter():
    a = MATRIX.clone().requires_grad_()
    u, s, vh = torch.linalg.svd(a)
    (u @ vh).real.sum().backward()
    wide = MATRIX[:2].clone().requires_grad_()
    u, s, vh = torch.linalg.svd(wide, full_matrices=False)
    ((u * s) @ vh).abs().sum().backward()
    torch.testing.assert_close(wide.grad, wide.detach() / wide.detach().abs())


def test_real_matrices_and_transforms_are_not_asked():
    a = (MATRIX.real + MATRIX.real.mT).requires_grad_()
    torch.linalg.eigh(a)[1].sum().backward()
    assert torch.func.grad(lambda h: torch.linalg.eigh(h)[1].sum().real)(hermitian().detach()).shape == (3, 3)
