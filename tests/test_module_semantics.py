"""nn.Module against PyTorch's: what a module is, registration, and hooks of every kind around the call."""

from __future__ import annotations

import inspect
import pickle
import types

import pytest
from side_by_side import caught, like_pytorch, plain, programs, torch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


# ---------------------------------------------------------------------- what a module is


def test_a_new_module_has_pytorchs_attributes():
    ours, theirs = tj.nn.Module(), torch.nn.Module()
    assert {name: repr(value) for name, value in vars(ours).items()} == {name: repr(value) for name, value in vars(theirs).items()}


@pytest.mark.parametrize("name", sorted(
    name for name in dir(torch.nn.Module) if not name.startswith("_") and callable(getattr(torch.nn.Module, name)) and name != "T_destination"
))  # fmt: skip
def test_methods_have_pytorchs_signatures(name):
    def shape(m):
        return [(p.name, p.kind, p.default) for p in inspect.signature(getattr(m.nn.Module, name)).parameters.values()]

    if name not in ("forward", "to"):
        assert shape(tj) == shape(torch)


@program
def what_a_module_without_init_does(m):
    class Bare(m.nn.Module):
        def __init__(self):
            pass

        def forward(self, x):
            return x

    b = Bare()
    return [
        caught(call) for call in (
            lambda: b(3), lambda: setattr(b, "x", m.nn.Linear(1, 1)), lambda: setattr(b, "x", m.nn.Parameter()), lambda: setattr(b, "y", m.ones(1)),
            lambda: b.state_dict(), lambda: repr(b), lambda: dir(b), lambda: list(b.parameters()), lambda: b.train(), lambda: b.to(m.float64),
            lambda: b.register_forward_hook(print), lambda: b.load_state_dict({}), lambda: b.add_module("a", m.nn.Identity()),
            lambda: delattr(b, "a"), lambda: b.a, lambda: b.register_buffer("a", None), lambda: b.register_parameter("a", None),
            lambda: setattr(b, "z", m.nn.Buffer(m.ones(1))), lambda: list(b.named_children()), lambda: b.register_full_backward_hook(print),
            lambda: b.get_submodule("a"), lambda: b.zero_grad(), lambda: b.apply(print),
        )
    ]  # fmt: skip


@program
def arguments_of_module_init(m):
    class Sub(m.nn.Module):
        pass

    class Other:
        def __init__(self, x=1):
            self.other = x

    class Both(m.nn.Module, Other):
        call_super_init = True

    class First(Other, m.nn.Module):
        def __init__(self):
            m.nn.Module.__init__(self)
            Other.__init__(self, 5)

    return [
        caught(lambda: Sub(3)), caught(lambda: Sub(a=3, b=2)), caught(lambda: Sub(3, a=1)), Both(x=4).other, Both(4).other, Both().other,
        First().other, First().training,
    ]  # fmt: skip


@program
def annotations_and_class_attributes(m):
    class Typed(m.nn.Module):
        weight: m.Tensor
        n: int = 3
        bias: m.nn.Parameter | None

        def __init__(self):
            super().__init__()
            self.register_buffer("weight", m.ones(2))
            self.bias = None
            self.n = 4

    t = Typed()
    return [t.weight, t.bias, t.n, Typed.n, sorted(t._buffers), t._version, Typed.dump_patches, str(m.nn.Module.T_destination)]


@program
def which_members_a_module_shows(m):
    module = m.nn.Module()
    module.a, module.b = m.nn.Parameter(m.ones(1)), m.nn.Identity()
    module.register_buffer("c", None)
    module.add_module("0", m.nn.Identity())
    own = [name for name in dir(module) if name in ("a", "b", "c", "0", "training", "forward", "_parameters")]

    class Raises(m.nn.Module):
        @property
        def broken(self):
            return self.nothing

    return [own, caught(lambda: Raises().broken), caught(lambda: module.nothing), hasattr(module, "c"), module.c]


# ---------------------------------------------------------------------- registration


@program
def hooks_of_registration(m):
    every, seen = m.nn.modules.module, []

    def note(kind, replace=None):
        def hook(module, name, value):
            seen.append([kind, type(module).__name__, name])
            return replace

        return hook

    handles = [
        every.register_module_parameter_registration_hook(note("parameter")), every.register_module_buffer_registration_hook(note("buffer")),
        every.register_module_module_registration_hook(note("module")),
    ]  # fmt: skip
    try:
        module = m.nn.Module()
        module.l = m.nn.Linear(1, 1)
        module.register_buffer("b", m.ones(1))
        module.b = m.zeros(1)
        module.b = None
        module.l = None
        module.c = m.nn.Buffer(m.ones(1))
        module.add_module("d", m.nn.Identity())
        module.register_parameter("none", None)
        m.nn.Sequential(m.nn.ReLU())
    finally:
        for handle in handles:
            handle.remove()
    with every.register_module_buffer_registration_hook(note("buffer", m.ones(3))):
        module.register_buffer("e", m.ones(1))
    with every.register_module_parameter_registration_hook(note("p", m.nn.Parameter(m.ones(2)))):
        layer = m.nn.Linear(1, 1)
    with every.register_module_module_registration_hook(note("m", m.nn.ReLU())):
        module.f = m.nn.Tanh()
    return [seen, module.e, layer.weight, repr(module.f)]


@program
def setting_submodules_by_dotted_name(m):
    found = []
    for target in ("0", "1.0", "1.0.x", "z", "z.y", "", "1.q", "0.weight", "0.weight.q", "0.in_features", "0.in_features.q"):
        for strict in (False, True):
            s = m.nn.Sequential(m.nn.Linear(1, 1), m.nn.Sequential(m.nn.ReLU()))
            found.append([caught(lambda s=s, t=target, k=strict: s.set_submodule(t, m.nn.Tanh(), strict=k)), repr(s)])
    return [*found, caught(lambda: s.set_submodule("0", 3)), caught(lambda: s.set_submodule("0", None)), caught(lambda: s.set_submodule(0, s))]


@program
def members_of_another_kind_take_the_name(m):
    found = []

    def kinds():
        return {
            "parameter": m.nn.Parameter(m.ones(1)), "module": m.nn.Identity(), "buffer": m.nn.Buffer(m.ones(1)), "tensor": m.ones(1), "none": None,
            "number": 3, "quiet": m.nn.Buffer(m.ones(1), persistent=False),
        }  # fmt: skip

    for first in kinds():
        for second in kinds():
            module = m.nn.Module()
            module.x = kinds()[first]
            error = caught(lambda module=module, s=second: setattr(module, "x", kinds()[s]))
            tables = [list(getattr(module, t)) for t in ("_parameters", "_buffers", "_modules")]
            found.append([first, second, error, *tables, sorted(module._non_persistent_buffers_set), "x" in vars(module)])
    return found


@program
def buffers_that_change_their_persistence(m):
    module = m.nn.Module()
    module.register_buffer("a", m.ones(1), persistent=False)
    found = [list(module.state_dict()), sorted(module._non_persistent_buffers_set)]
    module.a = m.zeros(1)
    found += [list(module.state_dict())]
    module.a = m.nn.Buffer(m.ones(1))
    found += [list(module.state_dict())]
    module.register_buffer("b", m.ones(1), persistent=False)
    del module.b
    return [*found, sorted(module._non_persistent_buffers_set), caught(lambda: delattr(module, "b"))]


@program
def listing_with_and_without_duplicates(m):
    module = m.nn.Module()
    module.a = m.nn.Linear(1, 1)
    module.b = module.a
    module.p = module.a.weight
    module.register_buffer("u", m.ones(1))
    module.register_buffer("v", module.u)
    module.none = None
    return [
        [name for name, _ in module.named_parameters()], [name for name, _ in module.named_parameters(remove_duplicate=False)],
        [name for name, _ in module.named_buffers("p")], [name for name, _ in module.named_buffers(remove_duplicate=False)],
        len(list(module.modules())), len(list(module.modules(remove_duplicate=False))), [name for name, _ in module.named_modules(prefix="q")],
        [name for name, _ in module.named_parameters(prefix="q", recurse=False)], list(module.state_dict()),
        len(list(module.parameters(False))), len(list(module.buffers(recurse=False))), inspect.isgenerator(module.children()),
    ]  # fmt: skip


# ---------------------------------------------------------------------- hooks around the call


@program
def old_backward_hooks(m):
    class Of(m.nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f = f

        def forward(self, *args):
            return self.f(*args)

    found = []
    x = m.ones(1, 2, requires_grad=True)
    for f in (
        lambda x: (x * 2, x * 3), lambda x: {"a": x * 2}, lambda x: [x * 2], lambda x: x, lambda x: x.detach(), lambda x: (x * 2).exp(),
        lambda x: x * 2, lambda x: (x * 2, 3), lambda x: 3, lambda x: ((x * 2, 3),),
    ):  # fmt: skip
        module, seen = Of(f), []
        module.register_backward_hook(lambda mod, i, o, s=seen: s.append([type(mod).__name__, i, o]))
        y = [None]
        error = caught(lambda module=module, y=y: y.__setitem__(0, module(x)))
        t = y[0]
        while isinstance(t, (tuple, list, dict)):
            t = t["a"] if isinstance(t, dict) else t[0]
        if isinstance(t, m.Tensor) and t.requires_grad:
            t.sum().backward()
        found.append([error, [plain(s) for s in seen]])
    module = Of(lambda x, n: x * n)
    module.register_backward_hook(lambda mod, i, o: (i[0] * 5, *i[1:]))
    x.grad = None
    module(x, 3).sum().backward()
    return [*found, x.grad]


@program
def one_kind_of_backward_hooks(m):
    a, b = m.nn.Identity(), m.nn.Identity()
    a.register_backward_hook(print)
    b.register_full_backward_hook(print)
    every = m.nn.modules.module
    return [
        caught(lambda: a.register_full_backward_hook(print)), caught(lambda: b.register_backward_hook(print)), a._is_full_backward_hook,
        b._is_full_backward_hook, len(a._backward_hooks), every.register_module_full_backward_hook(print).remove(),
        caught(lambda: every.register_module_backward_hook(print)),
    ]  # fmt: skip


@program
def where_hooks_are_kept(m):
    layer = m.nn.Linear(1, 1)
    f, g, h = print, repr, str
    one = layer.register_forward_hook(f, with_kwargs=True, always_call=True)
    two = layer.register_forward_hook(g, prepend=True)
    three = layer.register_forward_pre_hook(h, with_kwargs=True)
    four = layer.register_full_backward_pre_hook(f)
    four2 = layer.register_full_backward_pre_hook(g, prepend=True)
    tables = (
        "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
        "_backward_pre_hooks",
    )  # fmt: skip

    def now():
        return [[repr(v) for v in getattr(layer, t).values()] for t in tables]

    found = [now(), one.id < two.id < three.id < four.id < four2.id, one.id in layer._forward_hooks]
    one.remove()
    one.remove()
    with three:
        pass
    return [*found, now()]


@program
def handles_with_dictionaries_of_ones_own(m):
    from collections import OrderedDict

    hooks, extra, more = OrderedDict(), {}, OrderedDict()
    handle = m.utils.hooks.RemovableHandle(hooks, extra_dict=more)
    hooks[handle.id], more[handle.id] = 1, 2
    twin = pickle.loads(pickle.dumps([hooks, handle]))
    handle.remove()
    twin[1].remove()
    return [len(hooks), len(more), len(twin[0]), caught(lambda: m.utils.hooks.RemovableHandle(extra))]


@program
def hooks_of_keyword_arguments_in_all_orders(m):
    class Scaled(m.nn.Module):
        def forward(self, x, *, by=1.0):
            return x * by

    every, seen = m.nn.modules.module, []
    module = Scaled()
    module.register_forward_pre_hook(lambda mod, args, kwargs: seen.append(["pre", args, sorted(kwargs)]), with_kwargs=True)
    module.register_forward_pre_hook(lambda mod, args, kwargs: (args, {"by": 3.0}), with_kwargs=True)
    module.register_forward_hook(lambda mod, args, kwargs, out: seen.append(["post", sorted(kwargs.items()), out]), with_kwargs=True)
    handles = [
        every.register_module_forward_hook(lambda mod, args, kwargs, out: out + kwargs["by"], with_kwargs=True),
        every.register_module_forward_pre_hook(lambda mod, args: args[0] + 1),
    ]
    try:
        y = module(m.ones(1), by=2.0)
    finally:
        for handle in handles:
            handle.remove()
    return [y, plain(seen)]


@program
def always_called_hooks_of_every_module_after_an_error(m):
    class Fails(m.nn.Module):
        def forward(self, x):
            raise KeyError("no")

    seen, every, module = [], m.nn.modules.module, Fails()
    handle = every.register_module_forward_hook(lambda *args: seen.append(["all", len(args)]), always_call=True)
    every_other = every.register_module_forward_hook(lambda *args: seen.append("never"))
    module.register_forward_hook(lambda mod, args, out: seen.append(["own", out]), always_call=True)
    try:
        error = caught(lambda: module(1))
    finally:
        handle.remove()
        every_other.remove()
    ok = m.nn.Identity()
    ok.register_forward_hook(lambda mod, args, out: seen.append("first") or 7, always_call=True)
    ok.register_forward_hook(lambda mod, args, out: 1 / 0)
    ok.register_forward_hook(lambda mod, args, out: seen.append(["last", out]), always_call=True)
    return [error, caught(lambda: ok(1)), seen]


@program
def a_hook_that_removes_itself(m):
    layer, seen = m.nn.Identity(), []

    def once(*_):
        seen.append("once")
        handle.remove()

    handle = layer.register_forward_hook(once)
    handle_pre = layer.register_forward_hook(lambda *_: seen.append("after"))
    error = caught(lambda: layer(1))
    layer(2)
    handle_pre.remove()
    return [error if error == "1" else error[0], seen]


@program
def calling_by_the_inner_names(m):
    layer = m.nn.Identity()
    layer.register_forward_hook(lambda mod, args, out: out + 1)
    return [layer(1), layer.__call__(1), layer._call_impl(1), layer._wrapped_call_impl(1), layer.forward(1)]


def test_compiling_a_module_in_place_changes_nothing_but_looks_at_the_options():
    layer = tj.nn.Linear(1, 1)
    assert layer.compile(fullgraph=True) is None and layer(tj.ones(1)).shape == (1,)
    with pytest.raises(RuntimeError, match="Invalid backend"):
        layer.compile(backend="none such")


@pytest.mark.parametrize("output", [0, 1])
@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)])
def test_full_backward_hooks_where_an_input_or_output_has_no_gradient(needed, output):
    @like_pytorch
    def program(m):
        seen = []

        class Two(m.nn.Module):
            def forward(self, x, number, w):
                y = x * w
                if y.requires_grad:
                    y.register_hook(lambda g: seen.append(["inside", g]))
                return y, x * number if x.requires_grad else w * number

        module, (x, w) = Two(), [m.tensor([1.0, 2.0], requires_grad=there) for there in needed]
        module.register_full_backward_pre_hook(lambda module, go: seen.append(["before", go]))
        module.register_full_backward_hook(lambda module, gi, go: seen.append(["after", gi, go]))
        outs = module(x, 3, w)
        found = m.autograd.grad(outs[output].sum(), [t for t in (x, w) if t.requires_grad], create_graph=True)
        return seen, found

    program()


# ---------------------------------------------------------------------- what forward calls


_CALLS = {
    "conv1d": ("Conv1d", (1, 2, 3), (1, 1, 4)), "conv2d": ("Conv2d", (1, 2, 3), (1, 1, 4, 4)), "conv3d": ("Conv3d", (1, 2, 3), (1, 1, 4, 4, 4)),
    "conv_transpose1d": ("ConvTranspose1d", (1, 2, 3), (1, 1, 4)), "conv_transpose2d": ("ConvTranspose2d", (1, 2, 3), (1, 1, 4, 4)),
    "conv_transpose3d": ("ConvTranspose3d", (1, 2, 3), (1, 1, 4, 4, 4)), "linear": ("Linear", (4, 2), (3, 4)),
    "dropout": ("Dropout", (0.3,), (3, 4)), "dropout1d": ("Dropout1d", (0.3,), (3, 4, 2)), "dropout2d": ("Dropout2d", (0.3,), (3, 4, 2, 2)),
    "dropout3d": ("Dropout3d", (0.3,), (3, 4, 2, 2, 2)), "alpha_dropout": ("AlphaDropout", (0.3,), (3, 4)),
    "feature_alpha_dropout": ("FeatureAlphaDropout", (0.3,), (3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", _CALLS)
def test_a_function_put_in_the_place_of_one_of_nn_functional_is_what_layers_call(name, monkeypatch):
    def outcome(m):
        layer, arguments, shape = _CALLS[name]
        module, calls = getattr(m.nn, layer)(*arguments), []
        monkeypatch.setattr(m.nn.functional, name, lambda *args, **kwargs: calls.append([len(args), sorted(kwargs), args[3:]]))
        assert module(m.ones(shape)) is None
        return calls

    assert outcome(tj) == outcome(torch)


@program
def what_layers_do_for_objects_that_are_no_modules(m):
    def duck(module):
        """What has the attributes of a module, and no class of layers: the way of those that make functions of modules by hand."""
        made = types.SimpleNamespace(**vars(module), **dict(module.named_parameters()))
        for method in ("_conv_forward", "_output_padding"):
            if hasattr(module, method):
                setattr(made, method, types.MethodType(getattr(type(module), method), made))
        return made

    m.manual_seed(0)
    x = m.rand(1, 2, 5, 5)
    layers = [
        m.nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), m.nn.Conv2d(2, 2, 2, padding="same", groups=2),
        m.nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), m.nn.Dropout(0.5), m.nn.Linear(5, 2),
    ]  # fmt: skip
    return [type(layer).forward(duck(layer), x) for layer in layers]
