/* The regularized incomplete gamma functions of float64. Equations are those of NIST's Digital Library of Mathematical Functions. */
#ifndef TJ_INCOMPLETE
#define TJ_INCOMPLETE
#include <math.h>
/* The coefficients of eta ** n in c_k of 8.12.9: of rational numbers, by 8.12.10, from the powers of eta that 8.12.2 makes of lambda - 1. */
static const double TJ_UNIFORM[10][16] = {
    {-0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073, 0.0003527336860670194, -0.0001787551440329218,
     3.919263178522438e-05, -2.185448510679992e-06, -1.85406221071516e-06, 8.296711340953087e-07, -1.7665952736826078e-07, 6.707853543401498e-09,
     1.0261809784240309e-08, -4.382036018453353e-09, 9.14769958223679e-10, -2.5514193994946248e-11},
    {-0.001851851851851852, -0.003472222222222222, 0.0026455026455026454, -0.0009902263374485596, 0.00020576131687242798, -4.018775720164609e-07,
     -1.8098550334489977e-05, 7.64916091608111e-06, -1.6120900894563446e-06, 4.647127802807434e-09, 1.378633446915721e-07, -5.752545603517705e-08,
     1.1951628599778148e-08, -1.7543241719747647e-11, -1.0091543710600413e-09, 4.162792991842583e-10},
    {0.004133597883597883, -0.0026813271604938273, 0.0007716049382716049, 2.0093878600823047e-06, -0.0001073665322636516, 5.2923448829120125e-05,
     -1.2760635188618728e-05, 3.423578734096138e-08, 1.3721957309062934e-06, -6.298992138380055e-07, 1.4280614206064242e-07,
     -2.0477098421990866e-10, -1.409252991086752e-08, 6.228974084922022e-09, -1.3670488396617114e-09, 9.428356159014678e-13},
    {0.0006494341563786008, 0.00022947209362139917, -0.0004691894943952557, 0.00026772063206283885, -7.561801671883977e-05, -2.396505113867297e-07,
     1.1082654115347302e-05, -5.6749528269915965e-06, 1.4230900732435883e-06, -2.7861080291528143e-11, -1.6958404091930278e-07,
     8.099464905388083e-08, -1.9111168485973655e-08, 2.3928620439808118e-12, 2.0620131815488797e-09, -9.460496661855133e-10},
    {-0.0008618882909167117, 0.0007840392217200666, -0.0002990724803031902, -1.4638452578843418e-06, 6.641498215465122e-05, -3.968365047179435e-05,
     1.1375726970678419e-05, 2.507497226237533e-10, -1.6954149536558305e-06, 8.907507532205309e-07, -2.292934834000805e-07, 2.956794137544049e-11,
     2.8865829742708783e-08, -1.4189739437803219e-08, 3.4463580499464896e-09, -2.3024517174528067e-13},
    {-0.00033679855336635813, -6.972813758365857e-05, 0.0002772753244959392, -0.00019932570516188847, 6.797780477937208e-05, 1.419062920643967e-07,
     -1.3594048189768693e-05, 8.018470256334202e-06, -2.291481176508095e-06, -3.252473551298454e-10, 3.4652846491085265e-07,
     -1.8447187191171344e-07, 4.8240967037894184e-08, -1.7989466721743514e-14, -6.306194500013523e-09, 3.162417628774568e-09},
    {0.0005313079364639922, -0.0005921664373536939, 0.0002708782096718045, 7.902353232660328e-07, -8.153969367561969e-05, 5.61168275310625e-05,
     -1.8329116582843375e-05, -3.0796134506033047e-09, 3.465155368803609e-06, -2.0291327396058603e-06, 5.788792863149004e-07,
     2.338630673826657e-13, -8.828600746330484e-08, 4.7435958880408125e-08, -1.2545415020710383e-08, 8.649648858010293e-14},
    {0.00034436760689237765, 5.171790908260592e-05, -0.00033493161081142234, 0.0002812695154763237, -0.00010976582244684731,
     -1.2741009095484485e-07, 2.7744451511563645e-05, -1.8263488805711332e-05, 5.7876949497350525e-06, 4.93875893393627e-10,
     -1.0595367014026043e-06, 6.166714376110408e-07, -1.7562973359060463e-07, -1.297447328701544e-12, 2.695423606288966e-08,
     -1.4578352908731272e-08},
    {-0.0006526239185953094, 0.0008394987206720873, -0.000438297098541721, -6.969091458420552e-07, 0.00016644846642067547, -0.00012783517679769218,
     4.629953263691304e-05, 4.557909867922708e-09, -1.0595271125805195e-05, 6.783342904865167e-06, -2.1075476666258803e-06,
     -1.7213731432817144e-11, 3.773587741611098e-07, -2.1867506700122867e-07, 6.220228804018927e-08, 6.597703826733e-16},
    {-0.0005967612901927463, -7.204895416020011e-05, 0.0006782308837667328, -0.0006401475260262758, 0.00027750107634328704, 1.819700838046515e-07,
     -8.479507117068503e-05, 6.105192082501531e-05, -2.1073920183404862e-05, -8.858589014125599e-10, 4.5284535953805374e-06,
     -2.8427815022504407e-06, 8.708234177864641e-07, 3.6886101871706966e-12, -1.534469519070206e-07, 8.862466778790695e-08}
};
/* The zeta function of 2, 3, ... without its first term. */
static const double TJ_ZETAS[] = {
    0.6449340668482264, 0.2020569031595943, 0.08232323371113819, 0.03692775514336993, 0.01734306198444914, 0.008349277381922827,
    0.00407735619794434, 0.0020083928260822143, 0.0009945751278180853, 0.0004941886041194645, 0.0002460865533080483, 0.00012271334757848915,
    6.124813505870483e-05, 3.058823630702049e-05, 1.528225940865187e-05, 7.637197637899763e-06, 3.81729326499984e-06, 1.908212716553939e-06,
    9.539620338727962e-07, 4.769329867878064e-07, 2.38450502727733e-07, 1.1921992596531106e-07, 5.960818905125948e-08, 2.980350351465228e-08,
    1.4901554828365043e-08, 7.45071178983543e-09, 3.725334024788457e-09
};

/* log(gamma(1 + a)) by 5.7.3, to its last places where a is small. */
static double tj_log_gamma_after_one(double a) {
    double sum = 0;
    int k;
    if (a > 0.5) { return lgamma(1 + a); }
    for (k = 28; k > 1; k--) { sum = -a * (sum + TJ_ZETAS[k - 2] / k); }
    return a * 0.42278433509846713939 - log1p(a) - a * sum; /* 1 - Euler's constant */
}
/* mu - log(1 + mu) for |mu| < 0.5: log(1 + mu) = 2 artanh(v), and mu = 2 v + mu v. */
static double tj_without_logarithm(double mu) {
    double v = mu / (2 + mu), s = v * v, sum = 0;
    int k;
    for (k = 25; k > 1; k -= 2) { sum = sum * s + 1.0 / k; }
    return mu * v - 2 * v * s * sum;
}
/* x ** a exp(-x) / gamma(a + 1). Of large a, by Stirling's formula (5.11.1) and by how far x is from a: neither factor is computed by itself. */
static double tj_gamma_weight(double a, double x, double least) {
    double mu, far, z = 1 / (a * a), rest;
    if (a < 20 && least > 1e-12) { return exp(a * log(x) - x - lgamma(a + 1)); }
    if (a < 20) { return x > 1500 ? 0 : pow(x, a) * exp(-x / 2) / tgamma(a + 1) * exp(-x / 2); }
    mu = (x - a) / a;
    far = fabs(mu) < 0.4 ? tj_without_logarithm(mu) : mu - log(x / a);
    rest = (1.0 / 12 - z * (1.0 / 360 - z * (1.0 / 1260 - z * (1.0 / 1680 - z / 1188)))) / a;
    return exp(-a * far - rest) * 0.39894228040143267794 / sqrt(a);
}
/* Near the transition: 8.12.3, 8.12.4 and 8.12.7. */
static double tj_gamma_uniform(double a, double mu, int upper, double least) {
    double far = tj_without_logarithm(mu), eta = copysign(sqrt(2 * far), mu), inverse = 1 / a, sum = 0, tail;
    int few = least > 1e-12, k, n, terms = few ? 5 : a < 100 ? 10 : 7;
    for (k = terms - 1; k >= 0; k--) {
        double of_eta = 0;
        for (n = few ? 8 : 15; n >= 0; n--) { of_eta = of_eta * eta + TJ_UNIFORM[k][n]; }
        sum = sum * inverse + of_eta;
    }
    tail = exp(-a * far) * 0.39894228040143267794 / sqrt(a) * sum;
    eta *= sqrt(a / 2);
    return upper ? erfc(eta) / 2 + tail : erfc(-eta) / 2 - tail;
}
/* The lower one by 8.7.1 and 8.2.4, of positive terms. */
static double tj_gamma_lower(double a, double x, double least) {
    double term = 1, sum = 1, n = a;
    do { n += 1, term *= x / n, sum += term; } while (term > least * sum);
    return sum * tj_gamma_weight(a, x, least);
}
/* The upper one where both are small, without its cancellation: 8.7.3 with gamma(a) in it. */
static double tj_gamma_upper_near(double a, double x, double least) {
    double power = a * log(x) - tj_log_gamma_after_one(a), less = expm1(power), factor = 1, sum = 0, term;
    int n = 0;
    do { n++, factor *= -x / n, term = factor / (a + n), sum += term; } while (fabs(term) > least * fabs(sum));
    return -less - a * (1 + less) * sum;
}
/* The upper one by its continued fraction (8.9.2, contracted), as numerators and denominators of its convergents. */
static double tj_gamma_upper_far(double a, double x, double least) {
    double weight = tj_gamma_weight(a, x, least), y = 1 - a, z = x + y + 1, c = 0, p2 = 1, q2 = x, p1 = x + 1, q1 = z * x, found = p1 / q1, error;
    if (weight == 0) { return 0; }
    do {
        double p, q, next;
        c += 1, y += 1, z += 2;
        p = p1 * z - p2 * y * c, q = q1 * z - q2 * y * c;
        p2 = p1, p1 = p, q2 = q1, q1 = q;
        next = p / q, error = fabs(found - next), found = next;
        if (fabs(p) > 1e100) { p1 *= 1e-100, p2 *= 1e-100, q1 *= 1e-100, q2 *= 1e-100; }
    } while (error > least * fabs(found) && c < 2000);
    return found * weight * a;
}
static double tj_gamma_part(double a, double x, int upper, double least) {
    double mu;
    if (!(a > 0 && x > 0 && a < INFINITY && x < INFINITY)) {
        if (a < 0 || x < 0) { return NAN; }
        if (a == 0) { return x > 0 ? !upper : NAN; }
        if (isinf(a)) { return isinf(x) ? NAN : upper; }
        return isinf(x) ? !upper : x == 0 ? upper : NAN;
    }
    mu = (x - a) / a;
    if (a >= 20 && fabs(mu) < 0.3) { return tj_gamma_uniform(a, mu, upper, least); }
    if (!upper) { return x < a + 5 ? tj_gamma_lower(a, x, least) : 1 - tj_gamma_upper_far(a, x, least); }
    if (x <= 1.1 && !(x <= 0.5 ? -0.4 / log(x) < a : 1.1 * x < a)) { return tj_gamma_upper_near(a, x, least); }
    return x < a || x <= 1.1 ? 1 - tj_gamma_lower(a, x, least) : tj_gamma_upper_far(a, x, least);
}
static double tj_igamma(double a, double x) { return tj_gamma_part(a, x, 0, 1e-17); }
static double tj_igammac(double a, double x) { return tj_gamma_part(a, x, 1, 1.5e-16); }
/* Rounded to float32. */
static double tj_igamma_single(double a, double x) { return tj_gamma_part(a, x, 0, 1e-9); }
static double tj_igammac_single(double a, double x) { return tj_gamma_part(a, x, 1, 1e-9); }
#endif
