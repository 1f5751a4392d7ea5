"""`torch.jit.annotations`: types for annotations of what PyTorch's compiler reads. Python reads none of them."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035 - names that programs import from here

__all__ = [
    "Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "BroadcastingList4", "BroadcastingList5", "BroadcastingList6", "Dict",
    "List", "Optional", "Tuple", "Union",
]  # fmt: skip


class _BroadcastingList:
    """A list for which a number may be given, in annotations; of elements of a type it is None there, as in PyTorch."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = _BroadcastingList()
