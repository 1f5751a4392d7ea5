cdef class PlanFields:
    cdef public tuple saves, inputs, avals
    cdef public object node_class, vjp
    cdef public list known_apart
    cdef public bint passes, undefined, single, frees, lists
