"""Lazy modules: parameters without a shape, the first call, states, copies and pickles, as PyTorch's."""

from __future__ import annotations

import copy
import pickle

import pytest
from side_by_side import agree, error_of, like_pytorch, plain, programs, torch

import torchgrad_jax as tj

pytestmark = [pytest.mark.operators, pytest.mark.filterwarnings("ignore")]
program, test_lazy_modules_like_pytorch = programs()

# A lazy module, and the shape of its first input.
LAZY = {
    "linear": (lambda nn: nn.LazyLinear(3), (2, 4)),
    "linear without bias": (lambda nn: nn.LazyLinear(3, bias=False), (4,)),
    "conv1d": (lambda nn: nn.LazyConv1d(4, 3, padding="same", bias=False), (2, 4, 5)),
    "conv2d": (lambda nn: nn.LazyConv2d(4, 3, groups=2), (4, 5, 5)),
    "conv3d": (lambda nn: nn.LazyConv3d(2, 2), (1, 2, 3, 3, 3)),
    "conv_transpose1d": (lambda nn: nn.LazyConvTranspose1d(4, 3, groups=2), (2, 4, 5)),
    "conv_transpose2d": (lambda nn: nn.LazyConvTranspose2d(2, (3, 2), bias=False), (1, 2, 3, 3)),
    "conv_transpose3d": (lambda nn: nn.LazyConvTranspose3d(2, 2, stride=2), (1, 2, 2, 2, 2)),
    "batch_norm1d": (lambda nn: nn.LazyBatchNorm1d(), (4, 3)),
    "batch_norm2d": (lambda nn: nn.LazyBatchNorm2d(affine=False), (2, 3, 2, 2)),
    "batch_norm3d": (lambda nn: nn.LazyBatchNorm3d(track_running_stats=False, bias=False), (2, 3, 2, 2, 2)),
    "instance_norm1d": (lambda nn: nn.LazyInstanceNorm1d(), (2, 3, 4)),
    "instance_norm2d": (lambda nn: nn.LazyInstanceNorm2d(affine=True), (2, 3, 2, 2)),
    "instance_norm3d": (lambda nn: nn.LazyInstanceNorm3d(track_running_stats=False), (2, 3, 2, 2, 2)),
}


@pytest.mark.parametrize("name", LAZY)
def test_the_first_call_makes_a_lazy_module_what_pytorchs_becomes(name):
    make, shape = LAZY[name]

    def outcome(m):
        m.manual_seed(3)
        lazy = make(m.nn).double()
        before = [repr(lazy), repr(dict(lazy.named_parameters())), list(lazy.state_dict()), lazy.has_uninitialized_params()]
        x = m.randn(*shape, dtype=m.float64, requires_grad=True)
        y = lazy(x)
        (y * m.randn(*y.shape, dtype=m.float64)).sum().backward()
        after = [type(lazy).__name__, repr(lazy), [plain(v) for v in lazy.state_dict().values()], lazy.state_dict()._metadata[""]]
        return [before, after, plain(y), plain(x.grad), [plain(p.grad) for p in lazy.parameters()]]

    ours, theirs = outcome(tj), outcome(torch)
    assert agree(ours, theirs), f"\nours:   {ours}\ntheirs: {theirs}"


def one(m):
    return m.nn.LazyLinear(3, dtype=m.float64)


def full(m):
    m.manual_seed(1)
    return m.nn.Linear(4, 3, dtype=m.float64)


@program
def a_state_gives_shapes(m):
    lazy = one(m)
    told = repr(lazy.load_state_dict(full(m).state_dict()))
    return [told, repr(lazy), lazy.weight, lazy(m.ones(1, 4, dtype=m.float64)), repr(lazy)]


@program
def a_state_that_has_no_shapes_changes_nothing(m):
    lazy = one(m)
    return [repr(lazy.load_state_dict(one(m).state_dict())), repr(lazy.state_dict()), repr(lazy.load_state_dict({}, strict=False))]


@program
def a_state_without_shapes_fits_no_module_that_has_them(m):
    return full(m).load_state_dict(one(m).state_dict())


@program
def an_input_that_does_not_fit_the_loaded_weights_is_refused(m):
    lazy = one(m)
    lazy.load_state_dict(full(m).state_dict())
    return lazy(m.ones(1, 5, dtype=m.float64))


@program
def copies_and_pickles_are_initialized_by_themselves(m):
    lazy = one(m)
    x, found = m.ones(2, 4, dtype=m.float64), []
    for other in (copy.deepcopy(lazy), pickle.loads(pickle.dumps(lazy)), copy.deepcopy(lazy).float().double()):
        found += [repr(other), list(other(x).shape), repr(other), len(other._forward_pre_hooks), hasattr(other, "_initialize_hook")]
    return [*found, repr(lazy), len(lazy._forward_pre_hooks)]


@program
def nested_ones_are_initialized_one_after_the_other(m):
    nn = m.nn
    net = nn.Sequential(nn.LazyConv2d(2, 3), nn.ReLU(), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3))
    return [repr(net), list(net(m.ones(2, 1, 5, 5)).shape), repr(net), [list(p.shape) for p in net.parameters()]]


@program
def a_handle_is_pickled_and_copied_with_its_hooks(m):
    layer = m.nn.Linear(1, 1)
    handle = layer.register_forward_hook(print)
    pair = copy.deepcopy((layer, handle))
    pair[1].remove()
    return [len(pair[0]._forward_hooks), len(layer._forward_hooks)]


WRONG = {
    "shape": lambda m: one(m).weight.shape,
    "add a parameter": lambda m: one(m).weight + 1,
    "numel": lambda m: sum(p.numel() for p in one(m).parameters()),
    "share": lambda m: one(m).weight.share_memory_(),
    "buffer": lambda m: copy.deepcopy(m.nn.UninitializedBuffer()),
    "no shapes given": lambda m: Unfinished(m)(m.ones(1)),
    "nothing defined": lambda m: undefined(m)(m.ones(1)),
    "dimensions": lambda m: m.nn.LazyConv2d(3, 3)(m.ones(3, 3)),
    "transposed dimensions": lambda m: m.nn.LazyConvTranspose1d(3, 3)(m.ones(3, 3, 3, 3, 3)),
    "groups": lambda m: m.nn.LazyConv2d(4, 3, groups=2)(m.ones(1, 3, 5, 5)),
    "batch_norm": lambda m: m.nn.LazyBatchNorm2d()(m.ones(3, 3)),
    "factory_kwargs": lambda m: m.nn.factory_kwargs({"device": "cpu", "other": 1}),
    "factory_kwargs twice": lambda m: m.nn.factory_kwargs({"device": "cpu", "factory_kwargs": {"device": "cpu"}}),
}


def undefined(m, **members):
    def init(self):
        super(made, self).__init__()
        self.weight = m.nn.UninitializedParameter()

    made = type("Unfinished", (m.nn.modules.lazy.LazyModuleMixin, m.nn.Module), {"__init__": init, "forward": lambda self, x: x, **members})
    return made()


def Unfinished(m):  # noqa: N802 - the class that it makes
    return undefined(m, initialize_parameters=lambda self, x: None)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_in_pytorchs_words(name):
    """But for the name of the function in the middle."""
    ours, theirs = ([part and part.partition(" in <")[::2] for part in error_of(lambda m=m: WRONG[name](m)) or [None]] for m in (tj, torch))
    assert ours[0] is not None and ours[0] == theirs[0]
    assert ours[1][0] == theirs[1][0] and ours[1][1].partition(">. ")[2] == theirs[1][1].partition(">. ")[2]


@program
def parameters_and_buffers_without_a_shape(m):
    nn = m.nn
    p, b = nn.UninitializedParameter(dtype=m.float64), nn.UninitializedBuffer()
    kinds = [isinstance(p, nn.Parameter), isinstance(b, nn.Buffer), nn.parameter.is_lazy(p), p.requires_grad, b.requires_grad, str(p.dtype)]
    p.materialize((2, 3))
    b.materialize((2,), dtype=m.float16)
    holder = nn.Module()
    holder.w = nn.UninitializedBuffer(persistent=False)
    return [kinds, type(p).__name__, list(p.shape), str(p.dtype), type(b).__name__, str(b.dtype), list(holder._buffers), list(holder.state_dict())]


@program
def a_module_of_ones_own_is_given_the_arguments(m):
    def initialize(self, x, scale=1):
        self.weight.materialize((x.shape[-1] * scale,))

    lazy = undefined(m, initialize_parameters=initialize, forward=lambda self, x, scale=1: x * 2)
    return [lazy(m.ones(2, 3), scale=2), list(lazy.weight.shape), type(lazy).__name__, m.nn.factory_kwargs({"dtype": 1, "factory_kwargs": {}})]


@like_pytorch
def test_a_parameters_own_torch_function_reaches_the_default_by_super(m):
    seen = []

    class Watched(m.nn.Parameter):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    return [type(Watched(m.ones(2)) + 1).__name__, seen[-1]]
