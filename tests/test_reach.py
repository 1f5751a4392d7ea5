"""A compiled function is traced again when something that it reaches is not what it was: in objects, their classes, functions and hooks."""

import functools
import random
import warnings
from collections import UserDict, deque

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax import nn
from torchgrad_jax.lifting.tracing import TracingError

pytestmark = pytest.mark.operators  # of programs: in eager mode there are none

scale = 2.0


def programs(compiled):
    return int(compiled.explain().split(" ", 1)[0])


class Config:
    power = 1


def helper(x):
    return (x + 1) * 2


class Slotted:
    __slots__ = ("factor",)


class Settings:
    power = 2.0

    def __init__(self):
        self.factor, self.table, self.options = 1.0, {"bias": 1.0}, Config()


class Layer(nn.Module):
    scale, offsets = 1.0, [0.5]

    def __init__(self):
        super().__init__()
        self.inner, self.settings, self.extra, self.slots = nn.Linear(2, 2), Settings(), [nn.Linear(2, 2)], Slotted()
        self.slots.factor = 1.0

    @property
    def shift(self):
        return 0.25

    @staticmethod
    def doubled(x):
        return x * 2

    def last(self, x):
        return x + self.shift

    def forward(self, x):
        x = self.doubled(self.inner(x)) * self.scale * self.settings.factor * self.slots.factor + self.offsets[0] + self.settings.table["bias"]
        return self.last(helper(self.extra[0](x)).abs() ** self.settings.power) * self.settings.options.power


class OtherLayer(Layer):
    def last(self, x):
        return x * 7


def put(owner, name, value):
    """A change of an attribute or of a class's."""
    return lambda model: setattr(owner(model), name, value)


class Indexed:
    def __init__(self):
        self.items = [1.0]

    def __getitem__(self, i):
        return self.items[i]

    def __getattr__(self, name):
        raise KeyError(name)


class Named(dict):
    factor = 1.0


class Cached:
    number = 1.0

    @functools.cached_property
    def factor(self):
        return self.number * 2


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad * scale


def gradient(_, x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(Backward.apply(x).sum(), x)[0]


def with_factor(o, x):
    return o(x) * (o.factor if hasattr(o, "factor") else 1)


def uncache(o):
    o.number = 3.0
    del o.factor


OBJECTS = {
    "a deque": (lambda: deque([1.0]), lambda o, x: x * o[0], lambda o: o.appendleft(3.0)),
    "what an operator reads": (Indexed, lambda o, x: x * o[0], lambda o: o.items.__setitem__(0, 3.0)),
    "an attribute of a dict": (Named, lambda o, x: x * o.factor, lambda o: setattr(o, "factor", 3.0)),
    "a dict of UserDict": (lambda: UserDict(a=1.0), lambda o, x: x * o["a"], lambda o: o.update(a=3.0)),
    "what a cached property reads": (Cached, lambda o, x: x * o.factor, uncache),
    "an attribute of a function": (
        lambda: lambda x: x,
        lambda o, x: o(x) * (o.factor if hasattr(o, "factor") else 1),
        lambda o: setattr(o, "factor", 3),
    ),
    "what backward reads": (lambda: None, gradient, lambda o: globals().update(scale=3.0)),
}


@pytest.mark.parametrize("what", OBJECTS)
def test_what_objects_of_further_kinds_hold_is_watched(what):
    make, use, change = OBJECTS[what]
    o, x, before = make(), torch.ones(2), scale
    compiled = torch.jit(lambda x: use(o, x), fullgraph=True)
    try:
        for step in (lambda o: None, change):
            step(o)
            for _ in range(2):
                assert compiled(x).tolist() == use(o, x).tolist()
        assert use(o, x).tolist() != [1, 1]
    finally:
        globals().update(scale=before)


WITHIN = {
    "an object in a module": put(lambda m: m.settings, "factor", 3.0),
    "a dict of an object in a module": lambda m: m.settings.table.update(bias=3.0),
    "an object in one in a module": put(lambda m: m.settings.options, "power", 3),
    "a list of modules": lambda m: m.extra.__setitem__(0, nn.Linear(2, 2)),
    "slots": put(lambda m: m.slots, "factor", 3.0),
    "an attribute that hides its class's": put(lambda m: m, "scale", 3.0),
    "an attribute of a class": put(lambda m: Layer, "scale", 3.0),
    "another list of a class": put(lambda m: Layer, "offsets", [3.0]),
    "the class of an object in a module": put(lambda m: Settings, "power", 3.0),
    "a property": put(lambda m: Layer, "shift", property(lambda self: 3.0)),
    "a static method": put(lambda m: Layer, "doubled", staticmethod(lambda x: x * 3)),
    "a method": put(lambda m: Layer, "last", lambda self, x: x * 3),
    "a method of one object": put(lambda m: m, "last", lambda x: x * 3),
    "forward": put(lambda m: Layer, "forward", lambda self, x: self.inner(x) * 3),
    "forward of one module": put(lambda m: m, "forward", lambda x: x * 3),
    "forward of a layer": put(lambda m: m.inner, "forward", lambda x: x * 3),
    "the class itself": put(lambda m: m, "__class__", OtherLayer),
    "the code of a function": put(lambda m: helper, "__code__", (lambda x: x * 3).__code__),
}


@pytest.mark.parametrize("what", WITHIN)
def test_what_is_within_objects_and_classes_is_watched(what):
    was, code = {c: dict(vars(c)) for c in (Layer, Settings)}, helper.__code__
    torch.manual_seed(0)
    model, x = Layer(), torch.ones(1, 2)
    compiled = torch.jit(model, fullgraph=True)
    try:
        for change in (lambda m: None, WITHIN[what], lambda m: None):
            change(model)
            for _ in range(2):
                np.testing.assert_allclose(compiled(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-5)
        assert programs(compiled) == 2
    finally:
        helper.__code__ = code
        for c, attributes in was.items():
            for name in [n for n in attributes if vars(c).get(n) is not attributes[n]]:
                setattr(c, name, attributes[name])


@pytest.mark.parametrize("kind", ["tensor", "accumulated", "every module", "every optimizer"])
def test_hooks_that_come_and_go_are_watched(kind):
    def training():
        torch.manual_seed(0)
        layer, x = nn.Linear(2, 2), torch.ones(1, 2)
        optimizer = torch.optim.SGD(layer.parameters(), 0.01)

        def step():
            optimizer.zero_grad()
            loss = layer(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return layer, step

    def grow(t):
        t.grad.mul_(3)

    def register(layer):
        if kind == "tensor":
            return layer.weight.register_hook(lambda grad: grad * 3)
        if kind == "accumulated":
            return layer.weight.register_post_accumulate_grad_hook(grow)
        if kind == "every module":
            return nn.modules.module.register_module_forward_hook(lambda module, args, out: out * 3)
        return torch.optim.optimizer.register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: grow(layer.weight))

    found = []
    for how in (lambda step: step, lambda step: torch.jit(step)):
        layer, step = training()
        step, losses = how(step), []
        losses += [step().item() for _ in range(3)]
        for _ in range(2):
            handle = register(layer)
            losses += [step().item() for _ in range(3)]
            handle.remove()
            losses += [step().item() for _ in range(3)]
        found.append(losses)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)


@pytest.mark.parametrize("draw", [random.random, np.random.rand], ids=["random", "numpy.random"])
def test_numbers_that_the_host_draws_are_drawn_at_each_call(draw):
    compiled, numbers = torch.jit(lambda x: x * draw()), []
    for function in (lambda x: x * draw(), compiled):
        random.seed(0)
        np.random.seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            numbers.append([function(torch.ones(1)).item() for _ in range(4)])
    assert numbers[0] == numbers[1] and len(set(numbers[0])) == 4
    with pytest.raises(TracingError, match="Python's or NumPy's generator"):
        torch.jit(lambda x: x * draw(), fullgraph=True)(torch.ones(1))


def test_what_a_function_changes_of_what_it_reaches_is_changed_at_each_call():
    phase = [0]

    def alternating(x):
        phase[0] = 1 - phase[0]
        return x * phase[0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.jit(alternating)
        assert [compiled(torch.ones(1)).item() for _ in range(12)] == [1, 0] * 6


def test_an_optimizer_whose_state_was_cleared_begins_anew():
    found = []
    for how in (lambda step: step, torch.jit):
        layer, x = nn.Linear(2, 2), torch.ones(1, 2)
        with torch.no_grad():
            layer.weight.fill_(0.5)
            layer.bias.fill_(0.5)
        optimizer = torch.optim.AdamW(layer.parameters(), 0.1)
        step = how(optimizer.step)
        for turn in range(9):
            if turn in (3, 6):
                optimizer.state.clear()
            optimizer.zero_grad()
            layer(x).square().sum().backward()
            step()
        found.append([layer.weight.tolist(), [state["step"].item() for state in optimizer.state.values()]])
    assert found[1][1] == found[0][1] == [3, 3]
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-3)
