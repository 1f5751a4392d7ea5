"""None is no default to what PyTorch has in Python: it is told what it was given, and refuses it or takes it for something else."""

import pytest

import torchgrad_jax as torch

F = torch.nn.functional
x = torch.arange(24.0).reshape(2, 3, 4).sin()
y = x.cos()
classes = torch.tensor([0, 2])
REFUSED = {
    **{loss.__name__: (lambda loss=loss: loss(x, y, reduction=None), ValueError, "None is not a valid value for reduction")
       for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.kl_div, F.soft_margin_loss, F.binary_cross_entropy_with_logits)},
    "cross_entropy": (lambda: F.cross_entropy(x[0, :2], classes, reduction=None), ValueError, "None is not a valid value for reduction"),
    "stft": (lambda: torch.stft(x[0, 0], 2, window=torch.ones(2), pad_mode=None, return_complex=True), TypeError, "'mode' .* must be str"),
    "stft, by place": (lambda: x[0].stft(2, 1, 2, torch.ones(2), True, None, False, True, True), TypeError, "'mode' .* must be str"),
    "interpolate": (lambda: F.interpolate(x, scale_factor=2, mode=None), NotImplementedError, "Only 3D, 4D and 5D"),
    "grid_sample": (lambda: F.grid_sample(x[None], torch.zeros(1, 2, 2, 2), mode=None), ValueError, "expected mode to be"),
    "dropout": (lambda: F.dropout(x, p=None), TypeError, "not supported between instances"),
    "cdist": (lambda: torch.cdist(x, y, compute_mode=None), ValueError, "None is not a valid value"),
    "split": (lambda: x.split(1, dim=None), TypeError, ""),
    "tensordot": (lambda: torch.tensordot(x, y, dims=None), (TypeError, RuntimeError), ""),
    "istft": (lambda: torch.zeros(5, 9, dtype=torch.complex64).istft(8, center=None), TypeError, "must be bool, not NoneType"),
    **{f"max_pool{n}d": (lambda n=n: getattr(F, f"max_pool{n}d")(torch.ones(1, *[4] * n), 2, ceil_mode=None), TypeError, "must be bool, not NoneType")
       for n in (1, 2, 3)},
    "var": (lambda: torch.var(x, unbiased=None), TypeError, "received an invalid combination of arguments"),
    "std": (lambda: x.std(unbiased=None), TypeError, "received an invalid combination of arguments"),
    **{f"ctc_loss, {name}": (lambda name=name: F.ctc_loss(x, torch.zeros(3, 1, dtype=torch.int64), [2] * 3, [1] * 3, **{name: None}), TypeError,
                             "received an invalid combination of arguments") for name in ("blank", "zero_infinity")},
    "embedding": (lambda: F.embedding(classes, x[0].clone(), max_norm=1.0, norm_type=None), TypeError, "norm_type"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    call, error, text = REFUSED[name]
    for _ in range(3):
        with pytest.raises(error, match=text):
            call()


def test_it_means_something_else():
    assert torch.allclose(F.normalize(x, dim=None), x / x.norm())
    assert torch.equal(F.normalize(x, p=None), F.normalize(x))
    q = torch.ones(3, 2, 4)
    more = (4, 2, torch.ones(12, 4), None, None, None, False, 0.0, torch.ones(4, 4), None)
    assert F.multi_head_attention_forward(q, q, q, *more, need_weights=None)[1] is None
    assert F.multi_head_attention_forward(q, q, q, *more, average_attn_weights=None)[1].shape == (2, 2, 3, 3)


def test_it_means_the_default():
    for n, image in ((1, x), (2, x), (3, x[None])):
        pool = getattr(F, f"avg_pool{n}d")
        assert torch.equal(pool(image, 2, None), pool(image, 2)) and torch.equal(pool(image, 2, stride=[]), pool(image, 2))
    signal, window = x[0, 0], torch.ones(4)
    assert torch.equal(torch.stft(signal, 4, window=window, center=None, return_complex=True),
                       torch.stft(signal, 4, window=window, center=False, return_complex=True))  # fmt: skip
    assert torch.scalar_tensor(2, layout=None, pin_memory=None, dtype=None) == 2
    assert torch.equal(torch.var(x, None), torch.var(x))


def test_sizes_of_pieces_are_no_booleans():
    t = torch.arange(10)
    with pytest.raises(TypeError, match=r"split\(\) received an invalid combination of arguments - got \(Tensor, bool, int\)"):
        t.split(True)
    with pytest.raises(TypeError, match="must be tuple of ints, but found element of type bool at pos 0"):
        t.split([True, 9])
    assert [len(p) for p in t.split([9, True])] == [9, 1]


def test_least_squares_take_matrices_of_one_dimension_less_for_a_batch_of_vectors():
    """As PyTorch does, where it broadcasts batches."""
    torch.manual_seed(0)
    a, b = torch.randn(1, 4, 3), torch.randn(4, 2)
    found = torch.linalg.lstsq(a, b, driver="gelsd")
    assert found.solution.shape == (4, 3, 2) and found.residuals.shape == (4, 2) and found.rank.shape == (1,)
    for one in found.solution:
        torch.testing.assert_close(one, torch.linalg.lstsq(a[0], b).solution)
    with pytest.raises(RuntimeError, match=r"size of tensor a \(2\) must match the size of tensor b \(4\) at non-singleton dimension 0"):
        torch.linalg.lstsq(torch.randn(2, 4, 3), b)
