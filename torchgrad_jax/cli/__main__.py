"""Entry point of ``python -m torchgrad_jax.cli``."""

import sys

from torchgrad_jax.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
