"""Tracebacks of uncaught exceptions, shown as ``python`` shows them: of the program's own lines.

The launcher's frames vanish; consecutive frames of torchgrad_jax, JAX and runpy become one line.
In a notebook and in what pytest reports the same frames are left out. ``TORCHGRAD_JAX_TRACEBACK=full`` shows every frame.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException
from types import TracebackType
from typing import Any

_SWITCH = "TORCHGRAD_JAX_TRACEBACK"
_LAUNCHER = Path(__file__).parent
_RUNPY = "<frozen runpy>"
_PACKAGES = (_LAUNCHER.parent.name, "jax", "jaxlib")
_FOLDED = "<folded>"


def install() -> None:
    """Fold the tracebacks of exceptions that nothing catches."""
    if os.environ.get(_SWITCH) != "full":
        sys.excepthook = _excepthook
        _hide_from_pytest()
        return
    # Full means JAX's frames too, unless the user set JAX's own switch.
    jax = sys.modules.get("jax")
    if jax is not None and "JAX_TRACEBACK_FILTERING" not in os.environ:
        jax.config.update("jax_traceback_filtering", "off")


def _hide_from_pytest() -> None:
    """Mark the modules of this package, as pytest wishes: it leaves their frames out of its reports."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == _PACKAGES[0]:
            vars(module)["__tracebackhide__"] = True


def install_in(shell: Any) -> None:
    """The same for exceptions of a notebook's cells. shell: IPython's; one that has a handler of the user's keeps it."""
    if os.environ.get(_SWITCH) != "full" and not shell.custom_exceptions:
        shell.set_custom_exc((Exception,), _show_in_shell)


def _show_in_shell(shell: Any, kind: type[BaseException], value: BaseException, traceback: Any, tb_offset: int | None = None) -> None:
    """What IPython calls for an exception of a cell."""
    roots = _package_roots()
    folded: list[str] = []
    for link in _exceptions(value):
        owners = {entry: _owner(_filename(entry), roots) for entry in _entries(link.__traceback__)}
        folded += [owner for owner in owners.values() if owner is not None]
        link.__traceback__ = _linked([entry for entry, owner in owners.items() if owner is None])
    shell.showtraceback((kind, value, value.__traceback__), tb_offset=tb_offset)
    if folded:
        print(_counted(folded), file=sys.stderr)


def _linked(entries: list[TracebackType]) -> TracebackType | None:
    """A traceback of these entries alone."""
    rest = None
    for entry in reversed(entries):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest


def _excepthook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
    roots = _package_roots()
    folds = False
    for link in _exceptions(value):
        link.__traceback__ = _without_launcher(link.__traceback__)
        folds = folds or any(_owner(_filename(entry), roots) for entry in _entries(link.__traceback__))
    if not folds:
        sys.__excepthook__(kind, value, value.__traceback__)
        return
    exception = TracebackException(kind, value, value.__traceback__, compact=True)
    for summary in _summaries(exception):
        _fold(summary, roots)
    for line in exception.format():
        print(line, file=sys.stderr, end="")


def _exceptions(value: BaseException) -> Iterator[BaseException]:
    """`value` with its causes, contexts and members of groups."""
    pending: list[BaseException | None] = [value]
    seen: set[int] = set()
    while pending:
        link = pending.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            yield link
            members = link.exceptions if isinstance(link, BaseExceptionGroup) else ()
            pending += [link.__cause__, link.__context__, *members]


def _summaries(exception: TracebackException) -> Iterator[TracebackException]:
    """The same of a summary, which is a tree."""
    yield exception
    for link in (exception.__cause__, exception.__context__, *(getattr(exception, "exceptions", None) or ())):
        if link is not None:
            yield from _summaries(link)


def _entries(traceback: TracebackType | None) -> list[TracebackType]:
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    return entries


def _filename(entry: TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename


def _without_launcher(traceback: TracebackType | None) -> TracebackType | None:
    """`traceback` from the program's first frame on, without the frames of this package in between."""
    entries = _entries(traceback)
    files = [_filename(entry) for entry in entries]
    launcher = str(_LAUNCHER / "run.py")
    if launcher in files:
        start = len(files) - files[::-1].index(launcher)
        while start < len(files) and files[start] == _RUNPY:
            start += 1
        entries = entries[start:]
    return _linked([entry for entry in entries if not _filename(entry).startswith(str(_LAUNCHER) + os.sep)])


def _package_roots() -> dict[str, str]:
    """Map the directory of each package whose frames are folded to the package's name."""
    roots = {_PACKAGES[0] + "/": _PACKAGES[0]}  # frames of the typed core name their files from the package on
    for name in _PACKAGES:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            roots[os.path.dirname(file) + os.sep] = name
    return roots


def _owner(filename: str, roots: dict[str, str]) -> str | None:
    """The package whose frames are folded that `filename` belongs to, if any."""
    if filename == _RUNPY:
        return "runpy"
    return next((name for root, name in roots.items() if filename.startswith(root)), None)


def _fold(exception: TracebackException, roots: dict[str, str]) -> None:
    stack = _Stack()
    folded: list[str] = []
    for frame in exception.stack or ():
        owner = _owner(frame.filename, roots)
        if owner is None:
            stack.extend(_marker(folded))
            stack.append(frame)
            folded = []
        else:
            folded.append(owner)
    if not stack:
        return  # no frame of the program: the others are all there is to see
    stack.extend(_marker(folded))
    exception.stack = stack
    # JAX says in a note that it removed its frames; the folded line says so already.
    notes = getattr(exception, "__notes__", None)
    if isinstance(notes, (list, tuple)):
        exception.__notes__ = [note for note in notes if "JAX has removed its internal frames" not in str(note)]


def _marker(folded: list[str]) -> list[FrameSummary]:
    if not folded:
        return []
    return [FrameSummary(_FOLDED, 0, _counted(folded), lookup_line=False, line="")]


def _counted(folded: list[str]) -> str:
    """What is said in place of frames. folded: whose each of them is."""
    return f"[{len(folded)} frame{'s' if len(folded) > 1 else ''} in {', '.join(dict.fromkeys(folded))} folded; {_SWITCH}=full shows them]"


class _Stack(StackSummary):
    def format_frame_summary(self, frame_summary: FrameSummary, **kwargs: Any) -> str:
        if frame_summary.filename == _FOLDED:
            return f"  {frame_summary.name}\n"
        return super().format_frame_summary(frame_summary, **kwargs)
