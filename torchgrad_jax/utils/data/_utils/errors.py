"""What a worker raised, as it is raised again in the process of the training loop."""

from __future__ import annotations

import sys
import traceback
from typing import NoReturn


class KeyErrorMessage(str):
    """The text of a KeyError, which shows it as a repr."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception as its class and its traceback's text: a traceback itself stays in its process. where: in what it was raised."""

    def __init__(self, where: str = "in background") -> None:
        kind, error, trace = sys.exc_info()
        assert kind is not None
        self.exc_type, self.name, self.where = kind, kind.__name__, where
        self.exc_msg = "".join(traceback.format_exception(kind, error, trace))

    def reraise(self) -> NoReturn:
        """Raise an exception of the class, or a RuntimeError where that takes other arguments."""
        text = f"Caught {self.name} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            text = KeyErrorMessage(text)
        try:
            error = self.exc_type(text)
        except Exception:
            raise RuntimeError(text) from None
        raise error
