"""`torch.backends.cpu`."""

from functools import cache
from typing import Any

import numpy as np

# What NumPy calls a processor's vectors, by releases, and what PyTorch does; the best last.
_NAMES = {"AVX2": "AVX2", "X86_V3": "AVX2", "AVX512_SKX": "AVX512", "X86_V4": "AVX512"}


@cache
def get_cpu_capability() -> str:
    """The vectors of this machine's processor, by PyTorch's names: ``"DEFAULT"``, ``"AVX2"`` or ``"AVX512"``. XLA and NumPy use what there is."""
    said: Any = np.show_config(mode="dicts")
    of_machine = said["SIMD Extensions"]
    found = [_NAMES[name] for name in (*of_machine.get("baseline", ()), *of_machine.get("found", ())) if name in _NAMES]
    return max(found, default="DEFAULT", key=len)
