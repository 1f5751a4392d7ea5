"""Random calls: PyTorch's numbers for one seed, call after call, and what is raised for bad arguments."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
import warnings

import pytest
from side_by_side import error_of, like_pytorch

import torchgrad_jax as tj
from compat_suite import random_calls

pytestmark = pytest.mark.operators


def test_every_call_gives_pytorchs_numbers_and_leaves_its_state(capsys):
    pytest.importorskip("torch")
    assert random_calls.compare() == 0, capsys.readouterr().out


def test_a_difference_is_counted_once(monkeypatch, capsys):
    pytest.importorskip("torch")
    honest = random_calls.Session.outcome

    def draws_once_more(session, call):
        if session.library is tj and call == "torch.rand(2)":
            tj.rand(1)
        return honest(session, call)

    monkeypatch.setattr(random_calls.Session, "outcome", draws_once_more)
    assert random_calls.compare(calls=["torch.rand(1)", "torch.rand(2)", "torch.rand(3)"]) == 2
    assert "3 calls: 2 agree to rounding, 2 of them to the last digit; 2 states" in capsys.readouterr().out


BAD = """
torch.rand(3, out=torch.empty(3, dtype=torch.float64), dtype=torch.float32)
torch.rand(3, out=torch.empty(3, dtype=torch.int64))
torch.randn(3, out=torch.empty(3, requires_grad=True))
torch.rand("a")
torch.rand([2, -3])
torch.randint(5, 3)
torch.randint(5.5, (3,))
torch.randint(2, 5, (3,), requires_grad=True)
torch.randint(0, 5, (3,), out=torch.empty(3, dtype=torch.int32), dtype=torch.int64)
torch.rand_like(3)
torch.rand_like(torch.zeros(3, dtype=torch.int64))
torch.randperm(5.5)
torch.normal(torch.zeros(3), -1.0)
torch.normal(torch.zeros(3), torch.tensor([1.0, -1, 1]))
torch.normal(torch.zeros(3), torch.ones(3, dtype=torch.complex64))
torch.normal(torch.zeros(3), torch.ones(4))
torch.normal(torch.zeros(3), 1.0, out=torch.empty(2))
torch.normal(torch.zeros(3, requires_grad=True), 1.0, out=torch.empty(3))
torch.zeros(3).uniform_(foo=3)
torch.zeros(3).uniform_("a")
torch.zeros(3).uniform_(0, 1, 2)
torch.zeros(3).uniform_(generator=3)
torch.zeros(1).expand(3).uniform_()
torch.zeros(3).bernoulli_(torch.ones(2, 3))
torch.bernoulli(3)
torch.multinomial(torch.ones(3), 2.5)
torch.multinomial(torch.ones(3), 2, out=torch.empty(2))
torch.multinomial(torch.ones(2**24 + 1), 2)
torch.poisson(3.0)
torch.binomial(torch.full((3,), 10.0), torch.full((3,), 0.5, dtype=torch.float64))
torch.binomial(torch.full((3,), 10), torch.full((3,), 0.5))
torch.native_dropout(torch.ones(3), 1.5, True)
torch.nn.functional.gumbel_softmax(torch.ones(3, 2, dtype=torch.int64))
torch.nn.init.orthogonal_(torch.empty(4))
torch.nn.init.sparse_(torch.empty(4), 0.5)
torch.nn.init.dirac_(torch.empty(4, 2, 3), 3)
torch.nn.Dropout3d(1.5)
torch.Generator().get_offset()
torch.set_rng_state(3)
"""
# Calls whose text goes on with PyTorch's list of signatures.
INVALID = """
torch.rand(3, foo=3)
torch.rand(3, generator=5)
torch.rand()
torch.randint(5)
torch.randint(5, 9, 3)
torch.randint_like(torch.zeros(3))
torch.normal(0.0, 1.0)
torch.normal(0, 1, 3)
torch.normal(torch.zeros(3), 1.0, (3,))
torch.zeros(3).random_(5.5)
torch.bernoulli(torch.ones(3) / 2, 0.5, out=torch.empty(2))
"""


def test_bad_arguments():
    torch = pytest.importorskip("torch")
    for lines, beginning in ((BAD, False), (INVALID, True)):
        for line in lines.split("\n")[1:-1]:
            ours, theirs = (error_of(lambda m=m, line=line: eval(line, {"torch": m})) for m in (tj, torch))
            if beginning:
                ours, theirs = ((kind, text.partition(", but expected one of")[0]) for kind, text in (ours, theirs))
            assert ours == theirs, line


@like_pytorch
def test_gradients_of_drawn_numbers(m):
    m.manual_seed(3)
    x = m.linspace(-1, 2, 12, dtype=m.float64).reshape(3, 4).requires_grad_()
    made = [m.native_dropout(x, 0.4, True)[0], m.nn.functional.gumbel_softmax(x, 0.7), m.nn.functional.gumbel_softmax(x, hard=True), m.normal(x, 2.0)]
    names = [t.grad_fn.name() for t in made]
    gradients = [m.autograd.grad((t * m.arange(12.0).reshape(3, 4)).sum(), x, create_graph=True)[0] for t in made]
    return names, made, gradients, m.autograd.grad(gradients[1].square().sum(), x)


@like_pytorch
def test_layers(m):
    m.manual_seed(4)
    layers = [getattr(m.nn, n)(0.4) for n in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")]
    inputs = [m.ones(3, 4), m.ones(2, 3, 4), m.ones(2, 3, 2, 2), m.ones(2, 3, 2, 1, 2), m.ones(7), m.ones(2, 3, 2)]
    rrelu = m.nn.RReLU(0.1, 0.3)
    made = [layer(x) for layer, x in zip(layers, inputs, strict=True)] + [rrelu(-m.ones(5))]
    return made, [repr(layer) for layer in (*layers, rrelu)], [layer.eval()(x) for layer, x in zip(layers, inputs, strict=True)]


@like_pytorch
def test_initial_contents(m):
    m.manual_seed(5)
    init, made = m.nn.init, []
    for arguments in ((0, 1, -2, 2), (1, 2, -1, 2), (5, 1, -2, 2), (0, 1, 3, 4), (0, 1, -0.01, 0.01)):
        made += [init.trunc_normal_(m.empty(n, dtype=m.float64), *arguments) for n in (3, 40)]
    made += [init.orthogonal_(m.empty(2, 3, 2), 2), init.orthogonal_(m.empty(5, 3)), init.orthogonal_(m.empty(0, 3))]
    made += [init.sparse_(m.empty(5, 4), 0.3), init.eye_(m.empty(3, 4))]
    made += [init.dirac_(m.empty(4, 2, 3), 2), init.dirac_(m.empty(2, 2, 2, 3)), init.normal(m.empty(3))]
    return made, init.trunc_normal_(m.empty(3, requires_grad=True)), m.rand(1)


def test_generators_are_copied_with_their_state():
    g = tj.Generator().manual_seed(3)
    tj.randn(3, generator=g)
    for other in (copy.deepcopy(g), pickle.loads(pickle.dumps(g)), g.clone_state()):
        assert isinstance(other, tj.Generator) and other.device == g.device
        assert tj.equal(other.get_state(), g.get_state())
    before = g.get_state()
    assert tj.rand(1, generator=g.clone_state()).item() == tj.rand(1, generator=g).item()
    assert g.set_state(before) is g


@like_pytorch
def test_drawn_numbers_have_no_tangents_of_their_own(m):
    forward, found = m.autograd.forward_ad, []
    warnings.filterwarnings("ignore", "`torch.jit.script`")  # PyTorch's own, when a process first opens a level
    with forward.dual_level():
        x = forward.make_dual(m.full((3,), 0.5), m.arange(3.0))
        fills = ("uniform_", "normal_", "exponential_", "random_", "bernoulli_", "cauchy_", "log_normal_")
        made = [getattr(x * 1, name)() for name in fills] + [(x * 1).geometric_(0.5), (x * 1).bernoulli_(x)]
        made += [m.bernoulli(x), m.normal(x, 1.0), m.normal(1.0, x), m.normal(x, x), m.poisson(x)]
        for t in made:
            found.append(forward.unpack_dual(t).tangent)
        m.manual_seed(0)
        found.append(forward.unpack_dual(m.nn.functional.dropout(x)).tangent)
        found.append(forward.unpack_dual(m.rand_like(x)).tangent)
    return found


@like_pytorch
def test_what_randint_is_given_by_position_and_by_name(m):
    found = []
    for args in ((), (5,), (2, 5), (5, (3,)), (2, 5, (3,)), (2, 3)):
        for names in ((), ("size",), ("high",), ("low",), ("high", "size"), ("low", "size"), ("low", "high"), ("low", "high", "size")):
            m.manual_seed(0)
            try:
                found.append(m.randint(*args, **{name: {"low": 1, "high": 5, "size": (3,)}[name] for name in names}).tolist())
            except TypeError as error:
                found.append(str(error).split(" - ")[0])
    return found


@like_pytorch
def test_long_samples_are_scaled_piece_by_piece(m):
    found = []
    for n in (32768, 32769, 70003):
        m.manual_seed(0)
        drawn = [m.empty(n).normal_(0.3, 0.02), m.empty(n).uniform_(-0.1, 0.3), m.empty(n).normal_(0, 3)]
        found.append([x.view(m.int32).sum().item() for x in drawn])
    return found


def test_scaling_long_samples_takes_no_more_memory_than_these():
    n, peaks = 1 << 21, []
    tj.manual_seed(0)
    for std in (1, 0.02):
        tj.empty(n).normal_(0, std)[0].item()
        tracemalloc.start()
        try:
            tj.empty(n).normal_(0, std)[0].item()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + n
