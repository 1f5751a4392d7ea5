"""Entry point of ``python -m torchgrad_jax``: the command ``torchgrad-jax``."""

import sys

from torchgrad_jax.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
