"""The threads that share large work of C's: see `sharing.pxd`."""


def work_alone() -> None:
    """Let this process do without helpers from now on: it is one of several that share the processors."""
