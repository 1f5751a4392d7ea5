"""`torch.fx`: graphs and the Python that they are written as have PyTorch's text, letter by letter, and modules of them compute the same."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
import operator

from side_by_side import caught, programs

program, test_like_pytorch = programs()


class Colour(enum.Enum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Record:
    a: object
    b: object


def text(m, function, **options):
    """What is recorded of a function, as text; or what is raised."""
    return caught(lambda: (lambda g: [str(g.graph), g.code, str(g)])(m.fx.symbolic_trace(function, **options)))


def network(m):
    class Block(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = m.nn.Linear(4, 4)
            self.scale = m.nn.Parameter(m.ones(4) * 1.5)
            self.register_buffer("shift", m.arange(4.0))

        def forward(self, x, *, power=2):
            return m.nn.functional.relu(self.layer(x) * self.scale + self.shift) ** power

    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.Sequential(m.nn.Tanh(), m.nn.Dropout(0.0)))
            self.blocks = m.nn.ModuleList([Block(), Block()])
            self.named = m.nn.ModuleDict({"last": m.nn.Linear(4, 2, bias=False)})
            self.constant = m.tensor([1.0, 2.0])

        def forward(self, input: m.Tensor, weight: float = 0.5) -> m.Tensor:
            x = self.head(input)
            for block in self.blocks:
                x = x + block(x, power=3)
            a, b = x.chunk(2, dim=-1)
            return {"sum": (self.named["last"](x) + self.constant, [a * weight]), "norm": (b - m.ones(2)).norm(dim=1), "rows": x.shape[0]}

    m.manual_seed(0)
    return Net()


@program
def modules_are_traced_through_and_layers_are_nodes(m):
    net = network(m)
    traced = m.fx.symbolic_trace(net)
    x = m.linspace(-1, 1, 15).reshape(5, 3)
    found = []
    for one in (traced, net):  # the same parameters: the second gradient is added
        out = one(x, 0.25)
        (out["sum"][0].sum() + out["norm"].sum()).backward()
        found += [out["sum"][0], out["sum"][1][0], out["norm"], int(out["rows"]), [p.grad for p in net.parameters()]]
    names = [name for name, _ in traced.named_parameters()], list(traced.state_dict())
    return [str(traced.graph), traced.code, str(traced), repr(traced), found, names, traced.training, type(traced).__name__]


@program
def what_nodes_know(m):
    graph = m.fx.symbolic_trace(network(m)).graph
    stacks = [list(n.meta.get("nn_module_stack", {})) for n in graph.nodes]
    linked = [[n.name, n.op, list(map(str, n.users)), list(map(str, n.all_input_nodes)), str(n.prev), str(n.next)] for n in graph.nodes]
    return [stacks, linked, [n.format_node() for n in graph.nodes], str(graph.output_node()), len(graph.nodes)]


@program
def operators_and_functions(m):
    def every(x, y):
        a = -x + y * 2 - 1 / x
        b = (x // 2) % y @ y
        c = [a == b, a != b, a < b, a <= b, a > b, a >= b, ~(a > b) & (a < b) | (a > 1) ^ (b > 1), x << 1, 1 >> x, 2**x, +x, abs(x)]
        d = 3 - x, 3 // x, 3 % x, [1] + x, operator.add(x, y), operator.iadd(x, 1), math.sqrt(x)
        return c, d, x.foo.bar(1), x.T, x(1, k=2), x.shape[0], x.is_cuda

    return text(m, every)


@program
def functions_of_torch(m):
    F = m.nn.functional

    def every(x, w):
        yield m.add(x, 1, alpha=2)
        yield m.cat([x, w], dim=0)
        yield m.stack((x, w))
        yield m.einsum("ij,jk->ik", x, w)
        yield m.einsum("ij,jk->ik", [x, w])
        yield m.split(x, 2)
        yield m.norm(x)
        yield m.max(x, 1)
        yield m.where(x > 0, x, 0.0)
        yield m.softmax(x, -1)
        yield F.softmax(x, dim=-1)
        yield F.relu(x)
        yield F.linear(x, w)
        yield F.gelu(x, approximate="tanh")
        yield F.conv2d(x, w, stride=2)
        yield m.conv2d(x, w)
        yield F.layer_norm(x, (3,))
        yield F.dropout(x, 0.1, training=False)
        yield F.scaled_dot_product_attention(x, w, w)
        yield F.logsigmoid(x)
        yield F.prelu(x, w)
        yield m.linalg.norm(x)
        yield m.special.expit(x)
        yield m.fft.fft(x)
        yield m.zeros(3, x.shape[0], device=x.device)
        yield m.zeros((x.shape[0], 3))
        yield m.arange(x.size(0))
        yield m.full((2, 3), x)
        yield m.eye(x)
        yield m.tensor([1.0], device=x.device)
        yield m.ones_like(x)
        yield m.sym_int(x.shape[0])
        yield m._assert(x.shape[0] == 1, "one")
        yield x.to(m.float64).view(-1).sum(dim=[0], keepdim=True)

    return text(m, lambda x, w: list(every(x, w)))


@program
def tensors_beside_proxies_are_constants(m):
    one = m.ones(2)
    sides = [
        lambda x: one + x, lambda x: one - x, lambda x: one * x, lambda x: one / x, lambda x: one @ x, lambda x: one**x, lambda x: one % x,
        lambda x: one // x, lambda x: one == x, lambda x: one != x, lambda x: one < x, lambda x: one & x, lambda x: one << x, lambda x: x - one,
        lambda x: one[x], lambda x: one.add(x), lambda x: m.add(x, one) + one, lambda x: m.nn.functional.linear(x, one), lambda x: one.sum(x),
    ]  # fmt: skip
    traced = [m.fx.symbolic_trace(side) for side in sides]
    return [[str(g.graph) for g in traced], [g(m.tensor([2.0, 3.0])) for g in traced[:7]], list(traced[0].state_dict())]


@program
def containers_and_constants(m):
    def every(x):
        made = Pair(x, 2), Record(1, x), {"a": x, 3: [x, (x,)]}, slice(x, None, 2), range(3), ..., None, True, 1j, 1e-5, math.inf, -math.inf
        kinds = m.float32, m.device("cpu"), m.contiguous_format, m.strided, m.Size([1, 2]), Colour.RED, "a'b"
        return x[x:2, ::x], x[None, ...], x[0], made, kinds

    return text(m, every)


@program
def unpacking(m):
    def two(x):
        a, b = x.split(2)
        (c, d), e = x
        return a, b, c, d, e

    def rest(x):
        a, *b = x
        return a

    return [text(m, two), text(m, rest)]


@program
def what_cannot_be_recorded(m):
    def item(x):
        x[0] = 1

    def delete(x):
        del x[0]

    def layer(x):
        return m.nn.Linear(2, 2)(x)

    refused = [
        item, delete, layer, lambda x: x if x > 0 else 1, lambda x: [y for y in x], lambda x: len(x), lambda x: dict(**x), lambda x: m.cat(*x),
        lambda x: x in [1], lambda x: range(x), lambda x: int(x), lambda x: x + {x: 1}, lambda x: x + {1, 2}, lambda x: x + b"a", lambda x: not x,
        lambda x: x + layer, lambda x: round(x), len, Colour,
    ]  # fmt: skip
    return [text(m, function) for function in refused]


@program
def arguments_of_every_kind(m):
    def typed(x: m.Tensor, y: int = 3, *rest, flag: bool = True, **more) -> m.Tensor:
        return x + y + rest[0] + more["a"]

    def only(x, *, k=2, n: int = 1):
        return x * k

    traced = m.fx.symbolic_trace(only)
    return [text(m, typed), text(m, only), traced(m.ones(1), k=3), text(m, lambda: 1), text(m, lambda x, /, y: y)]


@program
def an_attribute_is_fetched_when_it_is_used(m):
    def program(x):
        shape = x.shape
        y = x + 1
        x.dtype  # noqa: B018 - nobody uses it
        return y.view(shape[0], shape[1])

    return text(m, program)


@program
def names(m):
    graph = m.fx.Graph()
    x = graph.placeholder("x")
    wanted = "Foo FooBar foo.bar 0 0 0.1 __add__ _x sum torch device inf self class a-b x x_1 x foo_1 foo seq.0 my[1] getattr list nan is _ __ a__b NoneType add_1 add_1 math input dtype conv2D HTTPServer"  # noqa: E501
    found = [graph.call_method(name, (x,)).name for name in wanted.split()]
    given = [graph.call_function(operator.add, (x, 1), name=name).name for name in ("Foo", "__add__", "sum", "x")]
    targets = [operator.getitem, getattr, sum, m.Size, m.nn.functional.relu, math.sin, Pair, m.nn.Linear, m.Tensor.relu, m.ops.aten.add, Colour]
    called = [graph.call_function(target, (x,)) for target in targets]
    return [found, given, [[n.name, n.format_node()] for n in called]]


@program
def targets_are_the_functions_themselves(m):
    def program(x):
        return m.add(x, 1), m.nn.functional.conv2d(x, x), m.relu(x), x + 1, x.relu(), m.nn.functional.relu(x), m.zeros(x)

    add, conv, relu, plus, method, functional, zeros = list(m.fx.symbolic_trace(program).graph.nodes)[1:-1]
    F = m.nn.functional
    return [
        add.target is m.add, conv.target is F.conv2d, conv.target is m.conv2d, relu.target is m.relu, plus.target is operator.add, method.target,
        functional.target is F.relu, zeros.target is m.zeros,
    ]  # fmt: skip


@program
def layers_whose_types_are_written_as_text(m):
    """Those of the library: their graphs have PyTorch's types."""
    return [text(m, m.nn.Sequential(m.nn.Linear(2, 2))), text(m, m.nn.Linear(2, 2)), text(m, m.nn.ReLU())]
