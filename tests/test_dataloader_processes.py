"""Workers of a `DataLoader` from their beginning to their end, in programs by themselves: none is left behind, whatever happens."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import torchgrad_jax

pytestmark = [
    pytest.mark.operators,
    pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork"),
]
ROOT = str(Path(torchgrad_jax.__file__).parents[1])
# Each program begins with this: a dataset as people write it in a script, which could not be pickled, and no guard around the rest. It hears Ctrl-C
# where these tests run in the background, too.
BEGINNING = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self, wait=0.0):  # from the third on
        self.file, self.make, self.wait = open(__file__), lambda i: torch.full((3,), float(i)), wait
    def __len__(self):
        return 8
    def __getitem__(self, i):
        time.sleep(self.wait if i > 1 else 0)
        return self.make(i) + 1, os.getpid()

"""


def begun(folder, program):
    """A process that runs the program by `torchgrad-jax run`, as unmodified scripts are; first of a session of its own, as in a terminal."""
    script = folder / "script.py"
    script.write_text(BEGINNING + program)
    # Where there is one processor, two workers are more than there should be.
    ignored = "error,ignore::ResourceWarning,ignore:This DataLoader will create 2 worker processes"
    own = os.environ | {"PYTHONPATH": ROOT, "PYTHONWARNINGS": ignored}
    command = [sys.executable, "-m", "torchgrad_jax.cli", "run", str(script)]
    return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def is_there(pid):
    """Whether a process is there and runs: one that has ended and that nobody has asked after is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pids):
    """Whether all of them end soon."""
    until = time.monotonic() + 20
    while any(map(is_there, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(map(is_there, pids))


def pids_of(process):
    """What a program has printed of its workers, before it does what it is about."""
    line = process.stdout.readline()
    assert line.startswith("workers"), line + process.stderr.read()
    return [int(word) for word in line.split()[1:]]


def test_a_script_without_guard_runs_and_leaves_nobody(tmp_path):
    process = begun(tmp_path, """
w = torch.ones(60, 60)
for _ in range(40):
    w = (w @ w).sin()
w.sum().item()  # XLA runs
loader = DataLoader(Rows(), batch_size=4, num_workers=2, shuffle=True)
pids = set()
for epoch in range(2):
    for x, who in loader:
        pids |= set(who.tolist())
print("workers", *pids)
print(sorted(x.sum(1).tolist()), x.dtype)
""")  # fmt: skip
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and not errors, errors
    first, second = out.splitlines()
    assert len(first.split()) == 5 and "torch.float32" in second  # four workers, two in each pass
    assert gone([int(pid) for pid in first.split()[1:]])


@pytest.mark.parametrize("ending", ["pass", "raise ValueError('of the loop')", "sys.exit(3)", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_however_a_program_ends_its_workers_do(tmp_path, ending):
    process = begun(tmp_path, f"""
loaders = [DataLoader(Rows(0.01), batch_size=1, num_workers=2, persistent_workers=persistent) for persistent in (True, False)]
passed = [iter(loader) for loader in loaders]
print("workers", *[next(one)[1].item() for one in passed for _ in range(2)], flush=True)
{ending}
""")  # fmt: skip
    pids = pids_of(process)
    _, errors = process.communicate(timeout=60)
    assert len(set(pids)) == 4 and gone(pids)
    assert ("of the loop" in errors) == ("raise" in ending) and "DataLoader" not in errors and "Process" not in errors, errors


def test_a_loop_that_is_left_ends_its_workers_at_once(tmp_path):
    process = begun(tmp_path, """
import multiprocessing
for x, who in DataLoader(Rows(), batch_size=1, num_workers=2):
    print("workers", who.item(), flush=True)
    break
print(len(multiprocessing.active_children()))
lasting = DataLoader(Rows(), batch_size=1, num_workers=2, persistent_workers=True)
for x, who in lasting:
    break
again = [x[0, 0].item() for x, who in lasting]
print(again, len(multiprocessing.active_children()))
del lasting
print(len(multiprocessing.active_children()))
""")  # fmt: skip
    pids = pids_of(process)
    out, errors = process.communicate(timeout=60)
    assert not errors and gone(pids), errors
    assert out.splitlines() == ["0", "[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0] 2", "0"]


def test_ctrl_c_is_the_programs_and_its_workers_end_silently(tmp_path):
    """Ctrl-C reaches all processes of a terminal. Whether workers wait for a task or are making a batch makes no difference."""
    process = begun(tmp_path, """
passed = [iter(DataLoader(Rows(wait), batch_size=1, num_workers=2)) for wait in (0, 60)]
try:
    print("workers", *[next(one)[1].item() for one in passed for _ in range(2)], flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
    raise
""")  # fmt: skip
    pids = pids_of(process)
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert out == "interrupted\n" and errors.count("KeyboardInterrupt") == 1 and "Process" not in errors, errors
    assert gone(pids)


def test_a_forked_worker_takes_what_xla_has_computed(tmp_path):
    """By NumPy alone: what it would ask XLA for would wait for threads that are not there."""
    process = begun(tmp_path, """
from torchgrad_jax.runtime import baseline_tier
class Computed(Rows):
    def __init__(self):
        with baseline_tier(False):
            self.x = torch.arange(16.0).reshape(8, 2) + 1
            self.x.tolist()
    def __getitem__(self, i):
        return self.x[i] * 2

if __name__ == "__main__":
    print(torch.cat(list(DataLoader(Computed(), 4, num_workers=1, multiprocessing_context="fork"))).sum().item())
""")  # fmt: skip
    out, errors = process.communicate(timeout=120)
    assert out == "272.0\n" and not errors, errors


def test_a_started_worker_starts_no_backend_of_jax(tmp_path, monkeypatch):
    """By spawn and forkserver, where the guard is needed, as in PyTorch, and `import torch` means the same."""
    monkeypatch.delenv("TORCHGRAD_JAX_BASELINE", raising=False)  # whoever wants XLA everywhere wants it here, too
    process = begun(tmp_path, """
class Plain(Rows):
    def __init__(self):
        self.x = torch.arange(200_000.0).reshape(8, -1)
    def __getitem__(self, i):
        made = (self.x[i] * 2).sin().sum(), torch.nn.functional.relu(torch.randn(5)).sum()
        import jax._src.xla_bridge as bridge
        return made[0], len(bridge._backends), torch.initial_seed()

if __name__ == "__main__":
    found = []
    for way in ("fork", "forkserver", "spawn"):
        torch.manual_seed(0)
        found.append([[part.tolist() for part in b] for b in DataLoader(Plain(), 4, num_workers=1, multiprocessing_context=way)])
        assert found[-1][0][1] == [0, 0, 0, 0]
    print(found[0] == found[1] == found[2])
""")  # fmt: skip
    out, errors = process.communicate(timeout=120)
    assert out == "True\n" and not errors, errors
