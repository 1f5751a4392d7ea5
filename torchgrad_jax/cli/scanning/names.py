"""What torchgrad_jax has of torch: the answer to a dotted name."""

from __future__ import annotations

import ast
import collections
import datetime
import functools
import importlib
import importlib.resources
import inspect
import io
import pathlib
import re
import sys
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

from torchgrad_jax.cli.alias import ALIASES, PACKAGE

TENSOR, MODULE, FUNCTION, CONTEXT, OPTIMIZER = (
    "torch.Tensor", "torch.nn.Module", "torch.autograd.Function", "torch.autograd.function.FunctionCtx", "torch.optim.Optimizer",
)  # fmt: skip
# What an instance has that its class has not, by way of the class that has it here.
_STAND_INS = {CONTEXT: "torch.autograd.function.BackwardCFunction"}


# In the place of a module that needs a package which is not installed.
_EXTRA = object()


class Answer(NamedTuple):
    """What a dotted name is here.

    name: as far as it is torch's: `torch.float32.itemsize` ends with the dtype. found: whether it is here. value: what it is.
    """

    name: str
    found: bool
    value: Any = None

    @property
    def is_module(self) -> bool:
        """Whether it is a namespace."""
        return isinstance(self.value, ModuleType)

    @property
    def is_class(self) -> bool:
        """Whether it is a class."""
        return isinstance(self.value, type)


def is_torch(name: str) -> bool:
    """Whether a module's dotted name is torch's."""
    return name.partition(".")[0] in ALIASES


@functools.cache
def look_up(name: str) -> Answer:
    """What is found at a dotted name that begins with `torch`."""
    parts = name.split(".")
    value: Any = importlib.import_module(ALIASES[parts[0]])
    for i, part in enumerate(parts[1:], 1):
        if not isinstance(value, (ModuleType, type)):
            return Answer(".".join(parts[:i]), True, value)
        above, value = value, _member(value, part)
        if value is None and not _has(above, part):
            return Answer(_up_to_class(parts, i), False)
    return Answer(name, True, value)


def _up_to_class(parts: list[str], first: int) -> str:
    """The name of what is missing from part `first` on. What a missing class has is missing with it; classes are told by their capital letter."""
    for i in range(first, len(parts)):
        if parts[i][:1].isupper():
            return ".".join(parts[: i + 1])
    return ".".join(parts)


def _has(owner: Any, part: str) -> bool:
    try:
        return hasattr(owner, part) or (isinstance(owner, type) and part in _of_instances(owner))
    except Exception:  # an attribute that is there and cannot be asked for now
        return True


def _member(owner: Any, part: str) -> Any:
    """The attribute of a module or class, or the module's submodule, `_EXTRA` for one that needs a package which is not there; None where there is
    none."""
    try:
        return getattr(owner, part)
    except AttributeError:
        pass
    except Exception:
        return None
    if isinstance(owner, ModuleType) and owner.__name__.partition(".")[0] == PACKAGE and hasattr(owner, "__path__"):
        try:
            return importlib.import_module(f"{owner.__name__}.{part}")
        except ModuleNotFoundError as error:
            # A package that is not installed is missing under PyTorch too.
            return None if (error.name or PACKAGE).partition(".")[0] == PACKAGE else _EXTRA
    return None


def has_member(kind: str, member: str) -> bool | None:
    """Whether instances of a torch class have an attribute here. None: that cannot be told, or it is not torch's."""
    answer = look_up(_STAND_INS.get(kind, kind))
    if answer.is_class:
        if _has(answer.value, member):
            return True
        for base, names in members().items():
            ours = look_up(_STAND_INS.get(base, base))
            if member in names and ours.is_class and issubclass(answer.value, ours.value):
                return False
    elif member in members().get(kind, ()):
        return False
    return None


@functools.cache
def _of_instances(kind: type) -> frozenset[str]:
    """What instances of a class have beside what it has itself, as far as it says so."""
    declared = frozenset(name for base in kind.__mro__ for name in inspect.get_annotations(base))
    module = look_up(MODULE).value
    return declared | frozenset(vars(module())) if issubclass(kind, module) else declared


@functools.cache
def members() -> dict[str, frozenset[str]]:
    """By class, the names that instances have in PyTorch (members.txt)."""
    text = importlib.resources.files(__name__.rpartition(".")[0]).joinpath("members.txt").read_text()
    found: dict[str, set[str]] = {}
    names: set[str] = set()
    for line in text.splitlines():
        if line.startswith(" "):
            names.update(line.split())
        elif not line.startswith("#"):
            names = found.setdefault(line, set())
    return {kind: frozenset(names) for kind, names in found.items()}


# ---------------------------------------------------------------------- what calls give

# What has several results, or one that is no tensor, where the stubs do not say so.
_OTHERWISE = """
    max min median nanmedian mode kthvalue sort topk cummax cummin aminmax unique unique_consecutive histogram histogramdd
    multi_head_attention_forward lstm gru rnn_tanh rnn_relu adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d max_pool1d
    max_pool2d max_pool3d fractional_max_pool2d fractional_max_pool3d split chunk unbind tensor_split vsplit hsplit dsplit split_with_sizes
    meshgrid broadcast_tensors where nonzero item tolist numpy
"""


@functools.cache
def _stubs(file: str) -> frozenset[str]:
    """The functions of a stub that give one tensor, whatever they are called with."""
    tree = ast.parse((pathlib.Path(sys.modules[PACKAGE].__path__[0]) / file).read_text())
    tensors: set[str] = set()
    others: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            given = node.returns is not None and ast.unparse(node.returns) in ("Tensor", "Self")
            (tensors if given else others).add(node.name)
    return frozenset(tensors - others - set(_OTHERWISE.split()) - set(look_up("torch.return_types").value.__all__))


def gives_tensor(name: str) -> bool:
    """Whether a function or a method is known to give one tensor."""
    space, _, last = name.rpartition(".")
    if space == TENSOR:
        return last in _stubs("core/declared.pyi") or last in ("requires_grad_", "detach", "detach_", "to", "clone", "view", "expand", "new_tensor")
    if space == "torch":
        return last in _stubs("__init__.pyi")
    return (
        space == "torch.nn.functional"
        and last not in _OTHERWISE.split()
        and not last.endswith("_with_indices")
        and inspect.isroutine(look_up(name).value)
    )


# Attributes of a tensor that are tensors.
TENSOR_ATTRIBUTES = {"T", "mT", "H", "mH", "data", "grad", "real", "imag"}


# ---------------------------------------------------------------------- what a method's name tells

# Members of tensors that mean something else often enough: in other libraries, and in plain English.
_COMMON = """
    abs add all any apply apply_ char chunk clip copy corr cov cpu cuda cummax cummin cumprod cumsum data det detach device diff div dot
    double dtype eig eq exp expand fill flip flatten float floor gather ge grad gt half histogram imag index indices int inverse ipu isin
    isnan item layout le log logdet long lstsq lt map mean median min max mode mtia mul name names ne nonzero norm numpy pow prod ptp put
    quantile rank real reduce reinforce rename repeat reshape resize roll round sample scatter select shape sign size smm solve sort split
    square std stft istft storage storage_type sub sum swapaxes symeig take tile to to_dense trace transpose trunc type unfold unique
    unstack update values var view where xpu zero_ index_add select_scatter addr backward digamma erf gcd lcm lerp reciprocal matmul ormqr
    qr svd conj angle retain_grad register_hook cross slice_inverse coalesce is_coalesced dense_dim is_shared bool byte short ndim nbytes
    itemsize T H mT mH squeeze requires_grad is_leaf pin_memory record_stream
"""


@functools.cache
def telling() -> frozenset[str]:
    """Names of members that only a tensor has, as far as Python, NumPy and PyTorch's other classes go."""
    kinds = (
        object, str, bytes, bytearray, int, float, complex, bool, list, tuple, dict, set, frozenset, range, slice, type, property, memoryview,
        collections.Counter, collections.deque, collections.OrderedDict, datetime.datetime, datetime.timedelta, io.TextIOWrapper, io.BytesIO,
        pathlib.Path, re.Pattern, re.Match, BaseException, np.ndarray, np.float64, np.dtype, np.random.Generator, np.random.RandomState, jax.Array,
        inspect.Signature, inspect.Parameter, ast.AST, ModuleType,
    )  # fmt: skip
    others = {name for kind in kinds for name in dir(kind)} | set(_COMMON.split())
    for kind, names in members().items():
        if kind != TENSOR:
            others |= names
    return frozenset(name for name in members()[TENSOR] - others if not name.startswith("_"))
