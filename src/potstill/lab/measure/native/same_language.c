/* Thompson sampling and the distilled policy in C, to time both in one language.
 *
 * Both go through the layers of the decision kernel, which is included below with its vector code: a posterior over
 * linear rewards is a layer as well. NumPy's own generator and distributions draw the rewards, as in the NumPy version.
 */
#define _POSIX_C_SOURCE 200809L
#define POTSTILL_API static
#include "kernel.c"

#include <numpy/random/distributions.h>
#include <time.h>

/* Loops of the kernel are compiled for three instruction sets; so are these. */
#if defined(VECTORS)
typedef float wide __attribute__((vector_size(64), aligned(4)));
#endif

enum { LANES_OF_A_BLOCK = 16 };

/* A posterior over linear rewards. The last layer of `network` gives, for each action, the entries of L⁻¹x scaled to the
 * unit of its reward, padded with zeros to a multiple of 16, and after all of them the mean rewards. */
typedef struct {
    potstill_policy network;
    size_t actions;
    size_t padded;     /* entries of an action */
    const double *dof; /* degrees of freedom of each action's Student-t reward */
} linear_posterior;

static float *network_scores(const potstill_policy *policy, const float *encoded, float *scratch)
{
#if defined(VECTORS) && defined(__x86_64__) && !defined(_WIN32)
    if (HAS_AVX512) return scores_avx512(policy, 1, encoded, NULL, scratch);
    if (HAS_AVX2) return scores_avx2(policy, 1, encoded, NULL, scratch);
#endif
    return scores_portable(policy, 1, encoded, NULL, scratch);
}

INLINE float sum_of_squares(const float *z, size_t count)
{
#if defined(VECTORS)
    wide sum = {0};
    for (size_t j = 0; j < count; j += LANES_OF_A_BLOCK) {
        wide part;
        memcpy(&part, z + j, sizeof part);
        sum += part * part;
    }
    float total = 0.0f;
    for (size_t j = 0; j < LANES_OF_A_BLOCK; j++) total += sum[j];
    return total;
#else
    float total = 0.0f;
    for (size_t j = 0; j < count; j++) total += z[j] * z[j];
    return total;
#endif
}

INLINE void scales_of(const linear_posterior *posterior, const float *z, float *scale)
{
    for (size_t k = 0; k < posterior->actions; k++)
        scale[k] = sqrtf(sum_of_squares(z + k * posterior->padded, posterior->padded));
}

#if defined(VECTORS) && defined(__x86_64__) && !defined(_WIN32)
__attribute__((target("avx2,fma"))) static void scales_avx2(const linear_posterior *p, const float *z, float *scale)
{
    scales_of(p, z, scale);
}
__attribute__((target("avx512f"))) static void scales_avx512(const linear_posterior *p, const float *z, float *scale)
{
    scales_of(p, z, scale);
}
#endif

static void scales(const linear_posterior *posterior, const float *z, float *scale)
{
#if defined(VECTORS) && defined(__x86_64__) && !defined(_WIN32)
    if (HAS_AVX512) {
        scales_avx512(posterior, z, scale);
        return;
    }
    if (HAS_AVX2) {
        scales_avx2(posterior, z, scale);
        return;
    }
#endif
    scales_of(posterior, z, scale);
}

/* Linear-TS, and NeuralLinear-TS if the network has hidden layers: the best of one sampled reward for each action. */
size_t by_posterior(const linear_posterior *posterior, const float *encoded, bitgen_t *rng, float *scratch)
{
    const float *z = network_scores(&posterior->network, encoded, scratch);
    const float *mean = z + posterior->actions * posterior->padded;
    float *scale = scratch + potstill_scratch_size(&posterior->network);
    scales(posterior, z, scale);
    size_t best = 0;
    double highest = -INFINITY;
    for (size_t k = 0; k < posterior->actions; k++) {
        const double reward = mean[k] + scale[k] * random_standard_t(rng, posterior->dof[k]);
        if (reward > highest) {
            highest = reward;
            best = k;
        }
    }
    return best;
}

/* Bootstrap-NN-TS: the best prediction of a network chosen at random. */
size_t by_networks(const potstill_policy *networks, size_t count, const float *encoded, bitgen_t *rng, float *scratch)
{
    const size_t chosen = count > 1 ? (size_t)random_bounded_uint64(rng, 0, count - 1, 0, false) : 0;
    const potstill_policy *network = networks + chosen;
    const float *score = network_scores(network, encoded, scratch);
    size_t best = 0;
    for (size_t k = 1; k < network->actions; k++) best = score[k] > score[best] ? k : best;
    return best;
}

static int64_t nanoseconds(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* Each of these decides `calls` times over encoded[contexts, width] in turn, and writes action and time of each call. */
#define TIMED(decision)                                                                                                \
    for (size_t i = 0; i < calls; i++) {                                                                               \
        const float *context = encoded + i % contexts * width;                                                         \
        const int64_t before = nanoseconds();                                                                          \
        actions[i] = (int64_t)(decision);                                                                              \
        taken[i] = nanoseconds() - before;                                                                             \
    }

void time_posterior(const linear_posterior *posterior, const float *encoded, size_t contexts, size_t calls,
                    bitgen_t *rng, float *scratch, int64_t *actions, int64_t *taken)
{
    const size_t width = posterior->network.width;
    TIMED(by_posterior(posterior, context, rng, scratch))
}

void time_networks(const potstill_policy *networks, size_t count, const float *encoded, size_t contexts, size_t calls,
                   bitgen_t *rng, float *scratch, int64_t *actions, int64_t *taken)
{
    const size_t width = networks->width;
    TIMED(by_networks(networks, count, context, rng, scratch))
}

static size_t by_policy(const potstill_policy *policy, const float *encoded, potstill_text id, float *scratch)
{
    potstill_decision decision;
    const potstill_status status = potstill_decide(policy, encoded, id, NULL, policy->floor, scratch, &decision);
    return status == POTSTILL_OK ? decision.action : SIZE_MAX;
}

/* The distilled policy, by the ids in turn: `length` bytes each. */
void time_policy(const potstill_policy *policy, const char *ids, size_t id_count, size_t length, const float *encoded,
                 size_t contexts, size_t calls, float *scratch, int64_t *actions, int64_t *taken)
{
    const size_t width = policy->width;
#define ID ((potstill_text){ids + i % id_count * length, length})
    TIMED(by_policy(policy, context, ID, scratch))
}
