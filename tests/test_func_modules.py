"""`functional_call`, `stack_module_state`, `rearrange` and the names of before: the same programs with PyTorch and with ours."""

import pytest
from side_by_side import error_of, like_pytorch, programs, shown, vector

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


def linear(m, value=1.0):
    layer = m.nn.Linear(3, 2, dtype=m.float64)
    m.nn.init.constant_(layer.weight, value), m.nn.init.constant_(layer.bias, 0.5)
    return layer


def state(m):
    return {"weight": m.arange(6.0, dtype=m.float64).reshape(2, 3), "bias": m.tensor([1.0, -1.0], dtype=m.float64)}


def tied(m):
    class Tied(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.foo = m.nn.Parameter(m.tensor(1.0))
            self.bar = self.foo
            self.register_buffer("b", m.tensor(5.0))
            self.register_buffer("c", self.b)

        def forward(self, x):
            return x + self.foo + self.bar * 10 + self.b * 100 + self.c * 1000

    return Tied()


def counting(m):
    class Counting(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", m.zeros(()))
            self.register_buffer("none", None)
            self.w = m.nn.Parameter(m.ones(()))

        def forward(self, x, how):
            if how == "assigned":
                self.n = self.n + 1
            elif how == "written to":
                self.n.add_(1)
            elif how == "data":
                self.n.data.add_(1)
            elif how == "parameter":
                self.w = m.nn.Parameter(m.tensor(7.0))
            elif how == "raises":
                self.n = self.n + 1
                raise KeyError("mine")
            return x + self.n + self.w

    return Counting()


# ---------------------------------------------------------------------- functional_call


@program
def calls_with_tensors_in_dicts(m):
    layer, given, x = linear(m), state(m), vector(m)
    call = m.func.functional_call
    halves = [{"weight": given["weight"]}, {"bias": given["bias"]}]
    return [
        call(layer, given, x), call(layer, given, (x,)), call(layer, tuple(halves), x), call(layer, halves, x), call(layer, {}, x), call(layer, (),
        x), call(layer, {"bias": given["bias"]}, x), call(layer, given, kwargs={"input": x}), call(layer, given, (), {"input": x}),
        call(layer, {**given, "bias": None}, x), call(layer, given, x, strict=True), layer(x), list(layer.state_dict()),
    ]  # fmt: skip


@program
def parameters_are_the_tensors_given(m):
    layer, given = linear(m), {name: t.requires_grad_() for name, t in state(m).items()}
    out = m.func.functional_call(layer, given, vector(m))
    return [out, *m.autograd.grad(out.sum(), list(given.values())), [p.grad for p in layer.parameters()]]


@program
def names_in_submodules(m):
    model = m.nn.Sequential(linear(m), m.nn.Tanh(), m.nn.Sequential(m.nn.Linear(2, 1, dtype=m.float64)))
    given = {name: m.ones_like(p) for name, p in model.named_parameters()}
    return [
        m.func.functional_call(model, given, vector(m)),
        list(given),
        m.func.functional_call(model, {"2.0.weight": m.zeros(1, 2).double()}, vector(m)) * 0,
    ]


@program
def tied_weights(m):
    model, x, two, three = tied(m), m.zeros(()), m.tensor(2.0), m.tensor(3.0)
    call = m.func.functional_call
    return [
        call(model, {"foo": two}, x), call(model, {"bar": two}, x), call(model, {"c": three}, x), call(model, {"foo": two}, x, tie_weights=False),
        call(model, {"foo": two, "bar": two}, x), call(model, {"foo": two, "bar": three}, x, tie_weights=False),
        call(model, {"foo": two, "b": three}, x, strict=True), model(x), model.foo is model.bar, model.b is model.c,
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["assigned", "written to", "data", "parameter", "raises"])
def test_what_is_assigned_during_the_call_is_in_the_dict_like_pytorch(how):
    def of(m):
        model = counting(m)
        own, given = dict(model.named_parameters()) | dict(model.named_buffers()), {"n": m.tensor(5.0), "w": m.tensor(10.0)}
        first = given["n"]
        found = []
        failed = error_of(lambda: found.append(m.func.functional_call(model, given, (m.zeros(()), how))))
        left = dict(model.named_parameters()) | dict(model.named_buffers())
        return [found, failed, shown(given), first, [left[name] is t for name, t in own.items()], list(left), list(model._buffers)]

    like_pytorch(of)()


@program
def buffers_that_are_not_given_are_the_modules_own(m):
    model, given = counting(m), {"w": m.tensor(10.0)}
    return [m.func.functional_call(model, given, (m.zeros(()), "assigned")), model.n, shown(given)]


ERRORS = {
    "names in two dicts": lambda m, call: call(linear(m), (state(m), state(m)), vector(m)),
    "a tuple with a number": lambda m, call: call(linear(m), (state(m), 3), vector(m)),
    "a number": lambda m, call: call(linear(m), 3, vector(m)),
    "a submodule that is none": lambda m, call: call(linear(m), {"sub.weight": m.ones(2)}, vector(m)),
    "no name": lambda m, call: call(linear(m), {"": m.ones(2)}, vector(m)),
    "a method": lambda m, call: call(linear(m), {"forward": m.ones(2)}, vector(m)),
    "an attribute": lambda m, call: call(linear(m), {"in_features": m.ones(2)}, vector(m)),
    "a number for a tensor": lambda m, call: call(linear(m), {"bias": 2.0}, vector(m)),
    "missing": lambda m, call: call(linear(m), {"bias": m.ones(2)}, vector(m), strict=True),
    "unexpected": lambda m, call: call(linear(m), {**state(m), "foo": m.ones(2)}, vector(m), strict=True),
    "missing and unexpected": lambda m, call: call(linear(m), {"weight": m.ones(2, 3), "foo": m.ones(2), "baz": m.ones(2)}, vector(m), strict=True),
    "missing, tied": lambda m, call: call(tied(m), {"foo": m.ones(())}, m.zeros(()), strict=True),
    "missing, not tied": lambda m, call: call(tied(m), {"foo": m.ones(()), "b": m.ones(())}, m.zeros(()), strict=True, tie_weights=False),
    "tied and different": lambda m, call: call(tied(m), {"c": m.ones(()), "b": m.zeros(())}, m.zeros(())),
    "no arguments": lambda m, call: call(linear(m), state(m)),
    "a submodule in a Sequential": lambda m, call: call(m.nn.Sequential(linear(m)), {"2.weight": m.ones(2)}, vector(m)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_functional_call_like_pytorch(name):
    like_pytorch(lambda m: ERRORS[name](m, m.func.functional_call))()


@program
def the_deprecated_functional_call(m):
    return m.nn.utils.stateless.functional_call(linear(m), state(m), vector(m))


def shared(m):
    """One layer under two names."""
    model = m.nn.Module()
    model.a = model.b = linear(m)
    return model


@program
def parameters_replaced_for_a_while(m):
    replaced, found = m.nn.utils.stateless._reparametrize_module, []
    for make, given in ((tied, {"foo": m.ones(()), "b": m.zeros(())}), (shared, {"a.weight": m.zeros(1), "b.weight": m.ones(1)})):
        for options in ({}, {"stack_weights": True}, {"tie_weights": True}, {"strict": True}):
            model, names = make(m), dict(given)
            before = model.state_dict()
            try:
                with replaced(model, names, **options):
                    found.append(dict(model.state_dict()))
                    for name in names:
                        owner = model.get_submodule(name.rpartition(".")[0])
                        getattr(owner, name.rpartition(".")[2]).add_(1)
            except Exception as error:
                found.append([type(error).__name__, str(error)])
            after = model.state_dict()
            found.append([after, [after[name].data_ptr() == t.data_ptr() for name, t in before.items()], names])
    return shown(found)


@program
def functional_calls_without_a_warning(m):
    stateless, names = m.nn.utils.stateless, {"foo": m.ones(())}
    untied, call = stateless._untie_named_tensors_map(tied(m), names), stateless._functional_call
    return shown([untied, names, call(linear(m), state(m), (vector(m),)), call(tied(m), names, m.ones(()))])


# ---------------------------------------------------------------------- with transforms


@program
def gradients_of_each_sample_of_a_module(m):
    model = m.nn.Sequential(linear(m, 0.1), m.nn.Tanh(), linear2(m))
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters, x, y):
        return m.nn.functional.mse_loss(m.func.functional_call(model, parameters, (x,)), y)

    x = m.arange(12.0, dtype=m.float64).reshape(4, 3) / 10
    gradients = m.vmap(m.func.grad(loss), (None, 0, 0))(parameters, x, m.ones(4, 1, dtype=m.float64))
    return [shown(gradients), shown(m.func.jacrev(lambda p: m.func.functional_call(model, p, x))(parameters))]


def linear2(m):
    layer = m.nn.Linear(2, 1, dtype=m.float64)
    m.nn.init.constant_(layer.weight, 0.3), m.nn.init.constant_(layer.bias, -0.1)
    return layer


@program
def ensembles(m):
    models = [linear(m, value) for value in (0.1, 0.2, 0.3)]
    parameters, buffers = m.func.stack_module_state(models)

    def of(p, b, x):
        return m.func.functional_call(models[0], (p, b), x)

    out = m.vmap(of, (0, 0, None))(parameters, buffers, vector(m))
    leaves = [(t.is_leaf, t.requires_grad) for t in parameters.values()]
    return [shown(parameters), shown(buffers), out, leaves, *m.autograd.grad(out.sum(), list(parameters.values()))]


@program
def stacked_buffers_and_tied_parameters(m):
    return [shown(part) for part in m.func.stack_module_state([tied(m), tied(m)])]


@program
def stacked_frozen_parameters(m):
    models = [linear(m), linear(m)]
    for model in models:
        model.weight.requires_grad_(False)
    return shown(m.func.stack_module_state(m.nn.ModuleList(models)))


STACKING = {
    "no models": lambda m: [],
    "classes": lambda m: [linear(m), m.nn.ReLU()],
    "shapes": lambda m: [linear(m), m.nn.Linear(2, 2, dtype=m.float64)],
    "modes": lambda m: [linear(m), linear(m).eval()],
    "names": lambda m: [linear(m), m.nn.Linear(3, 2, bias=False)],
    "frozen in one": lambda m: [linear(m).requires_grad_(False), linear(m)],
    "a single module": lambda m: linear(m),
}


@pytest.mark.parametrize("name", STACKING)
def test_errors_of_stack_module_state_like_pytorch(name):
    like_pytorch(lambda m: m.func.stack_module_state(STACKING[name](m)))()


@program
def batch_norms_without_running_statistics(m):
    model = m.nn.Sequential(m.nn.BatchNorm1d(3), m.nn.Sequential(m.nn.BatchNorm2d(2)), m.nn.Linear(2, 2))
    same = m.func.replace_all_batch_norm_modules_(model)
    return [same is model, [n for n in model.state_dict() if "running" in n or "tracked" in n], model[0].running_mean, model[0].track_running_stats]


# ---------------------------------------------------------------------- rearrange

PATTERNS = [
    ("a b c -> b a c", {}), ("a b c -> (a b) c", {}), ("a (b d) c -> d a b c", {"d": 3}), ("a b c -> a b c 1", {}), ("... c -> c ...", {}),
    ("a ... -> (a ...)", {}), ("a b ... c -> (a ...) b c", {}), ("a b c -> a (b c) ()", {}), ("a b (c d) -> d a (b c)", {"c": 2}),
    ("a b c -> a b", {}), ("a b -> b a", {}), ("a b c -> a b c d", {}), ("a a b -> b", {}), ("a b c", {}), ("a b c -> a b c", {"d": 3}),
    ("a b _c -> a b _c", {}), ("a b c -> a b (c", {}), ("a b c -> a ((b) c)", {}), ("a b 4 -> a b", {}), ("a b c -> ... a b c", {}),
    ("... a ... -> a", {}), ("a.b c -> c", {}), ("(...) c -> ... c", {}), ("a-1 b c -> b c", {}),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "sizes"), PATTERNS, ids=[p for p, _ in PATTERNS])
def test_rearrange_like_pytorch(pattern, sizes):
    like_pytorch(lambda m: m.func.rearrange(m.arange(24.0).reshape(2, 3, 4), pattern, **sizes))()


@program
def rearranging_inside_of_transforms(m):
    x = m.arange(24.0, dtype=m.float64).reshape(2, 3, 4)

    def f(x):
        return m.func.rearrange(x, "a (b c) -> c (a b)", c=2)

    return [m.vmap(f)(x), m.func.grad(lambda x: (f(x[0])[0] ** 2).sum())(x), m.func.rearrange([x, x], "l a b c -> (l a) c b")]
