"""Checkpoints give what the function itself gives, recompute as often as they must, and hold less memory."""

from __future__ import annotations

import functools
import gc
import weakref

import jax
import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax import nn
from torchgrad_jax.runtime import baseline_tier, execution_mode, program
from torchgrad_jax.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    GraphExecGroup,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

FORMS = [pytest.param(False, id="without_reentry"), pytest.param(True, id="reentrant")]


def data(*shape, seed=0, requires_grad=True):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), requires_grad=requires_grad)


def block(x, w):
    return torch.tanh(torch.sin(x) @ w) * x


def gradients(run):
    """The values of `run` and the gradients of its leaves, in fresh tensors each time."""
    x, w = data(4, 3), data(3, 3, seed=1)
    out = run(x, w)
    (out**2).sum().backward()
    return out.detach().numpy(), x.grad.numpy(), w.grad.numpy()


def same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs)


# ---------------------------------------------------------------------- the same as without


@pytest.mark.parametrize("mode", ["fused", "eager"])
@pytest.mark.parametrize("reentrant", FORMS)
def test_gradients_are_those_of_the_function(reentrant, mode):
    with execution_mode(mode):
        expected = gradients(block)
        for _ in range(3):  # a repeated graph is recorded as one operation elsewhere
            same(gradients(lambda x, w: checkpoint(block, x, w, use_reentrant=reentrant)), expected)


@pytest.mark.parametrize("reentrant", FORMS)
def test_captured_weights_get_their_gradients(reentrant):
    same(gradients(lambda x, w: checkpoint(lambda a: block(a, w), x, use_reentrant=reentrant)), gradients(block))


@pytest.mark.parametrize("reentrant", FORMS)
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_nested(depth, reentrant):
    def deep(x, w, n):
        return block(x, w) if n == 0 else block(checkpoint(deep, x, w, n - 1, use_reentrant=reentrant), w)

    def plain(x, w, n):
        return block(x, w) if n == 0 else block(plain(x, w, n - 1), w)

    same(gradients(lambda x, w: checkpoint(deep, x, w, depth, use_reentrant=reentrant)), gradients(lambda x, w: plain(x, w, depth)))


def test_one_form_within_the_other():
    for outer, inner in ((True, False), (False, True)):

        def within(x, w, inner=inner):
            return block(checkpoint(block, x, w, use_reentrant=inner), w)

        same(gradients(lambda x, w, outer=outer, f=within: checkpoint(f, x, w, use_reentrant=outer)), gradients(lambda x, w: block(block(x, w), w)))


def test_keywords_and_nested_results():
    def f(x, scale=1.0, weights=None):
        return {"a": [x.sin() * scale, 3], "b": (x @ weights["w"]).exp()}

    def run(x, w):
        out = checkpoint(f, x, scale=2.0, weights={"w": w}, use_reentrant=False)
        assert out["a"][1] == 3
        return out["a"][0] + out["b"]

    same(gradients(run), gradients(lambda x, w: x.sin() * 2.0 + (x @ w).exp()))


def test_dropout_draws_the_same_mask_and_leaves_the_generator():
    def f(x, w):
        return nn.functional.dropout(block(x, w), 0.5)

    def run(reentrant):
        torch.manual_seed(3)
        found = gradients(f if reentrant is None else lambda x, w: checkpoint(f, x, w, use_reentrant=reentrant))
        return *found, torch.rand(2).numpy()

    for reentrant in (False, True):
        same(run(reentrant), run(None))


def test_without_preserved_random_state_other_numbers_are_drawn():
    x = data(64)
    torch.manual_seed(0)
    checkpoint(lambda a: nn.functional.dropout(a, 0.5).exp(), x, use_reentrant=False, preserve_rng_state=False).sum().backward()
    after = torch.rand(2)
    torch.manual_seed(0)
    torch.nn.functional.dropout(x, 0.5)
    assert not torch.equal(after, torch.rand(2))


def test_custom_functions_and_hooks():
    seen = []

    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            result = a.exp()
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx, grad):
            (result,) = ctx.saved_tensors
            return grad * result

    def f(x, w):
        h = Exp.apply(x @ w)
        if h.requires_grad and not seen:
            h.register_hook(lambda g: seen.append(1))
        return h * x

    same(gradients(lambda x, w: checkpoint(f, x, w, use_reentrant=False)), gradients(lambda x, w: (x @ w).exp() * x))
    assert seen == [1]


def test_gradients_of_gradients():
    def second(run):
        x, w = data(4, 3), data(3, 3, seed=1)
        (g,) = torch.autograd.grad(run(x, w).sum(), x, create_graph=True)
        return [t.detach().numpy() for t in torch.autograd.grad((g**2).sum(), (x, w))]

    same(second(lambda x, w: checkpoint(block, x, w, use_reentrant=False)), second(block))


def test_gradients_taken_inside():
    def f(x, w):
        y = block(x, w)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y + g

    for early in (True, False):
        same(gradients(lambda x, w, e=early: checkpoint(f, x, w, use_reentrant=False, early_stop=e)), gradients(f))


def test_grad_of_some_inputs_and_batches_of_gradients():
    x, w = data(4, 3), data(3, 3, seed=1)
    batch = data(5, 4, 3, seed=2, requires_grad=False)
    for kw in ({"grad_outputs": data(4, 3, seed=3, requires_grad=False)}, {"grad_outputs": batch, "is_grads_batched": True}):
        found = torch.autograd.grad(checkpoint(block, x, w, use_reentrant=False), x, **kw)
        same([found[0].numpy()], [torch.autograd.grad(block(x, w), x, **kw)[0].numpy()])


def test_forward_mode_outside():
    x, w = data(4, 3), data(3, 3, seed=1)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        found = [torch.autograd.forward_ad.unpack_dual(f(dual, w)).tangent for f in (block, lambda *a: checkpoint(block, *a, use_reentrant=False))]
    same([found[1].detach().numpy()], [found[0].detach().numpy()])


def test_writes_in_place_within():
    def f(x, w):
        h = (x @ w).add_(1)
        h[0] = 0
        return h.relu_() * x

    same(gradients(lambda x, w: checkpoint(f, x, w, use_reentrant=False)), gradients(f))


def test_sequential_in_segments():
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(5) for layer in (nn.Linear(3, 3), nn.Tanh())])
    x = data(4, 3)

    def run(segments):
        model.zero_grad()
        out = model(x) if segments is None else checkpoint_sequential(model, segments, x, use_reentrant=False)
        out.sum().backward()
        return [p.grad.numpy() for p in model.parameters()]

    for segments in (1, 2, 3, 10):
        same(run(segments), run(None))


def test_arguments_lie_in_memory_as_they_did():
    seen = []

    def f(x, w):
        h = x * 2
        seen.append((x.stride(), h.stride()))
        return (h @ w).exp()

    same(gradients(lambda x, w: checkpoint(f, x.t().contiguous().t(), w, use_reentrant=False)), gradients(f))
    assert seen[0] == seen[1] == ((1, 4), (1, 4))


# ---------------------------------------------------------------------- how often it runs


def test_each_pass_recomputes_once():
    f, x = Counted(lambda a: (a.sin().cos(), a.exp().exp())), data(3)
    a, b = checkpoint(f, x, use_reentrant=False)
    (a.sum() + b.sum()).backward(retain_graph=True)
    assert f.calls == 2
    (a.sum() + b.sum()).backward()
    assert f.calls == 3


def test_a_group_of_passes_recomputes_once():
    f, x = Counted(lambda a: (a.sin().cos(), a.exp().exp())), data(3)
    a, b = checkpoint(f, x, use_reentrant=False)
    with GraphExecGroup():
        a.sum().backward()
        b.sum().backward()
    assert f.calls == 2


def test_early_stop():
    last = Counted(lambda a: a + 1)

    def run(**kwargs):
        last.calls = 0
        checkpoint(lambda a: last(a.sin().exp()), data(3), use_reentrant=False, **kwargs).sum().backward()
        return last.calls

    assert run() == 1
    assert run(early_stop=False) == 2
    with set_checkpoint_early_stop(False):
        assert run() == 2


def test_without_gradients_it_is_a_call():
    f = Counted(block)
    with torch.no_grad():
        assert not checkpoint(f, data(4, 3), data(3, 3), use_reentrant=False).requires_grad
    assert f.calls == 1


# ---------------------------------------------------------------------- errors


def varying(first, later):
    state = Counted(lambda x: (first if state.calls == 1 else later)(x))
    return state


def test_another_number_of_tensors():
    f = varying(lambda x: x.sin().exp().cos(), lambda x: x.sin())
    with pytest.raises(CheckpointError, match="A different number of tensors was saved during the original forward and recomputation.\nNumber of "):
        checkpoint(f, data(3), use_reentrant=False).sum().backward()


def test_more_tensors():
    f = varying(lambda x: x.sin(), lambda x: x.sin().cos())
    with pytest.raises(CheckpointError, match="trying to save more tensors during recomputation"):
        checkpoint(f, data(3), use_reentrant=False, early_stop=False).sum().backward()


def test_other_shapes_are_told_with_what_ran():
    f = varying(lambda x: x.sin().exp(), lambda x: torch.cat([x, x]).sin().exp())
    with pytest.raises(CheckpointError, match="have different metadata"):
        checkpoint(f, data(3), use_reentrant=False).sum().backward()
    f.calls = 0
    with set_checkpoint_debug_enabled(True), pytest.raises(CheckpointError) as told:
        checkpoint(f, data(3), use_reentrant=False).sum().backward()
    for part in ("aten.sin($0)", "aten.cat($0, $0)", "test_checkpoint.py:", "tensor at position 0:"):
        assert part in str(told.value)


def test_an_argument_written_to_before_backward():
    for reentrant in (False, True):
        x = data(3) * 1
        out = checkpoint(lambda a: a.sin().exp(), x, use_reentrant=reentrant)
        with torch.no_grad():
            x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_an_exception_in_recomputation_leaves_nothing_behind():
    def fail(x):
        raise ZeroDivisionError

    x = data(3)
    with pytest.raises(ZeroDivisionError):
        checkpoint(varying(lambda a: a.sin().exp(), fail), x, use_reentrant=False).sum().backward()
    y = x.sin()
    assert y.grad_fn._raw_saved_self.data is x  # no hooks are active
    y.sum().backward()


# ---------------------------------------------------------------------- memory


def test_what_is_saved_and_the_arguments_are_let_go_of():
    gc.disable()
    try:
        x = data(3)
        h = x.sin()
        out = checkpoint(lambda a: a.cos().exp(), h, use_reentrant=False)
        alive = weakref.ref(h._read()) if hasattr(type(h._read()), "__weakref__") else None
        kept = weakref.ref(out.grad_fn)
        out.sum().backward()
        del out, h
        assert kept() is None and (alive is None or alive() is None)
    finally:
        gc.enable()


def layers(count, width):
    rng = np.random.default_rng(0)
    return [torch.tensor((rng.standard_normal((width, width)) / width**0.5).astype(np.float32), requires_grad=True) for _ in range(count)]


def programs(monkeypatch, run, steps=6):
    """The bytes that the largest program of a loop takes beside its arguments."""
    sizes = []
    compile_ = program.ahead_of_time

    def watched(function, arguments, quickly):
        compiled = compile_(function, arguments, quickly)
        told = compiled.memory_analysis()
        sizes.append(told.temp_size_in_bytes + told.output_size_in_bytes)
        return compiled

    monkeypatch.setattr(program, "ahead_of_time", watched)
    with baseline_tier(False):
        losses = [run() for _ in range(steps)]
    return max(sizes), losses


@pytest.mark.operators  # of a program: in eager mode there is none
@pytest.mark.parametrize("looks", [True, False], ids=["loss_looked_at_before_backward", "one_program"])
@pytest.mark.parametrize("reentrant", FORMS)
def test_the_program_takes_less_memory(monkeypatch, reentrant, looks):
    x, count = data(512, 16), 6 + 2 * reentrant + looks  # each its own programs: what is compiled stays

    def step(how):
        ws = layers(count, 16)

        def run():
            h = x
            for w in ws:
                f = functools.partial(lambda w, a: nn.functional.gelu(a @ w), w)
                h = f(h) if how == "plain" else checkpoint(f, h, use_reentrant=reentrant)
            loss = (h**2).mean()
            if looks:
                loss.item()
            loss.backward()
            with torch.no_grad():
                for w in ws:
                    w -= 0.1 * w.grad
                    w.grad = None
            x.grad = None
            return loss.item()

        return run

    plain, losses = programs(monkeypatch, step("plain"))
    saved, again = programs(monkeypatch, step("checkpointed"))
    np.testing.assert_allclose(again, losses, rtol=1e-4)
    # A forward pass by itself returns what is saved: two tensors a layer, or one. A product has memory of its own besides.
    assert saved <= (0.6 if looks else 0.5) * plain, (saved, plain)


@pytest.mark.operators  # of a program: in eager mode there is none
def test_inside_the_users_jit():
    """There JAX's own barriers stand between forward and recomputation, as in `jax.checkpoint`."""

    def gradient(x, how):
        h = x = x.detach().requires_grad_()
        for _ in range(3):
            h = block(h, w) if how == "plain" else checkpoint(lambda a: block(a, w), h, use_reentrant=False)
        return torch.autograd.grad(h.sum(), x)[0]

    x, w = data(4, 3, requires_grad=False), data(3, 3, seed=1)
    plain, saved = [functools.partial(gradient, how=how) for how in ("plain", "checkpointed")]
    same([jax.jit(saved)(x).numpy()], [plain(x).numpy()])
    assert [str(jax.make_jaxpr(f)(x)).count("optimization_barrier") for f in (plain, saved)] == [0, 3]


@pytest.mark.operators  # of a program: in eager mode there is none
def test_only_what_carries_data_waits():
    """Weights are read as they are: a copy of each would cost memory."""
    waiting = []
    from torchgrad_jax.utils.checkpointing import behind

    kept = behind.call_values
    x, w = data(8, 3), data(3, 3, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(behind, "call_values", lambda bound, values: waiting.append(values[0].aval.shape) or kept(bound, values))
        checkpoint(lambda a: (nn.functional.linear(a, w).relu() @ w.t()).exp() * a, x, use_reentrant=False).sum().backward()
    assert waiting == [(8, 3)]


# ---------------------------------------------------------------------- selective


def test_a_policy_keeps_what_it_says():
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append((str(op), ctx.is_recompute, isinstance(ctx.op_output, torch.Tensor)))
        return CheckpointPolicy.MUST_SAVE if op == torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    same(gradients(lambda x, w: checkpoint(block, x, w, use_reentrant=False, context_fn=contexts)), gradients(block))
    assert asked == [(f"aten.{name}.default", False, True) for name in ("sin", "mm", "tanh", "mul")]


@pytest.mark.parametrize(
    "ops", [["mm"], ["sin", "tanh"], ["mul"], ["sin", "mm", "tanh", "mul"], []], ids=lambda ops: "_".join(ops) or "none"
)  # fmt: skip
@pytest.mark.parametrize("early", [True, False])
def test_lists_of_operators(ops, early):
    contexts = functools.partial(create_selective_checkpoint_contexts, [getattr(torch.ops.aten, op).default for op in ops])
    same(
        gradients(lambda x, w: checkpoint(block, x, w, use_reentrant=False, context_fn=contexts, early_stop=early)),
        gradients(block),
    )


def test_what_is_kept_is_not_computed_again():
    counted = []

    def f(x, w):
        return torch.sin((x @ w) @ w) * 2

    contexts = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    from torchgrad_jax.utils.checkpointing import selective

    kept = selective._as_if_computed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selective, "_as_if_computed", lambda bound, *a: counted.append(bound.name) or kept(bound, *a))
        same(gradients(lambda x, w: checkpoint(f, x, w, use_reentrant=False, context_fn=contexts)), gradients(f))
    assert counted == ["mm", "mm"]


def test_offloaded_and_several_results():
    def f(x, w):
        values, indices = torch.sort(x @ w, dim=1)
        return values.exp() * indices.to(torch.float32) * x

    def policy(ctx, op, *args):
        return CheckpointPolicy.PREFER_CPU_OFFLOAD

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    same(gradients(lambda x, w: checkpoint(f, x, w, use_reentrant=False, context_fn=contexts)), gradients(f))


def test_selective_errors():
    with pytest.raises(TypeError, match="policy_fn_or_list must be either a function or a list of ops."):
        create_selective_checkpoint_contexts(3)
    with pytest.raises(ValueError, match="Expected op in `op_list` to be an OpOverload but got: aten.mm .*Please update the OpOverloadPacket"):
        create_selective_checkpoint_contexts([torch.ops.aten.mm])

    def keep_all(ctx, op, *args):
        return True

    def written(a):
        h = a.sin()
        out = h.exp()
        with torch.no_grad():
            h.mul_(2)
        return out

    contexts = functools.partial(create_selective_checkpoint_contexts, keep_all)
    with pytest.raises(RuntimeError, match="Tensor cached during selective activation checkpoint has been mutated"):
        checkpoint(written, data(3), use_reentrant=False, context_fn=contexts).sum().backward()
    allowed = functools.partial(create_selective_checkpoint_contexts, keep_all, allow_cache_entry_mutation=True)
    checkpoint(written, data(3), use_reentrant=False, context_fn=allowed).sum().backward()
    out = checkpoint(lambda a: a.sin().exp(), data(3), use_reentrant=False, context_fn=contexts).sum()
    out.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="Trying to backward an extra time."):
        out.backward()


def test_operators_by_name():
    aten = torch.ops.aten
    assert aten.mm.default == aten.mm.default and aten.mm.default != aten.addmm.default
    assert aten.add.Tensor in [aten.add.Scalar] and hash(aten.add.Tensor) == hash(aten.add.Scalar)
    assert [str(aten.mm), str(aten.mm.default), aten.add.Tensor.name(), repr(aten.mm.default)] == [
        "aten.mm", "aten.mm.default", "aten::add.Tensor", "<OpOverload(op='aten.mm', overload='default')>",
    ]  # fmt: skip
    x = data(3)
    assert torch.equal(aten.sin.default(x), x.sin())
    # Packages name operators that there are none of here, as keys of tables.
    assert str(aten._pin_memory.default) == "aten._pin_memory.default" and aten._sparse_addmm.default != aten.addmm.default
    with pytest.raises(NotImplementedError, match="torch.ops.aten._pin_memory cannot be called"):
        aten._pin_memory.default(x)
    for wrong, text in (
        (lambda: aten.nonono, "'_OpNamespace' 'aten' object has no attribute 'nonono'"),
        (lambda: aten.mm.nono, "The underlying op of 'aten.mm' has no overload name 'nono'"),
        (lambda: torch.ops.mine.mm, "'_OpNamespace' 'mine' object has no attribute 'mm'"),
    ):
        with pytest.raises(AttributeError, match=text):
            wrong()
