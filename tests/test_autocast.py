"""torch.autocast: blocks, conversions that are kept, settings of a thread, Functions, checkpoints, transforms and jit."""

from __future__ import annotations

import contextlib
import threading
import warnings

import numpy as np
import pytest
from side_by_side import programs, skipped_where_pytorch_cannot

import torchgrad_jax as tj
from torchgrad_jax.utils.checkpoint import checkpoint

torch = pytest.importorskip("torch")
program, test_like_pytorch = programs()
# Not exact in bfloat16.
NUMBERS = [[1.001, 2.003], [3.007, -4.011]]


def matrix(m, dtype="float32", requires_grad=False):
    return m.tensor(NUMBERS, dtype=getattr(m, dtype), requires_grad=requires_grad)


def graph(node, depth=0):
    """The names of the nodes of a graph, with their depths."""
    if node is None:
        return []
    return [(depth, node.name()), *[entry for next_node, _ in node.next_functions for entry in graph(next_node, depth + 1)]]


# ---------------------------------------------------------------------- casts


@program
def casts_are_nodes_and_gradients_come_back_in_the_leafs_dtype(m):
    x, w, b = matrix(m, requires_grad=True), matrix(m, requires_grad=True), m.ones(2, requires_grad=True)
    with m.autocast("cpu"):
        y = m.nn.functional.linear(x, w, b)
    y.float().square().sum().backward()
    return y, graph(y.grad_fn), x.grad, w.grad, b.grad


@program
def products_of_batches_cast_each_operand_whole(m):
    x, w = m.arange(12.0).reshape(2, 3, 2).div(7).requires_grad_(), matrix(m, requires_grad=True)
    with m.autocast("cpu"):
        y = x @ w
    y.float().square().sum().backward()
    return y, graph(y.grad_fn), x.grad, w.grad


@program
def losses_are_computed_in_float32(m):
    x, target = matrix(m, "bfloat16", True), m.tensor([0, 1])
    with m.autocast("cpu"):
        loss = m.nn.functional.cross_entropy(x, target) + m.nn.functional.mse_loss(x, matrix(m))
    loss.backward()
    return loss, graph(loss.grad_fn), x.grad


@program
def attention_casts_queries_keys_values_and_mask(m):
    q, k, v = (m.arange(12.0).reshape(1, 1, 3, 4).div(5 + i).requires_grad_() for i in range(3))
    with m.autocast("cpu"):
        y = m.nn.functional.scaled_dot_product_attention(q, k, v, m.ones(3, 3))
    y.float().sum().backward()
    return y.dtype == m.bfloat16, [x.grad.dtype == m.float32 for x in (q, k, v)]


@program
def layers_of_attention_cast_the_weights_that_they_share(m):
    x = m.arange(8.0).reshape(2, 1, 4).div(7)
    w, b, o = m.arange(48.0).reshape(12, 4).div(48).requires_grad_(), m.zeros(12, requires_grad=True), m.eye(4).requires_grad_()
    with m.autocast("cpu"):
        y, _ = m.nn.functional.multi_head_attention_forward(x, x, x, 4, 2, w, b, None, None, False, 0.0, o, None)
    y.float().sum().backward()
    return y.dtype == m.bfloat16, w.grad.dtype == m.float32, [name for _, name in graph(y.grad_fn)].count("ToCopyBackward0")


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.operators
def test_recurrent_layers_give_what_their_products_make_of_their_states(name):
    found = []
    for m in (tj, torch):
        layer = getattr(m.nn, name)(4, 5, 2, bidirectional=True)
        with m.no_grad():
            for i, p in enumerate(layer.parameters()):
                p.copy_(m.linspace(-1, 1, p.numel()).reshape(p.shape).sin() * (0.3 + 0.05 * i))
        with m.autocast("cpu"), skipped_where_pytorch_cannot():
            y, h = layer(m.linspace(-1, 1, 24).reshape(3, 2, 4))
        y.float().square().sum().backward()
        dtypes = [str(t.dtype) for t in (y, *(h if isinstance(h, tuple) else (h,)), layer.weight_ih_l0.grad)]
        found.append((dtypes, y.detach().float().numpy()))
    assert found[0][0] == found[1][0]
    assert np.allclose(found[0][1], found[1][1], atol=0.03)


@program
def double_precision_integers_and_what_is_written_stay_as_they_are(m):
    with m.autocast("cpu"):
        return [
            matrix(m, "float64") @ matrix(m, "float64"), matrix(m, "int64") @ matrix(m, "int64"), matrix(m).addmm_(matrix(m), matrix(m)),
            m.mm(matrix(m), matrix(m), out=m.empty(2, 2)), m.matmul(matrix(m), matrix(m), out=m.empty(2, 2)),
        ]  # fmt: skip


@program
def lists_of_float16_have_no_widest_dtype_beside_bfloat16(m):
    with m.autocast("cpu"):
        return m.cat([matrix(m, "float16"), matrix(m)])


@program
def dtypes_that_do_not_go_together_are_told_after_the_casts(m):
    with m.autocast("cpu"):
        return matrix(m) @ matrix(m, "float64")


@program
def subclasses_and_modes_see_calls_before_their_arguments_are_cast(m):
    seen = []

    class Mode(m.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func.__name__ in ("mm", "prod"):
                seen.append((func.__name__, str(args[0].dtype)))
            return func(*args, **(kwargs or {}))

    with m.autocast("cpu"), Mode():
        y = m.mm(matrix(m), matrix(m))
        return y, m.prod(y), seen


# ---------------------------------------------------------------------- conversions that are kept


def twice(m, between=lambda w: None, **options):
    """A product with a leaf, twice in a block: whether its conversion is the same node, and what the second one is."""
    w = matrix(m, requires_grad=True)
    with m.autocast("cpu", **options):
        a = m.mm(matrix(m), w)
        between(w)
        b = m.mm(matrix(m), w)
    nodes = [y.grad_fn.next_functions[1][0] for y in (a, b)]
    (a + b).float().sum().backward()
    return nodes[0] is nodes[1], b, w.grad


@program
def the_conversion_of_a_leaf_is_kept(m):
    return twice(m)


@program
def it_is_kept_for_each_call_where_that_is_switched_off(m):
    return twice(m, cache_enabled=False)


@program
def it_is_kept_also_where_the_leaf_is_written_to(m):
    def write(w):
        with m.no_grad():
            w.mul_(10)

    return twice(m, write)


@program
def clearing_forgets_it(m):
    return twice(m, lambda w: m.clear_autocast_cache())


@program
def an_inner_block_keeps_it_and_the_end_of_the_outermost_forgets_it(m):
    def inner(w):
        with m.autocast("cpu", enabled=False):
            assert m.mm(w, w).dtype == m.float32
        with m.autocast("cpu"):
            m.mm(w, w)

    w, found = matrix(m, requires_grad=True), []
    for _ in range(2):
        with m.autocast("cpu"):
            found.append(m.mm(w, w).grad_fn.next_functions[0][0])
    return twice(m, inner), found[0] is found[1]


@program
def what_no_grad_has_converted_has_a_gradient_later(m):
    w = matrix(m, requires_grad=True)
    with m.autocast("cpu"):
        with m.no_grad():
            a = m.mm(matrix(m), w)
        b = m.mm(matrix(m), w)
    b.float().sum().backward()
    return a.requires_grad, graph(b.grad_fn), w.grad


@program
def inference_mode_keeps_nothing(m):
    w = matrix(m, requires_grad=True)
    with m.autocast("cpu"):
        with m.inference_mode():
            m.mm(matrix(m), w)
        with m.no_grad():
            w.mul_(10)
        return m.mm(matrix(m), w)


@program
def results_views_and_leaves_of_another_dtype_are_converted_each_time(m):
    def same(t):
        a, b = (m.mm(t, t).grad_fn.next_functions[0][0] for _ in range(2))
        return a is b

    with m.autocast("cpu"):
        return same(matrix(m, requires_grad=True) * 1), same(matrix(m)[:].requires_grad_()), same(matrix(m, "float16", True))


# ---------------------------------------------------------------------- blocks and settings


@program
def blocks_nest_with_other_dtypes_and_off(m):
    def dtype():
        return str((matrix(m) @ matrix(m)).dtype)

    found = [dtype()]
    with m.autocast("cpu"):
        found.append(dtype())
        with m.autocast("cpu", dtype=m.float16):
            found.append((dtype(), str(m.get_autocast_dtype("cpu"))))
        with m.autocast("cpu", enabled=False):
            found.append((dtype(), m.is_autocast_enabled("cpu")))
        with contextlib.suppress(ValueError), m.autocast("cpu", dtype=m.float16):
            raise ValueError
        found.append(dtype())
    return [*found, dtype(), m.is_autocast_enabled("cpu"), str(m.get_autocast_dtype("cpu"))]


@program
def it_decorates(m):
    @m.autocast("cpu", dtype=m.bfloat16)
    def product(x, y=1):
        """What it says."""
        return x @ x * y

    return product(matrix(m), y=2), product.__name__, product.__doc__, m.autocast("cpu")(len)([1, 2])


@program
def settings_without_blocks(m):
    found = [m.autocast_increment_nesting(), m.autocast_increment_nesting(), m.autocast_decrement_nesting(), m.autocast_decrement_nesting()]
    try:
        m.set_autocast_enabled("cpu", True)
        m.set_autocast_dtype("cpu", m.float16)
        m.set_autocast_cache_enabled(False)
        found += [matrix(m) @ matrix(m), m.is_autocast_enabled("cpu"), m.is_autocast_enabled(), m.is_autocast_cache_enabled()]
        m.set_autocast_enabled("cpu", False)
        return [*found, matrix(m) @ matrix(m), m.autocast("cpu", enabled=False)._cache_enabled]
    finally:
        m.set_autocast_enabled("cpu", False)
        m.set_autocast_dtype("cpu", m.bfloat16)
        m.set_autocast_cache_enabled(True)


@program
def older_names_warn(m):
    m.set_autocast_cpu_enabled(False)
    m.set_autocast_cpu_dtype(m.bfloat16)
    m.set_autocast_gpu_dtype(m.float16)
    m.set_autocast_xla_enabled(False)
    m.set_autocast_ipu_dtype(m.float16)
    with m.cpu.amp.autocast() as block:
        y = matrix(m) @ matrix(m)
    return [
        y, str(block.fast_dtype), m.is_autocast_cpu_enabled(), str(m.get_autocast_cpu_dtype()), str(m.get_autocast_gpu_dtype()),
        m.is_autocast_xla_enabled(), str(m.get_autocast_xla_dtype()), m.is_autocast_ipu_enabled(), m.cpu.amp.GradScaler().get_scale(),
        m.cuda.amp.autocast(enabled=False)._enabled, m.cuda.amp.GradScaler(enabled=False).get_scale(), m.cuda.amp.custom_bwd(len).__name__,
        m.cuda.amp.custom_fwd(len).__name__,
    ]  # fmt: skip


WRONG = """
m.autocast(3); m.autocast("foo"); m.autocast("meta");
m.autocast("meta",dtype=m.bfloat16); m.autocast("cpu",dtype=m.float32); m.autocast("xpu",dtype=m.float64);
m.autocast("cpu")(3); m.autocast("cpu",enabled=1).__enter__(); m.autocast("cpu",dtype=3);
m.is_autocast_enabled(3); m.is_autocast_enabled("meta"); m.is_autocast_enabled("foo");
m.set_autocast_enabled("cpu",1); m.set_autocast_enabled("cuda"); m.set_autocast_enabled("meta",True);
m.get_autocast_dtype(3); m.get_autocast_dtype("meta"); m.set_autocast_dtype("cpu",3);
m.set_autocast_dtype(3,m.float16); m.set_autocast_cache_enabled(3); m.set_autocast_cpu_enabled(3);
m.set_autocast_cpu_dtype(3); m.amp.is_autocast_available(3); m.amp.is_autocast_available("foo");
m.amp.custom_fwd(len); m.amp.custom_fwd(len,device_type=3); m.amp.custom_bwd(len,device_type=3)
"""


@pytest.mark.parametrize("call", [call.strip() for call in WRONG.split(";")])
def test_wrong_arguments_are_told_in_pytorchs_words(call):
    def told(m):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                eval(call, {"m": m})
            except Exception as error:
                return type(error).__name__, str(error)
        return [(w.category.__name__, str(w.message)) for w in caught]

    ours, theirs = told(tj), told(torch)
    assert theirs and ours == theirs


def test_types_of_devices_have_the_dtypes_that_they_have_in_pytorch():
    for where in ("cpu", "cuda", "xpu", "mps", "xla", "hpu", "mtia", "ipu", "maia"):
        assert str(tj.get_autocast_dtype(where)) == str(torch.get_autocast_dtype(where))
        assert tj.amp.is_autocast_available(where) and torch.amp.is_autocast_available(where)
    assert not tj.amp.is_autocast_available("meta")
    assert set(tj.amp.__all__) >= set(torch.amp.__all__) and set(tj.cuda.amp.__all__) >= set(torch.cuda.amp.__all__)


def test_other_threads_have_settings_of_their_own():
    found = []

    def ask():
        found.append((tj.is_autocast_enabled("cpu"), (matrix(tj) @ matrix(tj)).dtype))

    with tj.autocast("cpu"):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert found == [(False, tj.float32)]


def test_switched_off_it_leaves_no_trace():
    rec = tj.runtime.recorder.recorder()
    before = rec.rare
    with tj.autocast("cpu"):
        assert rec.rare != before
        matrix(tj, requires_grad=True) @ matrix(tj)
    assert rec.rare == before and rec.flags.casting is None and not rec.flags.casts


# ---------------------------------------------------------------------- Functions


def product(m, device_type=None, cast_inputs=None):
    """A Function that multiplies, and says what it sees."""
    seen = []

    def forward(ctx, x, w, more):
        ctx.save_for_backward(w)
        y = x.mm(w)
        inner = more["a"][0] if isinstance(more, dict) else more
        seen.append([str(t.dtype) for t in (x, w, y, inner)] + [m.is_autocast_enabled("cpu")])
        return y

    def backward(ctx, grad):
        (w,) = ctx.saved_tensors
        seen.append([str(grad.dtype), str(m.mm(matrix(m), matrix(m)).dtype), m.is_autocast_enabled("cpu"), str(m.get_autocast_dtype("cpu"))])
        return grad.to(w.dtype).mm(w.t()).float(), None, None

    if device_type is not None:
        forward = m.amp.custom_fwd(forward, device_type=device_type, cast_inputs=cast_inputs)
        backward = m.amp.custom_bwd(device_type=device_type)(backward)
    return type("Product", (m.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}), seen


@program
def functions_of_the_users_cast_what_they_call(m):
    found = []
    for device_type, cast, on, within in (
        (None, None, True, False), (None, None, True, True), ("cpu", None, True, False), ("cpu", m.float32, True, False),
        ("cpu", m.bfloat16, True, False), ("cpu", m.bfloat16, False, True), ("cuda", m.float32, True, False),
    ):  # fmt: skip
        function, seen = product(m, device_type, cast)
        x = matrix(m, requires_grad=True)
        with m.autocast("cpu", enabled=on, dtype=m.bfloat16):
            y = function.apply(x, matrix(m), {"a": [matrix(m), "b", 3]})
        with m.autocast("cpu", enabled=within):
            y.sum().backward()
        found.append((seen, x.grad))
    return found


# ---------------------------------------------------------------------- checkpoints, forward mode, transforms


@program
def checkpoints_compute_again_as_they_have_computed(m):
    found = []
    for reentrant in (False, True):
        for first, second in ((True, False), (False, True)):
            seen, x, w = [], matrix(m, requires_grad=True), matrix(m, requires_grad=True)

            def function(x, seen=seen, w=w):
                seen.append((m.is_autocast_enabled("cpu"), str(m.get_autocast_dtype("cpu")), m.is_autocast_cache_enabled()))
                return (x @ w).exp()

            with m.autocast("cpu", enabled=first, dtype=m.float16, cache_enabled=False):
                y = (checkpoint if m is tj else torch.utils.checkpoint.checkpoint)(function, x, use_reentrant=reentrant)
            if not second:
                y.sum().backward()
                found += [x.grad, w.grad]
            else:  # gradients of what was computed outside have other digits in PyTorch, where they are cast too
                with m.autocast("cpu"):
                    y.sum().backward()
            found.append(seen)
    return found


@program
def transforms_cast_too(m):
    x = m.arange(12.0).reshape(3, 2, 2).div(7)

    def loss(w):
        return (w @ x[0]).float().square().sum()

    with m.autocast("cpu"):
        found = [m.vmap(m.mm)(x, x), m.vmap(m.prod)(x.bfloat16()), m.vmap(lambda a: m.nn.functional.linear(a, x[1]))(x)]
        found += [m.func.grad(loss)(x[1]), *m.func.jvp(loss, (x[1],), (x[2],)), m.vmap(m.func.grad(loss))(x)]
    inside = m.vmap(m.autocast("cpu")(lambda a: a @ a))(x)
    return [*found, inside, m.func.grad(m.autocast("cpu")(loss))(x[1]), x[0] @ x[0]]


@program
def forward_mode_passes_tangents_through_casts(m):
    with m.autograd.forward_ad.dual_level(), m.autocast("cpu"):
        x = m.autograd.forward_ad.make_dual(matrix(m), m.ones(2, 2))
        return m.autograd.forward_ad.unpack_dual(x @ matrix(m))


@program
def double_backward_goes_through_casts(m):
    x = matrix(m, requires_grad=True)
    with m.autocast("cpu"):
        y = m.mm(x, x)
    (grad,) = m.autograd.grad(y.float().square().sum(), x, create_graph=True)
    grad.sum().backward()
    return grad, x.grad


# ---------------------------------------------------------------------- jit


def step(x, w):
    return tj.nn.functional.linear(x, w).exp().float().sum()


@pytest.mark.parametrize("inside", [True, False])
def test_jitted_functions_cast_as_others_do(inside):
    within, around = (tj.autocast("cpu"), contextlib.nullcontext()) if inside else (contextlib.nullcontext(), tj.autocast("cpu"))

    def f(x, w):
        with within:
            return step(x, w)

    jitted, found = tj.jit(f, fullgraph=True), []
    for function in (f, jitted, jitted, jitted):
        w = matrix(tj, requires_grad=True)
        with around:
            y = function(matrix(tj), w)
        y.backward()
        found.append((y.item(), w.grad.tolist()))
    assert all(np.allclose(value, found[0][0]) and np.allclose(grad, found[0][1], rtol=1e-2) for value, grad in found)
    assert "2 traced" not in jitted.explain() and not tj.runtime.recorder.recorder().flags.casts


def test_a_jitted_function_is_another_program_under_autocast():
    f = tj.jit(lambda x: x @ x, fullgraph=True)
    dtypes = []
    with tj.runtime.execution_mode("fused"):
        for _ in range(3):
            dtypes.append(f(matrix(tj)).dtype)
            for lower in (tj.bfloat16, tj.float16):
                with tj.autocast("cpu", dtype=lower):
                    dtypes.append(f(matrix(tj)).dtype)
    assert dtypes == [tj.float32, tj.bfloat16, tj.float16] * 3
    assert f.explain().startswith("3 traced") and any("autocast is not what it was" in line for line in f.recompilations)


def test_backward_of_a_jitted_function_runs_its_functions_outside_of_autocast():
    for jit in (lambda f: f, tj.jit):
        function, seen = product(tj)
        f = jit(lambda x, function=function: function.apply(x, matrix(tj), 1.0 * x).float().sum())
        for _ in range(2):
            x = matrix(tj, requires_grad=True)
            with tj.autocast("cpu"):
                y = f(x)
            y.backward()
        assert [entry for entry in seen if len(entry) == 4][-1] == ["torch.bfloat16", "torch.float32", False, "torch.bfloat16"]


def test_what_a_trace_has_converted_is_not_used_outside_of_it():
    w = matrix(tj, requires_grad=True)
    f = tj.jit(lambda x: x @ w)
    with tj.autocast("cpu"):
        a = f(matrix(tj))
        b = matrix(tj) @ w
        c = f(matrix(tj))
    (a + b + c).float().sum().backward()
    assert a.tolist() == b.tolist() == c.tolist() and w.grad.shape == (2, 2)


def test_a_function_for_jax_casts_as_autocast_says_when_it_is_called():
    f = tj.to_jax(lambda x: x @ x)
    x = np.array(NUMBERS, np.float32)
    assert f(x).dtype == np.float32
    with tj.autocast("cpu"):
        assert str(f(x).dtype) == "bfloat16"
    assert f(x).dtype == np.float32


# ---------------------------------------------------------------------- training


def mlp(m):
    return [m.linspace(-1, 1, n * k).reshape(n, k).sin().requires_grad_() for n, k in ((8, 4), (3, 8))], m.linspace(-2, 2, 20).reshape(5, 4).cos()


def mlp_loss(m, weights, x, target):
    F = m.nn.functional
    return F.cross_entropy(F.linear(F.relu(F.linear(x, weights[0])), weights[1]), target)


def cnn(m):
    shapes = (4, 1, 3, 3), (4,), (3, 16)
    weights = [m.linspace(-1, 1, int(np.prod(s))).reshape(s).sin().requires_grad_() for s in shapes]
    return weights, m.linspace(-2, 2, 5 * 36).reshape(5, 1, 6, 6).cos()


def cnn_loss(m, weights, x, target):
    F = m.nn.functional
    y = F.max_pool2d(F.relu(F.batch_norm(F.conv2d(x, weights[0], weights[1]), None, None, training=True)), 2)
    return F.cross_entropy(F.linear(y.flatten(1), weights[2]), target)


@pytest.mark.parametrize("made, loss_of", [(mlp, mlp_loss), (cnn, cnn_loss)])
def test_training_steps_are_pytorchs_to_rounding(made, loss_of):
    def trained(m, step=lambda f: f):
        weights, x = made(m)
        target, losses = m.tensor([0, 1, 2, 1, 0]), []

        def loss():
            with m.autocast("cpu", dtype=m.bfloat16):
                return loss_of(m, weights, x, target)

        loss = step(loss)
        for _ in range(6):
            out = loss()
            out.backward()
            with m.no_grad():
                for w in weights:
                    w -= 0.1 * w.grad
                    w.grad = None
            losses.append(out.item())
        return losses, [w.detach().numpy() for w in weights]

    (ours, our_weights), (theirs, their_weights) = trained(tj), trained(torch)
    assert ours[-1] < ours[0]
    assert np.allclose(ours, theirs, rtol=1e-2)
    assert all(np.allclose(a, b, atol=1e-2) for a, b in zip(our_weights, their_weights, strict=True))
    jitted, _ = trained(tj, tj.jit)
    assert np.allclose(jitted, ours, rtol=1e-2)
