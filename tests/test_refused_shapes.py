"""Losses and layers refuse shapes, dtypes and numbers that PyTorch's refuse, in its words, and take what it takes."""

import pytest
from side_by_side import programs

import torchgrad_jax as tj

F = tj.nn.functional
program, test_like_pytorch = programs()


def ones(*shape, **options):
    return tj.ones(*shape, **options)


def ctc(inputs, targets):
    return F.ctc_loss(tj.zeros(4, 2, 3).log_softmax(2), tj.tensor([[1], [2]]), tj.tensor(inputs), tj.tensor(targets))


@pytest.mark.parametrize(
    "call, kind, words",
    [
        (lambda: F.soft_margin_loss(ones(3), ones(2, 3)), RuntimeError, "output with shape [3] doesn't match the broadcast shape [2, 3]"),
        (lambda: F.gaussian_nll_loss(ones(2, 3), ones(2, 3), ones(3)), ValueError, "var is of incorrect size"),
        (lambda: F.gaussian_nll_loss(ones(2, 3), ones(2, 3), tj.tensor(1.0)), ValueError, "var is of incorrect size"),
        (lambda: F.multi_margin_loss(ones(1, 2, 3), tj.tensor([0, 1])), RuntimeError, "Expected non-empty vector or matrix"),
        (lambda: F.multi_margin_loss(ones(3), tj.tensor([0, 1])), RuntimeError, "Expected target size [1], but got [2]"),
        (lambda: F.multilabel_margin_loss(ones(1, 2, 3), ones(1, 2, 3).long()), RuntimeError, "Expected non-empty vector or matrix"),
        (lambda: F.cross_entropy(ones(3), tj.tensor([0, 1])), ValueError, "For 1D input, 1D target must have size 1, but got target size: 2"),
        (lambda: ctc([4], [1, 1]), RuntimeError, "input_lengths must be of size batch_size"),
        (lambda: ctc([4, 4], [1]), RuntimeError, "target_lengths must be of size batch_size"),
        (lambda: F.layer_norm(ones(2, 3).long(), (3,), ones(3)), RuntimeError, "mixed dtype (CPU): all inputs must share same datatype."),
        (lambda: F.layer_norm(ones(2, 3).long(), (3,)), NotImplementedError, "\"LayerNormKernelImpl\" not implemented for 'Long'"),
        (lambda: F.unfold(ones(1, 1, 4, 4), (2,)), RuntimeError, "It is expected kernel_size equals to 2, but got size 1"),
        (lambda: F.unfold(ones(1, 1, 4, 4), 2, stride=0), RuntimeError, "stride should be greater than zero, but got stride_height: 0"),
        (lambda: F.fold(ones(1, 4, 9), (4, 4), 0), RuntimeError, "kernel size should be greater than zero, but got kernel_height: 0 kernel_width: 0"),
        (lambda: F.fold(ones(1, 4, 9), (4, 4, 4), 2), RuntimeError, "It is expected output_size equals to 2, but got size 3"),
        (lambda: F.unfold(ones(1, 1, 4, 4), 2, padding=-1), RuntimeError, "padding should be non-negative, but got pad_height: -1 pad_width: -1"),
    ],
)
def test_refusals(call, kind, words):
    with pytest.raises(kind) as error:
        call()
    assert words in str(error.value)


@program
def losses_of_inputs_that_are_expanded(m):
    F, x, y = m.nn.functional, m.linspace(-1, 1, 3), m.arange(6.0).reshape(2, 3) % 2
    found = [F.multilabel_soft_margin_loss(x, y), F.multilabel_soft_margin_loss(x, y, reduction="none"), F.soft_margin_loss(y, x)]
    return found + [F.gaussian_nll_loss(y, y + 1, 1 + y[:1]), F.gaussian_nll_loss(y, y + 1, 1 + y[:, :1]), F.gaussian_nll_loss(y, y + 1, 1 + y[:, 0])]


@program
def smoothing_below_zero_is_none(m):
    x = m.tensor([[1.0, 2.0, 4.0], [0.0, 1.0, -2.0]])
    return [m.nn.functional.cross_entropy(x, target, label_smoothing=-0.5) for target in (m.tensor([0, 2]), x.softmax(1).flip(1))]


def test_sizes_of_what_is_interpolated_to_nothing():
    with pytest.raises(RuntimeError, match=r"but got input \(W: 3\) and output \(W: 0\)"):
        F.interpolate(ones(1, 1, 3), scale_factor=0.1)
