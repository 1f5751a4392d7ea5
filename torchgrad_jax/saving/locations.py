"""Where storages go that are loaded, and what files call where they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.functions.storages import TypedStorage, UntypedStorage
from torchgrad_jax.runtime.device import device, gpus

Tagger = Callable[[Any], str | None]
Deserializer = Callable[[Any, str], Any]
_packages: list[tuple[int, Tagger, Deserializer]] = []

_CPU_ONLY = "If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU."


def register_package(priority: int, tagger: Tagger, deserializer: Deserializer) -> None:
    """Ask ``tagger(storage)`` what to call the place of a storage that is saved, and ``deserializer(storage, location)`` for one there when it is
    loaded; each answers None where it does not know. Lower priorities are asked first."""
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda package: package[0])


def location_tag(storage: Any) -> str:
    """What a file calls the place of a storage. RuntimeError where nobody knows."""
    for _, tagger, _ in _packages:
        location = tagger(storage)
        if location:
            return location
    raise RuntimeError(f"don't know how to determine data location of {_kind(storage)}")


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage, which is on the host, where a file says it was. RuntimeError where nobody knows that place."""
    for _, _, deserializer in _packages:
        found = deserializer(storage, location)
        if found is not None:
            return found
    raise RuntimeError(f"don't know how to restore data location of {_kind(storage)} (tagged with {location})")


def _kind(storage: Any) -> str:
    kind = type(storage)
    return f"torch.storage.{kind.__name__}" if kind in (UntypedStorage, TypedStorage) else f"{kind.__module__}.{kind.__qualname__}"


def validate_cuda_device(location: str) -> int:
    """The number of a GPU that a file names. RuntimeError where there is none such."""
    count = len(gpus())
    index = device(location).index
    if not count:
        raise RuntimeError(f"Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. {_CPU_ONLY}")
    index = 0 if index is None else index
    if index >= count:
        raise RuntimeError(
            f"Attempting to deserialize object on CUDA device {index} but torch.cuda.device_count() is {count}. Please use torch.load with "
            "map_location to map your storages to an existing device."
        )
    return index


def validate_hpu_device(location: str) -> int:
    """RuntimeError: JAX has no such devices."""
    raise RuntimeError(f"The HPU device module is not registered. {_CPU_ONLY}")


def _host_tag(storage: Any) -> str | None:
    return "cpu" if storage.device.type == "cpu" else None


def _to_host(storage: Any, location: str) -> Any:
    return storage if location == "cpu" else None


def _device_tag(storage: Any) -> str | None:
    return str(storage.device) if storage.device.type in ("cuda", "xla") else None


def _to_device(storage: Any, location: str) -> Any:
    kind = location.partition(":")[0]
    if kind == "hpu":
        validate_hpu_device(location)
    if kind == "cuda":
        return storage.to(device=f"cuda:{validate_cuda_device(location)}")
    return storage.to(device=location) if kind in ("xla", "meta") else None


register_package(10, _host_tag, _to_host)
register_package(20, _device_tag, _to_device)


def mapper(map_location: Any) -> Callable[[Any, str], Any]:
    """What `map_location` of `torch.load` means, as a function of a storage on the host and the place that the file has for it."""
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        return lambda storage, location: default_restore_location(storage, map_location.get(location, location))
    if isinstance(map_location, (str, bytes, device)):
        where = map_location.decode("ascii") if isinstance(map_location, bytes) else str(map_location)
        return lambda storage, location: default_restore_location(storage, where)

    def ask(storage: Any, location: str) -> Any:
        found = map_location(storage, location)
        return default_restore_location(storage, location) if found is None else found

    return ask
