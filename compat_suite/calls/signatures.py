"""PyTorch's calling conventions, asked of the installed PyTorch: what each function's own error messages and schemas say of its arguments."""

from __future__ import annotations

import inspect
import re
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import torchgrad_jax as tj
from compat_suite.calls.operands import Operands

# Namespaces by the name that the table of signatures has for them.
NAMESPACES = {"": "torch", "Tensor.": "Tensor", "linalg.": "linalg", "special.": "special", "fft.": "fft", "nn.functional.": "nn.functional"}
_TYPES = {
    "Number": "Scalar", "tuple of ints": "int[]", "tuple of Tensors": "Tensor[]", "torch.dtype": "dtype", "torch.device": "device",
    "torch.layout": "layout", "torch.memory_format": "memory_format", "torch.Generator": "Generator", "tuple of floats": "float[]",
    "tuple of Scalars": "Scalar[]", "tuple of Numbers": "Scalar[]", "tuple of Scalar": "Scalar[]",
}  # fmt: skip
KINDS = {*_TYPES.values(), "Tensor", "int", "float", "bool", "str", "int[1]", "truth", "bool!"}
_SCHEMA_TYPES = {"SymInt": "int", "ScalarType": "dtype", "Device": "device", "Layout": "layout", "MemoryFormat": "memory_format"}
# Bound by hand in PyTorch, without a schema of the name.
_MEMORY = "*, dtype dtype = None, layout layout = torch.strided, device device = None, bool pin_memory = False, bool requires_grad = False"
_CAST = "*, memory_format memory_format = torch.preserve_format"
_STFT = (
    "int n_fft, int hop_length = None, int win_length = None, Tensor window = None, bool center = True, str pad_mode = 'reflect', "
    "bool normalized = False, bool onesided = None, bool return_complex = None, bool align_to_window = None"
)
_BY_HAND = {
    **dict.fromkeys(("Tensor.bfloat16", "Tensor.bool", "Tensor.byte", "Tensor.char", "Tensor.double", "Tensor.float", "Tensor.half", "Tensor.int",
                     "Tensor.long", "Tensor.short", "Tensor.cfloat", "Tensor.cdouble"), _CAST),
    "Tensor.nonzero": "*, bool as_tuple = False", "nonzero": "Tensor input, *, bool as_tuple = False, Tensor out = None",
    "Tensor.size": "int dim = None", "Tensor.stride": "int dim = None", "Tensor.cpu": "*, memory_format memory_format = None",
    "Tensor.is_contiguous": "*, memory_format memory_format = torch.contiguous_format",
    "Tensor.contiguous": "*, memory_format memory_format = torch.contiguous_format",
    "Tensor.numpy": "*, bool force = False", "Tensor.new_tensor": "any data, *, dtype dtype = None, device device = None, bool requires_grad = False",
    "Tensor.map_": "Tensor other, any callable",
    "Tensor.map2_": "Tensor x, Tensor y, any callable",
    **{name: f"{of}{_STFT}" for name, of in (("stft", "Tensor input, "), ("Tensor.stft", ""))},
    "nn.functional.logsigmoid": "Tensor input, *, Tensor out = None", "get_autocast_cpu_dtype": "", "get_autocast_gpu_dtype": "",
    "Tensor.apply_": "any callable", "Tensor.as_subclass": "any cls",
    "Tensor.type": "any dtype = None, bool non_blocking = False", "from_numpy": "any ndarray",
    "tensor": "any data, *, dtype dtype = None, device device = None, bool pin_memory = False, bool requires_grad = False",
    "as_tensor": "any data, *, dtype dtype = None, device device = None",
    "empty": f"int[] size, *, memory_format memory_format = None, Tensor out = None, {_MEMORY[3:]}",
    "zeros": f"int[] size, *, Tensor out = None, {_MEMORY[3:]}", "ones": f"int[] size, *, Tensor out = None, {_MEMORY[3:]}",
    "full": f"int[] size, Scalar fill_value, *, Tensor out = None, {_MEMORY[3:]}",
    **dict.fromkeys(("Tensor.data_ptr", "Tensor.ndimension", "Tensor.nelement", "Tensor.tolist", "Tensor.untyped_storage", "get_num_threads",
                     "get_num_interop_threads", "get_default_dtype", "is_inference_mode_enabled", "is_autocast_cache_enabled"), ""),
}  # fmt: skip
# What a call of these does to the whole process.
_NOT_ASKED = re.compile(r"^(set_|_|manual_seed|seed$|save$|load$|cuda$|xpu$|ipu$|mtia$|hpu$|share_memory|use_deterministic|autocast_|compile$)")


# Functions whose tensors may be numbers.
_NUMBERS = re.compile(r"^(add|sub|mul|div|multiply|divide|subtract|true_divide|floor_divide)_?$|^copy_$")
# What PyTorch still takes, with a warning, and does not list.
_DEPRECATED = """
add(Tensor input, Scalar alpha, Tensor other)
sub(Tensor input, Scalar alpha, Tensor other)
addcmul(Tensor input, Scalar value, Tensor tensor1, Tensor tensor2)
addcdiv(Tensor input, Scalar value, Tensor tensor1, Tensor tensor2)
addmm(Scalar beta, Tensor input, Scalar alpha, Tensor mat1, Tensor mat2)
addmm(Scalar beta, Tensor input, Tensor mat1, Tensor mat2)
addmv(Scalar beta, Tensor input, Scalar alpha, Tensor mat, Tensor vec)
addmv(Scalar beta, Tensor input, Tensor mat, Tensor vec)
addr(Scalar beta, Tensor input, Scalar alpha, Tensor vec1, Tensor vec2)
addr(Scalar beta, Tensor input, Tensor vec1, Tensor vec2)
addbmm(Scalar beta, Tensor input, Scalar alpha, Tensor batch1, Tensor batch2)
addbmm(Scalar beta, Tensor input, Tensor batch1, Tensor batch2)
baddbmm(Scalar beta, Tensor input, Scalar alpha, Tensor batch1, Tensor batch2)
baddbmm(Scalar beta, Tensor input, Tensor batch1, Tensor batch2)
"""


def table() -> str:
    """The signatures of all functions whose arguments PyTorch's own binding checks, as the package keeps them."""
    found = []
    for namespace in NAMESPACES:
        for name in shared_names(namespace):
            lines = signatures_of(namespace, name)
            if isinstance(getattr(found_in(torch, namespace), name), types.FunctionType):
                optional = _optional(getattr(found_in(torch, namespace), name))
                found += [_probed(line, optional) for line in lines if "**" not in line]
                continue
            lines = [_as_bound(line) for line in lines] + _deprecated(namespace, name)
            if _NUMBERS.match(name):
                lines = [re.sub(r"Tensor (input|other)", r"Tensor|Scalar \1", line) for line in lines]
            found += lines
    return "".join(f"{line}\n" for line in found)


def _optional(function: Callable[..., Any]) -> set[str]:
    """The parameters that a function in Python says may be None."""
    return {name for name, p in inspect.signature(function).parameters.items() if re.search("None|Optional", str(p.annotation))}


def _probed(line: str, optional: set[str]) -> str:
    """The signature of a function written in Python, with the types that PyTorch demands: what it says of an argument that is none of them."""
    from compat_suite.calls.cases import base_call, parsed, works

    signature = parsed(line)
    call = base_call(signature)
    short = said_by = line.partition("(")[0].rpartition(".")[2]
    for i, p in enumerate(signature.parameters if call is not None else ()):
        said = _error(call.text({**call.arguments, p.name: "object()"}))
        demanded = re.search(r"argument '(\w+)'.* must be ([\w. ]+?)(, not|, but)", said)
        kind = _TYPES.get(demanded.group(2), demanded.group(2)) if demanded else "any"
        if demanded and demanded.group(1) not in p.name and not (kind == "Tensor" and p.default is None):
            kind = "any"  # it is another's
        if "Boolean value of Tensor" in _error(call.text({**call.arguments, p.name: "A"})):
            kind = {"any": "truth", "bool": "bool!"}.get(kind, kind)
        if asked := re.match("'object' object has no attribute '(\\w+)'", said):
            kind = f".{asked.group(1)}"
        if kind == "int[]" and " must be " not in _error(call.text({**call.arguments, p.name: "2"})):
            kind = "int[1]"
        if kind not in KINDS and kind[0] != ".":
            kind = "any"
        takes_none = (p.name in optional and kind == "Tensor") or works(call.text({**call.arguments, p.name: "None"}))
        none = "?" if p.default != "None" and kind != "any" and takes_none else ""
        if demanded and i == 0:
            said_by = said.partition("(")[0]
        line = line.replace(f"any {p.name}", f"{kind}{none} {p.name}", 1)
    return f"python{'' if said_by == short else ':' + said_by} {line}"


def _error(text: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(text, {}, Operands(torch))
    except (TypeError, AttributeError, RuntimeError) as error:
        return str(error)
    except Exception:
        pass
    return ""


_DEFAULTS = {
    "dtype dtype = 4": "dtype dtype = torch.int64", "bool pin_memory = None": "bool pin_memory = False", "memory_format = 0": "memory_format = None",
}  # fmt: skip


def _as_bound(line: str) -> str:
    """The signature with what only a call tells: that results of the function can be written to `out`, and that it makes leaves."""
    from compat_suite.calls.cases import base_call, parsed, works

    for written, meant in _DEFAULTS.items():
        line = line.replace(written, meant)
    call = base_call(parsed(line))
    if call is None:
        return line
    if "Tensor out = None" in line and not works(call.text(extra="out=None")):
        line = line.replace(", Tensor out = None", "").replace(", *)", ")")
    if "pin_memory" in line and "requires_grad" not in line and works(call.text(extra="requires_grad=False")):
        line = f"{line[:-1]}, bool requires_grad = False)"
    for p in parsed(line).parameters:
        # What has a default that is not None takes None for it where the binding says so nowhere.
        if p.default not in (None, "None") and "?" not in p.kind and works(call.text({**call.arguments, p.name: "None"})):
            line = line.replace(f"{p.kind} {p.name} = ", f"{p.kind}? {p.name} = ", 1)
    return line


def _deprecated(namespace: str, name: str) -> list[str]:
    short = name.removesuffix("_")
    lines = [line for line in _DEPRECATED.splitlines() if line.startswith(f"{short}(")]
    if namespace == "Tensor.":
        return [f"deprecated Tensor.{name}({line.partition('(')[2].replace('Tensor input, ', '')}" for line in lines]
    return [f"deprecated {line[:-1]}, *, Tensor out = None)" for line in lines] if namespace == "" and short == name else []


def found_in(root: Any, namespace: str) -> Any:
    """The namespace of a library."""
    for part in NAMESPACES[namespace].split("."):
        root = root if part == "torch" else getattr(root, part)
    return root


def shared_names(namespace: str) -> list[str]:
    """Public functions of the namespace that both libraries have."""
    theirs, ours = found_in(torch, namespace), found_in(tj, namespace)
    found = []
    for name in sorted(dir(theirs)):
        both = [getattr(theirs, name, None), getattr(ours, name, None)] if not _NOT_ASKED.match(name) else [None]
        if all(callable(f) and not isinstance(f, (type, types.ModuleType)) for f in both):
            found.append(name)
    return found


def signatures_of(namespace: str, name: str) -> list[str]:
    """Each way to call the function, ``name(type parameter=default, ...)``; none where PyTorch does not tell."""
    function = getattr(found_in(torch, namespace), name)
    if namespace + name in _BY_HAND:
        return [f"{namespace}{name}({_BY_HAND[namespace + name]})"]
    if isinstance(function, types.FunctionType):
        found = [_of_python(function, namespace == "Tensor.")]
    else:
        message = _refusal(namespace, name)
        schemas = [s for s in _schemas(namespace, name) if s is not None]
        if "expected one of:" in message:
            listed = re.findall(r"^ \* \((.*)\)$", message, re.MULTILINE)
            found = [_merged(_parts(text), schemas) for text in listed]
        elif listed := re.search(r"but expected \((.*)\)$", message):
            found = [_merged(_parts(listed.group(1)), schemas)]
        else:
            found = [_single(namespace, message, schemas)]
    return [f"{namespace}{name}({', '.join(parts)})" for parts in found if parts is not None]


def _refusal(namespace: str, name: str) -> str:
    arguments: list[Any] = [object()] * 40
    if namespace == "Tensor.":
        arguments[0] = torch.ones(2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(found_in(torch, namespace), name)(*arguments)
    except Exception as error:
        return str(error)
    return ""


def _of_python(function: Callable[..., Any], method: bool) -> list[str] | None:
    try:
        parameters = list(inspect.signature(function).parameters.values())[int(method) :]
    except (TypeError, ValueError):
        return None
    found, keyword = [], False
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            keyword = True
            found.append(f"*{p.name}")
        elif p.kind is p.VAR_KEYWORD:
            found.append(f"**{p.name}")
        else:
            if p.kind is p.KEYWORD_ONLY and not keyword:
                keyword = True
                found.append("*")
            found.append(f"any {p.name}" + ("" if p.default is p.empty else f" = {p.default!r}"))
    return found


def _parts(text: str) -> list[str]:
    found, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
    return [p for p in [*found, text[start:].strip()] if p]


def _typed(part: str) -> tuple[str, str, str | None]:
    """Type, name and default of ``tuple of ints dim = None``."""
    head, equals, default = part.partition("=")
    kind, _, name = head.strip().rpartition(" ")
    return kind, name, default.strip() if equals else None


def _merged(parts: list[str], schemas: list[list[tuple[str, str, str | None]]]) -> list[str]:
    """A signature from a message, with what only the schema says: which tuples may be one number, and what may be None."""
    known = {name: kind for schema in schemas for kind, name, _ in schema if "?" in kind or re.search(r"\[\d", kind)}
    found = []
    for part in parts:
        if part == "*":
            found.append(part)
            continue
        kind, name, default = _typed(part)
        kind = _TYPES.get(kind, kind)
        other = known.get("self" if name == "input" else name, "")
        kind = other.rstrip("?") if kind == "int[]" and other.startswith("int[") else kind
        kind += "?" if other.endswith("?") and default is None else ""
        found.append(f"{kind} {name}" + ("" if default is None else f" = {default}"))
    return found


def _schemas(namespace: str, name: str) -> Iterator[list[tuple[str, str, str | None]] | None]:
    prefix = {"linalg.": "linalg_", "special.": "special_", "fft.": "fft_"}.get(namespace, "")
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{prefix}{name}"):
        text = str(schema)
        if "Dimname" in text or " str self" in text or re.search(r"\bt\[\]|Dict|Any|AnyEnumType", text):
            continue
        found, keyword = [], False
        for a in schema.arguments:
            kind = re.sub("|".join(_SCHEMA_TYPES), lambda m: _SCHEMA_TYPES[m.group()], _kind(text, a.name))
            if a.kwarg_only and not keyword:
                keyword = True
                found.append(("*", "*", None))
            found.append((kind, a.name, repr(a.default_value) if a.has_default_value() else None))
        yield found


def _kind(text: str, name: str) -> str:
    match = re.search(rf"[(,] ?((?:[A-Za-z]+)(?:\([^)]*\))?(?:\[\d*\])?\??) {name}(?:=|,|\))", text)
    return match.group(1) if match else "any"


def _single(namespace: str, message: str, schemas: list[list[tuple[str, str, str | None]]]) -> list[str] | None:
    """The one signature of a function, from its schema."""
    count = re.search(r"takes (?:no|from \d+ to (\d+)|(\d+)) (?:positional )?argument", message)
    tensors = [s for s in schemas if any(name == "self" for _, name, _ in s)] or schemas
    plain = [s for s in tensors if not any("!" in kind and name != "self" for kind, name, _ in s)] or tensors
    if not plain:
        return None
    chosen = plain[0]
    if count is not None and count.group(1) or count is not None and count.group(2):
        positional = int(count.group(1) or count.group(2))
        chosen = next((s for s in plain if _positional(s) - (namespace == "Tensor.") == positional), chosen)
    writes = len(tensors) > len(plain) and namespace != "Tensor."
    found = []
    for written, name, default in chosen:
        kind = re.sub(r"\([^)]*\)", "", written)
        if namespace == "Tensor." and name == "self":
            continue
        label = "input" if name == "self" else name
        kind = kind if default is None else kind.rstrip("?")
        found.append("*" if kind == "*" else f"{kind} {label}" + ("" if default is None else f" = {default}"))
    if writes:
        several = max(sum("!" in kind for kind, _, _ in s) + ("out" in [n for k, n, _ in s if "[]" in k]) for s in tensors) > 1
        found += [*([] if "*" in found else ["*"]), f"Tensor{'[]' if several else ''} out = None"]
    return found


def _positional(schema: list[tuple[str, str, str | None]]) -> int:
    names = [kind for kind, _, _ in schema]
    return names.index("*") if "*" in names else len(names)
