"""Which arguments of a call stand for which parameters of a signature, or what is wrong with them."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.calling.kinds import odd_element, takes, type_name
from torchgrad_jax.calling.signature import Parameter, Signature
from torchgrad_jax.core.tensor import Tensor


def bind(name: str, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | TypeError:
    """The argument of each parameter that has one, or the TypeError that says which one does not fit."""
    if len(args) > signature.most_positional and not signature.gathers:
        return _too_many(name, signature, len(args))
    found: dict[str, Any] = {}
    used, left = 0, len(kwargs)
    for p in signature.parameters:
        if used < len(args):
            if p.keyword_only:
                return _too_many(name, signature, len(args))
            value, by_name = args[used], False
        else:
            label = next((n for n in (p.name, *p.numpy_names) if n in kwargs), None)
            if label is None:
                if p.default is None:
                    return _missing(name, signature, found)
                continue
            value, by_name = kwargs[label], True
        if signature.gathers and not by_name and (len(args) > 1 or not takes(p, value)):
            if takes(p, args):
                found[p.name], used = args, len(args)
                continue
            if len(args) > 1:
                return _too_many(name, signature, len(args))
        if not takes(p, value):
            return _wrong(name, p, value, None if by_name else used + 1)
        found[p.name] = value
        used, left = (used, left - 1) if by_name else (used + 1, left)
    if used < len(args):
        return _too_many(name, signature, len(args))
    return _unknown(name, signature, kwargs, len(args)) if left else found


def _too_many(name: str, signature: Signature, given: int) -> TypeError:
    most = signature.most_positional
    fewest = sum(p.default is None and not p.keyword_only for p in signature.parameters)
    if fewest < most:
        return TypeError(f"{name}() takes from {fewest} to {most} positional arguments but {given} were given")
    return TypeError(f"{name}() takes {most} positional argument{'s' * (most != 1)} but {given} {'was' if given == 1 else 'were'} given")


def _missing(name: str, signature: Signature, found: dict[str, Any]) -> TypeError:
    names = [p.name for p in signature.parameters if p.default is None and p.name not in found]
    listed = ", ".join(f'"{n}"' for n in names)
    # The plural is where PyTorch has it.
    return TypeError(f"{name}() missing {len(names)} required positional argument{'s' * (len(names) == 1)}: {listed}")


def _wrong(name: str, p: Parameter, value: Any, position: int | None) -> TypeError:
    if p.kind[0] == ".":
        getattr(value, p.kind[1:])
    where = f"{name}(): argument '{p.name}'" + ("" if position is None else f" (position {position})")
    if p.kind in ("int[]", "float[]") and isinstance(value, (list, tuple)) and value:
        at = next((i for i, v in enumerate(value) if not takes(p, (v,))), 0)
        return TypeError(f"{where} must be {p.word}, but found element of type {type_name(value[at])} at pos {at}")
    return TypeError(f"{where} must be {p.word}, not {type_name(value)}")


def _unknown(name: str, signature: Signature, kwargs: dict[str, Any], given: int) -> TypeError:
    names = list(signature.by_name)
    for label in kwargs:
        taken = any(label in p.numpy_names for p in signature.parameters[given:])
        if label not in names and not taken:
            return TypeError(f"{name}() got an unexpected keyword argument '{label}'")
        if label in names and names.index(label) < given:
            return TypeError(f"{name}() got multiple values for argument '{label}'")
    return TypeError(f"invalid keyword arguments for {name}()")


def wrong_kind(name: str, signature: Signature, found: dict[str, Any], kwargs: dict[str, Any]) -> TypeError | None:
    """What PyTorch says of the first argument that its parameter does not take."""
    for i, p in enumerate(signature.parameters):
        if p.name in found and not takes(p, found[p.name]):
            return _wrong(name, p, found[p.name], None if p.name in kwargs else i + 1)
    return None


def check_elements(name: str, signature: Signature, found: dict[str, Any]) -> None:
    """TypeError for an element of a list that does not fit."""
    for label, value in found.items():
        p = signature.by_name[label]
        if p.kind == "Tensor[]" and isinstance(value, (list, tuple)):
            place = [q.name for q in signature.parameters].index(label)
            for i, v in enumerate(value):
                if not isinstance(v, Tensor):
                    raise TypeError(f"expected Tensor as element {i} in argument {place}, but got {type_name(v)}")
        odd = odd_element(p, value)
        if odd is not None:
            raise TypeError(f"{name}(): argument '{label}' failed to unpack the object at pos {odd[0] + 1} with error \"{odd[1]}\"")


def invalid_combination(name: str, signatures: list[Signature], args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
    """What PyTorch says where no one of several signatures is meant."""
    given = ", ".join([*map(type_name, args), *(f"{label}={type_name(value)}" for label, value in kwargs.items()), *([] if args else [""])])
    expected = f"{signatures[0]}" if len(signatures) == 1 else "one of:\n" + "".join(f" * {s}\n" for s in signatures)
    return TypeError(f"{name}() received an invalid combination of arguments - got ({given}), but expected {expected}")
