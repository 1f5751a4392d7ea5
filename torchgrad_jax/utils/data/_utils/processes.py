"""Starting and ending workers."""

from __future__ import annotations

import contextlib
import signal
import time
import warnings
from collections.abc import Iterator
from multiprocessing import connection
from typing import Any

from torchgrad_jax.runtime import worker as runtime_worker
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.utils.data._utils import worker
from torchgrad_jax.utils.data._utils.transport import Channel

# How long workers that are in the middle of a batch have to end it.
GRACE = 5.0


class Worker:
    """A worker as its parent sees it. tasks: how many batches it owes; active: whether it may be asked for more."""

    def __init__(self, context: Any, job: worker.Job, number: int) -> None:
        ours, theirs = context.Pipe()
        self.number = number
        self.channel = Channel(ours)
        self.tasks, self.active = 0, True
        self._waiting: list[Any] = []
        self.process = context.Process(target=worker.run, args=(job, number, theirs), daemon=True)
        try:
            with _forking():
                self.process.start()
        except BaseException:
            self.channel.close()
            raise
        finally:
            theirs.close()

    def ask(self, asked: Any) -> None:
        """Let the worker have a task. If it could not take it at once it is told when it has answered another one: neither side ever waits for the
        other with both directions full."""
        self._waiting.append(asked)
        self.tell()

    def tell(self) -> None:
        """Send what is waiting, as far as the worker can take it."""
        with contextlib.suppress(ConnectionError):  # it is gone, which is seen where its answer is waited for
            while self._waiting and self.channel.is_free():
                self.channel.send(self._waiting[0])
                del self._waiting[0]

    def fate(self) -> str:
        """What has become of a worker that is gone, in words."""
        code = self.process.exitcode
        name = f"DataLoader worker (pid {self.process.pid}) "
        if code is not None and code < 0:
            return f"{name}is killed by signal: {_signal_name(-code)}. "
        return (
            f"{name}exited unexpectedly with exit code {code}. Details are lost due to multiprocessing. "
            "Rerunning with num_workers=0 may give better error trace."
        )


def _signal_name(number: int) -> str:
    return signal.strsignal(number) or f"Unknown signal {number}"


@contextlib.contextmanager
def _forking() -> Iterator[None]:
    """A process is about to be forked: nothing of ours is under way in other threads then, nor pending in this one.

    JAX, and Python from 3.12 on, warn of forking a process with threads: those of XLA stay in the parent. The child does without XLA.
    """
    per_thread.recorder.flush("data")
    runtime_worker.wait_for_all()
    with warnings.catch_warnings():
        for category in (RuntimeWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", message=".*fork", category=category)
        yield


def received(workers: list[Worker], timeout: float | None) -> list[tuple[Worker, Any]]:
    """What workers have answered; waits for one of them. RuntimeError where one that owes something is gone, and where it takes too long."""
    owing = {w.channel.connection: w for w in workers if w.tasks}
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        ready = connection.wait(list(owing), None if until is None else max(until - time.monotonic(), 0))
        if not ready:
            raise RuntimeError(f"DataLoader timed out after {timeout:g} seconds")
        found, gone = [], []
        for one in ready:
            w = owing[one]  # type: ignore[index] - only connections were waited for
            try:
                found.append((w, w.channel.receive()))
            except (EOFError, ConnectionError):
                gone.append(w)
                continue
            w.tasks -= 1
            w.tell()
        if found:
            return found
        for w in gone:
            w.process.join(GRACE)
        pids = ", ".join([str(w.process.pid) for w in gone])
        raise RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly") from RuntimeError(gone[0].fate())


def end(workers: list[Worker]) -> None:
    """End the processes: those that wait for a task at once, the others when they have made their batch, or after `GRACE` seconds."""
    for w in workers:
        w.channel.close()
    until = time.monotonic() + GRACE
    for w in workers:
        w.process.join(max(until - time.monotonic(), 0))
    for w in workers:
        if w.process.is_alive():
            w.process.terminate()
            w.process.join(1.0)
        if w.process.is_alive():
            w.process.kill()
            w.process.join()
        w.process.close()
