"""Nested containers taken apart into leaves and a structure, by PyTorch's rules: None is a leaf, dicts keep their order, subclasses of list and
dict are leaves. What `torch.utils._pytree` and `torch.func` stand on."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torchgrad_jax.calling.return_types import ReturnType
from torchgrad_jax.core.tensor import Size

IsLeaf = Callable[[Any], bool]


class NodeDef(NamedTuple):
    """A kind of container: how it is taken apart into children and a context, and made again of them.

    flatten_with_keys_fn: the same with the key of each child; None where nobody said.
    """

    type: Any
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None


# By type; namedtuples all stand under `namedtuple`, their class is the context.
SUPPORTED_NODES: dict[Any, NodeDef] = {}
STANDARD_DICT_TYPES = frozenset({dict, OrderedDict, defaultdict})
BUILTIN_TYPES = frozenset({tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque})


def is_namedtuple_class(cls: Any) -> bool:
    """Whether it is a class that `collections.namedtuple` made, or a subclass of one."""
    if not (isinstance(cls, type) and issubclass(cls, tuple)):
        return False
    fields = getattr(cls, "_fields", None)
    return (
        isinstance(fields, tuple) and all(isinstance(f, str) for f in fields) and all(callable(getattr(cls, n, None)) for n in ("_make", "_asdict"))
    )


def node_type(tree: Any) -> Any:
    """The type under which the registry knows `tree`; its own type where it is a leaf."""
    kind = type(tree)
    if kind not in SUPPORTED_NODES:
        if isinstance(tree, ReturnType):
            SUPPORTED_NODES[kind] = NodeDef(kind, SUPPORTED_NODES[tuple].flatten_fn, lambda values, _: kind(values), SUPPORTED_NODES[tuple][3])
        elif is_namedtuple_class(kind):
            return namedtuple
    return kind


class TreeSpec:
    """The structure of a tree: the type of its root, a context (keys of a dict, class of a namedtuple, ...) and the structures of the children."""

    __slots__ = ("type", "_context", "_children", "num_nodes", "num_leaves", "num_children")
    type: Any
    num_nodes: int
    num_leaves: int
    num_children: int

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        nodes, leaves = 1, 1 if type is None else 0
        for child in children_specs:
            nodes += child.num_nodes
            leaves += child.num_leaves
        fill = object.__setattr__
        fill(self, "type", type)
        fill(self, "_context", context)
        fill(self, "_children", list(children_specs))
        fill(self, "num_nodes", nodes)
        fill(self, "num_leaves", leaves)
        fill(self, "num_children", len(children_specs))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    @property
    def context(self) -> Any:
        """What beside the children is needed to make the container again."""
        return self._context

    @property
    def children_specs(self) -> list[TreeSpec]:
        """The structures of the children."""
        return self._children

    def children(self) -> list[TreeSpec]:
        """The structures of the children, as a new list."""
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        """The structure of one child. IndexError where there is none."""
        return self._children[index]

    def is_leaf(self) -> bool:
        """Whether the tree is a single leaf."""
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree of this structure with the given leaves. ValueError where there are more or fewer of them."""
        if not isinstance(leaves, (list, tuple)):
            leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree that holds {self.num_leaves} items "
                f"({self})."
            )
        return _build(self, iter(leaves))

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """What `tree` has in the places of the leaves of this structure, trees maybe. ValueError where its structure is another above them."""
        found: list[Any] = []
        _collect(self, tree, found)
        return found

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (
            self.type is other.type
            and self.num_nodes == other.num_nodes
            and self.num_leaves == other.num_leaves
            and self._context == other._context
            and self._children == other._children
        )

    def __hash__(self) -> int:
        # Contexts are lists, for dicts.
        return hash((self.type, self.num_nodes, tuple(self._children)))

    def __repr__(self, indent: int = 2) -> str:
        if self.type is None:
            return "*"
        children = f",\n{' ' * indent}".join([child.__repr__(indent + 2) for child in self._children])
        return f"TreeSpec({self.type.__name__}, {self._context}, [{children}])"

    def __reduce__(self) -> Any:
        return (LeafSpec, ()) if self.type is None else (TreeSpec, (self.type, self._context, self._children))


class LeafSpec(TreeSpec):
    """The structure of a single leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, [])


LEAF = LeafSpec()


def _build(spec: TreeSpec, leaves: Any) -> Any:
    kind = spec.type
    if kind is None:
        return next(leaves)
    return SUPPORTED_NODES[kind].unflatten_fn([_build(child, leaves) for child in spec._children], spec._context)


def _collect(spec: TreeSpec, tree: Any, found: list[Any]) -> None:
    if spec.type is None:
        found.append(tree)
        return
    for part, child in zip(_children_up_to(spec, tree), spec._children, strict=True):
        _collect(child, part, found)


def _children_up_to(spec: TreeSpec, tree: Any) -> list[Any]:
    """The children of a container that should be like `spec`; those of a dict in the order of its keys there. ValueError where it is another."""
    kind = node_type(tree)
    either = kind in STANDARD_DICT_TYPES and spec.type in STANDARD_DICT_TYPES
    if kind is not spec.type and not either:
        raise ValueError(f"Node type mismatch; expected {spec.type!r}, but got {type(tree)!r}.")
    parts, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    children = list(parts)
    if len(children) != spec.num_children:
        raise ValueError(f"Node arity mismatch; expected {spec.num_children}, but got {len(children)}.")
    if either:
        expected, got = set(keys_of(spec)), set(tree)
        if expected != got:
            raise ValueError(f"Node keys mismatch; missing key(s): {expected - got}; extra key(s): {got - expected}.")
        return [tree[key] for key in keys_of(spec)]
    if context != spec._context and kind is not deque:
        if kind in BUILTIN_TYPES:
            raise ValueError(f"Node context mismatch for node type {kind!r}; expected {spec._context!r}, but got {context!r}.")
        raise ValueError(f"Node context mismatch for custom node type {kind!r}.")
    return children


def keys_of(spec: TreeSpec) -> list[Any]:
    """The keys of the structure of a dict, in their order."""
    return spec._context[1] if spec.type is defaultdict else spec._context


# ---------------------------------------------------------------------- trees


def tree_flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree from left to right, and its structure. is_leaf: asked of each part first; where it says True the part is a leaf."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def _flatten(tree: Any, leaves: list[Any], is_leaf: IsLeaf | None) -> TreeSpec:
    kind = type(tree)
    node = SUPPORTED_NODES.get(kind)
    if node is None:
        kind = node_type(tree)
        node = SUPPORTED_NODES.get(kind)
    if node is None or (is_leaf is not None and is_leaf(tree)):
        leaves.append(tree)
        return LEAF
    children, context = node.flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(child, leaves, is_leaf) for child in children])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of a structure with the given leaves. TypeError where it is no structure, ValueError where the leaves are too many or too few."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of a tree from left to right."""
    leaves: list[Any] = []
    _flatten(tree, leaves, is_leaf)
    return leaves


def tree_structure(tree: Any, is_leaf: IsLeaf | None = None) -> TreeSpec:
    """The structure of a tree."""
    return _flatten(tree, [], is_leaf)


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None) -> Any:
    """A tree with ``func(leaf, *parts)`` for each leaf, `parts` being what `rests` have in that place. ValueError where they differ above it."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return spec.unflatten([func(*parts) for parts in zip(leaves, *others, strict=True)])


class _Star:
    def __repr__(self) -> str:
        return "*"


def treespec_pprint(treespec: TreeSpec) -> str:
    """The structure as its tree would be written, with ``*`` for each leaf. TypeError where it is none."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")
    return repr(treespec.unflatten([_Star()] * treespec.num_leaves))


def broadcast(tree: Any, spec: TreeSpec, is_leaf: IsLeaf | None = None) -> list[Any] | None:
    """For each leaf of `spec` the leaf of `tree` that stands in its place or above it; None where `tree` fits no prefix of the structure."""
    found: list[Any] = []
    return found if _broadcast(tree, spec, is_leaf, found) else None


def _broadcast(tree: Any, spec: TreeSpec, is_leaf: IsLeaf | None, found: list[Any]) -> bool:
    kind = node_type(tree)
    if kind not in SUPPORTED_NODES or (is_leaf is not None and is_leaf(tree)):
        found.extend([tree] * spec.num_leaves)
        return True
    if spec.type is None:
        return False
    if kind in STANDARD_DICT_TYPES and spec.type in STANDARD_DICT_TYPES:
        if set(tree) != set(keys_of(spec)):
            return False
        children: list[Any] = [tree[key] for key in keys_of(spec)]
    else:
        parts, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        children = list(parts)
        if kind is not spec.type or (context != spec._context and kind is not deque):
            return False
    return len(children) == spec.num_children and all(
        [_broadcast(part, child, is_leaf, found) for part, child in zip(children, spec._children, strict=True)]
    )


# ---------------------------------------------------------------------- keys of what is in a container


class SequenceKey(NamedTuple):
    """The place of a child in a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The child in this place."""
        return sequence[self.idx]


class MappingKey(NamedTuple):
    """The key of a child in a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The child under this key."""
        return mapping[self.key]


class GetAttrKey(NamedTuple):
    """The name of a child that is an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The child of this name."""
        return getattr(obj, self.name)


def _sequence_keys(values: Any) -> list[tuple[Any, Any]]:
    return [(SequenceKey(i), value) for i, value in enumerate(values)]


def _mapping_keys(values: Any) -> list[tuple[Any, Any]]:
    return [(MappingKey(key), value) for key, value in values.items()]


def _defaultdict(values: Iterable[Any], context: Any) -> Any:
    factory, keys = context
    return defaultdict(factory, zip(keys, values, strict=True))


def _define(kind: Any, context: Callable[[Any], Any], make: Callable[[Iterable[Any], Any], Any]) -> None:
    """Register one of Python's own containers."""
    if kind in STANDARD_DICT_TYPES:
        definition = NodeDef(kind, lambda d: (list(d.values()), context(d)), make, lambda d: (_mapping_keys(d), context(d)))
    elif kind is namedtuple:
        named = lambda t: [(GetAttrKey(f), v) for f, v in zip(t._fields, t, strict=True)]  # noqa: E731
        definition = NodeDef(kind, lambda t: (list(t), context(t)), make, lambda t: (named(t), context(t)))
    else:
        definition = NodeDef(kind, lambda s: (list(s), context(s)), make, lambda s: (_sequence_keys(s), context(s)))
    SUPPORTED_NODES[kind] = definition


_define(tuple, lambda t: None, lambda values, _: tuple(values))
_define(list, lambda t: None, lambda values, _: list(values))
_define(Size, lambda t: None, lambda values, _: tuple(values))  # its elements may be no numbers now
_define(dict, list, lambda values, keys: dict(zip(keys, values, strict=True)))
_define(OrderedDict, list, lambda values, keys: OrderedDict(zip(keys, values, strict=True)))
_define(defaultdict, lambda d: [d.default_factory, list(d)], _defaultdict)
_define(deque, lambda d: d.maxlen, lambda values, maxlen: deque(values, maxlen=maxlen))
_define(namedtuple, type, lambda values, cls: cls(*values))
