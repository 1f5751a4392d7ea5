"""Results lie in memory as PyTorch's do: element-wise operations, copies and ``*_like`` keep the order of their operands."""

import pytest

import torchgrad_jax as tj
from tests.side_by_side import like_pytorch

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators

OPERANDS = {
    "transposed": lambda m, x: x.transpose(0, 1),
    "permuted": lambda m, x: x.permute(1, 2, 0),
    "sliced": lambda m, x: x[..., ::2],
    "transposed slice": lambda m, x: x.transpose(0, 1)[..., ::2],
    "expanded": lambda m, x: x[:1].expand(x.shape),
    "transposed and expanded": lambda m, x: x.transpose(0, 1)[..., :1].expand(3, 2, 4),
    "row-major": lambda m, x: x,
    "computed": lambda m, x: x.permute(2, 0, 1) * 0.5,
}
RESULTS = {
    "clone": lambda m, x: x.clone(),
    "to": lambda m, x: x.to(m.float64),
    "int": lambda m, x: x.int(),
    "copy": lambda m, x: x.to(m.float32, copy=True),
    "contiguous": lambda m, x: x.contiguous(),
    "number": lambda m, x: x + 1,
    "reflected": lambda m, x: 1 - x,
    "itself": lambda m, x: x * x,
    "row-major first": lambda m, x: x.contiguous() + x,
    "row-major last": lambda m, x: x + x.contiguous(),
    "row and column": lambda m, x: x[..., :1] + x[:1],
    "row": lambda m, x: x + m.ones(x.shape[-1]),
    "exp": lambda m, x: x.exp(),
    "neg": lambda m, x: -x,
    "abs": lambda m, x: x.abs(),
    "floor": lambda m, x: x.floor(),
    "sign": lambda m, x: x.sign(),
    "relu": lambda m, x: x.relu(),
    "gelu": lambda m, x: m.nn.functional.gelu(x),
    "elu": lambda m, x: m.nn.functional.elu(x),
    "hardshrink": lambda m, x: m.nn.functional.hardshrink(x),
    "threshold": lambda m, x: m.nn.functional.threshold(x, 0.3, 0.0),
    "clamp": lambda m, x: x.clamp(0, 1),
    "clamp_min": lambda m, x: x.clamp_min(0.2),
    "pow": lambda m, x: x**2,
    "comparison": lambda m, x: x > 0.3,
    "not": lambda m, x: ~(x > 0.3),
    "isnan": lambda m, x: x.isnan(),
    "isfinite": lambda m, x: x.isfinite(),
    "nan_to_num": lambda m, x: x.nan_to_num(),
    "where": lambda m, x: m.where(x > 0.3, x, 0.0),
    "masked_fill": lambda m, x: x.masked_fill(x > 0.3, 0.0),
    "lerp": lambda m, x: m.lerp(x, x, 0.5),
    "addcmul": lambda m, x: m.addcmul(x, x, x),
    "frexp": lambda m, x: tuple(m.frexp(x)),
    "index_fill": lambda m, x: x.index_fill(0, m.tensor([0]), 1.0),
    "flip": lambda m, x: x.flip(0),
    "index_put": lambda m, x: x.index_put((m.tensor([0]),), m.tensor(1.0)),
    "sort": lambda m, x: tuple(x.sort(0)),
    "softmax": lambda m, x: x.softmax(0),
    "log_softmax": lambda m, x: x.log_softmax(0),
    "cumsum": lambda m, x: x.cumsum(0),
    "logsigmoid": lambda m, x: m.nn.functional.logsigmoid(x),
    "zeros_like": lambda m, x: m.zeros_like(x),
    "ones_like": lambda m, x: m.ones_like(x, dtype=m.int64),
    "full_like": lambda m, x: m.full_like(x, 3.0),
    "rand_like": lambda m, x: m.rand_like(x),
    "mse_loss": lambda m, x: m.nn.functional.mse_loss(x, x, reduction="none"),
    "bce": lambda m, x: m.nn.functional.binary_cross_entropy(x, x, reduction="none"),
    "chain": lambda m, x: (x * 2 + x).exp().neg(),
    "view of a result": lambda m, x: (x + 1).transpose(0, 1),
    "reshaped": lambda m, x: (x + 1).reshape(-1),
    "deepcopy": lambda m, x: x.clone().detach(),
}


def strides(m, call, operand):
    m.manual_seed(0)
    found = call(m, operand)
    return [(list(t.shape), list(t.stride()), t.is_contiguous()) for t in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("layout", OPERANDS)
@pytest.mark.parametrize("name", RESULTS)
def test_strides(name, layout):
    ours, theirs = (strides(m, RESULTS[name], OPERANDS[layout](m, m.arange(24.0).view(2, 3, 4) / 24)) for m in (tj, torch))
    assert ours == theirs


@pytest.mark.parametrize("name", RESULTS)
def test_strides_of_channels_last(name):
    def operand(m):
        return (m.arange(120.0).view(2, 3, 4, 5) / 120).to(memory_format=m.channels_last)

    ours, theirs = (strides(m, RESULTS[name], operand(m)) for m in (tj, torch))
    assert ours == theirs


INDEXED = {
    "first": lambda i, j: (i,),
    "middle": lambda i, j: (slice(None), i),
    "last": lambda i, j: (..., i),
    "apart": lambda i, j: (i, slice(None), i),
    "neighbours": lambda i, j: (slice(None), i, i),
    "after an integer": lambda i, j: (0, slice(None), i),
    "after a new dimension": lambda i, j: (None, i),
    "matrix": lambda i, j: (slice(None), j),
    "transposed matrix": lambda i, j: (j.t(),),
    "two matrices": lambda i, j: (j.t(), j),
    "expanded": lambda i, j: (..., i[:1].expand(2), j),
}


@pytest.mark.parametrize("layout", OPERANDS)
@pytest.mark.parametrize("key", INDEXED)
@pytest.mark.parametrize("mode", ["enable_grad", "inference_mode"])
def test_strides_of_what_index_tensors_read(key, layout, mode):
    def program(m):
        with getattr(m, mode)():
            x = OPERANDS[layout](m, m.arange(24.0).view(2, 3, 4) / 24)
            made = x[INDEXED[key](m.tensor([1, 0]), m.tensor([[1, 0], [0, 0]]))]
        return made, list(made.stride())

    like_pytorch(program)()


@pytest.mark.parametrize("layout", OPERANDS)
def test_strides_in_inference_mode(layout):
    def program(m):
        with m.inference_mode():
            x = OPERANDS[layout](m, m.arange(24.0).view(2, 3, 4) / 24)
            made = x.reciprocal(), x + 1, 1 - x, x.clone(), x.sort(0)[0], x.double()
            made[1].view_as(x).t_() if x.ndim == 2 else made[1].mul_(2)
            return [(y, list(y.stride())) for y in made], made[0][0].is_inference()

    like_pytorch(program)()


@like_pytorch
def test_images_that_are_joined_or_normalised_stay_pixel_by_pixel(m):
    x = m.arange(96.0).view(2, 3, 4, 4).to(memory_format=m.channels_last)
    normalised = m.nn.functional.batch_norm(x, None, None, training=True), m.nn.functional.batch_norm(x, m.zeros(3), m.ones(3))
    joined = m.cat([x, x], 1), m.cat([x, x.contiguous()], 1), m.cat([x, x[:, :1]], 1), m.cat([x, x.double()])
    return [(y[0, 0], list(y.stride())) for y in normalised + joined]


@like_pytorch
def test_data_of_a_result_in_another_order(m):
    x = m.arange(6.0).view(2, 3).t() * 2
    twin = x.data
    twin.add_(1)
    held, given, shared = m.zeros(3, 2), m.arange(6.0).view(2, 3).t() * 2, m.zeros(2, 3)
    held.data = x
    given.data = m.zeros(3, 2)
    shared.set_(m.arange(6.0).view(2, 3).t() * 2)
    held.add_(1)
    given.add_(1)
    shared.add_(1)
    parameter = m.nn.Parameter(x * 2)
    parameter.data.mul_(0.5)
    made = x, twin, held, given, shared, parameter.data
    return [(y, list(y.stride()), y._version) for y in made], parameter.detach()


@pytest.mark.parametrize("format", ["contiguous_format", "channels_last", "preserve_format"])
def test_a_format_that_is_asked_for_has_the_last_word(format):
    def program(m):
        x = m.ones(2, 3, 4, 5).to(memory_format=m.channels_last).permute(0, 1, 3, 2)
        wanted = getattr(m, format)
        made = x.clone(memory_format=wanted), x.to(m.float64, memory_format=wanted), m.zeros_like(x, memory_format=wanted)
        return [list(y.stride()) for y in made]

    like_pytorch(program)()


@like_pytorch
def test_results_in_another_order_are_written_viewed_and_differentiated(m):
    x = m.arange(6.0).view(2, 3).requires_grad_()
    y = x.t() * 2
    y[0] = 5
    y.t()[1].mul_(3)
    z = y.t() + 1
    before = z._version
    z.add_(1)
    (z * z).sum().backward()
    twin = y.detach()
    twin.zero_()
    return y, z, z.is_contiguous(), before, z._version, x.grad, y._version, y.t().view(6), list(y.stride()), y.grad_fn.name()


@like_pytorch
def test_a_result_in_another_order_knows_when_it_was_written_to(m):
    x = m.ones(2, 3, requires_grad=True)
    y = x.t().exp()
    y.add_(1)
    try:
        y.sum().backward()
    except RuntimeError as error:
        return str(error).partition("Hint")[0]


@like_pytorch
def test_a_strided_view_of_a_result_in_another_order(m):
    x = m.arange(6.0).view(2, 3).requires_grad_()
    y = x.t() * 2
    z = y.as_strided((2, 2), (1, 2), 1)
    z.square().sum().backward()
    w = (x.t() * 2).detach()
    w.as_strided((2,), (2,), 1).mul_(3)
    return z, list(z.stride()), z.grad_fn.name(), x.grad, w, m.where(x.t() > 2, x.t().double(), x.t()).stride()


@pytest.mark.parametrize("dims", [(1, 2, 0), (2, 0, 1), (0, 2, 1)])
@pytest.mark.parametrize("write", ["v.mul_(3)", "v[None].mul_(3)", "v[0] = 0.5", "v[:1].mul_(2)", "v[None].fill_(2.0)", "y.mul_(2)", "y[0].mul_(2)"])
def test_writes_to_parts_of_a_strided_view_of_a_result_in_another_order(dims, write):
    def program(m):
        x = (m.arange(8.0).view(2, 2, 2) / 4).requires_grad_()
        y = x.permute(*dims) * 2
        v = y.as_strided((2,), (1,), 1)
        exec(write, {"y": y, "v": v})
        v.sin().sum().backward()
        return x.grad, y

    like_pytorch(program)()


@like_pytorch
def test_drawn_numbers_lie_in_the_order_of_a_result(m):
    m.manual_seed(0)
    x = m.ones(3, 4).t() + 1
    return m.nn.functional.dropout(x, 0.5), x.bernoulli(0.5), m.rand_like(x)


def test_an_empty_tensor_has_no_address():
    assert tj.empty(0, 2).data_ptr() == torch.empty(0, 2).data_ptr() == 0
    x = tj.ones(3)
    assert x.data_ptr() and x[1:1].data_ptr() == torch.ones(3)[1:1].data_ptr() == 0
