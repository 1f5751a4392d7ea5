"""nn.Module against PyTorch's: state with hooks and versions, conversion, containers."""

from __future__ import annotations

import copy
import pickle

import pytest
from side_by_side import caught, net, programs

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


class Picklable(tj.nn.Module):
    """A module that pickles find."""

    def __init__(self):
        super().__init__()
        self.w = tj.nn.Parameter(tj.ones(1))

    def doubled(self, _, args):
        return (args[0] * 2,)

    def forward(self, x):
        return x * self.w


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
def lists_of_subclasses_find_members_by_the_private_name(m):
    class Renamed(m.nn.ModuleList):
        def _get_abs_string_index(self, idx):
            return super()._get_abs_string_index(0 if idx == "first" else idx)

    found = []
    for made in (m.nn.ModuleList([m.nn.ReLU(), m.nn.Tanh()]), m.nn.ParameterList([m.zeros(1), m.ones(2)])):
        found += [made._get_abs_string_index(i) for i in (0, -1, True)]
        found += [caught(lambda made=made, i=i: made._get_abs_string_index(i)) for i in (2, -3, "0", 1.0)]
    return [*found, repr(Renamed([m.nn.ReLU(), m.nn.Tanh()])["first"])]


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
