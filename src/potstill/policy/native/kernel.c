/* The decision kernel. kernel.h documents it; encoding.inc holds the features, network.inc the vectorised arithmetic. */
#include "kernel.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "encoding.inc"

/* ---- the network ----------------------------------------------------------------------------------------------- */

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

#if defined(__GNUC__) && !defined(__clang__)
#define UNROLL _Pragma("GCC unroll 8")
#else
#define UNROLL
#endif

/* Vector accumulators in flight: enough to hide the latency of an addition, few enough for the registers. */
#define SUMS 8

/* Define POTSTILL_PLAIN to disable vectors for compilers that miscompile them. */
#if defined(__GNUC__) && !defined(POTSTILL_PLAIN)
#define VECTORS
#endif

/* Inputs of the first layer scanned for zeros at a time. */
#define CHUNK 64

static size_t widest_stride(const potstill_policy *policy)
{
    size_t widest = 0;
    for (size_t i = 0; i < policy->layer_count; i++) {
        if (policy->layers[i].stride > widest) widest = policy->layers[i].stride;
    }
    return widest;
}

POTSTILL_API size_t potstill_scratch_size(const potstill_policy *policy)
{
    /* A mask follows the activations: of bins in bytes, four in a float, or of a masked policy's inputs in floats. Whole
     * strides keep what a caller puts behind it aligned. */
    const size_t widest = widest_stride(policy);
    return 2 * widest + (policy->edges ? widest / sizeof(float) : 0) + (policy->masked ? widest : 0);
}

/* Tests the bits: cheaper than a float comparison, which must handle NaN. */
INLINE size_t is_not_zero(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return (bits & 0x7fffffffu) != 0;
}

/* Mixes with the uniform policy over the eligible actions, so that each has at least the floor's probability. */
static void apply_floor(float *p, size_t count, const uint8_t *eligible, float floor)
{
    size_t allowed = 0;
    for (size_t k = 0; k < count; k++) allowed += !eligible || eligible[k];
    const float share = fmaxf(0.0f, 1.0f - (float)allowed * floor); /* rounding may give less than 0 */
    for (size_t k = 0; k < count; k++) p[k] = !eligible || eligible[k] ? share * p[k] + floor : 0.0f;
}

#if defined(VECTORS) && (defined(__SSE2__) || defined(__ARM_NEON) || defined(__wasm_simd128__))
#define LANES 4
#else
#define LANES 1
INLINE float float_from_bits(int32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}
#endif
#define VARIANT(name) name##_portable
#define TARGET
#include "network.inc"

#if defined(VECTORS) && defined(__x86_64__) && !defined(_WIN32)

#define VARIANT(name) name##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#include "network.inc"

#define VARIANT(name) name##_avx512
#define TARGET __attribute__((target("avx512f")))
#define LANES 16
#include "network.inc"

/* Dispatched at each call, which takes a nanosecond. `target_clones` would need ifuncs, which musl, macOS and
 * AddressSanitizer do not support. */
#define HAS_AVX512 __builtin_cpu_supports("avx512f")
#define HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))

#else
#define HAS_AVX512 false
#define HAS_AVX2 false
#define probabilities_avx512 probabilities_portable
#define probabilities_avx2 probabilities_portable
#endif

/* The probabilities of all actions in each context, inside scratch; contexts are `widest_stride` apart. */
static float *probabilities(const potstill_policy *policy, size_t contexts, const float *encoded,
                            const uint8_t *eligible, float floor, float *scratch)
{
    if (HAS_AVX512) return probabilities_avx512(policy, contexts, encoded, eligible, floor, scratch);
    if (HAS_AVX2) return probabilities_avx2(policy, contexts, encoded, eligible, floor, scratch);
    return probabilities_portable(policy, contexts, encoded, eligible, floor, scratch);
}

POTSTILL_API const char *potstill_instructions(void)
{
    return HAS_AVX512 ? "avx512" : HAS_AVX2 ? "avx2" : "portable";
}

static potstill_status check(const potstill_policy *policy, size_t contexts, const float *encoded,
                             const uint8_t *eligible, double floor)
{
    bool finite = true; /* checked here, because a relu could hide NaN */
    for (size_t i = 0; i < contexts * policy->width; i++) finite &= fabsf(encoded[i]) <= FLT_MAX;
    if (!finite) return POTSTILL_NOT_FINITE;
    for (size_t c = 0; eligible && c < contexts; c++) {
        bool any = false;
        for (size_t k = 0; k < policy->actions; k++) any |= eligible[c * policy->actions + k] != 0;
        if (!any) return POTSTILL_NOT_ELIGIBLE;
    }
    return floor >= 0.0 && floor <= 1.0 / (double)policy->actions ? POTSTILL_OK : POTSTILL_BAD_FLOOR;
}

POTSTILL_API potstill_status potstill_probabilities_many(const potstill_policy *policy, size_t contexts,
                                                         const float *encoded, const uint8_t *eligible, double floor,
                                                         float *scratch, float *p)
{
    const potstill_status status = check(policy, contexts, encoded, eligible, floor);
    if (status != POTSTILL_OK) return status;
    const float *found = probabilities(policy, contexts, encoded, eligible, (float)floor, scratch);
    for (size_t c = 0; c < contexts; c++, found += widest_stride(policy), p += policy->actions) {
        float sum = 0.0f;
        for (size_t k = 0; k < policy->actions; k++) sum += p[k] = found[k];
        if (!(sum > 0.0f)) return POTSTILL_OVERFLOW;
    }
    return POTSTILL_OK;
}

POTSTILL_API potstill_status potstill_probabilities(const potstill_policy *policy, const float *encoded,
                                                    const uint8_t *eligible, double floor, float *scratch, float *p)
{
    return potstill_probabilities_many(policy, 1, encoded, eligible, floor, scratch, p);
}

/* ---- the draw -------------------------------------------------------------------------------------------------- */

static uint64_t rotate(uint64_t word, int bits)
{
    return (word << bits) | (word >> (64 - bits));
}

static void siphash_rounds(uint64_t v[4], int count)
{
    while (count--) {
        v[0] += v[1];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[0] = rotate(v[0], 32);
        v[2] += v[3];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[2] = rotate(v[2], 32);
    }
}

static uint64_t little_endian(const uint8_t *bytes, size_t count)
{
    uint64_t word = 0;
    for (size_t i = 0; i < count; i++) word |= (uint64_t)bytes[i] << (8 * i);
    return word;
}

static void siphash_absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    siphash_rounds(v, 2);
    v[0] ^= word;
}

/* SipHash-2-4 of a message followed by up to 8 more bytes. */
static uint64_t siphash_joined(const uint8_t key[16], const void *message, size_t length, const uint8_t *more,
                               size_t count)
{
    const uint64_t k0 = little_endian(key, 8), k1 = little_endian(key + 8, 8);
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du, k0 ^ 0x6c7967656e657261u,
                     k1 ^ 0x7465646279746573u};
    const uint8_t *bytes = message;
    for (size_t left = length / 8; left; left--, bytes += 8) siphash_absorb(v, little_endian(bytes, 8));
    uint8_t rest[16] = {0};
    const size_t left = length % 8 + count;
    memcpy(rest, bytes, length % 8);
    if (count) memcpy(rest + length % 8, more, count);
    if (left >= 8) siphash_absorb(v, little_endian(rest, 8));
    siphash_absorb(v, little_endian(rest + left / 8 * 8, left % 8) | (uint64_t)(length + count) << 56);
    v[2] ^= 0xff;
    siphash_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

POTSTILL_API uint64_t potstill_siphash(const uint8_t key[16], const void *message, size_t length)
{
    return siphash_joined(key, message, length, NULL, 0);
}

/* The length of the UTF-8 sequence at the start of `bytes`; 0 if it is invalid. */
static size_t sequence_length(const uint8_t *bytes, size_t left)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t first = bytes[0];
    if (first < 0x80) return 1;
    const size_t length = first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf8 ? 4 : 0;
    if (!length || length > left) return 0;
    uint32_t point = first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) return 0;
        point = point << 6 | (bytes[i] & 0x3f);
    }
    const bool surrogate = point >= 0xd800 && point <= 0xdfff;
    return point < smallest[length] || point > 0x10ffff || surrogate ? 0 : length;
}

static bool is_utf8(potstill_text text)
{
    for (size_t at = 0, length; at < text.length; at += length) {
        length = sequence_length((const uint8_t *)text.bytes + at, text.length - at);
        if (!length) return false;
    }
    return true;
}

static double unit_interval(uint64_t hash)
{
    return (double)(hash >> 11) * (1.0 / 9007199254740992.0);
}

POTSTILL_API potstill_status potstill_uniform(const potstill_policy *policy, potstill_text id, double *u)
{
    if (!id.length || !is_utf8(id)) return POTSTILL_BAD_ID;
    *u = unit_interval(potstill_siphash(policy->salt, id.bytes, id.length));
    return POTSTILL_OK;
}

/* The j-th draw hashes the id, a byte that never occurs in UTF-8, and j in four bytes. */
POTSTILL_API potstill_status potstill_uniforms(const potstill_policy *policy, potstill_text id, size_t count, double *u)
{
    const potstill_status status = count ? potstill_uniform(policy, id, u) : POTSTILL_OK;
    for (size_t j = 1; status == POTSTILL_OK && j < count; j++) {
        const uint8_t more[] = {0xff, (uint8_t)j, (uint8_t)(j >> 8), (uint8_t)(j >> 16), (uint8_t)(j >> 24)};
        u[j] = unit_interval(siphash_joined(policy->salt, id.bytes, id.length, more, sizeof more));
    }
    return status;
}

/* Inverse transform sampling: u is scaled by the total of the probabilities, so that rounding favours no action. */
static size_t choose(const float *p, size_t actions, double u)
{
    double total = 0.0, reached = 0.0;
    size_t last = 0;
    for (size_t k = 0; k < actions; k++) total += p[k];
    for (size_t k = 0; k < actions; k++) {
        reached += p[k];
        if (reached > u * total) return k;
        if (p[k] > 0.0f) last = k;
    }
    return last;
}

POTSTILL_API potstill_status potstill_decide_many(const potstill_policy *policy, size_t contexts, const float *encoded,
                                                  const double *u, const uint8_t *eligible, double floor,
                                                  float *scratch, potstill_decision *decisions)
{
    const potstill_status status = check(policy, contexts, encoded, eligible, floor);
    if (status != POTSTILL_OK) return status;
    const float *p = probabilities(policy, contexts, encoded, eligible, (float)floor, scratch);
    for (size_t c = 0; c < contexts; c++, p += widest_stride(policy)) {
        const size_t action = choose(p, policy->actions, u[c]);
        decisions[c] = (potstill_decision){action, p[action], u[c]};
        if (!(p[action] > 0.0f)) return POTSTILL_OVERFLOW;
    }
    return POTSTILL_OK;
}

POTSTILL_API potstill_status potstill_decide(const potstill_policy *policy, const float *encoded, potstill_text id,
                                             const uint8_t *eligible, double floor, float *scratch,
                                             potstill_decision *decision)
{
    double u;
    const potstill_status status = potstill_uniform(policy, id, &u);
    if (status != POTSTILL_OK) return status;
    return potstill_decide_many(policy, 1, encoded, &u, eligible, floor, scratch, decision);
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

/* What is allowed of a bin: its ends, and the part of the bin that lies between them. */
typedef struct {
    double lower, upper, part;
} potstill_span;

/* What an interval allows of a bin; NULL allows all of it. */
static potstill_span allowed_span(const double *edges, size_t bin, const double *interval)
{
    const double low = edges[bin], high = edges[bin + 1];
    if (!interval) return (potstill_span){low, high, 1.0};
    const double lower = low > interval[0] ? low : interval[0], upper = high < interval[1] ? high : interval[1];
    return (potstill_span){lower, upper, upper > lower ? (upper - lower) / (high - low) : 0.0};
}

/* The place of a draw within a span. The product is stored, because fusing it with the addition would change the last
 * bit; rounding may reach the upper end, which is the next bin's. */
static double place_within(potstill_span span, double u)
{
    volatile double offset = u * (span.upper - span.lower);
    const double place = span.lower + offset;
    return place < span.upper ? place : span.lower;
}

/* Sums over what an interval allows of each bin: the parts, and the probabilities that they keep. */
static void sum_allowed(const potstill_policy *policy, const float *p, const double *interval, double *parts,
                        double *weights)
{
    for (size_t k = 0; k < policy->actions; k++) {
        const double part = allowed_span(policy->edges, k, interval).part;
        *parts += part;
        *weights += p[k] * part;
    }
}

/* Four sums at a time, since each addition waits for the one before. */
static double sum_of(const float *p, size_t count)
{
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    size_t k = 0;
    for (; k + 4 <= count; k += 4)
        for (size_t i = 0; i < 4; i++) sums[i] += p[k + i];
    for (; k < count; k++) sums[0] += p[k];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Chooses a bin by its cumulative probability, then the place within it. Probabilities add up to 1 but for rounding. */
static potstill_status choose_number(const potstill_policy *policy, const float *p, const double *u,
                                     const double *interval, double floor, potstill_number *number)
{
    double parts = 0.0, weights = 0.0, reached = 0.0, chosen = 0.0;
    size_t last = 0;
    if (interval) sum_allowed(policy, p, interval, &parts, &weights);
    else parts = (double)policy->actions, weights = sum_of(p, policy->actions);
    if (!(weights > 0.0)) return POTSTILL_OVERFLOW;
    /* A bin's probability: its share of the weights, mixed with the uniform distribution over what is allowed. */
    const double scale = (1.0 - floor) / weights, even = floor / parts;
    for (size_t k = 0; k < policy->actions && !(reached > u[0]); k++) {
        const double probability = allowed_span(policy->edges, k, interval).part * (p[k] * scale + even);
        reached += probability;
        if (probability > 0.0) last = k, chosen = probability;
    }
    const potstill_span span = allowed_span(policy->edges, last, interval);
    *number = (potstill_number){place_within(span, u[1]), chosen / (span.upper - span.lower), last, {u[0], u[1]}};
    return POTSTILL_OK;
}

/* Marks the bins that an interval allows at least in part. */
static potstill_status mask_bins(const potstill_policy *policy, const double *interval, uint8_t *mask)
{
    const double *edges = policy->edges;
    if (!(interval[0] >= edges[0] && interval[0] < interval[1] && interval[1] <= edges[policy->actions]))
        return POTSTILL_BAD_INTERVAL;
    for (size_t k = 0; k < policy->actions; k++) mask[k] = edges[k + 1] > interval[0] && edges[k] < interval[1];
    return POTSTILL_OK;
}

POTSTILL_API potstill_status potstill_decide_numbers(const potstill_policy *policy, size_t contexts,
                                                     const float *encoded, const double *u, const double *intervals,
                                                     double floor, float *scratch, potstill_number *numbers)
{
    uint8_t *mask = intervals ? (uint8_t *)(scratch + 2 * contexts * widest_stride(policy)) : NULL;
    if (!(floor >= 0.0 && floor <= 1.0)) return POTSTILL_BAD_SHARE;
    potstill_status status = POTSTILL_OK;
    for (size_t c = 0; mask && status == POTSTILL_OK && c < contexts; c++)
        status = mask_bins(policy, intervals + 2 * c, mask + c * policy->actions);
    if (status == POTSTILL_OK) status = check(policy, contexts, encoded, mask, 0.0);
    if (status != POTSTILL_OK) return status;
    const float *p = probabilities(policy, contexts, encoded, mask, 0.0f, scratch);
    for (size_t c = 0; status == POTSTILL_OK && c < contexts; c++, p += widest_stride(policy))
        status = choose_number(policy, p, u + 2 * c, intervals ? intervals + 2 * c : NULL, floor, &numbers[c]);
    return status;
}

POTSTILL_API potstill_status potstill_decide_number(const potstill_policy *policy, const float *encoded,
                                                    potstill_text id, const double *interval, double floor,
                                                    float *scratch, potstill_number *number)
{
    double u[2];
    const potstill_status status = potstill_uniforms(policy, id, 2, u);
    if (status != POTSTILL_OK) return status;
    return potstill_decide_numbers(policy, 1, encoded, u, interval, floor, scratch, number);
}

POTSTILL_API const char *potstill_message(potstill_status status)
{
    static const char *const messages[] = {
        "ok",
        "a value is missing",
        "expected a number",
        "expected a finite number",
        "expected text",
        "expected true or false",
        "a decision's id must be a non-empty string of valid UTF-8",
        "floor must be a number from 0 to one over the number of actions",
        "eligible is empty; allow at least one action",
        "the scores are not finite: the policy's weights are too large",
        "floor must be a number from 0 to 1, the share of uniform decisions",
        "an interval must be within the bounds, and start below its end",
        "expected text that is valid UTF-8",
        "expected a list of numbers",
        "expected a list of another length",
        "expected a shorter text",
        "expected a time of the years 1 to 9999: RFC 3339 with seconds and an offset, a date, or a number of the unit",
    };
    return (size_t)status < sizeof messages / sizeof *messages ? messages[status] : "unknown status";
}
