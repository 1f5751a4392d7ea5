"""Dispatch keys, by name: PyTorch's C++ chooses kernels by them. Here they choose nothing but whether there is autocasting."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NoReturn

from torchgrad_jax.autograd.autocast_mode import is_autocast_enabled, set_autocast_enabled

# With PyTorch's numbers, those of single kinds of devices left out.
_NUMBERS = {
    "Undefined": 0, "Dense": 1, "Quantized": 5, "Sparse": 8, "SparseCsr": 9, "NestedTensor": 10, "BackendSelect": 11, "Python": 13,
    "FuncTorchDynamicLayerBackMode": 14, "Functionalize": 15, "Conjugate": 16, "Negative": 17, "ZeroTensor": 18, "ADInplaceOrView": 19,
    "AutogradOther": 20, "AutogradFunctionality": 21, "AutogradNestedTensor": 22, "AutocastCPU": 24, "AutocastXPU": 27, "AutocastIPU": 28,
    "AutocastHPU": 29, "AutocastMPS": 31, "AutocastCUDA": 32, "AutocastPrivateUse1": 33, "FuncTorchBatched": 34, "FuncTorchVmapMode": 36,
    "FuncTorchGradWrapper": 39, "PythonTLSSnapshot": 41, "FuncTorchDynamicLayerFrontMode": 42, "PreDispatch": 45, "PythonDispatcher": 46, "CPU": 49,
    "CUDA": 50, "XLA": 52, "MPS": 53, "XPU": 55, "Meta": 64, "PrivateUse1": 61, "QuantizedCPU": 66, "QuantizedCUDA": 67, "SparseCPU": 83,
    "SparseCUDA": 84, "SparseCsrCPU": 100, "SparseCsrCUDA": 101, "NestedTensorCPU": 117, "NestedTensorCUDA": 118, "AutogradCPU": 134,
    "AutogradCUDA": 135, "AutogradXLA": 137, "AutogradMPS": 138, "AutogradXPU": 140, "AutogradMeta": 149, "Autograd": 150,
    "CompositeImplicitAutograd": 151, "FuncTorchBatchedDecomposition": 152, "CompositeImplicitAutogradNestedTensor": 153,
    "CompositeExplicitAutograd": 154, "CompositeExplicitAutogradNonFunctional": 155,
}  # fmt: skip


class _Key(IntEnum):
    """What all keys have: they print as PyTorch's do."""

    def __str__(self) -> str:
        return f"DispatchKey.{self.name}"


DispatchKey: Any = _Key("DispatchKey", _NUMBERS, module=__package__)  # type: ignore[call-overload] - members by their numbers


class DispatchKeySet:
    """A set of keys, made of one. TypeError for what is no key."""

    def __init__(self, key: Any) -> None:
        if not isinstance(key, DispatchKey):
            _wrong("DispatchKeySet", "DispatchKey", key)
        self._keys = frozenset((key,))

    @classmethod
    def _of(cls, keys: frozenset[Any]) -> DispatchKeySet:
        made = object.__new__(cls)
        made._keys = keys
        return made

    def has(self, key: Any) -> bool:
        """Whether a key is among them."""
        return key in self._keys

    def add(self, key: Any) -> DispatchKeySet:
        """The set with a further key."""
        return self._of(self._keys | {key})

    def remove(self, key: Any) -> DispatchKeySet:
        """The set without a key."""
        return self._of(self._keys - {key})

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return self._of(self._keys | other._keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return self._of(self._keys & other._keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return self._of(self._keys - other._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(key.name for key in sorted(self._keys))})"


class _ExcludeDispatchKeyGuard:
    """A block without the kernels of some keys. Of autocasting it is true: it is off for the devices in question. Of the graph it would have to be
    true, and is refused: NotImplementedError at the start of the block. There are no kernels of the other keys here, so nothing changes. TypeError
    for what is no set of keys."""

    _DEVICES = {"AutocastCPU": "cpu", "AutocastCUDA": "cuda"}

    def __init__(self, keys: Any) -> None:
        if not isinstance(keys, DispatchKeySet):
            _wrong("_ExcludeDispatchKeyGuard", "DispatchKeySet", keys)
        self._keys = keys
        self._before: list[tuple[str, bool]] = []

    def __enter__(self) -> None:
        graph = [key.name for key in self._keys._keys if "Autograd" in key.name and "Composite" not in key.name or key.name == "ADInplaceOrView"]
        if graph:
            raise NotImplementedError(
                f"torch._C._ExcludeDispatchKeyGuard is not available in torchgrad_jax for {', '.join(sorted(graph))}: use torch.no_grad() or "
                "torch.inference_mode()"
            )
        self._before = [(device, is_autocast_enabled(device)) for name, device in self._DEVICES.items() if self._keys.has(DispatchKey[name])]
        for device, _ in self._before:
            set_autocast_enabled(device, False)

    def __exit__(self, *error: object) -> None:
        for device, was in self._before:
            set_autocast_enabled(device, was)


def _wrong(what: str, wanted: str, given: Any) -> NoReturn:
    raise TypeError(
        "__init__(): incompatible constructor arguments. The following argument types are supported:\n"
        f"    1. torch._C.{what}(arg0: torch._C.{wanted})\n\nInvoked with: {given!r}"
    )
