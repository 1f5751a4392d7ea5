"""Tensors of the device "meta", which have shapes and dtypes alone, as PyTorch has them."""

import copy
import io
import pickle

import numpy as np
import pytest
from side_by_side import like_pytorch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators


def told(*tensors):
    """What there is to tell of a tensor without content."""
    return [(repr(t), t.stride(), t.storage_offset(), t.is_leaf, t._is_view()) for t in tensors]


def test_factories():
    like_pytorch(lambda m: told(
        m.empty(2, 3, device="meta"), m.zeros(2, dtype=m.int64, device="meta"), m.ones((), device="meta"), m.full((2,), 3.0, device="meta"),
        m.tensor([1.0, 2.0], device="meta"), m.arange(3, device="meta"), m.eye(2, device="meta"), m.linspace(0, 1, 3, device="meta"),
        m.zeros(2, device="meta", requires_grad=True), m.empty(0, device="meta"), m.zeros_like(m.ones(2), device="meta"),
        m.ones_like(m.empty(2, 3, device="meta").t()), m.ones(2).to("meta"), m.ones(2).new_zeros(3, device="meta"),
    ))()  # fmt: skip


def test_a_default_device_and_what_is_there_of_it():
    def program(m):
        with m.device("meta"):
            x, net = m.ones(2), m.nn.Linear(2, 3)
        return (
            told(x, net.weight),
            x.is_meta,
            m.ones(1).is_meta,
            str(x.device),
            x.is_cpu,
            x.is_cuda,
            x.type(),
            x.data_ptr(),
            x.untyped_storage().nbytes(),
        )

    like_pytorch(program)()


def test_operations_have_the_shapes_dtypes_orders_and_nodes_of_results():
    def program(m):
        x = m.empty(2, 3, device="meta", requires_grad=True)
        image = m.empty(1, 3, 8, 8, device="meta")
        made = [
            x + 1,
            x * m.tensor(2.0),
            x @ x.T,
            x.sum(),
            x.view(6),
            x.t(),
            x[0],
            x[:, 1:],
            x[None].expand(4, 2, 3),
            m.cat([x, x]),
            x.half(),
            x > 0,
            x.t().contiguous(),
            m.where(x > 0, x, 0.0),
            x.softmax(-1),
            x.clone(),
            x.mean(0),
            *x.max(1),
            *x.sort(),
            *x.split(1),
            m.linalg.inv(x @ x.T),
            m.nn.functional.conv2d(image, m.empty(4, 3, 3, 3, device="meta")),
            m.nn.functional.max_pool2d(image, 2),
            x[m.tensor([0, 1, 1])],
            m.einsum("ij,kj->ik", x, x),
            x.topk(2).values,
            x.cumsum(0),
            m.nn.functional.layer_norm(x, (3,)),
            x.detach().as_strided((2,), (1,)),
        ]
        return [(str(t.dtype), tuple(t.shape), t.stride(), t.requires_grad, t.grad_fn and t.grad_fn.name(), t.is_meta) for t in made]

    like_pytorch(program)()


def test_backward_and_optimizers():
    def program(m):
        with m.device("meta"):
            net = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.BatchNorm1d(4), m.nn.ReLU(), m.nn.Dropout(0.5), m.nn.Linear(4, 2))
        step = m.optim.Adam(net.parameters(), foreach=False)
        for _ in range(3):
            step.zero_grad()
            loss = m.nn.functional.cross_entropy(net(m.empty(5, 3, device="meta")), m.zeros(5, dtype=m.long, device="meta"))
            loss.backward()
            step.step()
        p = m.nn.Parameter(m.zeros(2, device="meta"))
        (p * 2).sum().backward()
        a = m.empty(2, 2, device="meta", requires_grad=True)
        (second,) = m.autograd.grad(m.autograd.grad((a * a * a).sum(), a, create_graph=True)[0].sum(), a)
        return told(loss.detach(), net[0].weight, net[0].weight.grad, net[1].running_mean, p.grad, second)

    like_pytorch(program)()


def test_transforms():
    like_pytorch(lambda m: told(
        m.func.grad(lambda x: (x * x).sum())(m.empty(2, 3, device="meta")), m.vmap(lambda x: x.sum())(m.empty(2, 3, device="meta")),
        m.func.hessian(lambda x: (x**3).sum())(m.empty(2, device="meta")),
    ))()  # fmt: skip


def test_modules_of_many_kinds():
    def program(m):
        x = m.empty(2, 1, 4, device="meta")
        lstm, attention = m.nn.LSTM(4, 3, device="meta"), m.nn.MultiheadAttention(4, 2, device="meta")
        embedding = m.nn.Embedding(3, 4, device="meta")(m.zeros(2, dtype=m.long, device="meta"))
        return [tuple(t.shape) for t in (lstm(x)[0], attention(x, x, x)[0], embedding, m.nn.TransformerEncoderLayer(4, 2, 8, device="meta")(x))]

    like_pytorch(program)()


def test_writes_leave_nothing_and_copies_need_something():
    def program(m):
        x = m.empty(2, 3, device="meta")
        x.add_(1).zero_().fill_(2)
        x[0] = 1.0
        x[m.tensor([0])] = 2.0
        x.copy_(m.ones(2, 3))
        return told(x, x[0].mul_(2)), m.ones(2, 3).copy_(x)

    like_pytorch(program)()


def test_no_numbers_are_drawn_for_them():
    def program(m):
        m.manual_seed(0)
        x = m.randn(2, device="meta")
        made = [x, m.rand_like(x), x.clone().normal_(), x.clone().uniform_(), m.randint(5, (2,), device="meta"), m.randperm(3, device="meta"),
                m.nn.functional.dropout(x), m.bernoulli(x), m.multinomial(m.empty(2, 3, device="meta"), 2), m.randn((), device="meta")]  # fmt: skip
        m.nn.Linear(3, 4, device="meta")
        return told(*made), m.randn(1)

    like_pytorch(program)()


def test_a_large_one_takes_no_memory():
    net = tj.nn.Linear(1 << 20, 1 << 20, device="meta")
    assert net(tj.empty(1, 1 << 20, device="meta")).shape == (1, 1 << 20)
    assert tj.randn(1 << 20, 1 << 22, device="meta").nbytes == 1 << 44


LOOKS = {
    "item": lambda m, x: x[0, 0].item(), "bool": lambda m, x: bool(x[0, 0]), "float": lambda m, x: float(x[0, 0]), "int": lambda m, x: int(x[0, 0]),
    "tolist": lambda m, x: x.tolist(), "numpy": lambda m, x: x.numpy(), "cpu": lambda m, x: x.cpu(), "to": lambda m, x: x.to("cpu"),
    "format": lambda m, x: f"{x[0, 0]:.2f}", "dlpack": lambda m, x: m.from_dlpack(x), "mixed": lambda m, x: x + m.ones(2, 3),
    "data": lambda m, x: setattr(m.ones(2, 3), "data", x), "grad": lambda m, x: setattr(m.nn.Parameter(m.ones(2, 3)), "grad", x),
    "module": lambda m, x: m.nn.Linear(3, 4, device="meta").to("cpu"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKS)
def test_what_needs_the_content_is_refused(name):
    like_pytorch(lambda m: LOOKS[name](m, m.empty(2, 3, device="meta")))()


@pytest.mark.parametrize("look", [lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: tj.equal(x, x), lambda x: x.unique(), lambda x: np.asarray(x)])
def test_what_looks_at_the_content_to_know_a_shape_is_refused(look):
    with pytest.raises((NotImplementedError, TypeError), match="meta"):
        look(tj.empty(2, 3, device="meta"))


def test_modules_get_their_content_by_moving_loading_and_assigning():
    def program(m):
        made = m.nn.Linear(2, 3)
        net = m.nn.Linear(2, 3, device="meta")
        net.load_state_dict(made.state_dict(), assign=True)
        empty = m.nn.Linear(2, 3, device="meta").to_empty(device="cpu")
        away = m.nn.Linear(2, 3).to("meta")
        skipped = m.nn.utils.skip_init(m.nn.Linear, 2, 3)
        same = bool((net.weight == made.weight).all())
        return same, type(net.weight).__name__, [str(x.device) for x in (net.weight, empty.weight, skipped.weight)], told(away.weight)

    like_pytorch(program)()
    like_pytorch(lambda m: str(m.nn.Linear(2, 3, device="meta").load_state_dict(m.nn.Linear(2, 3).state_dict())))()


def test_copies_pickles_and_files():
    def program(m):
        x = m.empty(2, 3, device="meta").t().requires_grad_()
        file, full = io.BytesIO(), io.BytesIO()
        m.save({"x": x, "p": m.nn.Parameter(m.empty(2, device="meta"))}, file)
        m.save({"a": m.ones(2, 3), "b": m.arange(3)}, full)
        file.seek(0)
        loaded = m.load(file)
        full.seek(0)
        mapped = m.load(full, map_location="meta")
        return told(copy.deepcopy(x), pickle.loads(pickle.dumps(x)), loaded["x"], loaded["p"]), [repr(t) for t in mapped.values()]

    like_pytorch(program)()
