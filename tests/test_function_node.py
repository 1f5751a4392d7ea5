"""autograd.Function against PyTorch: ctx, which is the node of the graph too: its attributes, its methods, its hooks."""

from __future__ import annotations

import warnings

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from functions import function, functions, name_of  # noqa: E402
from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch


@like_pytorch
def test_names_of_the_node(m):
    square, _ = functions(m)
    y = square.apply(leaf(m, 1.0))
    node = y.grad_fn
    return node.name(), type(node).__name__, [(type(n).__name__, i) for n, i in node.next_functions], isinstance(node, m.autograd.graph.Node)


@like_pytorch
def test_needs_input_grad(m):
    seen = []

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        return g, None, g, None

    def forward(ctx, a, k, b, c):
        seen.append(ctx.needs_input_grad)
        return a + b + c

    a, b, c = leaf(m, 1.0), leaf(m, 2.0), m.ones(1, dtype=m.float64)
    function(m, forward, backward).apply(a, "text", b, c).sum().backward()
    return seen, a.grad, b.grad, c.grad


@like_pytorch
def test_attributes_of_ctx_are_those_of_the_node(m):
    def forward(ctx, x):
        ctx.note = "kept"
        return x * 1

    y = function(m, forward, lambda ctx, g: g).apply(leaf(m, 1.0))
    return y.grad_fn.note, error_of(lambda: y.grad_fn.other)[0]


@like_pytorch
def test_hooks_on_a_function_node(m):
    square, _ = functions(m)
    x, seen = leaf(m, 1.0, 2.0), []
    y = square.apply(x)
    y.register_hook(lambda g: g * 10)
    y.grad_fn.register_hook(lambda gi, go: seen.append((gi, go)))
    y.retain_grad()
    y.sum().backward()
    return seen, x.grad, y.grad


@like_pytorch
def test_public_names_of_the_module(m):
    module = m.autograd.function
    return module.__all__, [hasattr(module, name) for name in module.__all__], hasattr(module, "traceable")


@like_pytorch
def test_classes_of_the_node_and_of_the_function(m):
    module = m.autograd.function
    y = function(m, lambda ctx, x: x * 1).apply(leaf(m, 1.0))
    node, kind = y.grad_fn, type(y.grad_fn)
    mine = node._forward_cls
    return (
        isinstance(node, module.FunctionCtx), isinstance(node, module.BackwardCFunction), kind.__module__, kind.__qualname__, str(node)[:45],
        mine.__name__, mine._backward_cls is kind, type(mine).__name__, issubclass(mine, module.FunctionCtx),
        isinstance(mine, module.FunctionMeta), node.needs_input_grad, node.saved_tensors, len(node.next_functions),
    )  # fmt: skip


@like_pytorch
def test_ctx_is_the_node(m):
    seen = []

    def forward(ctx, x):
        seen.append(ctx)
        return x * 1

    def backward(ctx, g):
        seen.append(ctx)
        return g

    y = function(m, forward, backward).apply(leaf(m, 1.0))
    y.sum().backward()
    return [ctx is y.grad_fn for ctx in seen]


@like_pytorch
def test_what_ctx_tells_in_forward_and_after(m):
    seen = []

    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        seen.append((ctx.name(), ctx.needs_input_grad, ctx.saved_tensors, ctx.to_save, len(ctx.saved_for_forward), ctx.metadata == {}))
        return x * 1

    for x in (leaf(m, 1.0), m.ones(1)):
        node = function(m, forward).apply(x).grad_fn
        if node is not None:
            seen.append((node.to_save, node.dirty_tensors, node.non_differentiable, node.saved_for_forward))
    with m.no_grad():
        function(m, forward).apply(leaf(m, 1.0))
    return seen


@like_pytorch
def test_needs_input_grad_does_not_depend_on_what_is_asked_for(m):
    seen, a, b = [], leaf(m, 1.0), leaf(m, 2.0)

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        return g * 2, g * 3, None

    mine = function(m, lambda ctx, a, b, k: a * b, backward)
    m.autograd.grad(mine.apply(a, b, 1).sum(), a)
    m.autograd.grad(mine.apply(a * 1, b * 1, 1).sum(), b)
    mine.apply(a, b, 1).sum().backward(inputs=[b])
    mine.apply(a, b.detach(), 1).sum().backward()
    return seen, a.grad, b.grad


@like_pytorch
def test_needs_input_grad_may_be_overwritten(m):
    seen = []

    def forward(ctx, x):
        ctx.needs_input_grad = (False,)
        return x * 1

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        return g

    x = leaf(m, 1.0)
    function(m, forward, backward).apply(x).sum().backward()
    return seen, x.grad


NAMES = [
    "name", "next", "seq", "hooks", "run", "release", "describe", "place", "own_hooks", "is_view", "output_avals", "edge_places", "plan", "saved",
    "runs_without_gradient", "register_hook", "inputs", "outputs", "function", "_lift", "_inputs", "_node", "_saved",
    "_call",
]  # fmt: skip


@pytest.mark.parametrize("where", ["forward", "backward", "both"])
def test_attributes_of_ctx_may_have_any_name(where):
    @like_pytorch
    def program(m):
        seen = []

        def put(ctx, first):
            for i, name in enumerate(NAMES):
                setattr(ctx, name, first + i)

        def forward(ctx, x):
            if where != "backward":
                put(ctx, 0)
            ctx.save_for_backward(x)
            return x * x

        def backward(ctx, g):
            seen.append([getattr(ctx, name) if isinstance(getattr(ctx, name, ""), int) else "" for name in NAMES])
            if where != "forward":
                put(ctx, 100)
            return 2 * g * ctx.saved_tensors[0]

        x = leaf(m, 3.0)
        y = function(m, forward, backward).apply(x * 1).sum()
        y.backward(retain_graph=True)
        (g,) = m.autograd.grad(y, x, create_graph=True)
        found = x.grad.clone(), g, m.autograd.grad(g.sum(), x)
        return seen[1:] if where == "backward" else seen, found  # before its first run backward sees what nodes have anyway

    program()


@like_pytorch
def test_attributes_of_ctx_last_from_one_backward_to_the_next(m):
    def backward(ctx, g):
        ctx.count = getattr(ctx, "count", 0) + 1
        return g * ctx.count

    x = leaf(m, 1.0)
    y = function(m, lambda ctx, x: x * 1, backward).apply(x).sum()
    y.backward(retain_graph=True)
    y.grad_fn.next_functions[0][0].count += 10
    y.backward()
    return x.grad


@like_pytorch
def test_an_input_kept_as_an_attribute_is_differentiated(m):
    def forward(ctx, x):
        ctx.x = x
        return x * x

    x = leaf(m, 3.0)
    (g,) = m.autograd.grad(function(m, forward, lambda ctx, g: 2 * ctx.x * g).apply(x).sum(), x, create_graph=True)
    return g, m.autograd.grad(g.sum(), x)


@like_pytorch
def test_a_context_of_its_own(m):
    ctx, x = m.autograd.function.FunctionCtx(), m.ones(1)
    ctx.save_for_backward(x)
    ctx.mark_dirty(x)
    ctx.mark_non_differentiable(x)
    ctx.set_materialize_grads(False)
    ctx.save_for_forward(x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ctx.mark_shared_storage((x, x))
    return sorted(vars(ctx)), ctx.to_save[0] is x, ctx.materialize_grads, [(w.category.__name__, str(w.message)) for w in caught]


@like_pytorch
def test_saved_variables_is_deprecated(m):
    square, _ = functions(m)
    return square.apply(leaf(m, 1.0)).grad_fn.saved_variables


@like_pytorch
def test_apply_of_the_node_is_the_users_backward(m):
    node = function(m, lambda ctx, x: x * 1, lambda ctx, g: (g * 3, "anything")).apply(leaf(m, 1.0)).grad_fn
    return node.apply(m.ones(2))


@like_pytorch
def test_notes_and_sequence_numbers_of_the_node(m):
    between = []

    def forward(ctx, x):
        with m.enable_grad():
            between.append((x.detach().requires_grad_() * 2).grad_fn)
        return x * 1

    h = leaf(m, 1.0) * 1
    y = function(m, forward).apply(h)
    z = y * 1
    y.grad_fn.metadata["note"] = 1
    first = h.grad_fn._sequence_nr()
    return y.grad_fn.metadata["note"], [n._sequence_nr() - first for n in (y.grad_fn, between[0], z.grad_fn)]


@like_pytorch
def test_hooks_see_an_entry_for_every_tensor_input(m):
    seen, a, b, c = [], leaf(m, 1.0), m.ones(1, dtype=m.float64), leaf(m, 2.0)
    y, _ = function(m, lambda ctx, a, k, b, c: (a * b * c, "text"), lambda ctx, g, _: (g * 1, None, None, g * 3)).apply(a, 5, b, c)
    y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: seen.append((grad_inputs, grad_outputs)))
    y.grad_fn.register_prehook(lambda grad_outputs: seen.append(grad_outputs))
    y.sum().backward()
    return seen, a.grad, c.grad, [name_of(n) for n, _ in y.grad_fn.next_functions]


@like_pytorch
def test_hooks_replace_gradients(m):
    a, b, c = leaf(m, 1.0), m.ones(1, dtype=m.float64), leaf(m, 2.0)
    y = function(m, lambda ctx, a, b, c: a * b * c, lambda ctx, g: (g * 1, None, g * 3)).apply(a, b, c)
    y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: tuple(None if g is None else g * 10 for g in grad_inputs))
    y.grad_fn.register_prehook(lambda grad_outputs: (grad_outputs[0] * 7,))
    y.sum().backward()
    return a.grad, b.grad, c.grad


@like_pytorch
def test_hooks_on_several_outputs(m):
    seen, x = [], leaf(m, 1.0)
    a, b = function(m, lambda ctx, x: (x * 2, x * 3), lambda ctx, g, h: g * 2 + h * 3).apply(x)
    b.register_hook(lambda g: seen.append(g) or g * 100)
    a.register_hook(lambda g: seen.append(g))
    (a * b).sum().backward()
    return seen, x.grad


@like_pytorch
def test_a_hook_may_be_registered_in_forward(m):
    seen = []

    def forward(ctx, x):
        ctx.register_hook(lambda grad_inputs, grad_outputs: seen.append(grad_inputs))
        return x * 1

    x = leaf(m, 1.0)
    function(m, forward, lambda ctx, g: g * 2).apply(x).sum().backward()
    return seen, x.grad


# ---------------------------------------------------------------------- once_differentiable


def once(m, forward, backward):
    return function(m, forward, m.autograd.function.once_differentiable(backward))


@like_pytorch
def test_once_differentiable_computes_without_a_graph(m):
    modes, x = [], leaf(m, 3.0)

    def backward(ctx, g):
        modes.append(m.is_grad_enabled())
        return g * 2

    mine = once(m, lambda ctx, x: x * 2, backward)
    mine.apply(x).sum().backward()
    (g,) = m.autograd.grad(mine.apply(x).sum(), x, create_graph=True)
    return modes, x.grad, g, error_of(lambda: m.autograd.grad(g.sum(), x)), m.is_grad_enabled()


@like_pytorch
def test_once_differentiable_refuses_the_second_derivative(m):
    x = leaf(m, 2.0, 3.0)

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    mine = once(m, forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0])
    (g,) = m.autograd.grad((mine.apply(x) ** 2).sum(), x, create_graph=True)
    return g, error_of(lambda: (g * g).sum().backward())


@like_pytorch
def test_the_node_of_a_once_differentiable_gradient(m):
    x, y = leaf(m, 1.0), leaf(m, 2.0)
    ones = m.ones(1, dtype=m.float64, requires_grad=True)
    mine = once(m, lambda ctx, x, k, y: x * y, lambda ctx, g: (g, None, g))
    found = []
    for wanted in (x, y):
        (g,) = m.autograd.grad(mine.apply(x, None, y), wanted, ones, create_graph=True)
        node = g.grad_fn
        found.append((name_of(node), type(node).__name__, [(name_of(n), i) for n, i in node.next_functions], g.output_nr, error_of(g.backward)))
        found.append(error_of(lambda g=g: m.autograd.grad(g, x)))
    return found


@like_pytorch
def test_once_differentiable_returns_new_tensors(m):
    k, x = m.ones(1, dtype=m.float64), leaf(m, 3.0)
    ones = m.ones(1, dtype=m.float64, requires_grad=True)
    (g,) = m.autograd.grad(once(m, lambda ctx, x: x * 2, lambda ctx, g: k).apply(x), x, ones, create_graph=True)
    wrong = [once(m, lambda ctx, x: x * 1, lambda ctx, g, given=given: given).apply(x) for given in ([k], 3)]
    errors = [error_of(lambda y=y: m.autograd.grad(y, x, ones, create_graph=True)) for y in wrong]
    return g.requires_grad, g is k, k.requires_grad, errors


def test_once_differentiable_keeps_name_and_documentation():
    def backward(ctx, g):
        """What it does."""

    wrapped = tj.autograd.function.once_differentiable(backward)
    assert (wrapped.__name__, wrapped.__doc__) == ("backward", "What it does.")
