"""`__torch_function__` of what is no function of tensors: factories, attributes, methods
that modes see, and functions that PyTorch has under two names as one object."""

from __future__ import annotations

import warnings

from side_by_side import caught, like_pytorch


@like_pytorch
def test_functions_that_are_torchs_own_are_the_same_objects(m):
    F = m.nn.functional
    absent = "conv_tbc", "native_channel_shuffle"
    both = [name for name in dir(F) if name.islower() and name[0] != "_" and name not in absent and callable(getattr(F, name))]
    return [name for name in both if getattr(m, name, 0) is getattr(F, name)]


@like_pytorch
def test_torch_function_is_asked_by_factories(m):
    class Asked:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function.__name__, len(args), sorted(kwargs or {})

    a, found = Asked(), []
    for name in ("zeros", "ones", "empty", "rand", "randn"):
        f = getattr(m, name)
        m.zeros((2, 3))  # sequences of numbers are known by then
        found += [f(a), f((a, 2)), f(2, a), f([2, a]), f(3, device=a), f(3, dtype=a), f((2, 3)).shape]
    found += [m.arange(a), m.arange(1, a, 2), m.linspace(0, 1, a), m.eye(2, a), m.full((2, a), 1), m.full((2,), a), m.randperm(a), m.randint(2, a)]
    return [*found, m.tensor([1.0], device=a), m.as_tensor(1.0, dtype=a), m._assert(a, "x"), m.sym_int(a), m.einsum("i,i", [m.ones(1), a])]


@like_pytorch
def test_subclasses_are_asked_what_kind_of_tensor_it_is(m):
    asked = []
    names = "is_sparse", "is_quantized", "is_nested", "is_mkldnn", "is_mps", "is_xpu", "layout"

    class Asked(m.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.extend(name for name in names if func == getattr(m.Tensor, name).__get__)
            return super().__torch_function__(func, types, args, kwargs or {})

    x, plain = m.ones(2).as_subclass(Asked), m.ones(2)
    told = [str(getattr(x, name)) for name in names]
    refused = [caught(lambda name=name: setattr(plain, name, True)) for name in names]
    return told, asked, refused, m.Tensor.is_sparse.__get__(plain), m.Tensor.is_sparse is m.Tensor.is_mps


@like_pytorch
def test_the_types_that_modes_are_told_of_methods_of_plain_tensors(m):
    told = []

    class Mode(m.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            told.append((m.overrides.resolve_name(func), [kind.__name__ for kind in types]))
            return func(*args, **(kwargs or {}))

    x, one = m.ones(2), m.ones(1)
    with Mode():
        found = x.tolist(), x.dim(), x.detach(), one.item(), float(one), bool(one), x.new_tensor([1.0]), x.numel(), x.is_shared(), x.size(), x.add(1)
    return found, told


@like_pytorch
def test_arguments_by_name_are_passed_on_where_there_are_some(m):
    """Functions of C that were given none by name leave a handler its own default; functions in Python pass theirs on."""
    seen = []

    class Told:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs="none"):
            seen.append((func.__name__, kwargs if isinstance(kwargs, str) else sorted(kwargs)))
            return 1

    class ByTheInstance:
        def __torch_function__(func, types, args=(), kwargs=None):  # noqa: N805 - the instance is its first argument
            return len(args)

    class Mode(m.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((func.__name__, None if kwargs is None else sorted(kwargs)))
            return func(*args, **(kwargs or {}))

    x, told = m.ones(2), Told()
    calls = [
        lambda y: m.add(x, y), lambda y: m.add(x, y, alpha=2), lambda y: m.cat([x, y]), lambda y: x + y, lambda y: x @ y,
        lambda y: m.broadcast_tensors(x, y), lambda y: m.fft.fft(y), lambda y: m.nn.functional.softmax(y, 0),
        lambda y: m.nn.functional.logsigmoid(y),
    ]  # fmt: skip
    for call in calls:
        call(told)
        with Mode():
            call(x)
    for call in (lambda: x**2, lambda: 2 / x, lambda: +x, lambda: x - 1):
        with Mode():
            call()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of plain methods
        return seen, m.add(x, ByTheInstance()), m.sin(ByTheInstance())


@like_pytorch
def test_operators_tell_their_names(m):
    names = [f"__{prefix}{name}__" for name in ("add", "sub", "mul", "truediv", "mod", "pow") for prefix in ("", "i", "r")]
    names += ["__matmul__", "__lt__", "__le__", "__gt__", "__ge__", "__ne__", "__eq__", "__pos__", "__and__", "__ror__"]
    names.remove("__itruediv__")  # under which PyTorch has __idiv__

    return [getattr(m.Tensor, name).__name__ for name in names]


@like_pytorch
def test_categories_may_be_what_only_behaves_like_a_tensor(m):
    asked = []

    def bare(x):
        return [bare(y) for y in x] if isinstance(x, (list, tuple)) else x.held if isinstance(x, Like) else x

    class Like:
        def __init__(self, held):
            self.held = held

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append(func.__name__)
            result = func(*bare(args), **(kwargs or {}))
            return [cls(part) for part in result] if isinstance(result, (list, tuple)) else cls(result)

        def __getattr__(self, name):
            found = getattr(m.Tensor, name)
            return (lambda *args: Like.__torch_function__(found, (Like,), (self, *args))) if callable(found) else found.__get__(self.held)

        def __getitem__(self, index):
            return Like(self.held[index])

    distribution = m.distributions.Categorical(logits=m.arange(8.0).reshape(2, 4), validate_args=False)
    chosen = distribution.log_prob(Like(m.tensor([[1, 2], [3, 0], [1, 1]])))
    return type(chosen).__name__, chosen.held.tolist(), asked
