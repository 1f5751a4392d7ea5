"""Make ``torch`` and every ``torch.*`` name, and ``functorch``, resolve to torchgrad_jax in this process.

A finder at the front of ``sys.meta_path`` owns these names, so an installed PyTorch is never
reached. What torchgrad_jax has is the very same object under both names. What it lacks fails at
its use and not at its import: ``from torch.x import Y`` binds an `Unavailable`, and ``torch.Y``
raises an AttributeError that says where to look. Where a program is prepared for its absence, by
``except ImportError`` around the import, the import does raise one.
"""

from __future__ import annotations

import dis
import functools
import importlib
import sys
import typing
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any, NoReturn

from torchgrad_jax import torch_version
from torchgrad_jax.cli import neighbours
from torchgrad_jax.cli.guarded import is_guarded
from torchgrad_jax.runtime import lazy

PACKAGE = "torchgrad_jax"
ALIAS = "torch"
# What each name at the top means; `functorch` is what `torch.func` was before.
ALIASES = {ALIAS: PACKAGE, "functorch": f"{PACKAGE}.func.functorch"}

# Namespaces of PyTorch, by the last part of their names. Modules of torchgrad_jax with other names are
# its implementation and stay untouched: a module-level __getattr__ slows attribute access to its module.
_NAMESPACES = """
    accelerator amp ao autograd backends compiler cpu cuda distributed distributions export fft func
    futures fx hub jit library linalg masked monitor mps mtia multiprocessing nested nn onnx optim
    overrides package profiler quantization quasirandom random return_types serialization signal sparse special storage
    testing types utils version xpu
    functional init modules parameter parametrize rnn forward_ad function grad_mode gradcheck graph
    lr_scheduler checkpoint data dlpack hooks profiler_util profiler_legacy itt
    _dynamo _inductor _logging torch_version __config__ _tensor_str benchmark tensorboard deterministic cpp_extension model_zoo collect_env nvtx
    parallel _jit_internal _subclasses fake_tensor experimental proxy_tensor
"""


def is_installed() -> bool:
    """Whether `import torch` means torchgrad_jax."""
    return any(isinstance(finder, AliasFinder) for finder in sys.meta_path)


def install() -> None:
    """Put the finder in front of all others; `import torch` means torchgrad_jax from here on."""
    if is_installed():
        return
    if ALIAS in sys.modules:
        raise RuntimeError(f"{ALIAS} has been imported already; {PACKAGE} cannot take its name in this process")
    _rename()
    sys.meta_path.insert(0, AliasFinder())


# Classes that programs print; what is pickled of their instances names functions of torchgrad_jax instead.
_SHOWN = {"Tensor": ALIAS, "Size": ALIAS, "device": ALIAS, "Parameter": f"{ALIAS}.nn.parameter"}
# Functions that modes are asked about, which tell them by their module: to leave out what fills parameters.
_TOLD_BY_MODULE = "uniform_", "normal_", "constant_", "kaiming_uniform_"


def _rename() -> None:
    """Let `torch.__version__` be the one that is followed, `type(x)` read ``<class 'torch.Tensor'>``, and modes find functions in their module."""
    package = importlib.import_module(PACKAGE)
    # What programs ask is which of PyTorch's versions they have; some by SemVer's rules, which know no underscore.
    own = f"{PACKAGE.replace('_', '-')}{package.__version__}"
    package.__dict__["__version__"] = torch_version.TorchVersion(f"{torch_version.PYTORCH}+{own}")
    for name, home in _SHOWN.items():
        kind = package.nn.Parameter if name == "Parameter" else getattr(package, name)
        kind.__module__ = home
    for name in _TOLD_BY_MODULE:
        getattr(package.nn.init, name).__module__ = f"{ALIAS}.nn.init"


class AliasFinder(MetaPathFinder, Loader):
    """Finds and loads ``torch`` and ``torch.*``, and ``functorch``."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return a spec for every name under them, available or not, and for packages that read tensors by their addresses."""
        if fullname.partition(".")[0] not in ALIASES:
            return neighbours.find(fullname, path)
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Replace the empty `module` in ``sys.modules``; the import system takes it from there."""
        name = module.__name__
        found = _resolve(name)
        if isinstance(found, ModuleType) and not isinstance(found, Unavailable):
            _adopt(found, name)
            if name == ALIAS:
                # Programs that are handed a namespace, or patch it, ask it which library it is. `__spec__` tells who it is here.
                found.__dict__["__name__"] = name
        sys.modules[name] = found


def _resolve(name: str) -> Any:
    """The object behind the module name `name`: torchgrad_jax's or an `Unavailable`."""
    parent, _, child = name.rpartition(".")
    if isinstance(sys.modules.get(parent), Unavailable):
        return _absent(name)
    ours = _our_name(name)
    try:
        return importlib.import_module(ours)
    except ModuleNotFoundError as error:
        if error.name != ours or not parent:
            raise  # the module exists and something that it imports does not
    # A namespace need not be a submodule of its parent.
    found = getattr(sys.modules[parent], child, None)
    return _absent(name) if found is None else found


def _absent(name: str) -> Unavailable:
    """What stands for a module that is missing. ModuleNotFoundError where the import is prepared for that."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _is_machinery(frame):
        frame = frame.f_back
    if frame is not None and is_guarded(frame, module=True):
        raise ModuleNotFoundError(f"No module named {name!r}: {_message(name)}", name=name)
    return _placeholder(name)


def _is_machinery(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "importlib" or _is_ours(frame)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == PACKAGE


def _our_name(name: str) -> str:
    top = name.partition(".")[0]
    return ALIASES[top] + name.removeprefix(top)


class _AliasedModule(ModuleType):
    """A module on which the import system does not bind placeholders, so that hasattr stays False. One that could be called still can."""

    def __setattr__(self, name: str, value: object) -> None:
        if not isinstance(value, Unavailable):
            super().__setattr__(name, value)


@functools.cache
def _aliased(kind: type) -> type:
    """_AliasedModule, of a module that is of a class of its own."""
    return _AliasedModule if kind is ModuleType else type(_AliasedModule.__name__, (_AliasedModule, kind), {})


def _adopt(module: ModuleType, name: str) -> None:
    """Let `module` and the namespaces in it answer for what they lack, under their PyTorch names."""
    if lazy.is_unloaded(module):
        lazy.load(module)
    if isinstance(module, _AliasedModule):
        return
    module.__class__ = _aliased(type(module))
    # A plain module may be a package in PyTorch: `import torch.optim.lr_scheduler` asks for the path.
    module.__dict__.setdefault("__path__", [])
    module.__dict__["__getattr__"] = _missing_attribute_hook(module, name, module.__dict__.get("__getattr__"))
    for attribute, value in list(vars(module).items()):
        is_submodule = isinstance(value, ModuleType) and value.__name__ == f"{module.__name__}.{attribute}"
        if is_submodule and attribute in _NAMESPACES.split():
            dotted = f"{name}.{attribute}"
            sys.modules.setdefault(dotted, value)
            if lazy.is_unloaded(value) and "__path__" not in vars(value):
                lazy.when_loaded(value, functools.partial(_adopt, name=dotted))
            else:
                _adopt(value, dotted)


def _missing_attribute_hook(module: ModuleType, name: str, own: Callable[[str], Any] | None) -> Callable[[str], Any]:
    def __getattr__(attribute: str) -> Any:
        if own is not None:
            try:
                return own(attribute)
            except AttributeError:
                pass
        frame = sys._getframe(1)
        if _is_from_import(frame) and not is_guarded(frame, module=False):
            return _placeholder(f"{name}.{attribute}")
        # name and obj let the interpreter suggest a similar name.
        raise AttributeError(_message(f"{name}.{attribute}"), name=attribute, obj=module)

    return __getattr__


def _is_from_import(frame: FrameType) -> bool:
    """Whether `frame` is executing ``from module import name``, outside torchgrad_jax.

    The two statements ``from torch import x`` and ``torch.x`` look up the same attribute; only the
    instruction tells them apart.
    """
    if _is_ours(frame):
        return False
    code, position = frame.f_code.co_code, frame.f_lasti
    while code[position] == dis.EXTENDED_ARG:
        position += 2
    return dis.opname[code[position]] == "IMPORT_FROM"


def _message(name: str) -> str:
    parent = name.rpartition(".")[0]
    while parent in _placeholders:
        parent = parent.rpartition(".")[0]
    advice = next((said for start, said in _ADVICE.items() if f"{name}.".startswith(f"{ALIAS}.{start}.")), "")
    return (
        f"{name} is not available in {PACKAGE}; {advice}{advice and '; '}`torchgrad-jax scan PATH` lists what else a program uses of what is not, "
        f'and what is available is shown by: python -c "import {PACKAGE}; print(dir({_our_name(parent)}))"'
    )


# What to do instead, by the beginning of the name after `torch.`.
_PLAIN, _GRAPHS = "keep the model in float32, float16 or bfloat16", "torchgrad_jax.to_jax(function) is what JAX can trace, show and export"
_ADVICE = {
    "distributed.tensor": "arrays are laid out over devices by jax.sharding", "distributed": "run it as one process, which uses all of JAX's devices",
    "nn.parallel.DistributedDataParallel": "run it as one process, without wrapping the model", "export": _GRAPHS, "fx": _GRAPHS, "onnx": _GRAPHS,
    "ao": _PLAIN, "quantization": _PLAIN, "nn.quantized": _PLAIN, "nn.intrinsic": _PLAIN, "nn.qat": _PLAIN,
    "sparse": "use torch.sparse_coo_tensor", "sparse_bsr_tensor": "use torch.sparse_coo_tensor", "sparse_bsc_tensor": "use torch.sparse_coo_tensor",
    "nested": "pad, or pack sequences",
    "package": "import the module, and load its state_dict", "utils.mobile_optimizer": _GRAPHS, "_dynamo": "torch.compile is JAX's here",
    "_inductor": "XLA generates the code", "utils._python_dispatch": "torch.overrides.TorchFunctionMode sees each public call",
    "jit": "TorchScript is not there; the Python function runs as it is",
}  # fmt: skip


class Unavailable(ModuleType):
    """Stands for a module, class, function or constant of PyTorch that torchgrad_jax does not have.

    It can be imported, passed around and named in annotations, and no object is an instance of it;
    any other use raises AttributeError. Being a module, it serves both ``import torch.x`` and ``from torch import x``.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__dict__["__path__"] = []  # a package: `import torch.x.y` succeeds too

    def __getattr__(self, name: str) -> Any:
        frame = sys._getframe(1)
        if _is_from_import(frame) and not is_guarded(frame, module=False):
            return _placeholder(f"{self.__name__}.{name}")
        raise AttributeError(_message(f"{self.__name__}.{name}"))

    def __setattr__(self, name: str, value: object) -> None:
        if not isinstance(value, Unavailable):
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"<{self.__name__}: not available in {PACKAGE}>"

    # Equality and hash stay those of objects: what does not exist equals nothing else.

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __subclasscheck__(self, subclass: type) -> bool:
        return subclass is self

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007 - `|` would come back here

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007


def _raise_on_use(self: Unavailable, *args: Any, **kwargs: Any) -> NoReturn:
    raise AttributeError(_message(self.__name__))


# A base class asks __mro_entries__.
_USES = """
    call mro_entries enter exit aenter aexit bool len iter next contains
    getitem setitem delitem lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv
    rfloordiv mod rmod pow rpow matmul rmatmul neg pos abs invert and rand xor rxor int float index
"""
for _use in _USES.split():
    setattr(Unavailable, f"__{_use}__", _raise_on_use)

_placeholders: dict[str, Unavailable] = {}


def _placeholder(name: str) -> Unavailable:
    if name not in _placeholders:
        _placeholders[name] = Unavailable(name)
    return _placeholders[name]
