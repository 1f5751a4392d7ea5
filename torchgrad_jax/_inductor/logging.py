"""`torch._logging`: what a compiler is to log, which is taken and changes nothing. `torchgrad_jax.explain` tells what was compiled, and why."""

from __future__ import annotations

import logging

__all__ = ["set_logs"]

_LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, logging.NOTSET)


def set_logs(*, modules: dict[str, int | bool] | None = None, **logs: int | bool | None) -> None:
    """Takes levels of `logging` for the parts of a compiler, and True or False for what it may show. ValueError for other levels."""
    for name, level in {**(modules or {}), **logs}.items():
        if level is not None and not isinstance(level, bool) and level not in _LEVELS:
            raise ValueError(f"Unrecognized log level for log {name}: {level}, valid level values are: {','.join(map(str, _LEVELS))}")
