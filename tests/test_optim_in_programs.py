"""Optimizers of the users' own, and steps in what a program may be: compiled functions, several devices' worth of lists, loops with schedules."""

from __future__ import annotations

import importlib
import io
import math
import warnings

import pytest

import torchgrad_jax as tj
from tests.side_by_side import programs
from torchgrad_jax.runtime import modes

program, test_like_pytorch = programs()


def network(m):
    net = m.nn.Sequential(m.nn.Linear(4, 8), m.nn.Tanh(), m.nn.Linear(8, 2))
    with m.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_((m.arange(float(p.numel())).view_as(p) * 0.37 + i).sin() * 0.5)
    x = (m.arange(20.0).view(5, 4) * 0.3).cos()
    return net, lambda: ((net(x) - 1) ** 2).mean()


def trained(m, make, steps=4):
    net, loss = network(m)
    o = make(net.parameters())

    def closure():
        o.zero_grad()
        found = loss()
        found.backward()
        return found

    losses = [o.step(closure) for _ in range(steps)]
    state = [[sorted(s), [v.detach().clone() for v in s.values() if hasattr(v, "detach")]] for s in o.state.values()]
    return losses, [p.detach().clone() for p in net.parameters()], state


@program
def sharpness_aware(m):
    class SAM(m.optim.Optimizer):
        def __init__(self, params, base, rho=0.05, **settings):
            super().__init__(params, {"rho": rho, **settings})
            self.base = base(self.param_groups, **settings)
            self.param_groups = self.base.param_groups
            self.defaults.update(self.base.defaults)

        @m.no_grad()
        def first(self):
            grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
            norm = m.norm(m.stack([g.norm(p=2) for g in grads]), p=2)
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["old"] = p.data.clone()
                    p.add_(p.grad * (group["rho"] / (norm + 1e-12)).to(p))
            self.zero_grad()

        @m.no_grad()
        def step(self, closure=None):
            closure = m.enable_grad()(closure)
            found = closure()
            self.first()
            closure()
            for group in self.param_groups:
                for p in group["params"]:
                    p.data = self.state[p]["old"]
            self.base.step()
            return found

    return trained(m, lambda params: SAM(params, m.optim.SGD, lr=0.1, momentum=0.9))


@program
def layerwise_rates(m):
    class LARS(m.optim.SGD):
        def __init__(self, params, lr, trust=0.01, **settings):
            super().__init__(params, lr, **settings)
            self.trust = trust

        @m.no_grad()
        def step(self, closure=None):
            with m.enable_grad():
                found = closure()
            for group in self.param_groups:
                for p in group["params"]:
                    rate = self.trust * p.norm() / (p.grad.norm() + group["weight_decay"] * p.norm() + 1e-9)
                    p.grad.mul_(m.where(p.norm() > 0, rate, m.ones_like(rate)))
            super().step()
            return found

    return trained(m, lambda params: LARS(params, 0.5, momentum=0.9, weight_decay=0.01))


@program
def shampoo(m):
    class Shampoo(m.optim.Optimizer):
        def __init__(self, params, lr=0.1, epsilon=1e-3):
            super().__init__(params, dict(lr=lr, epsilon=epsilon))

        @m.no_grad()
        def step(self, closure=None):
            with m.enable_grad():
                found = closure()
            for group in self.param_groups:
                for p in group["params"]:
                    grad, state, order = p.grad, self.state[p], p.dim()
                    state["step"] = state.get("step", 0) + 1
                    for dim in range(order):
                        factor = state.setdefault(f"factor_{dim}", group["epsilon"] * m.eye(p.size(dim)))
                        flat = grad.transpose(0, dim).reshape(p.size(dim), -1)
                        factor.add_(flat @ flat.t())
                        values, vectors = m.linalg.eigh(factor)
                        root = vectors @ m.diag(values ** (-1 / (2 * order))) @ vectors.t()
                        grad = (root @ flat).view(grad.transpose(0, dim).shape).transpose(0, dim)
                    p.add_(grad, alpha=-group["lr"])
            return found

    losses, params, _ = trained(m, Shampoo, 2)
    return [round(loss.item(), 3) for loss in losses], [p.mul(100).round() for p in params]


@program
def lists(m):
    class Lion(m.optim.Optimizer):
        def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1):
            super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

        @m.no_grad()
        def step(self, closure=None):
            with m.enable_grad():
                found = closure()
            for group in self.param_groups:
                beta1, beta2 = group["betas"]
                params = [p for p in group["params"] if p.grad is not None]
                grads, means = [p.grad for p in params], [self.state[p].setdefault("exp_avg", m.zeros_like(p)) for p in params]
                m._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
                updates = m._foreach_mul(means, beta1)
                m._foreach_add_(updates, grads, alpha=1 - beta1)
                m._foreach_add_(params, m._foreach_sign(updates), alpha=-group["lr"])
                m._foreach_lerp_(means, grads, 1 - beta2)
            return found

    return trained(m, Lion)


@program
def written_like_pytorchs_own(m):
    own = importlib.import_module(f"{m.__name__}.optim.optimizer")

    class Plain(own.Optimizer):
        def __init__(self, params: own.ParamsT, lr=own.required, foreach=None):
            super().__init__(params, dict(lr=lr, foreach=foreach, differentiable=False))

        @own._use_grad_for_differentiable
        def step(self, closure=None):
            self._cuda_graph_capture_health_check()
            with m.enable_grad():
                found = closure()
            for group in self.param_groups:
                params = [p for p in group["params"] if p.grad is not None]
                grads, steps = [p.grad for p in params], [self.state[p].setdefault("step", m.tensor(0.0)) for p in params]
                assert own._default_to_fused_or_foreach(params, False) == (False, False)
                own._view_as_real(params, grads)
                groups = self._group_tensors_by_device_and_dtype([params, grads, steps], with_indices=True)
                for (device, dtype), ((ps, gs, ss), places) in groups.items():
                    assert device == params[0].device and dtype == params[0].dtype and places == list(range(len(params)))
                    for p, g, step in zip(ps, gs, ss):  # noqa: B905 - as in PyTorch's
                        step += 1
                        p.add_(g, alpha=-group["lr"] / own._get_value(step))
            return found

    return trained(m, lambda params: Plain(params, lr=0.1))


@program
def names_in_profiles(m):
    net, loss = network(m)
    o = m.optim.SGD(net.parameters(), lr=0.1)
    with m.profiler.profile() as profile:
        o.zero_grad()
        loss().backward()
        o.step()
    return sorted({e.key for e in profile.key_averages() if e.key.startswith("Optimizer")})


@program
def several_groups_and_later_ones(m):
    net, loss = network(m)
    first, last = net[0], net[2]
    o = m.optim.AdamW([{"params": first.parameters(), "lr": 0.1}, {"params": [last.weight], "weight_decay": 0.5}], lr=0.01)
    s = m.optim.lr_scheduler.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (e + 1)])
    found = []
    for i in range(5):
        if i == 2:
            o.add_param_group({"params": last.bias, "betas": (0.5, 0.5)})
        o.zero_grad()
        loss().backward()
        m.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        o.step()
        if i < 2:
            s.step()
        found.append([p.detach().clone() for p in net.parameters()])
    return found, [g["lr"] for g in o.param_groups]


@program
def parameters_in_other_orders_of_memory(m):
    net = m.nn.Conv2d(3, 4, 2)
    with m.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_((m.arange(float(p.numel())).view_as(p) + i).sin())
    net = net.to(memory_format=m.channels_last)
    x = (m.arange(54.0).view(2, 3, 3, 3) * 0.1).cos()
    o = m.optim.Adam(net.parameters(), lr=0.1)
    for _ in range(4):
        o.zero_grad()
        net(x).square().mean().backward()
        o.step()
    return [p.detach() for p in net.parameters()], net.weight.stride(), o.state[net.weight]["exp_avg"].stride()


RULES = {
    "SGD": {"momentum": 0.9}, "Adam": {}, "AdamW": {"amsgrad": True}, "NAdam": {}, "RAdam": {}, "ASGD": {}, "Rprop": {}, "Adafactor": {},
    "Adagrad": {"lr_decay": 0.1}, "RMSprop": {"centered": True},
}  # fmt: skip


@pytest.mark.operators
@pytest.mark.parametrize("name", RULES)
def test_a_step_in_a_compiled_function(name):
    def train(compiled):
        net, loss = network(tj)
        rate = tj.tensor(0.05)
        o = getattr(tj.optim, name)(net.parameters(), lr=rate, **RULES[name])

        def turn():
            o.zero_grad()
            found = loss()
            found.backward()
            o.step()
            return found

        run = tj.jit(turn) if compiled else turn
        losses = []
        for _ in range(7):
            losses.append(run().item())
            rate.mul_(0.9)
        return losses

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, expected = train(True), train(False)
    assert all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(found, expected, strict=True)), (found, expected)


@pytest.mark.skipif(modes.execution == "eager", reason="there everything is computed at once")
@pytest.mark.parametrize("name", RULES)
def test_a_warm_loop_records_one_operation_a_step_and_never_looks(name):
    net, loss = network(tj)
    o = getattr(tj.optim, name)(net.parameters(), lr=0.05, **RULES[name])
    s = tj.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=100, cycle_momentum=False)

    def train(turns):
        for _ in range(turns):
            o.zero_grad()
            loss().backward()
            o.step()
            s.step()

    train(12)
    with tj.explain() as report:
        train(8)
        next(net.parameters()).tolist()
    steps = [count for operator, count in report.data.recorded.items() if operator == f"{name}.step"]
    assert steps and steps[0] in (8, 9), report.data.recorded
    assert sum(f.times for f in report.flushes if f.reason == "look") <= 1, str(report)
    assert len([p for p in report.programs if p.compiled or sum(p.runs.values()) > 1]) <= 1, str(report)


def scheduled(compiled, asks):
    """The losses under a schedule, and how often the function's Python has run. asks: whether the user's code reads the learning rate."""
    net, loss = network(tj)
    o, ran = tj.optim.AdamW(net.parameters(), lr=0.1), io.StringIO()  # what is written to it is not watched
    s = tj.optim.lr_scheduler.ExponentialLR(o, 0.8)

    def turn():
        ran.write("x")
        o.zero_grad()
        found = loss()
        found.backward()
        o.step()
        return found

    def turn_and_tell():
        return turn(), o.param_groups[0]["lr"]

    function = turn_and_tell if asks else turn
    run = tj.jit(function) if compiled else function
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is traced in vain
        for _ in range(8):
            loss_and_rate = run()
            found.append((loss_and_rate[0].item(), loss_and_rate[1]) if asks else (loss_and_rate.item(), 0.0))
            s.step()
    return found, len(ran.getvalue())


@pytest.mark.operators
@pytest.mark.parametrize("asks", [False, True])
def test_a_schedule_changes_a_compiled_function_only_where_its_code_asks_for_the_learning_rate(asks):
    (found, ran), (expected, _) = scheduled(True, asks), scheduled(False, asks)
    for (a, rate), (b, other) in zip(found, expected, strict=True):
        assert math.isclose(a, b, rel_tol=1e-4) and rate == other, (found, expected)
    assert ran == 8 if asks else ran == 2  # the second time, since the first one has made the state


@pytest.mark.operators
def test_a_compiled_step_that_a_schedule_follows():
    def train(compiled):
        net, loss = network(tj)
        o = tj.optim.Adam(net.parameters(), lr=0.1)
        s = tj.optim.lr_scheduler.StepLR(o, 2)  # which puts a step in the place of the optimizer's
        step, losses = tj.compile(o.step) if compiled else o.step, []
        for _ in range(6):
            o.zero_grad()
            losses.append(loss())
            losses[-1].backward()
            step()
            s.step()
        return [found.item() for found in losses]

    assert train(True) == pytest.approx(train(False), rel=1e-4)
