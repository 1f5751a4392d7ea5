"""`torch.nn.utils.rnn` beside PyTorch's: packing, padding, the PackedSequence; and their derivatives."""

from __future__ import annotations

import copy
import importlib
import pickle

import pytest
from graphs import graph_of
from hypothesis import given, settings
from hypothesis import strategies as st
from side_by_side import error_of, leaf, like_pytorch, plain, programs, torch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators
program, test_programs = programs()
CASES = {
    "pack_padded_sequence": [
        "x, [4, 2, 1]", "x, (4, 2, 1)", "x, m.tensor([4, 2, 1], dtype=m.int32)", "x, [4.0, 2.0, 1.0]", "x, [3, 2, 1]", "x, [5, 2, 1]",
        "x, [2, 2, 2, 1], True", "x, [2, 4, 1], False, False", "x, [1, 2, 1, 2], batch_first=True, enforce_sorted=False", "x, [4, 2]", "x, [1, 2, 3]",
        "x, [4, 2, 0]", "x, m.tensor([[4, 2, 1]])", "x, [4, 2, 1], True", "x, 4", "x, [4, 2, -1], False, False", "x, []", "m.ones(3), [2]",
        "m.arange(3).reshape(3, 1), [3]", "m.ones(3, 0, 2), []", "[1], [3]",
    ],
    "pad_packed_sequence": [
        "packed", "packed, True", "packed, total_length=6", "packed, True, -1.5, 9", "packed.long(), padding_value=2.7", "packed, padding_value=True",
        "packed, total_length=3", "packed, padding_value='a'", "packed, total_length=4.0", "x",
    ],
    "pad_sequence": [
        "abc", "abc, True, -1", "abc, padding_side='left', batch_first=True", "tuple(abc)", "(v for v in abc)", "x", "[abc[0].long(), abc[1]]",
        "[abc[0].long()], padding_value=2.7", "[abc[0], m.ones(2, 1)]", "[abc[0], m.ones(2)]", "abc, padding_value=m.tensor(2.0)", "[]",
        "[abc[0], m.ones(2, 3)]", "[abc[0], m.ones(2, 2, 2)]", "5", "[m.tensor(1.0)]", "{1: x}", "abc, padding_side='x'", "abc, padding_side=1",
        "abc, batch_first=1", "abc, padding_value='x'",
    ],
    "unpad_sequence": ["x, m.tensor([3, 1, 2])", "x, m.tensor([3, 1, 2, 1]), True", "x, m.tensor([3, 1])", "x, [3, 1, 2]"],
    "pack_sequence": ["[abc[0], abc[2], abc[1]]", "abc", "abc, enforce_sorted=False", "[]"],
    "unpack_sequence": ["packed", "m.nn.utils.rnn.pack_sequence(abc, False)"],
    "invert_permutation": ["m.tensor([2, 0, 1])", "None", "[1, 0]"],
    "PackedSequence": [
        "x", "x, m.tensor([2, 1])", "x, m.tensor([2, 1]), m.tensor([1, 0])", "x, m.tensor([2, 1]), None, m.tensor([1, 0])", "(x, m.tensor([2, 1]))",
        "[x, m.tensor([2, 1])], None, m.tensor([1, 0])", "", "x, [2, 1]",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_calls_give_what_pytorchs_give(name):
    def outcomes(m):
        rnn, found = m.nn.utils.rnn, []
        for text in CASES[name]:
            x = m.arange(24.0).reshape(4, 3, 2)
            scope = {"m": m, "x": x, "abc": [m.ones(3, 2), m.ones(1, 2) * 2, m.ones(2, 2) * 3]}
            scope["packed"] = rnn.pack_padded_sequence(x, [1, 2, 4], enforce_sorted=False)
            got = []
            raised = error_of(lambda text=text, scope=scope, got=got: got.append(eval(f"{name}({text})", {**scope, name: getattr(rnn, name)})))
            found.append([text, raised, plain(got), list(x.shape)])
        return found

    assert outcomes(tj) == outcomes(torch)


@program
def the_methods_of_a_packed_sequence(m):
    p = m.nn.utils.rnn.PackedSequence(m.ones(3, 2), m.tensor([2, 1]), m.tensor([1, 0]))
    names = ("double", "float", "half", "long", "int", "short", "char", "byte", "cpu")
    found = [tuple(getattr(p, name)()) for name in names]
    found += [tuple(p.to(m.float64)), tuple(p.to("cpu", m.int32)), tuple(p.to(m.zeros(1, dtype=m.float64))), tuple(p._replace(data=m.zeros(1)))]
    kept = [p.float() is p, p.cpu() is p, p.to("cpu") is p, p.double() is p, p.is_cuda, p.is_pinned(), p._fields, len(p), isinstance(p, tuple)]
    return found, kept, repr(p), error_of(lambda: p.to("cpu", copy=True)), error_of(lambda: p.nothing)


def test_copies_of_a_packed_sequence():
    p = tj.nn.utils.rnn.pack_sequence([tj.ones(1, 2), tj.ones(3, 2)], enforce_sorted=False)
    for twin in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(twin) is tj.nn.utils.rnn.PackedSequence and plain(list(twin)) == plain(list(p))


def test_the_module_is_found_where_pytorchs_is():
    ours, theirs = (importlib.import_module(f"{m}.nn.utils.rnn") for m in ("torchgrad_jax", "torch"))
    assert set(ours.__all__) == set(theirs.__all__)
    assert ours is tj.nn.utils.rnn


@settings(max_examples=20, derandomize=True)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans(), st.integers(0, 2), st.sampled_from(["left", "right"]))
def test_round_trips_and_their_gradients(lengths, batch_first, more, side):
    def results(m):
        rnn = m.nn.utils.rnn
        sequences = [leaf(m, *[[10.0 * i + j, -j] for j in range(n)]) for i, n in enumerate(lengths)]
        packed = rnn.pack_sequence(sequences, enforce_sorted=False)
        padded, found = rnn.pad_packed_sequence(packed, batch_first, 7.0, max(lengths) + more)
        apart = rnn.unpack_sequence(packed)
        beside = rnn.pad_sequence(sequences, batch_first, -1.0, side)
        weights = m.arange(padded.numel(), dtype=m.float64).reshape(padded.shape)
        loss = (padded * weights).sum() + sum([(a * a).sum() for a in apart]) + (beside**3).sum()
        return plain([packed.batch_sizes, packed.data.sum(), padded, found, apart, beside, m.autograd.grad(loss, sequences)])

    assert results(tj) == results(torch)


def test_derivatives():
    rnn, x = tj.nn.utils.rnn, tj.randn(4, 3, 2, dtype=tj.float64, requires_grad=True)
    packed = rnn.pack_padded_sequence(x.detach(), [3, 2, 1])

    def pad(data):
        return rnn.pad_packed_sequence(rnn.PackedSequence(data, packed.batch_sizes), True, 1.5, 5)[0]

    def pack(x):
        return rnn.pack_padded_sequence(x, [3, 2, 1, 1], True).data

    def beside(*sequences):
        return rnn.pad_sequence(sequences, True, 1.5, "left")

    for function, operands in ((pack, x), (pad, packed.data.clone().requires_grad_()), (beside, tuple(x[i, :i] for i in (1, 3, 2)))):
        assert tj.autograd.gradcheck(function, operands, check_forward_ad=True, check_batched_grad=True)
        assert tj.autograd.gradgradcheck(function, operands)


@pytest.mark.parametrize("batch_first", [False, True])
def test_the_graph_of_packing_is_pytorchs(batch_first):
    def results(m):
        x = m.ones(3, 3, 2, requires_grad=True)
        return [m.nn.utils.rnn.pack_padded_sequence(x, [1, 3, 2], batch_first, sort).data for sort in (False,)]

    assert graph_of(results(tj)) == graph_of(results(torch))


def test_inputs_of_networks_that_are_packed_wrongly():
    def program(m):
        net, rnn = m.nn.GRU(3, 4), m.nn.utils.rnn
        wrong = [
            rnn.PackedSequence(m.ones(3, 3), m.tensor([2, 1, 1])), rnn.PackedSequence(m.ones(3, 3), m.tensor([2, 1], dtype=m.int32)),
            rnn.PackedSequence(m.ones(3, 3, dtype=m.float64), m.tensor([2, 1])), rnn.PackedSequence(m.ones(3, 4), m.tensor([2, 1])),
            rnn.PackedSequence(m.ones(3, 1, 3), m.tensor([2, 1])), rnn.PackedSequence(m.ones(0, 3), m.tensor([], dtype=m.int64)),
        ]  # fmt: skip
        return [error_of(lambda packed=packed: net(packed)) for packed in wrong]

    like_pytorch(program)()


@pytest.mark.parametrize("sizes", [[1, 2], [2, -1], [[2, 1]]])
def test_batch_sizes_that_are_none_are_refused(sizes):
    packed = tj.nn.utils.rnn.PackedSequence(tj.ones(3, 3), tj.tensor(sizes))
    with pytest.raises(RuntimeError, match="batch_sizes of a packed sequence must"):
        tj.nn.LSTM(3, 4)(packed)
