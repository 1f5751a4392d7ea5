from libc.stdint cimport int64_t

# XLA's foreign functions are called with one argument: what it points to is laid out as `XLA_FFI_CallFrame` of jaxlib's `xla/ffi/api/c_api.h`, in
# versions 0.3 and 0.4. A function is asked for the version it knows when it is registered.
#
# What is large is cut into pieces that threads share, XLA's or, where the interpreter calls, a few of ours: whoever is free takes the next one, so that
# each element of the result is computed by one thread in one order. Nobody waits for a helper that has not begun.

cdef extern from *:
    """
    #include <stdint.h>
    #include <math.h>
    /* A function compiled for processors with AVX-512 and with AVX2, too; which is called is chosen when the module is loaded. */
    #if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
    #define TJ_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define TJ_CLONES
    #endif
    #if defined(__GNUC__)
    #define TJ_INLINE static inline __attribute__((always_inline))
    #elif defined(_MSC_VER)
    #define TJ_INLINE static __forceinline
    #else
    #define TJ_INLINE static inline
    #endif
    #include <stdlib.h>
    #include <string.h>
    #ifdef _MSC_VER
    #define TJ_ONLY __restrict
    #define TJ_ADD(place, number) ((*(place) += (number)) - (number))
    #define TJ_READ(place) (*(place))
    #define TJ_REST() ((void)0)
    #else
    #include <sched.h>
    #define TJ_ONLY __restrict__
    #define TJ_ADD(place, number) __atomic_fetch_add(place, number, __ATOMIC_ACQ_REL)
    #define TJ_READ(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
    #define TJ_REST() sched_yield()
    #endif
    #if !defined(_MSC_VER) && !defined(__MINGW32__)
    #define TJ_HELPS 1
    #if defined(__x86_64__)
    #define TJ_PAUSE() __builtin_ia32_pause()
    #else
    #define TJ_PAUSE() ((void)0)
    #endif
    #include <pthread.h>
    #include <time.h>
    #include <signal.h>
    #include <unistd.h>
    #else
    #define TJ_HELPS 0
    #endif
    typedef struct tj_extension { size_t size; int type; struct tj_extension* next; } tj_extension;
    typedef struct { size_t size; tj_extension* extension; int major, minor; } tj_version;
    typedef struct { size_t size; tj_version version; uint32_t traits; int64_t state; } tj_metadata;
    typedef struct { tj_extension base; tj_metadata* metadata; } tj_question;
    typedef struct { size_t size; tj_extension* extension; int dtype; void* data; int64_t rank; int64_t* shape; } tj_buffer;
    typedef struct { size_t size; tj_extension* extension; int64_t count; int* types; void** items; } tj_buffers;
    typedef struct { int dtype; void* value; } tj_scalar;
    typedef struct { int dtype; size_t count; void* values; } tj_numbers;
    typedef struct { size_t size; tj_extension* extension; int64_t count; int* types; void** names; void** items; } tj_attributes;
    typedef struct { size_t size; tj_extension* extension; void* context; int64_t* found; } tj_asking;
    typedef struct { size_t size; tj_extension* extension; void* context; void (*task)(void*); void* data; } tj_scheduling;
    typedef struct { size_t size; tj_extension* extension; void* error; } tj_forgetting;
    typedef struct {
        size_t size; tj_extension* extension; tj_version version; const void* internal;
        void *create, *message; void (*forget)(tj_forgetting*); void* others[8];
        void* (*schedule)(tj_scheduling*); void* (*threads)(tj_asking*);
    } tj_interface;
    typedef struct {
        size_t size; tj_extension* extension; const tj_interface* xla; void* context; int stage;
        tj_buffers operands, results; tj_attributes attributes;
    } tj_call;
    enum { TJ_METADATA = 1 };

    /* Whether XLA only asks for the version of its interface: then it is told. */
    static int tj_is_asked(const tj_call* call, int minor) {
        tj_version* version;
        if (!call->extension || call->extension->type != TJ_METADATA) { return 0; }
        version = &((tj_question*)call->extension)->metadata->version;
        version->major = 0;
        version->minor = minor;
        return 1;
    }

    struct tj_shared;
    /* What a thread has that does pieces: what it `kept` of earlier ones, at first nothing, which is freed after its last; and the one it does next, if it
       has already taken that, else -1. */
    typedef struct {
        void* kept;
        struct tj_shared* shared;
        int64_t next;
    } tj_hand;
    /* Does the piece of some work that has this number. */
    typedef void (*tj_piece)(const void* work, int64_t number, tj_hand* hand);
    /* `pieces` pieces of some work. Whoever comes late finds none left, and does not touch the work. */
    typedef struct tj_shared {
        tj_piece piece;
        const void* work;
        int64_t pieces, next, done, users;
    } tj_shared;

    /* The piece that this thread does next, taken now: none if it is no number of a piece. */
    static int64_t tj_take(tj_hand* hand) {
        if (hand->next < 0) { hand->next = TJ_ADD(&hand->shared->next, 1); }
        return hand->next;
    }
    static void tj_leave(tj_shared* shared) {
        if (TJ_ADD(&shared->users, -1) == 1) { free(shared); }
    }
    static void tj_take_pieces(tj_shared* shared) {
        tj_hand hand = {0, shared, -1};
        int64_t number;
        while ((number = tj_take(&hand)) < shared->pieces) {
            hand.next = -1;
            shared->piece(shared->work, number, &hand);
            TJ_ADD(&shared->done, 1);
        }
        free(hand.kept);
    }
    static void tj_help(void* shared) {
        tj_take_pieces((tj_shared*)shared);
        tj_leave((tj_shared*)shared);
    }
    static int64_t tj_threads(const tj_call* call) {
        int64_t found = 1;
        tj_asking asked = {sizeof(tj_asking), 0, call->context, &found};
        void* error = call->xla->threads(&asked);
        if (error) {
            tj_forgetting forgotten = {sizeof(tj_forgetting), 0, error};
            call->xla->forget(&forgotten);
            return 1;
        }
        return found;
    }
    static void tj_ask_for_help(const tj_call* call, tj_shared* shared) {
    #ifndef _MSC_VER
        int64_t helpers = tj_threads(call) - 1;
        if (helpers > shared->pieces - 1) { helpers = shared->pieces - 1; }
        for (; helpers > 0; helpers--) {
            tj_scheduling asked = {sizeof(tj_scheduling), 0, call->context, tj_help, shared};
            void* error;
            TJ_ADD(&shared->users, 1);
            error = call->xla->schedule(&asked);
            if (error) {
                tj_forgetting forgotten = {sizeof(tj_forgetting), 0, error};
                call->xla->forget(&forgotten);
                tj_leave(shared);
                return;
            }
        }
    #endif
    }
    #if TJ_HELPS
    /* Our helpers wait for work, asleep but for the first 300 us, and join one at a time: who finds another's under way works alone. */
    enum { TJ_MOST_HELPERS = 7, TJ_AWAKE = 300000, TJ_PAUSES = 64 };
    static pthread_mutex_t tj_door = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t tj_bell = PTHREAD_COND_INITIALIZER;
    static tj_shared* tj_open = 0;
    static int64_t tj_helpers = -1; /* not begun */

    static void tj_close(tj_shared* shared) {
        pthread_mutex_lock(&tj_door);
        if (tj_open == shared) { tj_open = 0; }
        pthread_mutex_unlock(&tj_door);
    }
    static int64_t tj_clock(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000000000LL + now.tv_nsec;
    }
    static void* tj_stand_by(void* unused) {
        (void)unused;
        for (;;) {
            tj_shared* shared;
            int64_t until = tj_clock() + TJ_AWAKE;
            int spun;
            for (spun = 1; !__atomic_load_n(&tj_open, __ATOMIC_RELAXED) && (spun % TJ_PAUSES || tj_clock() < until); spun++) { TJ_PAUSE(); }
            pthread_mutex_lock(&tj_door);
            while (!tj_open) { pthread_cond_wait(&tj_bell, &tj_door); }
            shared = tj_open;
            TJ_ADD(&shared->users, 1);
            pthread_mutex_unlock(&tj_door);
            tj_take_pieces(shared);
            tj_close(shared);
            tj_leave(shared);
        }
        return 0;
    }
    static void tj_work_alone(void) {
        pthread_mutex_lock(&tj_door);
        tj_helpers = 0;
        pthread_mutex_unlock(&tj_door);
    }
    static void tj_forked(void) {
        pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
        pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
        tj_door = door;
        tj_bell = bell;
        tj_open = 0;
        tj_helpers = 0;
    }
    /* A forked process has no helpers, and is one of several that share the processors. */
    static void tj_heed_forks(void) { pthread_atfork(0, 0, tj_forked); }
    /* One for each further processor. Signals are for Python's threads. */
    static void tj_begin_helpers(void) {
        int64_t wanted = (int64_t)sysconf(_SC_NPROCESSORS_ONLN) - 1;
        sigset_t all, before;
    #ifdef __linux__
        cpu_set_t ours;
        if (!sched_getaffinity(0, sizeof(ours), &ours)) { wanted = CPU_COUNT(&ours) - 1; }
    #endif
        if (wanted > TJ_MOST_HELPERS) { wanted = TJ_MOST_HELPERS; }
        tj_helpers = 0;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        while (tj_helpers < wanted) {
            pthread_t thread;
            if (pthread_create(&thread, 0, tj_stand_by, 0)) { break; }
            pthread_detach(thread);
            tj_helpers++;
        }
        pthread_sigmask(SIG_SETMASK, &before, 0);
    }
    static void tj_ring(tj_shared* shared) {
        pthread_mutex_lock(&tj_door);
        if (tj_helpers < 0) { tj_begin_helpers(); }
        if (tj_helpers > 0 && !tj_open) {
            tj_open = shared;
            pthread_cond_broadcast(&tj_bell);
        }
        pthread_mutex_unlock(&tj_door);
    }
    #else
    static void tj_close(tj_shared* shared) { (void)shared; }
    static void tj_ring(tj_shared* shared) { (void)shared; }
    static void tj_heed_forks(void) {}
    static void tj_work_alone(void) {}
    #endif
    /* Do all pieces: with the help of XLA's threads if it calls, else of ours; or alone. call: 0 if it does not. */
    static void tj_do(const tj_call* call, tj_piece piece, const void* work, int64_t pieces, int alone) {
        tj_shared alone_here = {piece, work, pieces, 0, 0, 1}, *shared = alone || pieces < 2 ? 0 : (tj_shared*)malloc(sizeof(tj_shared));
        if (!shared) {
            tj_take_pieces(&alone_here);
            return;
        }
        shared->piece = piece;
        shared->work = work;
        shared->pieces = pieces;
        shared->next = shared->done = 0;
        shared->users = 1;
        if (call) {
            tj_ask_for_help(call, shared);
            tj_take_pieces(shared);
        } else {
            tj_ring(shared);
            tj_take_pieces(shared);
            tj_close(shared);
        }
        while (TJ_READ(&shared->done) < pieces) { TJ_REST(); }
        tj_leave(shared);
    }
    static int64_t tj_pieces(int64_t length, int64_t largest) {
        return (length + largest - 1) / largest;
    }
    /* Without Python's lock. */
    static void tj_share(tj_piece piece, const void* work, int64_t pieces) {
        Py_BEGIN_ALLOW_THREADS
        tj_do(0, piece, work, pieces, 0);
        Py_END_ALLOW_THREADS
    }
    """
    ctypedef struct tj_hand:
        void* kept
    ctypedef void (*tj_piece)(const void*, int64_t, tj_hand*) noexcept nogil
    void tj_heed_forks() noexcept
    void tj_work_alone() noexcept
    void tj_share(tj_piece piece, const void* work, int64_t pieces) noexcept


cdef inline void heed_forks() noexcept:
    tj_heed_forks()


cdef inline void work_alone() noexcept:
    tj_work_alone()


cdef inline void share(tj_piece piece, const void* work, int64_t pieces) noexcept:
    tj_share(piece, work, pieces)
