"""What random programs leave out, each with its reason. `--include NAME` puts it back."""

from __future__ import annotations

EXCLUDED = {
    "layouts": "results are row-major where PyTorch's follow the memory order of the operands: such results are copied",
    "texts": "of what is raised, the class is compared: a call that is wrong in two ways may be refused for the other one, and kernels have names",
}
# Attributes of nodes that are not asked for.
UNSHOWN = {"_saved_mask"}  # a mask is turned into indices before anything is recorded
