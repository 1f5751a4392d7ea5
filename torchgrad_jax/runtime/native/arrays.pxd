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
    #include "torchgrad_jax/runtime/native/parts.h"
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
    /* Memory for arrays as NumPy has it, but from the beginning of a line of the processor's caches: a vector of 64 bytes that is in two lines takes two
       loads. Before an array's memory stands what NumPy gave, and how much was asked for. */
    enum { TJ_CACHE_LINE = 64, TJ_NUMPYS_DOMAIN = 389047 }; /* that of `np.lib.tracemalloc_domain` */
    typedef struct { void* given; size_t size; } tj_before;
    static const PyDataMemAllocator* tj_numpys(void) {
        static const PyDataMem_Handler* found;
        if (!found) { found = (const PyDataMem_Handler*)PyCapsule_GetPointer(PyDataMem_DefaultHandler, "mem_handler"); }
        return &found->allocator;
    }
    static size_t tj_with_room(size_t size) {
        size_t more = sizeof(tj_before) + TJ_CACHE_LINE;
        return size > (size_t)PY_SSIZE_T_MAX - more ? 0 : size + more;
    }
    static void* tj_from_a_line(void* given, size_t size) {
        char* found;
        if (!given) { return NULL; }
        found = (char*)(((uintptr_t)given + sizeof(tj_before) + TJ_CACHE_LINE - 1) / TJ_CACHE_LINE * TJ_CACHE_LINE);
        ((tj_before*)found)[-1].given = given;
        ((tj_before*)found)[-1].size = size;
        return found;
    }
    static void* tj_new_memory(void* unused, size_t size) {
        const PyDataMemAllocator* numpys = tj_numpys();
        size_t room = tj_with_room(size);
        (void)unused;
        return room ? tj_from_a_line(numpys->malloc(numpys->ctx, room), size) : NULL;
    }
    static void* tj_new_zeros(void* unused, size_t count, size_t each) {
        const PyDataMemAllocator* numpys = tj_numpys();
        size_t size = each && count > (size_t)PY_SSIZE_T_MAX / each ? (size_t)PY_SSIZE_T_MAX : count * each, room = tj_with_room(size);
        (void)unused;
        return room ? tj_from_a_line(numpys->calloc(numpys->ctx, 1, room), size) : NULL;
    }
    static void tj_free_memory(void* unused, void* memory, size_t size) {
        const PyDataMemAllocator* numpys = tj_numpys();
        (void)unused, (void)size;
        if (memory) {
            tj_before* before = (tj_before*)memory - 1;
            numpys->free(numpys->ctx, before->given, tj_with_room(before->size));
        }
    }
    static void* tj_resized_memory(void* unused, void* memory, size_t size) {
        void* found = tj_new_memory(unused, size);
        if (found && memory) {
            size_t before = ((tj_before*)memory)[-1].size;
            memcpy(found, memory, before < size ? before : size);
            tj_free_memory(unused, memory, before);
        }
        return found;
    }
    /* A capsule with these functions, which NumPy takes: borrowed, NULL with an exception. */
    static PyObject* tj_lines(void) {
        static PyDataMem_Handler ours = {"torchgrad_jax", 1, {NULL, tj_new_memory, tj_new_zeros, tj_resized_memory, tj_free_memory}};
        static PyObject* found;
        if (!found && tj_knows_numpy()) { found = PyCapsule_New(&ours, "mem_handler", NULL); }
        return found;
    }
    /* Let NumPy, in this context, have memory from the beginnings of lines. */
    static int tj_align(void) {
        PyObject *lines = tj_lines(), *before = lines ? PyDataMem_SetHandler(lines) : NULL;
        Py_XDECREF(before);
        return before ? 0 : -1;
    }
    /* A new array in such memory, of the dtype that is given or that another array has. */
    static PyObject* tj_empty(int ndim, const Py_ssize_t* shape, PyObject* dtype) {
        PyArray_Descr* kind;
        PyObject *lines = tj_lines(), *found;
        size_t size;
        void* memory;
        int i;
        if (!lines || !PyArray_DescrConverter(dtype, &kind)) { return NULL; }
        size = (size_t)PyDataType_ELSIZE(kind);
        for (i = 0; i < ndim; i++) { size = shape[i] < 0 || (shape[i] && size > (size_t)PY_SSIZE_T_MAX / (size_t)shape[i]) ? 0 : size * (size_t)shape[i]; }
        /* none, too many or objects: those are NumPy's */
        memory = size && !PyDataType_REFCHK(kind) ? tj_new_memory(NULL, size) : NULL;
        found = PyArray_NewFromDescr(&PyArray_Type, kind, ndim, (const npy_intp*)shape, NULL, memory, memory ? NPY_ARRAY_CARRAY : 0, NULL);
        if (!memory) { return found; }
        if (!found) {
            tj_free_memory(NULL, memory, size);
            return NULL;
        }
        PyArray_ENABLEFLAGS((PyArrayObject*)found, NPY_ARRAY_OWNDATA);
        Py_INCREF(lines);
        ((PyArrayObject_fields*)found)->mem_handler = lines;
        PyTraceMalloc_Track(TJ_NUMPYS_DOMAIN, (uintptr_t)memory, size);
        return found;
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
    /* A view of `length` slices along `dim`, every `step`-th, from `begin` on, or of that one, without the dimension, if `length` is negative. None where
       it is no array, or not all of them are inside. */
    static PyObject* tj_look_at(PyObject* array, Py_ssize_t dim, Py_ssize_t begin, Py_ssize_t length, Py_ssize_t step) {
        PyArrayObject* a = (PyArrayObject*)array;
        npy_intp shape[64], strides[64], span = length < 0 ? 1 : length ? (length - 1) * step + 1 : 0;
        PyArray_Descr* kind;
        PyObject* found;
        int i, ndim;
        if (!tj_knows_numpy()) { return NULL; }
        if (!tj_is_array(array) || dim < 0 || dim >= PyArray_NDIM(a) || begin < 0 || begin + span > PyArray_DIM(a, (int)dim)) { Py_RETURN_NONE; }
        ndim = PyArray_NDIM(a);
        for (i = 0; i < ndim; i++) {
            shape[i] = PyArray_DIM(a, i);
            strides[i] = PyArray_STRIDE(a, i);
        }
        if (length < 0) {
            for (i = (int)dim, ndim--; i < ndim; i++) {
                shape[i] = shape[i + 1];
                strides[i] = strides[i + 1];
            }
        } else {
            shape[dim] = length;
            strides[dim] *= step;
        }
        kind = PyArray_DESCR(a);
        Py_INCREF(kind);
        found = PyArray_NewFromDescr(&PyArray_Type, kind, ndim, shape, strides, PyArray_BYTES(a) + begin * PyArray_STRIDE(a, (int)dim),
                                     PyArray_FLAGS(a) & NPY_ARRAY_WRITEABLE, NULL);
        if (!found) { return NULL; }
        Py_INCREF(array);
        if (PyArray_SetBaseObject((PyArrayObject*)found, array) < 0) {
            Py_DECREF(found);
            return NULL;
        }
        return found;
    }
    #define TJ_TAKE(kind, each) for (i = 0; i < outer; i++, from += n * by) {                                            \
        for (j = 0; j < count; j++, to += each) {                                                                      \
            const char* x = from + (places[j] < 0 ? places[j] + n : places[j]) * by;                                   \
            kind;                                                                                                      \
        }                                                                                                              \
    }
    /* What an array has along `dim` at the places of another one, of int64, which count from the end where they are less than 0. None where they are not
       all in range, or one of the two does not lie in the order of rows; along the first dimension its slices may lie apart. */
    static PyObject* tj_taken(PyObject* array, PyObject* index, Py_ssize_t dim) {
        PyArrayObject *a = (PyArrayObject*)array, *at = (PyArrayObject*)index;
        Py_ssize_t shape[64], count, outer = 1, inner, by, n, i, j;
        const int64_t* places;
        const char* from;
        char* to;
        int ndim, d, of;
        PyObject* found;
        if (!tj_knows_numpy()) { return NULL; }
        if (!tj_is_array(array) || !tj_is_array(index) || !PyArray_ISBEHAVED_RO(a) || !PyArray_ISCARRAY_RO(at)) { Py_RETURN_NONE; }
        ndim = PyArray_NDIM(a);
        of = PyArray_NDIM(at);
        if (dim < 0 || dim >= ndim || ndim - 1 + of > 64 || PyDataType_REFCHK(PyArray_DESCR(a)) || PyArray_DESCR(at)->kind != 'i'
            || PyArray_ITEMSIZE(at) != 8) { Py_RETURN_NONE; }
        places = (const int64_t*)PyArray_DATA(at);
        count = PyArray_SIZE(at);
        n = PyArray_DIM(a, (int)dim);
        for (j = 0, i = 0; j < count; j++) { i |= (uint64_t)places[j] + (uint64_t)n >= 2 * (uint64_t)n; }
        if (i) { Py_RETURN_NONE; }
        inner = PyArray_ITEMSIZE(a);
        for (d = ndim - 1; d > dim; d--) {
            if (PyArray_STRIDE(a, d) != inner && PyArray_DIM(a, d) != 1) { Py_RETURN_NONE; }
            inner *= PyArray_DIM(a, d);
        }
        by = dim ? inner : PyArray_STRIDE(a, 0);
        if (dim && !PyArray_CHKFLAGS(a, NPY_ARRAY_C_CONTIGUOUS)) { Py_RETURN_NONE; }
        for (d = 0; d < ndim; d++) {
            Py_ssize_t size = PyArray_DIM(a, d);
            if (d < dim) { outer *= size; }
            if (d != dim) { shape[d < dim ? d : d + of - 1] = size; }
        }
        for (d = 0; d < of; d++) { shape[dim + d] = PyArray_DIM(at, d); }
        found = tj_empty_like(ndim - 1 + of, shape, array);
        if (!found) { return NULL; }
        from = PyArray_BYTES(a);
        to = PyArray_BYTES((PyArrayObject*)found);
        if (inner == 4) { TJ_TAKE(memcpy(to, x, 4), 4) }
        else if (inner == 8) { TJ_TAKE(memcpy(to, x, 8), 8) }
        else if (inner == 16) { TJ_TAKE(memcpy(to, x, 16), 16) }
        else { TJ_TAKE(memcpy(to, x, (size_t)inner), inner) }
        return found;
    }
    static inline int tj_is_contiguous(PyObject* array) {
        return tj_is_array(array) ? PyArray_CHKFLAGS((PyArrayObject*)array, NPY_ARRAY_C_CONTIGUOUS) : -1;
    }
    static int tj_kept(PyObject* array) {
        PyArrayObject* a = (PyArrayObject*)array;
        if (!tj_is_array(array) || PyArray_BASE(a) || !PyArray_CHKFLAGS(a, NPY_ARRAY_C_CONTIGUOUS)) { return 0; }
        PyArray_CLEARFLAGS(a, NPY_ARRAY_WRITEABLE);
        return 1;
    }
    /* Whether an array may be written to is set; 0 where it is no array. */
    static int tj_set_writable(PyObject* array, int may_be) {
        if (!tj_is_array(array)) { return 0; }
        if (may_be) { PyArray_ENABLEFLAGS((PyArrayObject*)array, NPY_ARRAY_WRITEABLE); }
        else { PyArray_CLEARFLAGS((PyArrayObject*)array, NPY_ARRAY_WRITEABLE); }
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
    /* Change, or set, what lies, by strides and from an offset in elements, in an array in the order of rows. given: an array of its shape and dtype, or
       of one number, without dimensions, or a number of Python's. 0 where nothing was done, as of what is not within it, -1 with an exception. */
    static int tj_changed(PyObject* array, int change, PyObject* shape, PyObject* strides, Py_ssize_t offset, PyObject* given) {
        int64_t dims[TJ_PART_DIMS], by[TJ_PART_DIMS], of[TJ_PART_DIMS];
        union { float f; double d; int32_t i; int64_t l; } number;
        const char* from = (const char*)&number;
        PyArrayObject* a = (PyArrayObject*)array;
        Py_ssize_t ndim = PyTuple_GET_SIZE(shape), i, size, end, have;
        char letter;
        if (!tj_is_array(array) || ndim > TJ_PART_DIMS || !PyArray_ISCARRAY(a) || !PyArray_ISNOTSWAPPED(a)) { return 0; }
        letter = PyArray_DESCR(a)->type;
        size = PyArray_ITEMSIZE(a);
        for (i = 0; i < ndim; i++) {
            dims[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, i));
            by[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(strides, i)) * size;
            of[i] = 0;
        }
        if (PyErr_Occurred()) { return -1; }
        for (i = 0, end = offset, have = 1; i < ndim; i++) {
            if (by[i] < 0 || !dims[i]) { return 0; }
            end += (dims[i] - 1) * (by[i] / size);
        }
        for (i = 0; i < PyArray_NDIM(a); i++) { have *= PyArray_DIM(a, (int)i); }
        if (offset < 0 || end >= have) { return 0; }
        if (tj_is_array(given)) {
            PyArrayObject* g = (PyArrayObject*)given;
            if (PyArray_DESCR(g)->type != letter || !PyArray_ISALIGNED(g) || !PyArray_ISNOTSWAPPED(g)) { return 0; }
            if (PyArray_NDIM(g)) {
                if (PyArray_NDIM(g) != ndim) { return 0; }
                for (i = 0; i < ndim; i++) {
                    if (PyArray_DIM(g, (int)i) != dims[i]) { return 0; }
                    of[i] = PyArray_STRIDE(g, (int)i);
                }
            }
            from = PyArray_BYTES(g);
        } else if (letter == 'f' || letter == 'd') {
            double found = PyFloat_AsDouble(given);
            if (found == -1.0 && PyErr_Occurred()) { return -1; }
            if (letter == 'f') { number.f = (float)found; } else { number.d = found; }
        } else if (letter != 'i' && (letter != 'l' || size != 8)) {
            return 0;
        } else {
            long long found = PyLong_AsLongLong(given);
            if (found == -1 && PyErr_Occurred()) { return -1; }
            if (letter == 'i') { number.i = (int32_t)found; } else { number.l = found; }
        }
        return tj_change_part(change, letter, PyArray_BYTES(a) + offset * size, from, (int)ndim, size, dims, by, of);
    }
    #endif
    """
    int tj_changed(object array, int change, tuple shape, tuple strides, Py_ssize_t offset, object given) except -1
    bint tj_kept(object array) noexcept
    bint tj_set_writable(object array, bint may_be) noexcept
    int tj_align() except -1
    int tj_is_contiguous(object array) noexcept
    bint tj_view(object array, Py_buffer* view, int flags) noexcept
    object tj_empty_of(tuple shape, object dtype)
    object tj_taken(object array, object index, Py_ssize_t dim)
    object tj_look_at(object array, Py_ssize_t dim, Py_ssize_t begin, Py_ssize_t length, Py_ssize_t step)
    object tj_empty_like(int ndim, const Py_ssize_t* shape, object like)


cdef inline bint is_contiguous(object array) except -1:
    cdef int found = tj_is_contiguous(array)
    return found if found >= 0 else array.flags.c_contiguous


cdef inline object part(object array, Py_ssize_t dim, Py_ssize_t begin, Py_ssize_t length, Py_ssize_t step):
    return tj_look_at(array, dim, begin, length, step)


cdef inline bint changed(object array, int change, tuple shape, tuple strides, Py_ssize_t offset, object given) except -1:
    return tj_changed(array, change, shape, strides, offset, given)


cdef inline object taken(object array, object index, Py_ssize_t dim):
    return tj_taken(array, index, dim)


cdef inline object set_writable(object array, bint may_be):
    if not tj_set_writable(array, may_be):
        array.setflags(write=may_be)


cdef inline bint kept(object array) noexcept:
    return tj_kept(array)


cdef inline int align() except -1:
    return tj_align()


cdef inline object empty(object shape, object dtype):
    return tj_empty_of(shape, dtype)


cdef inline int view(object array, Py_buffer* found, int flags) except -1:
    return 0 if tj_view(array, found, flags) else PyObject_GetBuffer(array, found, flags)
