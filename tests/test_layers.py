"""The layers of nn: PyTorch's initial weights, outputs, gradients and texts."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from side_by_side import agree, error_of, like_pytorch, plain, torch

import torchgrad_jax as tj


def indices(m, *shape):
    return m.arange(2 * 3).remainder(4).reshape(*shape)


# A layer with the shape of its input; an int for indices.
LAYERS = {
    "identity": (lambda nn: nn.Identity(1, a=2), (2, 3)),
    "linear": (lambda nn: nn.Linear(3, 4), (2, 3)),
    "linear without bias": (lambda nn: nn.Linear(3, 4, bias=False), (5, 2, 3)),
    "flatten": (lambda nn: nn.Flatten(), (2, 3, 4)),
    "unflatten": (lambda nn: nn.Unflatten(1, (2, 3)), (2, 6)),
    "relu": (lambda nn: nn.ReLU(), (2, 3)),
    "tanh": (lambda nn: nn.Tanh(), (2, 3)),
    "sigmoid": (lambda nn: nn.Sigmoid(), (2, 3)),
    "gelu": (lambda nn: nn.GELU("tanh"), (2, 3)),
    "softmax": (lambda nn: nn.Softmax(1), (2, 3)),
    "log_softmax": (lambda nn: nn.LogSoftmax(dim=1), (2, 3)),
    "dropout": (lambda nn: nn.Dropout(0.3), (20, 3)),
    "dropout outside training": (lambda nn: nn.Dropout().eval(), (2, 3)),
    "layer_norm": (lambda nn: nn.LayerNorm((2, 3)), (4, 2, 3)),
    "layer_norm without affine": (lambda nn: nn.LayerNorm(3, elementwise_affine=False), (2, 3)),
    "batch_norm1d": (lambda nn: nn.BatchNorm1d(3), (4, 3)),
    "batch_norm1d cumulative": (lambda nn: nn.BatchNorm1d(3, momentum=None, affine=False), (4, 3, 2)),
    "batch_norm2d outside training": (lambda nn: nn.BatchNorm2d(3).eval(), (2, 3, 2, 2)),
    "batch_norm2d without statistics": (lambda nn: nn.BatchNorm2d(3, track_running_stats=False).eval(), (2, 3, 2, 2)),
    "batch_norm3d": (lambda nn: nn.BatchNorm3d(2), (2, 2, 2, 2, 1)),
    "embedding": (lambda nn: nn.Embedding(4, 2), 6),
    "embedding with padding": (lambda nn: nn.Embedding(4, 2, padding_idx=-3), 6),
    "conv1d": (lambda nn: nn.Conv1d(2, 4, 3, stride=2, padding=1), (2, 2, 7)),
    "conv1d same": (lambda nn: nn.Conv1d(2, 3, 4, padding="same", padding_mode="replicate"), (2, 2, 7)),
    "conv2d": (lambda nn: nn.Conv2d(2, 4, (3, 2), dilation=(1, 2), groups=2, bias=False), (2, 2, 5, 5)),
    "conv2d circular": (lambda nn: nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="circular"), (1, 2, 5, 5)),
    "conv3d": (lambda nn: nn.Conv3d(1, 2, 2), (1, 1, 3, 3, 3)),
    "sequential": (lambda nn: nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)), (2, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_pytorchs_does_from_the_same_seed(name):
    make, shape = LAYERS[name]

    def outcome(m):
        m.manual_seed(7)
        layer = make(m.nn)
        start = [plain(p) for p in (*layer.parameters(), *layer.buffers())]
        layer.double()
        x = indices(m, 2, 3) if isinstance(shape, int) else m.randn(*shape, dtype=m.float64, requires_grad=True)
        y = layer(x)
        (y * m.randn(*y.shape, dtype=m.float64)).sum().backward()
        grads = [p.grad for p in layer.parameters()] + [x.grad]
        return [repr(layer), start, plain(y), [None if g is None else plain(g) for g in grads], [plain(b) for b in layer.buffers()]]

    ours, theirs = outcome(tj), outcome(torch)
    assert agree(ours, theirs), f"\nours:   {ours}\ntheirs: {theirs}"


@pytest.mark.parametrize("name", ["MSELoss", "L1Loss", "CrossEntropyLoss", "NLLLoss"])
@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"reduction": "none"}], ids=str)
def test_a_loss_is_its_functional(name, options):
    def outcome(m):
        by_class = name in ("CrossEntropyLoss", "NLLLoss")
        more = {"weight": m.tensor([1.0, 2.0, 0.5], dtype=m.float64), "ignore_index": 1} if by_class else {}
        loss = getattr(m.nn, name)(**options, **more)
        m.manual_seed(3)
        x = m.randn(4, 3, dtype=m.float64, requires_grad=True)
        found = loss(x, m.tensor([0, 2, 1, 0]) if by_class else m.randn(4, 3, dtype=m.float64))
        found.sum().backward()
        return [repr(loss), list(loss.state_dict()), plain(found), plain(x.grad)]

    assert agree(outcome(tj), outcome(torch))


INITS = ["kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_", "uniform_", "normal_", "ones_", "zeros_"]


@pytest.mark.parametrize("name", INITS)
def test_initial_weights_are_drawn_as_pytorch_draws_them(name):
    def outcome(m):
        m.manual_seed(1)
        w = m.nn.Parameter(m.empty(3, 2, 2))
        made = getattr(m.nn.init, name)(w)
        return [made is w, w.is_leaf, plain(w)]

    assert agree(outcome(tj), outcome(torch))


@like_pytorch
def test_gains_and_fans(m):
    init = m.nn.init
    gains = [init.calculate_gain(n) for n in ("linear", "conv2d", "sigmoid", "tanh", "relu", "selu", "leaky_relu")]
    return [*gains, init.calculate_gain("leaky_relu", 0.3), init._calculate_fan_in_and_fan_out(m.ones(2, 3, 4, 5)), init.constant_(m.ones(2), 3)]


WRONG = {
    "gain": lambda m: m.nn.init.calculate_gain("q"),
    "slope": lambda m: m.nn.init.calculate_gain("leaky_relu", "x"),
    "fan": lambda m: m.nn.init.xavier_uniform_(m.ones(2)),
    "mode": lambda m: m.nn.init.kaiming_uniform_(m.ones(2, 2), mode="q"),
    "dropout": lambda m: m.nn.Dropout(2),
    "unflatten": lambda m: m.nn.Unflatten(1, 2),
    "unflatten element": lambda m: m.nn.Unflatten(1, (2, "a")),
    "embedding": lambda m: m.nn.Embedding(3, 2, padding_idx=5),
    "embedding weight": lambda m: m.nn.Embedding(3, 2, _weight=m.ones(1, 1)),
    "conv groups": lambda m: m.nn.Conv2d(3, 4, 2, groups=2),
    "conv no groups": lambda m: m.nn.Conv2d(3, 4, 2, groups=0),
    "conv same": lambda m: m.nn.Conv1d(2, 3, 1, padding="same", stride=2),
    "conv channels": lambda m: m.nn.Conv2d(2, 4, 3)(m.ones(1, 1, 4, 4)),
    "batch_norm1d": lambda m: m.nn.BatchNorm1d(2)(m.ones(2)),
    "batch_norm2d": lambda m: m.nn.BatchNorm2d(2)(m.ones(2, 2)),
    "linear": lambda m: m.nn.Linear(2, 3)(m.ones(1, 3)),
    "sequential": lambda m: m.nn.Sequential(3),
    "sequential index": lambda m: m.nn.Sequential(m.nn.ReLU())[3],
    "sequential sum": lambda m: m.nn.Sequential() + 3,
    "list extend": lambda m: m.nn.ModuleList().extend(3),
    "list call": lambda m: m.nn.ModuleList()(3),
    "dict update": lambda m: m.nn.ModuleDict().update(3),
    "dict pairs": lambda m: m.nn.ModuleDict([(1, 2, 3)]),
    "parameters call": lambda m: m.nn.ParameterList()(3),
    "parameters index": lambda m: m.nn.ParameterList([m.ones(1)])[2],
    "parameter dict key": lambda m: m.nn.ParameterDict({"a": m.ones(1)})["q"],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_in_pytorchs_words(name):
    ours, theirs = error_of(lambda: WRONG[name](tj)), error_of(lambda: WRONG[name](torch))
    assert ours == theirs and ours is not None


@pytest.mark.parametrize("option", ["padding", "padding_mode"])
def test_an_unknown_padding_is_refused_with_those_there_are(option):
    """In any order: PyTorch prints a set."""
    ours, theirs = (error_of(lambda m=m: m.nn.Conv2d(2, 4, 2, **{option: "x"})) for m in (tj, torch))
    assert ours is not None and theirs is not None and ours[0] == theirs[0] and sorted(ours[1]) == sorted(theirs[1])


@like_pytorch
def test_sequential_is_a_list_of_modules(m):
    nn = m.nn
    s = nn.Sequential(nn.Linear(1, 2), nn.ReLU())
    s.append(nn.Identity()).insert(1, nn.Tanh()).extend([nn.Flatten()])
    found = [repr(s), repr(s[1:3]), len(s), repr(s[-1]), repr(s + nn.Sequential(nn.ReLU())), repr(s.pop(0))]
    s[0] = nn.GELU()
    del s[1]
    return [*found, repr(s), [n for n, _ in nn.Sequential(OrderedDict(a=nn.Linear(1, 1))).named_parameters()]]


@like_pytorch
def test_lists_and_dicts_of_modules(m):
    nn = m.nn
    many = nn.ModuleList([nn.ReLU(), nn.ReLU()])
    many += [nn.Linear(1, 1)]
    many.insert(0, nn.Tanh())
    named = nn.ModuleDict({"a": nn.Linear(1, 1)})
    named["b"] = nn.ReLU()
    named.update([("c", nn.Tanh())])
    found = [repr(many), repr(many[1:3]), repr(many + [nn.ReLU()]), [n for n, _ in many.named_parameters()], repr(named), list(named), "a" in named]
    return [*found, repr(named.pop("a")), len(named), [repr(v) for v in named.values()]]


@like_pytorch
def test_lists_and_dicts_of_parameters(m):
    nn = m.nn
    many = nn.ParameterList([m.ones(2), nn.Parameter(m.zeros(1)), 3])
    many += [m.ones(2, 2)]
    many[0] = m.zeros(1)
    named = nn.ParameterDict({"a": m.ones(1), "b": 3})
    named["c"] = m.ones(1)
    found = [repr(many), len(many), repr(many[1:]), [n for n, _ in many.named_parameters()], many[-1], isinstance(many[0], nn.Parameter)]
    found += [repr(named), list(named.items()), named.pop("b"), repr(named | nn.ParameterDict({"u": m.ones(1)})), named.get("q", 1)]
    return [*found, repr(named.setdefault("w", m.ones(1))), named.popitem()[0], list(reversed(named)), list(named.state_dict())]


@like_pytorch
def test_a_state_of_before_batches_were_counted_loads(m):
    layer = m.nn.BatchNorm1d(2)
    old = {"weight": m.ones(2), "bias": m.ones(2), "running_mean": m.ones(2), "running_var": m.ones(2)}
    return [repr(layer.load_state_dict(old)), layer.running_mean]


@like_pytorch
def test_training_lowers_the_loss_as_pytorch_does(m):
    m.manual_seed(0)
    net = m.nn.Sequential(m.nn.Linear(3, 8), m.nn.BatchNorm1d(8), m.nn.Tanh(), m.nn.Linear(8, 2)).double()
    x, y = m.randn(16, 3, dtype=m.float64), m.arange(16).remainder(2)
    criterion, losses = m.nn.CrossEntropyLoss(), []
    for _ in range(5):
        net.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        losses.append(loss.item())
        with m.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
    return [losses, net[1].num_batches_tracked, losses[-1] < losses[0]]


@like_pytorch
def test_running_statistics_are_written_without_being_counted(m):
    """What a call in evaluation mode saved of them is what they have become by the time of its backward pass."""
    x, other = m.tensor([[1.0, 2.0], [3.0, 5.0], [-1.0, 0.5]], requires_grad=True), m.tensor([[2.0, 0.0], [1.0, 7.0]])
    layer, found = m.nn.BatchNorm1d(2), []
    for _ in range(3):
        layer.eval()
        y = layer(x)
        layer.train()
        layer(other)
        y.square().sum().backward()
        found += [layer.running_mean._version, layer.num_batches_tracked._version, x.grad.clone(), layer.weight.grad.clone(), layer.running_var]
    mean, var = m.zeros(6)[::3], m.ones(4)
    m.nn.functional.batch_norm(x, mean, var[2:], training=True)
    return [*found, mean, mean._version, var, var._version]
