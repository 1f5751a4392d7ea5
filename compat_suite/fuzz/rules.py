"""What random programs leave out, each with its reason. `--include NAME` puts it back."""

from __future__ import annotations

EXCLUDED = {
    "layouts": "results are row-major where PyTorch's follow the memory order of the operands: such results are copied",
}
