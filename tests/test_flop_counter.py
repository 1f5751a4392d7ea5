"""`torch.utils.flop_counter`: the numbers are PyTorch's."""

import importlib

import pytest

import torchgrad_jax as ours
from torchgrad_jax.utils.flop_counter import FlopCounterMode


def mlp(m):
    return m.nn.Sequential(m.nn.Linear(4, 8), m.nn.ReLU(), m.nn.Linear(8, 3))


def conv_net(m):
    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = m.nn.Conv2d(1, 4, 3, padding=1)
            self.grouped = m.nn.Conv2d(4, 8, 3, stride=2, groups=2, bias=False)
            self.block = m.nn.Sequential(m.nn.Linear(72, 10), m.nn.Linear(10, 10))

        def forward(self, x):
            return self.block(self.grouped(m.relu(self.conv(x))).flatten(1))

    return Net()


def shared(m):
    class Twice(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = self.b = m.nn.Linear(4, 4)

        def forward(self, x):
            return self.b(self.a(x))

    return Twice()


def ones(m, *shape):
    return m.ones(shape, requires_grad=True)


def twice_differentiated(m, function, *given):
    grad = m.autograd.grad((function(*given) ** 2).sum(), given[0], create_graph=True)[0]
    grad.sum().backward()


def first_conv_then_all(m, net=conv_net):
    net = net(m)
    net(net.conv(m.ones(2, 1, 8, 8))[:, :1])


def attention(m, dropout, *shape):
    q, k, v = ones(m, *shape, 6, 8), ones(m, *shape, 7, 8), ones(m, *shape, 7, 8)
    return m.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout)


def checkpointed(m):
    use = importlib.import_module(f"{m.__name__}.utils.checkpoint").checkpoint
    use(m.nn.Linear(4, 4), ones(m, 5, 4), use_reentrant=False).sum().backward()


BACKWARD = {
    "mlp": lambda m: mlp(m)(m.ones(5, 4)),
    "conv net": lambda m: conv_net(m)(m.ones(2, 1, 8, 8)),
    "conv net and its input": lambda m: conv_net(m)(ones(m, 2, 1, 8, 8)),
    "cell": lambda m: m.nn.LSTMCell(4, 5)(m.ones(2, 4))[0],
    "attention module": lambda m: m.nn.MultiheadAttention(8, 2, batch_first=True)(*[m.ones(2, 5, 8)] * 3)[0],
    "attention of 3 dimensions": lambda m: attention(m, 0.0, 2),
    "attention with dropout": lambda m: attention(m, 0.5, 2, 3),
    "linear of 3 dimensions": lambda m: m.nn.functional.linear(m.ones(2, 5, 4), ones(m, 3, 4), ones(m, 3)),
    "linear without bias": lambda m: m.nn.functional.linear(m.ones(2, 5, 4), ones(m, 3, 4)),
    "linear of a vector": lambda m: m.nn.functional.linear(m.ones(4), ones(m, 3, 4), ones(m, 3)),
    "matrix and vector": lambda m: ones(m, 3, 4) @ ones(m, 4),
    "batch": lambda m: ones(m, 2, 3, 4) @ m.ones(2, 4, 5),
    "batch that broadcasts": lambda m: ones(m, 2, 2, 3, 4) @ ones(m, 2, 1, 4, 5),
    "batch and matrix": lambda m: ones(m, 2, 2, 3, 4) @ ones(m, 4, 5),
    "addmm": lambda m: m.addmm(ones(m, 3, 5), ones(m, 3, 4), m.ones(4, 5)),
    "addmm in place": lambda m: m.ones(3, 5).addmm_(ones(m, 3, 4), m.ones(4, 5)),
    "baddbmm": lambda m: m.baddbmm(m.ones(2, 3, 5), ones(m, 2, 3, 4), ones(m, 2, 4, 5), alpha=2),
    "addbmm": lambda m: m.addbmm(m.ones(3, 5), ones(m, 2, 3, 4), m.ones(2, 4, 5)),
    "einsum": lambda m: m.einsum("ij,jk->ik", ones(m, 3, 4), m.ones(4, 5)),
    "conv1d of one image": lambda m: m.nn.functional.conv1d(ones(m, 3, 9), ones(m, 4, 3, 3), ones(m, 4)),
    "conv3d": lambda m: m.nn.functional.conv3d(ones(m, 2, 3, 5, 5, 5), ones(m, 4, 3, 3, 3, 3)),
    "conv with dilation": lambda m: m.nn.functional.conv2d(ones(m, 2, 4, 9, 9), ones(m, 4, 4, 3, 3), dilation=2, padding=4),
    "transposed conv": lambda m: m.nn.functional.conv_transpose2d(ones(m, 2, 3, 5, 5), ones(m, 3, 4, 2, 2), stride=2),
    "transposed conv in groups": lambda m: m.nn.functional.conv_transpose2d(ones(m, 2, 4, 5, 5), ones(m, 4, 2, 2, 2), stride=2, groups=2),
}  # fmt: skip
PROGRAMS = {name: lambda m, make=make: make(m).sum().backward() for name, make in BACKWARD.items()} | {
    "mm": lambda m: m.ones(2, 3) @ m.ones(3, 4),
    "out": lambda m: m.mm(m.ones(2, 3), m.ones(3, 4), out=m.empty(2, 4)),
    "of nothing": lambda m: m.ones(0, 3) @ m.ones(3, 4),
    "nothing": lambda m: m.ones(3) + 1,
    "without a graph": lambda m: m.no_grad()(conv_net(m))(m.ones(2, 1, 8, 8)),
    "a module by itself and in another": first_conv_then_all,
    "called twice": lambda m: [f(m.ones(5, 4)) for f in [mlp(m)] * 2],
    "shared module": lambda m: shared(m)(m.ones(5, 4)),
    "checkpoint": checkpointed,
    "gradient of one operand": lambda m: m.autograd.grad((ones(m, 3, 4) @ (w := ones(m, 4, 5))).sum(), w),
    "second derivative of a product": lambda m: twice_differentiated(m, lambda w: w @ w, ones(m, 3, 3)),
    "second derivative of a convolution": lambda m: twice_differentiated(m, m.nn.functional.conv1d, ones(m, 1, 2, 5), ones(m, 3, 2, 2)),
    "func.grad": lambda m: m.func.grad(lambda w: (m.ones(5, 4) @ w).sum())(m.ones(4, 3)),
}


def counts(m, program):
    mode = importlib.import_module(f"{m.__name__}.utils.flop_counter").FlopCounterMode
    with mode(display=False) as counter:
        program(m)
    found = {name: {str(op): n for op, n in by_operator.items()} for name, by_operator in counter.get_flop_counts().items()}
    return found, counter.get_total_flops()


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    assert counts(ours, PROGRAMS[name]) == counts(torch, PROGRAMS[name])


def test_a_product_and_a_step():
    assert counts(ours, PROGRAMS["mm"]) == ({"Global": {"aten.mm": 48}}, 48)
    total = {"aten.addmm": 560, "aten.mm": 800}
    parts = {"Sequential.0": {"aten.addmm": 320, "aten.mm": 320}, "Sequential.2": {"aten.addmm": 240, "aten.mm": 480}}
    assert counts(ours, PROGRAMS["mlp"]) == ({"Global": total, "Sequential": total, **parts}, 1360)


def test_operators_are_those_of_torch_ops():
    with FlopCounterMode(display=False) as counter:
        ours.nn.Linear(3, 4)(ours.ones(2, 3))
    assert counter.get_flop_counts()["Linear"][ours.ops.aten.addmm] == 48


def test_fused_attention_is_counted_as_on_a_gpu():
    # Two products; for the gradients two for each of them, and that of the scores once more.
    name, product = "aten._scaled_dot_product_flash_attention", 2 * 2 * 3 * 6 * 7 * 8
    found, _ = counts(ours, lambda m: attention(m, 0.0, 2, 3).sum().backward())
    assert found == {"Global": {name: 2 * product, f"{name}_backward": 5 * product}}


def test_results_and_gradients_are_as_without():
    def gradients():
        ours.manual_seed(0)
        net = conv_net(ours)
        net(ours.randn(2, 1, 8, 8)).square().sum().backward()
        return [p.grad for p in net.parameters()]

    with FlopCounterMode(display=False):
        inside = gradients()
    for a, b in zip(inside, gradients(), strict=True):
        ours.testing.assert_close(a, b)


def test_each_block_counts_anew_and_inner_blocks_count_for_outer_ones():
    again = FlopCounterMode(display=False)
    for _ in range(2):
        with again:
            PROGRAMS["mm"](ours)
    assert again.get_total_flops() == 48
    with again, FlopCounterMode(display=False) as inner:
        PROGRAMS["mm"](ours)
    assert (again.get_total_flops(), inner.get_total_flops()) == (48, 48)
    PROGRAMS["mm"](ours)
    assert again.get_total_flops() == 48


def test_it_is_over_where_the_block_or_a_module_raises():
    class Raising(ours.nn.Module):
        def forward(self, x):
            raise ValueError

    counter = FlopCounterMode(display=False)
    with counter:
        with pytest.raises(ValueError):
            Raising()(ours.ones(2))
        PROGRAMS["mm"](ours)
    assert list(counter.get_flop_counts()) == ["Global"]
    with pytest.raises(ValueError), counter:
        Raising()(ours.ones(2))
    PROGRAMS["mm"](ours)
    assert counter.get_total_flops() == 0


def test_the_table_is_printed(capsys):
    with FlopCounterMode() as counter:
        conv_net(ours)(ours.ones(2, 1, 8, 8))
    assert capsys.readouterr().out == counter.get_table() + "\n"
    assert counter.get_table(1).splitlines() == [
        "Module                 FLOP    % Total",
        "------------------  -------  ---------",
        "Net                 17.680K    100.00%",
        "- aten.convolution  14.400K     81.45%",
        "- aten.addmm         3.280K     18.55%",
    ]
    assert counter.get_table() == counter.get_table(2) != counter.get_table(3)
    with FlopCounterMode() as counter:
        ours.ones(2000, 3000) @ ours.ones(3000, 4000)
    assert "Global     48.000B    100.00%" in capsys.readouterr().out
    assert FlopCounterMode(display=False).get_table().splitlines()[-1].split() == ["Global", "0", "0%"]


def test_what_cannot_be_honoured_is_refused():
    with pytest.raises(NotImplementedError, match="custom_mapping"):
        FlopCounterMode(custom_mapping={ours.ops.aten.add: lambda *shapes, **_: 1})
    with pytest.warns(UserWarning, match="mods argument is not needed anymore"):
        FlopCounterMode(ours.nn.Linear(2, 2), display=False)
