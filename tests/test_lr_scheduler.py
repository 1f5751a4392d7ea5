"""Schedules of the learning rate: PyTorch's numbers, states, warnings and errors."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest

from tests.side_by_side import like_pytorch, programs, shown

pytestmark = pytest.mark.operators


class Decay:
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, epoch):
        return self.rate**epoch


SCHEDULES = {
    "LambdaLR": lambda L, o, **k: L.LambdaLR(o, lambda e: 0.9**e, **k),
    "LambdaLR of objects": lambda L, o, **k: L.LambdaLR(o, [Decay(0.5), Decay(0.9)], **k),
    "MultiplicativeLR": lambda L, o, **k: L.MultiplicativeLR(o, lambda e: 0.95, **k),
    "StepLR": lambda L, o, **k: L.StepLR(o, 3, **k), "MultiStepLR": lambda L, o, **k: L.MultiStepLR(o, [2, 5, 5, 17], **k),
    "ConstantLR": lambda L, o, **k: L.ConstantLR(o, **k), "LinearLR": lambda L, o, **k: L.LinearLR(o, end_factor=0.9, total_iters=7, **k),
    "ExponentialLR": lambda L, o, **k: L.ExponentialLR(o, 0.9, **k), "PolynomialLR": lambda L, o, **k: L.PolynomialLR(o, 8, 1.5, **k),
    "CosineAnnealingLR": lambda L, o, **k: L.CosineAnnealingLR(o, 7, 0.01, **k),
    "WarmRestarts": lambda L, o, **k: L.CosineAnnealingWarmRestarts(o, 4, **k),
    "WarmRestarts longer": lambda L, o, **k: L.CosineAnnealingWarmRestarts(o, 2, 2, 0.01, **k),
    "CyclicLR": lambda L, o, **k: L.CyclicLR(o, 0.1, [0.5, 0.7], 5, **k),
    "CyclicLR triangular2": lambda L, o, **k: L.CyclicLR(o, 0.1, 0.5, 5, 3, mode="triangular2", **k),
    "CyclicLR exp_range": lambda L, o, **k: L.CyclicLR(o, 0.1, 0.5, 4, mode="exp_range", gamma=0.9, cycle_momentum=False, **k),
    "CyclicLR of a function": lambda L, o, **k: L.CyclicLR(o, 0.1, 0.5, 4, scale_fn=Decay(0.8), scale_mode="iterations", **k),
    "OneCycleLR": lambda L, o, **k: L.OneCycleLR(o, [0.5, 0.7], total_steps=40, **k),
    "OneCycleLR three": lambda L, o, **k: L.OneCycleLR(o, 0.5, epochs=5, steps_per_epoch=8, three_phase=True, anneal_strategy="linear", **k),
}  # fmt: skip
OTHERS = {
    "SequentialLR": lambda L, o: L.SequentialLR(o, [L.ConstantLR(o), L.ExponentialLR(o, 0.9), L.StepLR(o, 2)], [3, 9]),
    "SequentialLR nested": lambda L, o: L.SequentialLR(
        o, [L.LinearLR(o), L.SequentialLR(o, [L.ExponentialLR(o, 0.9), L.CosineAnnealingLR(o, 5)], [4])], [3]
    ),
    "ChainedScheduler": lambda L, o: L.ChainedScheduler([L.ConstantLR(o), L.ExponentialLR(o, 0.9), L.CosineAnnealingLR(o, 6)], o),
}  # fmt: skip


def optimizer(m, lr=0.1, kind="SGD", **settings):
    groups = [{"params": [m.nn.Parameter(m.ones(2))]}, {"params": [m.nn.Parameter(m.ones(2))], "lr": 0.5 if isinstance(lr, float) else lr.clone()}]
    return getattr(m.optim, kind)(groups, lr=lr, **({"momentum": 0.9} if kind == "SGD" else {}), **settings)


def groups_of(o):
    return [{k: v for k, v in g.items() if k != "params"} for g in o.param_groups]


def outcome(m, o, s, steps=30):
    found = [s.get_last_lr(), shown(s.state_dict()), shown(groups_of(o))]
    for _ in range(steps):
        o.step()
        s.step()
        found.append([s.get_last_lr(), shown(groups_of(o))])
    return found, shown(s.state_dict())


@pytest.mark.parametrize("name", [*SCHEDULES, *OTHERS])
def test_thirty_steps(name):
    make = {**SCHEDULES, **OTHERS}[name]

    def program(m):
        o = optimizer(m)
        return outcome(m, o, make(m.optim.lr_scheduler, o))

    like_pytorch(program)()


@pytest.mark.parametrize("name", [name for name in SCHEDULES if "Cycl" in name])
def test_cycles_of_adam(name):
    def program(m):
        o = optimizer(m, kind="Adam")
        return outcome(m, o, SCHEDULES[name](m.optim.lr_scheduler, o), 12)

    like_pytorch(program)()


@pytest.mark.parametrize("epoch", [0, 3, 6])
@pytest.mark.parametrize("name", SCHEDULES)
def test_going_on_from_an_epoch(name, epoch):
    def program(m):
        o = optimizer(m)
        for g in o.param_groups:
            g.update(initial_lr=g["lr"], max_lr=0.5, min_lr=0.01, max_momentum=0.9, base_momentum=0.8)
        return outcome(m, o, SCHEDULES[name](m.optim.lr_scheduler, o, last_epoch=epoch), 8)

    like_pytorch(program)()


@pytest.mark.parametrize("name", SCHEDULES)
def test_epochs_that_are_named_and_rates_that_are_asked_for(name):
    def program(m):
        o = optimizer(m)
        s = SCHEDULES[name](m.optim.lr_scheduler, o)
        found = [s.get_lr()]
        for epoch in (5, 2, 9, 0):
            o.step()
            s.step(epoch)
            found.append([s.get_last_lr(), s.last_epoch])
        return found

    like_pytorch(program)()


@pytest.mark.parametrize("name", [*SCHEDULES, *OTHERS])
def test_learning_rates_that_are_tensors(name):
    make = {**SCHEDULES, **OTHERS}[name]

    def program(m):
        lr = m.tensor(0.1)
        o = optimizer(m, lr)
        s = make(m.optim.lr_scheduler, o)
        found = []
        for _ in range(6):
            o.param_groups[0]["params"][0].grad = m.ones(2)
            o.step()
            s.step()
            found.append([s.get_last_lr(), o.param_groups[0]["lr"] is lr, lr.clone()])
        return found, o.param_groups[0]["params"][0].detach()

    like_pytorch(program)()


@pytest.mark.parametrize("name", [*SCHEDULES, *OTHERS])
def test_states_are_loaded(name):
    make = {**SCHEDULES, **OTHERS}[name]

    def program(m):
        L, o = m.optim.lr_scheduler, optimizer(m)
        s = make(L, o)
        for _ in range(5):
            o.step()
            s.step()
        o2 = optimizer(m)
        s2 = make(L, o2)
        s2.load_state_dict(copy.deepcopy(s.state_dict()))
        o2.load_state_dict(o.state_dict())
        o2.step()
        s2.step()
        return shown(s2.state_dict()), s2.get_last_lr(), shown(groups_of(o2))

    like_pytorch(program)()


@pytest.mark.parametrize("name", [name for name in SCHEDULES if not name.startswith(("LambdaLR", "Multiplicative"))])
def test_schedules_go_on_from_their_pickles(name):
    def program(m):
        s = SCHEDULES[name](m.optim.lr_scheduler, optimizer(m))
        for _ in range(5):
            s.optimizer.step()
            s.step()
        twin = pickle.loads(pickle.dumps(s))
        twin.optimizer.step()
        twin.step()
        return shown(twin.state_dict()), twin.get_last_lr(), s.get_last_lr(), shown(groups_of(twin.optimizer))

    like_pytorch(program)()


def raised(f):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            f()
        except Exception as error:
            return type(error).__name__, str(error)


program, test_like_pytorch = programs()


@program
def plateaus(m):
    found = []
    for settings in ({"patience": 1}, {"mode": "max", "threshold_mode": "abs", "threshold": 0.1, "patience": 0, "cooldown": 2},
                     {"mode": "max", "patience": 0, "min_lr": [0.05, 0.1]}, {"threshold_mode": "abs", "patience": 0, "eps": 0.02}):  # fmt: skip
        o = optimizer(m)
        s = m.optim.lr_scheduler.ReduceLROnPlateau(o, **settings)
        for measure in (1, 1.0, 1, 1.05, 1.2, 0.5, 0.5, 0.5, float("nan"), m.tensor(0.4), 0.4, 0.4):
            s.step(measure)
            found.append([s.get_last_lr(), s.num_bad_epochs, s.cooldown_counter, s.in_cooldown])
        twin = m.optim.lr_scheduler.ReduceLROnPlateau(o)
        twin.load_state_dict(s.state_dict())
        twin.step(3, epoch=7)
        found += [shown(s.state_dict()), shown(twin.state_dict())]
    o.add_param_group({"params": m.nn.Parameter(m.ones(1))})
    return found, raised(lambda: [s.step(-9.0) for _ in range(4)])


@program
def groups_that_come_and_go(m):
    found, L = [], m.optim.lr_scheduler
    for schedule in (lambda o: L.LambdaLR(o, lambda e: 1 / (1 + e)), lambda o: L.CosineAnnealingWarmRestarts(o, 3),
                     lambda o: L.CyclicLR(o, 0.01, 0.1, step_size_up=2), lambda o: L.StepLR(o, 2)):  # fmt: skip
        for change in (lambda o: o.add_param_group({"params": m.nn.Parameter(m.ones(1))}), lambda o: o.param_groups.pop()):
            o = optimizer(m)
            s = schedule(o)
            o.step()
            s.step()
            change(o)
            found += [raised(s.step), raised(s.step), s.get_last_lr(), [[g["lr"], g["momentum"]] for g in o.param_groups]]
    return found


@program
def parts_of_epochs(m):
    s = m.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer(m), 2, T_mult=2, eta_min=0.01)
    found = []
    for epoch in (0.1, 0.5, 2.5, 7.25, 1, 0, 13):
        s.step(epoch)
        found.append([s.get_last_lr(), s.T_cur, s.T_i, s.last_epoch])
    return found, raised(lambda: s.step(-1))


@program
def what_comes_in_the_wrong_order(m):
    o = optimizer(m)
    s = m.optim.lr_scheduler.StepLR(o, 3)
    s.step()
    o.step()
    s.step()
    o = optimizer(m)
    s = m.optim.lr_scheduler.StepLR(o, 3)
    o.step = lambda: None
    s.step()


@program
def what_is_refused(m):
    L, new = m.optim.lr_scheduler, lambda: optimizer(m)
    plain = lambda: m.optim.Adagrad([m.nn.Parameter(m.ones(1))])  # noqa: E731

    def late():
        o = new()
        s = L.OneCycleLR(o, 0.5, total_steps=3)
        for _ in range(5):
            s.step()

    def of(kind, *others):
        o = new()
        return kind(o, [L.ConstantLR(o), *[x(o) for x in others]], [1])

    calls = [
        lambda: L.StepLR(3, 3), lambda: L.LambdaLR(new(), [lambda e: 1]), lambda: L.MultiplicativeLR(new(), [lambda e: 1] * 3),
        lambda: L.ConstantLR(new(), factor=2), lambda: L.ConstantLR(new(), factor=-0.1), lambda: L.LinearLR(new(), start_factor=0),
        lambda: L.LinearLR(new(), start_factor=2), lambda: L.LinearLR(new(), end_factor=2), lambda: L.LinearLR(new(), end_factor=-1),
        lambda: L.CosineAnnealingWarmRestarts(new(), 0), lambda: L.CosineAnnealingWarmRestarts(new(), 1.5),
        lambda: L.CosineAnnealingWarmRestarts(new(), 2, T_mult=0), lambda: L.CosineAnnealingWarmRestarts(new(), 2, eta_min="x"),
        lambda: L.CyclicLR(new(), 0.1, 0.5, mode="x"), lambda: L.CyclicLR(new(), [0.1], 0.5), lambda: L.CyclicLR(plain(), 0.1, 0.5),
        lambda: L.CyclicLR(new(), 0.1, 0.5, base_momentum=[0.1]), lambda: L.CyclicLR(3, 0.1, 0.5), lambda: L.OneCycleLR(new(), 0.5),
        lambda: L.OneCycleLR(new(), 0.5, total_steps=0), lambda: L.OneCycleLR(new(), 0.5, total_steps=1.5),
        lambda: L.OneCycleLR(new(), 0.5, epochs=0, steps_per_epoch=1), lambda: L.OneCycleLR(new(), 0.5, epochs=1, steps_per_epoch=0),
        lambda: L.OneCycleLR(new(), 0.5, epochs=1), lambda: L.OneCycleLR(new(), 0.5, total_steps=5, pct_start=2),
        lambda: L.OneCycleLR(new(), 0.5, total_steps=5, pct_start=1), lambda: L.OneCycleLR(new(), 0.5, total_steps=5, anneal_strategy="x"),
        lambda: L.OneCycleLR(new(), [0.5], total_steps=5), lambda: L.OneCycleLR(plain(), 0.5, total_steps=5),
        lambda: L.OneCycleLR(3, 0.5, total_steps=5), late, lambda: of(L.SequentialLR), lambda: L.SequentialLR(new(), [], [1]),
        lambda: of(L.SequentialLR, lambda o: L.ConstantLR(new())), lambda: of(L.SequentialLR, L.ReduceLROnPlateau),
        lambda: of(L.SequentialLR, lambda o: 3), lambda: L.ChainedScheduler([]), lambda: L.ChainedScheduler([L.ConstantLR(new())], new()),
        lambda: of(lambda o, ss, _: L.ChainedScheduler(ss), lambda o: 3), lambda: of(lambda o, ss, _: L.ChainedScheduler(ss), L.ReduceLROnPlateau),
        lambda: L.ChainedScheduler([3]), lambda: L.ReduceLROnPlateau(new(), factor=1), lambda: L.ReduceLROnPlateau(new(), mode="x"),
        lambda: L.ReduceLROnPlateau(new(), threshold_mode="x"), lambda: L.ReduceLROnPlateau(new(), min_lr=[0.1]), lambda: L.ReduceLROnPlateau(3),
        lambda: L.LRScheduler(new()), *[lambda make=make: make(L, new(), last_epoch=3) for make in SCHEDULES.values()],
    ]  # fmt: skip
    return [raised(call) for call in calls]


@program
def schedules_of_the_users(m):
    class Warm(m.optim.lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base * min(1.0, (self.last_epoch + 1) / 4) for base in self.base_lrs]

    class Old(m.optim.lr_scheduler._LRScheduler):
        def get_lr(self):
            return [group["lr"] * 0.5 for group in self.optimizer.param_groups]

    found = []
    for kind in (Warm, Old):
        o = optimizer(m)
        found.append(outcome(m, o, kind(o), 5))
    return found


@program
def a_tensor_given_as_base_lr_is_not_written_to(m):
    base = m.tensor(0.03)
    optimizer = m.optim.SGD([m.nn.Parameter(m.ones(2))], lr=0.1)
    scheduler = m.optim.lr_scheduler.CyclicLR(optimizer, base, 0.1, 2, cycle_momentum=False)
    found = []
    for _ in range(4):
        optimizer.step()
        scheduler.step()
        found.append(float(scheduler.get_last_lr()[0]))
    return [base, found]
