"""`torch.masked`: functions of the elements that a mask names, next to PyTorch's."""

import pytest
from side_by_side import error_of, like_pytorch, tj

pytestmark = pytest.mark.operators

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin", "var", "std", "norm", "logsumexp")
CALLS = (
    "o.argmax(x, 1, keepdim=True, mask=k)", "o.argmin(x, mask=k)", "o.argmin(x)", "o.argmin(x, keepdim=True, mask=k)", "o.argmax(x, keepdim=True)",
    "o.median(x, 0, keepdim=True, mask=k)", "o.median(x, mask=k[:1])",
    "o.cumsum(x, 1, mask=k)", "o.cumprod(x, 0, mask=k)", "o.softmax(x, 1, mask=k)", "o.log_softmax(x, 1, mask=k)", "o.softmin(x, 1, mask=k)",
    "o.normalize(x, 2.0, 1, mask=k)", "o.normalize(x, 1, 0, eps=9.0)", "o.logaddexp(x, x + 1, input_mask=k)", "o.logaddexp(x, x, other_mask=k)",
    "o.norm(x, float('-inf'), 1, mask=k)", "o.norm(x, -1, 1, mask=k)", "o.norm(x, 0, 1, mask=k)", "o.norm(x, float('inf'), mask=k)",
    "o.var(x, 1, False, mask=k)", "o.var(x, 1, correction=2, mask=k)", "o.var(n, 1, mask=k)", "o.sum(n, 1, mask=k)", "o.amax(n, 1, mask=k)",
    "o.amin(n, 0, mask=k)", "o.sum(x, (0, -1), keepdim=True, dtype=m.float64, mask=k)", "o.mean(n, 1, mask=k, dtype=m.float32)",
    "o.sum(x, (), mask=k)", "o.sum(x > 1, 1, mask=k)", "o.sum(x, 1, mask=k.float())", "o.median(n, 0, mask=k[:1, :1])", "o.prod(n, (0, 1), mask=k)",
    "o.is_masked_tensor(x)",
)  # fmt: skip
REFUSED = (
    "o.sum(x, 1, mask=k[None])", "o.mean(n)", "o.amax(x > 1, mask=k)", "o.var(x, 1, unbiased=True, correction=1)", "o.sum(x, (0, 0))",
    "o.median(n, 1, mask=k)", "o.softmax(x, 1, mask=m.ones(4, dtype=m.bool))",
)  # fmt: skip


def given(m):
    x = m.tensor([[0.5, 2.0, -1.0], [3.0, 0.25, 1.5]])
    return {"m": m, "o": m.masked, "x": x, "n": m.arange(6).view(2, 3), "k": m.tensor([[True, False, True], [False, False, False]])}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_is_of_what_the_mask_names(name):
    def program(m):
        x, k = given(m)["x"].double(), given(m)["k"]
        reduce, found = getattr(m.masked, name), []
        for dim in (None, 0, -1, (0, 1)):
            for mask in (None, k, k[0], ~k):
                found += [reduce(x, dim=dim, mask=mask), reduce(x, dim=dim, keepdim=True, mask=mask)]
        t = x.clone().requires_grad_()
        reduce(t, dim=1, mask=~k).sum().backward()
        return found, t.grad.nan_to_num()

    like_pytorch(program)()


@pytest.mark.parametrize("code", CALLS)
def test_calls(code):
    like_pytorch(lambda m: eval(code, given(m)))()


@pytest.mark.parametrize("code", REFUSED)
def test_what_is_refused(code):
    assert error_of(lambda: eval(code, given(tj)))[0] is not None
    like_pytorch(lambda m: error_of(lambda: eval(code, given(m)))[0])()


def test_of_masked_tensors_there_is_the_name():
    assert not isinstance(tj.ones(1), tj.masked.MaskedTensor) and issubclass(tj.masked.MaskedTensor, tj.Tensor)
    for make in (tj.masked.MaskedTensor, tj.masked.masked_tensor, tj.masked.as_masked_tensor):
        with pytest.raises(NotImplementedError, match="is not available in torchgrad_jax: give the tensor and its mask"):
            make(tj.ones(1), tj.ones(1) > 0)
