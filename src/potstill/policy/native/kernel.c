/* The decision kernel. kernel.h documents it; network.inc holds the vectorised arithmetic. */
#include "kernel.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- encoding -------------------------------------------------------------------------------------------------- */

static double clipped(const potstill_feature *feature, double value)
{
    value = value < feature->low ? feature->low : value;
    return value > feature->high ? feature->high : value;
}

/* The place of a number among the knots, in [0, 1]. */
static double quantile_of(const potstill_feature *feature, double value)
{
    size_t low = 0, high = feature->knot_count - 1; /* knots[low] <= value, and value <= knots[high] */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (feature->knots[middle] <= value) low = middle;
        else high = middle;
    }
    const double share = (value - feature->knots[low]) / (feature->knots[low + 1] - feature->knots[low]);
    return ((double)low + share) / (double)(feature->knot_count - 1);
}

static potstill_status encode_numeric(const potstill_feature *feature, double value, float *column)
{
    if (!(fabs(value) <= DBL_MAX)) return POTSTILL_NOT_FINITE;
    value = clipped(feature, value);
    if (feature->log) value = log(value);
    *column = (float)(feature->knots ? quantile_of(feature, value) : (value - feature->origin) / feature->span);
    return POTSTILL_OK;
}

/* The Euclidean length. Products are stored, because fusing them with the additions would change the last bit. */
static double length_of(potstill_numbers numbers)
{
    double total = 0.0;
    for (size_t i = 0; i < numbers.count; i++) {
        volatile double square = numbers.items[i] * numbers.items[i];
        total += square;
    }
    return sqrt(total);
}

static potstill_status encode_vector(const potstill_feature *feature, potstill_numbers numbers, float *columns)
{
    if (numbers.count != feature->size) return POTSTILL_BAD_LENGTH;
    for (size_t i = 0; i < numbers.count; i++)
        if (!(fabs(numbers.items[i]) <= FLT_MAX)) return POTSTILL_NOT_FINITE;
    const double length = feature->unit ? length_of(numbers) : 1.0;
    if (!(length > 0.0)) return POTSTILL_OK; /* zeros stay zeros */
    const bool scaled = feature->low < feature->high;
    for (size_t i = 0; i < numbers.count; i++) {
        const double number = scaled ? clipped(feature, numbers.items[i]) : numbers.items[i];
        columns[i] = (float)(scaled ? (number - feature->origin) / feature->span : number / length);
    }
    return POTSTILL_OK;
}

static bool is_utf8(potstill_text text);

/* The key of hashed features: their columns do not depend on the policy. */
static const uint8_t public_key[16] = {0};

static potstill_status encode_hashed(const potstill_feature *feature, potstill_text text, float *columns)
{
    if (!is_utf8(text)) return POTSTILL_NOT_UTF8;
    columns[potstill_siphash(public_key, text.bytes, text.length) % feature->size] = 1.0f;
    return POTSTILL_OK;
}

/* The length of a sequence of valid UTF-8, by its first byte. */
static size_t known_length(uint8_t first)
{
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

static bool is_too_long(potstill_text text)
{
    if (text.length > 4 * POTSTILL_LONGEST_TEXT) return true; /* before it is read */
    size_t characters = 0;
    for (size_t i = 0; i < text.length; i++) characters += ((uint8_t)text.bytes[i] & 0xc0) != 0x80;
    return characters > POTSTILL_LONGEST_TEXT;
}

/* The last characters of a word. */
typedef struct {
    uint8_t bytes[4 * POTSTILL_LONGEST_NGRAM];
    size_t length, characters;
} ngram_window;

static void add_character(ngram_window *window, size_t ngrams, const uint8_t *bytes, size_t length)
{
    if (window->characters == ngrams) {
        const size_t first = known_length(window->bytes[0]);
        window->length -= first;
        window->characters--;
        memmove(window->bytes, window->bytes + first, window->length);
    }
    memcpy(window->bytes + window->length, bytes, length);
    window->length += length;
    window->characters++;
}

/* The highest bit of the hash is the sign, so that n-grams in one column cancel as often as they add up. */
static void count_ngram(const potstill_feature *feature, const ngram_window *window, float *columns)
{
    const uint64_t hash = potstill_siphash(public_key, window->bytes, window->length);
    columns[hash % feature->size] += hash >> 63 ? -1.0f : 1.0f;
}

/* Letters, digits and all that is not ASCII. */
static bool is_of_word(uint8_t first)
{
    const uint8_t lower = first | 0x20;
    return first >= 0x80 || (first >= '0' && first <= '9') || (lower >= 'a' && lower <= 'z');
}

/* Counts the n-grams of the word at the start of `bytes`, with a space on either side; returns its length. */
static size_t count_word(const potstill_feature *feature, const uint8_t *bytes, size_t left, float *columns)
{
    ngram_window window = {{' '}, 1, 1};
    size_t at = 0;
    while (at < left && is_of_word(bytes[at])) {
        const uint8_t first = bytes[at], lower = first >= 'A' && first <= 'Z' ? first | 0x20 : first;
        const size_t length = known_length(first);
        add_character(&window, feature->ngrams, length == 1 ? &lower : bytes + at, length);
        if (window.characters == feature->ngrams) count_ngram(feature, &window, columns);
        at += length;
    }
    add_character(&window, feature->ngrams, (const uint8_t *)" ", 1);
    count_ngram(feature, &window, columns); /* also if the word is too short for one */
    return at;
}

/* Divides by the Euclidean length. Counts are whole numbers, so that the sum of squares is exact. */
static void divide_by_length(float *columns, size_t size)
{
    double total = 0.0;
    for (size_t i = 0; i < size; i++) total += (double)columns[i] * columns[i];
    const double length = sqrt(total);
    for (size_t i = 0; total > 0.0 && i < size; i++) columns[i] = (float)(columns[i] / length);
}

static potstill_status encode_ngrams(const potstill_feature *feature, potstill_text text, float *columns)
{
    if (is_too_long(text)) return POTSTILL_TOO_LONG;
    if (!is_utf8(text)) return POTSTILL_NOT_UTF8;
    const uint8_t *bytes = (const uint8_t *)text.bytes;
    for (size_t at = 0; at < text.length;) {
        if (is_of_word(bytes[at])) at += count_word(feature, bytes + at, text.length - at, columns);
        else at++;
    }
    divide_by_length(columns, feature->size);
    return POTSTILL_OK;
}

/* ---- timestamps ------------------------------------------------------------------------------------------------ */

enum { DAY = 86400, WEEK = 7 * DAY, CYCLE = 146097 /* days after which the calendar repeats, with its weekdays */ };

static bool is_leap(int32_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static int32_t days_of(int32_t year, int32_t month)
{
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return days[month] + (month == 1 && is_leap(year));
}

/* Days from 0001-01-01, a Monday, to the first day of a year. */
static int32_t days_before(int32_t year)
{
    year--;
    return 365 * year + year / 4 - year / 100 + year / 400;
}

/* The number that `count` digits spell; -1 if they are none. */
static int32_t read_digits(const char *bytes, size_t count)
{
    int32_t number = 0;
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] < '0' || bytes[i] > '9') return -1;
        number = 10 * number + (bytes[i] - '0');
    }
    return number;
}

/* The number of two digits up to `most`; -1 if it is none. */
static int32_t read_two(const char *bytes, int32_t most)
{
    const int32_t number = read_digits(bytes, 2);
    return number <= most ? number : -1;
}

/* The day of YYYY-MM-DD, from 0001-01-01; -1 if it is none. */
static int32_t read_date(const char *bytes)
{
    const int32_t year = read_digits(bytes, 4), month = read_two(bytes + 5, 12), day = read_two(bytes + 8, 31);
    if (bytes[4] != '-' || bytes[7] != '-' || year < 1 || month < 1 || day < 1) return -1;
    if (day > days_of(year, month - 1)) return -1;
    int32_t days = days_before(year) + day - 1;
    for (int32_t m = 0; m < month - 1; m++) days += days_of(year, m);
    return days;
}

/* The second of HH:MM:SS, where 60 is the next minute's first; -1 if it is none. */
static int32_t read_time(const char *bytes)
{
    const int32_t hour = read_two(bytes, 23), minute = read_two(bytes + 3, 59), second = read_two(bytes + 6, 60);
    if (bytes[2] != ':' || bytes[5] != ':' || hour < 0 || minute < 0 || second < 0) return -1;
    return 3600 * hour + 60 * minute + second;
}

/* The offset of Z or +HH:MM in seconds. */
static bool read_offset(const char *bytes, size_t length, int32_t *offset)
{
    *offset = 0;
    if (length == 1) return *bytes == 'Z' || *bytes == 'z';
    if (length != 6 || (*bytes != '+' && *bytes != '-') || bytes[3] != ':') return false;
    const int32_t hours = read_two(bytes + 1, 23), minutes = read_two(bytes + 4, 59);
    *offset = (3600 * hours + 60 * minutes) * (*bytes == '-' ? -1 : 1);
    return hours >= 0 && minutes >= 0;
}

/* Seconds since 0001-01-01 on the feature's clock, from RFC 3339 or its date alone. */
static bool read_moment(const potstill_feature *feature, potstill_text text, int64_t *local)
{
    const char *bytes = text.bytes;
    if (text.length != 10 && text.length < 20) return false;
    const int32_t days = read_date(bytes);
    *local = (int64_t)days * DAY;
    if (days < 0 || text.length == 10) return days >= 0;
    const int32_t seconds = read_time(bytes + 11);
    if (seconds < 0 || !(bytes[10] == 'T' || bytes[10] == 't' || bytes[10] == ' ')) return false;
    size_t at = 19;
    if (bytes[at] == '.') {
        for (at++; at < text.length && bytes[at] >= '0' && bytes[at] <= '9';) at++;
        if (at == 20) return false;
    }
    int32_t offset;
    if (!read_offset(bytes + at, text.length - at, &offset)) return false;
    *local += seconds + (feature->own ? 0 : feature->offset - offset);
    return true;
}

/* The same from a number since 1970. */
static bool local_of_number(const potstill_feature *feature, double number, int64_t *local)
{
    const double seconds = number / feature->per_second;
    if (!(seconds >= -62135596800.0 && seconds < 253402300800.0)) return false;
    *local = (int64_t)floor(seconds) + INT64_C(62135596800) + feature->offset;
    return true;
}

/* Sine and cosine of the turn's part step/steps: of the first quarter, and turned. */
static void write_wave(int32_t step, int32_t steps, float *columns)
{
    const int32_t quarter = 4 * step / steps, rest = 4 * step % steps;
    const double angle = 1.5707963267948966 * rest / steps, sine = sin(angle), cosine = cos(angle);
    columns[0] = (float)(quarter == 0 ? sine : quarter == 1 ? cosine : quarter == 2 ? 0.0 - sine : 0.0 - cosine);
    columns[1] = (float)(quarter == 0 ? cosine : quarter == 1 ? 0.0 - sine : quarter == 2 ? 0.0 - cosine : sine);
}

/* Where a moment is in the calendar; all count from 0, and weekday 0 is Monday. */
typedef struct {
    int32_t second, weekday, monthday, month, yearday, days_of_year;
} calendar_place;

static calendar_place place_of(int64_t local)
{
    local += (int64_t)CYCLE * DAY; /* an offset may lead to before the first day */
    const int32_t days = (int32_t)(local / DAY % CYCLE);
    int32_t year = days / 366 + 1, month = 0;
    while (days_before(year + 1) <= days) year++;
    const int32_t yearday = days - days_before(year);
    int32_t monthday = yearday;
    while (monthday >= days_of(year, month)) monthday -= days_of(year, month++);
    return (calendar_place){(int32_t)(local % DAY), days % 7, monthday, month, yearday, 365 + is_leap(year)};
}

/* Writes a part; returns its number of columns. */
static size_t write_part(potstill_part part, calendar_place place, float *columns)
{
    switch (part) {
    case POTSTILL_DAY: return write_wave(place.second, DAY, columns), 2;
    case POTSTILL_WEEK: return write_wave(place.weekday * DAY + place.second, WEEK, columns), 2;
    case POTSTILL_YEAR: return write_wave(place.yearday, place.days_of_year, columns), 2;
    case POTSTILL_HOUR: return columns[place.second / 3600] = 1.0f, 24;
    case POTSTILL_WEEKDAY: return columns[place.weekday] = 1.0f, 7;
    case POTSTILL_MONTHDAY: return columns[place.monthday] = 1.0f, 31;
    default: return columns[place.month] = 1.0f, 12;
    }
}

static potstill_status encode_timestamp(const potstill_feature *feature, const potstill_value *value, float *columns)
{
    const bool numbers = feature->per_second > 0.0;
    int64_t local = 0;
    if (numbers && value->type != POTSTILL_NUMBER) return POTSTILL_NOT_A_NUMBER;
    if (!numbers && value->type != POTSTILL_TEXT) return POTSTILL_NOT_TEXT;
    if (numbers ? !local_of_number(feature, value->as.number, &local) : !read_moment(feature, value->as.text, &local))
        return POTSTILL_NOT_A_TIME;
    const calendar_place place = place_of(local);
    for (size_t i = 0; i < feature->part_count; i++) columns += write_part(feature->parts[i], place, columns);
    return POTSTILL_OK;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static int compare_texts(potstill_text a, potstill_text b)
{
    if (a.length != b.length) return a.length < b.length ? -1 : 1;
    return memcmp(a.bytes, b.bytes, a.length);
}

/* The column of a value within its feature. */
static size_t find_category(const potstill_feature *feature, potstill_text text)
{
    size_t low = 0, high = feature->category_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = compare_texts(feature->categories[middle].text, text);
        if (order == 0) return feature->categories[middle].column;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return feature->category_count;
}

static potstill_status encode_missing(const potstill_feature *feature, float *columns)
{
    switch (feature->missing) {
    case POTSTILL_FLAG: columns[feature->size ? feature->size : 1] = 1.0f; return POTSTILL_OK;
    case POTSTILL_STAND_IN: break;
    default: return POTSTILL_MISSING_VALUE;
    }
    switch (feature->kind) {
    case POTSTILL_NUMERIC: return encode_numeric(feature, feature->stand_in, columns);
    case POTSTILL_BOOLEAN: columns[0] = feature->stand_in != 0 ? 1.0f : 0.0f; return POTSTILL_OK;
    default: columns[feature->category_count] = 1.0f; return POTSTILL_OK;
    }
}

static potstill_status encode_value(const potstill_feature *feature, const potstill_value *value, float *columns)
{
    if (value->type == POTSTILL_MISSING) return encode_missing(feature, columns);
    switch (feature->kind) {
    case POTSTILL_NUMERIC:
        if (value->type != POTSTILL_NUMBER) return POTSTILL_NOT_A_NUMBER;
        return encode_numeric(feature, value->as.number, columns);
    case POTSTILL_BOOLEAN:
        if (value->type != POTSTILL_TRUTH) return POTSTILL_NOT_TRUTH;
        columns[0] = value->as.truth ? 1.0f : 0.0f;
        return POTSTILL_OK;
    case POTSTILL_VECTOR:
        if (value->type != POTSTILL_NUMBERS) return POTSTILL_NOT_NUMBERS;
        return encode_vector(feature, value->as.numbers, columns);
    case POTSTILL_TIMESTAMP: return encode_timestamp(feature, value, columns);
    default:
        if (value->type != POTSTILL_TEXT) return POTSTILL_NOT_TEXT;
        if (feature->kind == POTSTILL_HASHED) return encode_hashed(feature, value->as.text, columns);
        if (feature->kind == POTSTILL_NGRAMS) return encode_ngrams(feature, value->as.text, columns);
        columns[find_category(feature, value->as.text)] = 1.0f;
        return POTSTILL_OK;
    }
}

POTSTILL_API potstill_status potstill_encode(const potstill_policy *policy, const potstill_value *values,
                                             float *encoded, size_t *refused)
{
    for (size_t i = 0; i < policy->width; i++) encoded[i] = 0.0f;
    for (size_t i = 0; i < policy->feature_count; i++) {
        const potstill_feature *feature = &policy->features[i];
        const potstill_status status = encode_value(feature, &values[i], encoded + feature->column);
        if (status != POTSTILL_OK) {
            if (refused) *refused = i;
            return status;
        }
    }
    return POTSTILL_OK;
}

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
    /* The mask of bins follows the activations; the stride is in floats, which hold four bytes each. */
    return 2 * widest_stride(policy) + (policy->edges ? widest_stride(policy) / sizeof(float) : 0);
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
