"""Runs random programs with PyTorch and with torchgrad_jax, and prints those that differ, made as short as possible, as scripts.

A program is 5 to 30 statements: views, in-place writes, indexing, reductions, casts, NaN and infinities, integers, hooks, backward passes,
gradients, grad modes, loops whose structure changes. Compared are values, shapes, dtypes, strides, versions, bases, names of nodes, flags, gradients,
the calls of hooks and what is raised. Each program has a seed of its own, so that a search goes on where another ended. With `--relatives`, programs
that are like it but for a detail are run in turn with it in one process: what is remembered of one must not be taken for another.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Thread

from compat_suite.fuzz.rules import EXCLUDED

MODES = ("fused", "eager")
# What another process compiled is found on disk, and nothing is made to run fast: in eager mode compiling would be most of the work.
QUICK = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
}  # fmt: skip
OLD = 100  # programs after which what was compiled of them is kept out of the garbage collector's way
ALIKE = 1000  # programs one after the other that have the same dtypes in eager mode, where each dtype is compiled for
SHRUNK = 2  # programs of one kind are made short; the others are counted


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    if importlib.util.find_spec("torch") is None:
        sys.exit("the programs are compared with PyTorch: install it, python -m pip install torch")
    found = argparse.ArgumentParser("python -m compat_suite fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("count", type=int, help="how many programs")
    found.add_argument("--seed", type=int, default=0, help="of the first program (default: 0)")
    found.add_argument("--mode", choices=MODES, default="fused", help="whether operations are recorded (default), or each runs at once by XLA")
    found.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    found.add_argument("--memory", type=int, default=3000, metavar="MIB", help="a process that has grown to this is replaced (default: 3000)")
    found.add_argument("--relatives", type=int, default=0, metavar="N", help="of each program, to be run after it (default: 0)")
    found.add_argument("--include", nargs="+", default=[], choices=list(EXCLUDED), help="; ".join(f"{k}: {v}" for k, v in EXCLUDED.items()))
    found.add_argument("--cache", default=str(Path.home() / ".cache" / "torchgrad_jax_fuzz"), help="where compiled operations are kept")
    found.add_argument("--step", type=int, default=0, help=argparse.SUPPRESS)  # between the seeds of one of several processes
    return found.parse_args(arguments)


# ---------------------------------------------------------------------- in a process


def work(chosen: argparse.Namespace) -> None:
    """Run programs; a line of JSON before each, and for each that differs."""
    import torch

    from compat_suite.fuzz.author import DTYPES, FEW, FEWER
    from compat_suite.fuzz.relatives import family
    from compat_suite.fuzz.scripts import script
    from compat_suite.fuzz.search import differs, generate
    from compat_suite.fuzz.shrinking import shrunk
    from torchgrad_jax.runtime import execution_mode, keeping
    from torchgrad_jax.runtime._jax_compat import share_ir_contexts

    faulthandler.enable()
    torch.set_num_threads(1)
    share_ir_contexts()
    keeping.SOFT = keeping.HARD = sys.maxsize  # a process that has grown is replaced
    kinds: Counter[str] = Counter()
    shapes = FEWER if chosen.mode == "eager" else FEW
    excluded = EXCLUDED.keys() - set(chosen.include)
    with execution_mode(chosen.mode):
        for seed in range(chosen.seed, chosen.seed + chosen.count, chosen.step):
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > chosen.memory * 1024:
                return
            print(json.dumps({"begins": seed}), flush=True)
            if (seed - chosen.seed) // chosen.step % OLD == 0:  # what is known by now is not looked through again and again
                gc.collect()
                gc.freeze()
            dtypes = DTYPES[seed // ALIKE % len(DTYPES)] if chosen.mode == "eager" else None
            steps, found = generate(seed, excluded, shapes, dtypes)
            # Whoever wrote it has looked at PyTorch's tensors, which makes nodes of views anew: what differs does so when nobody has.
            found = found and differs(steps, excluded)
            if found is None and chosen.relatives:
                steps, found = family(seed, steps, excluded, chosen.relatives)
            if found:
                kinds[found.kind] += 1
                if kinds[found.kind] <= SHRUNK:
                    steps, found = shrunk(steps, found, excluded)
                    print(json.dumps({"seed": seed, "kind": found.kind, "found": str(found), "script": script(steps, found)}), flush=True)
                else:
                    print(json.dumps({"seed": seed, "kind": found.kind}), flush=True)
    print(json.dumps({"begins": None}), flush=True)


# ---------------------------------------------------------------------- the processes


class Search:
    """What the processes have found."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen, self.begin = chosen, time.monotonic()
        self.done = 0
        self.kinds: Counter[str] = Counter()

    def tell(self, told: dict[str, str]) -> None:
        """Print a program that differs."""
        self.kinds[told["kind"]] += 1
        if "script" in told and self.kinds[told["kind"]] <= SHRUNK:
            print(f"# --- seed {told['seed']}: {told['found']}\n{told['script']}", flush=True)

    def progress(self) -> None:
        """Print how far it is."""
        seconds = time.monotonic() - self.begin
        print(f"# {self.done} programs in {seconds:.0f} s, {self.done / seconds:.1f} a second; {self.kinds.total()} differ", flush=True)

    def job(self, number: int) -> None:
        """One of the processes after the other, for every so many-th seed."""
        chosen, seed, end = self.chosen, self.chosen.seed + number, self.chosen.seed + self.chosen.count
        environment = {**os.environ, **QUICK, "JAX_COMPILATION_CACHE_DIR": chosen.cache}
        while seed < end:
            command = [sys.executable, "-m", "compat_suite", "fuzz", str(end - seed), "--seed", str(seed), "--step", str(chosen.jobs)]
            command += ["--relatives", str(chosen.relatives)]
            command += ["--mode", chosen.mode, "--memory", str(chosen.memory), *(["--include", *chosen.include] if chosen.include else [])]
            begins: int | None = seed - chosen.jobs
            with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
                for row in process.stdout or ():
                    told = json.loads(row)
                    if "begins" in told:
                        begins = told["begins"]
                        self.done += begins is not None
                    else:
                        self.tell(told)
            if process.returncode and begins is not None:
                self.tell({"kind": "crash", "seed": str(begins), "found": f"the process ended with {process.returncode}", "script": ""})
            if begins is None:
                return
            seed = begins + chosen.jobs


def main(arguments: list[str] | None = None) -> None:
    """Run the programs in processes, and exit with 1 where one differs."""
    chosen = options(arguments)
    if chosen.step:
        return work(chosen)
    search = Search(chosen)
    threads = [Thread(target=search.job, args=(number,), daemon=True) for number in range(chosen.jobs)]
    for thread in threads:
        thread.start()
    told = time.monotonic()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.2)
        if time.monotonic() - told > 30:
            told = time.monotonic()
            search.progress()
    search.progress()
    for kind, count in search.kinds.most_common():
        print(f"# {count} times {kind}")
    sys.exit(bool(search.kinds))
