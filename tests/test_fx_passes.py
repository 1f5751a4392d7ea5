"""`torch.fx`: tracers, `wrap`, arguments with values, interpreters, transformers and what rewrites graphs."""

from __future__ import annotations

import importlib
import math
import operator
import subprocess
import sys
import threading
from math import sqrt

import pytest
from side_by_side import caught, programs

import torchgrad_jax as tj

torch = pytest.importorskip("torch")
importlib.import_module("torch.fx")
program, test_like_pytorch = programs()


def part(m, name):
    return importlib.import_module(f"{m.__name__}.{name}")


def positive(x, y=1):
    return x if bool(x.sum() > 0) else y


@torch.fx.wrap
@tj.fx.wrap
def decorated(x):
    return len(x) + 1


for fx in (torch.fx, tj.fx):
    fx.wrap("positive")
    fx.wrap("len")


class Net(tj.nn.Module):
    """With a helper of this module in its `forward`."""

    def forward(self, x):
        return positive(x, y=2) + len(x)


@program
def wrapped_functions_are_one_node(m):
    def function(x):
        return positive(x + 1, y=2) + len(x) + decorated(x) + sqrt(x) + math.floor(x) + sqrt(4)

    traced = m.fx.symbolic_trace(function)
    again = m.fx.symbolic_trace(traced)
    refused = [caught(lambda: m.fx.wrap(3)), caught(lambda: m.fx.wrap("positive")), positive(m.ones(1)), len([1])]
    meta = [sorted(n.meta) for n in traced.graph.nodes]
    return [str(traced.graph), traced.code, again.code, *refused, meta]


@program
def arguments_with_values(m):
    def either(x, y=None, way="up", k=1):
        if y is None:
            return x * k
        return x + y if way == "up" else x - y

    def nested(x, pair, named):
        return [x + pair[0] * pair[1], named["a"]]

    PH = m.fx.PH
    ways = [
        (either, {"y": None}), (either, {"way": "down", "k": 3, "y": PH}), (either, {"y": None, "k": True}), (nested, {"pair": [PH, 2]}),
        (nested, {"named": {"a": PH}, "pair": (PH, PH)}), (lambda a, b: a + b, (PH, 1)),
    ]  # fmt: skip
    traced = [m.fx.symbolic_trace(function, concrete_args=values) for function, values in ways]
    x = m.ones(2)
    found = [traced[0](x), traced[3](x, [x, 2], {"a": x}), traced[4](x, (x, x), {"a": 3}), m.fx.Interpreter(traced[5]).run(x, 1)]
    refused = [caught(lambda: traced[0](x, 1)), caught(lambda: traced[3](x, [x, 3], {"a": x}))]
    return [[[str(g.graph), g.code] for g in traced], found, refused]


@program
def tracers_say_what_is_a_leaf(m):
    class Block(m.nn.Module):
        def forward(self, x):
            return m.relu(x) + 1

    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()
            self.layer = m.nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(self.block(x)) + self.block(x)

    class Blocks(m.fx.Tracer):
        def is_leaf_module(self, module, name):
            seen.append(name)
            return isinstance(module, Block)

    class Noting(m.fx.Tracer):
        def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None):
            proxy = super().create_proxy(kind, target, args, kwargs, name, type_expr)
            seen.append(proxy.node.name)
            return proxy

        def call_module(self, module, forward, args, kwargs):
            seen.append(self.path_of_module(module))
            return super().call_module(module, forward, args, kwargs)

    seen = []
    m.manual_seed(0)
    net = Net()
    blocks = Blocks().trace(net)
    traced = m.fx.GraphModule(net, blocks)
    x = m.ones(1, 2)
    return [str(blocks), traced(x), repr(traced), str(Noting().trace(net)), seen, blocks._tracer_cls is Blocks, traced._tracer_cls is None]


@program
def tracers_know_shapes_and_answer_questions(m):
    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = m.nn.Parameter(m.ones(2, 3))
            self.register_buffer("b", m.ones(3))

        def forward(self, x):
            if self.w.shape[0] == 2 and self.w.dim() == 2 and self.w.numel() == 6 and self.w.ndim == 2:
                x = x + 1
            return x @ self.w.t() + self.b.sum()

    class Buffers(m.fx.Tracer):
        proxy_buffer_attributes = True

    class Answering(m.fx.Tracer):
        def to_bool(self, obj):
            return True

        def iter(self, obj):
            return iter([obj[0], obj[1]])

    net = Net()
    known = m.fx.Tracer(param_shapes_constant=True).trace(net)
    answered = Answering().trace(lambda x: sum(y for y in x) if x > 0 else 1)
    return [caught(lambda: m.fx.Tracer().trace(net)), str(known), caught(lambda: str(Buffers().trace(Net()))), str(answered)]


@program
def functions_and_modules_can_be_named_to_be_recorded(m):
    tracer = m.fx.Tracer(autowrap_modules=(math, operator), autowrap_functions=(decorated,))
    return [str(tracer.trace(lambda x: math.exp(operator.index(x)) + decorated(x)))]


@program
def classes_whose_making_is_recorded(m):
    class Pair(metaclass=m.fx.ProxyableClassMeta):
        def __init__(self, a, b):
            self.a, self.b = a, b

    traced = m.fx.symbolic_trace(lambda x: Pair(x, 2).a + Pair(1, 2).b)
    return [str(traced.graph).replace("test_fx_passes.", ""), traced(m.ones(1))]


@program
def proxies_append_to_a_graph_without_a_tracer(m):
    graph = m.fx.Graph()
    tracer = part(m, "fx.proxy").GraphAppendingTracer(graph)
    x = m.fx.Proxy(graph.placeholder("x", m.Tensor), tracer)
    y = m.fx.Proxy(graph.placeholder("y"))
    graph.output((m.einsum("ij,jk->ik", x, x).reshape(-1) * 2 + m.fx.Proxy(graph.call_module("m", (y.node,)), tracer)).node)
    made = m.fx.GraphModule({"m": m.nn.Tanh()}, graph, "made")
    return [str(graph), made(m.ones(2, 2), m.ones(1)), repr(x)]


@program
def interpreters_run_nodes_one_by_one(m):
    class Mine(m.fx.Interpreter):
        def call_function(self, target, args, kwargs):
            return super().call_function(m.sigmoid if target is m.relu else target, args, kwargs)

        def call_method(self, target, args, kwargs):
            return -super().call_method(target, args, kwargs)

        def run_node(self, n):
            seen.append(n.name)
            return super().run_node(n)

    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = m.nn.Parameter(m.ones(2))
            self.layer = m.nn.Linear(2, 2)

        def forward(self, x, k=2, *rest):
            return {"a": [m.relu(self.layer(x)) * self.w, x.neg()], "b": m.cat([x, x]) + k}

    seen = []
    m.manual_seed(0)
    traced = m.fx.symbolic_trace(Net())
    x = m.tensor([1.0, 2.0])
    plain, mine = m.fx.Interpreter(traced), Mine(traced)
    found = [list(plain.run(x).values()), list(mine.run(x, 3, 4).values()), plain.boxed_run([x, 3, 1])["a"], caught(lambda: plain.boxed_run([x]))]
    nodes = list(traced.graph.nodes)
    found.append(list(m.fx.Interpreter(traced).run(initial_env={nodes[0]: x, nodes[1]: 3, nodes[2]: []}).values()))
    return [found, seen, sorted(map(str, m.fx.Interpreter(traced, garbage_collect_values=False).env))]


@program
def errors_of_interpreters_name_the_node(m):
    traced = m.fx.symbolic_trace(lambda x: m.relu(x) @ x)
    told = caught(lambda: m.fx.Interpreter(traced).run(m.ones(2, 5)))[1]
    graph = m.fx.Graph()
    graph.output(graph.get_attr("w"))
    missing = caught(lambda: m.fx.Interpreter(m.nn.Module(), graph=graph).run())[1]
    return [told.partition("\nUse tlparse")[0], missing.partition("\n")[0], caught(lambda: m.fx.Interpreter(traced).run())[1].partition("\n")[0]]


@program
def transformers_make_another_graph(m):
    class Smooth(m.fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(m.tanh if target is m.relu else target, args, kwargs)

        def call_method(self, target, args, kwargs):
            return super().call_method("cos" if target == "sin" else target, args, kwargs)

    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = m.nn.Parameter(m.ones(2))
            self.layer = m.nn.Linear(2, 2)

        def forward(self, x, k=2):
            return m.relu(self.layer(x)) * self.w, x.sin() + k

    m.manual_seed(0)
    traced = m.fx.symbolic_trace(Net())
    made = Smooth(traced).transform()
    return [str(made.graph), made.code, made(m.ones(2)), made.layer is traced.layer, type(made).__name__, list(made.state_dict())]


@program
def patterns_are_replaced(m):
    def function(x, y):
        a = m.relu(x) + y
        b = m.relu(a) + x
        c = m.relu(b)  # used twice
        return a * b, c + x, c, m.cat([x, y], dim=0)

    found = []
    for pattern, replacement in (
        (lambda p, q: m.relu(p) + q, lambda p, q: m.sigmoid(p) - q),
        (lambda p: m.relu(p), lambda p: p.clamp(min=0)),
        (lambda p, q: m.cat([p, q], dim=0), lambda p, q: m.stack([p, q]).flatten(0, 1)),
        (lambda p, q: m.cat([p, q], dim=1), lambda p, q: p),
        (lambda p: m.relu(m.relu(p)), lambda p: p),
        (lambda p, q: (m.relu(p), m.relu(q)), lambda p, q: (p.cos(), q.sin())),
    ):
        traced = m.fx.symbolic_trace(function)
        matches = m.fx.replace_pattern(traced, pattern, replacement)
        where = [[str(match.anchor), str(match.nodes_map)] for match in matches]
        found.append([traced.code, where, list(traced(m.tensor([-1.0, 2.0]), m.tensor([0.5, 1.0])))])
        traced.graph.lint()
    return found


@program
def shapes_are_noted(m):
    shape_prop = part(m, "fx.passes.shape_prop")
    net = m.nn.Sequential(m.nn.Conv2d(1, 2, 3), m.nn.Flatten(), m.nn.Linear(8, 3))
    traced = m.fx.symbolic_trace(net)
    result = shape_prop.ShapeProp(traced).propagate(m.ones(1, 1, 4, 4))
    kept = [(n.name, n.meta["tensor_meta"], n.meta["type"].__name__) for n in traced.graph.nodes]
    split = m.fx.symbolic_trace(lambda x: (x.split(1), x.double()))
    shape_prop.ShapeProp(split).propagate(m.ones(2, 1))
    sizes = part(m, "fx.passes.graph_manipulation")
    sizes.get_size_of_all_nodes(traced)
    size = [list(sizes.get_size_of_node(traced, n)) for n in traced.graph.nodes if n.op != "output"]
    tree = str([n.meta.get("tensor_meta") for n in split.graph.nodes])
    return [list(result.shape), [[k[0], list(k[1].shape), str(k[1]), k[2]] for k in kept], traced.print_readable(print_output=False), tree, size]


@program
def modules_are_split(m):
    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = m.nn.Linear(2, 2)
            self.b = m.nn.Linear(2, 2)
            self.p = m.nn.Parameter(m.ones(2))

        def forward(self, x, y):
            z = self.a(x) + y
            w = self.b(z) * self.p
            return w + z, w

    m.manual_seed(0)
    net = Net()
    traced = m.fx.symbolic_trace(net)
    parts = part(m, "fx.passes.split_module").split_module(traced, net, lambda node: 0 if node.name in ("a", "add") else 1)
    x = m.ones(1, 2)
    return [parts.code, parts.submod_0.code, parts.submod_1.code, list(parts.state_dict()), list(parts(x, x)), list(traced(x, x)), repr(parts)]


@pytest.mark.parametrize("m", [torch, tj], ids=["torch", "torchgrad_jax"])
def test_tables(m, capsys):
    if m is torch:
        pytest.importorskip("tabulate")  # which PyTorch prints tables by

    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = m.nn.Linear(2, 2)

        def forward(self, x, flag=True):
            return (self.layer(x) + 1).add(1, alpha=2)

    m.fx.symbolic_trace(Net()).graph.print_tabular()
    assert capsys.readouterr().out.splitlines() == [
        "opcode         name    target                   args        kwargs",
        "-------------  ------  -----------------------  ----------  ------------",
        "placeholder    x       x                        ()          {}",
        "placeholder    flag    flag                     (True,)     {}",
        "call_module    layer   layer                    (x,)        {}",
        "call_function  add     <built-in function add>  (layer, 1)  {}",
        "call_method    add_1   add                      (add, 1)    {'alpha': 2}",
        "output         output  output                   (add_1,)    {}",
    ]


def test_nothing_stays_recorded():
    """What was put in the place of functions is taken away, also where tracing fails."""
    call, get, length = tj.nn.Module.__call__, tj.nn.Module.__getattr__, len
    for function in (lambda x: x + 1, lambda x: bool(x)):
        caught(lambda function=function: tj.fx.symbolic_trace(function))
        assert tj.nn.Module.__call__ is call and tj.nn.Module.__getattr__ is get and "len" not in globals() and len is length
    assert math.sqrt is sqrt and "__call__" not in vars(tj.nn.Module)
    assert not tj.fx._symbolic_trace.is_fx_tracing()


def test_stack_traces_are_noted_where_a_tracer_is_told_to():
    def function(x):
        y = x + 1
        return tj.relu(y)

    tracer = tj.fx.Tracer()
    tracer.record_stack_traces = True
    nodes = list(tracer.trace(function).nodes)
    assert nodes[1].stack_trace.rstrip().endswith("y = x + 1") and nodes[2].stack_trace.rstrip().endswith("return tj.relu(y)")
    assert "code: y = x + 1" in nodes[1].graph.python_code("self", verbose=True).src


def test_asserts_are_recorded_where_a_tracer_is_told_to():
    class Tracer(tj.fx.Tracer):
        trace_asserts = True

    names = {}  # pytest writes the asserts of this file anew
    exec("def function(x):\n    assert x.shape[0] == 2, 'two rows'\n    return x + 1", names)
    function = names["function"]
    module = tj.fx.GraphModule(tj.nn.Module(), Tracer().trace(function))
    assert module(tj.ones(2)).tolist() == [2, 2]
    with pytest.raises(AssertionError, match="two rows"):
        module(tj.ones(3))
    with pytest.raises(tj.fx.proxy.TraceError, match="control flow"):
        tj.fx.symbolic_trace(function)


def test_a_thread_that_does_not_record_computes():
    """Ordinary functions see no proxies of another thread's."""
    found = []

    class Net(tj.nn.Module):
        def forward(self, x):
            thread = threading.Thread(target=lambda: found.append((tj.ones(2) + tj.relu(tj.ones(2))).tolist()))
            thread.start()
            thread.join()
            return x + 1

    tj.fx.symbolic_trace(Net())
    assert found == [[2, 2]]


def test_fx_is_loaded_when_it_is_asked_for():
    look = "print('torchgrad_jax.fx.graph' in sys.modules)"
    program = f"import sys, torchgrad_jax as t; {look}; t.fx.Graph; {look}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@program
def tracers_may_refuse_functions_that_write(m):
    class Checking(m.fx.Tracer):
        check_mutable_operations = True

    def first(found):
        return found and (found[0], found[1].split("operation ")[-1].split(" ")[0].removeprefix("aten::").partition("(")[0].rstrip("."))

    calls = [lambda x: m.relu(x), lambda x: m.relu_(x), lambda x: x.add_(1), lambda x: m.add(x, 1, out=x), lambda x: m.neg_(x), lambda x: x + 1]
    return [first(caught(lambda call=call: Checking().trace(call))) for call in calls], str(m.fx.Tracer().trace(calls[1]))
