"""`torch.utils._pytree`: the same programs with PyTorch's and ours. The containers that both know are Python's own."""

import dataclasses
import time
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest
from side_by_side import error_of, tj, torch

from torchgrad_jax.utils import _pytree as ours

pytestmark = pytest.mark.operators

theirs = pytest.importorskip("torch.utils._pytree")
Pair = namedtuple("Pair", "x y")


class Triple(Pair):
    """A class of its own."""


class Kept(dict):
    """A subclass of dict: a leaf."""


TREES = {
    "leaf": 1, "none": None, "list": [1, [2, None]], "tuple": (1, (2, ())), "dict": {"b": 1, "a": {"c": [2, 3]}}, "ordered": OrderedDict(b=1, a=[2]),
    "default": defaultdict(list, {"b": 1, "a": (2,)}), "deque": deque([1, [2]], maxlen=5), "named": Pair(1, (2, 3)), "named subclass": Triple(1, 2),
    "subclass": Kept(a=1), "set": {1}, "text": "ab", "time": time.gmtime(0), "keys": {2: 1, 1: 2, "a": 3}, "empty": [{}, [], ()],
    "deep": [[1, [2, (3,)]], {"x": [4, (5, {"y": 6})]}],
}  # fmt: skip


def told(p, tree):
    leaves, spec = p.tree_flatten(tree)
    same = p.tree_structure(tree)
    return [
        leaves, str(spec), p.treespec_pprint(spec), spec.num_leaves, spec.num_nodes, spec.num_children, spec.is_leaf(), p.tree_leaves(tree),
        list(p.tree_iter(tree)), p.tree_unflatten(leaves, spec), type(p.tree_unflatten(leaves, spec)), p.tree_is_leaf(tree), spec == same,
        hash(spec) == hash(same), p.tree_map(lambda x: [x], tree), [p.keystr(path) for path, _ in p.tree_leaves_with_path(tree)],
        p.tree_map_with_path(lambda path, x: (p.keystr(path), x), tree), p.tree_map_only(int, lambda x: x + 1, tree), p.tree_all(bool, tree),
        p.tree_any(bool, tree), p.arg_tree_leaves(tree, k=tree), [p.key_get(tree, path) for path, _ in p.tree_leaves_with_path(tree)],
        error_of(lambda: p.treespec_dumps(spec)), None if error_of(lambda: p.treespec_dumps(spec)) else p.treespec_dumps(spec),
    ]  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_trees_are_taken_apart_and_put_together_like_pytorch(name):
    assert told(ours, TREES[name]) == told(theirs, TREES[name])


@pytest.mark.parametrize("first", TREES)
def test_structures_are_equal_where_pytorch_says_so(first):
    for second in TREES:
        equal = [p.tree_structure(TREES[first]) == p.tree_structure(TREES[second]) for p in (ours, theirs)]
        assert equal[0] == equal[1], second


SPEC = [1, (2, {"a": 3, "b": 4})]
OTHERS = [
    [[1], ([2], {"b": 5, "a": 6})], [1, (2, OrderedDict(b=5, a=6))], [1], (1, (2, 3)), 1, [1, [2, {}]], [1, (2, {"a": 3})], [1, (2, {"a": 3, "c":
    4})], [1, (2, 3)],
]  # fmt: skip


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_trees_beside_others_like_pytorch(other):
    def found(p):
        spec = p.tree_structure(SPEC)
        failed = error_of(lambda: spec.flatten_up_to(other))
        return [failed, None if failed else spec.flatten_up_to(other), error_of(lambda: p.tree_map(lambda a, b: (a, b), SPEC, other))]

    assert found(ours) == found(theirs)


@pytest.mark.parametrize(
    "tree", [0, [0, 1], [0, (1, 2)], [0, (1, {"a": 2, "b": 3})], (0, 1), [0], [0, (1, {"a": 2})], [None, 0], [0, [1, 2]]], ids=str
)
def test_prefixes_are_spread_over_a_structure_like_pytorch(tree):
    assert ours._broadcast_to_and_flatten(tree, ours.tree_structure(SPEC)) == theirs._broadcast_to_and_flatten(tree, theirs.tree_structure(SPEC))


def test_values_of_a_prefix_that_is_a_dict_go_to_their_keys():
    """In whatever order it has them."""
    spec = ours.tree_structure({"a": 1, "b": [2, 3]})
    assert ours._broadcast_to_and_flatten(OrderedDict(b=20, a=10), spec) == [10, 20, 20]


CALLS = {
    "too few leaves": lambda p: p.tree_unflatten([1], p.tree_structure([1, 2])),
    "too many leaves": lambda p: p.tree_unflatten([1, 2, 3], p.tree_structure([1, 2])),
    "no structure": lambda p: p.tree_unflatten([1], 3),
    "leaves from an iterator": lambda p: p.tree_unflatten(iter([1, 2]), p.tree_structure((1, 2))),
    "other leaves": lambda p: p.tree_flatten([1, (2, 3), [4]], is_leaf=lambda x: isinstance(x, tuple))[0],
    "several trees": lambda p: p.tree_map(lambda a, b, c: a + b + c, [1, (2,)], [10, (20,)], [100, (200,)]),
    "types": lambda p: p.tree_map_only((int, float), lambda x: x + 1, [1, 2.0, "a"]),
    "a union": lambda p: p.tree_map_only(int | float, lambda x: x + 1, [1, 2.0, "a"]),
    "a predicate": lambda p: p.tree_map_only(lambda x: x == 1, lambda x: x + 1, [1, 2.0, "a"]),
    "no type": lambda p: p.tree_map_only(3, lambda x: x, [1]),
    "all and any of a type": lambda p: (p.tree_all_only(int, bool, [1, ""]), p.tree_any_only(int, bool, [0, "a"])),
    "mapped in place": lambda p: (lambda tree: p.tree_map_(lambda x: None, tree) is tree)([1, 2]),
    "structures of structures": lambda p: str([p.treespec_dict(a=p.treespec_leaf()), p.treespec_tuple([p.treespec_leaf()] * 2), p.treespec_tuple()]),
    "a tuple of no structures": lambda p: p.treespec_tuple([1]),
    "a dict of no structures": lambda p: p.treespec_dict(a=1),
    "children": lambda p: str([p.tree_structure([1, (2,)]).children(), p.tree_structure([1, (2,)]).child(1)]),
    "keys": lambda p: (p.keystr((p.SequenceKey(1), p.MappingKey("a"), p.GetAttrKey("b"))), repr(p.SequenceKey(1)), repr(p.MappingKey("a"))),
    "read again": lambda p: str(p.treespec_loads(p.treespec_dumps(p.tree_structure([1, {"a": (2, defaultdict(list, b=3))}, deque([4])])))),
    "an unknown protocol": lambda p: p.treespec_dumps(p.tree_structure(1), protocol=5),
    "read with an unknown protocol": lambda p: p.treespec_loads("[9, {}]"),
    "an unknown type": lambda p: p.treespec_loads('[1, {"type": "zz", "context": "null", "children_spec": []}]'),
    "kinds of tuples": lambda p: [
        (p.is_namedtuple(t), p.is_namedtuple_instance(t), p.is_namedtuple_class(t), p.is_structseq(t), p.is_structseq_instance(t),
        p.is_structseq_class(t)) for t in (Pair(1, 2), Pair, Triple, (1,), tuple, time.gmtime(0), type(time.gmtime(0)), 3)
    ],
    "registered twice": lambda p: p.register_pytree_node(list, None, None),
    "half a serialization": lambda p: p.register_pytree_node(Kept, None, None, to_dumpable_context=str),
    "removed and not there": lambda p: p._deregister_pytree_node(Kept),
    "no dataclass": lambda p: p.register_dataclass(int),
    "no equality": lambda p: p.register_constant(type("Plain", (), {})),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_like_pytorch(name):
    def outcome(p):
        found = []
        failed = error_of(lambda: found.append(CALLS[name](p)))
        return found, failed

    assert outcome(ours) == outcome(theirs)


@pytest.fixture
def registered():
    """Registers with both, and takes it back afterwards."""
    classes = []

    def register(cls, register_in):
        classes.append(cls)
        for p in (ours, theirs):
            register_in(p)

    yield register
    for cls in classes:
        for p in (ours, theirs):
            p._deregister_pytree_node(cls)


def test_containers_of_the_user_like_pytorch(registered):
    class Box:
        def __init__(self, content, label):
            self.content, self.label = content, label

        def __eq__(self, other):
            return isinstance(other, Box) and (self.content, self.label) == (other.content, other.label)

        def __repr__(self):
            return f"Box({self.content}, {self.label})"

    def register(p):
        p.register_pytree_node(
            Box, lambda b: ([b.content], b.label), lambda parts, label: Box(*parts, label), serialized_type_name="Box",
            flatten_with_keys_fn=lambda b: ([(p.GetAttrKey("content"), b.content)], b.label),
        )  # fmt: skip

    registered(Box, register)
    tree = [Box({"a": 1}, "first"), Box(2, "second")]
    assert told(ours, tree) == told(theirs, tree)
    for p in (ours, theirs):
        assert p.tree_structure(Box(1, "first")) != p.tree_structure(Box(1, "second"))
    up_to = [error_of(lambda p=p: p.tree_structure(Box(1, "a")).flatten_up_to(Box(1, "b"))) for p in (ours, theirs)]
    assert up_to[0] == up_to[1]


def test_dataclasses_and_constants_like_pytorch(registered):
    @dataclasses.dataclass
    class Data:
        a: int
        b: object = None
        c: int = 5

    @dataclasses.dataclass(frozen=True)
    class Fixed:
        a: int

    registered(Data, lambda p: p.register_dataclass(Data, drop_field_names=["c"], field_names=["a", "b"], serialized_type_name="Data"))
    registered(Fixed, lambda p: p.register_constant(Fixed))
    for tree in (Data(1, [2], 3), Data(1, None, 3)):
        found = [
            (*map(str, p.tree_flatten(tree)), p.tree_map(lambda x: x + 1, tree), p.treespec_dumps(p.tree_structure(tree))) for p in (ours, theirs)
        ]
        assert found[0] == found[1]
    found = [
        (*map(str, p.tree_flatten([Fixed(1), 2])), p.is_constant_class(Fixed), p.tree_structure(Fixed(1)) == p.tree_structure(Fixed(2)))
        for p in (ours, theirs)
    ]
    assert found[0] == found[1]


def test_sizes_and_named_results_are_containers():
    for m, p in ((tj, ours), (torch, theirs)):
        assert p.tree_flatten(m.Size([1, 2]))[0] == [1, 2] and type(p.tree_map(str, m.Size([1, 2]))) is tuple
        found = m.max(m.ones(2, 2), 0)
        assert type(p.tree_map(lambda t: t + 1, found)) is type(found) and str(p.tree_structure(found)) == "TreeSpec(max, None, [*,\n  *])"


OWN_FUNCTIONS = {
    "list": [1, 2], "tuple": (1, 2), "dict": {"b": 1, "a": 2}, "namedtuple": Pair(1, 2), "ordereddict": OrderedDict(b=1, a=2),
    "defaultdict": defaultdict(list, {"b": 1}), "deque": deque([1, 2], maxlen=3),
}  # fmt: skip


@pytest.mark.parametrize("kind", OWN_FUNCTIONS)
def test_the_functions_for_pythons_containers_have_pytorchs_names(kind):
    """Programs register classes of their own with them, by their private names."""
    tree = OWN_FUNCTIONS[kind]

    def taken_apart(p):
        flatten, unflatten, with_keys = (getattr(p, f"_{kind}_{what}") for what in ("flatten", "unflatten", "flatten_with_keys"))
        children, context = flatten(tree)
        keyed, again = with_keys(tree)
        return children, context, unflatten(children, context), type(unflatten(children, context)), [(str(k), v) for k, v in keyed], again

    assert taken_apart(ours) == taken_apart(theirs)
