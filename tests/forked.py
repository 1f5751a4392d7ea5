"""Commands in processes of their own, forked from one that has imported what they need: starting Python and JAX or PyTorch anew for each takes longer
than most programs that tests run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

# It gets a line of JSON for each program and answers with its exit status. The child goes on from here as the command itself would.
_SERVER = """
import gc, importlib, json, os, signal, sys
for name in sys.argv[1:]:
    command = importlib.import_module(name)
gc.freeze()
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if not child:
        os.setsid()
        signal.alarm(300)  # what hangs ends
        os.chdir(job["folder"])
        for number, (file, flags) in enumerate(((job["input"], os.O_RDONLY), (job["output"], os.O_WRONLY), (job["errors"], os.O_WRONLY))):
            os.dup2(os.open(file, flags), number)
        sys.stdin, sys.argv[1:], sys.path[:1] = open(0), job["arguments"], [job["folder"], *job["path"]]
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    os._exit(0)
sys.exit(command.main())
"""


class Forked:
    """Runs the `main` of the last of some modules with arguments in a folder, as `subprocess.run` would with captured text. scratch: a folder of its
    own."""

    def __init__(self, environment: dict[str, str], scratch: Path, *modules: str) -> None:
        self._scratch = scratch
        command = [sys.executable, "-c", _SERVER, *modules]
        self._server: Any = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def __call__(self, *arguments: str, folder: Path, stdin: str = "", path: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """path: where modules are looked for, beside the folder."""
        files = {name: self._scratch / name for name in ("input", "output", "errors")}
        for name, file in files.items():
            file.write_text(stdin if name == "input" else "")
        job = {"arguments": arguments, "folder": str(folder), "path": path, **{name: str(file) for name, file in files.items()}}
        print(json.dumps(job), file=self._server.stdin, flush=True)
        status = self._server.stdout.readline()
        return subprocess.CompletedProcess(arguments, int(status), files["output"].read_text(), files["errors"].read_text())

    def close(self) -> None:
        """End the process that the others are forked from."""
        os.killpg(self._server.pid, signal.SIGKILL)
        self._server.communicate()
