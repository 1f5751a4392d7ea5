"""Words for how losses are reduced, as code of losses asks for them by PyTorch's private names."""

from torchgrad_jax.nn.loss import REDUCTIONS, former_reduction, reduction_of
from torchgrad_jax.runtime.user_code import warn_user


def get_enum(reduction: str) -> int:
    """0 for "none", 1 for "mean", 2 for "sum". ValueError for another word."""
    if reduction == "elementwise_mean":
        warn_user("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.")
        return get_enum("mean")
    return REDUCTIONS.index(reduction_of(reduction))


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """The word for what these two, each True if None, said before there was one."""
    if emit_warning:
        return reduction_of("", *[argument is None or bool(argument) for argument in (size_average, reduce)])
    return former_reduction(size_average, reduce)


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    """Its number."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
