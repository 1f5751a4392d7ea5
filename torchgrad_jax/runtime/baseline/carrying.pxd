cimport cython


@cython.locals(call=tuple, arity=Py_ssize_t, a=Py_ssize_t, b=Py_ssize_t, c=Py_ssize_t, given=tuple)
cpdef carry_out(list calls, list values)
