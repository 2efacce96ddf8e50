/* The inner loops that torch has no operation for, each with a torch or numpy equal in Python.
 *
 * Plain C functions of arrays, called by ctypes from puda/native.py; OpenMP shares torch's threads.
 * Work is divided by rows and every sum has a fixed order, so results do not depend on the number
 * of threads. A score that is not a number stays one.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8 };
typedef float Floats __attribute__((vector_size(32), aligned(4)));
typedef int32_t Ints __attribute__((vector_size(32), aligned(4)));

static inline Floats all(float x) { return (Floats){x, x, x, x, x, x, x, x}; }
static inline Floats load(const float *from) { return *(const Floats *)from; }
static inline void store(float *to, Floats x) { *(Floats *)to = x; }
static inline Floats pick(Ints mask, Floats x, Floats y) {
    return (Floats)((mask & (Ints)x) | (~mask & (Ints)y));
}
static inline Floats size_of(Floats x) { return (Floats)((Ints)x & 0x7fffffff); }

static inline float sum(Floats x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

/* Up to eight numbers of a row; `here` is known when compiling but for the last ones. */
static inline Floats load_some(const float *from, int64_t here, float rest) {
    if (here == LANES) return load(from);
    Floats x = all(rest);
    memcpy(&x, from, here * sizeof(float));
    return x;
}
static inline void store_some(float *to, int64_t here, Floats x) {
    if (here == LANES) store(to, x);
    else memcpy(to, &x, here * sizeof(float));
}

/* Which of up to eight entries count; NULL: those that exist do. */
static inline Ints counts(const uint8_t *counted, int64_t here) {
    if (!counted) return (Ints){0, 1, 2, 3, 4, 5, 6, 7} < (int32_t)here;
    int32_t w[2] = {0}; /* four bytes each, which as many lanes look at */
    if (here == LANES) memcpy(w, counted, LANES);
    else memcpy(w, counted, here);
    const Ints bytes = {0xff, 0xff00, 0xff0000, 0xff000000, 0xff, 0xff00, 0xff0000, 0xff000000};
    return ((Ints){w[0], w[0], w[0], w[0], w[1], w[1], w[1], w[1]} & bytes) != 0;
}

/* exp of numbers <= 0: 2^n exp(r), |r| <= ln(2)/2, by the Taylor series to r^7 (error < 1e-8). */
static inline Floats exp_of(Floats x) {
    const Ints tiny = x < all(-87.0f);
    x = pick(tiny, all(-87.0f), x);
    const Floats shift = all(12582912.0f); /* 1.5 * 2^23: adding it rounds to whole numbers */
    const Floats n = (x * 1.44269504f + shift) - shift;
    const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
    Floats y = all(1.0f / 5040);
    y = y * r + 1.0f / 720;
    y = y * r + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    const Ints power = (__builtin_convertvector(n, Ints) + 127) << 23;
    return pick(tiny, all(0.0f), y * (Floats)power);
}

/* The parts of a row, of up to eight entries at a time; c is NULL or what counts. */
static inline Floats larger(Floats most, const float *x, const uint8_t *c, int64_t here) {
    const Floats v = pick(counts(c, here), load_some(x, here, 0.0f), all(-INFINITY));
    return pick((v > most) | (v != v), v, most); /* what is not a number wins */
}
static inline Floats exponents(const float *x, const uint8_t *c, int64_t here, float top) {
    return pick(counts(c, here), exp_of(load_some(x, here, top) - top), all(0.0f));
}

/* total[q] = ln sum_j exp(u[q][j]) over what counts = top[q] - ln scale[q], the largest entry and
 * the rest of it; they are kept apart, since large entries leave no digits for the rest. */
void puda_log_sum(const float *u, const uint8_t *counted, int64_t rows, int64_t n, float *total,
                  float *top, float *scale) {
#pragma omp parallel for schedule(static)
    for (int64_t q = 0; q < rows; q++) {
        const float *x = u + q * n;
        const uint8_t *c = counted ? counted + q * n : NULL;
        Floats most = all(-INFINITY), sums = all(0.0f);
        int64_t j = 0;
        for (; j + LANES <= n; j += LANES) most = larger(most, x + j, c ? c + j : NULL, LANES);
        if (j < n) most = larger(most, x + j, c ? c + j : NULL, n - j);
        float t = most[0];
        for (int k = 1; k < LANES; k++) t = most[k] > t || most[k] != most[k] ? most[k] : t;
        total[q] = top[q] = t, scale[q] = 0.0f;
        if (t == -INFINITY) continue; /* nothing counts */
        for (j = 0; j + LANES <= n; j += LANES) sums += exponents(x + j, c ? c + j : NULL, LANES, t);
        if (j < n) sums += exponents(x + j, c ? c + j : NULL, n - j, t);
        const float whole = sum(sums);
        total[q] += logf(whole), scale[q] = 1.0f / whole;
    }
}

/* slope[q][j] = gradient[q] exp(u[q][j] - top[q]), 0 for what does not count. */
void puda_log_sum_slope(const float *u, const uint8_t *counted, const float *top,
                        const float *gradient, int64_t rows, int64_t n, float *slope) {
#pragma omp parallel for schedule(static)
    for (int64_t q = 0; q < rows; q++) {
        const float *x = u + q * n;
        const uint8_t *c = counted ? counted + q * n : NULL;
        float *s = slope + q * n;
        int64_t j = 0;
        for (; j + LANES <= n; j += LANES)
            store(s + j, gradient[q] * exponents(x + j, c ? c + j : NULL, LANES, top[q]));
        if (j < n) {
            const Floats rest = exponents(x + j, c ? c + j : NULL, n - j, top[q]);
            store_some(s + j, n - j, gradient[q] * rest);
        }
    }
}

/* What a row's mean of softplus(m) = max(m, 0) + ln(1 + exp(-|m|)) is made of. */
typedef struct {
    Floats linear, product; /* one logarithm of a product serves many factors */
    Ints number;
} Softplus;

static inline void add_softplus(Softplus *to, const float *x, const uint8_t *c, int64_t here,
                                float below) {
    const Ints in = counts(c, here);
    const Floats m = pick(in, load_some(x, here, 0.0f) - below, all(0.0f));
    to->linear += pick(m < 0.0f, all(0.0f), m);
    to->product *= 1.0f + pick(in, exp_of(-size_of(m)), all(0.0f));
    to->number -= in;
}

static inline float take_logarithm(Softplus *of) {
    float logs = 0.0f;
    for (int k = 0; k < LANES; k++) logs += logf(of->product[k]);
    of->product = all(1.0f);
    return logs;
}

/* mean[q] = mean softplus(u[q][j] - p[q]) over what counts, weight[q] = 1 / how many do, or 0. */
void puda_softplus_mean(const float *u, const float *p, const uint8_t *counted, int64_t rows,
                        int64_t n, float *mean, float *weight) {
#pragma omp parallel for schedule(static)
    for (int64_t q = 0; q < rows; q++) {
        const float *x = u + q * n;
        const float below = p ? p[q] : 0.0f;
        const uint8_t *c = counted ? counted + q * n : NULL;
        float logs = 0.0f;
        Softplus parts = {all(0.0f), all(1.0f), {0}};
        int64_t j = 0, left = 64; /* factors <= 2: 64 of them stay finite */
        for (; j + LANES <= n; j += LANES) {
            add_softplus(&parts, x + j, c ? c + j : NULL, LANES, below);
            if (--left == 0) logs += take_logarithm(&parts), left = 64;
        }
        if (j < n) add_softplus(&parts, x + j, c ? c + j : NULL, n - j, below);
        logs += take_logarithm(&parts);
        int32_t number = 0;
        for (int k = 0; k < LANES; k++) number += parts.number[k];
        weight[q] = number ? 1.0f / number : 0.0f;
        mean[q] = (sum(parts.linear) + logs) * weight[q];
    }
}

static inline Floats sigmoids(const float *x, const uint8_t *c, int64_t here, float below) {
    const Ints in = counts(c, here);
    const Floats m = pick(in, load_some(x, here, 0.0f) - below, all(0.0f));
    const Floats e = exp_of(-size_of(m)), inverse = 1.0f / (1.0f + e);
    return pick(in, pick(m < 0.0f, e * inverse, inverse), all(0.0f));
}

/* slope[q][j] = gradient[q] sigmoid(u[q][j] - p[q]), 0 for what does not count; whole[q] its sum. */
void puda_softplus_slope(const float *u, const float *p, const uint8_t *counted,
                         const float *gradient, int64_t rows, int64_t n, float *slope,
                         float *whole) {
#pragma omp parallel for schedule(static)
    for (int64_t q = 0; q < rows; q++) {
        const float *x = u + q * n;
        const float below = p ? p[q] : 0.0f;
        const uint8_t *c = counted ? counted + q * n : NULL;
        float *s = slope + q * n;
        Floats sums = all(0.0f);
        int64_t j = 0;
        for (; j + LANES <= n; j += LANES) {
            const Floats g = gradient[q] * sigmoids(x + j, c ? c + j : NULL, LANES, below);
            store(s + j, g);
            sums += g;
        }
        if (j < n) {
            const Floats g = gradient[q] * sigmoids(x + j, c ? c + j : NULL, n - j, below);
            store_some(s + j, n - j, g);
            sums += g;
        }
        whole[q] = sum(sums);
    }
}

/* Count the rivals of answers in rows of scores. Row q has the items first[q] .. first[q + 1] - 1,
 * an item is an answer, and the known entities known[from[q] .. until[q] - 1], which are no rivals.
 * Returns 0 where a score is not finite. */
int puda_count(const float *scores, int64_t rows, int64_t n, const int64_t *first,
               const int64_t *answer, const int64_t *from, const int64_t *until,
               const int64_t *known, int64_t *greater, int64_t *equal, int64_t *left_out) {
    int finite = 1;
#pragma omp parallel for schedule(dynamic, 16) reduction(&& : finite)
    for (int64_t q = 0; q < rows; q++) {
        const float *x = scores + q * n;
        Floats flaw = all(0.0f);
        int64_t j = 0;
        for (; j + LANES <= n; j += LANES) flaw += load(x + j) - load(x + j);
        for (; j < n; j++) flaw[0] += x[j] - x[j];
        if (!(sum(flaw) == 0.0f)) finite = 0;
        for (int64_t i = first[q]; i < first[q + 1]; i++) {
            const float own = x[answer[i]];
            Ints above = {0}, level = {0};
            for (j = 0; j + LANES <= n; j += LANES) {
                above -= load(x + j) > own;
                level -= load(x + j) == own;
            }
            int64_t more = 0, same = -1, out = 0; /* the answer is level with itself */
            for (int k = 0; k < LANES; k++) more += above[k], same += level[k];
            for (; j < n; j++) more += x[j] > own, same += x[j] == own;
            for (int64_t k = from[q]; k < until[q]; k++) {
                if (known[k] == answer[i]) continue;
                const float other = x[known[k]];
                more -= other > own, same -= other == own, out++;
            }
            greater[i] = more, equal[i] = same, left_out[i] = out;
        }
    }
    return finite;
}

/* How many values of a stretch of x stand before a value, equals counting half: item i looks at
 * x[begin[i] .. begin[i] + length[i] - 1]. */
void puda_ahead(const float *x, const int64_t *begin, const int64_t *length, const float *value,
                int64_t items, double *out) {
#pragma omp parallel for schedule(dynamic, 64)
    for (int64_t i = 0; i < items; i++) {
        const float *from = x + begin[i], own = value[i];
        const int64_t n = length[i];
        Ints above = {0}, level = {0};
        int64_t j = 0, more = 0, same = 0;
        for (; j + LANES <= n; j += LANES) {
            above -= load(from + j) > own;
            level -= load(from + j) == own;
        }
        for (int k = 0; k < LANES; k++) more += above[k], same += level[k];
        for (; j < n; j++) more += from[j] > own, same += from[j] == own;
        out[i] = (double)more + 0.5 * (double)same;
    }
}

/* The place of a question in the sorted ones; `questions` where it is not among them. */
static inline int64_t place_of(int64_t key, const int64_t *keys, int64_t questions) {
    int64_t low = 0, high = questions;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (keys[middle] < key) low = middle + 1;
        else high = middle;
    }
    return low < questions && keys[low] == key ? low : questions;
}

/* known[row][column] = 1 where candidate `column` is a known answer of the question asked[row].
 * The questions (places in keys) that an entity answers are question[offset[e] .. offset[e + 1]
 * - 1]; slot (questions + 1) is scratch space, -1 between calls. Returns 0 if out of memory. */
int puda_mark(const int64_t *asked, int64_t rows, const int64_t *keys, int64_t questions,
              const int64_t *candidate, int64_t columns, const int64_t *question,
              const int64_t *offset, int32_t *slot, uint8_t *known) {
    int64_t *place = malloc(rows * sizeof *place);
    int32_t *next = malloc(rows * sizeof *next); /* rows that ask the same are a chain */
    if (rows && (!place || !next)) return 0;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) place[row] = place_of(asked[row], keys, questions);
    for (int64_t row = 0; row < rows; row++) {
        next[row] = slot[place[row]];
        slot[place[row]] = row;
    }
    for (int64_t column = 0; column < columns; column++) {
        const int64_t e = candidate[column];
        for (int64_t k = offset[e]; k < offset[e + 1]; k++)
            for (int32_t row = slot[question[k]]; row >= 0; row = next[row])
                known[row * columns + column] = 1;
    }
    for (int64_t row = 0; row < rows; row++) slot[place[row]] = -1;
    free(place), free(next);
    return 1;
}

/* out[i] = sum_k x[i][k] y[i][k]. */
void puda_row_dot(const float *x, const float *y, int64_t rows, int64_t d, float *out) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        Floats total = all(0.0f);
        float rest = 0.0f;
        int64_t k = 0;
        for (; k + LANES <= d; k += LANES) total += load(x + i * d + k) * load(y + i * d + k);
        for (; k < d; k++) rest += x[i * d + k] * y[i * d + k];
        out[i] = sum(total) + rest;
    }
}

/* out[i][j] = sum_k q[i][k] c[j][k] of few rows q, or c[ids[j]][k] where there are ids: each row of c
 * is read as it lies, two at a time for four rows of q. The products of libraries first put c into an
 * order of their own, which takes longer than few rows take to multiply. */
void puda_product(const float *q, const float *c, const int64_t *ids, int64_t rows, int64_t columns,
                  int64_t d, float *out) {
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < columns; j += 2) {
        const int64_t second = j + 1 < columns ? j + 1 : j;
        const float *x = c + (ids ? ids[j] : j) * d, *y = c + (ids ? ids[second] : second) * d;
        if (ids && j + 3 < columns)
            for (int64_t k = 0; k < d; k += 16) {
                __builtin_prefetch(c + ids[j + 2] * d + k);
                __builtin_prefetch(c + ids[j + 3] * d + k);
            }
        for (int64_t i = 0; i < rows; i += 4) {
            const float *a[4];
            Floats one[4], other[4];
            for (int n = 0; n < 4; n++) {
                a[n] = q + (i + n < rows ? i + n : i) * d; /* the last rows may be fewer */
                one[n] = other[n] = all(0.0f);
            }
            int64_t k = 0;
            for (; k + LANES <= d; k += LANES)
                for (int n = 0; n < 4; n++) {
                    const Floats own = load(a[n] + k);
                    one[n] += own * load(x + k);
                    other[n] += own * load(y + k);
                }
            for (int n = 0; n < 4 && i + n < rows; n++) {
                float rest[2] = {0.0f, 0.0f};
                for (int64_t m = k; m < d; m++) rest[0] += a[n][m] * x[m], rest[1] += a[n][m] * y[m];
                out[(i + n) * columns + j] = sum(one[n]) + rest[0];
                out[(i + n) * columns + second] = sum(second > j ? other[n] : one[n]) + rest[second > j];
            }
        }
    }
}

/* out[g] = sum over edges e of a group g of w[e] a[i[e]] b[j[e]], number by number; without b if it
 * is NULL. Edges lie group by group, `starts` (groups + 1) says where each begins. */
void puda_collect(const float *w, const float *a, const int64_t *i, const float *b,
                  const int64_t *j, const int64_t *starts, int64_t groups, int64_t d, float *out) {
    const int chunk = groups > 4096 ? 64 : 1; /* few groups are large ones */
#pragma omp parallel for schedule(dynamic, chunk)
    for (int64_t g = 0; g < groups; g++) {
        float *restrict to = out + g * d;
        memset(to, 0, d * sizeof *to);
        for (int64_t e = starts[g]; e < starts[g + 1]; e++) {
            const float *x = a + i[e] * d, weight = w[e];
            if (b) {
                const float *y = b + j[e] * d;
                for (int64_t k = 0; k < d; k++) to[k] += weight * x[k] * y[k];
            } else
                for (int64_t k = 0; k < d; k++) to[k] += weight * x[k];
        }
    }
}

/* out[e] = sum_k of g[o[e]][k] a[i[e]][k] b[j[e]][k]; without b if it is NULL. */
void puda_edge_dot(const float *g, const int64_t *o, const float *a, const int64_t *i,
                   const float *b, const int64_t *j, int64_t edges, int64_t d, float *out) {
#pragma omp parallel for schedule(static)
    for (int64_t e = 0; e < edges; e++) {
        const float *x = a + i[e] * d, *y = b ? b + j[e] * d : NULL, *z = g + o[e] * d;
        Floats total = all(0.0f);
        float rest = 0.0f;
        int64_t k = 0;
        for (; k + LANES <= d; k += LANES)
            total += load(z + k) * (y ? load(x + k) * load(y + k) : load(x + k));
        for (; k < d; k++) rest += z[k] * (y ? x[k] * y[k] : x[k]);
        out[e] = sum(total) + rest;
    }
}

/* Distances sum_k |q_k - c_k|, or sum_k of complex moduli where a row holds real, then imaginary
 * parts. Candidates are shared (columns, d), or own to each question (rows, columns, d). */
static inline float manhattan(const float *q, const float *c, int64_t d) {
    Floats near = all(0.0f), far = all(0.0f);
    int64_t k = 0;
    for (; k + 2 * LANES <= d; k += 2 * LANES) {
        near += size_of(load(q + k) - load(c + k));
        far += size_of(load(q + k + LANES) - load(c + k + LANES));
    }
    float rest = 0.0f;
    for (; k < d; k++) rest += fabsf(q[k] - c[k]);
    return sum(near + far) + rest;
}

static inline Floats root(Floats x) {
    for (int k = 0; k < LANES; k++) x[k] = sqrtf(x[k]);
    return x;
}

static inline float moduli(const float *q, const float *c, int64_t d) {
    const int64_t half = d / 2;
    Floats total = all(0.0f);
    int64_t k = 0;
    for (; k + LANES <= half; k += LANES) {
        const Floats re = load(q + k) - load(c + k);
        const Floats im = load(q + half + k) - load(c + half + k);
        total += root(re * re + im * im);
    }
    float rest = 0.0f;
    for (; k < half; k++) {
        const float re = q[k] - c[k], im = q[half + k] - c[half + k];
        rest += sqrtf(re * re + im * im);
    }
    return sum(total) + rest;
}

/* Complex moduli by AVX-512: sixteen at a time, and roots from their quick reciprocals. */
#if defined(__x86_64__)
#include <immintrin.h>
#define WIDE __attribute__((target("avx512f")))

enum { WIDTH = 16 };

static int is_wide(void) { return __builtin_cpu_supports("avx512f"); }

/* 1 / sqrt(x), by 14 bits of it and a step of Newton's; 0 where x is as good as 0. */
WIDE static inline __m512 inverse_root(__m512 x) {
    const __mmask16 some = _mm512_cmp_ps_mask(x, _mm512_set1_ps(1e-30f), _CMP_NLT_UQ);
    const __m512 y = _mm512_maskz_rsqrt14_ps(some, x);
    return y * (1.5f - (0.5f * x * y) * y);
}

static inline uint16_t first(int64_t number) { return number >= 16 ? 0xffff : (1u << number) - 1; }

WIDE static inline __m512 part(const float *from, int64_t here) {
    return _mm512_maskz_loadu_ps(first(here), from);
}

WIDE static inline __m512 sixteen_moduli(const float *q, const float *c, int64_t half, int64_t here) {
    const __m512 re = part(q, here) - part(c, here);
    const __m512 im = part(q + half, here) - part(c + half, here);
    const __m512 square = re * re + im * im;
    return square * inverse_root(square);
}

WIDE static void wide_moduli(const float *q, const float *c, int64_t columns, int64_t d, float *out) {
    const int64_t half = d / 2;
    for (int64_t j = 0; j < columns; j++, c += d) {
        __m512 total = _mm512_setzero_ps();
        int64_t k = 0;
        for (; k + WIDTH <= half; k += WIDTH) total += sixteen_moduli(q + k, c + k, half, WIDTH);
        if (k < half) total += sixteen_moduli(q + k, c + k, half, half - k);
        out[j] = _mm512_reduce_add_ps(total);
    }
}

/* The slopes of one question's distances from candidates of its own. */
WIDE static void wide_own_slopes(const float *q, const float *c, const float *g, int64_t columns,
                                 int64_t d, float *dq, float *dc) {
    const int64_t half = d / 2;
    for (int64_t k = 0; k < half; k += WIDTH) {
        const int64_t here = half - k;
        const __m512 qre = part(q + k, here), qim = part(q + half + k, here);
        __m512 sre = _mm512_setzero_ps(), sim = sre;
        for (int64_t j = 0; j < columns; j++) {
            const float *at = c + j * d + k;
            const __m512 re = qre - part(at, here), im = qim - part(at + half, here);
            const __m512 f = g[j] * inverse_root(re * re + im * im);
            sre += f * re, sim += f * im;
            _mm512_mask_storeu_ps(dc + j * d + k, first(here), -f * re);
            _mm512_mask_storeu_ps(dc + j * d + half + k, first(here), -f * im);
        }
        _mm512_mask_storeu_ps(dq + k, first(here), sre);
        _mm512_mask_storeu_ps(dq + half + k, first(here), sim);
    }
}

/* The slopes of all distances by sixteen of the numbers, for which candidates lie together in
 * `near` (columns, 2, 16), with room for their slopes behind them. */
WIDE static void wide_slopes(const float *q, const float *c, const float *g, int64_t rows,
                             int64_t columns, int64_t d, int64_t k, float *near, float *dq,
                             float *dc) {
    const int64_t half = d / 2, here = half - k;
    float *slopes = near + columns * 2 * WIDTH;
    for (int64_t j = 0; j < 2 * columns; j++) {
        _mm512_storeu_ps(near + j * WIDTH, part(c + j / 2 * d + j % 2 * half + k, here));
        _mm512_storeu_ps(slopes + j * WIDTH, _mm512_setzero_ps());
    }
    for (int64_t i = 0; i < rows; i++) {
        const __m512 qre = part(q + i * d + k, here), qim = part(q + i * d + half + k, here);
        __m512 sre = _mm512_setzero_ps(), sim = sre;
        for (int64_t j = 0; j < columns; j++) {
            const float *at = near + j * 2 * WIDTH;
            float *slope = slopes + j * 2 * WIDTH;
            const __m512 re = qre - _mm512_loadu_ps(at), im = qim - _mm512_loadu_ps(at + WIDTH);
            const __m512 f = g[i * columns + j] * inverse_root(re * re + im * im);
            sre += f * re, sim += f * im;
            _mm512_storeu_ps(slope, _mm512_loadu_ps(slope) - f * re);
            _mm512_storeu_ps(slope + WIDTH, _mm512_loadu_ps(slope + WIDTH) - f * im);
        }
        _mm512_mask_storeu_ps(dq + i * d + k, first(here), sre);
        _mm512_mask_storeu_ps(dq + i * d + half + k, first(here), sim);
    }
    for (int64_t j = 0; j < 2 * columns; j++)
        _mm512_mask_storeu_ps(dc + j / 2 * d + j % 2 * half + k, first(here),
                              _mm512_loadu_ps(slopes + j * WIDTH));
}

static void wide_distance_slope(const float *q, const float *c, const float *g, int64_t rows,
                                int64_t columns, int64_t d, int own, float *dq, float *dc) {
    if (own) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < rows; i++) {
            const int64_t at = i * columns;
            wide_own_slopes(q + i * d, c + at * d, g + at, columns, d, dq + i * d, dc + at * d);
        }
        return;
    }
#pragma omp parallel
    {
        float *near = malloc(4 * WIDTH * columns * sizeof(float));
#pragma omp for schedule(static)
        for (int64_t k = 0; k < d / 2; k += WIDTH)
            wide_slopes(q, c, g, rows, columns, d, k, near, dq, dc);
        free(near);
    }
}
#else
static int is_wide(void) { return 0; }
static void wide_moduli(const float *q, const float *c, int64_t columns, int64_t d, float *out) {}
static void wide_distance_slope(const float *q, const float *c, const float *g, int64_t rows,
                                int64_t columns, int64_t d, int own, float *dq, float *dc) {}
#endif

void puda_distance(int complex, const float *q, const float *c, int64_t rows, int64_t columns,
                   int64_t d, int own, float *out) {
    const int wide = complex && is_wide();
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const float *block = own ? c + i * columns * d : c;
        if (wide) {
            wide_moduli(q + i * d, block, columns, d, out + i * columns);
            continue;
        }
        for (int64_t j = 0; j < columns; j++)
            out[i * columns + j] = complex ? moduli(q + i * d, block + j * d, d)
                                           : manhattan(q + i * d, block + j * d, d);
    }
}

/* Add g * (slope of the distance by q) to dq; put its opposite, the slope by c, into dc if any. */
static inline void add_slope(int complex, const float *q, const float *c, float g, int64_t d,
                             float *restrict dq, float *restrict dc) {
    if (!complex) {
        int64_t k = 0;
        for (; k + LANES <= d; k += LANES) {
            const Floats x = load(q + k) - load(c + k);
            const Floats up = (Floats)((x > 0.0f) & (Ints)all(g));
            const Floats down = (Floats)((x < 0.0f) & (Ints)all(g));
            store(dq + k, load(dq + k) + (up - down));
            if (dc) store(dc + k, down - up);
        }
        for (; k < d; k++) {
            const float x = g * ((q[k] > c[k]) - (q[k] < c[k]));
            dq[k] += x;
            if (dc) dc[k] = -x;
        }
        return;
    }
    const int64_t half = d / 2;
    int64_t k = 0;
    for (; k + LANES <= half; k += LANES) {
        const Floats re = load(q + k) - load(c + k);
        const Floats im = load(q + half + k) - load(c + half + k);
        const Floats square = re * re + im * im;
        const Floats f = pick(square > 0.0f, g / root(square), all(0.0f));
        store(dq + k, load(dq + k) + f * re);
        store(dq + half + k, load(dq + half + k) + f * im);
        if (dc) store(dc + k, -f * re), store(dc + half + k, -f * im);
    }
    for (; k < half; k++) {
        const float re = q[k] - c[k], im = q[half + k] - c[half + k];
        const float square = re * re + im * im, f = square > 0.0f ? g / sqrtf(square) : 0.0f;
        dq[k] += f * re, dq[half + k] += f * im;
        if (dc) dc[k] = -f * re, dc[half + k] = -f * im;
    }
}

/* Gradients by questions and by candidates; shared candidates', and all questions', start from 0. */
void puda_distance_slope(int complex, const float *q, const float *c, const float *g, int64_t rows,
                         int64_t columns, int64_t d, int own, float *dq, float *dc) {
    if (complex && is_wide()) {
        wide_distance_slope(q, c, g, rows, columns, d, own, dq, dc);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const float *block = own ? c + i * columns * d : c;
        for (int64_t j = 0; j < columns; j++) {
            const float slope = g[i * columns + j];
            float *opposite = own ? dc + (i * columns + j) * d : NULL;
            if (slope == 0.0f) {
                if (own) memset(opposite, 0, d * sizeof *opposite);
                continue;
            }
            add_slope(complex, q + i * d, block + j * d, slope, d, dq + i * d, opposite);
        }
    }
    if (own) return;
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            if (g[i * columns + j] != 0.0f)
                add_slope(complex, c + j * d, q + i * d, g[i * columns + j], d, dc + j * d, NULL);
}

/* Sums of w[f][k] max(0, x[f][k] + a[f] c[k]) over filters f and numbers k: what ConvKB scores by. A
 * question has x (filters, d), a (filters,) and w (filters, d); candidates c are shared (columns, d)
 * or own to each question (rows, columns, d). */
static inline Floats rectify(Floats x) { return pick(x <= 0.0f, all(0.0f), x); }

static inline void rectify_four(const float *x, float a, const float *w, const float *const c[4],
                                int64_t here, Floats total[4]) {
    const Floats own = load_some(x, here, 0.0f), weight = load_some(w, here, 0.0f);
    for (int n = 0; n < 4; n++)
        total[n] += weight * rectify(own + a * load_some(c[n], here, 0.0f));
}

enum { TILE = 64 }; /* candidates that stay in cache while the questions pass by */

void puda_rectified(const float *x, const float *a, const float *w, const float *c, int64_t rows,
                    int64_t columns, int64_t filters, int64_t d, int own, float *out) {
    const int64_t tiles = (columns + TILE - 1) / TILE;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t t = 0; t < tiles; t++)
        for (int64_t i = 0; i < rows; i++) {
            const float *block = own ? c + i * columns * d : c;
            const int64_t stop = (t + 1) * TILE < columns ? (t + 1) * TILE : columns;
            for (int64_t j = t * TILE; j < stop; j += 4) {
                Floats total[4] = {all(0.0f), all(0.0f), all(0.0f), all(0.0f)};
                for (int64_t f = 0; f < filters; f++) {
                    const int64_t at = (i * filters + f) * d;
                    for (int64_t k = 0; k < d; k += LANES) {
                        const float *some[4]; /* the last ones may be fewer */
                        for (int n = 0; n < 4; n++)
                            some[n] = block + (j + n < stop ? j + n : j) * d + k;
                        const float slope = a[i * filters + f];
                        if (k + LANES <= d) rectify_four(x + at + k, slope, w + at + k, some, LANES, total);
                        else rectify_four(x + at + k, slope, w + at + k, some, d - k, total);
                    }
                }
                for (int n = 0; n < 4 && j + n < stop; n++)
                    out[i * columns + j + n] = sum(total[n]);
            }
        }
}

/* Of one filter of a question and up to eight numbers: sums over its candidates. */
static inline void rectified_question(const float *x, float a, const float *w, const float *c,
                                      const float *g, int64_t columns, int64_t d, int64_t here,
                                      float *dx, float *dw, Floats *da) {
    const Floats own = load_some(x, here, 0.0f), weight = load_some(w, here, 0.0f);
    Floats passed = all(0.0f), moved = all(0.0f), heard = all(0.0f);
    for (int64_t j = 0; j < columns; j++) {
        const Floats row = load_some(c + j * d, here, 0.0f), z = own + a * row;
        const Floats slope = pick(z > 0.0f, all(g[j]), all(0.0f));
        passed += slope, moved += slope * row, heard += slope * z;
    }
    store_some(dx, here, weight * passed);
    store_some(dw, here, heard);
    *da += weight * moved;
}

/* Of a pair and up to eight numbers: the sum over filters. */
static inline void rectified_candidate(const float *x, const float *a, const float *w, const float *c,
                                       float g, int64_t filters, int64_t d, int64_t here, float *dc) {
    const Floats row = load_some(c, here, 0.0f);
    Floats total = all(0.0f);
    for (int64_t f = 0; f < filters; f++) {
        const Floats z = load_some(x + f * d, here, 0.0f) + a[f] * row;
        total += pick(z > 0.0f, a[f] * load_some(w + f * d, here, 0.0f), all(0.0f));
    }
    store_some(dc, here, load_some(dc, here, 0.0f) + g * total);
}

/* Gradients by x, a, w and c; that by c starts from zero. */
void puda_rectified_slope(const float *x, const float *a, const float *w, const float *c,
                          const float *g, int64_t rows, int64_t columns, int64_t filters, int64_t d,
                          int own, float *dx, float *da, float *dw, float *dc) {
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t f = 0; f < filters; f++) {
            const float *block = own ? c + i * columns * d : c, *slope = g + i * columns;
            const int64_t at = (i * filters + f) * d;
            const float by = a[i * filters + f];
            Floats total = all(0.0f);
            int64_t k = 0;
            for (; k + LANES <= d; k += LANES)
                rectified_question(x + at + k, by, w + at + k, block + k, slope, columns, d, LANES,
                                   dx + at + k, dw + at + k, &total);
            if (k < d)
                rectified_question(x + at + k, by, w + at + k, block + k, slope, columns, d, d - k,
                                   dx + at + k, dw + at + k, &total);
            da[i * filters + f] = sum(total);
        }
    const int64_t groups = own ? rows : (columns + TILE - 1) / TILE;
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < groups; t++)
        for (int64_t i = own ? t : 0; i < (own ? t + 1 : rows); i++) {
            const int64_t stop = own || (t + 1) * TILE > columns ? columns : (t + 1) * TILE;
            for (int64_t j = own ? 0 : t * TILE; j < stop; j++) {
                const int64_t pair = i * columns + j, row = (own ? pair : j) * d;
                const float *question = x + i * filters * d, *weight = w + i * filters * d;
                int64_t k = 0;
                for (; k + LANES <= d; k += LANES)
                    rectified_candidate(question + k, a + i * filters, weight + k, c + row + k, g[pair],
                                        filters, d, LANES, dc + row + k);
                if (k < d)
                    rectified_candidate(question + k, a + i * filters, weight + k, c + row + k, g[pair],
                                        filters, d, d - k, dc + row + k);
            }
        }
}

/* Steps on the rows of a table. Ids may repeat: their gradients are summed first, in order. Gradients
 * come in blocks of rows; slot (entities) is scratch space, -1 between calls. */
typedef struct {
    int64_t distinct;
    int64_t *row;         /* (distinct) rows of the table */
    const float **source; /* (n) gradients */
    int32_t *chain;       /* (n) to the next gradient of the same row; -1: none */
    int32_t *head, *last; /* (distinct) where a row's gradients begin and end */
} Named;

static void forget(Named *named) { free(named->source), free(named->row), free(named->chain); }

static int gather(Named *named, int64_t d, const int64_t *ids, int64_t blocks, const int64_t *sizes,
                  const float *const *gradients, int32_t *slot) {
    int64_t n = 0, i = 0;
    for (int64_t b = 0; b < blocks; b++) n += sizes[b];
    int32_t *chain = malloc(3 * n * sizeof *chain);
    *named = (Named){0, malloc(n * sizeof *named->row), malloc(n * sizeof *named->source), chain,
                     chain + n, chain + 2 * n};
    if (n && (!named->row || !named->source || !chain)) {
        forget(named);
        return 0;
    }
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t k = 0; k < sizes[b]; k++, i++) {
            named->source[i] = gradients[b] + k * d;
            chain[i] = -1;
            const int32_t at = slot[ids[i]];
            if (at < 0) {
                slot[ids[i]] = named->distinct;
                named->row[named->distinct] = ids[i];
                named->head[named->distinct] = named->last[named->distinct] = i;
                named->distinct++;
            } else {
                chain[named->last[at]] = i;
                named->last[at] = i;
            }
        }
    for (int64_t u = 0; u < named->distinct; u++) slot[named->row[u]] = -1;
    return 1;
}

static inline void add_up(const Named *named, int64_t u, int64_t d, float *restrict total) {
    memcpy(total, named->source[named->head[u]], d * sizeof *total);
    for (int32_t k = named->chain[named->head[u]]; k >= 0; k = named->chain[k])
        for (int64_t x = 0; x < d; x++) total[x] += named->source[k][x];
}

/* Fetch a table's part of the next row, meanwhile. */
static inline void fetch_next(const Named *named, int64_t u, int64_t d, const float *table) {
    if (u + 1 < named->distinct)
        for (int64_t x = 0; x < d; x += 16)
            __builtin_prefetch(table + named->row[u + 1] * d + x, 1);
}

int puda_adagrad(float *weight, float *state, int64_t d, const int64_t *ids, int64_t blocks,
                 const int64_t *sizes, const float *const *gradients, int32_t *slot, float rate) {
    Named named;
    if (!gather(&named, d, ids, blocks, sizes, gradients, slot)) return 0;
#pragma omp parallel
    {
        float total[d];
#pragma omp for schedule(static)
        for (int64_t u = 0; u < named.distinct; u++) {
            add_up(&named, u, d, total);
            fetch_next(&named, u, d, weight), fetch_next(&named, u, d, state);
            float *w = weight + named.row[u] * d, *s = state + named.row[u] * d;
            for (int64_t x = 0; x < d; x++) {
                s[x] += total[x] * total[x];
                w[x] -= rate * total[x] / (sqrtf(s[x]) + 1e-10f);
            }
        }
    }
    forget(&named);
    return 1;
}

/* Adam whose moments and bias corrections advance with the row's own steps. */
int puda_adam(float *weight, float *mean, float *square, float *steps, int64_t d,
              const int64_t *ids, int64_t blocks, const int64_t *sizes,
              const float *const *gradients, int32_t *slot, float rate) {
    Named named;
    if (!gather(&named, d, ids, blocks, sizes, gradients, slot)) return 0;
#pragma omp parallel
    {
        float total[d];
#pragma omp for schedule(static)
        for (int64_t u = 0; u < named.distinct; u++) {
            add_up(&named, u, d, total);
            fetch_next(&named, u, d, weight), fetch_next(&named, u, d, mean);
            fetch_next(&named, u, d, square);
            const int64_t at = named.row[u] * d;
            float *w = weight + at, *m = mean + at, *v = square + at;
            const double step = steps[named.row[u]] += 1.0f;
            const float first = -1.0 / expm1(step * log(0.9)), second = -1.0 / expm1(step * log(0.999));
            for (int64_t x = 0; x < d; x++) {
                m[x] = 0.9f * m[x] + 0.1f * total[x];
                v[x] = 0.999f * v[x] + 0.001f * total[x] * total[x];
                w[x] -= rate * (first * m[x]) / (sqrtf(second * v[x]) + 1e-8f);
            }
        }
    }
    forget(&named);
    return 1;
}

/* Products of bfloat16 tiles, where the processor has them (AMX): two to three times as fast as those
 * of floats. An operand is read as rows x[r][k]; of a 32 x 32 block two tiles of 16 rows are made, whose
 * 32-bit entries are pairs of neighbouring k: for the left operand a tile's rows are r and its
 * entries k, for the right one it lies transposed. */
#if defined(__x86_64__) && defined(__linux__) && __has_include(<amxbf16intrin.h>)
#include <cpuid.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TILED __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512bf16")))

enum { SIDE = 32, ENTRIES = 512 };    /* of a block; its entries */
enum { DEPTH = 512, ABREAST = 16 }; /* k and blocks of the right operand at a time: half a megabyte */

int puda_has_tiles(void) {
    enum { ASK_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d, more;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !__get_cpuid_count(7, 1, &more, &b, &c, &b)) return 0;
    const int tiles = (d >> 22 & 1) && (d >> 24 & 1), halves = more >> 5 & 1;
    return tiles && halves && !syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA);
}

typedef struct {
    const float *at;
    int64_t row, column; /* steps to the next r and the next k: one of them is 1 */
    int64_t rows, columns;
} Operand;

static inline void transpose(const uint32_t from[16][16], uint32_t *to) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) to[16 * i + j] = from[j][i];
}

/* The tile of 16 rows from r and 32 columns from k, zero beyond the ends. */
TILED static void pack_tile(const Operand *x, int64_t r, int64_t k, int left, uint32_t *out) {
    uint32_t direct[16][16] __attribute__((aligned(64)));
    const int along = x->column == 1; /* pairs lie beside each other */
    for (int i = 0; i < 16; i++) {
        __m512i entries;
        if (along) {
            const int64_t have = r + i < x->rows ? x->columns - k : 0;
            const float *at = x->at + (r + i) * x->row + k;
            const __m512 low = _mm512_maskz_loadu_ps(have > 0 ? first(have) : 0, at);
            const __m512 high = _mm512_maskz_loadu_ps(have > 16 ? first(have - 16) : 0, at + 16);
            entries = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        } else {
            const int64_t have = x->rows - r, at = k + 2 * i;
            const uint16_t some = have > 0 ? first(have) : 0;
            const float *from = x->at + at * x->column + r;
            const __m512 even = _mm512_maskz_loadu_ps(at < x->columns ? some : 0, from);
            const __m512 odd = _mm512_maskz_loadu_ps(at + 1 < x->columns ? some : 0, from + x->column);
            const __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(odd));
            entries = _mm512_or_si512(_mm512_slli_epi32(high, 16),
                                      _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(even)));
        }
        _mm512_store_si512(direct[i], entries);
    }
    if (along == left) memcpy(out, direct, sizeof direct);
    else transpose(direct, out);
}

static inline int64_t blocks_of(int64_t number) { return (number + SIDE - 1) / SIDE; }

/* c (32 x 32 at most) = or += the product of packed rows and columns. */
TILED static void multiply(const uint32_t *a, const uint32_t *b, int64_t steps, int add, float *c,
                           int64_t width, int64_t rows, int64_t columns) {
    float edge[SIDE * SIDE] __attribute__((aligned(64)));
    const int whole = rows >= SIDE && columns >= SIDE;
    float *to = whole ? c : edge;
    const int64_t below = whole ? 16 * width : 16 * SIDE, stride = whole ? 4 * width : 4 * SIDE;
    const size_t have = (columns < SIDE ? columns : SIDE) * sizeof *c;
    if (add && !whole)
        for (int64_t i = 0; i < rows && i < SIDE; i++) memcpy(edge + i * SIDE, c + i * width, have);
    if (add) {
        _tile_loadd(0, to, stride);
        _tile_loadd(1, to + 16, stride);
        _tile_loadd(2, to + below, stride);
        _tile_loadd(3, to + below + 16, stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t s = 0; s < steps; s++, a += ENTRIES, b += ENTRIES) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + ENTRIES / 2, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + ENTRIES / 2, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, stride);
    _tile_stored(1, to + 16, stride);
    _tile_stored(2, to + below, stride);
    _tile_stored(3, to + below + 16, stride);
    if (!whole)
        for (int64_t i = 0; i < rows && i < SIDE; i++) memcpy(c + i * width, edge + i * SIDE, have);
}

/* c (m x n) = a b of a (m x k) and b (k x n), whose numbers stand a_row or b_row apart from row to
 * row and a_column or b_column from column to column: one of the two is 1. */
TILED int puda_tiled_product(const float *a, int64_t a_row, int64_t a_column, const float *b,
                             int64_t b_row, int64_t b_column, int64_t m, int64_t n, int64_t k, float *c) {
    const Operand x = {a, a_row, a_column, m, k}, y = {b, b_column, b_row, n, k};
    const int64_t high = blocks_of(m), wide = blocks_of(n), groups = (wide + ABREAST - 1) / ABREAST;
    const int64_t most = (k < DEPTH ? blocks_of(k) : DEPTH / SIDE) * ENTRIES; /* of 32 rows */
    const size_t page = 1 << 21, size = ((high + wide) * most * sizeof(uint32_t) + page - 1) / page * page;
    uint32_t *left = aligned_alloc(page, size);
    if (!left) return 0;
    madvise(left, size, MADV_HUGEPAGE); /* small pages are looked up at every other tile */
    uint32_t *right = left + high * most;
#pragma omp parallel
    {
        uint8_t shape[64] = {1}; /* palette 1; from 16 on bytes a row, from 48 on rows of each tile */
        for (int t = 0; t < 8; t++) shape[16 + 2 * t] = 64, shape[48 + t] = 16;
        _tile_loadconfig(shape);
        for (int64_t start = 0; start < k; start += DEPTH) {
            const int64_t steps = k - start < DEPTH ? blocks_of(k - start) : DEPTH / SIDE;
#pragma omp for schedule(static)
            for (int64_t block = 0; block < high + wide; block++) {
                const int is_left = block < high;
                const int64_t r = (is_left ? block : block - high) * SIDE;
                uint32_t *out = left + block * most;
                for (int64_t s = 0; s < 2 * steps; s++, out += ENTRIES / 2)
                    pack_tile(is_left ? &x : &y, r + s % 2 * 16, start + s / 2 * SIDE, is_left, out);
            }
#pragma omp for schedule(static)
            for (int64_t part = 0; part < groups * high; part++) {
                const int64_t i = part % high, from = part / high * ABREAST;
                for (int64_t j = from; j < wide && j < from + ABREAST; j++)
                    multiply(left + i * most, right + j * most, steps, start > 0,
                             c + i * SIDE * n + j * SIDE, n, m - i * SIDE, n - j * SIDE);
            }
        }
        _tile_release();
    }
    free(left);
    return 1;
}
#else
int puda_has_tiles(void) { return 0; }
int puda_tiled_product(const float *a, int64_t a_row, int64_t a_column, const float *b, int64_t b_row,
                       int64_t b_column, int64_t m, int64_t n, int64_t k, float *c) {
    return 0;
}
#endif

/* Whether products of bfloat16 vectors are known to be faster than those of floats. */
int puda_has_vectors(void) {
#if defined(__x86_64__) && __has_include(<avx512bf16intrin.h>) /* a compiler that knows the word */
    return __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512bf16");
#else
    return 0;
#endif
}
