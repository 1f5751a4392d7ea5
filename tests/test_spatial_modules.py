"""Pooling, unpooling, padding, folding, shuffling, resizing, transposed convolutions and normalization as modules, against PyTorch."""

from __future__ import annotations

import pytest
from side_by_side import agree, error_of, like_pytorch, plain, programs, torch

import torchgrad_jax as tj

pytestmark = [pytest.mark.operators, pytest.mark.filterwarnings("ignore")]
program, test_programs_like_pytorch = programs()

# What PyTorch's module database has nothing of: a module with the shape of its input.
LAYERS = {
    "lrn of lua": (lambda nn: nn.CrossMapLRN2d(5, alpha=0.5), (2, 7, 2, 2)),
    "fold": (lambda nn: nn.Fold((3, 4), 2), (2, 8, 6)),
    "unfold": (lambda nn: nn.Unfold(2, dilation=2, padding=1), (1, 2, 4, 5)),
    "pixel_shuffle": (lambda nn: nn.PixelShuffle(2), (1, 8, 2, 3)),
    "pixel_unshuffle": (lambda nn: nn.PixelUnshuffle(2), (2, 4, 6)),
    "channel_shuffle": (lambda nn: nn.ChannelShuffle(2), (1, 4, 2, 2)),
    "upsample": (lambda nn: nn.Upsample(scale_factor=(2, 1.5), mode="bilinear"), (1, 2, 3, 4)),
    "upsample to a size": (lambda nn: nn.Upsample(7), (1, 2, 3)),
    "upsampling_nearest2d": (lambda nn: nn.UpsamplingNearest2d(scale_factor=2), (1, 2, 3, 4)),
    "upsampling_bilinear2d": (lambda nn: nn.UpsamplingBilinear2d((5, 5)), (1, 2, 3, 4)),
    "sync_batch_norm": (lambda nn: nn.SyncBatchNorm(3), (4, 3, 2)),
    "sync_batch_norm outside training": (lambda nn: nn.SyncBatchNorm(3, momentum=None).eval(), (4, 3)),
    "batch_norm without bias": (lambda nn: nn.BatchNorm1d(3, bias=False), (4, 3)),
    "instance_norm with statistics": (lambda nn: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (3, 4)),
    "group_norm without bias": (lambda nn: nn.GroupNorm(2, 4, bias=False), (2, 4, 3)),
    "layer_norm without bias": (lambda nn: nn.LayerNorm([2, 3], bias=False), (4, 2, 3)),
    "max_unpool2d": (lambda nn: Unpooled(nn, 2), (1, 2, 4, 6)),
    "max_unpool1d": (lambda nn: Unpooled(nn, 1, stride=1), (1, 2, 5)),
    "max_unpool3d": (lambda nn: Unpooled(nn, 3, padding=1), (1, 2, 4, 4, 4)),
}


def Unpooled(nn, dims, **options):  # noqa: N802 - a module
    pool = getattr(nn, f"MaxPool{dims}d")(2, return_indices=True, **options)
    unpool = getattr(nn, f"MaxUnpool{dims}d")(2, **options)

    def forward(self, x):
        return unpool(*pool(x), output_size=x.shape)

    return type("Unpooled", (nn.Module,), {"forward": forward})()


# PyTorch's backward of it is not the derivative of its forward: see docs/differences.md.
OTHER_GRADIENT = {"lrn of lua"}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_pytorchs_does(name):
    make, shape = LAYERS[name]

    def outcome(m):
        m.manual_seed(7)
        layer = make(m.nn).double()
        x = m.randn(*shape, dtype=m.float64, requires_grad=True)
        y = layer(x)
        grads = [] if name in OTHER_GRADIENT else m.autograd.grad((y * m.randn(*y.shape, dtype=m.float64)).sum(), [x, *layer.parameters()])
        return [repr(layer), plain(y), plain(grads), [plain(v) for v in layer.state_dict().values()]]

    ours, theirs = outcome(tj), outcome(torch)
    assert agree(ours, theirs), f"\nours:   {ours}\ntheirs: {theirs}"


def test_the_gradient_of_the_lrn_of_lua_is_the_derivative():
    x = tj.rand(1, 6, 1, 2, dtype=tj.float64, requires_grad=True)
    for size in (1, 2, 5):
        assert tj.autograd.gradcheck(tj.nn.CrossMapLRN2d(size, alpha=0.5), x)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_fractional_pooling_takes_the_windows_that_the_seed_gives(dims, dtype):
    def outcome(m):
        m.manual_seed(11)
        x = m.randn(2, 3, *(7, 9, 6)[:dims]).to(getattr(m, dtype)).requires_grad_()
        pool = getattr(m.nn, f"FractionalMaxPool{dims}d")
        by_size, indices = pool(2, output_size=3, return_indices=True)(x)
        by_ratio = pool((3, 2, 2)[:dims], output_ratio=0.5)(x[0])
        (by_size.sum() + by_ratio.sum()).backward()
        shown = [n for n in dir(by_size.grad_fn) if n.startswith("_saved")]
        return [plain(v) for v in (by_size, indices, by_ratio, x.grad)] + [by_size.grad_fn.name(), shown]

    assert agree(outcome(tj), outcome(torch))


def fractional(m, *args, dims=2, **options):
    x = options.pop("x", None)
    x = m.ones(2, 3, *(7, 8, 9)[:dims]) if x is None else x
    return getattr(m.nn.functional, f"fractional_max_pool{dims}d")(x, *args, **options)


def unpooled(m, *args, dims=2, value=None, indices=None, **options):
    value = m.ones(1, 1, *(2,) * dims) if value is None else value
    indices = m.zeros(1, 1, *(2,) * dims, dtype=m.int64) if indices is None else indices
    return getattr(m.nn.functional, f"max_unpool{dims}d")(value, indices, *args, **options).tolist()


def transposed(m, output_size, *shape):
    return m.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)(m.ones(*shape or (1, 2, 4, 4)), output_size)


WRONG = {
    "fractional module without size": lambda m: m.nn.FractionalMaxPool2d(2),
    "fractional module with both": lambda m: m.nn.FractionalMaxPool3d(2, 3, 0.5),
    "fractional module's ratio": lambda m: m.nn.FractionalMaxPool2d(2, output_ratio=(0.5, 0)),
    "fractional without size": lambda m: fractional(m, 2, dims=3),
    "fractional ratio": lambda m: fractional(m, 2, output_ratio=(0.5, 0.5, 0.5)),
    "fractional sizes": lambda m: fractional(m, 2, (3, 3, 3)),
    "fractional kernel": lambda m: fractional(m, (2, 2), 3, dims=3),
    "fractional too large": lambda m: fractional(m, (2, 4), (3, 7)),
    "fractional too large volume": lambda m: fractional(m, (2, 8, 4), (3, 3, 7), dims=3),
    "fractional negative": lambda m: fractional(m, 2, -1),
    "fractional dimensions": lambda m: fractional(m, 2, 3, x=m.ones(2, 3, 7, 8, 9)),
    "fractional few dimensions": lambda m: fractional(m, 2, 3, x=m.ones(7, 8)),
    "fractional empty": lambda m: fractional(m, 2, 3, x=m.ones(2, 0, 7, 8)),
    "fractional ints": lambda m: fractional(m, 2, 3, x=m.ones(2, 3, 7, 8, dtype=m.int64)),
    "fractional samples' dtype": lambda m: fractional(m, 2, 3, _random_samples=m.rand(2, 3, 2, dtype=m.float64)),
    "fractional samples' dimensions": lambda m: fractional(m, 2, 3, _random_samples=m.rand(2, 3)),
    "fractional samples' batch": lambda m: fractional(m, 2, 3, _random_samples=m.rand(1, 3, 2)),
    "fractional samples' channels": lambda m: fractional(m, 2, 3, _random_samples=m.rand(2, 2, 2)),
    "fractional samples' numbers": lambda m: fractional(m, 2, 3, dims=3, _random_samples=m.rand(2, 3, 2)),
    "unpool size": lambda m: unpooled(m, 2, output_size=(6, 5)),
    "unpool sizes": lambda m: unpooled(m, 2, output_size=(5, 5, 5)),
    "unpool index": lambda m: unpooled(m, 2, indices=m.full((1, 1, 2, 2), 16)),
    "unpool negative index": lambda m: unpooled(m, 2, dims=1, indices=m.full((1, 1, 2), -1)),
    "unpool volume index": lambda m: unpooled(m, 2, dims=3, indices=m.full((1, 1, 2, 2, 2), 64)),
    "unpool indices' dtype": lambda m: unpooled(m, 2, indices=m.zeros(1, 1, 2, 2, dtype=m.int32)),
    "unpool indices' dtype in volumes": lambda m: unpooled(m, 2, dims=3, indices=m.zeros(1, 1, 2, 2, 2, dtype=m.int32)),
    "unpool indices' shape": lambda m: unpooled(m, 2, indices=m.zeros(1, 1, 1, 2, dtype=m.int64)),
    "unpool dimensions": lambda m: unpooled(m, 2, value=m.ones(2, 2), indices=m.zeros(2, 2, dtype=m.int64)),
    "unpool empty": lambda m: unpooled(m, 2, value=m.ones(1, 1, 0, 2), indices=m.zeros(1, 1, 0, 2, dtype=m.int64)),
    "unpool ints": lambda m: unpooled(m, 2, value=m.ones(1, 1, 2, 2, dtype=m.int64)),
    "unpool stride": lambda m: unpooled(m, 2, 0, dims=3),
    "unpool a list": lambda m: m.nn.functional.max_unpool2d(m.ones(1, 1, 2, 2), [1], 2),
    "transposed padding_mode": lambda m: m.nn.ConvTranspose2d(2, 2, 1, padding_mode="reflect"),
    "transposed size": lambda m: transposed(m, (9, 8)),
    "transposed sizes": lambda m: transposed(m, (8, 8, 8)),
    "transposed unbatched size": lambda m: transposed(m, (9, 8), 2, 4, 4),
    "group_norm": lambda m: m.nn.GroupNorm(3, 4),
    "group_norm without groups": lambda m: m.nn.functional.group_norm(m.ones(2, 4, 2), -1),
    "batch_norm eps": lambda m: m.nn.BatchNorm1d(2, eps=0.0)(m.ones(3, 2)),
    "batch_norm eps outside training": lambda m: m.nn.BatchNorm1d(2, eps=-1.0).eval()(m.ones(3, 2)),
    "sync_batch_norm": lambda m: m.nn.SyncBatchNorm(3)(m.ones(3)),
    "sync_batch_norm channels": lambda m: m.nn.SyncBatchNorm(3)(m.ones(3, 0)),
    "instance_norm": lambda m: m.nn.InstanceNorm2d(3)(m.ones(3, 3)),
    "instance_norm channels": lambda m: m.nn.InstanceNorm1d(4, affine=True)(m.ones(2, 3, 5)),
    "lrn of lua": lambda m: m.nn.CrossMapLRN2d(3)(m.ones(3, 2, 2)),
    "circular": lambda m: m.nn.CircularPad2d(1)(m.ones(2, 2)),
    "top batch_norm": lambda m: m.batch_norm(m.ones(2, 4), None, None, None, None, False, 0.1, 1e-5, False),
    "top batch_norm weight": lambda m: m.batch_norm(m.ones(2, 4), m.ones(2), None, None, None, True, 0.1, 1e-5, False),
    "top group_norm": lambda m: m.group_norm(m.ones(4), 1),
    "top layer_norm": lambda m: m.layer_norm(m.ones(2, 4), 4),
    "top instance_norm": lambda m: m.instance_norm(m.ones(2, 4, 2), None, None, None, None, False, 0.1, 1e-5, True),
    "top rms_norm": lambda m: m.rms_norm(m.ones(2, 4), (3,)),
    "convolution stride": lambda m: m.convolution(m.ones(1, 2, 4), m.ones(1, 2, 2), None, (1, 1), (0,), (1,), False, (0,), 1),
    "convolution unbatched": lambda m: m.convolution(m.ones(2, 4), m.ones(1, 2, 2), None, (1,), (0,), (1,), False, (0,), 1),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_in_pytorchs_words(name):
    ours, theirs = error_of(lambda: WRONG[name](tj)), error_of(lambda: WRONG[name](torch))
    assert ours == theirs and ours is not None


@program
def unpooling_in_graphs(m):
    x = m.arange(16.0, dtype=m.float64).reshape(1, 1, 4, 4).requires_grad_()
    value, indices = m.nn.functional.max_pool2d(x, 2, return_indices=True)
    y = m.nn.functional.max_unpool2d(value, indices, 2, output_size=(1, 1, 5, 5))
    (g,) = m.autograd.grad(y.pow(3).sum(), x, create_graph=True)
    return [y, y.grad_fn.name(), [n for n in dir(y.grad_fn) if n.startswith("_saved")], m.autograd.grad(g.sum(), x)[0]]


@program
def transforms_of_pooling_and_unpooling(m):
    x = m.arange(32.0, dtype=m.float64).reshape(2, 1, 4, 4)
    samples = m.tensor([[[0.3, 0.7]]], dtype=m.float64)

    def f(x):
        value, indices = m.nn.functional.fractional_max_pool2d(x, 2, 2, None, True, samples)
        return (value * value).sum() + m.nn.functional.max_unpool2d(value, indices, 2).mean()

    return [m.func.vmap(f)(x), m.func.vmap(m.func.grad(f))(x), m.func.jvp(f, (x[0],), (m.ones_like(x[0]),))]


def test_compiled_pooling_and_unpooling():
    x = tj.arange(32.0).reshape(2, 1, 4, 4)

    def f(x):
        value, indices = tj.nn.functional.fractional_max_pool2d(x, 2, 2, None, True, tj.full((2, 1, 2), 0.5))
        return tj.nn.functional.max_unpool2d(value, indices, 2)

    assert tj.jit(f)(x).tolist() == f(x).tolist()


@program
def transposed_convolutions_of_asked_sizes(m):
    m.manual_seed(0)
    conv = m.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, dtype=m.float64)
    x = m.randn(1, 2, 4, 4, dtype=m.float64)
    sizes = (None, (7, 7), [8, 7], (1, 3, 8, 8), m.Size([8, 8]))
    volume = m.nn.ConvTranspose3d(2, 1, 2, 2, dtype=m.float64)(m.randn(2, 2, 2, 2, dtype=m.float64), output_size=(5, 4, 5))
    line = m.nn.ConvTranspose1d(2, 1, 3, 2, dilation=2, dtype=m.float64)(x[0], (12,))
    return [*[conv(x, s) for s in sizes], conv(x[0], (8, 8)), volume, line]


@program
def statistics_of_batches(m):
    layer, x = m.nn.BatchNorm2d(2, momentum=None), m.arange(16.0).reshape(2, 2, 2, 2)
    layer(x), layer(x * 3)
    found = [layer.running_mean, layer.running_var, layer.num_batches_tracked]
    layer.track_running_stats = False
    layer(x)
    return [*map(m.clone, found), layer.num_batches_tracked, layer.eval()(x), m.nn.BatchNorm1d(2).half().running_var, layer.reset_running_stats()]


@program
def an_old_state_of_an_instance_norm(m):
    state = dict(m.nn.InstanceNorm1d(2, track_running_stats=True).state_dict())
    return m.nn.InstanceNorm1d(2).load_state_dict(state)


@program
def an_instance_norm_of_other_channels_warns(m):
    return m.nn.InstanceNorm1d(4)(m.arange(12.0).reshape(2, 3, 2))


@program
def sync_batch_norms_take_the_place_of_others(m):
    nn = m.nn
    net = nn.Sequential(nn.BatchNorm1d(3, bias=False), nn.Sequential(nn.BatchNorm2d(3, affine=False).eval()), nn.InstanceNorm1d(2))
    weight = net[0].weight
    convert = nn.SyncBatchNorm.convert_sync_batchnorm
    made = convert(net)
    return [repr(made), made[0].weight is weight, made[1][0].training, made[0].process_group, convert(net[2]) is net[2]]


@program
def functions_of_the_top_level(m):
    m.manual_seed(0)
    x, w, b = m.randn(2, 4, 3), m.rand(4), m.rand(4)
    mean, var = m.zeros(4), m.ones(4)
    found = [
        m.batch_norm(x, w, b, mean, var, True, 0.1, 1e-5, True), m.batch_norm(x[:1, :, :1], w, b, None, None, True, 0.1, 1e-5, False),
        m.instance_norm(x, w, b, mean, var, True, 0.1, 1e-5, True), m.instance_norm(x, None, None, mean, var, False, 0.1, 1e-5, True),
        m.group_norm(x, 2, w, b, 1e-3, False), m.group_norm(x[:1, :, :1], 4), m.layer_norm(x, [3], w[:3], b[:3], 1e-3, False),
        m.rms_norm(x, (3,), w[:3], 1e-3), m.convolution(x, m.randn(4, 5, 2), m.rand(5), [2], [0], [1], True, [1], 1),
    ]  # fmt: skip
    return [*found, mean, var, m.convolution(x, m.randn(2, 2, 1), None, [1], [1], [1], False, [0], 2)]


@like_pytorch
def test_bases_of_layers_can_be_inherited_from(m):
    nn, F = m.nn, m.nn.functional
    x = m.arange(16.0).reshape(1, 1, 4, 4)

    class Doubled(nn.Conv2d):
        def forward(self, x):
            return self._conv_forward(x, m.ones_like(self.weight) * 2, self.bias)

    class Own(nn.modules.conv._ConvNd):
        def __init__(self):
            super().__init__(1, 2, (3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 1, False, "zeros")

        def forward(self, x):
            return F.conv2d(x, m.ones_like(self.weight), self.bias, self.stride, self.padding)

    class AnyShape(nn.modules.batchnorm._BatchNorm):
        def _check_input_dim(self, input):
            pass

    known = nn.modules.pooling._MaxPoolNd, nn.modules.instancenorm._InstanceNorm, nn.modules.padding._ReflectionPadNd
    bases = [issubclass(a, b) for a, b in zip((nn.MaxPool2d, nn.LazyInstanceNorm1d, nn.ReflectionPad1d), known, strict=True)]
    return [Doubled(1, 1, 2, bias=False)(x), Own()(x), AnyShape(1)(x), bases, nn.modules.utils._pair(3), nn.modules.utils._ntuple(4)([1, 2])]


@like_pytorch
def test_a_prefix_is_stripped_from_a_state(m):
    state = m.nn.ModuleDict({"module": m.nn.Sequential(m.nn.Linear(1, 1))}).state_dict()
    m.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    return [list(state), [[k, v["version"]] for k, v in state._metadata.items()]]


@like_pytorch
def test_sizes_are_completed_and_repeated(m):
    u = m.nn.modules.utils
    sizes = [u._list_with_default([None, 3], [4, 5, 6]), u._list_with_default(7, [4]), u._reverse_repeat_tuple((1, 2), 2)]
    return [*sizes, u._single((3,)), u._triple(2), u._quadruple([1, 2, 3, 4]), u._pair.__name__, error_of(lambda: u._list_with_default([1], [2]))]
