"""`torch.autograd.grad` and `backward` take a dict of inputs, such as that of a module's parameters."""

from collections import OrderedDict

import pytest
from side_by_side import programs

import torchgrad_jax as tj

program, test_like_pytorch = programs()


@program
def gradients_by_name(m):
    model = m.nn.Linear(2, 1)
    with m.no_grad():
        model.weight.fill_(0.5)
        model.bias.fill_(0.25)
    found = []
    for i in range(4):
        loss = model(m.ones(3, 2) * i).pow(2).sum()
        found.append(m.autograd.grad(loss, dict(model.named_parameters()), create_graph=i == 2))
    x = m.ones(2, requires_grad=True)
    found.append(m.autograd.grad(loss + 0 * model.bias.sum(), {"x": x}, allow_unused=True))
    found.append(m.autograd.grad(x.sum(), {"bias": model.bias, 1: x}, materialize_grads=True))
    return [[type(gradients) is dict, *gradients.items()] for gradients in found]


@program
def accumulated_in_some_by_name(m):
    x, y = m.ones(2, requires_grad=True), m.ones(2, requires_grad=True)
    (x * y).sum().backward(inputs={"x": x})
    m.autograd.backward((x * y).sum(), inputs={"x": x})
    return [x.grad, y.grad]


def test_other_mappings_are_refused():
    x = tj.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match=r"`inputs` argument to `grad\(\)` must be a dict, not OrderedDict. Other Mapping types"):
        tj.autograd.grad(x.sum(), OrderedDict(x=x))
    with pytest.raises(TypeError, match=r"`inputs` argument to `backward\(\)` must be a dict, not OrderedDict"):
        x.sum().backward(inputs=OrderedDict(x=x))
    with pytest.raises(RuntimeError, match="cannot be empty"):
        tj.autograd.grad(x.sum(), {})
