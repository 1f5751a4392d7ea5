"""Which operators there are, by family: public functions, methods and attributes of tensors, gathered where they are one operator."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torchgrad_jax
from torchgrad_jax.declaration.operator import Operator
from torchgrad_jax.operators import registry

SPACES = ("torch", "Tensor", "nn.functional", "linalg", "fft", "special")
PACKAGE = "torchgrad_jax."
# The pages of docs/operators: title, and sections with the modules whose operators and functions they hold.
FAMILIES: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "elementwise": ("Element-wise operators", {
        "Arithmetic, powers, exponentials, trigonometry, rounding": ("operators.pointwise", "functions.arithmetic"),
        "Special functions, parts of floating-point numbers": ("operators.special",),
        "Bessel's and Airy's functions, orthogonal polynomials": ("operators.special_functions.bessel", "operators.special_functions.polynomials"),
        "Comparison, logic and bits": ("operators.logic",),
    }),
    "reductions": ("Reductions, extremes and order", {
        "Sums, means, variances": ("operators.reduction", "functions.reductions"),
        "Extremes and limits": ("operators.extreme",),
        "Products, cumulative operators": ("operators.cumulative", "operators.segments"),
        "Sorting, searching, counting": ("operators.sorting",),
        "Quantiles, covariance, areas under curves": ("functions.statistics",),
    }),
    "shapes": ("Shapes, views and indexing", {
        "Views": ("operators.views", "functions.views"),
        "Copies": ("functions.copies",),
        "Joining, cutting, repeating, mirroring": ("operators.shape", "functions.shaping"),
        "Indexing, gathering, scattering": ("operators.indexing", "functions.indexing", "functions.gathering"),
        "Size, layout and memory of a tensor itself": ("functions.resizing",),
    }),
    "matrices": ("Matrices and linear algebra", {
        "Products": ("operators.matrix", "functions.matrices.products"),
        "Solutions, inverses, determinants": ("operators.linalg", "operators.kernels.linalg_errors", "functions.matrices.decompositions"),
        "Eigenvalues, singular values, QR": ("operators.spectral", "functions.matrices.low_rank"),
        "Norms and distances": ("operators.norm", "functions.matrices.norms", "nn.distance"),
    }),
    "fourier": ("Fourier transforms", {
        "Transforms and their frequencies": ("functions.signals.fourier",),
        "Transforms of short times, windows": ("nn.short_time", "functions.signals.windows"),
    }),
    "neural_networks": ("Neural networks", {
        "Activations and softmax": ("operators.activation", "nn.activation"),
        "Linear layers": ("nn.linear",),
        "Convolutions": ("operators.convolution", "nn.convolution"),
        "Pooling": ("nn.pooling", "nn.fractional", "nn.unpooling"),
        "Normalization": ("nn.normalization",),
        "Dropout": ("nn.dropout",),
        "Attention": ("nn.dot_product", "nn.multihead"),
        "Recurrent layers": ("nn.recurrent",),
        "Embeddings and one-hot vectors": ("operators.embedding", "nn.sparse"),
        "Padding, pixel shuffling, interpolation": ("operators.padding", "nn.padding"),
        "Sampling at points of a grid": ("operators.grid", "nn.grid"),
        "Losses": ("operators.loss", "nn.loss", "nn.margins", "nn.ctc", "nn.linear_cross_entropy"),
    }),
    "creation": ("Making and converting tensors", {
        "From data, shapes and other arrays": ("functions.creation", "functions.arrays", "functions.dlpack"),
        "Random numbers": ("functions.random", "functions.random_factories"),
        "Filling": ("operators.filling",),
        "Conversions": ("functions.conversion", "functions.looking", "namespace.methods"),
        "What PyTorch has removed": ("functions.legacy",),
    }),
    "tensors": ("Tensors themselves", {
        "Attributes": ("attributes",),
        "Questions": ("core.tensor", "core.viewing", "functions.questions"),
        "Gradients and hooks": ("autograd.backward",),
        "Memory, subclasses, Python functions": ("functions.storages", "functions.subclass", "functions.on_host"),
        "Sparse tensors": ("sparse.making", "sparse.products", "sparse.attributes", "sparse.resizing"),
    }),
}  # fmt: skip
# Modules of public functions that are no operators: settings, modes, transforms.
LEFT_OUT = frozenset({
    "autograd.anomaly_mode", "autograd.autocast_mode", "autograd.grad_mode", "autograd.mixed_precision", "declaration.dtypes",
    "calling.for_users", "determinism", "func.branching", "func.vmapping", "functions.formatting", "lifting.from_jax", "lifting.jitting",
    "lifting.to_jax", "namespace.checks", "namespace.late", "namespace.symbolic", "runtime.settings", "runtime.user_code",
})  # fmt: skip
# Where users look for what is written elsewhere.
_HOMES = {
    "operators.extreme": "clamp clamp_max clamp_min max maximum min minimum",
    "operators.filling": "fill zero_",
    "operators.indexing": "argwhere masked_fill masked_select nonzero nonzero_static",
    "operators.logic": "allclose equal isin where",
    "operators.matrix": "matmul",
    "operators.pointwise": "pow",
    "operators.sorting": "bincount bucketize histc msort searchsorted unique unique_consecutive",
    "operators.spectral": "eig eigh eigvals eigvalsh householder_product lstsq matrix_exp matrix_rank orgqr pinv pinverse qr svd svdvals",
    "operators.views": "adjoint expand_as H imag mH mT real reshape_as split split_with_sizes T unbind view_as",
    "functions.conversion": "type_as",
    "functions.copies": "alias_copy as_strided_copy clone detach_copy diagonal_copy expand_copy narrow_copy permute_copy select_copy slice_copy "
    "split_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_as_complex_copy "
    "view_as_real_copy view_copy",
    "functions.creation": "empty_permuted empty_strided new new_empty_strided range scalar_tensor tril_indices triu_indices",
    "functions.gathering": "as_strided_scatter diagonal_scatter select_scatter slice_scatter",
    "functions.matrices.products": "vander",
    "functions.questions": "is_inference is_tensor",
}
HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
SETTINGS = ("get_default_device", "load_ipython_extension", "set_default_device", "set_default_tensor_type")
DUNDERS = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "truediv": "div", "pow": "pow", "mod": "remainder", "matmul": "matmul",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
}  # fmt: skip


@dataclass(eq=False)
class Row:
    """One operator. names: where it is found, and as what; inplace: names of its forms that write into a tensor; parameters: what its forms take;
    module: where it is declared or written."""

    module: str
    names: list[tuple[str, str]] = field(default_factory=list)
    inplace: list[str] = field(default_factory=list)
    parameters: set[str] = field(default_factory=set)
    alone: str | None = None  # the declared operator's own name

    @property
    def shown(self) -> list[str]:
        """Its names, each once: the operator's own first."""
        return sorted(dict.fromkeys(n for _, n in self.names), key=lambda n: n != self.alone)

    @property
    def writing(self) -> list[str]:
        """Its forms that write into a tensor, in the order of its names; at last the argument."""
        return sorted(dict.fromkeys(self.inplace), key=lambda n: self.shown.index(n[:-1]) if n[:-1] in self.shown else len(self.shown))

    @property
    def out(self) -> bool:
        """Whether it takes `out=`."""
        return "out" in self.parameters

    @property
    def spaces(self) -> list[str]:
        """Where it is found."""
        return [s for s in SPACES if any(s == space for space, _ in self.names)]


def space(name: str) -> Any:
    """A namespace."""
    found: Any = torchgrad_jax
    for part in () if name == "torch" else name.split("."):
        found = getattr(found, part)
    return found


def is_operator(value: Any) -> bool:
    """Whether a public object is a function, method or attribute."""
    return isinstance(value, property) or inspect.isroutine(value)


def _public() -> Iterator[tuple[str, str, Any]]:
    for where in SPACES:
        for name in dir(space(where)):
            value = inspect.getattr_static(space(where), name)
            if is_operator(value) and (not name.startswith("_") or name in ("__getitem__", "__setitem__")):
                yield where, name, value


_by_name: dict[str, Operator] = {name: o for o in registry.values() for name in (o.name, *o.aliases)}


def _module_of(function: Any) -> str:
    return (getattr(function, "__module__", None) or "").removeprefix(PACKAGE)


def _operator_of(where: str, name: str, function: Any) -> Operator | None:
    """The declared operator that a public function is, or takes the place of."""
    first = re.match(r"(\w+)\(", getattr(function, "__doc__", None) or "")
    declared = registry.get(first[1]) if first else None
    if declared is not None and declared.schema.text in function.__doc__:
        return declared
    named = _by_name.get(name)
    if named is None or where in ("linalg", "fft", "special"):
        return None
    # Of torch.nn.functional only what belongs there: `unfold` is something else than the view of that name.
    neural = {m for modules in FAMILIES["neural_networks"][1].values() for m in modules}
    return named if where != "nn.functional" or _module_of(named.function) in neural else None


def rows() -> list[Row]:
    """All operators, in the order of their names."""
    found: dict[Any, Row] = {}
    twins: list[tuple[str, str]] = []
    public = list(_public())
    known = {(where, name) for where, name, _ in public}
    for where, name, value in public:
        if name.endswith("_") and not name.startswith("_") and ((where, name[:-1]) in known or ("torch", name[:-1]) in known):
            twins.append((where, name))
            continue
        function = value if isinstance(value, property) else inspect.unwrap(value)
        operator = None if isinstance(value, property) else _operator_of(where, name, function)
        module = HOME.get(name) or _written_in(function, operator)
        if module in LEFT_OUT or name in SETTINGS:
            continue
        keys = [function, *([("same", name)] if where in ("torch", "Tensor", "special") else []), *([operator] if operator is not None else [])]
        row = next((found[key] for key in keys if key in found), None) or Row(module, alone=None if operator is None else operator.name)
        found.update((key, row) for key in keys)
        row.names.append((where, name))
        row.parameters |= _parameters(value)
        if "inplace" in _parameters(value):
            row.inplace.append("inplace=")
    places = index(list(dict.fromkeys(found.values())))
    for where, name in twins:
        row = places.get((where, name[:-1])) or places[("torch", name[:-1])]
        row.inplace.append(name)
    return sorted(dict.fromkeys(found.values()), key=lambda row: row.shown[0].lower())


def _written_in(function: Any, operator: Operator | None) -> str:
    if isinstance(function, property):
        return "attributes"
    return _module_of(function if operator is None else operator.function)


def _parameters(value: Any) -> frozenset[str]:
    return frozenset() if isinstance(value, property) else frozenset(inspect.signature(value).parameters)


def index(found: list[Row]) -> dict[tuple[str, str], Row]:
    """The row of each name in its namespace."""
    return {place: row for row in found for place in row.names}


def row_named(places: dict[tuple[str, str], Row], name: str) -> Row | None:
    """The row of an operator by its name in PyTorch's database: `max.binary`, `linalg.svd`, `__radd__`."""
    where, rest = next(((s, name[len(s) + 1 :]) for s in SPACES[2:] if name.startswith(f"{s}.")), ("torch", name))
    base = rest.split(".")[0]
    if base.startswith("__") and base not in ("__getitem__", "__setitem__"):
        short = base.strip("_")
        base = DUNDERS.get(short) or DUNDERS.get(short.removeprefix("r"), base)
    choices = ((where, base), ("Tensor", base), (where, base.rstrip("_")), ("Tensor", f"{base}_")) if where == "torch" else ((where, base),)
    return next((places[c] for c in choices if c in places), None)
