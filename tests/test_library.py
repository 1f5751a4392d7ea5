"""torch.library: operators of the user's, written in Python, next to PyTorch's."""

from __future__ import annotations

import typing
import weakref

import numpy as np
import pytest
from side_by_side import programs

import torchgrad_jax as tj
from torchgrad_jax.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.operators
program, test_like_pytorch = programs()
_count = iter(range(10_000))


def fresh(name="op"):
    """A name that no operator has: PyTorch's cannot be taken away again."""
    return f"tj_tests::{name}{next(_count)}"


def sine(m, with_autograd=True, **options):
    """numpy's sine of multiples as an operator, and what it was asked."""
    seen = []

    def function(x: m.Tensor, k: int = 2) -> m.Tensor:
        seen.append("kernel")
        return m.from_numpy(np.sin(x.detach().numpy() * k))

    function.__annotations__ = {"x": m.Tensor, "k": int, "return": m.Tensor}
    made = m.library.custom_op(fresh("sine"), function, mutates_args=(), **options)

    def setup(ctx, inputs, output):
        seen.append(("setup", len(inputs), inputs[1]))
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    def backward(ctx, grad):
        seen.append(("backward", ctx.needs_input_grad))
        (x,) = ctx.saved_tensors
        return grad * (x * ctx.k).cos() * ctx.k, None

    if with_autograd:
        made.register_autograd(backward, setup_context=setup)
    return made, seen


def vector(m, requires_grad=False):
    return m.tensor([1.0, 2.0], requires_grad=requires_grad)


def without_numbers(text):
    return "".join(c for c in str(text) if not c.isdigit())


# ---------------------------------------------------------------------- calls


@program
def it_is_called_as_a_function_and_by_its_name(m):
    made, _ = sine(m)
    name = made._qualname.split("::")[1]
    packet = getattr(m.ops.tj_tests, name)
    x = vector(m)
    shown = [without_numbers(s) for s in (made, packet, packet.default, packet.default.name(), packet.default._schema)]
    return made(x), made(x, 3), made(x, k=3), packet(x), packet.default(x, 3), shown, packet.overloads(), made._schema


@program
def arguments_that_do_not_fit_are_told_in_pytorchs_words(m):
    def told(*args, **kwargs):
        try:
            return made(*args, **kwargs)
        except RuntimeError as error:
            return without_numbers(error)

    made, _ = sine(m)
    x = vector(m)
    return [told("a"), told(), told(x, z=1), told(x, 1, 2), told(x, 1.5), told(x, k=True), told(k=1)]


@program
def every_kind_of_argument_arrives(m):
    def function(x, ys, f, s="a", b=True, o=None, ints=None, d=None, n=1, *, z):
        return x.clone(), [y * f for y in ys], len(ys)

    function.__annotations__ = {
        "x": m.Tensor, "ys": list[m.Tensor], "f": float, "s": str, "b": bool, "o": m.Tensor | None, "ints": typing.Sequence[int] | None,
        "d": m.dtype | None, "n": int | float | bool, "z": float, "return": tuple[m.Tensor, list[m.Tensor], int],
    }  # fmt: skip
    made = m.library.custom_op(fresh(), function, mutates_args=())
    x = vector(m)
    return made(x, [x, x], 1, z=2.0), made(x, (x,), 2.0, "b", False, x, [1, 2], m.float32, 2.5, z=1.0), made._schema


@program
def results_are_tensors_of_their_own(m):
    def told(function, returned=None):
        function.__annotations__ = {"x": m.Tensor, "return": m.Tensor}
        try:
            return m.library.custom_op(fresh(), function, mutates_args=())(vector(m))
        except RuntimeError as error:
            return str(error).partition("The output")[2] or str(error)

    return told(lambda x: x), told(lambda x: x.view(-1)), told(lambda x: 3), told(lambda x: x.clone())


@program
def operators_may_write_to_arguments_that_they_name(m):
    def add_(x, by=1.0):
        x.add_(by)

    add_.__annotations__ = {"x": m.Tensor, "by": float, "return": None}
    made, unknown = m.library.custom_op(fresh(), add_, mutates_args={"x"}), m.library.custom_op(fresh(), add_, mutates_args="unknown")
    x, leaf, result = m.zeros(2), m.zeros(2, requires_grad=True), m.zeros(2, requires_grad=True) * 1
    for t in (x, leaf, result):
        made(t)
        unknown(t, 2.0)
    return x, leaf, result, result.grad_fn.name(), made._schema, unknown._schema


# ---------------------------------------------------------------------- autograd, vmap, autocast


@program
def gradients_are_those_that_were_registered(m):
    made, seen = sine(m)
    x = vector(m, True)
    y = made(x)
    name = without_numbers(y.grad_fn.name())
    y.sum().backward()
    (other,) = m.autograd.grad(made(x, k=3).sum(), x)
    with m.no_grad():
        plain = made(x)
    return y, name, x.grad, other, plain.requires_grad, seen


@program
def without_a_formula_backward_says_what_to_do(m):
    made, _ = sine(m, with_autograd=False)
    y = made(vector(m, True))
    try:
        y.sum().backward()
    except RuntimeError as error:
        return y, without_numbers(error), made(vector(m)).requires_grad


@program
def lists_and_keyword_only_arguments_have_gradients_and_contexts(m):
    def function(xs, *, s=2.0):
        return [x * s for x in xs]

    function.__annotations__ = {"xs": list[m.Tensor], "s": float, "return": list[m.Tensor]}
    made, seen = m.library.custom_op(fresh(), function, mutates_args=()), []

    def setup(ctx, inputs, keyword_only_inputs, output):
        seen.append((len(inputs[0]), keyword_only_inputs, len(output)))
        ctx.s = keyword_only_inputs["s"]

    made.register_autograd(lambda ctx, grads: [g * ctx.s for g in grads], setup_context=setup)
    a, b = vector(m, True), vector(m, True)
    return m.autograd.grad(sum(y.sum() for y in made([a, b], s=3.0)), (a, b)), made([a, b])[0], seen


@program
def batches_go_through_the_rule_or_one_by_one(m):
    made, seen = sine(m)
    x = m.arange(6.0).reshape(2, 3)
    calls = []
    one_by_one = m.vmap(made)(x)
    kernels = seen.count("kernel")

    def rule(info, in_dims, x, k=2):
        calls.append((info.batch_size, len(in_dims)))
        return made(x, k), in_dims[0]

    made.register_vmap(rule)
    return one_by_one, kernels, m.vmap(made)(x), calls, m.vmap(made, in_dims=1, out_dims=1)(x)


def test_transforms_take_gradients_of_it():
    made, _ = sine(tj)
    x = vector(tj)
    expected = 2 * tj.cos(2 * x)
    assert tj.allclose(tj.func.grad(lambda v: made(v).sum())(x), expected)
    assert tj.allclose(tj.vmap(tj.func.grad(lambda v: made(v).sum()))(x.reshape(2, 1)), expected.reshape(2, 1))
    assert tj.autograd.gradcheck(sine(tj)[0], (vector(tj).double().requires_grad_(),))


@program
def a_wrong_number_of_gradients_is_told(m):
    def product(x, y):
        return x * y

    product.__annotations__ = {"x": m.Tensor, "y": m.Tensor, "return": m.Tensor}
    made, found = m.library.custom_op(fresh(), product, mutates_args=()), []
    for grads in (1, 2, 3, 4, 5):
        made.register_autograd(lambda ctx, g, grads=grads: (g,) * min(grads, 4) + (None,) * (grads - 4))
        x = vector(m, True)
        try:
            found.append(m.autograd.grad(made(x, x).sum(), x))
        except RuntimeError as error:
            found.append(str(error).partition("_defaultBackward")[2])
    made.register_autograd(lambda ctx, g: (g, g, None))
    return found, m.autograd.grad(made(x, x).sum(), x)


def test_its_graph_is_freed_with_the_last_reference():
    made, _ = sine(tj)
    x = vector(tj, True)
    y = made(x)
    (node, result, argument), y, x = [weakref.ref(o) for o in (y.grad_fn, y, x)], None, None
    assert node() is result() is argument() is None


@program
def autograd_and_transforms_follow_what_a_composite_kernel_is_made_of(m):
    name = fresh()
    m.library.define(name, "(Tensor x) -> Tensor")
    m.library.impl(name, "CompositeImplicitAutograd", lambda x: (x * x).sum())
    call = getattr(m.ops.tj_tests, name.split("::")[1])
    x = vector(m, True)
    return m.autograd.grad(call(x), x), m.vmap(call)(m.ones(2, 3)), m.func.grad(call)(vector(m)), call(x).grad_fn.name()


@program
def autocast_converts_its_arguments(m):
    def double(x):
        return x * 2

    double.__annotations__ = {"x": m.Tensor, "return": m.Tensor}
    made = m.library.custom_op(fresh(), double, mutates_args=())
    made.register_autocast("cpu", m.bfloat16)
    with m.autocast("cpu"):
        inside = made(vector(m))
    return inside, made(vector(m))


def test_selective_checkpoints_keep_its_results():
    made, seen = sine(tj)

    def policy(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op == made._opoverload else CheckpointPolicy.PREFER_RECOMPUTE

    for kept, kernels in ((policy, 1), (lambda *args, **kwargs: CheckpointPolicy.PREFER_RECOMPUTE, 2)):
        seen.clear()
        x = vector(tj, True)
        y = checkpoint(lambda x: made(x.exp()).exp(), x, use_reentrant=False, context_fn=lambda kept=kept: create_selective_checkpoint_contexts(kept))
        y.sum().backward()
        w = vector(tj, True)
        made(w.exp()).exp().sum().backward()
        assert tj.allclose(x.grad, w.grad) and seen.count("kernel") == kernels + 1


def test_it_runs_inside_of_jit_as_outside():
    made, _ = sine(tj)
    f = tj.jit(lambda x: made(x).exp())
    with pytest.warns(UserWarning, match="not compiled whole"):
        found = [f(vector(tj)) for _ in range(2)]
    assert all(tj.equal(y, made(vector(tj)).exp()) for y in found)


# ---------------------------------------------------------------------- kernels and libraries


@program
def kernels_are_for_types_of_devices(m):
    made, _ = sine(m)
    x = vector(m)
    made.register_kernel("cpu")(lambda x, k=2: x * 100)
    found = [made(x)]
    with made.set_kernel_enabled("cpu", False):
        found.append(made(x))
    elsewhere, _ = sine(m, device_types="cuda")
    try:
        elsewhere(x)
    except NotImplementedError as error:
        found.append(without_numbers(error).partition(".")[0])
    return [*found, made(x), sine(m, device_types=["cpu", "cuda"])[0](x)]


@program
def libraries_define_operators_and_give_them_kernels(m):
    namespace = f"tj_tests_{next(_count)}"
    library = m.library.Library(namespace, "DEF")
    found = [library.define("scale(Tensor x, int k=1) -> Tensor"), library.define("twice(Tensor x) -> Tensor")]
    library.impl("scale", lambda x, k=1: x * k, "CPU")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    operators = getattr(m.ops, namespace)
    x = vector(m, True)
    y = operators.scale(x, 3)
    found += [y, operators.twice(x), operators.scale.default(x)]
    m.library.define(f"{namespace}::pair", "(Tensor x, Tensor[] ys, *, float s=1.5, int[2] p=0) -> (Tensor, Tensor)")
    m.library.impl(f"{namespace}::pair", "default", lambda x, ys, s=1.5, p=0: (x + s, ys[0] + 1))
    m.library.impl(f"{namespace}::twice", "cpu")(lambda x: x * 2)
    m.library.register_autograd(f"{namespace}::pair", lambda ctx, a, b: (a * 10, [b * 100]))
    z = operators.pair(x, [x], s=2)
    return [*found, z, m.autograd.grad(z[0].sum() + z[1].sum(), x)]


def test_a_scoped_library_takes_its_operators_away():
    with tj.library._scoped_library("tj_scoped", "FRAGMENT") as library:
        library.define("same(Tensor x) -> Tensor")
        library.impl("same", lambda x: x.clone(), "CPU")
        assert tj.equal(tj.ops.tj_scoped.same(vector(tj)), vector(tj))
    with pytest.raises(AttributeError, match="has no attribute 'same'"):
        tj.ops.tj_scoped.same  # noqa: B018 - it raises


WRONG = """
l.Library("tj_x", "FOO"); l.Library("prim", "DEF"); l.define("h", "(Tensor x) -> Tensor"); l.define("tj_x::h", "Tensor x -> Tensor");
l.register_autograd("tj_x::nope", len); l.register_fake("tj_x::nope2", len); l.custom_op("tj_x::z", lambda x: x, mutates_args=());
l.custom_op("tj_x::z", named, mutates_args={"zz"}); l.custom_op("tj_x::z", named); m.ops.tj_x.nope; made._opoverload.overloadpacket.other;
made.register_kernel("foo")(named); l.Library("tj_x", "FRAGMENT").impl("k", 3);
l.custom_op("tj_x::z4", named, mutates_args=(), schema="(Tensr x) -> Tensor"); l.infer_schema(named, mutates_args="x")
"""


@pytest.mark.parametrize("call", [call.strip() for call in WRONG.split(";")])
def test_what_is_wrong_is_told_in_pytorchs_words(call):
    told = []
    for m in (tj, torch):

        def named(x, k=2):
            return x

        named.__annotations__ = {"x": m.Tensor, "k": int, "return": m.Tensor}
        with pytest.raises((AttributeError, RuntimeError, TypeError, ValueError)) as error:
            eval(call, {"m": m, "l": m.library, "named": named, "made": sine(m)[0]})
        told.append((error.type.__name__, without_numbers(error.value)))
    assert told[0] == told[1]


@pytest.mark.parametrize("key", ["Autograd", "AutogradCPU"])
def test_what_is_registered_for_autograd_is_called_first_and_followed(key):
    told = []
    for m in (tj, torch):
        library = m.library.Library(f"followed_{key}", "DEF")
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x * 2, "CPU")
        library.impl("f", lambda x: x * 3, key)
        call, x = getattr(m.ops, f"followed_{key}").f, m.ones(2, requires_grad=True)
        y = call(x)
        told.append([y.tolist(), y.grad_fn.name(), call(x.detach()).tolist(), m.func.vmap(call)(m.ones(2, 3)).tolist()])
        with m.no_grad():
            told[-1].append(call(x).tolist())
        with m.inference_mode():
            told[-1].append(call(m.ones(2)).tolist())
        library._destroy()
    assert told[0] == told[1]


def test_an_operator_with_a_triton_kernel_runs_where_its_kernel_is_not_asked_for():
    def twice(x):
        return x * 2 if x.device.type == "cpu" else tj.library.wrap_triton(None)[1](x)

    twice.__annotations__ = {"x": tj.Tensor, "return": tj.Tensor}
    made = tj.library.triton_op("of_triton::twice", mutates_args=())(twice)
    x = tj.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        made(x).sum().backward()
    made.register_autograd(lambda ctx, g: g * 2)
    made(x).sum().backward()
    assert x.grad.tolist() == tj.ops.of_triton.twice(x).tolist() == [2, 2]


@pytest.mark.parametrize("call", ["wrap_triton(None)", "register_torch_dispatch('a::b', None)"])
def test_what_there_is_not_says_what_to_use(call):
    with pytest.raises(NotImplementedError, match="use "):
        eval(f"m.library.{call}", {"m": tj})


ANNOTATIONS = {
    "numbers": "def f(x: T, y: 'int' = 3, z: float = 1e-5, w: int = -1) -> None: pass",
    "optional": "def f(x: T | None, y: typing.Optional[int] = None, s: str = 'q', b: bool = False) -> T: pass",
    "lists": "def f(x: typing.Sequence[T], y: typing.List[int], z: list[float]) -> typing.List[T]: pass",
    "several results": "def f(x: T, *, y: bool) -> tuple[T, int, float, bool]: pass",
    "dtypes": "def f(x: T, d: m.dtype = m.float16, e: m.device = 'cpu', n: int | float | bool = 2) -> T: pass",
    "no annotation": "def f(x: T, y=3) -> T: pass",
    "no result": "def f(x: T): pass",
    "any number": "def f(*args: T) -> T: pass",
    "a tuple as default": "def f(x: T, y: typing.Sequence[int] = (1,)) -> T: pass",
}


@pytest.mark.parametrize("case", ANNOTATIONS)
@pytest.mark.parametrize("mutates", [(), "unknown", ("x",)])
def test_schemas_are_those_that_pytorch_infers(case, mutates):
    told = []
    for m in (tj, torch):
        names = {"T": m.Tensor, "typing": typing, "m": m}
        exec(compile(ANNOTATIONS[case], case, "exec", dont_inherit=True), names)
        try:
            told.append(m.library.infer_schema(names["f"], mutates_args=mutates, op_name="name"))
        except ValueError as error:
            told.append(str(error))
    assert told[0] == told[1]


@program
def tags_are_told(m):
    def function(x):
        return x.clone()

    function.__annotations__ = {"x": m.Tensor, "return": m.Tensor}
    several = [m.Tag.pointwise, m.Tag.needs_fixed_stride_order]
    told = [m.library.custom_op(fresh(), function, mutates_args=(), tags=tags)._opoverload.tags for tags in (None, m.Tag.pointwise, several)]
    library = m.library.Library("tj_tests", "FRAGMENT")
    name = library.define(fresh().partition("::")[2] + "(Tensor x) -> Tensor", tags=(m.Tag.view_copy,))
    told.append(getattr(m.ops.tj_tests, name).default.tags)
    try:
        m.library.custom_op(fresh(), function, mutates_args=(), tags=["pointwise"])
    except TypeError:
        told.append("refused")
    return [str(told), {name: int(tag) for name, tag in m.Tag.__members__.items()}, str(m.Tag.core), m.Tag(3) == m.Tag.dynamic_output_shape]


@program
def opcheck_finds_what_is_not_as_promised(m):
    def liar(x):
        x.add_(1)
        return x.clone()

    liar.__annotations__ = {"x": m.Tensor, "return": m.Tensor}
    bad = m.library.custom_op(fresh(), liar, mutates_args=())
    bad.register_fake(lambda x: m.empty_like(x))
    good, _ = sine(m)
    good.register_fake(lambda x, k=2: m.empty_like(x))
    found = [list(m.library.opcheck(good, (vector(m),)).items()), list(m.library.opcheck(good._opoverload, (vector(m),)).values())]
    try:
        m.library.opcheck(bad, (vector(m),))
    except Exception as error:
        found.append((type(error).__name__, str(error)))
    results = m.library.opcheck(bad, (vector(m),), test_utils="test_schema", raise_exception=False)
    return [*found, {name: str(error) for name, error in results.items()}]


def test_opcheck_holds_results_against_the_function_of_register_fake():
    made, _ = sine(tj)
    made.register_fake(lambda x, k=2: tj.empty(3))
    with pytest.raises(tj.library.checking.OpCheckError, match="test_faketensor failed with the function of register_fake gives"):
        tj.library.opcheck(made, (vector(tj),))
    assert set(tj.library.opcheck(sine(tj)[0], (vector(tj, True),)).values()) == {"SUCCESS"}


# ---------------------------------------------------------------------- who answers a call


@program
def classes_and_modes_are_asked_of_calls_by_torch_ops(m):
    made, _ = sine(m)
    named = getattr(m.ops.tj_tests, made._name)
    seen = []

    def note(func, types, args, kwargs):
        seen.append((without_numbers(m.overrides.resolve_name(func)), [t.__name__ for t in types], len(args), sorted(kwargs or {})))

    class Noting(m.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            note(func, types, args, kwargs)
            return super().__torch_function__(func, types, args, kwargs)

    class Mode(m.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            note(func, types, args, kwargs)
            return func(*args, **(kwargs or {}))

    def calls(x):
        return [
            made(x, 3), named(x, k=3), named.default(x), m.ops.aten.mul(x, 2), m.ops.aten.mul.Tensor(x, 2), m.ops.aten.cat([x, x])
        ]  # fmt: skip

    kinds = [type(y).__name__ for y in calls(vector(m).as_subclass(Noting))]
    with Mode():
        results = calls(vector(m))
    return kinds, [y.tolist() for y in results], seen


@program
def calls_by_torch_ops_are_recorded_by_fx(m):
    made, _ = sine(m)
    named = getattr(m.ops.tj_tests, made._name)

    def function(x):
        handle = m.ops.profiler._record_function_enter("range")
        y = m.ops.aten.mul(made(x, 3) + named(x) + named.default(x), m.ops.aten.exp.default(x))
        m.ops.profiler._record_function_exit(m.ops.aten.alias(handle) if handle is None else handle)
        return y

    traced = m.fx.symbolic_trace(function)
    nodes = [(n.op, without_numbers(n.name), without_numbers(n.target)) for n in traced.graph.nodes if "add" not in n.name]
    return nodes, without_numbers(traced.code), traced(vector(m)).tolist()


def test_a_range_of_the_profiler_is_asked_of_the_class_of_its_handle():
    class Handle:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func

    assert tj.ops.profiler._record_function_exit(Handle()) is tj.ops.profiler._record_function_exit
