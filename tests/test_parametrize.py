"""torch.nn.utils.parametrize and parametrizations against PyTorch's."""

from __future__ import annotations

import copy
import pickle

import pytest
from side_by_side import caught, plain, programs

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


def linear(m, rows=2, columns=2, dtype="float64"):
    layer = m.nn.Linear(columns, rows, dtype=getattr(m, dtype))
    with m.no_grad():
        for i, p in enumerate(layer.parameters()):
            p.copy_((m.arange(p.numel(), dtype=p.dtype).reshape(p.shape) * 0.7 + i).sin())
    return layer


def of(m, forward, inverse=None):
    """A parametrization by two functions."""

    class Of(m.nn.Module):
        def forward(self, *x):
            return forward(*x)

    if inverse is not None:
        Of.right_inverse = lambda self, y: inverse(y)
    return Of()


def doubled(m):
    return of(m, lambda x: x * 2, lambda y: y / 2)


def symmetric(m):
    return of(m, lambda x: x.triu() + x.triu(1).mT)


def product(m):
    return of(m, lambda a, b: a * b, lambda y: (y.clone(), m.ones_like(y)))


# ---------------------------------------------------------------------- parametrize


@program
def a_parametrized_module(m):
    P = m.nn.utils.parametrize
    layer = linear(m)
    weight = layer.weight
    made = P.register_parametrization(layer, "weight", doubled(m))
    listed = layer.parametrizations.weight
    layer(m.ones(1, 2, dtype=m.float64)).sum().backward()
    return [
        made is layer, repr(layer), type(layer).__name__, type(layer).__mro__[1].__name__, list(layer.state_dict()), layer.weight,
        [name for name, _ in layer.named_parameters()], list(layer._parameters), listed.original is weight, listed.is_tensor, listed.unsafe,
        listed.ntensors, weight.grad, layer.weight.grad_fn.name(), isinstance(layer, m.nn.Linear), P.is_parametrized(layer),
        P.is_parametrized(layer, "weight"), P.is_parametrized(layer, "bias"), P.is_parametrized(m.nn.ReLU()),
        P.type_before_parametrizations(layer) is m.nn.Linear, P.type_before_parametrizations(m.nn.ReLU()) is m.nn.ReLU,
        isinstance(layer.parametrizations, m.nn.ModuleDict), isinstance(listed, m.nn.ModuleList), "weight" in dir(layer),
    ]  # fmt: skip


@program
def several_parametrizations(m):
    P = m.nn.utils.parametrize
    layer = linear(m)
    P.register_parametrization(layer, "weight", doubled(m))
    first = type(layer)
    P.register_parametrization(layer, "weight", of(m, lambda x: x + 1, lambda y: y - 1))
    P.register_parametrization(layer, "bias", doubled(m))
    layer.weight = m.ones(2, 2, dtype=m.float64) * 5
    found = [repr(layer), layer.weight, layer.parametrizations.weight.original, layer.bias, type(layer) is first]
    P.register_parametrization(layer, "weight", symmetric(m))
    found.append(caught(lambda: setattr(layer, "weight", m.ones(2, 2))))
    P.remove_parametrizations(layer, "weight")
    found += [repr(layer), layer.weight, type(layer) is first, hasattr(type(layer), "weight")]
    P.remove_parametrizations(layer, "bias", leave_parametrized=False)
    return [*found, repr(layer), layer.bias, type(layer) is m.nn.Linear, hasattr(layer, "parametrizations"), list(layer._parameters)]


@program
def a_parametrization_of_several_tensors(m):
    P = m.nn.utils.parametrize
    layer = linear(m)
    P.register_parametrization(layer, "weight", product(m))
    listed = layer.parametrizations.weight
    found = [list(layer.state_dict()), listed.ntensors, listed.is_tensor, layer.weight, listed.original1]
    layer.weight = m.full((2, 2), 3.0, dtype=m.float64)
    found += [listed.original0, layer.weight, caught(lambda: P.remove_parametrizations(layer, "weight", leave_parametrized=False))]
    found += [caught(lambda: setattr(layer, "weight", m.ones(2, 2))), caught(lambda: listed.right_inverse(3))]
    P.remove_parametrizations(layer, "weight")
    frozen = linear(m).requires_grad_(False)
    P.register_parametrization(frozen, "weight", product(m))
    found.append([[name, p.requires_grad] for name, p in frozen.named_parameters()])
    P.remove_parametrizations(frozen, "weight")
    return [*found, layer.weight, type(layer.weight).__name__, repr(layer), frozen.weight.requires_grad, type(frozen.weight).__name__]


@program
def what_parametrizations_may_give(m):
    P, found = m.nn.utils.parametrize, []
    for forward, inverse in (
        (lambda x: 3, None), (lambda x: x.float(), None), (lambda x: x[0], None), (lambda x: x, lambda y: 3), (lambda x: x, lambda y: y.float()),
        (lambda x: x, lambda y: y[0]), (lambda x: x, lambda y: (y,)), (lambda x: x, lambda y: (y, 3)), (lambda x: x, lambda y: [y]),
        (lambda x: x.detach(), None), (lambda x: 1 / 0, None), (lambda x: x, lambda y: 1 / 0), (lambda x: x, lambda y: y + 1),
        (lambda x: x * 1, lambda y: (_ for _ in ()).throw(NotImplementedError("no"))),
    ):  # fmt: skip
        for unsafe in (False, True):
            for again in (False, True):
                layer = linear(m)
                if again:
                    P.register_parametrization(layer, "weight", doubled(m))
                found.append(caught(lambda x=layer, f=forward, i=inverse, u=unsafe: P.register_parametrization(x, "weight", of(m, f, i), unsafe=u)))
                found.append(list(layer.state_dict()))
    layer = linear(m)
    P.register_parametrization(layer, "weight", of(m, lambda x: x, lambda y: (y,) if y.sum() > 50 else y))
    found.append(caught(lambda: setattr(layer, "weight", m.full((2, 2), 50.0, dtype=m.float64))))
    found.append(caught(lambda: setattr(layer, "weight", m.ones(2, 2))))
    return found


@program
def what_cannot_be_parametrized(m):
    P = m.nn.utils.parametrize
    return [
        caught(call) for call in (
            lambda: P.register_parametrization(linear(m), "w", symmetric(m)),
            lambda: P.register_parametrization(linear(m), "in_features", symmetric(m)),
            lambda: P.register_parametrization(linear(m), "weight", lambda x: x), lambda: P.register_parametrization(linear(m), "weight", 3),
            lambda: P.remove_parametrizations(linear(m), "weight"), lambda: P.ParametrizationList([], m.ones(1)),
            lambda: P.ParametrizationList([doubled(m)], m.ones(2))(), lambda: P.ParametrizationList([product(m)], m.ones(2)).right_inverse(m.ones(2)),
            lambda: P.register_parametrization(3, "weight", symmetric(m)),
        )
    ]  # fmt: skip


@program
def parametrized_buffers(m):
    P = m.nn.utils.parametrize
    module = m.nn.Module()
    module.register_buffer("x", m.ones(2, 2))
    module.register_buffer("y", m.ones(2, 2))
    P.register_parametrization(module, "x", doubled(m))
    P.register_parametrization(module, "y", product(m))
    found = [list(module.state_dict()), list(module.parametrizations.x._buffers), list(module.parametrizations.y._buffers), module.x, module.y]
    P.remove_parametrizations(module, "x")
    P.remove_parametrizations(module, "y")
    return [*found, list(module._buffers), list(module._parameters), module.x]


@program
def modes_and_conversion_of_parametrizations(m):
    P = m.nn.utils.parametrize
    layer, given = linear(m).eval(), doubled(m)
    P.register_parametrization(layer, "weight", given)
    found = [given.training, layer.parametrizations.training, layer.train().parametrizations.weight[0].training]
    layer.float()
    found += [layer.weight.dtype == m.float32, layer.weight]
    state = layer.state_dict()
    other = linear(m, dtype="float32")
    found.append(caught(lambda: other.load_state_dict(state)))
    found.append(caught(lambda: layer.load_state_dict(other.state_dict(), strict=False)))
    P.register_parametrization(other, "weight", doubled(m))
    return [*found, caught(lambda: other.load_state_dict(state)), other.weight]


@program
def tensors_are_computed_once_while_cached(m):
    P, counts = m.nn.utils.parametrize, [0]

    def counting(x):
        counts[0] += 1
        return x * 2

    layer = linear(m)
    P.register_parametrization(layer, "weight", of(m, counting))
    seen = [counts[0]]
    for _ in range(2):
        _ = layer.weight
    seen.append(counts[0])
    with P.cached():
        same = layer.weight is layer.weight
        with P.cached():
            _ = layer.weight
        _ = layer.weight
        seen.append(counts[0])
    _ = layer.weight
    return [*seen, counts[0], same]


@program
def tied_and_copied_parametrizations(m):
    P = m.nn.utils.parametrize
    shared, a, b = m.nn.Parameter(m.ones(2, 2)), m.nn.Linear(2, 2), m.nn.Linear(2, 2)
    a.weight = b.weight = shared
    for layer in (a, b):
        P.register_parametrization(layer, "weight", doubled(m))
    both = m.nn.Sequential(a, b)
    twin = copy.deepcopy(both)
    with m.no_grad():
        twin[0].parametrizations.weight.original.fill_(5)
    return [
        a.parametrizations.weight.original is b.parametrizations.weight.original, [name for name, _ in both.named_parameters()],
        twin[0].parametrizations.weight.original is twin[1].parametrizations.weight.original, type(twin[0]) is type(a), a.weight, twin[1].weight,
        caught(lambda: pickle.dumps(a)),
    ]  # fmt: skip


@program
def parametrizations_are_transferred(m):
    P = m.nn.utils.parametrize
    source, target = linear(m), m.nn.Linear(2, 2, dtype=m.float64)
    P.register_parametrization(source, "weight", symmetric(m))
    P.register_parametrization(source, "bias", doubled(m))
    made = P.transfer_parametrizations_and_params(source, target)
    found = [
        made is target, repr(target), target.weight, target.parametrizations.weight.original is source.parametrizations.weight.original,
        target.parametrizations.weight[0] is source.parametrizations.weight[0], target.bias,
    ]  # fmt: skip
    several, bare = linear(m), m.nn.Linear(2, 2, bias=False, dtype=m.float64)
    P.register_parametrization(several, "weight", product(m))
    P.transfer_parametrizations_and_params(several, bare)
    found += [list(bare.state_dict()), bare.parametrizations.weight.original0 is several.parametrizations.weight.original0]
    only = P.transfer_parametrizations_and_params(source, linear(m), "bias")
    return [*found, repr(only), caught(lambda: P.transfer_parametrizations_and_params(linear(m), linear(m))),
            caught(lambda: P.transfer_parametrizations_and_params(several, linear(m), "bias"))]  # fmt: skip


@program
def classes_with_methods_of_their_own(m):
    class Own(m.nn.Linear):
        def __deepcopy__(self, memo):
            return 3

        @property
        def twice(self):
            return self.weight * 2

    own = Own(1, 1)
    m.nn.utils.parametrize.register_parametrization(own, "weight", doubled(m))
    with m.no_grad():
        own.parametrizations.weight.original.fill_(1)
    return [copy.deepcopy(own), own.twice, type(own).__name__, caught(lambda: setattr(own, "weight", m.nn.Parameter(m.ones(1, 1))))]


# ---------------------------------------------------------------------- orthogonal


@program
def orthogonal_maps(m):
    orthogonal, found = m.nn.utils.parametrizations.orthogonal, []
    for rows, columns, trivialized in ((2, 2, False), (2, 2, True), (2, 3, True)):
        for name in ("matrix_exp", "cayley", "householder", None):
            m.manual_seed(0)
            layer = linear(m, rows, columns)
            if caught(lambda x=layer, n=name, t=trivialized: orthogonal(x, orthogonal_map=n, use_trivialization=t))[0] == "NotImplementedError":
                found.append("not implemented")
            with m.no_grad():
                original = layer.parametrizations.weight.original
                original.copy_(m.arange(original.numel()).reshape(original.shape).sin() if name in ("matrix_exp", "cayley") else original)
            (layer.weight * m.arange(rows * columns).reshape(rows, columns).cos()).sum().backward()
            found.append([name, rows, columns, trivialized, list(layer.state_dict()), layer.weight, original.grad])
    return found


@program
def what_orthogonal_refuses(m):
    orthogonal = m.nn.utils.parametrizations.orthogonal
    layer = orthogonal(linear(m, 3, 2))
    plain_layer = orthogonal(linear(m), use_trivialization=False)
    batch = m.nn.Module()
    batch.w = m.nn.Parameter(m.stack([m.eye(2) * 3, m.eye(2) * 2]))
    return [
        caught(lambda: orthogonal(linear(m), "w")), caught(lambda: orthogonal(linear(m), "bias")),
        caught(lambda: orthogonal(linear(m), orthogonal_map="x")),
        caught(lambda: setattr(layer, "weight", m.ones(2, 2, dtype=m.float64))),
        caught(lambda: setattr(plain_layer, "weight", m.eye(2, dtype=m.float64))),
        orthogonal(batch, "w").w, batch.w.shape, repr(layer.parametrizations.weight[0]).splitlines()[0],
        caught(lambda: orthogonal(m.nn.Linear(2, 2, dtype=m.complex64), orthogonal_map="householder")),
    ]  # fmt: skip


def test_what_is_assigned_to_an_orthogonal_matrix_is_orthogonalized():
    layer = tj.nn.utils.parametrizations.orthogonal(linear(tj, 3, 3))
    wanted = tj.linalg.qr(linear(tj, 3, 3).weight.detach() + tj.eye(3, dtype=tj.float64))[0]
    layer.weight = wanted
    assert tj.allclose(layer.weight, wanted)
    layer.weight = wanted * 3
    assert tj.allclose(layer.weight @ layer.weight.mT, tj.eye(3, dtype=tj.float64))


def test_complex_matrices_are_unitary():
    layer = tj.nn.utils.parametrizations.orthogonal(tj.nn.Linear(3, 2, dtype=tj.complex128))
    assert tj.allclose(layer.weight @ layer.weight.mH, tj.eye(2, dtype=tj.complex128))


# ---------------------------------------------------------------------- weight norm and spectral norm


@program
def weight_norm_by_parametrization(m):
    weight_norm, found = m.nn.utils.parametrizations.weight_norm, []
    for dim in (0, 1, -1, None, 2):
        layer = linear(m, 3, 2)
        error = caught(lambda x=layer, d=dim: repr(weight_norm(x, dim=d)))
        found.append(error)
        if isinstance(error, str):
            layer(m.ones(1, 2, dtype=m.float64)).square().sum().backward()
            listed = layer.parametrizations.weight
            found.append([layer.weight, layer.weight.grad_fn.name(), listed.original0, listed.original0.grad, listed.original1.grad])
    old = {"weight_g": m.full((3, 1), 2.0), "weight_v": m.ones(3, 2), "bias": m.zeros(3)}
    layer = weight_norm(linear(m, 3, 2, "float32"))
    found.append(caught(lambda: layer.load_state_dict(old)))
    layer.weight = m.full((3, 2), 4.0)
    return [*found, list(layer.state_dict()), layer.weight, layer.parametrizations.weight.original0, sorted(old)]


@program
def weight_norm_as_functions(m):
    v = (m.arange(12, dtype=m.float64).reshape(3, 2, 2) + 1).sin().requires_grad_()
    found = []
    for dim in (0, 1, 2, -1):
        norms = m.norm_except_dim(v, 2, dim)
        g = (norms.detach() * 2 + 1).requires_grad_()
        w = m._weight_norm(v, g, dim)
        found.append([norms, w, w.grad_fn.name(), *m.autograd.grad((w * w * v).sum(), (v, g))])
    return [*found, m._weight_norm(v.float(), m.ones(3, 1, 1), 0), caught(lambda: m.norm_except_dim(v, 2, 5)), m.norm_except_dim(v, 1, 0)]


def test_second_derivatives_of_weight_norm():
    # PyTorch's, along the first and the last dimension, are wrong: its gradgradcheck says so.
    v = (tj.arange(12, dtype=tj.float64).reshape(3, 2, 2) + 1).sin().requires_grad_()
    for dim, g in ((0, tj.ones(3, 1, 1)), (2, tj.ones(1, 1, 2))):
        assert tj.autograd.gradgradcheck(lambda v, g, dim=dim: tj._weight_norm_interface(v, g, dim), (v, g.double().requires_grad_()))


@program
def spectral_norm_by_parametrization(m):
    spectral_norm, found = m.nn.utils.parametrizations.spectral_norm, []
    for rows, columns, dim in ((3, 2, None), (2, 3, 1), (3, 2, -1)):
        m.manual_seed(1)
        layer = spectral_norm(linear(m, rows, columns), n_power_iterations=2, dim=dim)
        listed = layer.parametrizations.weight
        found.append([list(layer.state_dict()), listed[0]._u, layer.weight, listed[0]._u])
        layer(m.ones(1, columns, dtype=m.float64)).square().sum().backward()
        layer.eval()
        found.append([listed.original.grad, layer.weight, layer.weight, listed[0]._v])
    bias = spectral_norm(linear(m), "bias")
    found += [list(bias.state_dict()), bias.bias]
    refused = [dict(n_power_iterations=0), dict(dim=2), dict(dim=-3), dict(name="w")]
    return [*found, [caught(lambda o=o: spectral_norm(linear(m), **o)) for o in refused], repr(layer)]


# ---------------------------------------------------------------------- the older forms, by hooks


@program
def weight_norm_by_a_hook(m):
    u = m.nn.utils
    layer = u.weight_norm(linear(m, 3, 2))
    x = m.ones(1, 2, dtype=m.float64)
    found = [repr(layer), list(layer.state_dict()), layer.weight, layer.weight.grad_fn.name(), "weight" in vars(layer)]
    layer(x).square().sum().backward()
    found += [layer.weight_g.grad, layer.weight_v.grad, caught(lambda: u.weight_norm(layer)), u.weight_norm(layer, "bias") is layer]
    with m.no_grad():
        layer.weight_g.mul_(2)
    found += [layer(x), u.remove_weight_norm(layer) is layer, list(layer.state_dict()), layer.weight, type(layer.weight).__name__]
    found += [caught(lambda: u.remove_weight_norm(layer)), caught(lambda: u.weight_norm(linear(m), "q"))]
    return [*found, [u.weight_norm(linear(m, 3, 2), dim=d).weight_g.shape for d in (None, -1, 1)], len(layer._forward_pre_hooks)]


@program
def spectral_norm_by_a_hook(m):
    u, x = m.nn.utils, m.ones(1, 3, dtype=m.float64)
    m.manual_seed(0)
    layer = u.spectral_norm(linear(m, 2, 3))
    found = [
        repr(layer), list(layer.state_dict()), [[k, dict(v)] for k, v in layer.state_dict()._metadata.items()], type(layer.weight).__name__,
        layer.weight, layer.weight_u, layer.weight_v,
    ]  # fmt: skip
    layer(x).square().sum().backward()
    found += [layer.weight, layer.weight_orig.grad, layer.weight_u, layer.eval()(x), layer(x), layer.weight_u]
    found += [caught(lambda: u.spectral_norm(layer)), u.remove_spectral_norm(layer) is layer, list(layer.state_dict()), layer.weight]
    found += [caught(lambda: u.remove_spectral_norm(layer)), len(layer._forward_pre_hooks), len(layer._state_dict_hooks)]
    m.manual_seed(0)
    options = [dict(n_power_iterations=0), dict(name="w"), dict(name="bias"), dict(dim=1)]
    found += [caught(lambda o=o: [v.shape for v in u.spectral_norm(linear(m), **o).state_dict().values()]) for o in options]
    return [*found, caught(lambda: u.spectral_norm(m.nn.Linear(1, 1, bias=False), "bias"))]


@program
def old_states_of_spectral_norm(m):
    u = m.nn.utils
    m.manual_seed(0)
    a, b = u.spectral_norm(linear(m, 2, 3)), u.spectral_norm(linear(m, 2, 3))
    a(m.ones(1, 3, dtype=m.float64))
    now = dict(a.state_dict())
    old = {k: v for k, v in now.items() if k != "weight_v"}
    found = [caught(lambda: b.load_state_dict(now)), caught(lambda: b.load_state_dict(old)), caught(lambda: b.load_state_dict({}))]
    old["weight"] = a.weight.detach()
    found += [caught(lambda: b.load_state_dict(old)), b.weight_v, caught(lambda: b.load_state_dict({}, strict=False))]
    state = a.state_dict()
    del state["weight_v"]
    return [*found, caught(lambda: b.load_state_dict(state)), sorted(old)]


def test_a_module_with_spectral_norm_is_copied_and_pickled():
    layer = tj.nn.utils.spectral_norm(linear(tj, 2, 3)).eval()
    x = tj.ones(1, 3, dtype=tj.float64)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert tj.allclose(twin(x), layer(x)) and list(twin.state_dict()) == list(layer.state_dict())


# ---------------------------------------------------------------------- layers as one, layers without initial values


@program
def batch_norm_becomes_part_of_the_layer_before(m):
    u = m.nn.utils

    def normalized(kind, n, affine=True):
        made = getattr(m.nn, kind)(n, affine=affine, dtype=m.float64)
        made.running_mean.copy_(m.arange(n) * 0.1)
        made.running_var.copy_(m.arange(n) + 1.0)
        return made.eval()

    conv, bn = m.nn.Conv2d(2, 3, 2, dtype=m.float64).eval(), normalized("BatchNorm2d", 3)
    with m.no_grad():
        for p in conv.parameters():
            p.copy_(m.arange(p.numel()).reshape(p.shape).sin())
        bn.weight.copy_(m.arange(3) + 0.5)
    x = m.arange(2 * 2 * 3 * 3, dtype=m.float64).reshape(2, 2, 3, 3).cos()
    fused = u.fuse_conv_bn_eval(conv, bn)
    found = [fused(x), bool(m.allclose(fused(x), bn(conv(x)))), fused.weight, fused.bias, fused is conv, conv.weight]
    layer, bn1 = linear(m, 3, 2).eval(), normalized("BatchNorm1d", 3, affine=False)
    layer_bn = normalized("BatchNorm1d", 3)
    found += [u.fuse_linear_bn_eval(layer, layer_bn).weight, u.fuse_linear_bn_eval(layer, normalized("BatchNorm1d", 1)).bias]
    found += [caught(lambda: u.fuse_conv_bn_eval(conv.train(), bn)), caught(lambda: u.fuse_linear_bn_eval(layer, normalized("BatchNorm1d", 2)))]
    found += [caught(lambda: u.fuse_conv_bn_eval(conv.eval(), m.nn.BatchNorm2d(3, track_running_stats=False).eval()))]
    w = m.arange(24, dtype=m.float64).reshape(2, 3, 2, 2)
    for transpose in (False, True):
        n = 3 if transpose else 2
        found += list(u.fuse_conv_bn_weights(w, None, m.ones(n).double(), m.ones(n).double() * 3, 1e-3, None, None, transpose))
    frozen = linear(m).requires_grad_(False).eval()
    found += [p.requires_grad for p in u.fuse_linear_bn_eval(frozen, normalized("BatchNorm1d", 2)).parameters()]
    return [*found, bn1.weight]


@program
def modules_without_initial_values(m):
    m.manual_seed(0)
    made = m.nn.utils.skip_init(m.nn.Linear, 2, 3, dtype=m.float64, bias=False)
    after = m.rand(1).item()
    m.manual_seed(0)

    class No(m.nn.Module):
        pass

    return [
        repr(made), made.weight.dtype == m.float64, after == m.rand(1).item(), caught(lambda: m.nn.utils.skip_init(No)),
        caught(lambda: m.nn.utils.skip_init(int, 3)),
    ]  # fmt: skip


@program
def weights_of_convolutions_in_another_order(m):
    u = m.nn.utils
    net = m.nn.Sequential(m.nn.Conv2d(2, 3, 2), m.nn.Linear(2, 2), m.nn.Conv3d(2, 3, 2))
    weight, before = net[0].weight, plain(net[0].weight)
    made = u.convert_conv2d_weight_memory_format(net, m.channels_last)
    found = [made is net, net[0].weight is weight, net[0].weight.stride(), plain(net[0].weight) == before, net[2].weight.stride()]
    u.convert_conv3d_weight_memory_format(net, m.channels_last_3d)
    return [*found, net[2].weight.stride(), net[0](m.ones(1, 2, 3, 3)).shape]
