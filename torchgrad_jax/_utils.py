"""What pickles name: see `runtime/pickles.py`."""

import torchgrad_jax.nn.modules.calling  # noqa: F401 - loaded late, and has a class that pickles name
from torchgrad_jax.runtime.pickles import rebuilding as _rebuilding

globals().update(_rebuilding)
