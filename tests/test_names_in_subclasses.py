"""Programs derive classes of their own from ours and may use any name that PyTorch's leave free: none of ours may be in the way."""

from __future__ import annotations

import functools
import re

import pytest

import torchgrad_jax as tj
from tests.side_by_side import programs

program, test_like_pytorch = programs()

# Names that programs use for something of their own, and that helpers of ours had or may well have.
_NAMES = """
    _assign _cast _convert _load _move _optimized _put _refuse _state _states _take _hidden _run _call _options _zeros _weights _step _dims _mode
    _name_at _times _renumber _make _shown _set _check _check_params _check_group _begin_at advance check formula names numbers remembered scalars
    settle state_of update
"""
_TAKEN = _NAMES.split()


@program
def a_module_with_attributes_and_methods_of_these_names(m):
    def made(base, *args, **kwargs):
        kind = type("Own", (base,), {name: lambda self, *args: 1 / 0 for name in _TAKEN})
        module = kind(*args, **kwargs)
        for name in _TAKEN:
            object.__setattr__(module, name, 3)
        return module

    nn, found = m.nn, []
    m.manual_seed(0)
    inputs = {"Linear": (2, 3), "Conv1d": (2, 3, 4), "LayerNorm": (2, 3), "LSTM": (4, 2, 3), "GRU": (4, 2, 3), "GRUCell": (2, 3), "LSTMCell": (2, 3)}
    for name, shape in inputs.items():
        layer = made(getattr(nn, name), 3, *((2, 1) if name == "Conv1d" else () if name == "LayerNorm" else (2,)))
        layer.child, layer.extra, layer.weight_of_its_own = made(nn.Linear, 2, 2), nn.Buffer(m.ones(1)), nn.Parameter(m.ones(1))
        layer.register_buffer("other", m.zeros(2))
        layer.add_module("more", made(nn.Embedding, 3, 2, padding_idx=0))
        layer.load_state_dict({key: value * 2 for key, value in layer.state_dict().items()})
        result = layer.double().float().eval().to(m.float32)(m.linspace(-1, 1, m.Size(shape).numel()).reshape(shape))
        found += [result, list(layer.state_dict().items()), repr(layer)]
    layers = made(nn.Sequential, nn.Linear(3, 3), nn.Tanh())
    layers.insert(1, nn.Linear(3, 3))
    del layers[0]
    encoder = made(nn.TransformerEncoderLayer, 4, 2, 8, batch_first=True, dropout=0.0)
    return (
        found,
        repr(layers),
        layers(m.ones(2, 3)),
        encoder(m.ones(1, 2, 4)),
        made(nn.CircularPad1d, 1)(m.ones(1, 3)),
        made(nn.MaxPool1d, 2)(m.ones(1, 4)),
    )


@program
def an_optimizer_and_a_schedule_with_attributes_and_methods_of_these_names(m):
    found = []
    for name in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD", "Rprop", "Adafactor"):
        own = {taken: lambda self, *args: 1 / 0 for taken in _TAKEN}
        p, q = m.nn.Parameter(m.ones(2)), m.nn.Parameter(m.ones(3))
        o = type("Own", (getattr(m.optim, name),), own)([p], lr=0.1)
        o.add_param_group({"params": [q], "lr": 0.5})
        kind = type("Own", (m.optim.lr_scheduler.CosineAnnealingWarmRestarts,), own)
        s = kind(o, 3)
        for taken in _TAKEN:
            setattr(o, taken, 3)
            setattr(s, taken, 3)
        for _ in range(5):
            ((p * p).sum() + (q - 2).pow(2).sum()).backward()
            o.step()
            s.step()
            o.zero_grad()
        o.load_state_dict(o.state_dict())
        found += [p.detach(), q.detach(), s.get_last_lr()]
    return found


@program
def a_distribution_with_attributes_of_these_names(m):
    taken = [
        "_given",
        "_fill",
        "_carried",
        "_rank",
        "_ranks",
        "_tables",
        "_checked",
        "_check_parameters",
        "_standing_for_given",
        "_normalizer",
        "_standardized",
        "_noise",
        "_turned",
    ]
    found, d = [], m.distributions
    for base, args in ((d.Normal, (m.zeros(3), m.ones(3))), (d.Categorical, (m.ones(3),)), (d.MultivariateNormal, (m.zeros(2), m.eye(2)))):
        own = type("Own", (base,), dict.fromkeys(taken))(*args)
        for name in taken:
            setattr(own, name, 3)
        m.manual_seed(0)
        x = own.sample()
        found += [x, own.log_prob(x), own.entropy(), d.kl_divergence(own, own), base.expand(own, (2,), base(*args)).batch_shape]
    return found


# What names of ours begin with in classes that programs derive others from: mangled ones, and those of families that override each other's.
_OURS = r"_(rule|schedule|rnn|cell|list|layer|lazy|norm|pad|softmax|spatial|table|[A-Z][A-Za-z]*_)_"


@pytest.mark.parametrize("where", ["nn", "optim", "optim.lr_scheduler", "optim.swa_utils", "utils.data"])
def test_no_class_has_a_name_that_a_program_may_choose(where):
    torch = pytest.importorskip("torch")
    ours, pytorchs = (functools.reduce(getattr, where.split("."), m) for m in (tj, torch))
    found = {}
    for name in ours.__all__:
        kind, theirs = getattr(ours, name), getattr(pytorchs, name, None)
        if isinstance(kind, type) and isinstance(theirs, type) and not issubclass(kind, (tj.Tensor, tuple)) and "Options" not in name:
            own = {n for base in kind.__mro__ for n in vars(base)} - {n for base in theirs.__mro__ for n in vars(base)}
            found[name] = sorted(n for n in own if not n.startswith("__") and not re.match(_OURS, n))
    assert len(found) > 1 and not any(found.values()), {name: names for name, names in found.items() if names}
