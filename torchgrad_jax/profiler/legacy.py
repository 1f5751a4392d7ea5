"""`torch.autograd.profiler_legacy.profile`: the profiler before Kineto."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.profiler.recording import profile as newer_profile
from torchgrad_jax.runtime.user_code import warn_user


class profile(newer_profile):
    """Deprecated: `torch.profiler` is its successor. Its events are those of `torch.autograd.profiler.profile`.

    enabled, use_cuda, record_shapes, with_flops, profile_memory, with_stack: see there. with_modules: AssertionError, as it is none of the old
    profiler's.
    """

    def __init__(
        self, enabled: bool = True, *, use_cuda: bool = False, record_shapes: bool = False, with_flops: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_modules: bool = False,
    ) -> None:  # fmt: skip
        options: dict[str, Any] = {
            "record_shapes": record_shapes, "with_flops": with_flops, "profile_memory": profile_memory, "with_stack": with_stack,
            "with_modules": with_modules,
        }  # fmt: skip
        super().__init__(enabled, **options)
        self.use_cuda = use_cuda
        if use_cuda:
            warn_user("CUDA is not available, disabling CUDA profiling")
            self.use_cuda = False
