"""`__torch_function__` against PyTorch: who is asked, in which order, about what, and what becomes of the answer."""

from __future__ import annotations

import threading

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import error_of, like_pytorch  # noqa: E402 - needs torch


def recording(m, log):
    """A class, no Tensor, that answers every call with its own name and notes what it was asked."""

    class Duck:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append([m.overrides.resolve_name(func), [t.__name__ for t in types], len(args), sorted(kwargs or {})])
            return "quack"

    return Duck


def logging_subclass(m, log):
    """A Tensor subclass that notes each call and then does as usual."""

    class Logged(m.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with m._C.DisableTorchFunction():
                log.append([func.__name__, m.overrides.resolve_name(func)])
            return super().__torch_function__(func, types, args, kwargs)

    return Logged


def logging_mode(m, log):
    class Logging(m.overrides.TorchFunctionMode):
        def __init__(self, name="mode"):
            super().__init__()
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append([self.name, func.__name__, [t.__name__ for t in types]])
            return func(*args, **(kwargs or {}))

    return Logging


# ---------------------------------------------------------------------- any class may answer


@like_pytorch
def test_a_class_that_is_no_tensor_answers_for_functions(m):
    log = []
    duck, one = recording(m, log)(), m.ones(2)
    answers = [
        m.add(duck, 1), m.add(one, duck), m.mean(duck, dim=0), m.sum(one, dim=duck), m.stack([one, duck]), m.cat((duck,)),
        m.matmul(one, duck), m.where(one > 0, duck, one), m.zeros_like(duck), m.add(1, 1, out=duck), m.pow(duck, 2), m.div(duck, 2),
    ]  # fmt: skip
    return answers, log


@like_pytorch
def test_a_class_that_is_no_tensor_answers_for_functional(m):
    log = []
    duck = recording(m, log)()
    f = m.nn.functional
    answers = [
        f.relu(duck), f.linear(duck, m.ones(1, 1)), f.softmax(duck, 0), f.cross_entropy(m.ones(2), duck), f.layer_norm(duck, (2,)),
        f.dropout(duck, 0.3), f.mse_loss(duck, duck), f.gelu(duck),
    ]  # fmt: skip
    return answers, log


@like_pytorch
def test_a_class_that_is_no_tensor_answers_for_operators_on_either_side(m):
    log = []
    duck, one = recording(m, log)(), m.ones(2)
    answers = [one + duck, one - duck, one * duck, one / duck, one @ duck, one**duck, one % duck, one < duck, one[duck], one.add(duck), one.to(duck)]
    one[0] = duck
    return answers, log


@like_pytorch
def test_a_class_answers_for_autograd(m):
    log = []
    duck = recording(m, log)()
    m.autograd.grad(duck, duck)
    m.autograd.backward(duck)
    return [entry[1:3] for entry in log]


@like_pytorch
def test_factories_do_not_ask_their_data(m):
    log = []
    duck = recording(m, log)()
    return error_of(lambda: m.tensor(duck)), m.is_tensor(duck), log


@like_pytorch
def test_tables_by_function_object_find_what_was_called(m):
    handled = {}

    class Scaled:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return handled[func](*args, **(kwargs or {})) if func in handled else NotImplemented

    handled[m.mean] = lambda x: "mean"
    handled[m.stack] = lambda xs, dim=0: f"stack of {len(xs)} at {dim}"
    handled[m.Tensor.add] = lambda a, b: "method"
    handled[m.nn.functional.relu] = lambda x, inplace: f"relu {inplace}"
    s = Scaled()
    return m.mean(s), m.stack([s, s], dim=1), m.ones(1) + s, m.nn.functional.relu(s), error_of(lambda: m.add(s, 1))[0]


def test_functions_and_methods_are_told_apart():
    assert tj.Tensor.add is not tj.add and tj.Tensor.sum is not tj.sum and tj.Tensor.matmul is not tj.matmul
    assert tj.overrides.resolve_name(tj.Tensor.div) == "torch.Tensor.div" and tj.overrides.resolve_name(tj.div) == "torch.div"


# ---------------------------------------------------------------------- who is asked first, and who declines


@like_pytorch
def test_subclasses_are_asked_before_superclasses_and_otherwise_left_to_right(m):
    asked = []

    class A:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append([cls.__name__, [t.__name__ for t in types]])
            return NotImplemented

    class B(A):
        pass

    class C:
        __torch_function__ = classmethod(lambda cls, func, types, args=(), kwargs=None: asked.append(["C"]) or NotImplemented)

    raised = [error_of(lambda: m.add(A(), B())), error_of(lambda: m.stack([C(), A(), B(), A()])), error_of(lambda: m.add(B(), C()))]
    return raised, asked


class Declines:
    """Answers nothing; named alike with both libraries."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


@like_pytorch
def test_errors_where_everybody_declines(m):
    d = Declines()
    return [
        error_of(call) for call in (
            lambda: m.add(d, 1), lambda: m.ones(1).add(d), lambda: m.ones(1) + d, lambda: m.ones(1) == d, lambda: m.ones(1) @ d,
            lambda: m.nn.functional.relu(d), lambda: m.nn.functional.softmax(d, 0), lambda: m.norm(d), lambda: m.stack([d]), lambda: m.ones(1) // d,
        )
    ]  # fmt: skip


@like_pytorch
def test_one_that_declines_leaves_the_call_to_the_next(m):
    log = []
    return m.add(Declines(), recording(m, log)()), log


@like_pytorch
def test_unrelated_subclasses_of_tensor_decline_each_other(m):
    class A(m.Tensor):
        pass

    class C(m.Tensor):
        pass

    return error_of(lambda: A([1.0]) + C([1.0])), error_of(lambda: m.add(A([1.0]), C([1.0])))[0]


@like_pytorch
def test_a_tensor_subclass_that_declines(m):
    class Never(m.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    t = m.ones(2).as_subclass(Never)
    calls = (lambda: t.shape, lambda: t + 1, lambda: t.sum(), lambda: t.T, lambda: t[0], lambda: t.backward(), lambda: setattr(t, "grad", None))
    return [error_of(call) for call in calls]


def test_a_plain_method_is_asked_with_a_warning():
    class Old:
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return "old"

    with pytest.warns(UserWarning, match="please define it as a classmethod") as caught:
        assert tj.add(Old(), 1) == "old"
    assert caught[0].filename == __file__


# ---------------------------------------------------------------------- what a subclass is asked about


@like_pytorch
def test_what_operators_are_called_to_handlers(m):
    log = []
    x = m.tensor([1.0, 2.0]).as_subclass(logging_subclass(m, log))
    y = (x > 1).as_subclass(m.Tensor).as_subclass(type(x))
    log.clear()
    for call in (
        lambda: x + 1, lambda: 1 + x, lambda: x - 1, lambda: 1 - x, lambda: 2 * x, lambda: x / 2, lambda: x // 2, lambda: 2 // x, lambda: x % 2,
        lambda: x**2, lambda: 2**x, lambda: x @ x, lambda: -x, lambda: abs(x), lambda: x == 1, lambda: x != 1, lambda: x < 1, lambda: x >= 1,
        lambda: y & y, lambda: y | y, lambda: ~y.bool(), lambda: m.ones(2) + x, lambda: m.ones(2) - x, lambda: x.__iadd__(1), lambda: x[0],
        lambda: x.__setitem__(0, 5.0), lambda: bool(x[0]), lambda: float(x[0]), lambda: int(x[0]), lambda: len(x), lambda: 1.0 in x,
    ):  # fmt: skip
        call()
    return [name for _, name in log]


@like_pytorch
def test_handlers_of_operators_are_given_the_method_that_they_stand_for(m):
    given = []

    class Asked(m.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            given.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    x = m.tensor([1.0, 2.0]).as_subclass(Asked)
    x.mul_(2)
    x *= 2
    x += 1
    x -= 1
    x /= 2
    x //= 2
    x %= 2
    x @ x
    names = ("mul_", "mul_", "add_", "sub_", "div_", "floor_divide_", "remainder_", "matmul")
    functions = [getattr(m.Tensor, name) for name in names]
    return [f is g for f, g in zip(given, functions, strict=True)]


@like_pytorch
def test_attributes_and_methods_are_asked_for(m):
    log = []
    x = m.ones(1, 2).as_subclass(logging_subclass(m, log))
    for name in ("shape", "dtype", "device", "ndim", "requires_grad", "grad", "grad_fn", "is_leaf", "data", "T", "_version", "_base", "output_nr"):
        getattr(x, name)
    x.grad = None
    x.requires_grad = True
    del x.grad
    for call in (x.size, x.dim, x.numel, x.is_contiguous, x.sum, x.detach, x.clone, x.backward):
        error_of(call)
    return [name for name, _ in log], [name for _, name in log if name and "__delete__" not in name]


@like_pytorch
def test_what_a_function_is_made_of_is_not_asked_for(m):
    log = []
    cls = logging_subclass(m, log)
    x, f = m.eye(2).as_subclass(cls), m.nn.functional
    for call in (
        lambda: f.cross_entropy(x, m.tensor([0, 1])), lambda: f.layer_norm(x, (2,)), lambda: f.normalize(x), lambda: m.var(x), lambda: x.std(),
        lambda: m.linalg.svd(x), lambda: x.sort(), lambda: x[x > 0], lambda: x.view(1, 2, 2) @ x, lambda: 3 - x, lambda: x.chunk(2), lambda: x.half(),
        lambda: m.einsum("ij,jk->ik", x, x), lambda: m.rand_like(x), lambda: x.index_put_((m.tensor([0]),), m.tensor(1.0)),
    ):  # fmt: skip
        call()
    return [name for _, name in log]


@like_pytorch
def test_autograd_runs_without_asking(m):
    log = []
    cls = logging_subclass(m, log)

    class Double(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            log.append([type(g).__name__, type(ctx.saved_tensors[0]).__name__])
            return g * 2

    x = m.ones(2).as_subclass(cls).requires_grad_()
    x.register_hook(lambda g: log.append(["hook", type(g).__name__]))
    Double.apply(x).sum().backward()
    (x * x).sum().backward(create_graph=True)
    m.autograd.grad((x * x * x).sum(), x, create_graph=True)
    return [entry[0] for entry in log]


# ---------------------------------------------------------------------- modes


@like_pytorch
def test_a_mode_answers_for_plain_tensors_and_factories(m):
    log = []
    x = m.ones(2, requires_grad=True)
    with logging_mode(m, log)():
        y = x + 1
        m.add(x, 1)
        m.zeros(2)
        m.tensor([1.0])
        m.stack([x])
        m.nn.functional.relu(x)
        x[0]
        x.shape  # noqa: B018 - reading it asks the mode
        x.requires_grad  # noqa: B018 - see above
        y.sum().backward()
        m.is_tensor(x)
    x + 1
    return log, x.grad


@like_pytorch
def test_modes_nest_and_the_inner_is_asked_first(m):
    log = []
    mode = logging_mode(m, log)
    with mode("outer"), mode("inner"):
        m.ones(1) * 2
    with mode("twice") as same, same:
        m.ones(1)
    return log


@like_pytorch
def test_a_mode_is_off_inside_itself(m):
    seen = []

    class Doubling(m.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(len(m.overrides._get_current_function_mode_stack()))
            found = func(*args, **(kwargs or {}))
            return found * 2 if func is m.Tensor.add else found

    x = m.ones(2)
    with Doubling() as mode:
        assert m.overrides._get_current_function_mode() is mode
        y = x + 1
    return y, seen


@like_pytorch
def test_a_mode_may_be_entered_again_within_itself(m):
    class Recursive(m.overrides.TorchFunctionMode):
        depth = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.depth += 1
            if self.depth < 3:
                with self:
                    return func(*args, **(kwargs or {}))
            return self.depth

    with Recursive():
        return m.zeros(1)


@like_pytorch
def test_a_mode_is_asked_before_a_subclass(m):
    log = []
    cls = logging_subclass(m, log)
    x = m.ones(2).as_subclass(cls)
    with logging_mode(m, log)():
        x + 1
    return log


@like_pytorch
def test_functions_inside_a_custom_function_ask_the_mode(m):
    log = []

    class Double(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = m.ones(2, requires_grad=True)
    with logging_mode(m, log)():
        Double.apply(x).sum().backward()
    return log, x.grad


class Declining(torch.overrides.TorchFunctionMode):
    """For PyTorch; the text of its errors names the object."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return NotImplemented

    def __repr__(self):
        return "<declining>"


class DecliningOurs(tj.overrides.TorchFunctionMode):
    __torch_function__, __repr__ = Declining.__torch_function__, Declining.__repr__


@like_pytorch
def test_a_mode_that_declines(m):
    x = m.ones(2)
    with (Declining if m is torch else DecliningOurs)():
        return [error_of(call) for call in (lambda: x + 1, lambda: m.add(x, 1), lambda: m.nn.functional.relu(x), lambda: m.zeros(2))]


@like_pytorch
def test_a_mode_without_an_answer_is_an_error_and_leaves_no_trace(m):
    def within():
        with m.overrides.TorchFunctionMode():
            return m.ones(1) + 1

    return error_of(within), m.ones(1) + 1


def test_a_mode_holds_in_its_own_thread():
    log, found = [], []
    with logging_mode(tj, log)():
        other = threading.Thread(target=lambda: found.append((tj.ones(1) * 2).item()))
        other.start()
        other.join()
    assert found == [2.0] and log == []


@like_pytorch
def test_switching_overrides_off(m):
    log = []
    x = m.ones(2).as_subclass(logging_subclass(m, log))
    with logging_mode(m, log)():
        with m._C.DisableTorchFunctionSubclass():
            kinds = [type(x + 1).__name__]
        with m._C.DisableTorchFunction():
            kinds.append(type(x + 1).__name__)
    return kinds, log


# ---------------------------------------------------------------------- torch.overrides


@like_pytorch
def test_names_of_functions(m):
    name, f = m.overrides.resolve_name, m.nn.functional
    functions = (
        m.add, m.Tensor.add, f.relu, m.Tensor.shape.__get__, m.Tensor.grad.__set__, m.linalg.norm, m.stack, m.abs, m.sigmoid, f.linear, m.softmax,
        m.split, m.Tensor.__getitem__, m.special.expit, print,
    )  # fmt: skip
    return [name(function) for function in functions], [m.overrides.is_tensor_method_or_property(function) for function in functions[:4]]


@like_pytorch
def test_functions_of_the_users_own(m):
    overrides, log = m.overrides, []
    duck = recording(m, log)()

    def twice(x, scale=1):
        if overrides.has_torch_function((x,)):
            return overrides.handle_torch_function(twice, (x,), x, scale=scale)
        return x * 2 * scale

    @overrides.wrap_torch_function(lambda x: (x,))
    def thrice(x):
        return x * 3

    with m._C.DisableTorchFunctionSubclass():
        off = overrides.has_torch_function_unary(duck)
    return twice(duck), twice(m.ones(1)), thrice(duck), thrice(m.ones(1)), log, off, error_of(lambda: twice(Declines()))


@like_pytorch
def test_what_has_overrides(m):
    overrides = m.overrides
    duck, x = Declines(), m.ones(1)
    return (
        [overrides.has_torch_function((x, 1)), overrides.has_torch_function((x, duck)), overrides.has_torch_function_unary(x),
         overrides.has_torch_function_variadic(x, duck), overrides.has_torch_function(())],
        [overrides.is_tensor_like(y) for y in (x, duck, 3)],
    )  # fmt: skip


@like_pytorch
def test_functions_written_in_python_hand_on_the_arguments_that_pytorchs_take(m):
    told = []

    class Mode(m.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            told.append([func.__name__.lstrip("_"), len(args), kwargs])
            return func(*args, **(kwargs or {}))

    x = m.ones(3)
    with Mode():
        found = [x.norm(), x.norm(1), m.nn.functional.threshold(x, 0.5, 1.0)]
    return told, [f.tolist() for f in found]


def test_the_lists_of_functions():
    overridable = tj.overrides.get_overridable_functions()
    assert tj.add in overridable[tj] and tj.Tensor.add in overridable[tj.Tensor] and tj.nn.functional.relu in overridable[tj.nn.functional]
    assert overridable[tj.Tensor.shape] == [tj.Tensor.shape.__get__]
    ignored = tj.overrides.get_ignored_functions()
    assert tj.tensor in ignored and tj.zeros in ignored and tj.add not in ignored
    testing = tj.overrides.get_testing_overrides()
    assert testing[tj.add](1, 2) == -1 and set(testing).isdisjoint(ignored)


def test_every_overridable_function_asks_its_first_argument():
    class Duck:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func

    for functions in tj.overrides.get_overridable_functions().values():
        for function in functions:
            if function.__name__ not in ("__set__", "__delete__"):
                assert function(Duck(), 1) is function, function


def made_while_asked(m, log):
    """Modules of several kinds; the mode leaves out what fills their parameters."""

    class Unfilled(m.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            name = m.overrides.resolve_name(func) or ""
            if name.endswith("_") and not name.endswith("__") or name.count(".") == 1:  # neither attributes nor looks at the shape
                log.append([name, len(args), sorted(kwargs or {})])
            if name.startswith("torch.nn.init."):
                return kwargs["tensor"]
            return func(*args, **(kwargs or {}))

    with Unfilled():
        return [
            m.nn.Linear(2, 3), m.nn.LSTM(2, 3), m.nn.Bilinear(1, 2, 3), m.nn.PReLU(), m.nn.LayerNorm(3), m.nn.BatchNorm1d(2),
            m.nn.EmbeddingBag(3, 2), m.nn.MultiheadAttention(4, 2),
        ]  # fmt: skip


@like_pytorch
def test_modes_are_asked_about_what_a_module_is_made_of_and_filled_by(m):
    log = []
    m.manual_seed(0)
    modules = made_while_asked(m, log)
    return log, [[list(p.shape) for p in module.parameters()] for module in modules], m.rand(2)


@like_pytorch
def test_a_mode_chooses_the_dtype_of_what_modules_are_made_of(m):
    class Double(m.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if func is m.empty:
                kwargs["dtype"] = m.float64
            return func(*args, **kwargs)

    with Double():
        made = m.nn.Sequential(m.nn.Conv2d(1, 2, 3), m.nn.Embedding(3, 2), m.nn.GRUCell(1, 2))
    return [str(p.dtype).rpartition(".")[2] for p in made.parameters()]


@like_pytorch
def test_a_subclass_is_asked_about_what_fills_it(m):
    log = []
    t = m.zeros(3, 3).as_subclass(logging_subclass(m, log))
    init = m.nn.init
    kept = [
        init.ones_(t) is t, init.zeros_(t) is t, init.normal_(t, std=0.1) is t, init.constant_(t, 2) is t, init.uniform_(t, -1, 1) is t,
        init.kaiming_uniform_(t, nonlinearity="relu") is t,
    ]  # fmt: skip
    return kept, log, type(t).__name__, m.Tensor.tolist(t)


@pytest.mark.parametrize("call", [
    "torch.add(x, x)", "torch.nn.functional.relu(x)", "torch.ones(2) + x", "x + torch.ones(2)", "torch.stack([x, x])", "torch.nn.Linear(2, 2)(x)",
    "tj.add(x, torch.ones(2))", "x.mul(torch.ones(2))", "x * torch.tensor(2.0)", "x % torch.tensor(2.0)",
])  # fmt: skip
def test_pytorch_itself_is_no_function_of_our_tensors_nor_its_tensors_arguments_of_ours(call):
    x = tj.ones(2)
    with pytest.raises(TypeError):
        eval(call, {"torch": torch, "tj": tj, "x": x})
