"""Runs many random programs through PyTorch and torchgrad_jax and prints, made as short as possible, those that differ.

    python tests/search_programs.py 10000 --seed 3 --mode eager

Each program has a seed of its own, so a search goes on where another ended. Compiled programs are not given back: each 500 run in a process.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

CHUNK = 500
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
# Compiling dominates: what was compiled in another process is found on disk, and nothing is made to run fast.
QUICK = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
}  # fmt: skip


def compare(ours, theirs, line, raised, expected, values):
    """What differs after a line, in words; None where nothing does."""
    from programs import difference

    states = [(None, run.calls, run.observe(values)) for run in (ours, theirs)]
    return difference([(line, raised, None), states[0]], [(line, expected, None), states[1]])


def generate(seed, length):
    """A random program, what differed first, and whether values were looked at after each line."""
    from programs import Run
    from statements import STATEMENTS, Author

    import torchgrad_jax

    chance = random.Random(seed)
    author = Author(lambda choices: chance.choice(list(choices)))
    values, ours = chance.random() < 0.5, Run(torchgrad_jax)
    for i in range(chance.randrange(4, length)):
        written = (Author.leaf if i < 2 or not author.run.tensors() else chance.choice(STATEMENTS))(author)
        if written is None:
            continue
        line, expected = author.line(written)
        if expected is not None and "INTERNAL ASSERT" in expected[1]:  # PyTorch's own bug, after which its tensors are not to be relied on
            return author.lines, None, values
        found = compare(ours, author.run, line, ours.do(line), expected, values)
        if found:
            return author.lines, found, values
    return author.lines, compare(ours, author.run, "the end", None, None, True), values


def run(lines, values):
    """What differs first in a program; None where nothing does, or where it is no program."""
    import torch
    from programs import Run

    import torchgrad_jax

    ours, theirs = Run(torchgrad_jax), Run(torch)
    for line in lines:
        raised, expected = ours.do(line), theirs.do(line)
        if expected is not None and (expected[0] == "NameError" or "INTERNAL ASSERT" in expected[1]):
            return None
        found = compare(ours, theirs, line, raised, expected, values)
        if found:
            return found
    return compare(ours, theirs, "the end", None, None, True)


def kind(found):
    """A difference without names and numbers."""
    return re.sub(r"\b[a-z]\d+\b|\d+", "#", found.rpartition("`")[2])[:60]


def shortened(lines, values, found):
    """The program without the lines that its difference does not need."""
    wanted, shrinks = kind(found), True
    while shrinks:
        shrinks = False
        for i in reversed(range(len(lines))):
            without = lines[:i] + lines[i + 1 :]
            now = run(without, values)
            if now and kind(now) == wanted:
                lines, found, shrinks = without, now, True
    return lines, found


def search(first, count, mode, length):
    """Run the programs of some seeds. How many differed."""
    from torchgrad_jax.runtime import execution_mode

    differing = 0
    with execution_mode(mode):
        for seed in range(first, first + count):
            lines, found, values = generate(seed, length)
            if found:
                differing += 1
                lines, found = shortened(list(lines), values, found)
                print(f"--- seed {seed}, values looked at {'at each step' if values else 'at the end'}", *lines, f"  {found}", sep="\n", flush=True)
    return differing


def main():
    """Run the programs, some in this process or all in several others, and exit with 1 where one differs."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("count", type=int)
    options.add_argument("--seed", type=int, default=0, help="of the first program")
    options.add_argument("--mode", choices=["eager", "fused"], default="eager")
    options.add_argument("--length", type=int, default=21, help="statements are fewer than this")
    options.add_argument("--cache", default=str(Path.home() / ".cache" / "torchgrad_jax_search"), help="where compiled operations are kept")
    chosen = options.parse_args()
    if chosen.count <= CHUNK:
        faulthandler.enable()
        sys.exit(search(chosen.seed, chosen.count, chosen.mode, chosen.length) > 0)
    begin, failed = time.monotonic(), 0
    environment = {**os.environ, **QUICK, "JAX_COMPILATION_CACHE_DIR": chosen.cache}
    for first in range(chosen.seed, chosen.seed + chosen.count, CHUNK):
        count = min(CHUNK, chosen.seed + chosen.count - first)
        command = [sys.executable, __file__, str(count), "--seed", str(first), "--mode", chosen.mode, "--length", str(chosen.length)]
        failed += subprocess.run(command, env=environment, check=False).returncode != 0
        done = first + count - chosen.seed
        print(f"{done} programs, {done / (time.monotonic() - begin):.1f} a second", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
