"""`svd_lowrank` and `pca_lowrank` against PyTorch: the same seed gives the same numbers."""

import numpy as np
import pytest

import torchgrad_jax as ours

SHAPES = [(8, 5), (3, 5, 9), (2, 3, 20, 12)]
CALLS = {
    "svd": lambda m, a: m.svd_lowrank(a, q=4),
    "svd of None": lambda m, a: m.svd_lowrank(a, None, None),
    "svd without iteration": lambda m, a: m.svd_lowrank(a, 3, 0),
    "svd less a mean": lambda m, a: m.svd_lowrank(a, 3, 1, a.mean(-2, keepdim=True)),
    "svd of more than there are": lambda m, a: m.svd_lowrank(a, 50),
    "svd of nothing": lambda m, a: m.svd_lowrank(a, 0),
    "pca": lambda m, a: m.pca_lowrank(a),
    "pca of few": lambda m, a: m.pca_lowrank(a, 3),
    "pca of what is centred": lambda m, a: m.pca_lowrank(a, 3, False, 1),
}


def matrices(shape, dtype):
    rng = np.random.default_rng(0)
    made = rng.standard_normal(shape)
    return (made + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else made).astype(dtype)


def computed(m, call, given):
    m.manual_seed(0)
    found = call(m, m.tensor(given))
    assert type(found) is tuple
    return [t.resolve_conj().numpy() for t in found], m.rand(2).numpy()


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_the_same_seed_gives_pytorchs_numbers(name, shape, dtype):
    torch = pytest.importorskip("torch")
    given = matrices(shape, dtype)
    (theirs, behind), (mine, own_behind) = (computed(m, CALLS[name], given) for m in (torch, ours))
    rank = (theirs[1] > 1e-9).sum(-1).max(initial=0)
    for t, o in zip(theirs, mine, strict=True):
        assert o.dtype == t.dtype and o.shape == t.shape
        # Singular vectors are unique up to a sign, and not where the singular values are 0.
        np.testing.assert_allclose(np.abs(o[..., :rank]), np.abs(t[..., :rank]), rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(own_behind, behind)


REFUSED = {
    "q too large": lambda m, a: m.pca_lowrank(a, q=6),
    "q negative": lambda m, a: m.pca_lowrank(a, q=-1),
    "niter negative": lambda m, a: m.pca_lowrank(a, niter=-1),
    "size negative": lambda m, a: m.svd_lowrank(a, -1),
    "vector": lambda m, a: m.svd_lowrank(a[0]),
    "vector of pca": lambda m, a: m.pca_lowrank(a[0]),
    "integers": lambda m, a: m.svd_lowrank(a.int()),
    "integers of pca": lambda m, a: m.pca_lowrank(a.int()),
    "mean of another size": lambda m, a: m.svd_lowrank(a, 2, 2, m.zeros(3)),
    "nothing": lambda m, a: m.svd_lowrank(),
    "q no integer": lambda m, a: m.svd_lowrank(a, "a"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    said = []
    for m in (torch, ours):
        with pytest.raises((ValueError, RuntimeError, TypeError)) as error:
            REFUSED[name](m, m.ones(8, 5))
        said.append((error.type, str(error.value).partition("\n")[0]))
    assert said[1] == said[0]


def test_other_arrays_are_refused_with_what_to_do():
    torch = pytest.importorskip("torch")
    for function in (ours.svd_lowrank, ours.pca_lowrank):
        with pytest.raises(TypeError, match="no sparse tensors: use to_dense"):
            function(torch.eye(3).to_sparse())


def test_a_matrix_of_low_rank_is_found_again():
    ours.manual_seed(1)
    a = ours.randn(40, 3, dtype=ours.float64) @ ours.randn(3, 25, dtype=ours.float64)
    u, s, v = ours.svd_lowrank(a, q=5)
    np.testing.assert_allclose((u * s @ v.mT).numpy(), a.numpy(), atol=1e-10)
    u, s, v = ours.pca_lowrank(a, q=5)
    np.testing.assert_allclose((s**2 / 39).sum().item(), a.var(0).sum().item())


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)], ids=str)
def test_singular_values_can_be_differentiated(shape):
    def values(a):
        ours.manual_seed(0)
        return ours.svd_lowrank(a, 2)[1], ours.pca_lowrank(a, 2)[1]

    assert ours.autograd.gradcheck(values, (ours.tensor(matrices(shape, "float64"), requires_grad=True),))
