"""A machine for pickles of which nothing is trusted: it knows the operations that files of PyTorch's have, and calls what `allowed.py` lists.

Python's own unpickler would not do, even with a list of names: it gives any object a state, by `__setstate__` or as attributes, classes and functions
too, and hashes whatever it is given. This one makes dictionaries, lists, tuples, numbers and texts, and calls functions with checked arguments; its
loop has no recursion, and no operation makes more than the file has bytes.
"""

from __future__ import annotations

import struct
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import Counter, OrderedDict
from collections.abc import Callable
from pickle import UnpicklingError, decode_long
from typing import Any

from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.saving import allowed

_ADVICE = (
    "Please use `torch.serialization.add_safe_globals([{0}])` or the `torch.serialization.safe_globals([{0}])` context manager to allowlist this "
    "global if you trust this class/function."
)


class Unsupported(UnpicklingError):
    """The pickle is none that PyTorch writes, or was changed."""


class NotAllowed(UnpicklingError):
    """The pickle names what is not on the list."""


class Blocked(UnpicklingError):
    """The pickle names what may not be put on the list."""


class _Mark:
    """Where on the stack a container's elements begin."""


_MARK = _Mark()
_INT32, _UINT16, _UINT32, _DOUBLE = struct.Struct("<i"), struct.Struct("<H"), struct.Struct("<I"), struct.Struct(">d")


class Machine:
    """Runs one pickle. persistent_load: called with the persistent ids. `end`: where the pickle ended."""

    def __init__(self, content: Any, persistent_load: Callable[[Any], Any] | None = None, encoding: str = "utf-8", begin: int = 0) -> None:
        self._content, self.end, self._encoding, self._persistent = bytes(content), begin, encoding, persistent_load
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._protocol = 0
        self._users = allowed.users()

    def load(self) -> Any:
        """What the pickle makes. UnpicklingError, EOFError and the errors of the functions on the list where it is none."""
        operations = _OPERATIONS
        while True:
            code = self._take(1)[0]
            if code == 0x2E:  # STOP
                found = self._pop()
                if found is _MARK:
                    raise Unsupported("the pickle ends within a container")
                return found
            operation = operations.get(code)
            if operation is None:
                raise Unsupported(f"Unsupported operand {code}")
            operation(self)

    # ------------------------------------------------------------------ the file and the stack

    def _take(self, n: int) -> bytes:
        end = self.end + n
        if end > len(self._content):
            raise EOFError
        found = self._content[self.end : end]
        self.end = end
        return found

    def _line(self) -> str:
        end = self._content.find(b"\n", self.end)
        if end < 0:
            raise EOFError
        found = _decoded(self._content[self.end : end], "utf-8")
        self.end = end + 1
        return found

    def _number(self, form: struct.Struct) -> Any:
        return form.unpack(self._take(form.size))[0]

    def _pop(self) -> Any:
        if not self._stack:
            raise Unsupported("the stack is empty")
        return self._stack.pop()

    def _value(self) -> Any:
        found = self._pop()
        if found is _MARK:
            raise Unsupported("a mark where a value should be")
        return found

    def _top(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise Unsupported("the stack is empty")
        return self._stack[-1]

    def _since_mark(self) -> list[Any]:
        stack = self._stack
        for at in range(len(stack) - 1, -1, -1):
            if stack[at] is _MARK:
                found = stack[at + 1 :]
                del stack[at:]
                return found
        raise Unsupported("no mark on the stack")

    # ------------------------------------------------------------------ containers

    def _append(self, values: list[Any]) -> None:
        made = self._top()
        if type(made) is not list:
            raise Unsupported(f"Can only append to lists, but got {type(made)}")
        made.extend(values)

    def _set(self, items: list[Any]) -> None:
        made = self._top()
        if type(made) not in (dict, OrderedDict, Counter):
            raise Unsupported(f"Can only SETITEM for dict, collections.OrderedDict, collections.Counter, but got {type(made)}")
        if len(items) % 2:
            raise Unsupported("a key without a value")
        allowed.check_keys(items[::2])
        for key, value in zip(items[::2], items[1::2], strict=True):
            made[key] = value

    def _put(self, index: int) -> None:
        self._memo[index] = self._top()

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise Unsupported(f"Memo value not found at index {index}")
        self._stack.append(self._memo[index])

    def _tuple(self, n: int) -> None:
        values = [self._value() for _ in range(n)]
        self._stack.append(tuple(reversed(values)))

    # ------------------------------------------------------------------ what is named and called

    def _global(self) -> None:
        module, name = self._line(), self._line()
        if self._protocol < 3:
            module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        if module.partition(".")[0] in allowed.BLOCKED:
            raise Blocked(f"Trying to load unsupported GLOBAL {module}.{name} whose module {module} is blocked.")
        found = allowed.lookup(module, name, self._users)
        if found is None:
            dotted = allowed.dotted_name(module, name)
            raise NotAllowed(f"Unsupported global: GLOBAL {dotted} was not an allowed global by default. {_ADVICE.format(dotted)}")
        self._stack.append(found)

    def _is_users(self, found: Any) -> bool:
        return any(found is kind for kind in self._users.values())

    def _reduce(self) -> None:
        args, function = self._value(), self._value()
        if not isinstance(args, tuple):
            raise Unsupported(f"arguments are a tuple, not a {type(args).__name__}")
        call = allowed.BY_FUNCTION.get(id(function))
        if call is None:
            if not self._is_users(function):
                raise Unsupported(f"Trying to call reduce for unrecognized function {getattr(function, '__name__', type(function).__name__)}")
            self._stack.append(function(*args))
            return
        try:
            self._stack.append(call(*args))
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise Unsupported(f"{call.function.__name__}(): {error}") from None

    def _new(self) -> None:
        args, kind = self._value(), self._value()
        if not isinstance(args, tuple):
            raise Unsupported(f"arguments are a tuple, not a {type(args).__name__}")
        if kind is Size:
            self._stack.append(kind)
            self._stack.append(args)
            self._reduce()
        elif kind is Tensor and not args:
            self._stack.append(Tensor())
        elif kind is Parameter and not args:
            self._stack.append(Parameter())
        elif self._is_users(kind) and isinstance(kind, type):
            self._stack.append(_object_of(kind, args))
        else:
            raise Unsupported(
                "Can only create new object for nn.Parameter or classes allowlisted via `add_safe_globals` but got "
                f"{kind if kind is None or isinstance(kind, type) else type(kind)}"
            )

    def _build(self) -> None:
        state, made = self._value(), self._top()
        kind = type(made)
        if self._is_users(kind):
            _give_state(made, state)
        elif kind in (OrderedDict, Tensor, Parameter) and isinstance(state, dict) and all(type(name) is str for name in state):
            vars(made).update(state)
        else:
            raise Unsupported(f"Can only build Tensor, Parameter, OrderedDict or types allowlisted via `add_safe_globals`, but got {kind}")

    def _persistent_id(self) -> None:
        found = self._value()
        if self._persistent is None:
            raise Unsupported("a storage where there are none")
        if not isinstance(found, tuple):
            raise Unsupported(f"saved_id must be a tuple, got {type(found).__name__}")
        if not found or found[0] != "storage":
            raise Unsupported(f"Only persistent_load of storage is allowed, but got {type(found[0]) if found else found}")
        self._stack.append(self._persistent(found))

    def _text(self, n: int) -> None:
        self._stack.append(_decoded(self._take(n), "utf-8"))

    def _bytes_text(self, n: int) -> None:
        found = self._take(n)
        self._stack.append(found if self._encoding == "bytes" else _decoded(found, self._encoding))

    def _start(self) -> None:
        self._protocol = self._take(1)[0]
        if self._protocol != 2:
            warn_user(
                f"Detected pickle protocol {self._protocol} in the checkpoint, which was not the default pickle protocol used by `torch.load` (2). "
                "The weights_only Unpickler might not support all instructions implemented by this protocol, please file an issue for adding support "
                "if you encounter this."
            )

    def _long(self) -> None:
        self._stack.append(decode_long(self._take(self._take(1)[0])))


def _object_of(kind: Any, args: tuple[Any, ...]) -> Any:
    """A new object of a class that the user trusts."""
    return kind.__new__(kind, *args)


def _decoded(text: bytes, encoding: str) -> str:
    try:
        return text.decode(encoding, "surrogatepass" if encoding == "utf-8" else "strict")
    except UnicodeDecodeError as error:
        raise Unsupported(f"a text that is none: {error}") from None


def _give_state(made: Any, state: Any) -> None:
    """What pickle does with the state of an object, of a class that the user trusts."""
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        vars(made).update(attributes)
    for name, value in (slots or {}).items():
        setattr(made, name, value)


def _pushes(make: Callable[[], Any]) -> Callable[[Machine], None]:
    return lambda m: m._stack.append(make())


_OPERATIONS: dict[int, Callable[[Machine], None]] = {
    ord(code): run
    for code, run in {
        "\x80": Machine._start, "c": Machine._global, "R": Machine._reduce, "\x81": Machine._new, "b": Machine._build, "Q": Machine._persistent_id,
        "}": _pushes(dict), "]": _pushes(list), ")": _pushes(tuple), "N": _pushes(lambda: None), "\x88": _pushes(lambda: True),
        "\x89": _pushes(lambda: False), "(": _pushes(lambda: _MARK),
        "a": lambda m: m._append([m._value()]),
        "e": lambda m: m._append(m._since_mark()),
        "s": lambda m: m._set([m._value(), m._value()][::-1]),
        "u": lambda m: m._set(m._since_mark()),
        "t": lambda m: m._stack.append(tuple(m._since_mark())),
        "\x85": lambda m: m._tuple(1), "\x86": lambda m: m._tuple(2), "\x87": lambda m: m._tuple(3),
        "K": lambda m: m._stack.append(m._take(1)[0]),
        "M": lambda m: m._stack.append(m._number(_UINT16)),
        "J": lambda m: m._stack.append(m._number(_INT32)),
        "G": lambda m: m._stack.append(m._number(_DOUBLE)),
        "\x8a": Machine._long,
        "X": lambda m: m._text(m._number(_UINT32)),
        "T": lambda m: m._bytes_text(max(m._number(_INT32), 0)),
        "U": lambda m: m._bytes_text(m._take(1)[0]),
        "q": lambda m: m._put(m._take(1)[0]), "r": lambda m: m._put(m._number(_UINT32)),
        "h": lambda m: m._get(m._take(1)[0]), "j": lambda m: m._get(m._number(_UINT32)),
    }.items()
}  # fmt: skip
