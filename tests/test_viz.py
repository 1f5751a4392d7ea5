"""`torchgrad_jax.viz`: pictures of the graph show what is there, change nothing and keep nothing alive."""

import gc
import re
import weakref
from xml.etree import ElementTree

import pytest

import torchgrad_jax as torch
from torchgrad_jax import nn, viz
from torchgrad_jax.viz.layout import GAP, laid_out

pytestmark = pytest.mark.operators
SVG = "{http://www.w3.org/2000/svg}"


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def named(graph):
    return sorted(node.name for node in graph.nodes)


def node(graph, name):
    (found,) = [n for n in graph.nodes if n.name == name]
    return found


class TestWhatIsShown:
    def test_nodes_are_those_of_next_functions(self):
        x, y = leaf(3), leaf(3)
        out = (x * y + x.sin()).sum()
        graph = viz.graph(out)
        reached, waiting = [], [out.grad_fn]
        while waiting:
            one = waiting.pop()
            if one not in reached:
                reached.append(one)
                waiting += [n for n, _ in one.next_functions if n is not None]
        assert named(graph) == sorted(["output", *(n.name().rpartition("::")[2] for n in reached)])
        assert graph.total == len(reached)
        assert len(graph.edges) == 1 + sum(n is not None for one in reached for n, _ in one.next_functions)

    def test_shapes_and_dtypes(self):
        graph = viz.graph(leaf(2, 3).double().sum(0))
        assert node(graph, "SumBackward1").outputs == ["float64[3]"]
        assert node(graph, "AccumulateGrad").outputs == ["float32[2, 3]"]
        assert node(graph, "output").outputs == ["float64[3]"]

    def test_what_is_saved(self):
        x = leaf(2, 3)
        assert list(map(str, node(viz.graph(x.exp()), "ExpBackward0").saved)) == ["result float32[2, 3]"]
        assert list(map(str, node(viz.graph(x * 2), "MulBackward0").saved)) == ["other 2"]

    def test_what_was_freed(self):
        out = leaf(2).exp().sum()
        out.backward()
        assert [s.what for s in node(viz.graph(out), "ExpBackward0").saved] == ["freed"]

    def test_hooks_by_kind_and_name(self):
        def watch(*grads): ...

        class Counter:
            def __call__(self, *grads): ...

        x = leaf(2)
        x.register_hook(watch)
        x.register_post_accumulate_grad_hook(Counter())
        y = x.exp()
        y.register_hook(lambda g: None)
        y.retain_grad()
        y.grad_fn.register_hook(watch)
        y.grad_fn.register_prehook(watch)
        graph = viz.graph(y)
        assert node(graph, "ExpBackward0").hooks == ["tensor hook: <lambda>", "retain_grad", "pre-hook: watch", "post-hook: watch"]
        assert node(graph, "AccumulateGrad").hooks == ["tensor hook: watch", "post-accumulate hook: Counter"]

    def test_leaves_by_name(self):
        a, b = leaf(2), leaf(2)
        assert {"AccumulateGrad weight", "AccumulateGrad"} < set(named(viz.graph(a * b, params={"weight": a})))

    def test_which_output_an_edge_comes_from(self):
        a, b = leaf(4).split(2)
        graph = viz.graph(b * 2)
        split = node(graph, "SplitBackward0")
        assert split.outputs == ["float32[2]", "float32[2]"]
        assert [e.output for e in graph.edges if e.target == split.number] == [1]
        assert "output 1 of SplitBackward0" in graph.text()
        assert '[label="1"]' in graph.dot()

    def test_shared_nodes_are_drawn_once(self):
        x = leaf(2)
        y = x.sin()
        graph = viz.graph(y * y)
        assert named(graph) == ["AccumulateGrad", "MulBackward0", "SinBackward0", "output"]
        assert graph.text().count("SinBackward0") == 2 and graph.text().count("(above)") == 1

    def test_several_outputs(self):
        x = leaf(2)
        graph = viz.graph({"a": x.sin(), "b": [x.cos(), x]})
        assert {"output['a']", "output['b'][0]", "output['b'][1]"} < set(named(graph))

    def test_what_has_no_graph(self):
        graph = viz.graph(torch.ones(2))
        assert named(graph) == ["output"] and graph.total == 0
        for text in (graph.text(), graph.dot(), graph.svg()):
            assert "nothing here requires a gradient" in text

    def test_nodes_and_edges_may_be_asked_for(self):
        y = leaf(2).sin()
        assert named(viz.graph(y.grad_fn)) == named(viz.graph(torch.autograd.graph.get_gradient_edge(y))) == ["AccumulateGrad", "SinBackward0"]

    def test_graphs_of_views_and_writes(self):
        x = leaf(4)
        y = x * 1
        y[:2].mul_(3)
        assert "CopySlices" in named(viz.graph(y))

    def test_graphs_of_gradients(self):
        x = leaf(2)
        (g,) = torch.autograd.grad(x.exp().sum(), x, create_graph=True)
        graph = viz.graph(g)
        assert graph.total > 2 and "ExpBackward0" in named(graph)


class TestWhatIsCalled:
    def test_a_module_with_its_parameters_names(self):
        model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
        graph = viz.graph(model, torch.ones(5, 3))
        assert {"AccumulateGrad 0.weight", "AccumulateGrad 0.bias", "TanhBackward0"} < set(named(graph))

    def test_a_class_of_function(self):
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * 2

        graph = viz.graph(Double, leaf(3))
        assert list(map(str, node(graph, "DoubleBackward").saved)) == ["0 float32[3]"]

    def test_a_function_with_keywords(self):
        assert "MulBackward0" in named(viz.graph(lambda x, by: x * by, leaf(2), by=3))

    def test_a_function_without_a_graph(self):
        assert viz.graph(lambda: 3).total == 0


class TestLines:
    def test_are_known_where_they_were_asked_for(self):
        x = leaf(2)
        with viz.record_lines():
            y = x.sin()
        z = y.cos()
        graph = viz.graph(z)
        file, _, line = node(graph, "SinBackward0").line.rpartition(":")
        assert file == __file__ and int(line) > 1
        assert node(graph, "SinBackward0").function == "test_are_known_where_they_were_asked_for"
        assert node(graph, "CosBackward0").line == ""
        assert "[test_viz.py:" in graph.text() and "test_viz.py:" in graph.svg() and "test_viz.py:" in graph.dot()

    def test_of_what_is_called(self):
        def f(x):
            return x.sin().cos()

        graph = viz.graph(f, leaf(2), lines=True)
        assert {n.function for n in graph.nodes if n.kind == "operation"} == {"f"}

    def test_are_not_recorded_afterwards(self):
        with viz.record_lines():
            assert torch.is_anomaly_enabled() and not torch.is_anomaly_check_nan_enabled()
        assert not torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()
        assert node(viz.graph(leaf(2).sin()), "SinBackward0").line == ""

    def test_leave_anomaly_mode_as_it_is(self):
        with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
            with viz.record_lines():
                assert torch.is_anomaly_check_nan_enabled()
            assert torch.is_anomaly_enabled()

    def test_of_the_users_own_metadata_nothing_is_assumed(self):
        y = leaf(2).sin()
        y.grad_fn.metadata["traceback_"] = 3
        assert node(viz.graph(y), "SinBackward0").line == ""


class TestNothingIsChanged:
    def test_the_graph_runs_afterwards(self):
        x = leaf(3)
        y = x.exp()
        z = (y * y).sum()
        saved, nodes = y.grad_fn.saved, z.grad_fn.next_functions
        viz.graph(z).svg()
        assert y.grad_fn.saved is saved and z.grad_fn.next_functions == nodes and "_metadata" not in y.grad_fn.__dict__
        z.backward()
        assert torch.allclose(x.grad, 2 * torch.exp(x.detach()) ** 2)

    def test_hooks_on_saved_tensors_are_not_called(self):
        def unpack(packed):
            raise AssertionError

        def pack(t):
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = leaf(2).exp()
        graph = viz.graph(y)
        assert "packed by" in node(graph, "ExpBackward0").saved[0].what and "unpack" in graph.text()

    def test_nothing_is_kept_alive(self):
        x = leaf(2)
        y = x.sin()
        refs = [weakref.ref(x), weakref.ref(y), weakref.ref(y.grad_fn)]
        gc.disable()
        try:
            graph = viz.graph(y, params={"x": x})
            del x, y
            assert [ref() for ref in refs] == [None] * 3
        finally:
            gc.enable()
        assert graph.total == 2

    def test_later_changes_do_not_show(self):
        y = leaf(2).exp()
        graph = viz.graph(y)
        before = graph.text()
        y.sum().backward()
        assert graph.text() == before


class TestSVG:
    def test_is_xml_in_which_text_is_escaped(self):
        x = leaf(2)
        x.register_hook(lambda g: g)
        graph = viz.graph(x.sin(), params={'<&">\x00\ud800': x})
        root = ElementTree.fromstring(graph.svg())
        assert root.tag == f"{SVG}svg"
        texts = [t.text for t in root.iter(f"{SVG}text")]
        assert 'AccumulateGrad <&">??' in texts and any("<lambda>" in t for t in texts)

    def test_is_what_a_notebook_shows(self):
        graph = viz.graph(leaf(2))
        assert graph._repr_svg_() == graph.svg() and graph.svg().startswith("<svg ")
        assert str(graph) == graph.text() and repr(graph) == "<viz.Graph of 1 nodes>"

    def test_has_colours_for_light_and_for_dark_pages(self):
        style = ElementTree.fromstring(viz.graph(leaf(2)).svg()).find(f"{SVG}style").text
        assert "prefers-color-scheme: dark" in style and "data-jp-theme-light" in style
        light, dark = (re.search(rf"{start}.*?text.name {{ fill: (#\w+)", style, re.S)[1] for start in ("", "@media"))
        assert int(light[1:], 16) < 0x404040 and int(dark[1:], 16) > 0xC0C0C0

    def test_has_a_box_for_each_node_and_an_arrow_for_each_edge(self):
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
        graph = viz.graph(model, torch.ones(2, 3))
        root = ElementTree.fromstring(graph.svg())
        assert len(list(root.iter(f"{SVG}rect"))) == len(graph.nodes)
        assert len(list(root.iter(f"{SVG}path"))) == 2 * len(graph.edges)

    def test_boxes_do_not_overlap_and_stay_inside(self):
        x = leaf(2, 2)
        out = sum(((x @ x).sin() * x.cos()).relu().exp() for _ in range(6))
        root = ElementTree.fromstring(viz.graph(out).svg())
        width, height = float(root.get("width")), float(root.get("height"))
        boxes = [[float(r.get(k)) for k in ("x", "y", "width", "height")] for r in root.iter(f"{SVG}rect")]
        for i, (x, y, w, h) in enumerate(boxes):
            assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
            for x2, y2, w2, h2 in boxes[:i]:
                assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


class TestLayout:
    def test_edges_lead_downwards(self):
        edges = [(0, 1), (1, 2), (0, 2), (3, 2), (0, 4), (4, 2)]
        layout = laid_out([(50, 20)] * 5, edges)
        for (a, b), route in zip(edges, layout.routes, strict=True):
            assert layout.boxes[a].rank < layout.boxes[b].rank
            assert all(p[1] < q[1] or p == q for p, q in zip(route, route[1:], strict=False))
        assert layout.boxes[3].rank == layout.boxes[2].rank - 1  # as near as possible to what it leads to

    def test_crossings_are_avoided(self):
        # 0 -> 3, 1 -> 2: as given they would cross.
        boxes = laid_out([(40, 20)] * 4, [(0, 3), (1, 2)]).boxes
        assert (boxes[0].x < boxes[1].x) == (boxes[3].x < boxes[2].x)

    def test_boxes_of_a_rank_keep_apart(self):
        boxes = laid_out([(40, 20)] * 6, [(0, i) for i in range(1, 6)]).boxes[1:]
        places = sorted(box.x for box in boxes)
        assert all(b - a >= 40 + GAP - 1e-6 for a, b in zip(places, places[1:], strict=False))

    def test_nothing_and_one_box(self):
        assert laid_out([], []).boxes == []
        assert laid_out([(10, 10)], []).width > 10

    def test_edges_between_the_same_boxes_are_told_apart(self):
        first, second = laid_out([(40, 20)] * 2, [(0, 1), (0, 1)]).routes
        assert first != second


class TestLargeGraphs:
    def test_are_folded_with_a_note(self):
        y = leaf(2)
        for _ in range(500):
            y = y.sin()
        graph = viz.graph(y, max_nodes=50)
        assert graph.total == 501 and len(graph.nodes) == 52
        assert node(graph, "451 more nodes").kind == "folded"
        for text in (graph.text(), graph.dot(), graph.svg()):
            assert "50 of 501 nodes are shown" in text

    def test_of_any_depth_are_read(self):
        y = leaf(2)
        for _ in range(20_000):
            y = y.neg()
        assert viz.graph(y).total == 20_001

    def test_of_some_hundred_nodes_are_drawn(self):
        xs = [leaf(2) for _ in range(60)]
        ys = [sum(x * xs[(i + j) % 60] for j, x in enumerate(xs[:4])) for i in range(20)]
        graph = viz.graph(sum(ys), max_nodes=1000)
        assert graph.total > 150
        ElementTree.fromstring(graph.svg())


class TestFiles:
    @pytest.mark.parametrize(("suffix", "begins"), [(".svg", "<svg"), (".dot", "digraph"), (".gv", "digraph"), (".txt", "output")])
    def test_by_their_suffix(self, tmp_path, suffix, begins):
        path = tmp_path / f"graph{suffix}"
        viz.graph(leaf(2)).save(path)
        assert path.read_text(encoding="utf-8").startswith(begins)

    def test_of_other_kinds(self, tmp_path):
        with pytest.raises(ValueError, match="saved as .svg, .dot, .gv, .txt, not as .png"):
            viz.graph(leaf(2)).save(tmp_path / "graph.png")

    def test_in_graphviz_text_names_are_quoted(self):
        x = leaf(2)
        text = viz.graph(x.sin(), params={'a"b\\c\n': x}).dot()
        assert r"AccumulateGrad a\"b\\c" in text and text.count("{") == text.count("}") == 1


class TestTransforms:
    def test_inside_of_vmap_and_grad(self):
        seen = []

        def f(x):
            y = (x * x).sum()
            seen.append(viz.graph(y))
            return y

        torch.func.grad(f)(torch.ones(3))
        torch.func.vmap(f)(leaf(2, 3))
        assert all("MulBackward0" in named(graph) or graph.total == 0 for graph in seen)
        assert seen[1].nodes[0].outputs == ["float32[]"]  # as the function sees it

    def test_inside_of_jit_nothing_is_asked_of_values(self):
        seen = []

        def f(x):
            y = x.exp()
            seen.append(viz.graph(y))
            return y

        torch.compile(f)(leaf(2))
        assert "float32[2]" in seen[0].text()


class TestErrors:
    def test_arguments_of_what_is_not_called(self):
        with pytest.raises(TypeError, match="only what is called takes arguments, and Tensor is not"):
            viz.graph(leaf(2), leaf(2))

    def test_lines_of_what_is_there_already(self):
        with pytest.raises(ValueError, match="record_lines"):
            viz.graph(leaf(2), lines=True)

    def test_of_something_else(self):
        with pytest.raises(TypeError, match="not of int"):
            viz.graph(3)

    def test_of_too_few_nodes(self):
        with pytest.raises(ValueError, match="at least 1"):
            viz.graph(leaf(2), max_nodes=0)

    def test_names_of_what_is_no_tensor(self):
        with pytest.raises(TypeError, match=r"params\['a'\] must be a Tensor, not int"):
            viz.graph(leaf(2), params={"a": 1})
