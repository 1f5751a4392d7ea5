"""Averages of models, norms of gradients, and optimizers on other parameters: like PyTorch's."""

from __future__ import annotations

import pytest

import torchgrad_jax as tj
from tests.side_by_side import programs, shown
from torchgrad_jax.runtime import modes

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


def raised(f):
    try:
        f()
    except Exception as error:
        return type(error).__name__, str(error)


def model(m):
    net = m.nn.Sequential(m.nn.Linear(2, 3), m.nn.BatchNorm1d(3))
    with m.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(m.arange(float(p.numel())).view_as(p) * 0.1 + i)
    return net


def changed(m, net):
    with m.no_grad():
        for p in net.parameters():
            p.mul_(0.7).add_(0.1)
        net[1].running_mean.add_(1.0)
    return net


@program
def averages(m):
    S, found = m.optim.swa_utils, []
    for settings in ({}, {"avg_fn": S.get_swa_avg_fn()}, {"avg_fn": S.get_ema_avg_fn(0.6)}, {"multi_avg_fn": S.get_ema_multi_avg_fn(0.6)},
                     {"multi_avg_fn": S.get_swa_multi_avg_fn()}, {"use_buffers": True}, {"avg_fn": lambda a, p, n: a + p * n}):  # fmt: skip
        net = model(m)
        average = S.AveragedModel(net, **settings)
        for _ in range(4):
            average.update_parameters(changed(m, net))
        found.append([[t.detach() for t in (*average.parameters(), *average.buffers())], average.eval()(m.ones(2, 2)).detach()])
        twin = S.AveragedModel(net)
        twin.load_state_dict(average.state_dict())
        twin.update_parameters(net)
        found.append([list(twin.state_dict()), twin.n_averaged, repr(twin)])
    return found


@program
def statistics_of_all_batches(m):
    net = model(m)
    batches = [m.arange(6.0).view(3, 2) * k for k in (1, 2, 3)]
    m.optim.swa_utils.update_bn([[b, None] if b is batches[0] else b for b in batches], net.eval())
    m.optim.swa_utils.update_bn(batches, m.nn.Linear(2, 3))
    return net[1].running_mean, net[1].running_var, net[1].num_batches_tracked, net[1].momentum, net.training


@program
def annealing_to_a_constant(m):
    found = []
    for settings in ({}, {"anneal_strategy": "linear", "anneal_epochs": 3}, {"anneal_epochs": 0}):
        o = m.optim.SGD([{"params": [m.nn.Parameter(m.ones(2))]}, {"params": [m.nn.Parameter(m.ones(2))], "lr": 0.5}], lr=0.1)
        s = m.optim.swa_utils.SWALR(o, [0.05, 0.2], **settings)
        for _ in range(14):
            o.step()
            s.step()
            found.append(s.get_last_lr())
        found.append(shown(s.state_dict()))
    return found


@program
def what_is_refused(m):
    S = m.optim.swa_utils
    o = m.optim.SGD([m.nn.Parameter(m.ones(2))])
    calls = [
        lambda: S.SWALR(o, [0.1, 0.1]), lambda: S.SWALR(o, 0.1, anneal_strategy="x"), lambda: S.SWALR(o, 0.1, anneal_epochs=-1),
        lambda: S.SWALR(o, 0.1, anneal_epochs=1.5), lambda: S.SWALR(3, 0.1), lambda: S.get_ema_avg_fn(1.5), lambda: S.get_ema_multi_avg_fn(-1),
        lambda: S.AveragedModel(model(m), avg_fn=lambda a, b, c: a, multi_avg_fn=lambda a, b, c: None),
    ]  # fmt: skip
    return [raised(call) for call in calls]


def with_grads(m, dtype="float32"):
    p, q = m.nn.Parameter(m.tensor([3.0, 4.0])), m.nn.Parameter(m.tensor([12.0], dtype=getattr(m, dtype)))
    p.grad, q.grad = p.detach().clone(), q.detach().clone()
    return [p, q, m.nn.Parameter(m.ones(2))]


@program
def norms_of_gradients(m):
    U, found = m.nn.utils, []
    for settings in ({}, {"norm_type": 1}, {"norm_type": "inf"}, {"norm_type": 3.5, "foreach": True}, {"error_if_nonfinite": True}):
        params = with_grads(m)
        norm = U.clip_grad_norm_(iter(params), 1.0, **settings)
        found.append([norm, [p.grad for p in params], U.clip_grad_norm_(params[0], 9)])
    params = with_grads(m, "bfloat16")
    found += [U.clip_grad_norm_(params, 1.0), [p.grad for p in params]]
    params[0].grad.fill_(float("nan"))
    found += [raised(lambda: U.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)), U.clip_grad_norm(params, 1.0), params[1].grad]
    found += [U.get_total_norm([]), U.clip_grad_norm_(params[2:], 1.0), U.get_total_norm(m.tensor([3.0, 4.0])), U.get_total_norm(with_grads(m), 1)]
    params = with_grads(m)
    U.clip_grads_with_norm_(params, 2.0, m.tensor(4.0))
    found.append([p.grad for p in params])
    U.clip_grad_value_(params, 1)
    return found, [p.grad for p in params]


@program
def parameters_as_a_vector(m):
    U, params = m.nn.utils, with_grads(m)
    vector = U.parameters_to_vector(params)
    vector.sum().backward()
    U.vector_to_parameters(m.arange(5.0), params)
    refused = [
        raised(call) for call in (
            lambda: U.parameters_to_vector([]), lambda: U.vector_to_parameters([1], params), lambda: U.vector_to_parameters(m.ones(2), params)
        )
    ]  # fmt: skip
    found = [p.detach().clone() for p in params]
    whole = m.zeros(5)
    U.vector_to_parameters(whole, params)
    whole.add_(7.0)
    return vector.detach(), [p.grad for p in params], found, [p.detach() for p in params], [p.is_leaf for p in params], refused


@program
def other_parameters_for_a_while(m):
    params = with_grads(m)[:2]
    o = m.optim.Adam(params)
    swap = m.optim.swap_in_optimizer_params_and_state

    def step(given, state):
        with swap(o, given, state):
            for p in o.param_groups[0]["params"]:
                p.grad = m.ones_like(p)
            o.step()

    found = [raised(lambda: step({"a": m.ones(2), "b": m.ones(1)}, o.state_dict()))]
    o.step()
    a, b, state = m.ones(2) * 3, m.ones(1) * 5, o.state_dict()
    step({"a": a, "b": b}, state)
    found += [raised(lambda: step({"a": a}, state)), raised(lambda: step({"a": a, "b": b}, {"state": {}, "param_groups": []}))]
    step({"a": a, "b": b}, {"state": {}, "param_groups": state["param_groups"]})
    return found, a, b, [p.detach() for p in params], o.state_dict()["state"][0]["step"], state["state"][0]["exp_avg"]


@pytest.mark.skipif(modes.execution == "eager", reason="there everything is computed at once")
@pytest.mark.parametrize("kind", ["norm", "value"])
def test_clipping_looks_at_nothing(kind):
    params = [tj.nn.Parameter(tj.ones(3)) for _ in range(3)]
    with tj.explain() as report:
        for p in params:
            p.grad = p.detach() * 2
        tj.nn.utils.clip_grad_norm_(params, 1.0) if kind == "norm" else tj.nn.utils.clip_grad_value_(params, 1.0)
    assert not report.flushes
