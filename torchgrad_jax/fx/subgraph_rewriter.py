"""`torch.fx.subgraph_rewriter`: parts of a graph that look like a pattern, replaced."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torchgrad_jax.fx.graph import Graph, has_member
from torchgrad_jax.fx.graph_module import GraphModule, _copy_attr
from torchgrad_jax.fx.matching import Found, matches
from torchgrad_jax.fx.node import Node, map_arg
from torchgrad_jax.fx.tracing import symbolic_trace
from torchgrad_jax.nn import Module

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


class Match(NamedTuple):
    """A part of a graph that looked like the pattern. anchor: the node that gave its result. nodes_map: nodes of the pattern to nodes of the
    graph."""

    anchor: Node
    nodes_map: dict[Node, Node]


class ReplacedPatterns(NamedTuple):
    """`Match`, with the nodes that came in the place of what was there."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(
    gm: GraphModule, pattern: Callable[..., Any] | GraphModule | Graph, replacement: Callable[..., Any] | GraphModule | Graph
) -> list[Match]:
    """Replace what looks like `pattern` in a module's graph by `replacement`, a function of as many arguments, and say where that was. Parts do not
    overlap: the first in the graph is replaced, and no node stands for two of the pattern. What inner nodes give may not be used elsewhere.

    Example::

        traced = torch.fx.symbolic_trace(model)
        torch.fx.replace_pattern(traced, lambda x, y: torch.add(x, y), lambda x, y: torch.sub(x, y))
    """
    return [Match(found.anchor, found.nodes_map) for found in replace_pattern_with_filters(gm, pattern, replacement)]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule | Graph,
    replacement: Callable[..., Any] | GraphModule | Graph | None = None,
    match_filters: Sequence[Callable[[Found, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[Found, Graph, Graph], Graph] | None = None,
) -> list[ReplacedPatterns]:
    """`replace_pattern` of those parts for which all `match_filters`, given the part, the graph and the pattern, are True. ignore_literals: let
    numbers and strings differ. replacement_callback: makes the replacement of each part, in the place of `replacement`."""
    like, instead = _graph_of(pattern), None if replacement is None else _graph_of(replacement)
    graph = gm.graph
    found = matches(graph, like, ignore_literals)
    found = [match for match in found if all(wanted(match, graph, like) for wanted in match_filters or ())]
    changed: dict[Node, Node] = {}
    done: list[ReplacedPatterns] = []
    for match in found:
        new = instead if replacement_callback is None else replacement_callback(match, graph, like)
        assert new is not None, "Must provide either a replacement GraphModule or a replacement callback"
        done.append(_replace(graph, like, new, match, changed))
    if isinstance(replacement, Module):
        _take_members(gm, replacement)
    gm.recompile()
    return done


def _graph_of(pattern: Any) -> Graph:
    if isinstance(pattern, Graph):
        return pattern
    return pattern.graph if isinstance(pattern, GraphModule) else symbolic_trace(pattern).graph


def _replace(graph: Graph, like: Graph, new: Graph, match: Found, changed: dict[Node, Node]) -> ReplacedPatterns:
    """Put a copy of `new` in the place of a part. changed: what has come in the places of nodes that are gone."""
    inputs = [n for n in like.nodes if n.op == "placeholder"]
    given = [n for n in new.nodes if n.op == "placeholder"]
    assert len(inputs) == len(given), f"expected {len(inputs)} inputs of the replacement, and it has {len(given)}"
    known: dict[Node, Any] = {}
    for place, node in zip(given, inputs, strict=True):
        used = match.nodes_map[node]
        while used in changed:
            used = changed[used]
        known[place] = match.nodes_map[node] = used
    inner = {match.nodes_map[n] for n in like.nodes if n.op not in ("placeholder", "output")}
    before = set(graph.nodes)
    with graph.inserting_before(_place(graph, match, inner)):
        result = graph.graph_copy(new, known)
    results, wanted = _parts(result), match.returning
    assert len(results) == len(wanted), f"expected {len(wanted)} results of the replacement, and it has {len(results)}"
    for old, instead in zip(wanted, results, strict=True):
        old.replace_all_uses_with(instead)
        changed[old] = instead
    for node in reversed(list(graph.nodes)):
        if node in inner:
            graph.erase_node(node)
    return ReplacedPatterns(match.anchor, match.nodes_map, [n for n in graph.nodes if n not in before])


def _place(graph: Graph, match: Found, inner: set[Node]) -> Node:
    """Where the replacement goes: before the first that uses a result, if all that it is given is known there; else before the last of the part."""
    users = {user for node in match.returning for user in node.users} - inner
    given = {node for node in match.placeholder_nodes if isinstance(node, Node)}
    for node in graph.nodes:
        if node in users and not given:
            return node
        given.discard(node)
        users.discard(node)
    return next(node for node in reversed(graph.nodes) if node in inner)


def _parts(result: Any) -> list[Node]:
    found: list[Node] = []
    map_arg(result, lambda n: found.append(n) or n)  # type: ignore[func-returns-value]
    return found


def _take_members(gm: GraphModule, replacement: Module) -> None:
    """Let the module have what the replacement's nodes name."""
    for node in gm.graph.nodes:
        if node.op in ("call_module", "get_attr") and not has_member(gm, str(node.target)):
            _copy_attr(copy.deepcopy(replacement), gm, str(node.target))
    gm.delete_all_unused_submodules()
