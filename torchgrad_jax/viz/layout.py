"""Where the boxes of a picture stand: in ranks, so that every edge leads downwards, in an order with few crossings (Sugiyama et al. 1981)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAP, RANK_GAP, MARGIN = 28.0, 46.0, 16.0
_SWEEPS, _SETTLING = 12, 16
# The width of the lane that an edge has where it passes by a rank.
_LANE = 10.0


@dataclass
class Box:
    """A box, or a point that an edge passes through (`lane`). x, y: its upper left corner."""

    width: float
    height: float
    rank: int = 0
    x: float = 0.0
    y: float = 0.0
    lane: bool = False

    @property
    def middle(self) -> float:
        """Where it is, from the left."""
        return self.x + self.width / 2


@dataclass
class Layout:
    """boxes: as they were given, placed. routes: for each edge, the points from the bottom of its upper box to the top of its lower one."""

    boxes: list[Box]
    routes: list[list[tuple[float, float]]]
    width: float
    height: float


def laid_out(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    """Place boxes of these sizes. edges: (upper, lower); they lead in no circle."""
    boxes = [Box(*size) for size in sizes]
    _rank(boxes, edges)
    chains = _chains(boxes, edges)
    above: list[list[int]] = [[] for _ in boxes]
    below: list[list[int]] = [[] for _ in boxes]
    for chain in chains:
        for a, b in zip(chain, chain[1:], strict=False):
            below[a].append(b)
            above[b].append(a)
    ranks = _ordered(boxes, above, below)
    _place_across(boxes, ranks, above, below)
    height = _place_down(boxes, ranks)
    width = max((box.x + box.width for box in boxes), default=0.0) + MARGIN
    return Layout(boxes[: len(sizes)], _routes(boxes, chains, edges), width, height)


def _rank(boxes: list[Box], edges: Sequence[tuple[int, int]]) -> None:
    """Each box below all that lead to it: as far as the longest path, then as near as possible to what it leads to."""
    leads: list[list[int]] = [[] for _ in boxes]
    missing = [0] * len(boxes)
    for a, b in edges:
        leads[a].append(b)
        missing[b] += 1
    order = [i for i, n in enumerate(missing) if n == 0]
    for i in order:  # grows while it is gone through
        for j in leads[i]:
            boxes[j].rank = max(boxes[j].rank, boxes[i].rank + 1)
            missing[j] -= 1
            if missing[j] == 0:
                order.append(j)
    for i in reversed(order):
        if leads[i]:
            boxes[i].rank = min(boxes[j].rank for j in leads[i]) - 1


def _chains(boxes: list[Box], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The boxes that each edge goes through: one more, a lane, in each rank that it passes. Edges between the same two boxes share them."""
    made: dict[tuple[int, int], list[int]] = {}
    for a, b in edges:
        if (a, b) not in made:
            chain = [a]
            for rank in range(boxes[a].rank + 1, boxes[b].rank):
                chain.append(len(boxes))
                boxes.append(Box(_LANE, 0.0, rank, lane=True))
            made[a, b] = [*chain, b]
    return list(made.values())


def _ordered(boxes: list[Box], above: list[list[int]], below: list[list[int]]) -> list[list[int]]:
    """The boxes of each rank from left to right: each by the mean place of its neighbours, downwards and upwards in turn; the best order met."""
    ranks: list[list[int]] = [[] for _ in range(max((box.rank for box in boxes), default=-1) + 1)]
    for i, box in enumerate(boxes):
        ranks[box.rank].append(i)
    best, fewest = [list(rank) for rank in ranks], _crossings(ranks, below)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for rank in ranks if downwards else reversed(ranks):
            place = _places(ranks, boxes[rank[0]].rank + (-1 if downwards else 1))
            own = {i: p for p, i in enumerate(rank)}
            rank.sort(key=lambda i: _mean([place[j] for j in neighbours[i]], own[i]))  # noqa: B023 - sorts at once
        found = _crossings(ranks, below)
        if found < fewest:
            best, fewest = [list(rank) for rank in ranks], found
    return best


def _places(ranks: list[list[int]], at: int) -> dict[int, int]:
    return {i: p for p, i in enumerate(ranks[at])} if 0 <= at < len(ranks) else {}


def _mean(places: Sequence[float], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _crossings(ranks: list[list[int]], below: list[list[int]]) -> int:
    """How many pairs of edges cross, by counting inversions in a tree of sums."""
    total = 0
    for upper, lower in zip(ranks, ranks[1:], strict=False):
        place = {i: p for p, i in enumerate(lower)}
        sums = [0] * (len(lower) + 1)
        seen = 0
        for i in upper:
            ends = [place[j] for j in below[i]]
            for end in ends:
                at, up_to = end + 1, 0
                while at:
                    up_to += sums[at]
                    at &= at - 1
                total += seen - up_to
            for end in ends:
                seen += 1
                at = end + 1
                while at <= len(lower):
                    sums[at] += 1
                    at += at & -at
    return total


def _place_across(boxes: list[Box], ranks: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Each box near the middle of its neighbours, in the order given and without overlaps."""
    for rank in ranks:
        x = MARGIN
        for i in rank:
            boxes[i].x = x
            x += boxes[i].width + GAP
    for turn in range(_SETTLING):
        neighbours = above if turn % 2 == 0 else below
        for rank in ranks if turn % 2 == 0 else reversed(ranks):
            wished = [_mean([boxes[j].middle for j in neighbours[i]], boxes[i].middle) - boxes[i].width / 2 for i in rank]
            for i, x in zip(rank, _apart(wished, [boxes[i].width + GAP for i in rank]), strict=True):
                boxes[i].x = x
    left = min((box.x for box in boxes), default=0.0)
    for box in boxes:
        box.x += MARGIN - left


def _apart(wished: Sequence[float], widths: Sequence[float]) -> list[float]:
    """The places nearest to those wished for, in the mean of squares, at which nothing overlaps: neighbours that would are moved as one block."""
    blocks: list[list[float]] = []  # sum of what its members wish for the block's beginning, how many they are, its width
    for x, width in zip(wished, widths, strict=True):
        blocks.append([x, 1.0, width])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] + blocks[-2][2] > blocks[-1][0] / blocks[-1][1]:
            total, count, wide = blocks.pop()
            before = blocks[-1]
            before[0] += total - count * before[2]
            before[1] += count
            before[2] += wide
    placed, members = [], iter(widths)
    for total, count, _ in blocks:
        x = total / count
        for _ in range(int(count)):
            placed.append(x)
            x += next(members)
    return placed


def _place_down(boxes: list[Box], ranks: list[list[int]]) -> float:
    y = MARGIN
    for rank in ranks:
        height = max(boxes[i].height for i in rank)
        for i in rank:
            if boxes[i].lane:
                boxes[i].height = height
            boxes[i].y = y + (height - boxes[i].height) / 2
        y += height + RANK_GAP
    return max(y - RANK_GAP + MARGIN, 2 * MARGIN)


def _routes(boxes: list[Box], chains: list[list[int]], edges: Sequence[tuple[int, int]]) -> list[list[tuple[float, float]]]:
    """Where edges go. Those of a box leave it side by side, in the order of where they lead; those that come to it likewise."""
    by_ends = {(chain[0], chain[-1]): chain for chain in chains}
    chained = [by_ends[e] for e in edges]
    begins = _side_by_side(boxes, [c[0] for c in chained], [boxes[c[1]].middle for c in chained])
    ends = _side_by_side(boxes, [c[-1] for c in chained], [boxes[c[-2]].middle for c in chained])
    routes = []
    for chain, begin, end in zip(chained, begins, ends, strict=True):
        upper, lower = boxes[chain[0]], boxes[chain[-1]]
        between = [(boxes[i].middle, y) for i in chain[1:-1] for y in (boxes[i].y, boxes[i].y + boxes[i].height)]
        routes.append([(begin, upper.y + upper.height), *between, (end, lower.y)])
    return routes


def _side_by_side(boxes: list[Box], owners: Sequence[int], towards: Sequence[float]) -> list[float]:
    found = [0.0] * len(owners)
    by_owner: dict[int, list[int]] = {}
    for e, owner in enumerate(owners):
        by_owner.setdefault(owner, []).append(e)
    for owner, mine in by_owner.items():
        box = boxes[owner]
        for k, e in enumerate(sorted(mine, key=lambda e: towards[e])):
            found[e] = box.x + box.width * (k + 1) / (len(mine) + 1)
    return found
