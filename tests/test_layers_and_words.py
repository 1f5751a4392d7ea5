"""What layers and their losses do with what they are given, in repeated calls too, as PyTorch does."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from side_by_side import error_of, like_pytorch

import torchgrad_jax as tj


@like_pytorch
def test_rows_are_renormalized_in_each_call(m):
    """A call that writes is not one operation, whatever was recorded last."""
    F, seen = m.nn.functional, []
    for _ in range(6):
        weight = m.tensor([[3.0, 4.0], [1.0, 0.0]])
        found = F.embedding(m.tensor([0]), weight, max_norm=2.0)
        seen.append((found, weight, weight._version))
    return seen


@like_pytorch
def test_an_embedding_of_bounded_norm_is_trained(m):
    m.manual_seed(0)
    table = m.nn.Embedding(50, 4, max_norm=1.0)
    optimizer, norms = m.optim.SGD(table.parameters(), lr=5.0), []
    for _ in range(8):
        rows = table(m.randint(0, 50, (8,)))
        norms.append(rows.detach().norm(dim=1))
        optimizer.zero_grad()
        rows.sum().backward()
        optimizer.step()
    return norms, table.weight.detach()


@like_pytorch
def test_a_cluster_without_a_target_has_no_gradient(m):
    m.manual_seed(0)
    layer = m.nn.AdaptiveLogSoftmaxWithLoss(4, 12, [4, 8], div_value=2.0)
    seen = []
    for targets in ([0, 1, 2], [0, 5, 2], [9, 5, 11], [3, 3, 3]):
        found = layer(m.ones(3, 4) * m.arange(4.0), m.tensor(targets))
        found.loss.backward()
        seen.append((found.output.detach(), [p.grad is None for p in layer.parameters()], [p.grad for p in layer.parameters() if p.grad is not None]))
        layer.zero_grad()
    return seen


@like_pytorch
def test_parameters_of_a_plain_dictionary_come_in_the_order_of_their_keys(m):
    one = m.ones(1)
    kept = m.nn.ParameterDict({"w": one, "k": one})
    both = kept | {"z": one, "a": one}
    kept.update({"y": one, "x": one})
    ordered = m.nn.ParameterDict(OrderedDict([("w", one), ("k", one)]))
    pairs = m.nn.ParameterDict([("w", one), ("k", one)])
    copies = m.nn.ParameterDict(pairs), pairs.copy(), pairs.fromkeys(["z", "a"], one)
    return [list(each) for each in (kept, both, ordered, pairs, *copies)]


@pytest.mark.filterwarnings("ignore:size_average")
@like_pytorch
def test_arguments_that_came_before_reduction_are_asked_whether_they_are_true(m):
    nn, F, x = m.nn, m.nn.functional, m.ones(2)
    words = [nn.MSELoss(*given).reduction for given in ((0,), (1, 0), (m.tensor(False),), (None, 0), (1, 1), (True, None))]
    tensors = m.ones(4, 1), m.zeros(4, 1)
    swapped = [error_of(lambda name=name: getattr(nn, name)(*tensors)) for name in ("MSELoss", "L1Loss", "BCELoss", "KLDivLoss")]
    return words, F.mse_loss(x, x - 1, 0), F.l1_loss(x, x - 1, reduce=0), swapped


@like_pytorch
def test_words_for_what_is_made_wrong(m):
    caches = [error_of(lambda t=t: t.with_cache(2)) for t in (m.distributions.transforms.ExpTransform(), m.distributions.transforms.AbsTransform())]
    pools = m.nn.FractionalMaxPool3d(2, output_size=2), m.nn.FractionalMaxPool3d(3, output_ratio=0.5)
    volumes = [error_of(lambda pool=pool, n=n: pool(m.ones(1, 1, n, n, n))) for pool, n in zip(pools, (3, 4), strict=True)]
    return caches, volumes, repr(m.nn.Unflatten("a", (2, 2)))


# ---------------------------------------------------------------------- exponentials of matrices


MATRICES = {
    "equal elements": np.full((3, 3), 5.0), "just above the norm that is not scaled": np.full((2, 2), 2.0), "a rotation": [[0.0, -6.0], [6.0, 0.0]],
    "sizes apart": np.diag([1.0, 10.0, 20.0]), "several": np.random.RandomState(0).standard_normal((4, 5, 5)) * 3,
    "complex": np.random.RandomState(1).standard_normal((3, 3)) * (2 + 3j),
}  # fmt: skip


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("single", [False, True])
def test_the_exponential_of_a_matrix_of_any_norm(name, single):
    """Against eigenvectors in more digits, and by both of its functions; its gradient in single precision against that in double."""
    a = np.array(MATRICES[name])
    values, vectors = np.linalg.eig(a.astype(np.complex128))
    wanted = vectors * np.exp(values)[..., None, :] @ np.linalg.inv(vectors)
    dtype = np.result_type(a.dtype, np.float32) if not single else np.complex64 if a.dtype.kind == "c" else np.float32
    for made in (tj.matrix_exp, tj.jit(tj.matrix_exp)):
        found = made(tj.tensor(a.astype(dtype))).numpy()
        largest = abs(wanted).max((-2, -1), keepdims=True)
        assert (abs(found - wanted) / largest).max() < (1e-5 if single else 1e-12)

    def gradient(dtype):
        given = tj.tensor(a.astype(dtype), requires_grad=True)
        (tj.matrix_exp(given).abs() ** 2).sum().backward()
        return given.grad.numpy()

    exact = gradient(np.complex128 if a.dtype.kind == "c" else np.float64)
    assert (abs(gradient(dtype) - exact) / abs(exact).max((-2, -1), keepdims=True)).max() < 1e-4
