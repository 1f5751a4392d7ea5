"""Empty objects, quickly: what compiled code makes without asking Python.

Each makes an instance of the class that it is given, and nothing else: fields are set by whoever calls. Uncompiled, all of them are
``object.__new__``; compiled (`making.pxd`), they are those of the classes whose fields are C's, whatever `__new__` a subclass has.
"""

value = object.__new__
step = object.__new__


def untrack(leaf: object) -> None:
    """Tell the collector of garbage that an object is part of no cycle. Uncompiled, it finds that out, or not, by itself."""
