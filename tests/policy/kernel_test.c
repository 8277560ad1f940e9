/* The kernel alone: against reference vectors, libm and a network in double precision. sanitize.sh runs it. */
#include "kernel.c"

#include <stdio.h>
#include <stdlib.h>

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) failures++, printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                           \
    } while (0)

/* ---- the draw -------------------------------------------------------------------------------------------------- */

/* Of the messages 00 01 02 ..., under the key 00 01 ... 0f: from the authors' reference implementation. */
static void test_siphash(void)
{
    static const struct {
        size_t length;
        uint64_t hash;
    } reference[] = {
        {0, 0x726fdb47dd0e0e31u}, {1, 0x74f839c593dc67fdu}, {2, 0x0d6c8009d9a94f5au}, {3, 0x85676696d7fb7e2du},
        {4, 0xcf2794e0277187b7u}, {5, 0x18765564cd99a68du}, {6, 0xcbc9466e58fee3ceu}, {7, 0xab0200f58b01d137u},
        {8, 0x93f5f5799a932462u}, {15, 0xa129ca6149be45e5u}, {63, 0x958a324ceb064572u},
    };
    uint8_t message[64];
    for (size_t i = 0; i < sizeof message; i++) message[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof reference / sizeof *reference; i++)
        CHECK(potstill_siphash(message, message, reference[i].length) == reference[i].hash);
}

static potstill_text text(const char *bytes)
{
    return (potstill_text){bytes, strlen(bytes)};
}

static void test_ids(void)
{
    static const char *const good[] = {"a",            "\x7f",         "\xc2\x80",         "\xdf\xbf",
                                       "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",     "\xef\xbf\xbf",
                                       "\xe2\x98\x83", "up\xc3\xa9",   "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"",         "\x80",         "\xc0\xaf",         "\xc1\xbf",
                                      "\xff",     "\xe0\x9f\xbf", "\xed\xa0\x80",     "\xed\xbf\xbf",
                                      "a\xe2\x98", "\xe2\x98(",    "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                                      "\xc3(",    "\xc3",         "\xf0\x90\x80",     "\xf8\x88\x80\x80\x80"};
    const potstill_policy policy = {.salt = {1, 2, 3}};
    double u = -1.0;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(potstill_uniform(&policy, text(good[i]), &u) == POTSTILL_OK);
        CHECK(u >= 0.0 && u < 1.0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(potstill_uniform(&policy, text(bad[i]), &u) == POTSTILL_BAD_ID);
}

static void test_choose(void)
{
    const float p[] = {0.0f, 0.25f, 0.0f, 0.5f, 0.25f, 0.0f}, nothing[] = {0.0f, 0.0f};
    CHECK(choose(p, 6, 0.0) == 1);
    CHECK(choose(p, 6, 0.2499999) == 1);
    CHECK(choose(p, 6, 0.25) == 3);
    CHECK(choose(p, 6, 0.75) == 4);
    CHECK(choose(p, 6, 1.0 - 0x1p-53) == 4);
    CHECK(choose(p, 6, 1.0) == 4); /* as if u times the total had been rounded up */
    CHECK(choose(nothing, 2, 0.5) == 0);
}

/* ---- encoding -------------------------------------------------------------------------------------------------- */

static const potstill_category places[] = {{{"home", 4}, 0}, {{"work", 4}, 1}, {{"stra\xc3\x9f" "e", 7}, 2}};
static const potstill_feature features[] = {
    {.name = "speed", .kind = POTSTILL_NUMERIC, .low = -10, .high = 10, .origin = -10, .span = 20},
    {.name = "age", .kind = POTSTILL_NUMERIC, .missing = POTSTILL_FLAG, .column = 1, .low = 0, .high = 1, .span = 1},
    {.name = "price", .kind = POTSTILL_NUMERIC, .missing = POTSTILL_STAND_IN, .column = 3, .stand_in = 10, .low = 1,
     .high = 100, .span = 4.605170185988092, .log = true},
    {.name = "new", .kind = POTSTILL_BOOLEAN, .missing = POTSTILL_STAND_IN, .column = 4, .stand_in = 1},
    {.name = "place", .kind = POTSTILL_CATEGORICAL, .missing = POTSTILL_STAND_IN, .column = 5,
     .categories = places, .category_count = 3},
};
static const potstill_policy encoder = {.features = features, .feature_count = 5, .width = 9};

static potstill_value number(double x) { return (potstill_value){POTSTILL_NUMBER, {.number = x}}; }
static potstill_value truth(bool x) { return (potstill_value){POTSTILL_TRUTH, {.truth = x}}; }
static potstill_value words(const char *x) { return (potstill_value){POTSTILL_TEXT, {.text = text(x)}}; }

static void check_encoding(const potstill_value values[5], const float expected[9])
{
    float encoded[9];
    CHECK(potstill_encode(&encoder, values, encoded, NULL) == POTSTILL_OK);
    for (size_t i = 0; i < 9; i++) CHECK(encoded[i] == expected[i]);
}

static void check_refused(size_t position, potstill_value value, potstill_status expected)
{
    potstill_value values[5] = {number(0)};
    float encoded[9];
    size_t refused = 99;
    values[position] = value;
    CHECK(potstill_encode(&encoder, values, encoded, &refused) == expected);
    CHECK(refused == position);
}

static void test_encoding(void)
{
    const potstill_value all[] = {number(-5), number(0.5), number(100), truth(false), words("stra\xc3\x9f" "e")};
    const potstill_value clipped[] = {number(1e300), number(-3), number(-1), truth(true), words("elsewhere")};
    const potstill_value missing[] = {number(10), {0}, {0}, {0}, {0}};
    check_encoding(all, (float[]){0.25f, 0.5f, 0, 1, 0, 0, 0, 1, 0});
    check_encoding(clipped, (float[]){1, 0, 0, 0, 1, 0, 0, 0, 1});
    check_encoding(missing, (float[]){1, 0, 1, 0.5f, 1, 0, 0, 0, 1});
    check_refused(0, (potstill_value){0}, POTSTILL_MISSING_VALUE);
    check_refused(0, words("fast"), POTSTILL_NOT_A_NUMBER);
    check_refused(0, truth(true), POTSTILL_NOT_A_NUMBER);
    check_refused(1, number(NAN), POTSTILL_NOT_FINITE);
    check_refused(2, number(INFINITY), POTSTILL_NOT_FINITE);
    check_refused(3, number(1), POTSTILL_NOT_TRUTH);
    check_refused(4, truth(false), POTSTILL_NOT_TEXT);
}

/* Texts in memory of just their size, so that AddressSanitizer sees a read beyond it. */
static potstill_status encode_text(size_t ngrams, const char *bytes, size_t length, float encoded[8])
{
    const potstill_feature title = {.name = "t", .kind = POTSTILL_NGRAMS, .missing = POTSTILL_FLAG, .size = 7,
                                    .ngrams = ngrams};
    const potstill_policy policy = {.features = &title, .feature_count = 1, .width = 8};
    char *own = malloc(length ? length : 1);
    if (!own) abort();
    memcpy(own, bytes, length);
    const potstill_value value = {POTSTILL_TEXT, {.text = {own, length}}};
    const potstill_status status = potstill_encode(&policy, &value, encoded, NULL);
    free(own);
    return status;
}

static void check_same_text(const char *one, size_t length, const char *other)
{
    float first[8], second[8], total = 0.0f;
    CHECK(encode_text(3, one, length, first) == POTSTILL_OK);
    CHECK(encode_text(3, other, strlen(other), second) == POTSTILL_OK);
    CHECK(memcmp(first, second, sizeof first) == 0);
    for (size_t i = 0; i < 8; i++) total += first[i] * first[i];
    CHECK(fabsf(total - 1.0f) < 1e-6f && first[7] == 0.0f);
}

static void test_texts(void)
{
    float encoded[8];
    const float nothing[8] = {0};
    const uint64_t hash = potstill_siphash((uint8_t[16]){0}, " a ", 3);
    CHECK(encode_text(3, "?A!", 3, encoded) == POTSTILL_OK);
    for (size_t i = 0; i < 8; i++) CHECK(encoded[i] == (i == hash % 7 ? hash >> 63 ? -1.0f : 1.0f : 0.0f));
    check_same_text("Red\0SHOES", 9, "red shoes");
    check_same_text("\xe6\x9d\xb1!", 4, "  \xe6\x9d\xb1");
    for (size_t n = 2; n <= POTSTILL_LONGEST_NGRAM; n++) {
        CHECK(encode_text(n, "", 0, encoded) == POTSTILL_OK && memcmp(encoded, nothing, sizeof nothing) == 0);
        CHECK(encode_text(n, "\0\0 !", 4, encoded) == POTSTILL_OK && memcmp(encoded, nothing, sizeof nothing) == 0);
        CHECK(encode_text(n, "\xf0\x9f\x8e\xb2\xf0\x9f\x8e\xb2\xf0\x9f\x8e\xb2", 12, encoded) == POTSTILL_OK);
    }
    static const char *const broken[] = {"a\xed\xa0\x80", "\xff", "word \xc3", "\x80", "\xf0\x9f\x8e", "\xc0\x80"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        CHECK(encode_text(3, broken[i], strlen(broken[i]), encoded) == POTSTILL_NOT_UTF8);
    static const size_t lengths[] = {4096, 4097, 10000, 10000000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char *text = malloc(lengths[i]);
        if (!text) abort();
        memset(text, i % 2 ? 'x' : '\0', lengths[i]);
        const potstill_status expected = lengths[i] > 4096 ? POTSTILL_TOO_LONG : POTSTILL_OK;
        CHECK(encode_text(3, text, lengths[i], encoded) == expected);
        for (size_t j = 0; j + 4 <= lengths[i]; j += 4) memcpy(text + j, "\xf0\x9f\x8e\xb2", 4);
        if (lengths[i] % 4 == 0) CHECK(encode_text(8, text, lengths[i], encoded) == (lengths[i] <= 16384 ? POTSTILL_OK : POTSTILL_TOO_LONG));
        free(text);
    }
}

static potstill_status encode_moment(const potstill_feature *feature, potstill_value value, float encoded[83])
{
    const potstill_policy policy = {.features = feature, .feature_count = 1, .width = 83};
    if (value.type != POTSTILL_TEXT) return potstill_encode(&policy, &value, encoded, NULL);
    const size_t length = value.as.text.length;
    char *own = malloc(length ? length : 1);
    if (!own) abort();
    memcpy(own, value.as.text.bytes, length);
    value.as.text.bytes = own;
    const potstill_status status = potstill_encode(&policy, &value, encoded, NULL);
    free(own);
    return status;
}

/* Monday to Sunday, day of the month and month from 0, and their place among the columns. */
static void check_moment(const potstill_feature *feature, potstill_value value, size_t hour, size_t weekday, size_t day,
                         size_t month)
{
    float encoded[83];
    CHECK(encode_moment(feature, value, encoded) == POTSTILL_OK);
    const size_t ones[] = {6 + hour, 30 + weekday, 37 + day, 68 + month};
    for (size_t i = 6; i < 83; i++) {
        bool one = false;
        for (size_t j = 0; j < 4; j++) one = one || ones[j] == i;
        CHECK(encoded[i] == (one ? 1.0f : 0.0f));
    }
    for (size_t i = 0; i < 6; i += 2)
        CHECK(fabsf(encoded[i] * encoded[i] + encoded[i + 1] * encoded[i + 1] - 1.0f) < 1e-6f);
}

static void test_moments(void)
{
    static const potstill_part parts[] = {POTSTILL_DAY,     POTSTILL_WEEK,     POTSTILL_YEAR, POTSTILL_HOUR,
                                          POTSTILL_WEEKDAY, POTSTILL_MONTHDAY, POTSTILL_MONTH};
    potstill_feature feature = {.name = "at", .kind = POTSTILL_TIMESTAMP, .missing = POTSTILL_FLAG, .size = 80,
                                .parts = parts, .part_count = 7};
    float encoded[83];
    check_moment(&feature, words("2026-01-31T12:00:00Z"), 12, 5, 30, 0);
    check_moment(&feature, words("2024-02-29"), 0, 3, 28, 1);
    check_moment(&feature, words("2023-12-31T23:59:60.123456789Z"), 0, 0, 0, 0);
    check_moment(&feature, words("0001-01-01T00:00:00+23:59"), 0, 6, 30, 11);
    check_moment(&feature, words("9999-12-31T23:59:59-23:59"), 23, 5, 0, 0);
    feature.offset = -3600;
    check_moment(&feature, words("2026-03-01 00:30:00z"), 23, 5, 27, 1);
    feature.own = true;
    check_moment(&feature, words("2026-03-01T00:30:00+09:00"), 0, 6, 0, 2);
    static const char *const bad[] = {"", "2026-02-29", "2026-01-01T", "2026-01-01T12:00:00", "2026-01-01T12:00:00+",
                                      "2026-01-01T12:00:00.", "2026-01-01T12:00:00.5", "2026-01-01T12:00:00+02:0",
                                      "2026-01-01T12:00:00Z\n", "\xff", "2026-01-01T24:00:00Z", "0000-01-01"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(encode_moment(&feature, words(bad[i]), encoded) == POTSTILL_NOT_A_TIME);
    static const char whole[] = "2026-01-31T12:00:00.25+02:00";
    for (size_t length = 0; length < sizeof whole - 1; length++) {
        const potstill_value cut = {POTSTILL_TEXT, {.text = {whole, length}}};
        CHECK(encode_moment(&feature, cut, encoded) == (length == 10 ? POTSTILL_OK : POTSTILL_NOT_A_TIME));
    }
    CHECK(encode_moment(&feature, number(1.7e9), encoded) == POTSTILL_NOT_TEXT);
    feature.own = false, feature.offset = 0, feature.per_second = 1e3;
    check_moment(&feature, number(-1), 23, 2, 30, 11);
    check_moment(&feature, number(951782400000.0), 0, 1, 28, 1);
    static const double outside[] = {-62135596800001.0, 253402300800000.0, 1e308, -1e308, INFINITY, NAN};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        CHECK(encode_moment(&feature, number(outside[i]), encoded) == POTSTILL_NOT_A_TIME);
    CHECK(encode_moment(&feature, words("2026-01-31"), encoded) == POTSTILL_NOT_A_NUMBER);
    CHECK(encode_moment(&feature, (potstill_value){0}, encoded) == POTSTILL_OK && encoded[80] == 1.0f);
}

/* ---- the network ----------------------------------------------------------------------------------------------- */

/* The network for one instruction set. */
typedef struct {
    const char *name;
    float *(*probabilities)(const potstill_policy *, size_t, const float *, const uint8_t *, float, float *);
    void (*tanh)(float *);
    void (*decay)(float *, float);
} Variant;

#define DEFINE_VARIANT(set, target)                                                                                    \
    target static void call_tanh_##set(float *y) { tanh_##set(y); }                                                    \
    target static void call_decay_##set(float *y, float highest) { decay_##set(y, highest); }                          \
    static const Variant set = {#set, probabilities_##set, call_tanh_##set, call_decay_##set};

DEFINE_VARIANT(portable, )
#if defined(VECTORS) && defined(__x86_64__) && !defined(_WIN32)
DEFINE_VARIANT(avx2, __attribute__((target("avx2,fma"))))
DEFINE_VARIANT(avx512, __attribute__((target("avx512f"))))
#endif

static void test_functions(const Variant *variant)
{
    double worst_tanh = 0.0, worst_decay = 0.0;
    for (float x = -12.0f; x < 12.0f; x += 1.3e-4f) {
        float y[16], z[16];
        for (size_t i = 0; i < 16; i++) y[i] = x, z[i] = -7.3f * fabsf(x);
        variant->tanh(y);
        variant->decay(z, 0.0f);
        worst_tanh = fmax(worst_tanh, fabs(y[0] - tanh(x)));
        worst_decay = fmax(worst_decay, fabs(z[0] - exp(-7.3f * fabsf(x))));
    }
    CHECK(worst_tanh > 0.0 && worst_tanh <= 2e-7);
    CHECK(worst_decay > 0.0 && worst_decay <= 1.2e-7);
}

static float random_float(void)
{
    return (float)rand() / (float)RAND_MAX * 2.0f - 1.0f;
}

/* Memory of just the size that was asked for, so that AddressSanitizer sees its edges. */
static float *floats(size_t count)
{
    float *memory = calloc(count ? count : 1, sizeof(float));
    if (!memory) abort();
    return memory;
}

static potstill_layer random_layer(size_t inputs, size_t outputs)
{
    const size_t stride = (outputs + 15) / 16 * 16;
    float *weight = floats(inputs * stride), *bias = floats(stride);
    for (size_t i = 0; i < inputs; i++) {
        for (size_t j = 0; j < outputs; j++) weight[i * stride + j] = 1.7f * random_float() / sqrtf((float)inputs);
    }
    for (size_t j = 0; j < outputs; j++) bias[j] = random_float();
    return (potstill_layer){inputs, outputs, stride, weight, bias};
}

/* The specification once more, in double precision and without any haste. */
static void reference(const potstill_policy *policy, const float *encoded, const uint8_t *eligible, double floor,
                      double *p)
{
    double x[300], y[300], highest = -INFINITY, sum = 0.0, allowed = 0.0;
    for (size_t i = 0; i < policy->width; i++) x[i] = encoded[i];
    for (size_t l = 0; l < policy->layer_count; l++) {
        const potstill_layer *layer = &policy->layers[l];
        for (size_t j = 0; j < layer->outputs; j++) {
            y[j] = layer->bias[j];
            for (size_t i = 0; i < layer->inputs; i++) y[j] += x[i] * layer->weight[i * layer->stride + j];
        }
        const bool squashed = policy->activation == POTSTILL_TANH;
        for (size_t j = 0; j < layer->outputs; j++) x[j] = squashed ? tanh(y[j]) : fmax(y[j], 0.0);
    }
    for (size_t k = 0; k < policy->actions; k++) highest = !eligible || eligible[k] ? fmax(highest, y[k]) : highest;
    for (size_t k = 0; k < policy->actions; k++) {
        p[k] = !eligible || eligible[k] ? exp(y[k] - highest) : 0.0;
        sum += p[k];
        allowed += !eligible || eligible[k];
    }
    for (size_t k = 0; k < policy->actions; k++)
        p[k] = !eligible || eligible[k] ? (1.0 - allowed * floor) * p[k] / sum + floor : 0.0;
}

static void check_network(const Variant *variant, const potstill_policy *policy, const float *encoded,
                          const uint8_t *eligible, double floor)
{
    enum { CONTEXTS = 3 };
    const size_t actions = policy->actions, step = widest_stride(policy);
    float *many = floats(CONTEXTS * potstill_scratch_size(policy)), *one = floats(potstill_scratch_size(policy));
    const float *together = variant->probabilities(policy, CONTEXTS, encoded, eligible, (float)floor, many);
    double expected[300], worst = 0.0;
    for (size_t c = 0; c < CONTEXTS; c++) {
        const float *own = encoded + c * policy->width;
        const uint8_t *allowed = eligible ? eligible + c * actions : NULL;
        const float *p = variant->probabilities(policy, 1, own, allowed, (float)floor, one);
        CHECK(memcmp(p, together + c * step, actions * sizeof *p) == 0); /* to the last bit */
        reference(policy, own, allowed, floor, expected);
        for (size_t k = 0; k < actions; k++) worst = fmax(worst, fabs(p[k] - expected[k]));
    }
    CHECK(worst <= 1e-6);
    free(many);
    free(one);
}

static void test_network(const Variant *variant, const size_t *sizes, size_t layer_count)
{
    potstill_layer layers[4];
    for (size_t l = 0; l < layer_count; l++) layers[l] = random_layer(sizes[l], sizes[l + 1]);
    potstill_policy policy = {.width = sizes[0], .layers = layers, .layer_count = layer_count};
    policy.actions = sizes[layer_count];
    float *encoded = floats(3 * policy.width);
    uint8_t *eligible = (uint8_t *)floats(3 * policy.actions);
    for (size_t i = 0; i < 3 * policy.width; i++) encoded[i] = i % 3 ? random_float() : 0.0f;
    for (size_t k = 0; k < 3 * policy.actions; k++) eligible[k] = k % policy.actions == 0 || rand() % 2;
    for (int i = 0; i < 2; i++) {
        policy.activation = i ? POTSTILL_RELU : POTSTILL_TANH;
        check_network(variant, &policy, encoded, NULL, 0.0);
        check_network(variant, &policy, encoded, eligible, 0.0);
        check_network(variant, &policy, encoded, eligible, 0.5 / (double)policy.actions);
    }
    for (size_t l = 0; l < layer_count; l++) free((void *)layers[l].weight), free((void *)layers[l].bias);
    free(encoded);
    free(eligible);
}

static void test_networks(const Variant *variant)
{
    test_network(variant, (size_t[]){38, 100, 100, 7}, 3);
    test_network(variant, (size_t[]){0, 5, 2}, 2);
    test_network(variant, (size_t[]){1, 1, 1}, 2);
    test_network(variant, (size_t[]){200, 3}, 1);
    test_network(variant, (size_t[]){130, 17, 257, 31, 290}, 4);
    for (size_t n = 1; n < 40; n += 3) test_network(variant, (size_t[]){64 + n % 3, n, 8 * n % 131 + 1, n + 1}, 3);
}

/* ---- refusals -------------------------------------------------------------------------------------------------- */

static void test_refusals(void)
{
    const uint8_t none[] = {0, 0}, second[] = {0, 1};
    float huge[] = {3e38f, 3e38f}, endless[] = {1.0f, INFINITY}, p[2] = {0}, scratch[32];
    potstill_layer layer = random_layer(2, 2);
    potstill_policy policy = {.width = 2, .layers = &layer, .layer_count = 1, .actions = 2};
    potstill_decision decision;
    CHECK(potstill_decide(&policy, p, text("x"), none, 0.0, scratch, &decision) == POTSTILL_NOT_ELIGIBLE);
    CHECK(potstill_decide(&policy, endless, text("x"), NULL, 0.0, scratch, &decision) == POTSTILL_NOT_FINITE);
    CHECK(potstill_decide(&policy, p, text(""), NULL, 0.0, scratch, &decision) == POTSTILL_BAD_ID);
    CHECK(potstill_decide(&policy, p, text("x"), NULL, 0.51, scratch, &decision) == POTSTILL_BAD_FLOOR);
    CHECK(potstill_decide(&policy, p, text("x"), NULL, -0.1, scratch, &decision) == POTSTILL_BAD_FLOOR);
    CHECK(potstill_decide(&policy, p, text("x"), NULL, NAN, scratch, &decision) == POTSTILL_BAD_FLOOR);
    memcpy((void *)layer.weight, (float[]){2, -2}, 2 * sizeof(float));
    memcpy((void *)(layer.weight + 16), (float[]){-2, 2}, 2 * sizeof(float));
    CHECK(potstill_decide(&policy, huge, text("x"), NULL, 0.0, scratch, &decision) == POTSTILL_OVERFLOW);
    CHECK(potstill_probabilities(&policy, huge, NULL, 0.0, scratch, p) == POTSTILL_OVERFLOW);
    CHECK(potstill_probabilities(&policy, huge, second, 0.25, scratch, p) == POTSTILL_OVERFLOW);
    CHECK(strstr(potstill_message(POTSTILL_OVERFLOW), "not finite"));
    CHECK(strstr(potstill_message((potstill_status)(POTSTILL_NOT_A_TIME + 1)), "unknown"));
    free((void *)layer.weight);
    free((void *)layer.bias);
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

/* Numbers stay within their interval, and their densities are those of the bins' probabilities. Memory is allocated to
 * the size that potstill_scratch_size says, so that a sanitizer sees a mask that does not fit. */
static void test_numbers(size_t bins)
{
    enum { CONTEXTS = 3 };
    potstill_layer layers[2] = {random_layer(4, 5), random_layer(5, bins)};
    potstill_policy policy = {.width = 4, .layers = layers, .layer_count = 2, .actions = bins};
    double *edges = malloc((bins + 1) * sizeof *edges), u[2 * CONTEXTS], intervals[2 * CONTEXTS];
    for (size_t k = 0; k <= bins; k++) edges[k] = 2.0 + (double)k;
    policy.edges = edges;
    float *encoded = floats(4 * CONTEXTS), *scratch = floats(CONTEXTS * potstill_scratch_size(&policy));
    float *p = floats(bins);
    potstill_number numbers[CONTEXTS];
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < 4 * CONTEXTS; i++) encoded[i] = random_float();
        for (size_t i = 0; i < 2 * CONTEXTS; i++) u[i] = rand() / (RAND_MAX + 1.0);
        for (size_t c = 0; c < CONTEXTS; c++) {
            const double start = rand() / (RAND_MAX + 1.0), end = rand() / (RAND_MAX + 1.0);
            intervals[2 * c] = 2.0 + (double)bins * (start < end ? start : end);
            intervals[2 * c + 1] = 2.0 + (double)bins * (start < end ? end : start);
        }
        CHECK(potstill_decide_numbers(&policy, CONTEXTS, encoded, u, intervals, 0.1, scratch, numbers) == POTSTILL_OK);
        for (size_t c = 0; c < CONTEXTS; c++) {
            CHECK(numbers[c].value >= intervals[2 * c] && numbers[c].value <= intervals[2 * c + 1]);
            CHECK(numbers[c].density > 0.0 && isfinite(numbers[c].density));
            CHECK(numbers[c].value >= edges[numbers[c].bin] && numbers[c].value < edges[numbers[c].bin + 1]);
        }
        CHECK(potstill_decide_numbers(&policy, 1, encoded, u, NULL, 0.0, scratch, numbers) == POTSTILL_OK);
        CHECK(potstill_probabilities(&policy, encoded, NULL, 0.0, scratch, p) == POTSTILL_OK);
        CHECK(fabs(numbers->density - p[numbers->bin]) < 1e-6); /* bins of width 1 */
        CHECK(fabs(numbers->value - (edges[numbers->bin] + u[1])) < 1e-12);
    }
    const double reversed[] = {3.0, 2.5}, outside[] = {1.0, 3.0}, empty[] = {3.0, 3.0}, nothing[] = {NAN, 3.0};
    const double *const wrong[] = {reversed, outside, empty, nothing};
    for (size_t i = 0; i < 4; i++)
        CHECK(potstill_decide_number(&policy, encoded, text("x"), wrong[i], 0.0, scratch, numbers) ==
              POTSTILL_BAD_INTERVAL);
    CHECK(potstill_decide_number(&policy, encoded, text("x"), NULL, 1.1, scratch, numbers) == POTSTILL_BAD_SHARE);
    CHECK(potstill_decide_number(&policy, encoded, text("x"), NULL, NAN, scratch, numbers) == POTSTILL_BAD_SHARE);
    CHECK(potstill_decide_number(&policy, encoded, text(""), NULL, 0.0, scratch, numbers) == POTSTILL_BAD_ID);
    for (size_t l = 0; l < 2; l++) free((void *)layers[l].weight), free((void *)layers[l].bias);
    free(edges);
    free(encoded);
    free(scratch);
    free(p);
}

int main(void)
{
    const Variant *variants[] = {
        &portable,
#if defined(VECTORS) && defined(__x86_64__) && !defined(_WIN32)
        HAS_AVX2 ? &avx2 : NULL,
        HAS_AVX512 ? &avx512 : NULL,
#endif
    };
    test_siphash();
    test_ids();
    test_choose();
    test_encoding();
    test_texts();
    test_moments();
    test_refusals();
    for (size_t bins = 2; bins < 300; bins += 17) test_numbers(bins);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (!variants[i]) continue;
        test_functions(variants[i]);
        test_networks(variants[i]);
        printf("%s: %d failures so far\n", variants[i]->name, failures);
    }
    printf("kernel_test: %d failures, running on %s\n", failures, potstill_instructions());
    return failures ? 1 : 0;
}
