"""Whether something else stands in the place of a public function or method, as a user puts it there (`F.relu = ...`, `unittest.mock.patch`).

What is remembered of a function that calls public ones is remembered under the `state` of these places. That is asked at each call, so it is told by
the tags of a few dicts: only where one of them was written to are the names in it looked through.
"""

from __future__ import annotations

import gc
from itertools import count
from typing import Any

from torchgrad_jax.lifting import tags
from torchgrad_jax.lifting.tags import ARE_THERE

# The dicts, and what each name in them stood for first. Their tags, added up: each is larger than all before.
_watched: list[dict[str, Any]] = []
_first: list[dict[str, Any]] = []
_tags = 0
_state = 0
# The numbers of the states that were seen last, by what stood in which place, with all that stood there: so that nothing else is taken for it.
_MOST = 8
_states: dict[frozenset[Any], tuple[int, list[Any]]] = {}
_numbers = count(1)
_MISSING = object()


def watch(*places: Any) -> None:
    """Let the names of modules and classes be watched. Of one that is added later the first use that is seen is the first."""
    for place in places if ARE_THERE else ():
        names = gc.get_referents(place.__dict__)[0] if isinstance(place, type) else place.__dict__
        _first.append(dict(names))
        _watched.append(names)


def state() -> int:
    """0 while all names stand for what they first stood for, another number for each other state of them."""
    total = 0
    for names in _watched:
        total += tags.tag_of(names)
    return _state if total == _tags else _looked(total)


def _looked(total: int) -> int:
    global _tags, _state
    others: dict[Any, Any] = {}
    for place, (names, first) in enumerate(zip(_watched, _first, strict=True)):
        now = names.copy()
        for name, value in now.items():
            if first.setdefault(name, value) is not value:
                others[place, name, id(value)] = value
        if len(now) < len(first):
            others.update({(place, name): _MISSING for name in first if name not in now})
    if not others:
        _state = 0
    else:
        found = _states.get(key := frozenset(others))
        if found is None:
            if len(_states) >= _MOST:
                del _states[next(iter(_states))]
            found = _states[key] = next(_numbers), list(others.values())
        _state = found[0]
    _tags = total
    return _state
