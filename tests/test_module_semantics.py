"""nn.Module against PyTorch's: hooks of every kind, state with hooks and versions, conversion, registration, containers."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
from side_by_side import plain, programs, torch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


def caught(call):
    try:
        return repr(call())
    except Exception as error:
        return [type(error).__name__, str(error).replace("torchgrad_jax", "torch")]


def net(m):
    made = m.nn.Sequential(m.nn.Linear(2, 3), m.nn.Tanh(), m.nn.Sequential(m.nn.Linear(3, 1, bias=False)))
    for i, p in enumerate(made.parameters()):
        with m.no_grad():
            p.copy_(m.arange(p.numel()).reshape(p.shape) * 0.1 + i)
    return made


class Picklable(tj.nn.Module):
    """A module that pickles find."""

    def __init__(self):
        super().__init__()
        self.w = tj.nn.Parameter(tj.ones(1))

    def doubled(self, _, args):
        return (args[0] * 2,)

    def forward(self, x):
        return x * self.w


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


# ---------------------------------------------------------------------- state


@program
def hooks_around_a_state(m):
    seen, n = [], net(m)
    n.register_state_dict_pre_hook(lambda mod, prefix, keep: seen.append(["pre", type(mod).__name__, prefix, keep]))
    n[0].register_state_dict_pre_hook(lambda mod, prefix, keep: seen.append(["pre", type(mod).__name__, prefix, keep]))
    n.register_state_dict_post_hook(lambda mod, state, prefix, meta: seen.append(["post", sorted(state), prefix, dict(meta)]))
    n[0]._register_state_dict_hook(lambda mod, state, prefix, meta: seen.append(["old", sorted(state), prefix, dict(meta)]))
    first = list(n.state_dict(prefix="p.", keep_vars=True))
    n._register_state_dict_hook(lambda mod, state, prefix, meta: {"other": 1})
    second = n.state_dict()
    n.register_state_dict_post_hook(lambda mod, state, prefix, meta: state)
    return [first, second, caught(n.state_dict), seen, len(n._state_dict_hooks), len(n._state_dict_pre_hooks)]


@program
def hooks_around_loading(m):
    seen, n = [], net(m)

    def before(module, state, prefix, meta, strict, missing, unexpected, errors):
        seen.append([type(module).__name__, sorted(state), prefix, dict(meta), strict, list(missing), list(unexpected), list(errors)])
        state.pop(prefix + "old", None)

    def old(state, prefix, meta, strict, missing, unexpected, errors):
        errors.append("a complaint")

    n.register_load_state_dict_pre_hook(before)
    n[0].register_load_state_dict_pre_hook(before)
    handle = n[2]._register_load_state_dict_pre_hook(old)
    n.register_load_state_dict_post_hook(lambda mod, keys: seen.append(["after", type(mod).__name__, list(keys.missing_keys)]))
    n[0].register_load_state_dict_post_hook(lambda mod, keys: seen.append(["after", type(mod).__name__, list(keys.unexpected_keys)]))
    state = n.state_dict()
    state["0.old"] = m.ones(1)
    found = [caught(lambda: n.load_state_dict(state)), sorted(state)]
    handle.remove()
    found.append(caught(lambda: n.load_state_dict(state)))
    n.register_load_state_dict_post_hook(lambda mod, keys: 3)
    return [*found, caught(lambda: n.load_state_dict(n.state_dict())), seen]


@program
def a_copy_of_a_module_has_load_hooks_of_its_own(m):
    layer, seen = m.nn.Linear(1, 1), []
    layer.register_load_state_dict_pre_hook(lambda module, *rest: seen.append(module.in_features))
    twin = copy.deepcopy(layer)
    twin.in_features = 7
    twin.load_state_dict(layer.state_dict())
    layer.load_state_dict(layer.state_dict())
    return seen


@program
def overridden_loading_and_saving(m):
    class Renamed(m.nn.Module):
        _version = 3

        def __init__(self):
            super().__init__()
            self.new = m.nn.Parameter(m.zeros(2))

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "note"] = "n"

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
            if local_metadata.get("version", None) != 3:
                state_dict[prefix + "new"] = state_dict.pop(prefix + "old")
            state_dict.pop(prefix + "note", None)
            super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    outer = m.nn.Sequential(Renamed())
    state = outer.state_dict()
    found = [list(state), [[k, dict(v)] for k, v in state._metadata.items()], repr(outer.load_state_dict(state))]
    return [*found, repr(outer.load_state_dict({"0.old": m.ones(2)})), outer[0].new, caught(lambda: outer.load_state_dict({"0.new": m.ones(2)}))]


@program
def what_does_not_fit_and_how_it_is_told(m):
    n = net(m)
    good = dict(n.state_dict())
    states = [
        {}, {"0": m.ones(1)}, {"0.": m.ones(1)}, {"": m.ones(1)}, {"x": 1}, {"0.weight.x": m.ones(1)}, {**good, "0.weight": m.ones(2, 3)},
        {**good, "0.weight": 3}, {**good, "0.bias": m.ones(())}, {**good, "0._extra_state": 1, "2.x": 2, "a.b": 3},
        {**good, "0.weight": m.ones(3, 2, dtype=m.int64)}, {"0.weight": m.ones(1, 2), "1.z": 1},
    ]  # fmt: skip
    return [caught(lambda s=s, k=strict, a=assign: n.load_state_dict(s, strict=k, assign=a)) for s in states for strict in (True, False)
            for assign in (False, True)]  # fmt: skip


@program
def loading_what_is_not_there(m):
    module = m.nn.Module()
    module.register_buffer("scalar", m.zeros(()))
    module.register_buffer("none", None)
    module.register_parameter("p", None)
    return [
        caught(lambda: module.load_state_dict({"scalar": m.ones(1)})), module.scalar, caught(lambda: module.load_state_dict({"scalar": m.ones(2)})),
        caught(lambda: module.load_state_dict({"scalar": m.ones(()), "none": m.ones(1), "p": m.ones(1)})),
        caught(lambda: module.load_state_dict(None)), caught(lambda: module.load_state_dict([("scalar", m.ones(()))])),
    ]  # fmt: skip


@program
def assigned_states(m):
    n = net(m)
    n[0].weight.requires_grad_(False)
    n.register_buffer("b", m.ones(1))
    state = {k: v.double() for k, v in n.state_dict().items()}
    weight, buffer = n[0].weight, n.b
    n.load_state_dict(state, assign=True)
    return [
        n[0].weight is weight, n.b is buffer, n.b is state["b"], [p.dtype == m.float64 for p in n.parameters()],
        [p.requires_grad for p in n.parameters()], n[0].weight.data_ptr() == state["0.weight"].data_ptr(),
    ]  # fmt: skip


@program
def positional_arguments_of_state_dict(m):
    layer = m.nn.Linear(1, 1)
    destination = {}
    found = [layer.state_dict(destination, "p.") is destination, list(destination)]
    return [*found, [v.requires_grad for v in layer.state_dict(None, "", True).values()]]


@program
def state_is_part_of_the_memory_or_the_graph(m):
    layer = m.nn.Linear(1, 1)
    state, kept = layer.state_dict(), layer.state_dict(keep_vars=True)
    state["weight"].fill_(7)
    return [layer.weight, type(state).__name__, state["weight"].requires_grad, kept["weight"] is layer.weight, type(state["bias"]) is m.Tensor]


@program
def extra_state_in_submodules(m):
    class Extra(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 1

        def get_extra_state(self):
            return {"n": self.n}

        def set_extra_state(self, state):
            self.n = state["n"]

    class Half(m.nn.Module):
        def get_extra_state(self):
            return 3

    a, b = m.nn.Sequential(Extra(), Half()), m.nn.Sequential(Extra(), Half())
    a[0].n = 9
    state = a.state_dict()
    return [
        dict(state), caught(lambda: b.load_state_dict(state)), caught(lambda: b.load_state_dict(state, strict=False)), b[0].n,
        caught(lambda: m.nn.Module().get_extra_state())[1][:77], caught(lambda: m.nn.Module().set_extra_state(3))[1][:77],
    ]  # fmt: skip


# ---------------------------------------------------------------------- conversion


@program
def what_to_accepts(m):
    layer = m.nn.Linear(2, 2)
    layer.register_buffer("i", m.ones(1, dtype=m.int64))
    layer.register_buffer("image", m.ones(1, 2, 3, 4))

    def call(*args, **kwargs):
        def run():
            layer.to(*args, **kwargs)
            return [layer.weight.dtype, layer.i.dtype, layer.image.stride()]

        return caught(run)

    cl = m.channels_last
    return [
        call(), call(None), call("cpu"), call(m.float64), call("cpu", m.float32), call(m.ones(1, dtype=m.float64)),
        call(m.float32, True), call(dtype=m.float16), call(device="cpu", dtype=m.float32, non_blocking=True), call(memory_format=cl),
        call(memory_format=m.contiguous_format), call(m.int8), call(m.bool), call(dtype=m.uint8), call("gpu"), call("a", "b", "c"), call(foo=3),
        call(m.float32, m.float32),
        call(tensor=m.ones(1)), call(dtype="float"), call(memory_format=3), call(m.float32, False, True), call(m.device("cpu"), copy=True),
        call(m.ones(1, dtype=m.int64)), call("cpu", foo=1), call(m.complex64),
    ]  # fmt: skip


@program
def arguments_of_to_read_by_a_class_of_ones_own(m):
    parse, t = m._C._nn._parse_to, m.ones(1, dtype=m.float64)
    return [
        caught(lambda: parse("cpu", m.int8, True)), caught(lambda: parse(t)), caught(lambda: parse(None)), caught(lambda: parse(m.half, True)),
        caught(lambda: parse(dtype=m.half, memory_format=m.channels_last)), caught(lambda: parse("cpu", copy=True)), caught(lambda: parse(foo=1)),
    ]  # fmt: skip


@program
def conversions_by_name(m):
    found = []
    for name in ("double", "half", "bfloat16", "float", "cpu"):
        layer = m.nn.BatchNorm1d(2)
        layer.weight.grad = m.ones(2)
        weight, grad = layer.weight, layer.weight.grad
        found.append([getattr(layer, name)() is layer, layer.weight is weight, layer.weight.grad is grad])
        found.append([str(t.dtype) for t in (*layer.state_dict().values(), layer.weight.grad)])
    layer.type(m.float64)
    return [*found, layer.num_batches_tracked, layer.weight, caught(lambda: layer.type("torch.FloatTensor")), layer.weight]


@program
def emptied_modules(m):
    n = net(m)
    p = n[0].weight
    made = n.to_empty(device="cpu")
    return [
        made is n, n[0].weight is p, n[0].weight.shape, p.requires_grad, caught(lambda: n.to_empty()), caught(lambda: n.to_empty("cpu")),
        n.to_empty(device=None, recurse=False) is n,
    ]  # fmt: skip


@program
def what_conversion_does_with_parameters_is_told_by_flags(m):
    f = m.__future__
    found = [f.get_overwrite_module_params_on_conversion(), f.get_swap_module_params_on_conversion()]
    try:
        for overwrite, swap in ((True, False), (False, True), (True, True)):
            f.set_overwrite_module_params_on_conversion(overwrite)
            f.set_swap_module_params_on_conversion(swap)
            layer = m.nn.Linear(1, 1)
            weight = layer.weight
            layer.weight.grad = m.ones(1, 1)
            layer.double()
            found.append([layer.weight is weight, layer.weight.grad.dtype == m.float64, layer.weight.requires_grad, type(layer.weight).__name__])
            weight = layer.weight
            layer.load_state_dict({"weight": m.ones(1, 1), "bias": m.ones(1)}, assign=True)
            found.append([layer.weight is weight, layer.weight])
            found.append([f.get_overwrite_module_params_on_conversion(), f.get_swap_module_params_on_conversion()])
    finally:
        f.set_overwrite_module_params_on_conversion(False)
        f.set_swap_module_params_on_conversion(False)
    return found


@program
def an_apply_of_ones_own_is_used(m):
    class Mine(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = m.ones(1)
            self.inner = m.nn.Linear(1, 1)

        def _apply(self, fn, recurse=True):
            super()._apply(fn, recurse)
            self.plain = fn(self.plain)
            return self

    return [str(m.nn.Sequential(Mine()).double()[0].plain.dtype), str(Mine()._apply(lambda t: t.double(), recurse=False).inner.weight.dtype)]


@program
def a_hook_before_pickling_old_modules(m):
    module = m.nn.Module()
    state = {"training": False, "_parameters": {}, "_buffers": {}, "_modules": {}, "_forward_hooks": {}, "_backward_hooks": {}}
    module.__dict__.clear()
    module.__setstate__(state)
    return [sorted(vars(module)), module.training]


def test_a_module_with_hooks_is_pickled():
    module = Picklable()
    module.register_forward_pre_hook(module.doubled)
    module.register_load_state_dict_pre_hook(Picklable.doubled)
    twin = pickle.loads(pickle.dumps(module))
    assert twin(tj.ones(1)).item() == 2 and list(twin._forward_pre_hooks.values())[0].__self__ is twin
    assert list(twin._load_state_dict_pre_hooks.values())[0].module() is twin


def test_memory_is_not_shared_between_processes():
    with pytest.raises(NotImplementedError, match="no tensors that processes share"):
        tj.nn.Linear(1, 1).share_memory()


# ---------------------------------------------------------------------- containers


def shown(m, s):
    return [repr(s), list(s._modules), len(s)]


@program
def operations_on_lists_of_modules(m):
    nn = m.nn
    found = []

    def on(kind, act):
        s = nn.ModuleList([nn.ReLU(), nn.Tanh(), nn.Sigmoid()]) if kind == "list" else nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())
        out = caught(lambda: act(s))
        found.append([kind, out, *shown(m, s)])

    def delete(at):
        def act(s):
            del s[at]

        return act

    def put(at, value):
        def act(s):
            s[at] = value

        return act

    def plus(s, other):
        s += other
        return [s, type(s).__name__]

    acts = [
        lambda s: s.insert(1, nn.GELU()), lambda s: s.insert(5, nn.GELU()),
        lambda s: s.insert(0, 3), lambda s: s.extend([nn.GELU(), nn.ReLU()]), lambda s: s.extend(nn.Sequential(nn.GELU())), lambda s: s.extend(3),
        lambda s: s.extend(nn.GELU()), lambda s: s.extend([3]), lambda s: s.append(nn.GELU()), lambda s: s.append(3), lambda s: s.append(None),
        lambda s: s.pop(0), lambda s: s.pop(-1), lambda s: s.pop(7), lambda s: s.pop("0"), lambda s: s.pop(slice(0, 2)),
        lambda s: s + s, lambda s: s + [nn.ReLU()], lambda s: s + 3, lambda s: plus(s, nn.Sequential(nn.GELU())), lambda s: plus(s, [nn.GELU()]),
        lambda s: plus(s, 3), lambda s: s[0], lambda s: s[-1], lambda s: s[3], lambda s: s[-4], lambda s: s[1:], lambda s: s[::-1], lambda s: s[0:0],
        lambda s: s["0"], lambda s: s[1.0], lambda s: s[True], delete(0), delete(-1), delete(slice(0, 2)), delete(slice(None, None, 2)), delete(9),
        put(0, nn.GELU()), put(-1, nn.GELU()), put(3, nn.GELU()), put(0, 3), put(0, None), lambda s: nn.ReLU() in s, lambda s: s[0] in s,
        lambda s: list(reversed(s)) and None, lambda s: bool(s), lambda s: s(m.ones(1)), lambda s: s * 2, lambda s: s.forward(m.ones(1)),
        lambda s: [n for n in dir(s) if n.isdigit()], lambda s: s.index(1), lambda s: s + nn.ModuleList([nn.ReLU()]),
    ]  # fmt: skip
    for act in acts:
        on("list", act)
        on("sequential", act)
    for made in (nn.ModuleList([nn.ReLU()]), nn.Sequential(nn.ReLU(), nn.Tanh())):
        found.append([caught(lambda s=made, i=i: s.insert(i, nn.GELU()) and None) for i in (-1, -5)])
    return found


@program
def slices_keep_names_and_classes(m):
    from collections import OrderedDict

    class Mine(m.nn.Sequential):
        pass

    class Listed(m.nn.ModuleList):
        pass

    named = m.nn.Sequential(OrderedDict([("a", m.nn.ReLU()), ("b", m.nn.Tanh())]))
    s = Mine(m.nn.ReLU(), m.nn.Tanh())
    found = [shown(m, named[1:]), shown(m, s[:1]), type(s[:1]).__name__, type(Listed([m.nn.ReLU()])[:1]).__name__]
    found += [shown(m, named), named.a is named[0]]
    del named[0]
    found.append(shown(m, named))
    named = m.nn.Sequential(OrderedDict([("a", m.nn.ReLU()), ("b", m.nn.Tanh())]))
    named.append(m.nn.GELU())
    found.append(shown(m, named))
    named.extend([m.nn.ReLU()])
    found.append(shown(m, named))
    found.append(caught(lambda: m.nn.Sequential(OrderedDict([("a.b", m.nn.ReLU())]))))
    found.append(caught(lambda: m.nn.Sequential([m.nn.ReLU()])))
    found.append(caught(lambda: m.nn.Sequential({"a": m.nn.ReLU()})))
    found.append(caught(lambda: m.nn.ModuleList(m.nn.ReLU())))
    found.append(caught(lambda: m.nn.ModuleList([m.nn.ReLU(), None])))
    found.append(caught(lambda: m.nn.ModuleList([1])))
    found.append(caught(lambda: m.nn.Sequential(None)))
    return found


@program
def long_lists_are_shown_in_groups(m):
    nn = m.nn
    block = [nn.Sequential(nn.Linear(1, 2), nn.ReLU()) for _ in range(3)]
    return [repr(nn.ModuleList(block)), repr(nn.ModuleList([*block, nn.Tanh(), nn.Tanh(), nn.Linear(1, 1), *block])), repr(nn.ModuleList()),
            repr(nn.Sequential()), repr(nn.Sequential(nn.ModuleList(block)))]  # fmt: skip


def test_containers_deepcopy_with_shared_members():
    inner = tj.nn.Linear(1, 1)
    twin = copy.deepcopy(tj.nn.Sequential(inner, inner))
    assert twin[0] is twin[1] and twin[0] is not inner
