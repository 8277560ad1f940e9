/* The decision kernel of Potstill: maps a context to an action and its exact probability.
 *
 * Portable C99; depends only on libm. It allocates no memory and keeps no state, so threads may share a policy. The
 * Python extension is built on it, and `potstill export --to c` ships it with a policy's weights. docs/policy-format.md
 * is the specification.
 *
 * Usage: fill one potstill_value per feature, then call potstill_encode and potstill_decide.
 */
#ifndef POTSTILL_KERNEL_H
#define POTSTILL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Linkage of the functions below; define it as `static` to include the kernel in a single source file. */
#ifndef POTSTILL_API
#define POTSTILL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    POTSTILL_OK = 0,
    POTSTILL_MISSING_VALUE, /* a required feature has no value */
    POTSTILL_NOT_A_NUMBER,  /* the value of a numeric feature is not a number */
    POTSTILL_NOT_FINITE,    /* NaN or an infinity */
    POTSTILL_NOT_TEXT,      /* the value of a categorical feature is not text */
    POTSTILL_NOT_TRUTH,     /* the value of a boolean feature is not true or false */
    POTSTILL_BAD_ID,        /* an id that is empty or not UTF-8 */
    POTSTILL_BAD_FLOOR,     /* a floor outside [0, 1 / actions] */
    POTSTILL_NOT_ELIGIBLE,  /* no action is eligible */
    POTSTILL_OVERFLOW,      /* the scores are not finite, because the weights are too large */
    POTSTILL_BAD_SHARE,     /* the floor of a policy over numbers is outside [0, 1] */
    POTSTILL_BAD_INTERVAL,  /* an interval that is empty or outside the bounds */
    POTSTILL_NOT_UTF8,      /* the value of a hashed feature or a text is not UTF-8 */
    POTSTILL_NOT_NUMBERS,   /* the value of a vector is not a list of numbers */
    POTSTILL_BAD_LENGTH,    /* a vector has another length */
    POTSTILL_TOO_LONG,      /* a text has more than POTSTILL_LONGEST_TEXT characters */
    POTSTILL_NOT_A_TIME     /* a timestamp is not RFC 3339, or not of the years 1 to 9999 */
} potstill_status;

/* UTF-8 text; not necessarily NUL-terminated. */
typedef struct {
    const char *bytes;
    size_t length;
} potstill_text;

/* A list of numbers. */
typedef struct {
    const double *items;
    size_t count;
} potstill_numbers;

typedef enum { POTSTILL_MISSING = 0, POTSTILL_NUMBER, POTSTILL_TRUTH, POTSTILL_TEXT, POTSTILL_NUMBERS } potstill_type;

/* The value of one feature in a context. All zeros means missing. */
typedef struct {
    potstill_type type;
    union {
        double number;
        bool truth;
        potstill_text text;
        potstill_numbers numbers;
    } as;
} potstill_value;

typedef enum {
    POTSTILL_NUMERIC,
    POTSTILL_BOOLEAN,
    POTSTILL_CATEGORICAL,
    POTSTILL_HASHED,
    POTSTILL_VECTOR,
    POTSTILL_NGRAMS,
    POTSTILL_TIMESTAMP
} potstill_kind;

/* Most characters of a text, and of one of its n-grams, which has at least two. */
enum { POTSTILL_LONGEST_TEXT = 4096, POTSTILL_LONGEST_NGRAM = 8 };

/* Parts of a timestamp: of day, week and year sine and cosine; the others are one-hot. */
typedef enum {
    POTSTILL_DAY,
    POTSTILL_WEEK,
    POTSTILL_YEAR,
    POTSTILL_HOUR,
    POTSTILL_WEEKDAY,
    POTSTILL_MONTHDAY,
    POTSTILL_MONTH
} potstill_part;

/* Encoding of a missing value: an error; the stand-in (for a categorical feature: unseen); or 0, and 1 in the column
 * after those of a value. */
typedef enum { POTSTILL_REFUSE, POTSTILL_STAND_IN, POTSTILL_FLAG } potstill_missing;

/* One value of a categorical feature, and its column within the feature. */
typedef struct {
    potstill_text text;
    size_t column;
} potstill_category;

typedef struct {
    const char *name;
    potstill_kind kind;
    potstill_missing missing;
    size_t column;   /* first encoded column */
    double stand_in; /* numeric: a number; boolean: 0 or 1 */

    /* Numeric: v is clipped to [low, high], then (v - origin) / span; on a log scale, (ln v - origin) / span. */
    double low, high, origin, span;
    bool log;

    /* Categorical: sorted by length, then by bytes. The last column is for unseen values. */
    const potstill_category *categories;
    size_t category_count;

    /* Hashed, n-grams, timestamp: number of columns. Vector: how many numbers. */
    size_t size;

    /* Vector: divided by its length if `unit`; else scaled as a number is if low < high; else as it is. */
    bool unit;

    /* Numeric on a quantile scale: increasing points that are encoded as 0, 1/m, 2/m, …, 1. Else NULL. */
    const double *knots;
    size_t knot_count;

    /* N-grams: characters of each. */
    size_t ngrams;

    /* Timestamp: its parts, in the order of their columns. Values are numbers since 1970, `per_second` of them in a
     * second; or text of RFC 3339 if that is 0. The clock is that of each text, or `offset` seconds ahead of UTC. */
    const potstill_part *parts;
    size_t part_count;
    int32_t offset;
    bool own;
    double per_second;
} potstill_feature;

/* y = x·weight + bias. Rows are zero-padded to a multiple of every vector width. */
typedef struct {
    size_t inputs, outputs;
    size_t stride;       /* columns of weight and bias in memory: outputs, rounded up to a multiple of 16 */
    const float *weight; /* [inputs, stride], row-major */
    const float *bias;   /* [stride] */
} potstill_layer;

typedef enum { POTSTILL_TANH, POTSTILL_RELU } potstill_activation;

typedef struct {
    const potstill_feature *features;
    size_t feature_count;
    size_t width; /* number of encoded columns: inputs of the first layer */
    const potstill_layer *layers;
    size_t layer_count;
    potstill_activation activation; /* of every layer but the last */
    size_t actions;                 /* number of actions: outputs of the last layer */
    double floor;                   /* smallest propensity of an eligible action; over numbers: share of uniform draws */
    const double *edges;            /* over numbers: edges[actions + 1] of the bins, which are the actions; else NULL */
    uint8_t salt[16];
    bool masked; /* the first layer has one more input per action: 1 if it is not eligible */
} potstill_policy;

typedef struct {
    size_t action;
    float propensity;
    double u; /* the uniform draw that selected the action */
} potstill_decision;

/* A number chosen by a policy with edges. */
typedef struct {
    double value;
    double density;
    size_t bin;
    double u[2]; /* the uniform draws that selected the bin, and the place within it */
} potstill_number;

/* Scratch memory of the functions below per context, in floats: twice the widest stride, and room for a mask. */
POTSTILL_API size_t potstill_scratch_size(const potstill_policy *policy);

/* Encodes a context: values[feature_count], in the order of the features, to encoded[width].
 * If a value is rejected, *refused (unless NULL) is the position of its feature. */
POTSTILL_API potstill_status potstill_encode(const potstill_policy *policy, const potstill_value *values,
                                             float *encoded, size_t *refused);

/* Computes the probability of each action, p[actions], for an encoded context. eligible[actions] is 1 for eligible
 * actions and 0 for others; NULL makes all eligible. floor is usually policy->floor. */
POTSTILL_API potstill_status potstill_probabilities(const potstill_policy *policy, const float *encoded,
                                                    const uint8_t *eligible, double floor, float *scratch, float *p);

/* Draws an action for an encoded context. The draw is a deterministic function of the id and the policy. */
POTSTILL_API potstill_status potstill_decide(const potstill_policy *policy, const float *encoded, potstill_text id,
                                             const uint8_t *eligible, double floor, float *scratch,
                                             potstill_decision *decision);

/* potstill_probabilities for many encoded contexts [contexts, width], with eligible[contexts, actions] and
 * p[contexts, actions]. One pass through the network is faster and gives the same results. scratch must be `contexts`
 * times larger. */
POTSTILL_API potstill_status potstill_probabilities_many(const potstill_policy *policy, size_t contexts,
                                                         const float *encoded, const uint8_t *eligible, double floor,
                                                         float *scratch, float *p);

/* potstill_decide for many encoded contexts: decisions[contexts] at the draws u[contexts] of potstill_uniform. */
POTSTILL_API potstill_status potstill_decide_many(const potstill_policy *policy, size_t contexts, const float *encoded,
                                                  const double *u, const uint8_t *eligible, double floor,
                                                  float *scratch, potstill_decision *decisions);

/* Draws a number for an encoded context, by a policy with edges. interval[2] is the allowed interval; NULL allows
 * everything. floor is a share of uniform draws, usually policy->floor. */
POTSTILL_API potstill_status potstill_decide_number(const potstill_policy *policy, const float *encoded,
                                                    potstill_text id, const double *interval, double floor,
                                                    float *scratch, potstill_number *number);

/* potstill_decide_number for many encoded contexts: numbers[contexts] at the draws u[contexts, 2] of
 * potstill_uniforms, within intervals[contexts, 2]. */
POTSTILL_API potstill_status potstill_decide_numbers(const potstill_policy *policy, size_t contexts,
                                                     const float *encoded, const double *u, const double *intervals,
                                                     double floor, float *scratch, potstill_number *numbers);

/* The uniform draw of a decision, in [0, 1); POTSTILL_BAD_ID if the id is empty or not UTF-8. */
POTSTILL_API potstill_status potstill_uniform(const potstill_policy *policy, potstill_text id, double *u);

/* Several uniform draws of a decision, u[count]; the first is that of potstill_uniform. */
POTSTILL_API potstill_status potstill_uniforms(const potstill_policy *policy, potstill_text id, size_t count,
                                               double *u);

/* SipHash-2-4. */
POTSTILL_API uint64_t potstill_siphash(const uint8_t key[16], const void *message, size_t length);

/* The instruction set of the network on this machine: "avx512", "avx2" or "portable". */
POTSTILL_API const char *potstill_instructions(void);

/* Description of a status, in English. */
POTSTILL_API const char *potstill_message(potstill_status status);

#ifdef __cplusplus
}
#endif

#endif
