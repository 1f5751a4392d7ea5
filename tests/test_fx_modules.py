"""`torch.fx.GraphModule` and `Graph`: graphs made and changed by hand, copies, pickles, tracebacks."""

from __future__ import annotations

import copy
import gc
import linecache
import operator
import pickle
import traceback

import pytest
from side_by_side import caught, programs

import torchgrad_jax as tj

program, test_like_pytorch = programs()


def layers(m):
    class Layers(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = m.nn.Linear(2, 3)
            self.inner = m.nn.Module()
            self.inner.second = m.nn.Linear(3, 2)
            self.inner.weight = m.nn.Parameter(m.ones(3))
            self.register_buffer("kept", m.ones(2))
            self.register_buffer("transient", m.ones(2), persistent=False)
            self.unused = m.nn.Linear(1, 1)

        def forward(self, x):
            return self.inner.second(m.relu(self.first(x)) * self.inner.weight) + self.kept * self.transient

    m.manual_seed(0)
    return Layers()


class Traced(tj.nn.Module):
    """A module of a class that pickles find."""

    def __init__(self):
        super().__init__()
        self.layer = tj.nn.Linear(2, 2)

    def forward(self, x, b=3):
        return tj.nn.functional.relu(self.layer(x)) + b


@program
def members_are_shared_with_the_traced_module(m):
    module = layers(m)
    traced = m.fx.symbolic_trace(module)
    shared = traced.first is module.first, traced.inner is module.inner, traced.inner.weight is module.inner.weight, hasattr(traced, "unused")
    x = m.ones(1, 2)
    return [*shared, list(traced.state_dict()), [n for n, _ in traced.named_buffers()], repr(traced), traced(x), module(x), traced.training]


@program
def graphs_are_made_by_hand(m):
    graph = m.fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y", m.Tensor, default_value=2)
    total = graph.call_function(m.add, (x, y), {"alpha": 3})
    weight = graph.get_attr("part.weight")
    graph.output((graph.call_method("mul", (total, weight)), graph.call_module("part.layer", (total,))), type_expr=tuple)
    m.manual_seed(0)
    module = m.fx.GraphModule({"part.weight": m.nn.Parameter(m.ones(2)), "part.layer": m.nn.Linear(2, 2)}, graph, "Made")
    m.fx.Graph.lint(graph)
    return [str(graph), module.code, repr(module), list(module(m.ones(2))), [n for n, _ in module.named_parameters()], graph.owning_module is module]


@program
def nodes_are_put_replaced_and_erased(m):
    def function(x, y):
        a = m.relu(x) + y
        b = m.relu(a)
        return a * b

    traced = m.fx.symbolic_trace(function)
    graph = traced.graph
    for node in graph.find_nodes(op="call_function", target=m.relu):
        with graph.inserting_after(node):
            new = graph.call_function(m.tanh, node.args)
            further = graph.call_method("neg", (new,))
        node.replace_all_uses_with(further)
        graph.erase_node(node)
    with graph.inserting_before(graph.output_node()):
        dead = graph.call_function(m.add, (new, 1))
        graph.call_function(operator.setitem, (new, 0, 1))
    before = str(graph), traced.code
    traced.recompile()
    told = [caught(lambda: graph.erase_node(new)), graph.eliminate_dead_code(), dead in list(graph.nodes), graph.eliminate_dead_code()]
    traced.recompile()
    new.args = ([new.args[0], 1],)
    new.update_arg(0, 2)
    new.update_kwarg("k", further.prev)
    new.insert_arg(0, list(graph.nodes)[0])
    return [*before, *told, traced.code, str(graph), [str(n) for n in reversed(graph.nodes)], str(new.all_input_nodes)]


@program
def uses_are_replaced_where_the_caller_says(m):
    graph = m.fx.symbolic_trace(lambda x: (m.relu(x), m.tanh(x))).graph
    x = next(iter(graph.nodes))
    with graph.inserting_after(x):
        new = graph.call_method("clone", (x,))
    changed = x.replace_all_uses_with(new, delete_user_cb=lambda user: user.target is m.tanh)
    new.replace_input_with(x, x)
    return [str(graph), str(changed), str(x.users), str(new.users)]


@program
def what_is_wrong_with_a_graph_is_told(m):
    def later(graph):
        x = graph.placeholder("x")
        graph.call_method("a", (x,)).append(x)

    def elsewhere(graph):
        graph.call_method("a", (m.fx.Graph().placeholder("x"),))

    def twice(graph):
        x = graph.placeholder("x")
        x.name = graph.call_method("a", (x,)).name

    found = []
    for spoil in (later, elsewhere, twice):
        graph = m.fx.Graph()
        spoil(graph)
        found.append(caught(graph.lint))
    graph = m.fx.Graph(m.nn.Module())
    found += [caught(lambda: graph.call_module("q")), caught(lambda: graph.create_node("nothing", "x")), caught(lambda: graph.call_function("f"))]
    found += [caught(lambda: m.fx.GraphModule({}, m.fx.Graph())), caught(lambda: m.fx.GraphModule(3, m.fx.Graph()))]
    graph = m.fx.Graph()
    graph.get_attr("w")
    found += [caught(lambda: m.fx.GraphModule({}, graph)), caught(lambda: m.fx.GraphModule(m.nn.Module(), graph))]
    args = m.fx.symbolic_trace(lambda x: m.cat([x], **{"dim": 0})).graph.find_nodes(op="call_function", target=m.cat)[0].args
    return [*found, caught(lambda: args[0].append(1)), type(args[0]).__name__, caught(lambda: args[0].__setitem__(0, 1))]


@program
def graphs_are_copied(m):
    traced = m.fx.symbolic_trace(layers(m))
    deep, shallow = copy.deepcopy(traced), copy.copy(traced)
    other = m.fx.Graph()
    known = {}
    result = other.graph_copy(traced.graph, known)
    other.output(result)
    x = m.ones(1, 2)
    shares = deep.first is traced.first, shallow.first is traced.first, shallow.graph is traced.graph, deep.graph is traced.graph
    return [deep.code == traced.code, type(deep).__name__, *shares, deep(x), shallow(x), str(other), str(copy.deepcopy(traced.graph)), len(known)]


@program
def submodules_come_and_go(m):
    traced = m.fx.symbolic_trace(layers(m))
    found = [traced.add_submodule("a.b.c", m.nn.Linear(1, 1)), repr(traced)]
    traced.delete_all_unused_submodules()
    found += [repr(traced), traced.delete_submodule("first"), traced.delete_submodule("nothing"), repr(traced)]
    return [*found, caught(lambda: setattr(traced, "graph", 3))]


@program
def generated_code_can_be_changed(m):
    def longer(current):
        return lambda body: ["x = x + 10\n", *body]

    traced = m.fx.symbolic_trace(lambda x: x * 2)
    with traced.graph.on_generate_code(longer):
        traced.recompile()
        within = traced.code, traced(m.ones(1))
    traced.recompile()

    class Listed(m.fx.graph.CodeGen):
        def gen_fn_def(self, free_vars, maybe_return_annotation):
            return f"def forward(self, args_list: List[torch.Tensor]){maybe_return_annotation}:\n    {', '.join(free_vars)}, = args_list"

        def additional_globals(self):
            return [("List", list)]

        def process_inputs(self, *inputs):
            return inputs[0]

    listed = m.fx.symbolic_trace(lambda x, y: x + y)
    listed.graph.set_codegen(Listed())
    listed.recompile()
    run = m.fx.Interpreter(listed).run([m.ones(1), m.ones(1)])
    return [*within, traced.code, traced(m.ones(1)), listed.code, listed([m.ones(1), m.ones(1)]), run]


@program
def what_can_be_read(m):
    class Two(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = m.fx.symbolic_trace(m.nn.Sequential(m.nn.Tanh()))
            self.layer = m.nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(self.inner(x))

    class Tracer(m.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, m.fx.GraphModule) or super().is_leaf_module(module, name)

    root = Two()
    traced = m.fx.GraphModule(root, Tracer().trace(root))
    return [traced.print_readable(print_output=False), traced.code, traced.graph.python_code("self", verbose=True).src]


@program
def derived_classes_are_kept(m):
    class Mine(m.fx.GraphModule):
        def __init__(self, power):
            graph = m.fx.Graph()
            super().__init__(self, graph)
            graph.output(graph.call_function(operator.pow, (graph.placeholder("x"), power)))
            self.power = power
            self.recompile()

    module = Mine(3)
    again = copy.deepcopy(module)
    return [module(m.tensor(2.0)), module.code, isinstance(again, Mine), again(m.tensor(2.0)), type(module).__mro__[1].__name__]


def test_pickles():
    traced = tj.fx.symbolic_trace(Traced())
    again = pickle.loads(pickle.dumps(traced))
    x = tj.ones(1, 2)
    assert again.code == traced.code and type(again).__name__ == "Traced" and str(again.graph) == str(traced.graph)
    assert again(x).tolist() == traced(x).tolist() and again.layer.weight is not traced.layer.weight
    assert [p.requires_grad for p in again.parameters()] == [True, True]
    assert pickle.loads(pickle.dumps(again)).code == traced.code


def test_saved_and_loaded(tmp_path):
    traced = tj.fx.symbolic_trace(Traced())
    tj.save(traced, tmp_path / "traced.pt")
    again = tj.load(tmp_path / "traced.pt", weights_only=False)
    assert again.code == traced.code and again(tj.ones(1, 2)).tolist() == traced(tj.ones(1, 2)).tolist()


def test_tracebacks_show_the_line_of_the_generated_code():
    traced = tj.fx.symbolic_trace(lambda x: tj.relu(x) @ x)
    with pytest.raises(RuntimeError) as raised:
        traced(tj.ones(2, 5))
    lines = [frame.line for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert "matmul = relu @ x;  relu = x = None" in lines


def test_sources_of_programs_that_are_gone_are_dropped():
    traced = tj.fx.symbolic_trace(lambda x: x + 1)
    name = type(traced).forward.__code__.co_filename
    assert name in linecache.cache
    traced.graph.output_node().args = (3,)
    traced.recompile()
    gc.collect()
    assert name not in linecache.cache


def test_a_module_trains_as_the_traced_one_does():
    """Enough steps that its calls, and the program of a step, are known."""

    def losses(traced):
        tj.manual_seed(0)
        module = layers(tj)
        model = tj.fx.symbolic_trace(module) if traced else module
        optimizer = tj.optim.Adam(model.parameters(), 0.05)
        x, y = tj.randn(8, 2), tj.randn(8, 2)
        found = []
        for _ in range(250):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    assert losses(True) == pytest.approx(losses(False), rel=1e-5)


def test_transforms_and_compile_take_graph_modules():
    traced = tj.fx.symbolic_trace(Traced())
    x = tj.randn(3, 2)
    parameters = dict(traced.named_parameters())
    expected = tj.func.grad(lambda p: tj.func.functional_call(Traced(), p, (x,)).sum())(parameters)
    found = tj.func.grad(lambda p: tj.func.functional_call(traced, p, (x,)).sum())(parameters)
    assert {k: v.tolist() for k, v in found.items()} == {k: v.tolist() for k, v in expected.items()}
    assert tj.func.vmap(traced)(x).tolist() == traced(x).tolist()
    assert tj.allclose(tj.compile(traced)(x), traced(x))
