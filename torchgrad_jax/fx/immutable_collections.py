"""`torch.fx.immutable_collections`: the lists and dictionaries in the arguments of nodes. A graph must know what its nodes use, so these are replaced
and never changed."""

from __future__ import annotations

from typing import Any, NoReturn

from torchgrad_jax.lifting.trees import SUPPORTED_NODES

__all__ = ["immutable_dict", "immutable_list"]

_INSTEAD = (
    "If you are attempting to modify the kwargs or args of a torch.fx.Node object,\n"
    "instead create a new copy of it and assign the copy to the node:\n\n"
    "    new_args = ...  # copy and mutate args\n"
    "    node.args = new_args"
)


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """TypeError."""
    raise TypeError(f"{type(self).__name__!r} object does not support mutation. {_INSTEAD}")


class immutable_list(list[Any]):  # noqa: N801 - PyTorch's name
    """A list that does not change."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override] - what does not change can have one
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_list, (list(self),)


class immutable_dict(dict[str, Any]):  # noqa: N801 - PyTorch's name
    """A dictionary that does not change."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override] - what does not change can have one
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_dict, (dict(self),)


# Containers like Python's own, which functions of trees make again of the same class.
SUPPORTED_NODES[immutable_list] = SUPPORTED_NODES[list]._replace(type=immutable_list, unflatten_fn=lambda values, _: immutable_list(values))
SUPPORTED_NODES[immutable_dict] = SUPPORTED_NODES[dict]._replace(
    type=immutable_dict, unflatten_fn=lambda values, keys: immutable_dict(zip(keys, values, strict=True))
)
