"""What PyTorch says of input that does not fit, where it is met often: the words of whichever kernel it comes to first."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from side_by_side import error_of, like_pytorch

import torchgrad_jax as torch

F = torch.nn.functional
x, w, b = torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3), torch.ones(4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: F.conv2d(x.double(), w, b), "Input type (double) and bias type (float) should be the same"),
        (lambda: torch.nn.Conv2d(3, 4, 3)(x.to(torch.uint8)), "Input type (unsigned char) and bias type (float) should be the same"),
        (lambda: F.conv2d(x.long(), w), "expected scalar type Long but found Float"),
        (lambda: F.conv2d(x, w.half(), b), "expected scalar type Float but found Half"),
        (lambda: F.conv2d(x, w, b.double()), "Input type (float) and bias type (double) should be the same"),
        (lambda: F.conv1d(x[0].double(), w[0], None), "expected scalar type Double but found Float"),
        (lambda: F.conv_transpose2d(x.double(), w.transpose(0, 1), b), "expected scalar type Double but found Float"),
        (lambda: w[0, 0] @ b[:3].double(), "addmv input tensors must have the same dtype, but got Double, Float, and Double"),
        (lambda: torch.mv(w[0, 0], w[0, 0]), "vector + matrix @ vector expected, got 1, 2, 2"),
        (lambda: torch.histc(torch.tensor([1.0, math.inf])), "torch.histc: range of [1, inf] is not finite"),
        (lambda: torch.histc(torch.ones(3), 4, 0, math.inf), "torch.histc: range of [0, inf] is not finite"),
    ],
)
def test_words(call, words):
    with pytest.raises(RuntimeError) as caught:
        call()
    assert str(caught.value) == words


def test_histc_leaves_out_what_is_not_finite_where_limits_are_given():
    assert torch.histc(torch.tensor([math.inf, 1.0]), 2, 0, 2).tolist() == [0, 1]


CHECKING = " (while checking arguments for ctc_loss_allocate_outputs)"


@pytest.mark.parametrize(
    ("inputs", "targets", "words"),
    [
        ([6], [2, 2], "input_lengths must be of size batch_size"),
        ([6, 6], [2], "target_lengths must be of size batch_size"),
        ([6, 7], [2, 2], "Expected input_lengths to have value at most 6, but got value 7" + CHECKING),
        ([6, -1], [2, 2], "Expected input_lengths to have value at least 0, but got value -1" + CHECKING),
        ([6, 6], [2, 3], "Expected tensor to have size at least 3 at dimension 1, but got size 2 for argument #2 'targets'" + CHECKING),
    ],
)
@pytest.mark.parametrize("kind", [torch.tensor, tuple])
def test_lengths_of_ctc(inputs, targets, words, kind):
    with pytest.raises(RuntimeError) as caught:
        F.ctc_loss(torch.zeros(6, 2, 4).log_softmax(2), torch.tensor([[1, 2], [3, 3]]), kind(inputs), kind(targets))
    assert str(caught.value) == words


@pytest.mark.parametrize(("most", "evaluations"), [(1, 6), (3, 10), (10, 38)])
def test_a_line_search_evaluates_no_more_often_than_it_may(most, evaluations):
    """Rosenbrock's function, three steps: as often as PyTorch does."""
    at, count = torch.tensor([-1.0, 1.5], requires_grad=True, dtype=torch.double), [0]
    optimizer = torch.optim.LBFGS([at], max_iter=most, line_search_fn="strong_wolfe")

    def closure():
        count[0] += 1
        optimizer.zero_grad()
        loss = (1 - at[0]) ** 2 + 100 * (at[1] - at[0] ** 2) ** 2
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    assert count == [evaluations] == [optimizer.state[at]["func_evals"]]


m = torch.ones(2, 3)


@pytest.mark.parametrize("call", [
    lambda t: t.einsum("ij,jk->ik", t.ones(2, 3), np.ones((3, 2))), lambda t: t.einsum("ij,j", [t.ones(2, 3), 3.0]),
    lambda t: t.einsum(t.ones(2, 3), [0, 1], 3.0, [1]), lambda t: t.meshgrid(np.ones(3), np.ones(2), indexing="ij"),
    lambda t: t.meshgrid([t.ones(1), 3], indexing="ij"), lambda t: t.block_diag(np.ones((2, 2))), lambda t: t.cartesian_prod(t.ones(2), 3),
    lambda t: t.broadcast_tensors(t.ones(2), None), lambda t: t.atleast_2d(t.ones(1), 3), lambda t: t.linalg.multi_dot([1.0, t.eye(2)]),
    lambda t: t.chain_matmul(t.eye(2), 3), lambda t: t.unique([1, 2]), lambda t: t.unique_consecutive([1, 2]), lambda t: t.unique([1, 2], dim=0),
    lambda t: t.finfo(None), lambda t: t.finfo(t.ones(2)), lambda t: t.finfo(np.float32), lambda t: t.iinfo(3), lambda t: t.iinfo(t.bool),
    lambda t: t.zeros(True), lambda t: t.zeros((True, 2)), lambda t: t.ones(2, 1.0),
    *[lambda t, f=f, x=x: getattr(t, f)(t.tensor(x), 1) for f in ("max", "min", "argmax", "argmin") for x in (2, 2.0)],
    lambda t: t.randperm(-7), lambda t: t.ones(2, 3).unfold(1, -7, 1), lambda t: t.split(t.ones(2, 3), 1.5), lambda t: t.split(t.ones(2, 3), "s"),
    lambda t: t.ones(4).split(np.float64(2)), lambda t: t.device("cpu", -7), lambda t: t.device("cpu", True), lambda t: t.device("cuda", -1),
    lambda t: t.device(-1), lambda t: t.nn.functional.interpolate(t.ones(1, 1, 4, 4), size=(2.0, 2)),
    lambda t: t.nn.functional.group_norm(t.ones(1, 4, 2), 2.0), lambda t: t.nn.GroupNorm(True, 4)(t.ones(1, 4, 2)),
])  # fmt: skip
def test_class_and_words_are_pytorchs(call):
    pytorch = pytest.importorskip("torch")
    said = [error_of(lambda m=m: call(m)) for m in (torch, pytorch)]
    assert said[0][0] == said[1][0]
    assert said[0][1].partition("\n")[0] == said[1][1].partition("\n")[0]


@pytest.mark.parametrize("call", [
    lambda size: F.interpolate(x, size=size), lambda size: F.max_pool2d(x, size), lambda size: F.max_pool2d(x, (size, 2)),
    lambda size: F.adaptive_avg_pool2d(x, (size, 2)), lambda size: F.conv2d(x, w, padding=(size, 1)), lambda size: F.pad(x, (size, 1)),
    lambda size: F.affine_grid(m[None], (1, 1, size, 2), align_corners=False), lambda size: F.max_unpool1d(m, m.long(), (size,)),
])  # fmt: skip
def test_sizes_that_are_no_integers_are_type_errors(call):
    with pytest.raises(TypeError):
        call(2.0)


@like_pytorch
def test_a_truth_value_is_a_size_after_another_one(t):
    built = t.nn.Linear(True, 3), t.nn.Embedding(4, True), t.nn.Conv2d(1, 2, True)
    return [tuple(p.weight.shape) for p in built], t.zeros(2, True), t.Tensor(2, True).shape, t.ones(1).new_zeros(2, True), str(t.device("cpu", 1))


@pytest.mark.parametrize("call", [
    lambda t: t.nn.Conv2d(2, 4), lambda t: t.nn.Conv2d(1, 1, 1, bogus=1), lambda t: t.nn.Conv1d(1, 1, 1)(t.ones(1, 1), 2), lambda t: t.nn.GRU(2, 3)(),
    lambda t: t.nn.LazyConv2d(), lambda t: t.nn.ConvTranspose2d(1), lambda t: t.nn.ReflectionPad1d(), lambda t: t.nn.ReLU(1, 2, 3),
    lambda t: t.nn.Softmax(1, 2), lambda t: t.nn.ConstantPad1d(1), lambda t: t.nn.Linear(2, 3).register_buffer("x"),
    lambda t: t.nn.Linear(2, 3).load_state_dict({}, bogus=1), lambda t: t.nn.Linear(2, 3).eval(1), lambda t: t.nn.ReLU().register_forward_hook(),
    lambda t: t.distributions.Normal(0.0), lambda t: t.distributions.Bernoulli(bogus=1), lambda t: t.optim.lr_scheduler.LambdaLR(),
])  # fmt: skip
def test_errors_name_the_class_that_was_called(call):
    pytorch = pytest.importorskip("torch")
    assert error_of(lambda: call(torch)) == error_of(lambda: call(pytorch))


def test_methods_of_modules_are_pickled_by_their_class():
    for method in (torch.nn.Module.eval, torch.nn.Conv2d.forward, torch.nn.Module.register_forward_hook):
        assert pickle.loads(pickle.dumps(method)) is method
