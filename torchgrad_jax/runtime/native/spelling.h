/* Connectionist temporal classification of TJ_REAL (`kernels/ctc.py` says what is computed). Included once for each type, with TJ_NAMED(name). */

/* One sample: times, classes, states and the longest target; its target as the classes of its states, and which of these a path may skip to, both with two
   before that are none. `now`, `new` and `old` have room for the states and two on both sides. */
typedef struct {
    const TJ_REAL* given;
    const int64_t* labels;
    int64_t times, samples, classes, states, length, sample;
    int64_t *of_state, *skips;
    TJ_REAL *now, *new, *old;
} TJ_NAMED(tj_spelling);

static void TJ_NAMED(tj_spell_begin)(TJ_NAMED(tj_spelling)* c, const int64_t* how, const TJ_REAL* given, void* const* rest, int64_t sample, tj_hand* hand) {
    int64_t longest = how[TJ_OWN], wide = 2 * longest + 5, blank = how[TJ_OWN + 1], length = ((const int64_t*)rest[2])[sample], s;
    int64_t* whole = (int64_t*)tj_room(hand, (size_t)(wide * (2 * 8 + 3 * sizeof(TJ_REAL))));
    c->given = given + sample * how[4];
    c->samples = how[3];
    c->classes = how[4];
    c->states = 2 * longest + 1;
    c->sample = sample;
    c->times = ((const int64_t*)rest[1])[sample];
    c->times = c->times < 0 ? 0 : c->times > how[2] ? how[2] : c->times;
    c->length = length < 0 ? 0 : length > longest ? longest : length;
    c->labels = (const int64_t*)rest[0] + sample * longest;
    c->of_state = whole + 2;
    c->skips = whole + wide + 2;
    c->now = (TJ_REAL*)(whole + 2 * wide) + 2;
    c->new = c->now + wide;
    c->old = c->new + wide;
    for (s = 0; s < c->states; s++) {
        int64_t label = s % 2 ? c->labels[s / 2] : blank;
        c->of_state[s] = label < 0 ? 0 : label >= c->classes ? c->classes - 1 : label;
        c->skips[s] = s >= 2 && label != (s % 2 ? c->labels[s / 2 - 1] : blank);
    }
    c->skips[c->states] = c->skips[c->states + 1] = 0;
    for (s = -2; s < c->states + 2; s++) { c->new[s] = c->old[s] = -INFINITY; }
}
/* Of each state the sum of its own, the next and the one after that, if `skips` says so, in the direction of `step`; and its probability. */
TJ_INLINE void TJ_NAMED(tj_spell_step)(const TJ_REAL* TJ_ONLY old, const int64_t* TJ_ONLY skips, const TJ_REAL* TJ_ONLY now, TJ_REAL* TJ_ONLY made,
                                       int64_t count, const int step) {
    int64_t s;
    for (s = 0; s < count; s++) {
        TJ_REAL a = old[s], b = old[s + step], c = skips[step < 0 ? s : s + 2] ? old[s + 2 * step] : -(TJ_REAL)INFINITY;
        TJ_REAL most = a > b ? a : b, shift;
        most = most > c ? most : c;
        shift = most == -(TJ_REAL)INFINITY ? 0 : most;
        made[s] = TJ_LOG(TJ_QUICK_EXP(a - shift) + TJ_QUICK_EXP(b - shift) + TJ_QUICK_EXP(c - shift)) + shift + now[s];
    }
}
TJ_INLINE void TJ_NAMED(tj_spell_now)(const TJ_NAMED(tj_spelling)* c, int64_t t) {
    const TJ_REAL* row = c->given + t * c->samples * c->classes;
    int64_t s;
    for (s = 0; s <= 2 * c->length; s++) { c->now[s] = row[c->of_state[s]]; }
}
#define TJ_SWAP(c) { TJ_REAL* old = (c)->old; (c)->old = (c)->new; (c)->new = old; }
TJ_CLONES static void TJ_NAMED(tj_spell)(const tj_looping* l, int64_t sample, tj_hand* hand) {
    TJ_NAMED(tj_spelling) c;
    TJ_REAL *loss = (TJ_REAL*)l->arrays[4] + sample, *alpha = (TJ_REAL*)l->arrays[5];
    int64_t t, s, count;
    TJ_NAMED(tj_spell_begin)(&c, l->how, (const TJ_REAL*)l->arrays[0], l->arrays + 1, sample, hand);
    count = 2 * c.length + 1;
    for (t = 0; t < l->outer; t++) {
        TJ_REAL* row = alpha + (t * c.samples + sample) * c.states;
        if (t < c.times) {
            TJ_NAMED(tj_spell_now)(&c, t);
            if (t) { TJ_NAMED(tj_spell_step)(c.old, c.skips, c.now, c.new, count, -1); }
            else { for (s = 0; s < 2 && s < count; s++) { c.new[s] = c.now[s]; } }
            TJ_SWAP(&c)
            memcpy(row, c.old, (size_t)count * sizeof(TJ_REAL));
        }
        for (s = t < c.times ? count : 0; s < c.states; s++) { row[s] = -INFINITY; }
    }
    if (!c.times) {
        *loss = c.length ? INFINITY : 0;
        return;
    }
    {
        TJ_REAL a = c.old[count - 1], b = count > 1 ? c.old[count - 2] : -(TJ_REAL)INFINITY, most = a > b ? a : b;
        TJ_REAL shift = most == -(TJ_REAL)INFINITY ? 0 : most;
        *loss = -(TJ_LOG(TJ_QUICK_EXP(a - shift) + TJ_QUICK_EXP(b - shift)) + shift);
    }
}
TJ_CLONES static void TJ_NAMED(tj_spell_grad)(const tj_looping* l, int64_t sample, tj_hand* hand) {
    TJ_NAMED(tj_spelling) c;
    const TJ_REAL *alpha = (const TJ_REAL*)l->arrays[6], grad = ((const TJ_REAL*)l->arrays[0])[sample], loss = ((const TJ_REAL*)l->arrays[5])[sample];
    TJ_REAL* made = (TJ_REAL*)l->arrays[7];
    int64_t t, s, k, count;
    int impossible = isinf(loss);
    TJ_NAMED(tj_spell_begin)(&c, l->how, (const TJ_REAL*)l->arrays[1], l->arrays + 2, sample, hand);
    count = 2 * c.length + 1;
    for (t = l->outer - 1; t >= 0; t--) {
        const TJ_REAL *row = c.given + t * c.samples * c.classes, *before = alpha + (t * c.samples + sample) * c.states;
        TJ_REAL* out = made + (t * c.samples + sample) * c.classes;
        if (t >= c.times || impossible) {
            for (k = 0; k < c.classes; k++) { out[k] = t >= c.times || l->how[TJ_OWN + 2] ? 0 : (TJ_REAL)NAN; }
            continue;
        }
        TJ_NAMED(tj_spell_now)(&c, t);
        if (t < c.times - 1) { TJ_NAMED(tj_spell_step)(c.old, c.skips, c.now, c.new, count, 1); }
        else { for (s = count - 1; s >= 0 && s > count - 3; s--) { c.new[s] = c.now[s]; } }
        TJ_SWAP(&c)
        for (k = 0; k < c.classes; k++) { out[k] = TJ_QUICK_EXP(row[k]); }
        for (s = 0; s < count; s++) {
            int none = before[s] == -(TJ_REAL)INFINITY || c.old[s] == -(TJ_REAL)INFINITY;
            c.now[s] = none ? 0 : TJ_QUICK_EXP(before[s] + c.old[s] - c.now[s] + loss);
        }
        for (s = 0; s < count; s++) { out[c.of_state[s]] -= c.now[s]; }
        for (k = 0; k < c.classes; k++) { out[k] *= grad; }
    }
}
#undef TJ_SWAP
