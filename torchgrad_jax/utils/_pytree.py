"""`torch.utils._pytree`: nested containers as leaves and a structure. PyTorch's rules, which are not JAX's: None is a leaf, dicts keep their order.

The trees themselves are in `lifting/trees.py`; here is what is made of them, registration of the user's own containers, paths, and structures as
text."""

from __future__ import annotations

import dataclasses
import json
import types
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from torchgrad_jax.calling.return_types import ReturnType
from torchgrad_jax.core.tensor import Size
from torchgrad_jax.lifting.trees import BUILTIN_TYPES as BUILTIN_TYPES
from torchgrad_jax.lifting.trees import (
    LEAF,
    SUPPORTED_NODES,
    GetAttrKey,
    IsLeaf,
    LeafSpec,
    NodeDef,
    TreeSpec,
    broadcast,
    is_namedtuple_class,
    node_type,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_structure,
    tree_unflatten,
    treespec_pprint,
)
from torchgrad_jax.lifting.trees import STANDARD_DICT_TYPES as STANDARD_DICT_TYPES
from torchgrad_jax.lifting.trees import MappingKey as MappingKey
from torchgrad_jax.lifting.trees import SequenceKey as SequenceKey

__all__ = [
    "PyTree", "Context", "FlattenFn", "UnflattenFn", "DumpableContext", "ToDumpableContextFn", "FromDumpableContextFn", "PyTreeSpec", "TreeSpec",
    "LeafSpec", "keystr", "key_get", "register_pytree_node", "tree_is_leaf", "tree_flatten", "tree_flatten_with_path", "tree_unflatten", "tree_iter",
    "tree_leaves", "tree_leaves_with_path", "tree_structure", "tree_map", "tree_map_with_path", "tree_map_", "tree_map_only", "tree_map_only_",
    "tree_all", "tree_any", "tree_all_only", "tree_any_only", "treespec_dumps", "treespec_loads", "treespec_pprint", "is_namedtuple",
    "is_namedtuple_class", "is_namedtuple_instance", "is_structseq", "is_structseq_class", "is_structseq_instance",
]  # fmt: skip

PyTree = Context = DumpableContext = Any
FlattenFn = Callable[[PyTree], tuple[list[Any], Context]]
UnflattenFn = Callable[[Iterable[Any], Context], PyTree]
ToDumpableContextFn = Callable[[Context], DumpableContext]
FromDumpableContextFn = Callable[[DumpableContext], Context]
KeyEntry = Any
KeyPath = tuple[Any, ...]
PyTreeSpec = TreeSpec
_broadcast_to_and_flatten = broadcast


# ---------------------------------------------------------------------- kinds of containers


class _Serialized(NamedTuple):
    """How a kind of container is named in text, and its context."""

    name: str
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


def _dump_factory(context: list[Any]) -> dict[str, Any]:
    factory, keys = context
    return {"default_factory_module": factory.__module__, "default_factory_name": factory.__qualname__, "dict_context": keys}


def _load_factory(found: dict[str, Any]) -> list[Any]:
    return [getattr(import_module(found["default_factory_module"]), found["default_factory_name"]), found["dict_context"]]


def _dump_namedtuple(cls: Any) -> str:
    if cls not in _namedtuples:
        raise NotImplementedError(
            f"Can't serialize TreeSpec of namedtuple class {cls} because we didn't register a serializated_type_name. Please register using "
            "`_register_namedtuple`."
        )
    return _namedtuples[cls]


def _load_namedtuple(name: str) -> Any:
    for cls, known in _namedtuples.items():
        if known == name:
            return cls
    raise NotImplementedError(f"Can't deserialize TreeSpec of namedtuple class {name}: please register it using `_register_namedtuple`.")


_namedtuples: dict[Any, str] = {}
_serialized: dict[Any, _Serialized] = {
    **{kind: _Serialized(f"{kind.__module__}.{kind.__name__}", json.dumps, json.loads) for kind in (tuple, list, dict, OrderedDict, deque)},
    defaultdict: _Serialized("collections.defaultdict", _dump_factory, _load_factory),
    namedtuple: _Serialized("collections.namedtuple", _dump_namedtuple, _load_namedtuple),
    Size: _Serialized("torch.Size", json.dumps, json.loads),
}
_constants: set[Any] = set()


def _functions_of(kind: Any) -> tuple[Any, Any, Any]:
    node = SUPPORTED_NODES[kind]
    return node.flatten_fn, node.unflatten_fn, node.flatten_with_keys_fn


# A program's own class of dicts (or lists ...) is registered with the functions that are Python's own class's.
_list_flatten, _list_unflatten, _list_flatten_with_keys = _functions_of(list)
_tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys = _functions_of(tuple)
_dict_flatten, _dict_unflatten, _dict_flatten_with_keys = _functions_of(dict)
_namedtuple_flatten, _namedtuple_unflatten, _namedtuple_flatten_with_keys = _functions_of(namedtuple)
_ordereddict_flatten, _ordereddict_unflatten, _ordereddict_flatten_with_keys = _functions_of(OrderedDict)
_odict_flatten, _odict_unflatten = _ordereddict_flatten, _ordereddict_unflatten
_defaultdict_flatten, _defaultdict_unflatten, _defaultdict_flatten_with_keys = _functions_of(defaultdict)
_deque_flatten, _deque_unflatten, _deque_flatten_with_keys = _functions_of(deque)


def register_pytree_node(
    cls: Any,
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Any], Any] | None = None,
    from_dumpable_context: Callable[[Any], Any] | None = None,
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Let instances of `cls` be containers.

    flatten_fn: instance to (children, context). unflatten_fn: (children, context) to instance. flatten_with_keys_fn: as flatten_fn, with (key, child)
    in place of each child, for paths. serialized_type_name: its name in `treespec_dumps`, where the context is written by `to_dumpable_context` and
    read by `from_dumpable_context` (default: JSON). ValueError where `cls` is registered already, or only one of those two is given.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    if serialized_type_name is not None:
        _serialized[cls] = _Serialized(serialized_type_name, to_dumpable_context or json.dumps, from_dumpable_context or json.loads)


def _register_pytree_node(cls: Any, flatten_fn: Any, unflatten_fn: Any, **options: Any) -> None:
    """Deprecated name of `register_pytree_node`."""
    warnings.warn(
        "`torch.utils._pytree._register_pytree_node` is deprecated. Please use `torch.utils._pytree.register_pytree_node` instead.",
        FutureWarning,
        stacklevel=2,
    )
    register_pytree_node(cls, flatten_fn, unflatten_fn, **options)


def _deregister_pytree_node(cls: Any) -> None:
    """Let instances of `cls` be leaves again. KeyError where they are."""
    del SUPPORTED_NODES[cls]
    _serialized.pop(cls, None)
    _constants.discard(cls)


_private_register_pytree_node = register_pytree_node


def _register_namedtuple(cls: Any, *, serialized_type_name: str) -> None:
    """Name a namedtuple class in `treespec_dumps`."""
    _namedtuples[cls] = serialized_type_name


def register_dataclass(
    cls: Any, *, field_names: list[str] | None = None, drop_field_names: list[str] | None = None, serialized_type_name: str | None = None
) -> None:
    """Let instances of a dataclass (or of a class made of its fields) be containers of `field_names`; those in `drop_field_names` are left out, and
    have their defaults when it is made again. ValueError where the names are not the fields."""
    dropped = list(drop_field_names or ())
    if dataclasses.is_dataclass(cls) and isinstance(cls, type):
        fields = [f.name for f in dataclasses.fields(cls) if f.init]
        names = [name for name in fields if name not in dropped] if field_names is None else list(field_names)
        missing, unexpected = set(fields) - set(names) - set(dropped), set(names) - (set(fields) - set(dropped))
        if missing or unexpected:
            text = "field_names does not include all dataclass fields.\n"
            if missing:
                text += (
                    f"Missing fields in `field_names`: {missing}. If you want to include these fields in the pytree, please add them to "
                    "`field_names`, otherwise please add them to `drop_field_names`.\n"
                )
            if unexpected:
                text += f"Unexpected fields in `field_names`: {unexpected}. Please remove these fields, or add them to `drop_field_names`.\n"
            raise ValueError(text)
    elif field_names is None:
        raise ValueError(f"field_names must be specified with a list of all fields used to initialize {cls}, as it is not a dataclass.")
    else:
        names = list(field_names)

    _register_fields(cls, names, serialized_type_name)


def _register_fields(cls: Any, names: list[str], serialized_type_name: str | None) -> None:
    """Register a class whose children are those of the named attributes that are not None."""

    def parts(obj: Any) -> tuple[list[tuple[str, Any]], list[list[str]]]:
        values = [(name, getattr(obj, name)) for name in names]
        there = [(name, value) for name, value in values if value is not None]
        return there, [[name for name, _ in there], [name for name, value in values if value is None]]

    def flatten(obj: Any) -> tuple[list[Any], Any]:
        there, context = parts(obj)
        return [value for _, value in there], context

    def with_keys(obj: Any) -> tuple[list[tuple[Any, Any]], Any]:
        there, context = parts(obj)
        return [(GetAttrKey(name), value) for name, value in there], context

    def unflatten(values: Iterable[Any], context: Any) -> Any:
        return cls(**dict(zip(context[0], values, strict=True)), **dict.fromkeys(context[1]))

    register_pytree_node(cls, flatten, unflatten, serialized_type_name=serialized_type_name, flatten_with_keys_fn=with_keys)


@dataclasses.dataclass(frozen=True)
class ConstantNode:
    """The context of a container without leaves: the object itself."""

    value: Any


def register_constant(cls: Any) -> None:
    """Let instances of `cls` be containers without leaves: part of the structure. TypeError where it has no `__eq__` or `__hash__` of its own."""
    if cls.__eq__ is object.__eq__:
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__eq__` implementation.")
    if cls.__hash__ is None:
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__hash__` implementation.")
    register_pytree_node(cls, lambda x: ((), ConstantNode(x)), lambda _, c: c.value, flatten_with_keys_fn=lambda x: ([], ConstantNode(x)))
    _constants.add(cls)


def is_constant_class(cls: Any) -> bool:
    """Whether `register_constant` was given this class."""
    return cls in _constants


# ---------------------------------------------------------------------- trees


def tree_is_leaf(tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether the tree is a single leaf."""
    return (is_leaf is not None and is_leaf(tree)) or node_type(tree) not in SUPPORTED_NODES


_is_leaf, _get_node_type = tree_is_leaf, node_type


def tree_iter(tree: Any, is_leaf: IsLeaf | None = None) -> Iterable[Any]:
    """The leaves of a tree from left to right, one at a time."""
    if tree_is_leaf(tree, is_leaf):
        yield tree
        return
    for child in SUPPORTED_NODES[node_type(tree)].flatten_fn(tree)[0]:
        yield from tree_iter(child, is_leaf)


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of the arguments of a call."""
    return tree_leaves((args, kwargs))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Call ``func(leaf, *parts)`` for each leaf, as `tree_map` does, and give `tree` back."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _predicate(which: Any) -> Callable[[Any], Any]:
    if isinstance(which, (type, tuple, types.UnionType)):
        return lambda x: isinstance(x, which)
    if callable(which):
        return which
    raise TypeError("Argument must be a type, a tuple of types, or a callable.")


def map_only(type_or_types_or_pred: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator: the function is for what is of these types (or what the predicate says), all else is given back as it is. TypeError for another
    kind of argument."""
    applies = _predicate(type_or_types_or_pred)
    return lambda func: lambda x: func(x) if applies(x) else x


def tree_map_only(type_or_types_or_pred: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """`tree_map` for the leaves of these types (or for which the predicate is true); the others stay as they are."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """`tree_map_` for the leaves of these types (or for which the predicate is true)."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether the predicate is true for all leaves."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether the predicate is true for any leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(type_or_types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether the predicate is true for all leaves of these types."""
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(type_or_types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether the predicate is true for any leaf of these types."""
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


# ---------------------------------------------------------------------- paths


def _with_paths(tree: Any, path: KeyPath, is_leaf: IsLeaf | None) -> Iterable[tuple[KeyPath, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    flatten = SUPPORTED_NODES[node_type(tree)].flatten_with_keys_fn
    if flatten is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {node_type(tree)}. Please pass a flatten_with_keys_fn argument to register_pytree_node."
        )
    for key, child in flatten(tree)[0]:
        yield from _with_paths(child, (*path, key), is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf | None = None) -> list[tuple[KeyPath, Any]]:
    """(path, leaf) for each leaf: a path is a tuple of keys. ValueError where a container was registered without `flatten_with_keys_fn`."""
    return list(_with_paths(tree, (), is_leaf))


def tree_flatten_with_path(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """What `tree_leaves_with_path` gives, and the structure."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None) -> Any:
    """`tree_map` with ``func(path, leaf, *parts)``."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return spec.unflatten([func(path, leaf, *parts) for (path, leaf), *parts in zip(found, *others, strict=True)])


def keystr(kp: KeyPath) -> str:
    """A path as it would be written: ``['a'][0].b``."""
    return "".join([str(key) for key in kp])


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What stands in `obj` at a path."""
    for key in kp:
        obj = key.get(obj)
    return obj


# ---------------------------------------------------------------------- structures


def treespec_leaf() -> LeafSpec:
    """The structure of a leaf."""
    return LEAF


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The structure of a tuple of trees of these structures. ValueError where one is none."""
    children = list(iterable)
    if not all(isinstance(child, TreeSpec) for child in children):
        raise ValueError(f"Expected a tuple of TreeSpec values, got: {children}.")
    return TreeSpec(tuple, None, children)


def treespec_dict(mapping: Mapping[Any, TreeSpec] | Iterable[tuple[Any, TreeSpec]] = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The structure of a dict of trees of these structures. ValueError where one is none."""
    children = dict(mapping, **kwargs)
    if not all(isinstance(child, TreeSpec) for child in children.values()):
        raise ValueError(f"Expected a dictionary of TreeSpec values, got: {children}.")
    return TreeSpec(dict, list(children), list(children.values()))


def _spec(treespec: Any) -> TreeSpec:
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")
    return treespec


PROTOCOLS = [1]


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """The structure as JSON. NotImplementedError where a container was registered without a name for it, ValueError for an unknown protocol."""
    if (protocol := PROTOCOLS[-1] if protocol is None else protocol) not in PROTOCOLS:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: {PROTOCOLS}")
    return json.dumps((protocol, _dumped(_spec(treespec))))


def _dumped(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    if spec.type not in _serialized:
        raise NotImplementedError(
            f"No registered serialization name for {spec.type} found. Please update your _register_pytree_node call with a `serialized_type_name` "
            "kwarg."
        )
    known = _serialized[spec.type]
    return {"type": known.name, "context": known.dump(spec.context), "children_spec": [_dumped(child) for child in spec.children_specs]}


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that `treespec_dumps` wrote. ValueError for an unknown protocol, NotImplementedError for a container that is not registered."""
    protocol, found = json.loads(serialized)
    if protocol not in PROTOCOLS:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: {PROTOCOLS}")
    return _loaded(found)


def _loaded(found: dict[str, Any]) -> TreeSpec:
    if found["type"] is None:
        return LEAF
    kind = next((kind for kind, known in _serialized.items() if known.name == found["type"]), None)
    if kind is None:
        raise NotImplementedError(f"Deserializing {found['type']} in pytree is not registered.")
    return TreeSpec(kind, _serialized[kind].load(found["context"]), [_loaded(child) for child in found["children_spec"]])


# ---------------------------------------------------------------------- kinds of tuples


def is_namedtuple(obj: Any) -> bool:
    """Whether it is a namedtuple or the class of one."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether it is a namedtuple."""
    return is_namedtuple_class(type(obj))


_is_namedtuple_instance = is_namedtuple_instance


def is_structseq_class(cls: Any) -> bool:
    """Whether it is a class of tuples with named fields that is written in C, as `time.struct_time`; those of `torch.return_types` count."""
    if not (isinstance(cls, type) and issubclass(cls, tuple)):
        return False
    counts = [cls.__dict__.get(name) for name in ("n_fields", "n_sequence_fields", "n_unnamed_fields")]
    return issubclass(cls, ReturnType) or (cls.__bases__ == (tuple,) and all(isinstance(n, int) for n in counts))


def is_structseq(obj: Any) -> bool:
    """Whether it is an instance of such a class, or such a class."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_instance(obj: Any) -> bool:
    """Whether it is an instance of such a class."""
    return is_structseq_class(type(obj))
