/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merge and rescale of random parts, empty ones among them, against the oracle. */
#include "conform.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "need.h"

enum { MOST_PARTS = 64 };

/* One call: parts lie behind one another in one tensor. */
struct merge_job {
    struct attn_backend *backend;
    struct arena arena;
    struct attn_merge_args merge;
    struct attn_rescale_args rescale;
    struct attn_merge_part parts[MOST_PARTS];
    struct attn_tensor lses[MOST_PARTS];
    struct guarded *out_memory;   /* of the result */
    struct guarded *lse_memory;   /* NULL if no lse is asked for */
    struct guarded *parts_memory; /* outs of the parts */
    unsigned char *before;        /* what out_memory held */
    uint32_t aliased;             /* part that is the result too, or MOST_PARTS */
    struct oracle_merged wanted;
    double *rescaled;
    char text[160];
};

static double pick_lse(struct rng *rng, double middle, double spread)
{
    uint32_t kind = rng_below(rng, 100);

    if (kind < 15)
        return -(double)INFINITY;
    if (kind < 18)
        return (double)INFINITY;
    if (kind < 20)
        return (double)NAN;
    return middle + spread * (2 * (double)rng_below(rng, 1u << 20) * 0x1p-20 - 1);
}

static struct attn_tensor nth(const struct attn_tensor *tensor, uint32_t first)
{
    struct attn_tensor part = *tensor;

    part.buffer.byte_offset += (uint64_t)((int64_t)first * tensor->token_stride);
    return part;
}

static void fill_parts(struct merge_job *job, struct rng *rng, const struct attn_tensor *outs,
                       const struct attn_tensor *lses)
{
    static const double middles[] = {0, 20, -20, 100}, spreads[] = {0, 1, 10, 60};
    const struct attn_merge_args *args = &job->merge;
    double middle = rng_pick(rng, middles), spread = rng_pick(rng, spreads);

    for (uint32_t k = 0; k < args->count; k++) {
        job->parts[k].out = nth(outs, k * args->num_tokens);
        job->parts[k].lse = job->lses[k] = nth(lses, k * args->num_tokens);
        for (uint32_t row = 0; row < args->num_tokens; row++) {
            for (uint32_t head = 0; head < args->heads; head++) {
                /* A row in four has no part at all. */
                bool nothing = mix(rng->state, ((uint64_t)row << 32) + head) % 16 == 0;
                double lse = pick_lse(rng, middle, spread);
                if (nothing || (k == 0 && args->count == 1 && isnan(lse)))
                    lse = -(double)INFINITY;
                oracle_store(ATTN_F32, lse, tensor_at(&job->parts[k].lse, row, head));
                /* What an empty part holds must not matter: NaN stays in it. */
                if (isinf(lse) == 0 || rng_chance(rng, 50))
                    fill_vector(args->dtype, tensor_at(&job->parts[k].out, row, head), args->head_dim,
                                rng_next(rng), 1, false);
            }
        }
    }
}

static void place_result(struct merge_job *job, struct rng *rng, const struct layout *layout)
{
    struct attn_merge_args *args = &job->merge;
    const uint32_t out_shape[3] = {args->num_tokens, args->heads, args->head_dim};
    const uint32_t lse_shape[3] = {args->num_tokens, args->heads, 1};

    if (job->aliased < MOST_PARTS) {
        args->out = job->parts[job->aliased].out;
        job->out_memory = job->parts_memory;
    } else {
        job->out_memory =
            tensor_init(&args->out, &job->arena, "out", out_shape, oracle_size(args->dtype), layout, rng, 0);
        pattern_fill(job->out_memory);
        guarded_protect(job->parts_memory);
    }
    if (rng_chance(rng, 70)) {
        job->lse_memory = tensor_init(&args->lse, &job->arena, "lse", lse_shape, 4, layout, rng, 0);
        pattern_fill(job->lse_memory);
    }
    job->before = need(malloc(job->out_memory->size + 1));
    memcpy(job->before, job->out_memory->data, job->out_memory->size);
}

static void compute_wanted(struct merge_job *job)
{
    size_t pairs = (size_t)job->merge.num_tokens * job->merge.heads, all = pairs * job->merge.head_dim;

    job->wanted.out = need(calloc(all + 1, sizeof(double)));
    job->wanted.largest_out = need(calloc(all + 1, sizeof(double)));
    job->wanted.lse = need(calloc(pairs + 1, sizeof(double)));
    job->wanted.largest_lse = need(calloc(pairs + 1, sizeof(double)));
    job->wanted.parts = need(calloc(pairs + 1, sizeof(uint32_t)));
    job->rescaled = need(calloc(all + 1, sizeof(double)));
    oracle_merge(&job->merge, &job->wanted);
    oracle_rescale(&job->rescale, job->rescaled);
}

static void job_init(struct merge_job *job, uint64_t seed)
{
    static const uint32_t counts[] = {1, 2, 2, 3, 4, 5, 8, 17, 64},
                          dims[] = {1, 3, 8, 40, 64, 72, 128, 130, 256};
    static const uint32_t dtypes[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    struct rng rng = {mix(seed, 11)};
    struct layout layout = {.alignment = 1, .stride_multiple = 1, .before = rng_chance(&rng, 50)};
    struct attn_merge_args *args = &job->merge;
    struct attn_tensor outs, lses;

    memset(job, 0, sizeof *job);
    arena_init(&job->arena, layout.before);
    ATTN_INIT(args);
    args->count = rng_pick(&rng, counts);
    args->parts = job->parts;
    args->dtype = rng_pick(&rng, dtypes);
    args->lse_base = rng_chance(&rng, 50) ? ATTN_LSE_NATURAL : ATTN_LSE_BASE2;
    args->num_tokens = rng_below(&rng, 12);
    args->heads = 1 + rng_below(&rng, 9);
    args->head_dim = rng_pick(&rng, dims);
    job->aliased = rng_chance(&rng, 30) ? rng_below(&rng, args->count) : MOST_PARTS;
    const uint32_t out_shape[3] = {args->count * args->num_tokens, args->heads, args->head_dim};
    const uint32_t lse_shape[3] = {args->count * args->num_tokens, args->heads, 1};
    job->parts_memory = tensor_init(&outs, &job->arena, "part outs", out_shape, oracle_size(args->dtype),
                                    &layout, &rng, 0xff);
    struct guarded *lse_memory =
        tensor_init(&lses, &job->arena, "part lses", lse_shape, 4, &layout, &rng, 0xff);
    fill_parts(job, &rng, &outs, &lses);
    guarded_protect(lse_memory);
    ATTN_INIT(&job->rescale);
    job->rescale.dtype = args->dtype;
    job->rescale.out = job->parts[0].out;
    job->rescale.own = job->parts[0].lse;
    job->rescale.all = job->lses;
    job->rescale.count = args->count;
    job->rescale.lse_base = args->lse_base;
    job->rescale.num_tokens = args->num_tokens;
    job->rescale.heads = args->heads;
    job->rescale.head_dim = args->head_dim;
    compute_wanted(job);
    place_result(job, &rng, &layout);
    snprintf(job->text, sizeof job->text, "parts=%u dtype=%s base=%s rows=%u heads=%u head_dim=%u%s",
             args->count, attn_dtype_name(args->dtype), args->lse_base == ATTN_LSE_BASE2 ? "2" : "e",
             args->num_tokens, args->heads, args->head_dim, job->aliased < MOST_PARTS ? " in place" : "");
}

static void job_finish(struct merge_job *job)
{
    free(job->before);
    free(job->wanted.out);
    free(job->wanted.largest_out);
    free(job->wanted.lse);
    free(job->wanted.largest_lse);
    free(job->wanted.parts);
    free(job->rescaled);
    arena_finish(&job->arena);
}

static bool same(double value, double wanted, double bound)
{
    if (isnan(wanted))
        return isnan(value);
    return isinf(wanted) ? value == wanted : fabs(value - wanted) <= bound;
}

/* Rounding to the type of out comes on top of an error in f32; of f32 only what is below its least number. */
static double with_rounding(double bound, uint32_t dtype, double wanted)
{
    return dtype == ATTN_F32 ? bound + 0x1p-150 : bound + oracle_half_step(dtype, fabs(wanted) + bound);
}

static bool judge_out(const struct merge_job *job, const struct attn_tensor *out, bool rescale, char *why,
                      size_t size)
{
    const struct attn_merge_args *args = &job->merge;

    for (size_t at = 0; at < (size_t)args->num_tokens * args->heads * args->head_dim; at++) {
        size_t pair = at / args->head_dim;
        uint32_t row = (uint32_t)(pair / args->heads), head = (uint32_t)(pair % args->heads);
        uint32_t parts = job->wanted.parts[pair], d = (uint32_t)(at % args->head_dim);
        double value, wanted = rescale ? job->rescaled[at] : job->wanted.out[at];
        double lse = job->wanted.largest_lse[pair];
        double bound = oracle_bound_merge_out(parts, 1, lse, job->wanted.largest_out[at]);
        if (rescale) /* the weight is exp of a difference of two lses, and may be subnormal as an f32 */
            bound = fabs(wanted) * (oracle_bound_merge_lse(parts, 1, lse) + (8 + fmax(1, lse)) * 0x1p-24) +
                    0x1p-147;
        bound = with_rounding(bound, args->dtype, wanted);
        oracle_load(args->dtype, tensor_at(out, row, head) + (size_t)d * oracle_size(args->dtype), 1, &value);
        if (!same(value, wanted, bound)) {
            snprintf(why, size,
                     "row %u head %u column %u: %.9g, wanted %.9g within %.3g (%u parts, lse up to %.3g)",
                     row, head, d, value, wanted, bound, parts, lse);
            return false;
        }
    }
    return true;
}

static bool judge_lse(const struct merge_job *job, char *why, size_t size)
{
    const struct attn_merge_args *args = &job->merge;

    for (uint32_t row = 0; row < args->num_tokens && job->lse_memory != NULL; row++) {
        for (uint32_t head = 0; head < args->heads; head++) {
            size_t pair = (size_t)row * args->heads + head;
            double value,
                bound = oracle_bound_merge_lse(job->wanted.parts[pair], 1, job->wanted.largest_lse[pair]);
            oracle_load(ATTN_F32, tensor_at(&args->lse, row, head), 1, &value);
            if (!same(value, job->wanted.lse[pair], bound)) {
                snprintf(why, size, "row %u head %u: lse %.9g, wanted %.9g within %.3g", row, head, value,
                         job->wanted.lse[pair], bound);
                return false;
            }
            pattern_restore(job->lse_memory, tensor_at(&args->lse, row, head), 4);
        }
    }
    return true;
}

/* Puts back what `out` held and compares the whole memory. */
static bool check_around(struct merge_job *job, const struct attn_tensor *out, struct guarded *memory,
                         const unsigned char *before)
{
    for (uint32_t row = 0; row < job->merge.num_tokens; row++) {
        for (uint32_t head = 0; head < job->merge.heads; head++) {
            unsigned char *at = tensor_at(out, row, head);
            memcpy(at, before + (at - memory->data),
                   (size_t)job->merge.head_dim * oracle_size(job->merge.dtype));
        }
    }
    bool good = memcmp(memory->data, before, memory->size) == 0;
    memcpy(memory->data, before, memory->size);
    return good;
}

static int32_t call_merge(void *arg, void *stream, struct attn_error *err)
{
    struct merge_job *job = arg;

    return attn_merge(job->backend, &job->merge, stream, err);
}

static int32_t call_rescale(void *arg, void *stream, struct attn_error *err)
{
    struct merge_job *job = arg;

    return attn_rescale(job->backend, &job->rescale, stream, err);
}

static void report(struct merge_job *job, bool rescale, int32_t status, const struct attn_error *err)
{
    const struct attn_tensor *out = rescale ? &job->rescale.out : &job->merge.out;
    const char *name = "";
    char why[512] = "";

    if (status == ATTN_E_UNSUPPORTED) {
        tap_skip(err->message);
        return;
    }
    bool good = status == ATTN_OK && judge_out(job, out, rescale, why, sizeof why) &&
                (rescale || judge_lse(job, why, sizeof why));
    bool clean = check_around(job, out, job->out_memory, job->before);
    if (job->lse_memory != NULL) {
        clean = (!good || pattern_check(job->lse_memory) < 0) && clean;
        pattern_fill(job->lse_memory);
    }
    if (status != ATTN_OK)
        tap_fail("%s: %s (%s): %s", attn_status_name(status), err->message, err->field, job->text);
    else if (!good)
        tap_fail("%s: %s", why, job->text);
    else if (!clean || !arena_check(&job->arena, &name))
        tap_fail("wrote where nothing was to be written%s%s: %s", *name != '\0' ? ", around " : "", name,
                 job->text);
    else
        tap_pass();
}

void check_merge(struct target_list *list, const struct run_options *options)
{
    uint32_t cases = options_cases(options, 120, 800);
    static struct merge_job job;

    if (!options_wants(options, ""))
        return;
    for (uint32_t n = 0; n < cases; n++) {
        uint64_t seed =
            options->seed_given && options->kind != NULL ? options->seed + n : mix(options->seed, n) >> 32;
        if (!options_mine(options, n))
            continue;
        job_init(&job, seed);
        struct rng rng = {mix(seed, 12)};
        enum executor executor =
            rng_chance(&rng, 50) ? EXECUTOR_POOL : (enum executor)rng_below(&rng, EXECUTORS);
        for (uint32_t t = 0; t < list->count; t++) {
            struct attn_error err;
            ATTN_INIT(&err);
            job.backend = list->targets[t].backend;
            tap_begin(&list->targets[t], "merge", "", seed);
            report(&job, false, executor_call(executor, call_merge, &job, &err), &err);
            if (job.aliased == 0) { /* rescale works on part 0 in place */
                tap_begin(&list->targets[t], "merge", "", seed);
                report(&job, true, executor_call(executor, call_rescale, &job, &err), &err);
            }
        }
        job_finish(&job);
    }
}
