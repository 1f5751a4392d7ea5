"""`torch.utils.flop_counter`: PyTorch's numbers, by module and operator."""

from importlib import import_module

import pytest
from side_by_side import like_pytorch
from torchgrad_jax.utils.flop_counter import FlopCounterMode

import torchgrad_jax as tj

pytestmark = pytest.mark.operators


def counted(m, program, **options):
    """What is counted in `program(m)`, operators by name."""
    mode = import_module(f"{m.__name__}.utils.flop_counter").FlopCounterMode(display=False, **options)
    with mode:
        program(m)
    found = mode.get_flop_counts()
    return mode.get_total_flops(), {name: {str(op): n for op, n in sorted(counts.items(), key=str)} for name, counts in sorted(found.items())}


def network(m):
    return m.nn.Sequential(m.nn.Sequential(m.nn.Linear(8, 16), m.nn.ReLU()), m.nn.Linear(16, 2))


def convolved(m, **options):
    image, kernel = m.ones(2, 4, 8, 8, requires_grad=True), m.ones(6, 4 // options.get("groups", 1), 3, 3, requires_grad=True)
    return m.nn.functional.conv2d(image, kernel, **options)


def transposed(m):
    return m.nn.functional.conv_transpose2d(m.ones(2, 3, 5, 5, requires_grad=True), m.ones(3, 4, 3, 3, requires_grad=True), stride=2)


PROGRAMS = {
    "products": lambda m: (
        m.ones(4, 8) @ m.ones(8, 3),
        m.ones(2, 3, 4) @ m.ones(2, 4, 5),
        m.baddbmm(m.ones(2, 3, 5), m.ones(2, 3, 4), m.ones(2, 4, 5)),
    ),
    "of vectors": lambda m: (m.ones(4, 8) @ m.ones(8), m.ones(4) @ m.ones(4), (m.ones(3, 2, requires_grad=True) @ m.ones(2)).sum().backward()),
    "linear": lambda m: m.nn.functional.linear(m.ones(2, 4, 8), m.ones(3, 8), m.ones(3)),
    "einsum": lambda m: m.einsum("bij,bjk->bik", m.ones(2, 3, 4), m.ones(2, 4, 5)),
    "backward": lambda m: (m.ones(4, 8) @ m.ones(8, 3, requires_grad=True)).sum().backward(),
    "a network": lambda m: network(m)(m.ones(4, 8)).sum().backward(),
    "attention": lambda m: m.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(m.ones(2, 5, 8)).sum().backward(),
    "convolutions": lambda m: (convolved(m).sum().backward(), convolved(m, stride=2, padding=1).sum().backward(), convolved(m, groups=2)),
    "transposed": lambda m: transposed(m).sum().backward(),
    "a line": lambda m: m.nn.functional.conv1d(m.ones(2, 3, 8), m.ones(5, 3, 3)),
    "element by element": lambda m: (m.ones(3) * 2 + 1).exp().sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_are_pytorchs(name):
    like_pytorch(lambda m: counted(m, PROGRAMS[name]))()


def test_a_module_that_runs_twice_counts_twice():
    def program(m):
        net = m.nn.Sequential(m.nn.Linear(3, 3), m.nn.Tanh())
        return counted(m, lambda m: (net(m.ones(2, 3)) + net(m.ones(2, 3))).sum().backward())

    like_pytorch(program)()


def test_the_table():
    pytest.importorskip("tabulate")

    def program(m):
        mode = import_module(f"{m.__name__}.utils.flop_counter").FlopCounterMode(display=False, depth=2)
        with mode:
            network(m)(m.ones(400, 8)).sum().backward()
            m.ones(3, 3) @ m.ones(3, 3)
        return mode.get_table(), mode.get_table(1), mode.get_table(depth=3)

    like_pytorch(program)()


def test_a_mapping_of_ones_own_is_refused_and_nothing_is_counted_afterwards():
    with pytest.raises(NotImplementedError, match="custom_mapping"):
        FlopCounterMode(custom_mapping={tj.ops.aten.mm: lambda *shapes, **rest: 1})
    with FlopCounterMode(display=False) as mode:
        pass
    network(tj)(tj.ones(4, 8))
    assert mode.get_total_flops() == 0 and mode.get_flop_counts()["Global"] == {}
