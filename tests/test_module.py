"""nn.Module: what it consists of, how its members are named, saved and converted, what is called around `forward`."""

from __future__ import annotations

import copy
import pickle

import pytest
from side_by_side import caught, error_of, like_pytorch, net, plain, torch

import torchgrad_jax as tj

BOTH = pytest.mark.parametrize("m", [tj, torch], ids=["ours", "theirs"])


# ---------------------------------------------------------------------- Parameter and Buffer


@BOTH
def test_a_parameter_is_a_leaf_whose_results_are_plain_tensors(m):
    p = m.nn.Parameter(m.ones(2))
    assert isinstance(p, m.Tensor) and isinstance(p, m.nn.Parameter) and p.is_leaf and p.requires_grad
    assert not isinstance(m.ones(2), m.nn.Parameter)
    for made in (p * 2, 2 * p, p + p, p.sum(), p.detach(), p.data, p.view(2), m.ones(1, 2) @ p, m.exp(p)):
        assert type(made) is m.Tensor
    with m.no_grad():
        assert p.mul_(2) is p and type(p.t()) is m.Tensor
    p.sum().backward()
    assert type(p.grad) is m.Tensor


@BOTH
def test_a_parameter_keeps_a_subclass_of_its_data(m):
    class Mine(m.Tensor):
        pass

    p = m.nn.Parameter(m.ones(2).as_subclass(Mine))
    assert type(p) is Mine and isinstance(p, m.nn.Parameter) and repr(p) == "Parameter(Mine([1., 1.], requires_grad=True))"


@BOTH
def test_a_copied_parameter_is_a_parameter(m):
    p = m.nn.Parameter(m.ones(2), requires_grad=False)
    twin = copy.deepcopy([p, p])
    assert twin[0] is twin[1] and type(twin[0]) is m.nn.Parameter and not twin[0].requires_grad and twin[0].data_ptr() != p.data_ptr()
    assert copy.copy(p).data_ptr() == p.data_ptr()
    back = pickle.loads(pickle.dumps(p))
    assert type(back) is m.nn.Parameter and not back.requires_grad and back.tolist() == [1, 1]


@like_pytorch
def test_how_parameters_are_made_and_shown(m):
    p = m.nn.Parameter
    return [
        caught(lambda: p(m.ones(2))), caught(lambda: p()), caught(lambda: p([1.0])), caught(lambda: p(m.ones(2), requires_grad=False)),
        caught(lambda: p(m.ones(2, dtype=m.int64))), caught(lambda: p(m.ones(2, requires_grad=True) * 2)), caught(lambda: p(p(m.ones(1)))),
        caught(lambda: m.nn.Buffer(m.ones(2))), m.nn.Buffer(m.ones(2), persistent=False).persistent, isinstance(m.ones(2), m.nn.Buffer),
    ]  # fmt: skip


# ---------------------------------------------------------------------- members


@like_pytorch
def test_names_and_kinds_of_members_are_checked(m):
    p, module = m.nn.Parameter(m.ones(2)), m.nn.Module()
    found = []
    for register, wrong in ((module.register_parameter, 3), (module.register_buffer, "x"), (module.add_module, 3)):
        for name, value in (("a.b", None), ("", None), (1, None), ("a", wrong), ("forward", None)):
            found.append(caught(lambda r=register, n=name, v=value: r(n, v)))
    return [*found, caught(lambda: module.register_parameter("a", p * 2)), caught(lambda: module.register_parameter("a", p.detach()))]


@like_pytorch
def test_what_can_be_assigned_to_a_member(m):
    class Mine(m.nn.Module):
        pass

    p, module = m.nn.Parameter(m.ones(2)), m.nn.Module()
    module.a, module.s = p, m.nn.Identity()
    module.register_buffer("b", m.ones(2))
    found = []
    for name in "asb":
        for value in (3, m.ones(3), None, Mine()):
            found.append(caught(lambda n=name, v=value: setattr(module, n, v)))
            found.append([sorted(module._parameters), sorted(module._buffers), sorted(module._modules)])
    del module.a
    return [*found, caught(lambda: module.a), caught(lambda: delattr(module, "a"))]


@like_pytorch
def test_members_before_init_are_refused(m):
    def early(value):
        class Early(m.nn.Module):
            def __init__(self):
                self.x = value

        return caught(Early)

    return [early(m.nn.Parameter(m.ones(1))), early(m.nn.Identity()), early(m.nn.Buffer(m.ones(1))), caught(lambda: m.nn.Module(3))]


@like_pytorch
def test_shared_members_are_listed_once_unless_asked(m):
    module = m.nn.Module()
    module.l = m.nn.Linear(1, 1)
    module.k = module.l
    module.register_buffer("b", m.ones(1))
    module.register_module("none", None)
    return [
        [name for name, _ in listed]
        for listed in (
            module.named_modules(), module.named_modules(remove_duplicate=False), module.named_modules(prefix="z"), module.named_children(),
            module.named_parameters(), module.named_parameters(remove_duplicate=False), module.named_parameters("z", recurse=False),
            module.named_buffers("q"), module.state_dict().items(),
        )
    ]  # fmt: skip


@like_pytorch
def test_members_by_dotted_name(m):
    n = net(m)
    return [
        caught(lambda k=kind, t=target: getattr(n, f"get_{k}")(t))
        for kind in ("submodule", "parameter", "buffer")
        for target in ("2.0", "2.1", "0.weight", "0.w", "0.in_features", "2.0.weight", "")
    ]


@like_pytorch
def test_repr_shows_submodules_and_extra_repr(m):
    class Two(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net(m)

        def extra_repr(self):
            return "a=1\nb=2"

    return [repr(Two()), repr(m.nn.Module()), repr(m.nn.ModuleList([net(m), net(m)])), repr(m.nn.Linear(2, 3))]


# ---------------------------------------------------------------------- state


@like_pytorch
def test_a_state_loads_into_an_equal_module(m):
    a, b = net(m), net(m)
    with m.no_grad():
        for p in b.parameters():
            p.zero_()
    weight = b[0].weight
    shown = repr(b.load_state_dict(a.state_dict()))
    return [shown, b[0].weight is weight, weight._version > 1, [plain(v) for v in b.state_dict().values()], list(a.state_dict()._metadata.items())]


@like_pytorch
def test_a_state_that_does_not_fit_is_refused_with_all_reasons(m):
    wrong = {"0.weight": 3, "0.bias": m.ones(2), "z": 1, "0.q": m.ones(1)}
    n = net(m)
    return [
        caught(lambda: n.load_state_dict({})), caught(lambda: n.load_state_dict(3)), caught(lambda: n.load_state_dict(wrong)),
        caught(lambda: n.load_state_dict(wrong, strict=False)), caught(lambda: n.load_state_dict({"z": m.ones(1)}, strict=False)),
    ]  # fmt: skip


@like_pytorch
def test_an_assigned_state_brings_its_own_tensors(m):
    layer = m.nn.Linear(2, 1)
    given = {"weight": m.nn.Parameter(m.ones(1, 2, dtype=m.float64), requires_grad=False), "bias": m.ones(1)}
    layer.load_state_dict(given, assign=True)
    return [layer.weight is given["weight"], layer.weight, layer.bias, isinstance(layer.bias, m.nn.Parameter)]


@like_pytorch
def test_extra_state_is_saved_and_loaded(m):
    class Extra(m.nn.Module):
        def get_extra_state(self):
            return 7

        def set_extra_state(self, state):
            self.got = state

    e = Extra()
    shown = [dict(e.state_dict()), repr(e.load_state_dict(e.state_dict())), e.got]
    return [*shown, caught(lambda: e.load_state_dict({})), caught(lambda: m.nn.Module().load_state_dict({"_extra_state": 3}))]


@like_pytorch
def test_buffers_that_are_not_persistent_are_no_part_of_the_state(m):
    module = m.nn.Module()
    module.register_buffer("a", m.ones(1))
    module.b = m.nn.Buffer(m.ones(1), persistent=False)
    module.register_load_state_dict_post_hook(lambda _, keys: keys.missing_keys.clear())
    return [list(module.state_dict()), [n for n, _ in module.named_buffers()], repr(module.load_state_dict({}))]


# ---------------------------------------------------------------------- conversion and modes


@BOTH
def test_conversion_keeps_the_parameter_objects(m):
    layer = m.nn.Linear(2, 2)
    layer.register_buffer("i", m.ones(1, dtype=m.int64))
    layer.register_buffer("f", m.ones(1))
    weight = layer.weight
    layer(m.ones(1, 2)).sum().backward()
    assert layer.double() is layer and layer.weight is weight
    assert weight.dtype == weight.grad.dtype == layer.f.dtype == m.float64 and layer.i.dtype == m.int64
    assert weight.is_leaf and weight.requires_grad
    assert layer.half().weight.dtype == m.float16 and layer.to(m.ones(1)).weight.dtype == m.float32
    assert layer.to("cpu", m.float64).weight.dtype == m.float64 and layer.type(m.float32).i.dtype == m.float32


@like_pytorch
def test_modes_and_gradients_of_a_whole_module(m):
    n = net(m)
    n(m.ones(1, 2)).sum().backward()
    n.zero_grad(set_to_none=False)
    zeros = [p.grad for p in n.parameters()]
    n.zero_grad()
    order = []
    n.apply(lambda module: order.append(type(module).__name__))
    return [
        zeros, [p.grad for p in n.parameters()], n.eval()[2][0].training, n.train() is n, n[0].training, order, caught(lambda: n.train(3)),
        [p.requires_grad for p in n.requires_grad_(False).parameters()], caught(lambda: n.to(m.int64)), caught(lambda: m.nn.Module()(3)),
    ]  # fmt: skip


@BOTH
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_a_copied_module_computes_the_same_with_parameters_of_its_own(m, copied):
    n = net(m)
    twin = copied(n)
    x = m.ones(1, 2)
    assert twin(x).tolist() == n(x).tolist() and twin[0].weight is not n[0].weight
    with m.no_grad():
        twin[0].weight.zero_()
    assert twin(x).tolist() != n(x).tolist()


# ---------------------------------------------------------------------- hooks


@like_pytorch
def test_forward_hooks_see_and_replace_arguments_and_outputs(m):
    layer, seen = net(m), []
    layer.register_forward_pre_hook(lambda _, args: seen.append(["pre", args]))
    layer.register_forward_pre_hook(lambda _, args: args[0] * 2, prepend=True)
    layer.register_forward_pre_hook(lambda _, args, kwargs: (args, {}), with_kwargs=True)
    layer.register_forward_hook(lambda _, args, out: seen.append(["post", args, out]))
    handle = layer.register_forward_hook(lambda _, args, kwargs, out: out + 1, with_kwargs=True, prepend=True)
    first = layer(m.ones(1, 2))
    handle.remove()
    return [first, layer(m.ones(1, 2)), [plain(s) for s in seen]]


@like_pytorch
def test_hooks_that_are_always_called_run_after_an_error(m):
    layer, seen = m.nn.Linear(2, 2), []

    def fail(*_):
        raise ValueError("refused")

    layer.register_forward_hook(lambda *args: seen.append(args[2]), always_call=True)
    handle = layer.register_forward_pre_hook(fail)
    found = [caught(lambda: layer(m.ones(1, 2)))]
    handle.remove()
    layer.register_forward_pre_hook(lambda *_: 3, with_kwargs=True)
    found.append(caught(lambda: layer(m.ones(1, 2))))
    layer.register_forward_hook(fail, always_call=True)
    return [*found, caught(lambda: layer(m.ones(1, 2))), seen]


@like_pytorch
def test_backward_hooks_see_and_replace_gradients_of_inputs_and_outputs(m):
    n, seen = net(m).double(), []
    n.register_full_backward_pre_hook(lambda _, out: seen.append(["pre", out]) or (out[0] * 3,))
    n.register_full_backward_hook(lambda _, into, out: seen.append(["post", into, out]) or (into[0] * 10,))
    x = m.ones(2, 2, dtype=m.float64, requires_grad=True)
    y = n(x)
    y.sum().backward()
    plain_input = n(m.ones(2, 2, dtype=m.float64))
    refused = caught(lambda: plain_input.sum().backward())
    with m.no_grad():
        quiet = n(x)
    return [y.grad_fn.name(), x.grad, n[0].weight.grad, [plain(s) for s in seen], refused, quiet]


@like_pytorch
def test_what_backward_hooks_may_return(m):
    found = []
    for rows in (1, 3):
        layer, x = m.nn.Linear(2, 2), m.ones(rows, 2, requires_grad=True)
        for wrong in (lambda g: g * 2, lambda g: (g, g), lambda g: 3, lambda g: (None,), lambda g: (g * 2,)):
            with layer.register_full_backward_pre_hook(lambda _, out, w=wrong: w(out[0])):
                found.append(caught(lambda run=layer, x=x: run(x).sum().backward()))
            with layer.register_full_backward_hook(lambda _, into, out, w=wrong: w(into[0])):
                found.append(caught(lambda run=layer, x=x: run(x).sum().backward()))
    return found


@like_pytorch
def test_the_output_of_a_watched_module_is_not_written_to(m):
    layer = m.nn.Linear(1, 1)
    layer.register_full_backward_hook(lambda *_: None)
    return caught(lambda: layer(m.ones(1, 1)).add_(1))


@like_pytorch
def test_an_output_that_is_no_tensor_is_not_watched(m):
    class Dict(m.nn.Module):
        def forward(self, x):
            return {"a": x * 2}

    d, seen = Dict(), []
    d.register_full_backward_hook(lambda *_: seen.append(1))
    d(m.ones(1, requires_grad=True))["a"].sum().backward()
    return seen


@like_pytorch
def test_hooks_of_all_modules_run_before_a_modules_own(m):
    seen = []
    everywhere = m.nn.modules.module
    layer = m.nn.Identity()
    layer.register_forward_hook(lambda *_: seen.append("own"))
    layer.register_full_backward_hook(lambda *_: seen.append("own backward"))
    handles = [
        everywhere.register_module_forward_pre_hook(lambda *_: seen.append("pre")),
        everywhere.register_module_forward_hook(lambda *_: seen.append("all")),
        everywhere.register_module_full_backward_pre_hook(lambda *_: seen.append("pre backward")),
        everywhere.register_module_full_backward_hook(lambda *_: seen.append("all backward")),
    ]
    try:
        layer(m.ones(1, requires_grad=True)).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    layer(m.ones(1))
    return seen


@pytest.mark.parametrize("statement", [
    "r = [type(x).__name__ for x in s * 2]", "r = len(3 * s)", "t = s; s *= 3; r = (t is s, list(s._modules))", "s * 0", "s * 1.5", "s * 'a'",
    "r = (s * 2)[0] is (s * 2)[2]", "s *= -1",
])  # fmt: skip
def test_sequences_of_modules_are_repeated(statement):
    def outcome(m):
        names = {"s": m.nn.Sequential(m.nn.Tanh(), m.nn.ReLU())}
        raised = error_of(lambda: exec(statement, names))
        return names.get("r"), raised and (raised[0], raised[1].replace("torchgrad_jax.", "torch."))

    assert outcome(tj) == outcome(torch)


@like_pytorch
def test_a_layer_without_features_draws_as_many_numbers(m):
    found = []
    for layer in ("Linear(0, 3)", "Linear(3, 0)", "Conv1d(0, 3, 2)", "Conv2d(3, 0, 2)", "TransformerEncoderLayer(4, 2, dim_feedforward=0)",
                  "TransformerDecoderLayer(4, 2, dim_feedforward=0)"):  # fmt: skip
        m.manual_seed(3)
        made = eval(f"m.nn.{layer}", {"m": m})
        found.append((m.rand(3), [p.detach() for name, p in made.named_parameters() if name != "linear1.weight"]))
    return found


@like_pytorch
def test_the_row_of_padding_is_one_write_more(m):
    return [
        m.nn.Embedding(4, 2, padding_idx=1).weight._version,
        m.nn.EmbeddingBag(4, 2, padding_idx=1).weight._version,
        m.nn.Embedding(4, 2).weight._version,
    ]


@like_pytorch
def test_the_last_bag_ends_with_the_indices(m):
    m.nn.functional.embedding_bag(m.tensor([0, 1]), m.ones(3, 2), m.tensor([0, 3]))


def test_bags_are_in_order():
    x, w = tj.tensor([0, 1, 2, 3]), tj.ones(5, 3)
    for offsets, last in (([0, 3, 2], False), ([0, 3, 2], True), ([0, 6, 4], False), ([], True)):
        with pytest.raises(RuntimeError):
            tj.nn.functional.embedding_bag(x, w, tj.tensor(offsets, dtype=tj.int64), mode="sum", include_last_offset=last)
