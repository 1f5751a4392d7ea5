"""torch.amp.GradScaler: the scale, steps that are left out, its errors in PyTorch's words, its state."""

from __future__ import annotations

import copy
import pickle

import pytest
from side_by_side import programs

import torchgrad_jax as tj

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.operators
program, test_like_pytorch = programs()


class Optimizer:
    """One that notes its steps, and what they found."""

    def __init__(self, *parameters, **attributes):
        self.param_groups = [{"params": list(parameters)}]
        self.steps = []
        self.__dict__.update(attributes)

    def step(self, *args, **kwargs):
        given = [getattr(self, name, "not there") for name in ("grad_scale", "found_inf")]
        self.steps.append([list(args), sorted(kwargs), given])
        return "stepped"


class OlderOptimizer(Optimizer):
    def step(self, closure=None, grad_scaler=None):
        self.steps.append(type(grad_scaler).__name__)


def parameter(m, grad=None, dtype="float32"):
    made = m.nn.Parameter(m.ones(2, dtype=getattr(m, dtype)))
    made.grad = None if grad is None else m.full((2,), float(grad), dtype=getattr(m, dtype))
    return made


def scaler(m, **options):
    """A scaler that has scaled a loss."""
    made = m.amp.GradScaler("cpu", **{"init_scale": 8.0, "growth_interval": 2, **options})
    made.scale(m.ones(1))
    return made


def state(s):
    return list(s.state_dict().items())


# ---------------------------------------------------------------------- one iteration


@program
def losses_are_scaled_each_in_its_own_container(m):
    s = m.amp.GradScaler("cpu", init_scale=8.0)
    x = m.ones(2, requires_grad=True)
    y = s.scale(x.sum())
    y.backward()
    lazily = list(s.scale(x * i for i in range(2)))
    return y, x.grad, s.scale([x, (x, x)]), lazily, s.scale(m.ones(1, dtype=m.bfloat16)), s.scale(m.ones((), dtype=m.bfloat16))


@program
def steps_unscale_and_grow_the_scale(m):
    s, found = scaler(m), []
    for _ in range(5):
        p = parameter(m, 16.0)
        optimizer = Optimizer(p)
        found.append([s.step(optimizer, 1, a=2), optimizer.steps, p.grad])
        s.update()
        found.append(state(s))
    return found


@pytest.mark.parametrize("bad", ["inf", "-inf", "nan"])
def test_steps_with_gradients_that_are_not_finite_are_left_out(bad):
    found = []
    for m in (tj, torch):
        s, good = scaler(m), Optimizer(parameter(m, 16.0))
        optimizer = Optimizer(parameter(m, 1.0), parameter(m, bad), parameter(m))
        both = [s.step(optimizer), s.step(good), optimizer.steps, good.steps]
        s.update()
        s.step(good)
        s.update()
        found.append((both, state(s), [p.grad.tolist() for p in good.param_groups[0]["params"]]))
    assert found[0] == found[1] and found[0][0][0] is None and found[0][1][0] == ("scale", 4.0)


@program
def gradients_that_were_unscaled_are_not_again(m):
    s, p = scaler(m), parameter(m, 16.0)
    optimizer = Optimizer(p)
    s.unscale_(optimizer)
    before = p.grad.clone()
    return before, s.step(optimizer), p.grad


@program
def gradients_of_several_dtypes_are_unscaled(m):
    s = scaler(m)
    given = [parameter(m, 1.001, dtype) for dtype in ("float32", "float64", "bfloat16")]
    s.unscale_(Optimizer(*given))
    return [p.grad for p in given]


@program
def an_optimizer_that_scales_itself_is_given_the_scale(m):
    s, p = scaler(m), parameter(m, 16.0)
    optimizer = Optimizer(p, _step_supports_amp_scaling=True)
    found = [s.step(optimizer), optimizer.steps, p.grad, hasattr(optimizer, "grad_scale")]
    s.update()
    unscaled = Optimizer(p, _step_supports_amp_scaling=True)
    s.unscale_(unscaled)
    return [*found, s.step(unscaled), unscaled.steps, state(s)]


@program
def an_older_optimizer_that_scales_itself_is_given_the_scaler(m):
    optimizer = OlderOptimizer(parameter(m, 16.0), _step_supports_amp_scaling=True)
    return scaler(m).step(optimizer), optimizer.steps


@program
def a_scale_does_not_become_infinite(m):
    s, found = scaler(m, init_scale=3e38, growth_interval=1), []
    for _ in range(2):
        s.step(Optimizer(parameter(m, 1.0)))
        s.update()
        found.append(state(s))
    return found


@program
def the_scale_can_be_set(m):
    s = scaler(m)
    found = [s.get_scale()]
    for new in (3.0, m.tensor(5.0), 7.0):
        s.update(new)
        found.append(s.get_scale())
    s.set_growth_factor(3.0)
    s.set_backoff_factor(0.1)
    s.set_growth_interval(7)
    return [*found, s.get_growth_factor(), s.get_backoff_factor(), s.get_growth_interval(), state(s), s.is_enabled()]


@program
def what_it_is_made_of(m):
    scale, tracker, found_inf = m.tensor(4.0), m.tensor(1, dtype=m.int32), m.zeros(1)
    tensors = [m.tensor([1.0, 2.0]), m.tensor([float("inf")])]
    m._amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, m.tensor(0.5))
    m._amp_foreach_non_finite_check_and_unscale_([m.ones(1)], found_inf, m.tensor([0.5]))
    same = m._amp_update_scale_(scale, tracker, m.zeros(1), 2.0, 0.5, 2) is scale
    return tensors, found_inf, scale, tracker, same, m._amp_update_scale_(scale, tracker, found_inf, 2.0, 0.5, 2)


# ---------------------------------------------------------------------- what is wrong

WRONG = """
m.amp.GradScaler("cpu", growth_factor=1.0); m.amp.GradScaler("cpu", backoff_factor=1.0); s.scale(3); s.scale([3]); s.update();
s.update(m.ones(2)); s.update(m.ones(1));
s.update(m.ones(1, requires_grad=True)); s.step(Optimizer(parameter(m))); s.step(Optimizer(parameter(m, 1)), closure=len);
(s.step(o), s.step(o)); (s.step(o), s.unscale_(o)); (s.unscale_(o), s.unscale_(o)); s.unscale_(Optimizer(parameter(m, 1, "float16")));
new.step(o); new.unscale_(o); new.update(); s.load_state_dict({}); (s.step(o), pickle.dumps(s));
m._amp_update_scale_(m.ones(2), m.ones(1, dtype=m.int32), m.ones(1), 2.0, 0.5, 2);
m._amp_update_scale_(m.ones(1), m.ones(1), m.ones(1), 2.0, 0.5, 2);
m._amp_foreach_non_finite_check_and_unscale_([m.ones(2)], m.zeros(2), m.ones(1));
m._amp_foreach_non_finite_check_and_unscale_([m.ones(2, dtype=m.int64)], m.zeros(1), m.ones(1))
"""


@pytest.mark.parametrize("call", [call.strip() for call in WRONG.split(";")])
def test_what_is_wrong_is_told_in_pytorchs_words(call):
    told = []
    for m in (tj, torch):
        names = {"m": m, "s": scaler(m), "o": Optimizer(parameter(m, 1.0)), "new": m.amp.GradScaler("cpu")}
        with pytest.raises((AssertionError, RuntimeError, ValueError)) as error:
            eval(call, globals() | names)
        told.append((error.type.__name__, str(error.value)))
    assert told[0] == told[1]


# ---------------------------------------------------------------------- its state


@program
def states_are_loaded_before_and_after_the_first_loss(m):
    saved = {"scale": 3.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 7, "_growth_tracker": 2}
    fresh, used = m.amp.GradScaler("cpu"), scaler(m)
    for s in (fresh, used):
        s.load_state_dict(saved)
    return [state(s) for s in (fresh, used, pickle.loads(pickle.dumps(used)), copy.deepcopy(fresh))], fresh.scale(m.ones(1)), used.scale(m.ones(1))


@program
def one_that_is_off_hands_everything_on(m):
    s, optimizer = m.amp.GradScaler("cpu", enabled=False), Optimizer()
    s.unscale_(optimizer)
    s.update()
    s.load_state_dict({"scale": 3.0})
    return s.scale("loss"), s.step(optimizer, 1), optimizer.steps, s.get_scale(), s.state_dict(), s.is_enabled()


@program
def training_with_it_leaves_steps_out_and_goes_on(m):
    w = m.linspace(-1, 1, 4).reshape(2, 2).requires_grad_()
    x, s, found = m.linspace(1, 2, 6).reshape(3, 2), m.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=3), []

    class Descent(Optimizer):
        def step(self):
            with m.no_grad():
                w.sub_(w.grad, alpha=0.01)

    optimizer = Descent(w)
    for _ in range(12):
        w.grad = None
        with m.autocast("cpu", dtype=m.bfloat16):
            loss = (m.nn.functional.linear(x, w).float() ** 2).mean()
        s.scale(loss).backward()
        s.step(optimizer)
        s.update()
        found.append(s.get_scale())
    return found, w.detach().mul(100).round()
