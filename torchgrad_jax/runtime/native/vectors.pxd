from torchgrad_jax.runtime.native cimport sharing

# The sums are in 32 lanes, whatever the processor's vectors.
cdef extern from *:
    """
    enum { TJ_DOT_LANES = 32 };
    #define TJ_OF_VECTORS(name, type)                                                                              \\
    TJ_CLONES static type tj_dot_##name(const type* TJ_ONLY a, const type* TJ_ONLY b, Py_ssize_t n) {               \\
        type sums[TJ_DOT_LANES] = {0};                                                                                  \\
        Py_ssize_t i, whole = n - n % TJ_DOT_LANES;                                                                     \\
        int l, half;                                                                                               \\
        for (i = 0; i < whole; i += TJ_DOT_LANES) { for (l = 0; l < TJ_DOT_LANES; l++) { sums[l] += a[i + l] * b[i + l]; } }  \\
        for (half = TJ_DOT_LANES / 2; half; half /= 2) { for (l = 0; l < half; l++) { sums[l] += sums[l + half]; } }     \\
        for (; i < n; i++) { sums[0] += a[i] * b[i]; }                                                             \\
        return sums[0];                                                                                            \\
    }                                                                                                              \\
    TJ_CLONES static void tj_add_times_##name(type* TJ_ONLY to, const type* TJ_ONLY a, type factor, Py_ssize_t n) { \\
        Py_ssize_t i;                                                                                              \\
        for (i = 0; i < n; i++) { to[i] += factor * a[i]; }                                                        \\
    }
    TJ_OF_VECTORS(one, float)
    TJ_OF_VECTORS(two, double)
    #undef TJ_OF_VECTORS
    """
    float tj_dot_one(const float* a, const float* b, Py_ssize_t n) noexcept nogil
    double tj_dot_two(const double* a, const double* b, Py_ssize_t n) noexcept nogil
    void tj_add_times_one(float* to, const float* a, float factor, Py_ssize_t n) noexcept nogil
    void tj_add_times_two(double* to, const double* a, double factor, Py_ssize_t n) noexcept nogil


cdef inline double dot(int letter, char* a, char* b, Py_ssize_t n) noexcept nogil:
    if letter == 102:
        return tj_dot_one(<float*>a, <float*>b, n)
    return tj_dot_two(<double*>a, <double*>b, n)


cdef inline void add_times(int letter, char* to, char* a, double factor, Py_ssize_t n) noexcept nogil:
    if letter == 102:
        tj_add_times_one(<float*>to, <float*>a, <float>factor, n)
    else:
        tj_add_times_two(<double*>to, <double*>a, factor, n)
