"""`jit`: what a compiled function returns and changes is what the function itself returns and changes, call after call."""

import copy
import faulthandler
import functools
import os
import pickle

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.nn import functional as F
from torchgrad_jax.runtime import baseline_tier

pytestmark = pytest.mark.operators  # of programs: in eager mode there are none


def tensor(*shape, grad=False, seed=0, scale=1.0):
    t = torch.tensor((np.random.RandomState(seed + sum(shape)).randn(*shape) * scale).astype(np.float32))
    return t.requires_grad_() if grad else t


class World:
    """Tensors that a program reads and changes, alike in each World."""

    def __init__(self):
        self.x, self.y = tensor(3, 4), tensor(3, 4, seed=1)
        self.w, self.b = tensor(4, 4, grad=True, seed=2), tensor(4, grad=True, seed=3)
        self.buffer = tensor(4, seed=4)
        self.labels = torch.tensor([0, 3, 1])
        self.ws = [tensor(4, 4, grad=True, seed=i, scale=0.5) for i in range(3)]
        self.log = []

    def state(self):
        found = {}
        for name, t in [*vars(self).items(), *((f"ws{i}", t) for i, t in enumerate(self.ws))]:
            if isinstance(t, torch.Tensor):
                grad = None if t.grad is None else t.grad.tolist()
                found[name] = (t.tolist(), grad, t.requires_grad, t._version, t.is_leaf)
        return found


def close(a, b):
    if isinstance(a, torch.Tensor):
        assert isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad
        assert a.stride() == b.stride()
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-5, atol=1e-6)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for k in a:
            close(a[k], b[k])
    elif isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            close(x, y)
    elif isinstance(a, float):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    else:
        assert a == b


PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


@program
def value(v):
    return torch.tanh(v.x @ v.w.detach()) + v.buffer


@program
def several_results(v):
    return {"b": v.x + 1, "a": (v.y * 2, [v.x.sum(), 3, "word", None, 1.5])}


@program
def training_step(v):
    loss = (torch.tanh(v.x @ v.w + v.b) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        for p in (v.w, v.b):
            p.sub_(0.1 * p.grad)
            p.grad = None
    return loss.detach()


@program
def gradients_accumulate(v):
    ((v.x @ v.w) ** 2).sum().backward()


@program
def gradients_are_zeroed(v):
    if v.w.grad is not None:
        v.w.grad.zero_()
    (v.x @ v.w).sum().backward()


@program
def gradients_are_left(v):
    v.w.grad = v.b.grad = None
    loss = (v.x @ v.w + v.b).tanh().sum()
    loss.backward()
    return loss.detach()


@program
def the_loss_itself(v):
    v.w.grad = None
    h = v.x @ v.w
    loss = (h**2).sum()
    loss.backward()
    return loss, h, v.w.tanh()


@program
def momentum(v):
    v.w.grad = None
    (v.x @ v.w).tanh().sum().backward()
    with torch.no_grad():
        v.buffer.mul_(0.9).add_(v.w.grad.sum(0), alpha=0.1)
        v.w -= 0.01 * v.w.grad * v.buffer


@program
def written_by_data(v):
    v.w.grad = None
    (v.x @ v.w).tanh().sum().backward()
    v.w.data.add_(v.w.grad, alpha=-0.1)


@program
def gradient_of_a_gradient(v):
    x = v.x.detach().requires_grad_()
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad((g * g).sum(), x)
    return g.detach(), h


@program
def written_through_a_view(v):
    v.x[0].mul_(2)
    v.x[:, 1] = v.y[:, 2]
    v.x.t()[3].add_(1)
    return v.x.sum()


@program
def written_twice(v):
    v.buffer.add_(1)
    v.buffer.mul_(0.5)


@program
def differentiable_result(v):
    return torch.tanh(v.x @ v.w + v.b)


@program
def several_differentiable_results(v):
    h = v.x @ v.w
    return h.sum(), h.tanh(), h.detach() * 2


@program
def transposed_result(v):
    return (v.x * 2).t()


@program
def the_captured_tensor_itself(v):
    return v.x, v.w


@program
def hooks_on_the_way(v):
    h = v.x @ v.w
    h.register_hook(lambda g: g * 0.5)
    h.tanh().sum().backward()


@program
def cross_entropy(v):
    v.w.grad = None
    loss = F.cross_entropy(v.x @ v.w, v.labels)
    loss.backward()
    return loss.detach()


@program
def embedding(v):
    return F.embedding(v.labels, v.w.detach())


@program
def random_numbers(v):
    return torch.rand(3), F.dropout(v.x, 0.5), torch.randn(2, 2), torch.randint(0, 9, (4,)), torch.randperm(5), v.x.clone().normal_()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x  # not the derivative of x * x: whose backward runs can be seen


@program
def own_function(v):
    v.w.grad = None
    Square.apply(v.x @ v.w).sum().backward()


@program
def own_function_differentiable(v):
    return Square.apply(v.w)


@program
def a_loop_over_parameters(v):
    h = v.x
    for w in v.ws:
        h = torch.tanh(h @ w)
    loss = (h**2).mean()
    loss.backward()
    with torch.no_grad():
        for w in v.ws:
            w -= 0.1 * w.grad
            w.grad = None
    return loss.detach()


@program
def constants_within(v):
    return v.x * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.arange(4) + torch.ones(40, 4)[:3]


@program
def nothing_at_all(v):
    return None


@program
def a_leaf_is_made(v):
    z = torch.zeros(3, requires_grad=True)
    (z * 2).sum().backward()
    return z


@program
def batch_statistics(v):
    return F.batch_norm(v.x, v.buffer, v.buffer.abs(), training=True)


@program
def in_inference_mode(v):
    with torch.inference_mode():
        z = v.x * 2
    return z.clone()


@program
def complex_numbers(v):
    z = torch.complex(v.x, v.y)
    return z, z.abs().sum(), torch.view_as_real(z).sum()


@program
def double_numbers(v):
    return v.x.double().exp(), v.labels * 3, v.x > 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_and_not_are_the_same(name):
    f = PROGRAMS[name]
    a, b = World(), World()
    compiled = torch.jit(lambda: f(b), fullgraph=True)
    for _ in range(4):
        torch.manual_seed(3)
        expected = f(a)
        after = torch.rand(1).item()
        torch.manual_seed(3)
        found = compiled()
        assert torch.rand(1).item() == after
        close(found, expected)
        first, second = a.state(), b.state()
        for key in first:
            close(first[key], second[key])
    assert " 1 of them compiled" in compiled.explain() or "2 of them compiled" in compiled.explain()


def test_a_graph_that_the_function_has_freed_stays_freed():
    w = tensor(3, grad=True)

    def step():
        w.grad = None
        loss = (w * w).sum()
        loss.backward()
        return loss, w.tanh()

    compiled = torch.jit(step, fullgraph=True)
    for _ in range(3):
        loss, other = compiled()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        other.sum().backward()
        np.testing.assert_allclose(w.grad.numpy(), (2 * w + 1 - w.tanh() ** 2).detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if "differentiable" in n])
def test_results_are_differentiable_like_those_of_the_function(name):
    f = PROGRAMS[name]
    a, b = World(), World()
    compiled = torch.jit(lambda: f(b), fullgraph=True)
    for _ in range(3):
        for g in (lambda: f(a), compiled):
            found = g()
            found = found if isinstance(found, tuple) else (found,)
            sum((o.sin().sum() for o in found if o.requires_grad), torch.zeros(())).backward()
        first, second = a.state(), b.state()
        for key in first:
            close(first[key], second[key])


def test_transforms_inside_are_part_of_the_program():
    from torchgrad_jax.func import grad, hessian, jvp, vmap

    def loss(w, x):
        return ((x @ w).tanh() ** 2).sum()

    w, x = torch.randn(3, 2), torch.randn(5, 3)
    for f in (
        lambda w, x: vmap(grad(loss), in_dims=(None, 0))(w, x),
        lambda w, x: hessian(lambda w: loss(w, x))(w),
        lambda w, x: jvp(lambda w: loss(w, x), (w,), (w,))[1],
    ):
        compiled = torch.jit(f)
        for _ in range(4):
            assert torch.allclose(compiled(w, x), f(w, x), atol=1e-5)
        assert " 1 of them compiled" in compiled.explain()


@torch.compile
def doubled(x):
    return x * 2


def added(x, y):
    return x + y


class WithMethod:
    @torch.jit
    def doubled(self, x):
        return x * 2


def test_compiled_functions_are_copied_and_pickled_as_functions_are():
    """PyTorch's are functions: copies are the same object, pickles name it."""
    for function in (doubled, WithMethod.__dict__["doubled"]):
        assert pickle.loads(pickle.dumps(function)) is copy.deepcopy(function) is copy.copy(function) is function
    with pytest.raises((pickle.PicklingError, AttributeError), match="<lambda>"):
        pickle.dumps(torch.compile(lambda x: x))


def test_a_compiled_function_without_a_name_is_compiled_anew_in_a_copy():
    function = torch.compile(functools.partial(added, 1))
    for copied in (copy.deepcopy(function), pickle.loads(pickle.dumps(function))):
        assert [copied(torch.ones(1)).item() for _ in range(2)] == [2, 2] and copied.recompilations and not function.recompilations


def test_a_copy_of_a_compiled_module_has_parameters_of_its_own():
    model = torch.nn.Sequential(torch.compile(torch.nn.Linear(3, 2)), torch.nn.Tanh())
    x = torch.ones(1, 3)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(copied[0]._orig_mod, torch.nn.Linear) and copied[0].recompilations == []
        for _ in range(3):
            assert torch.allclose(copied(x), model(x))
        with torch.no_grad():
            copied[0].weight.zero_()
            copied[0].bias.zero_()
        assert not copied(x).any() and model(x).any()
        assert "1 of them compiled" in copied[0].explain()
    shared = copy.copy(model[0])
    assert shared.weight is model[0].weight and torch.allclose(shared(x), model[0](x))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork:DeprecationWarning")
def test_in_a_forked_child_a_compiled_function_runs_as_it_is():
    """What is compiled would wait for XLA's threads for ever, and so would compiling."""
    x = torch.ones(300, 300)
    known, new = torch.jit(lambda x: (x @ x).mean()), torch.jit(lambda x: (x + 1).mean())
    assert [known(x).item() for _ in range(2)] == [300, 300]
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(30, exit=True)
        with baseline_tier(True):
            found = [f(x).item() for f in (known, new) for _ in range(2)]
        os._exit(0 if found == [300, 300, 2, 2] and "forked" in new.explain() else 3)
    assert os.waitpid(child, 0)[1] == 0
    assert "forked" not in known.explain()


def test_a_check_that_fails_names_the_users_line():
    @torch.jit
    def factor(x):
        return torch.linalg.cholesky(x).sum()

    for _ in range(3):
        with pytest.raises(RuntimeError) as caught:
            factor(-torch.eye(3)).item()
        (note,) = caught.value.__notes__
        assert note.startswith(f"raised by the operation recorded at {__file__}:")


def test_arguments_that_lie_in_another_order():
    """Such a tensor is laid out when it is first asked for: not within the trace."""

    def turned():
        q = torch.arange(24.0).reshape(2, 3, 4).transpose(1, 2)
        return q * torch.ones(2, 4, 3) + torch.cat((-q[..., 2:], q[..., :2]), -1)

    compiled = torch.jit(lambda q: q * 2)
    for _ in range(3):
        x = turned()
        assert (compiled(x) == 2 * turned()).all() and x.stride() == turned().stride()
