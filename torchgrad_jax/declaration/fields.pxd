cdef class PlanFields:
    cdef public tuple saves, inputs, avals
    cdef public object node_class, vjp
    cdef public bint passes, undefined, single, frees
