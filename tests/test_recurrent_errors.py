"""What PyTorch says of arguments that no recurrent network is made of, or that do not fit one: the same class and text here."""

from __future__ import annotations

import pytest
from side_by_side import error_of, like_pytorch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators
KINDS = ("LSTM", "GRU", "RNN")
MADE_OF = [
    "3, 4", "3, 4, 2, dropout=.5", "3, 4, dropout=.5", "3, 0", "3, -1", "3, 4.0", "3, 4, 0", "3, 4, 1.5", "3, 4, dropout=2", "3, 4, dropout=True",
    "3, 4, dropout='a'", "3, 4, proj_size=2", "3, 4, proj_size=4", "3, 4, proj_size=-1", "3, 4, nonlinearity='relu'", "3, 4, nonlinearity='x'",
    "3, 4, foo=1", "", "3", "0, 4", "'a', 4", "3.5, 4", "3, 4, bias=None", "3, 4, batch_first=1", "input_size=3, hidden_size=4", "3, 4, mode='LSTM'",
    "3, 4, 1, 'relu'", "3, 4, 1, True, True, 0., True, 2", "3, 4, 1, 'tanh', True, True, 0., True", "3, 4, dropout=-1.", "3, 4, num_layers=True",
    "3, 4, proj_size=0", "3, 4, bidirectional=1", "3, 4, dropout=None", "3, 4, num_layers=None", "'a', 4., num_layers=0, dropout=3, bias=1",
    "'a', 4., num_layers=0, bias=1", "0, 0, num_layers=0, batch_first=1", "0, 0, num_layers=0", "3, 0, num_layers=0", "3, 2, num_layers=0",
    "3, 4, proj_size='a'", "3, 4, dropout='0.5'", "-1, 4", "3, 4., bias=0", "3., 4.", "3, 0, dropout=.5", "3, 4, proj_size=5, num_layers=0",
    "3, 4, dtype=m.int64",
]  # fmt: skip
INPUTS = [
    "m.ones(3)", "m.ones(1, 1, 1, 3)", "m.ones(5, 2, 4)", "m.ones(0, 2, 3)", "m.ones(5, 0, 3)", "m.ones(5, 2, 3, dtype=m.float64)",
    "m.ones(5, 2, 4, dtype=m.float64)", "m.ones(5, 2, 3, dtype=m.int64)", "'a'", "None", "m.ones(5, 2, 0)",
    *[f"{x}, {h}" for x in ("m.ones(5, 2, 3)", "m.ones(5, 3)") for h in (
        "h", "(h, h)", "(h,)", "h[0]", "h[:1]", "(h[:1], h)", "(h, h[:1])", "(h, h[0])", "[h, h]", "'a'", "(h[0], h)", "(h[0], h[0])")],
    "m.nn.utils.rnn.pack_padded_sequence(m.ones(5, 2, 3), [3, 5], enforce_sorted=False), (h, h)",
]  # fmt: skip
CELLS = [
    "m.ones(3)", "m.ones(2, 3)", "m.ones(1, 2, 3)", "m.ones(2, 5)", "m.ones(2, 3, dtype=m.float64)", "m.ones(())", "[1]", "m.ones(0, 3)",
    *[f"m.ones(2, 3), {h}" for h in (
        "m.ones(2, 5)", "m.ones(4)", "m.ones(3, 4)", "m.ones(1, 2, 4)", "m.ones(())", "(m.ones(2, 5), m.ones(2, 4))", "(m.ones(2, 4), m.ones(4))",
        "(m.ones(2, 4), m.ones(2, 5))", "(m.ones(2, 4), m.ones(1, 2, 4))")],
    "m.ones(3), m.ones(4)", "m.ones(3), (m.ones(4), m.ones(4))",
]  # fmt: skip
FUNCTIONS = [
    "x, H, W, True, 1, 0., False, False, False", "x, H, W[:3], True, 1, 0., False, False, False", "x, H, W, True, 2, 0., False, False, False",
    "x, H, W, True, 1, 0., False, False", "x[:0], H, W, True, 1, 0., False, False, False", "x, H, W, 1, 1, 2., True, False, False",
    "x, H, W, True, 1., 2., True, False, False", "x, (h,), W, True, 1, 0., False, False, False", "x, H, W[:2], False, 1, 0., False, False, False",
    "x, H, W, False, 1, 0., False, False, False", "x, H, W, True, 1, 2., True, False, False", "x, H, W + W, True, 1, 0., False, True, False", "x=1",
    "x, m.tensor([2, 2, 2, 1, 1]), H, W, True, 1, 0., False, False", "x, m.tensor([2, 2]), H, W, True, 1, 0., False, False", "",
    "x[..., :2], H, W, True, 1, 0., False, False, False", "x, H, [w.float() for w in W], True, 1, 0., False, False, False",
    "x, H, [W[0].float(), *W[1:]], True, 1, 0., False, False, False", "x, H, [*W[:2], W[2].float(), W[3]], True, 1, 0., False, False, False",
    "x, H, [W[0], W[1], W[2][:3], W[3]], True, 1, 0., False, False, False", "x, H, [W[0], W[1], W[2], W[3][:3]], True, 1, 0., False, False, False",
]  # fmt: skip
STEPS = [
    "x, H, *W", "x, H, *W[:2]", "x, H, *W[:3]", "x, H, W[0], W[1], None, W[3]", "x, (h,), *W", "x, h, *W", "x[:, :2], H, *W", "x, H", "x[0], H, *W",
    "x, H, W[0][:3], W[1]", "x, H, W[0], W[1][:3]", "x, h[:1], *W", "x, h[:, :2], *W", "input=x, hx=H, w_ih=W[0], w_hh=W[1]", "x, (h[:, :2], h), *W",
    "x, (h, h[:, :2]), *W", "x, (h, h[:1]), *W", "x.double(), H, *W",
]  # fmt: skip


def told(m, text, **scope):
    """The error, of several lines the first one, or the shapes of the results."""
    found = []
    raised = error_of(lambda: found.append(eval(text, {"m": m, **scope})))
    return text, raised and (raised[0], raised[1].partition("\n")[0].replace(", )", ")")), [shapes(x) for x in found]


def shapes(x):
    return list(x.shape) if hasattr(x, "shape") else list(map(shapes, x)) if isinstance(x, (tuple, list)) else x


@pytest.mark.parametrize("kind", KINDS)
def test_what_networks_are_made_of(kind):
    like_pytorch(lambda m: [told(m, f"repr(m.nn.{kind}({text}))") for text in MADE_OF])()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", ["", ", batch_first=True, bidirectional=True"])
def test_what_networks_are_given(kind, options):
    like_pytorch(lambda m: [told(m, f"m.nn.{kind}(3, 4, 2{options})({text})", h=m.ones(2, 2, 4)) for text in INPUTS])()


@pytest.mark.parametrize("kind", KINDS)
def test_cells(kind):
    made = ("3, 4", "3, 4, False", "3, 4, nonlinearity='relu'", "3, 4, nonlinearity='x'", "3, 0", "3, -1", "3, 4.", "")
    texts = [f"repr(m.nn.{kind}Cell({text}))" for text in made] + [f"m.nn.{kind}Cell(3, 4)({text})" for text in CELLS]
    like_pytorch(lambda m: [told(m, text) for text in texts])()


def test_bases():
    texts = [
        "m.nn.RNNBase('X', 3, 4)", "repr(m.nn.RNNBase('RNN_TANH', 3, 4, proj_size=2))", "m.nn.RNNBase('LSTM', 3, 4)(m.ones(1, 1, 3))",
        "m.nn.RNNCellBase(3, 4, True, 3)(m.ones(1, 3))", "repr(m.nn.RNNCellBase(3, 4, False, 3))", "m.nn.RNNCell(3, 4, nonlinearity='x')(m.ones(3))",
    ]  # fmt: skip
    like_pytorch(lambda m: [told(m, text) for text in texts])()


# PyTorch's kernel of single precision says other things of too few weights, so double precision is asked.
@pytest.mark.parametrize(("name", "gates"), [("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)])
def test_functions(name, gates):
    def program(m):
        x, h = m.ones(5, 2, 3).double(), m.zeros(1, 2, 4).double()
        weights = [m.ones(4 * gates, n).double() / 10 for n in (3, 4)] + [m.ones(4 * gates).double()] * 2
        whole = [
            told(m, f"m.{name}({text.replace('H', '(h, h)' if gates == 4 else 'h')})", x=packed_or(x, text), h=h, W=weights) for text in FUNCTIONS
        ]
        x, h, weights = m.ones(2, 3), m.ones(2, 4), [w.float() for w in weights]
        return whole, [told(m, f"m.{name}_cell({text.replace('H', '(h, h)' if gates == 4 else 'h')})", x=x, h=h, W=weights) for text in STEPS]

    def packed_or(x, text):
        return x.reshape(10, 3)[:8] if "tensor" in text else x

    like_pytorch(program)()


def test_texts_of_checks():
    def program(m):
        net, found = m.nn.GRU(3, 4, batch_first=True), []
        for text in (
            "net.check_input(m.ones(3), None)", "net.check_input(m.ones(3, 3, 3), m.ones(1))", "net.check_hidden_size(m.ones(1, 2, 3), (1, 2, 4))",
            "net.check_hidden_size(m.ones(1, 2, 3), (1, 2, 4), 'x {} y {}')", "net.get_expected_hidden_size(m.ones(7, 5, 3), None)",
            "net.get_expected_hidden_size(m.ones(7, 3), m.tensor([3, 1]))", "net.permute_hidden(m.ones(1, 2, 4), m.tensor([1, 0]))",
            "m.nn.LSTM(3, 4, proj_size=2).get_expected_cell_size(m.ones(7, 5, 3), None)",
            "net.check_forward_args(m.ones(1, 1, 3), m.ones(1, 1, 3), None)",
        ):  # fmt: skip
            found.append(told(m, text, net=net))
        return found

    like_pytorch(program)()


def test_operands_that_no_layer_takes():
    def program(m):
        x, h, weights = m.ones(2, 1, 3).long(), m.zeros(1, 1, 4).long(), [m.ones(12, 3).long(), m.ones(12, 4).long()]
        plain = [m.ones(4, 3).long(), m.ones(4, 4).long()]
        return told(m, "m.gru(x, h, W, False, 1, 0., False, False, False)", x=x, h=h, W=weights), m.rnn_relu(
            x, h, plain, False, 1, 0.0, False, False, False
        )

    like_pytorch(program)()
    for text in ("m.lstm(x, (h, h[..., :1]), W, False, 1, 0., False, False, False)", "m.rnn_tanh(x, h[0], W[:2], False, 1, 0., False, False, False)"):
        _, (kind, said), _ = told(tj, text, x=tj.ones(2, 1, 3), h=tj.zeros(1, 1, 1), W=[tj.ones(4, 3), tj.ones(4, 1), tj.ones(1, 2)])
        assert kind == "RuntimeError" and said
