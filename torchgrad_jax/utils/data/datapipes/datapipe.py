"""The base classes of data pipes, on which classes register as methods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeVar

from torchgrad_jax.utils.data.dataset import Dataset, IterableDataset

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

_INVALIDATED = (
    "This iterator has been invalidated because another iterator has been created from the same IterDataPipe: {}\nThis may be caused by multiple "
    "references to the same IterDataPipe. We recommend using `.fork()` if that is necessary.\nFor feedback regarding this single iterator per "
    "IterDataPipe constraint, feel free to comment on this issue: https://github.com/pytorch/data/issues/45."
)
# Methods that PyTorch's pipes have from the beginning.
_PYTORCHS = (
    "batch collate concat demux filter fork groupby list_files map mux open_files read_from_stream routed_decode sharding_filter shuffle unbatch zip"
)


class _Registering:
    """What both kinds of pipes have: methods that are classes, or functions, registered by name."""

    functions: ClassVar[dict[str, Callable[..., Any]]]
    reduce_ex_hook: ClassVar[Callable[..., Any] | None] = None
    getstate_hook: ClassVar[Callable[..., Any] | None] = None
    str_hook: ClassVar[Callable[..., Any] | None] = None
    repr_hook: ClassVar[Callable[..., Any] | None] = None

    def __getattr__(self, attribute_name: str) -> Any:
        functions = type(self).functions
        if attribute_name in functions:
            return functools.partial(functions[attribute_name], self)
        text = f"'{type(self).__name__}' object has no attribute '{attribute_name}"
        if attribute_name in _PYTORCHS.split():
            text += (
                "'\nPyTorch's own data pipes are no part of torchgrad_jax: write a class with `__iter__` and decorate it with "
                f"functional_datapipe({attribute_name!r})"
            )
        raise AttributeError(text)

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Make a function a method of all pipes of this kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False) -> None:
        """Make a class a method of all pipes of this kind, which gives its instances. Exception where the name is taken; NotImplementedError for
        `enable_df_api_tracing`."""
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")
        if enable_df_api_tracing:
            raise NotImplementedError("enable_df_api_tracing is about pipes of data frames, which torchgrad_jax has none of: leave it out")

        @functools.wraps(cls_to_register, updated=())
        def made(source: Any, *args: Any, **kwargs: Any) -> Any:
            return cls_to_register(source, *args, **kwargs)

        cls.functions[function_name] = made

    @classmethod
    def set_getstate_hook(cls, hook_fn: Callable[..., Any] | None) -> None:
        """Let `hook_fn` make what is pickled of a pipe's state. RuntimeError where there is one already."""
        if cls.getstate_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing getstate_hook")
        cls.getstate_hook = hook_fn

    @classmethod
    def set_reduce_ex_hook(cls, hook_fn: Callable[..., Any] | None) -> None:
        """Let `hook_fn` pickle pipes, where it does not raise NotImplementedError. RuntimeError where there is one already."""
        if cls.reduce_ex_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing reduce_ex_hook")
        cls.reduce_ex_hook = hook_fn

    def __getstate__(self) -> Any:
        hook = type(self).getstate_hook
        return vars(self) if hook is None else hook(vars(self))

    def __reduce_ex__(self, *args: Any, **kwargs: Any) -> Any:
        hook = type(self).reduce_ex_hook
        if hook is not None:
            try:
                return hook(self)
            except NotImplementedError:
                pass
        return super().__reduce_ex__(*args, **kwargs)

    def __repr__(self) -> str:
        hook = type(self).repr_hook
        return type(self).__qualname__ if hook is None else hook(self)

    def __str__(self) -> str:
        hook = type(self).str_hook
        return type(self).__qualname__ if hook is None else hook(self)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *type(self).functions]


class IterDataPipe(_Registering, IterableDataset[_T_co]):
    """A stream of samples that other pipes are made of, by their classes or by the methods that these registered as.

    `iter` calls `reset`, which does nothing unless a subclass says so, and makes the iterator before it invalid. RuntimeError for using that.
    """

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}
    _valid_iterator_id: int | None = None
    _number_of_samples_yielded: int = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls).get("__iter__")
        if own is not None:
            cls.__iter__ = _once_at_a_time(own)

    def __iter__(self) -> Iterator[_T_co]:
        return self  # type: ignore[return-value] - of subclasses with `__next__`

    def reset(self) -> None:
        """Called when an iterator is made."""


def _once_at_a_time(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def __iter__(self: Any) -> Iterator[Any]:
        self._valid_iterator_id = number = (self._valid_iterator_id or 0) + 1
        self._number_of_samples_yielded = 0
        self.reset()
        return _checked(self, make(self), number)

    return __iter__


def _checked(pipe: Any, samples: Iterator[Any], number: int) -> Iterator[Any]:
    while True:
        if pipe._valid_iterator_id != number:
            raise RuntimeError(_INVALIDATED.format(_shown(pipe)))
        try:
            sample = next(samples)
        except StopIteration:
            return
        except Exception as error:
            told = f"\nThis exception is thrown by __iter__ of {_shown(pipe)}"
            if error.args and isinstance(error.args[0], str) and "thrown by __iter__ of" not in error.args[0]:
                error.args = (error.args[0] + told, *error.args[1:])
            raise
        pipe._number_of_samples_yielded += 1
        yield sample


def _shown(pipe: Any) -> str:
    names = [name for name in inspect.signature(type(pipe).__init__).parameters if name in vars(pipe)]
    return f"{type(pipe).__name__}({', '.join([f'{name}={vars(pipe)[name]!r}' for name in names])})"


class MapDataPipe(_Registering, Dataset[_T_co]):
    """A map from keys to samples that other pipes are made of, by their classes or by the methods that these registered as."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class DFIterDataPipe(IterDataPipe[Any]):
    """A stream of data frames."""

    def _is_dfpipe(self) -> bool:
        return True


class DataChunk(list[_T]):
    """A list of samples that knows where it is one of samples and where of batches."""

    def __init__(self, items: Iterable[_T]) -> None:
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        """The samples, indented."""
        return f"{indent}[{', '.join(map(str, self))}]"

    def raw_iterator(self) -> Iterator[_T]:
        """The samples as they are held."""
        yield from self.items
