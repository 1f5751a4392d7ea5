"""JAX's persistent compilation cache, for whoever asks for it: what one process compiled the next one reads from disk."""

from __future__ import annotations

import os

VARIABLE = "TORCHGRAD_JAX_CACHE"


def use() -> None:
    """Keep what is compiled in the directory that `TORCHGRAD_JAX_CACHE` names, if it names one.

    It is JAX's own cache (`jax_compilation_cache_dir`), for the whole process and without its thresholds, which are made for programs that
    take seconds to compile.
    """
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    import jax

    jax.config.update("jax_compilation_cache_dir", os.path.abspath(os.path.expanduser(directory)))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
