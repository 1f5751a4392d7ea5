from cpython.buffer cimport PyObject_GetBuffer

# What the functions do is in `arrays.py`. `view` is PyObject_GetBuffer for arrays that the caller holds for as long: PyBuffer_Release of it does nothing.
cdef extern from *:
    """
    #ifndef TJ_ARRAYS
    #define TJ_ARRAYS
    #ifndef NPY_TARGET_VERSION
    #define NPY_TARGET_VERSION NPY_2_0_API_VERSION
    #endif
    #define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
    #include <numpy/arrayobject.h>
    #include <string.h>
    static PyTypeObject* tj_array_type(void) {
        static PyTypeObject* found;
        if (!found) {
            PyObject* numpy = PyImport_ImportModule("numpy");
            if (numpy) {
                found = (PyTypeObject*)PyObject_GetAttrString(numpy, "ndarray");
                Py_DECREF(numpy);
            }
            PyErr_Clear();
        }
        return found;
    }
    static inline int tj_knows_numpy(void) { return PyArray_API || _import_array() == 0; }
    /* A new array, of the dtype that is given or that another array has. */
    static PyObject* tj_empty(int ndim, const Py_ssize_t* shape, PyObject* dtype) {
        PyArray_Descr* kind;
        if (!tj_knows_numpy() || !PyArray_DescrConverter(dtype, &kind)) { return NULL; }
        return PyArray_NewFromDescr(&PyArray_Type, kind, ndim, (const npy_intp*)shape, NULL, NULL, 0, NULL);
    }
    static PyObject* tj_empty_like(int ndim, const Py_ssize_t* shape, PyObject* like) {
        return tj_empty(ndim, shape, (PyObject*)PyArray_DESCR((PyArrayObject*)like));
    }
    static PyObject* tj_empty_of(PyObject* shape, PyObject* dtype) {
        Py_ssize_t dims[64], n = PyTuple_GET_SIZE(shape), i;
        if (n > 64) { return PyErr_Format(PyExc_ValueError, "an array has at most 64 dimensions"); }
        for (i = 0; i < n; i++) {
            dims[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, i));
            if (dims[i] == -1 && PyErr_Occurred()) { return NULL; }
        }
        return tj_empty((int)n, dims, dtype);
    }
    static inline int tj_is_array(PyObject* array) { return Py_TYPE(array) == tj_array_type(); }
    static inline int tj_is_contiguous(PyObject* array) {
        return tj_is_array(array) ? PyArray_CHKFLAGS((PyArrayObject*)array, NPY_ARRAY_C_CONTIGUOUS) : -1;
    }
    static int tj_kept(PyObject* array) {
        PyArrayObject* a = (PyArrayObject*)array;
        if (!tj_is_array(array) || PyArray_BASE(a) || !PyArray_CHKFLAGS(a, NPY_ARRAY_C_CONTIGUOUS)) { return 0; }
        PyArray_CLEARFLAGS(a, NPY_ARRAY_WRITEABLE);
        return 1;
    }
    static inline Py_ssize_t tj_width(char letter) {
        switch (letter) {
            case '?': case 'b': case 'B': return 1;
            case 'h': case 'H': case 'e': return 2;
            case 'i': case 'I': case 'f': return 4;
            case 'l': case 'L': return sizeof(long);
            default: return 8;
        }
    }
    /* Of numbers that C knows, in its own order of bytes: what PyObject_GetBuffer would say, else 0. */
    static int tj_view(PyObject* array, Py_buffer* view, int flags) {
        static char formats[128][2];
        PyArrayObject* a = (PyArrayObject*)array;
        PyArray_Descr* kind;
        Py_ssize_t count = 1;
        int i;
        if (!tj_is_array(array) || !PyArray_CHKFLAGS(a, NPY_ARRAY_ALIGNED)) { return 0; }
        if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !PyArray_CHKFLAGS(a, NPY_ARRAY_C_CONTIGUOUS)) { return 0; }
        if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !PyArray_CHKFLAGS(a, NPY_ARRAY_C_CONTIGUOUS)
            && !PyArray_CHKFLAGS(a, NPY_ARRAY_F_CONTIGUOUS)) { return 0; }
        if ((flags & PyBUF_WRITABLE) && !PyArray_CHKFLAGS(a, NPY_ARRAY_WRITEABLE)) { return 0; }
        kind = PyArray_DESCR(a);
        if (kind->byteorder == NPY_OPPBYTE || kind->type <= 0 || !strchr("?bBhHiIlLqQefd", kind->type)) { return 0; }
        formats[(int)kind->type][0] = kind->type;
        view->buf = PyArray_DATA(a);
        view->obj = NULL;
        view->itemsize = tj_width(kind->type);
        view->readonly = !PyArray_CHKFLAGS(a, NPY_ARRAY_WRITEABLE);
        view->ndim = PyArray_NDIM(a);
        view->format = formats[(int)kind->type];
        view->shape = (Py_ssize_t*)PyArray_DIMS(a);
        view->strides = (Py_ssize_t*)PyArray_STRIDES(a);
        view->suboffsets = NULL;
        view->internal = NULL;
        for (i = 0; i < view->ndim; i++) { count *= view->shape[i]; }
        view->len = count * view->itemsize;
        return 1;
    }
    #endif
    """
    bint tj_kept(object array) noexcept
    int tj_is_contiguous(object array) noexcept
    bint tj_view(object array, Py_buffer* view, int flags) noexcept
    object tj_empty_of(tuple shape, object dtype)
    object tj_empty_like(int ndim, const Py_ssize_t* shape, object like)


cdef inline bint is_contiguous(object array) except -1:
    cdef int found = tj_is_contiguous(array)
    return found if found >= 0 else array.flags.c_contiguous


cdef inline bint kept(object array) noexcept:
    return tj_kept(array)


cdef inline object empty(object shape, object dtype):
    return tj_empty_of(shape, dtype)


cdef inline int view(object array, Py_buffer* found, int flags) except -1:
    return 0 if tj_view(array, found, flags) else PyObject_GetBuffer(array, found, flags)
