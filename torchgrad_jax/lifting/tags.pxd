cdef inline unsigned long long tag_of(dict names):
    return (<unsigned long long *> <void *> names)[3]  # after the count of references, the class, and the number of items
