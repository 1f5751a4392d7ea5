"""Files of `torch.save`, damaged in every way, and what `torch.load` says to them: ``python -m compat_suite.saved_files --help``.

Each file must load or be refused by an error that says so. None may run code, crash, hang or take memory beyond what a file of its size needs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from compat_suite.processes import in_batches, in_processes
from compat_suite.saved_files import mutations, places

BATCH = 1000


def options() -> argparse.Namespace:
    """The command line."""
    found = argparse.ArgumentParser("python -m compat_suite.saved_files", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("seeds", nargs="*", help=argparse.SUPPRESS)
    found.add_argument("--files", type=int, default=10_000, help="how many damaged files are loaded")
    found.add_argument("--first", type=int, default=0, help="the number of the first one, which says how it is damaged")
    found.add_argument("--jobs", type=int, default=1)
    found.add_argument("--places", type=Path, help="only write the table of PyTorch's modules that the package keeps")
    found.add_argument("--json", type=Path, help=argparse.SUPPRESS)
    return found.parse_args()


def main() -> int:
    """The command. 1 where a file was not answered as it should be."""
    chosen = options()
    if chosen.places:
        places.write(chosen.places)
        return 0
    if chosen.seeds:
        mutations.limit_memory()
        chosen.json.write_text(json.dumps([mutations.outcome(int(seed), patience=20) for seed in chosen.seeds]))
        return 0
    seeds = [str(n) for n in range(chosen.first, chosen.first + chosen.files)]
    counts, wrong = Counter[str](), 0
    for ended in in_processes(in_batches(seeds, BATCH), chosen.jobs, lambda batch: ["-m", "compat_suite.saved_files", *batch]):
        if ended.found is None:
            counts[f"ended the process with {ended.status}"] += 1
            print(f"file {ended.batch[0]} ended the process with {ended.status}")
            wrong += 1
            continue
        for seed, (said, good) in zip(ended.batch, ended.found, strict=True):
            counts[said.partition(":")[0]] += 1
            if not good:
                print(f"file {seed}: {said}")
                wrong += 1
    print(f"{sum(counts.values())} files: " + ", ".join(f"{n} {what}" for what, n in counts.most_common()))
    print(f"{wrong} not answered as they should be")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
