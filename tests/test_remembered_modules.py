"""Modules under a transform: calls that are recorded again, the graphs that lead to their parameters, and what makes a call anew."""

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax import nn
from torchgrad_jax.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
from torchgrad_jax.lifting import remembered
from torchgrad_jax.lifting.purity import reached

pytestmark = pytest.mark.operators  # of programs: in eager mode there are none


@pytest.fixture(autouse=True)
def forgotten():
    torch.manual_seed(0)
    remembered._known.clear()
    yield
    remembered._known.clear()


def remembers():
    return [type(v) for v in remembered._known.values()].count(remembered.Remembered)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.scale = nn.Linear(2, 8), nn.Linear(8, 1), 2.0

    def forward(self, x):
        return self.scaled(self.last(torch.tanh(self.first(x)))).squeeze(-1)

    def scaled(self, x):
        return x * self.scale


def anew(call):
    """What `call` gives when nothing is remembered, and leaves what is as it was."""
    known = dict(remembered._known)
    remembered._known.clear()
    found = call()
    remembered._known.clear()
    remembered._known.update(known)
    return found


def laplacian(net):
    return vmap(lambda a: hessian(net)(a).trace())


CALLS = {
    "jacobian": lambda net, x: vmap(jacrev(net))(x),
    "laplacian": lambda net, x: laplacian(net)(x),
    "forward": lambda net, x: vmap(jacfwd(net))(x),
    "grad": lambda net, x: grad(lambda a: net(a).sin().sum())(x),
    "batch": lambda net, x: vmap(net)(x),
    "of a graph": lambda net, x: vmap(grad(net))(net.first(x)[:, :2].contiguous() * 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_parameters_are_those_of_a_call_that_is_done_in_full(interpreted, name):
    net, call = Net(), CALLS[name]
    for n in range(5):
        x = torch.randn(4, 2) * (n + 1)
        found, expected = call(net, x), anew(lambda x=x: call(net, x))
        assert torch.equal(found, expected) and found.stride() == expected.stride()
        chains = []
        for result in (found, expected):
            nodes, chain = [result.grad_fn], []
            while nodes:
                node = nodes.pop()
                chain.append(node.name())
                nodes += [n for n, _ in node.next_functions if n is not None]
            chains.append(chain)
        assert chains[0] == chains[1]
        parameters = list(net.parameters())
        first, second = (torch.autograd.grad(r.pow(2).sum(), parameters, create_graph=True, materialize_grads=True) for r in (found, expected))
        assert all(map(torch.equal, first, second))
        again = [torch.autograd.grad(sum(g.pow(2).sum() for g in grads), parameters, materialize_grads=True) for grads in (first, second)]
        assert all(map(torch.equal, *again))
        with torch.no_grad():
            for p in parameters:
                p.mul_(1.1)
    assert remembers() >= 1


def test_a_network_learns_an_equation_as_without():
    def losses(known):
        torch.manual_seed(0)
        net = Net()
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        x, found = torch.rand(16, 2), []
        for _ in range(6):
            if not known:
                remembered._known.clear()
            optimizer.zero_grad()
            loss = (laplacian(net)(x) - 1).pow(2).mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    assert losses(True) == losses(False)


def test_functional_calls_are_remembered_for_other_parameters():
    net = Net()
    x, y = torch.randn(8, 2), torch.randn(8)
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters, a, b):
        return nn.functional.mse_loss(functional_call(net, parameters, (a.unsqueeze(0),)), b.unsqueeze(0))

    for n in range(5):
        given = {name: p * (n + 1) for name, p in parameters.items()}
        found = vmap(grad(loss), (None, 0, 0))(given, x, y)
        expected = anew(lambda given=given: vmap(grad(loss), (None, 0, 0))(given, x, y))
        assert all(torch.equal(found[name], expected[name]) for name in parameters)
    assert remembers() == 1
    assert not any(v.requires_grad for v in found.values())


def test_gradients_of_a_step_inside_lead_to_the_parameters():
    net = Net()
    x, y = torch.randn(3, 5, 2), torch.randn(3, 5)

    def inner(parameters, x, y):
        return (functional_call(net, parameters, (x,)) - y).pow(2).mean()

    def task(parameters, x, y):
        steps = torch.func.grad(inner)(parameters, x, y)
        return inner({name: p - 0.1 * steps[name] for name, p in parameters.items()}, x, y)

    for _ in range(4):
        found = []
        for call in (lambda c: c(), anew):
            total = call(lambda: vmap(task, (None, 0, 0))(dict(net.named_parameters()), x, y)).mean()
            found.append(torch.autograd.grad(total, list(net.parameters())))
        assert all(map(torch.equal, *found))
    assert remembers() == 1


def test_what_checks_values_checks_them_each_time():
    table, labels = nn.Embedding(5, 3), torch.tensor([1, 2, 4])
    for _ in range(4):
        assert vmap(lambda i: table(i).sum())(labels).requires_grad
    assert remembers() == 1
    with pytest.raises(IndexError):
        vmap(lambda i: table(i).sum())(torch.tensor([1, 2, 9])).sum().item()


def test_a_parameter_that_is_written_to_before_backward_is_told():
    p, q = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    for _ in range(4):
        found = grad(lambda x: (x * x * (p * q)).sum())(torch.ones(2))
        with torch.no_grad():
            q.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found.sum().backward()
    assert remembers() == 1


def test_modes_hooks_and_attributes_are_as_they_are_at_the_call():
    net = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), Net.__new__(nn.Identity))
    net[2].__init__()
    x = torch.randn(3, 2)
    net.eval()
    for _ in range(4):
        expected = vmap(jacrev(net))(x)
    assert remembers() == 1 and torch.allclose(expected, net[0].weight.expand(3, 4, 2))
    net.train()
    seen = [vmap(jacrev(net), randomness="different")(x) for _ in range(4)]
    assert not torch.equal(seen[2], seen[3])
    net.eval()
    calls = []
    handle = net[0].register_forward_hook(lambda *args: calls.append(1))
    for _ in range(3):
        vmap(jacrev(net))(x)
    assert len(calls) == 3
    handle.remove()
    net[0] = nn.Linear(2, 4)
    assert torch.allclose(vmap(jacrev(net))(x), net[0].weight.expand(3, 4, 2))
    own = Net()
    for scale in (1.0, 2.0, 2.0, 2.0, 3.0):
        own.scale = scale
        assert torch.equal(vmap(own)(x), anew(lambda: vmap(own)(x)))
        assert torch.allclose(vmap(own)(x), own(x))
    own.scaled = lambda x: x * 0
    assert not vmap(own)(x).any()


def test_methods_of_a_class_are_as_they_are_at_the_call(monkeypatch):
    net, x = Net(), torch.randn(3, 2)
    for _ in range(4):
        vmap(net)(x)
    assert remembers() == 1
    monkeypatch.setattr(Net, "scaled", lambda self, x: x * 0)
    assert not vmap(net)(x).any()


def test_hooks_of_parameters_are_called_each_time():
    net, seen = Net(), []
    net.last.bias.register_hook(lambda g: seen.append(g.item()))
    for _ in range(4):
        vmap(net)(torch.ones(3, 2)).sum().backward()
    assert remembers() == 1 and seen == [6.0] * 4


class Counting(Net):
    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(x)


class Appending(Net):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(1)
        return Net.forward(self, x)


class Replacing(Net):
    def __init__(self):
        super().__init__()
        self.seen = [None]

    def forward(self, x):
        y = self.last(torch.tanh(self.first(x)))
        self.seen[0] = y
        return y.squeeze(-1)


class Called(Net):
    def __call__(self, x):
        return 2 * super().__call__(x)


class Printing(Net):
    def scaled(self, x):
        print("scaled")
        return x


def test_modules_that_change_something_are_called_each_time(capsys):
    x = torch.randn(3, 2)
    counting, appending, replacing = Counting(), Appending(), Replacing()
    for n in range(5):
        vmap(counting)(x)
        vmap(appending)(x)
        vmap(replacing)(x)
        assert counting.calls == len(appending.seen) == n + 1
    assert remembers() == 0
    assert reached((Printing(),)) is None and reached((Called(),)) is None and reached((Net(),)) is not None
    called = Called()
    assert torch.allclose(vmap(called)(x), 2 * vmap(called.forward)(x))
    for _ in range(4):
        vmap(Printing())(x)
    assert capsys.readouterr().out == "scaled\n" * 4


def test_statistics_of_a_batch_are_kept_each_time():
    norm = nn.BatchNorm1d(2)
    statistics = dict(norm.named_buffers())
    for n in range(4):
        grad(lambda s, x: functional_call(norm, s, (x,)).pow(3).sum(), 1)(statistics, torch.randn(6, 2))
        assert statistics["num_batches_tracked"].item() == n + 1


def test_lists_and_dicts_that_a_function_captures_are_as_they_are():
    weights, settings = [torch.tensor(2.0), torch.tensor(3.0)], {"scale": 2.0}

    def call(x):
        return x * x * weights[0] * weights[1] * settings["scale"]

    x = torch.tensor(1.0)
    for _ in range(4):
        assert grad(call)(x).item() == 24
    assert remembers() == 1
    settings["scale"] = 1.0
    weights[1] = torch.tensor(5.0)
    assert grad(call)(x).item() == 20
    kept = {}

    def keeps(x):
        kept["x"] = x * 1
        return x * x

    before = None
    for _ in range(4):
        grad(keeps)(torch.tensor(1.0))
        assert kept["x"] is not before
        before = kept["x"]


def test_without_a_graph_there_is_none():
    net, x = Net(), torch.randn(3, 2)
    for _ in range(4):
        with torch.no_grad():
            assert not vmap(jacrev(net))(x).requires_grad
        assert vmap(jacrev(net))(x).requires_grad
        with torch.inference_mode():
            assert not vmap(jacrev(net))(x).requires_grad
    net.requires_grad_(False)
    for _ in range(4):
        assert not vmap(jacrev(net))(x).requires_grad


def test_expanded_results_lie_in_memory_as_they_did():
    linear = nn.Linear(4, 1)
    parameters = {name: p.detach() for name, p in linear.named_parameters()}

    def single(parameters, a):
        return functional_call(linear, parameters, (a.unsqueeze(0),)).squeeze(0)

    x = torch.randn(3, 4)
    first = vmap(jacrev(single), (None, 0))(parameters, x)
    for _ in range(4):
        found = vmap(jacrev(single), (None, 0))(parameters, x)
        assert all(torch.equal(found[n], first[n]) and found[n].stride() == first[n].stride() for n in first)
    assert remembers() == 1


class Deeper(Net):
    def forward(self, x):
        if x.ndim > 2:
            raise ValueError("too many dimensions")
        return super().forward(x) + self.wave(x)

    def wave(self, x):
        return torch.sin(np.pi * x).sum(-1)


def test_methods_constants_of_numpy_and_inherited_code_are_reached(monkeypatch):
    net, x = Deeper(), torch.randn(3, 2)
    for call in (net, net.wave, lambda x: net.forward(x)):
        known = remembers()
        for _ in range(4):
            assert torch.equal(vmap(grad(call))(x), anew(lambda call=call: vmap(grad(call))(x)))
        assert remembers() == known + 1
    monkeypatch.setattr(Net, "scaled", lambda self, x: x * 0)
    assert torch.equal(vmap(net)(x), net.wave(x))
    with pytest.raises(ValueError, match="too many"):
        vmap(net)(torch.zeros(1, 1, 1, 1))


def test_numbers_that_numpy_draws_are_drawn_each_time():
    seen = [vmap(lambda x: x * float(np.random.rand()))(torch.ones(2))[0].item() for _ in range(5)]
    assert len(set(seen)) == 5


def test_objects_of_any_class_may_be_reached():
    class Unhashable:
        factor = 2.0
        __hash__ = None

    holder = Unhashable()
    for n in range(4):
        holder.factor = float(n)
        assert grad(lambda x: x * holder.factor)(torch.tensor(1.0)).item() == n


def test_a_list_that_is_written_to_and_put_back_stays_what_it_is():
    stack, table = [torch.tensor(2.0)], {"a": 1.0}

    def call(x):
        stack.append(x)
        table["b"] = x
        if x > 0:  # a look, of which a call that is only tried out knows nothing
            y = stack.pop() * table.pop("b")
        return y * stack[0]

    for _ in range(5):
        assert grad(call)(torch.tensor(3.0)).item() == 12
        assert len(stack) == 1 and list(table) == ["a"]
    assert remembers() == 0


def test_another_forward_of_a_class_of_the_librarys_is_called(monkeypatch):
    module, x = nn.Linear(2, 2), torch.ones(3, 2)
    f = vmap(lambda x: module(x))
    wanted = [f(x) for _ in range(4)][0].tolist()
    with monkeypatch.context() as patch:
        patch.setattr(nn.Linear, "forward", lambda self, x: x * 9)
        assert f(x).tolist() == [[9, 9]] * 3
    assert f(x).tolist() == wanted
