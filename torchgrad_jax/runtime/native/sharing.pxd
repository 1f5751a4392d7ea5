from libc.stdint cimport int64_t

# XLA's foreign functions are called with one argument: what it points to is laid out as `XLA_FFI_CallFrame` of jaxlib's `xla/ffi/api/c_api.h`, in
# versions 0.3 and 0.4. A function is asked for the version it knows when it is registered.
#
# What is large is cut into pieces that threads share, XLA's or, where the interpreter calls, a few of ours: whoever is free takes another one, of its own
# part while there is any. Each element of the result is computed by one thread in one order. Nobody waits for a helper that has not begun.

cdef extern from *:
    """
    #include <stdint.h>
    #include <math.h>
    /* A function compiled for processors with AVX-512 and with AVX2, too; which is called is chosen when the module is loaded. */
    #if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
    #define TJ_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
    #define TJ_FUSED_CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default"))) /* which multiply and add at once, as tiles do */
    #else
    #define TJ_CLONES
    #define TJ_FUSED_CLONES
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

    /* What a thread has that does pieces: what it `kept` of earlier ones, at first nothing, which is freed after its last. */
    typedef struct {
        void* kept;
    } tj_hand;
    /* Does the piece of some work that has this number. */
    typedef void (*tj_piece)(const void* work, int64_t number, tj_hand* hand);
    /* `pieces` pieces of some work, for `most` threads. Whoever comes late finds none left, and does not touch the work. Who asked for help takes those
       before `middle` first, helpers those from there on: of works on the same arrays each mostly has the same parts, which are in its cache. taken: by
       all; own: by who asked; helped: by helpers. */
    typedef struct tj_shared {
        tj_piece piece;
        const void* work;
        int64_t pieces, middle, taken, own, helped, done, users, most;
    } tj_shared;

    static void tj_leave(tj_shared* shared) {
        if (TJ_ADD(&shared->users, -1) == 1) { free(shared); }
    }
    /* Which piece is the next of one's own, and after those which of the other's: from their end, so that the two do not meet before all are taken. */
    static int64_t tj_next_piece(tj_shared* shared, int helps) {
        int64_t middle = shared->middle, last = shared->pieces - 1, n;
        if (helps) {
            n = TJ_ADD(&shared->helped, 1);
            return middle + n <= last ? middle + n : last - n;
        }
        n = shared->own++;
        return n < middle ? n : last - (n - middle);
    }
    static void tj_take_pieces(tj_shared* shared, int helps) {
        tj_hand hand = {0};
        while (TJ_ADD(&shared->taken, 1) < shared->pieces) {
            shared->piece(shared->work, tj_next_piece(shared, helps), &hand);
            TJ_ADD(&shared->done, 1);
        }
        free(hand.kept);
    }
    static void tj_help(void* shared) {
        tj_take_pieces((tj_shared*)shared, 1);
        tj_leave((tj_shared*)shared);
    }
    #if TJ_HELPS
    static int64_t tj_clock(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000000000LL + now.tv_nsec;
    }
    #else
    static int64_t tj_clock(void) { return 0; }
    #endif
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
    static int64_t tj_xla_at = 0; /* when its threads were asked last */
    static void tj_ask_for_help(const tj_call* call, tj_shared* shared) {
    #ifndef _MSC_VER
        int64_t helpers = tj_threads(call) - 1;
        __atomic_store_n(&tj_xla_at, tj_clock(), __ATOMIC_RELAXED);
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
    /* Our helpers wait for work, asleep but for the first 300 us, and join one at a time: who finds another's under way works alone. For light work no
       more are woken than TJ_LIGHT_HELPERS. TJ_NEAR_BY: ns within which a helper answers, there and back, if its processor shares a cache with the
       asker's: else what it writes comes so late that sharing light work is slower. A machine's owner may move its processors: how near they are is
       trusted for so many ns. */
    enum { TJ_MOST_HELPERS = 7, TJ_LIGHT_HELPERS = 3, TJ_AWAKE = 300000, TJ_PAUSES = 64, TJ_TRUSTED = 20000000, TJ_XLAS = 10000000 };
    enum { TJ_NEAR_BY = 250, TJ_CALLS = 8, TJ_PATIENCE = 2000 };
    static pthread_mutex_t tj_door = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t tj_bell = PTHREAD_COND_INITIALIZER;
    static tj_shared* tj_open = 0;
    static int64_t tj_helpers = -1; /* not begun */
    static int64_t tj_awake = 0, tj_light_at = 0, tj_measured_at = 0, tj_near = 0;
    static struct { char before[64]; int64_t called; char between[64]; int64_t answered; char after[64]; } tj_calls;

    static void tj_close(tj_shared* shared) {
        pthread_mutex_lock(&tj_door);
        if (tj_open == shared) { tj_open = 0; }
        pthread_mutex_unlock(&tj_door);
    }
    /* Until there is work, for as long as a helper stays awake: answers who measures how near it is. */
    static void tj_watch(void) {
        int64_t until = tj_clock() + TJ_AWAKE, called;
        int spun;
        TJ_ADD(&tj_awake, 1);
        for (spun = 1; !__atomic_load_n(&tj_open, __ATOMIC_RELAXED) && (spun % TJ_PAUSES || tj_clock() < until); spun++) {
            called = TJ_READ(&tj_calls.called);
            if (called != TJ_READ(&tj_calls.answered)) { __atomic_store_n(&tj_calls.answered, called, __ATOMIC_RELEASE); }
            TJ_PAUSE();
        }
        TJ_ADD(&tj_awake, -1);
    }
    static void* tj_stand_by(void* unused) {
        (void)unused;
        for (;;) {
            tj_shared* shared;
            tj_watch();
            pthread_mutex_lock(&tj_door);
            if (!tj_open) { pthread_cond_wait(&tj_bell, &tj_door); }
            shared = tj_open;
            if (shared && TJ_ADD(&shared->users, 1) + 1 >= shared->most) { tj_open = 0; }
            pthread_mutex_unlock(&tj_door);
            if (shared) {
                tj_take_pieces(shared, 1);
                tj_close(shared);
                tj_leave(shared);
            }
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
        tj_helpers = tj_awake = tj_measured_at = tj_near = 0;
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
    /* Wake so many helpers, for some work if there is any. */
    static void tj_ring(tj_shared* shared, int64_t wanted) {
        pthread_mutex_lock(&tj_door);
        if (tj_helpers < 0) { tj_begin_helpers(); }
        if (tj_helpers > 0 && !tj_open) {
            tj_open = shared;
            if (wanted >= tj_helpers) {
                pthread_cond_broadcast(&tj_bell);
            } else {
                for (; wanted > 0; wanted--) { pthread_cond_signal(&tj_bell); }
            }
        }
        pthread_mutex_unlock(&tj_door);
    }
    /* Whether a helper that is awake answers within TJ_NEAR_BY. */
    static int64_t tj_measure(void) {
        int64_t begun = tj_clock(), call, spun;
        for (call = 0; call < TJ_CALLS; call++) {
            int64_t number = TJ_ADD(&tj_calls.called, 1) + 1;
            for (spun = 0; TJ_READ(&tj_calls.answered) < number; spun++) {
                if (spun == TJ_PATIENCE) { return 0; }
                TJ_PAUSE();
            }
        }
        return tj_clock() - begun < TJ_CALLS * TJ_NEAR_BY;
    }
    /* Whether helpers may do pieces of light work, of a few us: if they are awake and near, and XLA's threads, which would wait beside them, have not been
       asked for TJ_XLAS ns. Who asks again within the time that they stay awake, but sleep, wakes them for later. */
    static int tj_help_is_near(int64_t pieces) {
        int64_t now = tj_clock(), before = __atomic_exchange_n(&tj_light_at, now, __ATOMIC_RELAXED);
        int trusted = now - TJ_READ(&tj_measured_at) < TJ_TRUSTED;
        if (now - __atomic_load_n(&tj_xla_at, __ATOMIC_RELAXED) < TJ_XLAS) { return 0; }
        if (trusted && !TJ_READ(&tj_near)) { return 0; }
        if (!TJ_READ(&tj_awake)) {
            if (tj_helpers && now - before < TJ_AWAKE) { tj_ring(0, pieces > TJ_LIGHT_HELPERS ? TJ_LIGHT_HELPERS : pieces - 1); }
            return 0;
        }
        if (!trusted) {
            __atomic_store_n(&tj_near, tj_measure(), __ATOMIC_RELAXED);
            __atomic_store_n(&tj_measured_at, now, __ATOMIC_RELEASE);
        }
        return TJ_READ(&tj_near) != 0;
    }
    /* How many threads may do pieces. */
    static int64_t tj_hands(const tj_call* call) { return call ? tj_threads(call) : 1 + (tj_helpers > 0 ? tj_helpers : 1); }
    #else
    static int64_t tj_hands(const tj_call* call) { return call ? tj_threads(call) : 1; }
    static void tj_close(tj_shared* shared) { (void)shared; }
    static void tj_ring(tj_shared* shared, int64_t wanted) { (void)shared; (void)wanted; }
    static int tj_help_is_near(int64_t pieces) { (void)pieces; return 0; }
    static void tj_heed_forks(void) {}
    static void tj_work_alone(void) {}
    #endif
    /* Who does pieces: the thread that calls; of light work, which takes a few us, helpers of ours, too, if they are near; of other work XLA's threads if it
       calls, else helpers of ours. */
    enum { TJ_BY_ALL = 0, TJ_BY_ONE = 1, TJ_BY_NEAR = 2 };
    /* Do all pieces. call: 0 if XLA does not call. */
    static void tj_do(const tj_call* call, tj_piece piece, const void* work, int64_t pieces, int by) {
        tj_shared alone = {piece, work, pieces, pieces, 0, 0, 0, 0, 1, pieces}, *shared = 0;
        if (by != TJ_BY_ONE && pieces > 1 && (by == TJ_BY_ALL || tj_help_is_near(pieces))) { shared = (tj_shared*)malloc(sizeof(tj_shared)); }
        if (!shared) {
            tj_take_pieces(&alone, 0);
            return;
        }
        *shared = alone;
        shared->middle = pieces / tj_hands(call);
        if (call && by == TJ_BY_ALL) {
            tj_ask_for_help(call, shared);
            tj_take_pieces(shared, 0);
        } else {
            tj_ring(shared, pieces - 1);
            tj_take_pieces(shared, 0);
            tj_close(shared);
        }
        while (TJ_READ(&shared->done) < pieces) { TJ_REST(); }
        tj_leave(shared);
    }
    static int64_t tj_pieces(int64_t length, int64_t largest) {
        return (length + largest - 1) / largest;
    }
    /* Without Python's lock. */
    static void tj_share_by(tj_piece piece, const void* work, int64_t pieces, int by) {
        Py_BEGIN_ALLOW_THREADS
        tj_do(0, piece, work, pieces, by);
        Py_END_ALLOW_THREADS
    }
    static void tj_share(tj_piece piece, const void* work, int64_t pieces) { tj_share_by(piece, work, pieces, TJ_BY_ALL); }
    """
    ctypedef struct tj_hand:
        void* kept
    ctypedef void (*tj_piece)(const void*, int64_t, tj_hand*) noexcept nogil
    void tj_heed_forks() noexcept
    void tj_work_alone() noexcept
    enum: TJ_BY_ALL, TJ_BY_NEAR
    void tj_share(tj_piece piece, const void* work, int64_t pieces) noexcept
    void tj_share_by(tj_piece piece, const void* work, int64_t pieces, int by) noexcept


cdef inline void heed_forks() noexcept:
    tj_heed_forks()


cdef inline void work_alone() noexcept:
    tj_work_alone()


cdef inline void share(tj_piece piece, const void* work, int64_t pieces, bint light) noexcept:
    tj_share_by(piece, work, pieces, TJ_BY_NEAR if light else TJ_BY_ALL)
