"""What `torch.compile` makes of a module, against PyTorch's OptimizedModule."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
from side_by_side import plain, programs

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


@pytest.fixture(autouse=True)
def _without_what_pytorch_leaves_of_hooks():
    """A removed hook of every module that was given keywords is still counted by PyTorch, which then warns of it in tests that come after."""
    pytest.importorskip("torch").nn.modules.module._global_forward_hooks_with_kwargs.clear()


def caught(call):
    try:
        return str(call())
    except Exception as error:
        return [type(error).__name__, str(error).replace("torchgrad_jax", "torch")]


def made(m):
    model = m.nn.Sequential(m.nn.Linear(2, 3), m.nn.BatchNorm1d(3))
    model.scale = 2
    return model, m.compile(model, backend="eager")


def places(m):
    """Compiled modules of both kinds: called as they are, and as programs."""
    return [made(m)[1], m.compile(m.nn.Linear(2, 3), backend="eager")]


@program
def names_and_text(m):
    found = []
    for c in (*places(m), m.nn.Sequential(*places(m))):
        state = c.state_dict()
        found += [repr(c), list(state), list(state._metadata), [n for n, _ in c.named_parameters()], [n for n, _ in c.named_modules()]]
        found += [[n for n, _ in c.named_children()], [n for n, _ in c.named_buffers()]]
    return found


@program
def attributes_are_the_modules(m):
    model, c = made(m)
    c.scale, c.more, c.training = 3, m.nn.Linear(1, 1), False
    found = [c.scale, model.scale, c.in_features if hasattr(c, "in_features") else None, "more" in dict(model.named_children()), model.training]
    del c.more
    c.train()
    c.register_buffer("own", m.ones(1))
    found += [hasattr(model, "more"), model.training, model[1].training, "own" in dict(model.named_buffers()), "own" in dict(c.named_buffers())]
    found += [caught(lambda: c.nothing), caught(lambda: delattr(c, "nothing")), len(c), caught(lambda: c[0]), caught(lambda: list(c))]
    found += [caught(lambda: len(m.compile(m.nn.Linear(1, 1), backend="eager"))), c._orig_mod is model, "scale" in dir(c)]
    found += [hasattr(compiled, "dynamo_ctx") for compiled in (c, model)] + [callable(c.dynamo_ctx)]
    return [*found, isinstance(c, m.nn.Module), isinstance(c, m.nn.Sequential), type(c).__name__, c == model]


@program
def states_load_by_their_names(m):
    model, c = made(m)
    file = io.BytesIO()
    m.save(c.state_dict(), file)
    file.seek(0)
    state = m.load(file)
    stripped = {k.removeprefix("_orig_mod."): v for k, v in state.items()}
    loads = [(model, state), (c, model.state_dict()), (c, state), (model, stripped)]
    found = [caught(lambda a=a, b=b: a.load_state_dict(b)) for a, b in loads]
    return [*found, caught(lambda: c.load_state_dict({"0.weight": m.ones(3, 2)}, strict=False))]


@program
def conversions_reach_the_module(m):
    model, c = made(m)
    found = [c.to(m.float64) is c, model[0].weight.dtype, c.float() is c, c.requires_grad_(False) is c, model[0].weight.requires_grad]
    seen = []
    c.apply(lambda module: seen.append(type(module).__name__))
    return [*map(str, found), seen]


@program
def hooks_of_both(m):
    model, c = made(m)
    seen = []
    model.register_forward_hook(lambda module, args, out: seen.append(type(module).__name__))
    c.register_forward_pre_hook(lambda module, args: seen.append("before"))
    c.register_forward_hook(lambda module, args, out: seen.append(type(module).__name__))
    c(m.ones(2, 2))
    return [seen, len(model._forward_hooks), len(c._forward_hooks)]


@program
def hooks_of_every_module(m):
    for register in (m.nn.modules.module.register_module_forward_pre_hook, m.nn.modules.module.register_module_forward_hook):
        _, c = made(m)
        handle = register(lambda module, *_: None)
        c(m.ones(2, 2))
        c.forward(m.ones(2, 2))
        handle.remove()
        c(m.ones(2, 2))


@program
def a_forward_of_its_own(m):
    model, c = made(m)
    c.forward = lambda x: x * 0
    return [c(m.ones(2, 2)), model(m.ones(2, 2)).shape == (2, 3)]


@program
def copies_and_pickles(m):
    model, c = made(m)
    found = []
    for other in (copy.deepcopy(c), copy.copy(c), pickle.loads(pickle.dumps(c))):
        found += [type(other).__name__, repr(other), other._orig_mod is model, plain(other.state_dict()["_orig_mod.0.bias"]) == plain(model[0].bias)]
    return found


@program
def wrong_arguments_of_compile(m):
    calls = [
        lambda: m.compile(3),
        lambda: m.compile(lambda x: x, backend="no such"),
        lambda: m.compile(backend="eager")(3),
    ]
    return [caught(call) for call in calls]


def test_a_compiled_module_is_one_program_and_compiling_again_gives_another():
    model = tj.nn.Linear(2, 3)
    c = tj.compile(model, fullgraph=True)
    for _ in range(3):
        assert tj.allclose(c(tj.ones(1, 2)), model(tj.ones(1, 2)))
    assert "1 of them compiled" in c.explain() and len(c.recompilations) == 1
    again = tj.compile(c)
    assert again is not c and again._orig_mod is model and not again.recompilations
    assert isinstance(tj.jit(model), tj._dynamo.eval_frame.OptimizedModule)


def test_a_program_around_a_compiled_module_sees_what_becomes_of_it():
    model = tj.nn.Sequential(tj.nn.Linear(2, 2), tj.nn.Dropout(1.0))
    inner = tj.compile(model)
    outer = tj.compile(lambda x: inner(x).sum())
    for training in (True, False, True):
        model.train(training)
        for _ in range(3):
            assert (outer(tj.ones(1, 2)).item() == 0) is training


def test_functional_call_reaches_the_module_by_either_name():
    c = tj.compile(tj.nn.Linear(1, 1))
    for prefix in ("_orig_mod.", ""):
        zeros = {f"{prefix}weight": tj.zeros(1, 1), f"{prefix}bias": tj.zeros(1)}
        assert tj.func.functional_call(c, zeros, tj.ones(1, 1)).item() == 0


def test_what_torch_compile_passes_on_and_what_changes_nothing():
    class Callable:
        def method(self, x):
            return x + self.y

    assert tj.compile(Callable) is Callable
    one = Callable()
    one.y = 1
    method = tj.compile(one.method, name="adding")
    other = copy.deepcopy(method)
    one.y = 5
    assert method(tj.ones(1)).item() == 6 and other(tj.ones(1)).item() == 2 and other.name == "adding"
    assert method._torchdynamo_orig_callable == one.method
    tj.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="change nothing here: recompile_limit"):
            tj.compile(lambda x: x, recompile_limit=3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tj.compile(lambda x: x, isolate_recompiles=True, name="f")
    finally:
        tj.set_warn_always(False)
