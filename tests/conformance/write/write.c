/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Cache writes: every conversion exact, every place right, nothing else touched. */
#include "conform.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "need.h"
#include "write8.h"

/* Where a row of k_new and v_new goes. */
struct place {
    int64_t page; /* negative: nowhere */
    int64_t token;
};

struct write_job {
    struct step step;
    struct attn_kv_write_args args;
    struct attn_tensor keys; /* whole, whatever args.k_new is */
    struct attn_backend *backend;
    struct place *places;
    uint64_t *contents; /* rows with one number hold the same */
    bool exact;         /* divisions of the target are correctly rounded */
};

/* A value that is hard to convert: raw bits, halfway between two codes, subnormal, at the edge of infinity.
 */
static void fill_hard(uint32_t dtype, void *to, uint64_t key)
{
    struct rng rng = {key};
    double sign = rng_chance(&rng, 50) ? 1 : -1;
    double value = ldexp(1 + (double)rng_below(&rng, 1u << 24) * 0x1p-24, (int)rng_below(&rng, 50) - 30);
    const double edge_values[] = {0,     (double)INFINITY, (double)NAN, 65504,  65519.99,
                                  65520, 0x1.fep127,       0x1.ffp127,  0x1p-25};
    uint64_t bits = rng_next(&rng);

    switch (rng_below(&rng, 8)) {
    case 0:
        memcpy(to, &bits, oracle_size(dtype));
        return;
    case 1:
        value = ldexp(1024.5 + rng_below(&rng, 1024), (int)rng_below(&rng, 20) - 15); /* f16 midpoint */
        break;
    case 2:
        value = ldexp(128.5 + rng_below(&rng, 128), (int)rng_below(&rng, 40) - 20); /* bf16 midpoint */
        break;
    case 3:
        value = ldexp(rng_below(&rng, 1024) + 0.5, -24); /* midpoint of f16 subnormals */
        break;
    case 4:
        value = ldexp(rng_below(&rng, 128) + 0.5, -133); /* of bf16 subnormals */
        break;
    case 5:
        value = rng_pick(&rng, edge_values);
        break;
    default:
        break;
    }
    oracle_store(dtype, sign * value, to);
}

static struct row8 row_of(struct write_job *job, uint32_t what, uint32_t row, uint32_t head)
{
    const struct attn_tensor *from = what == SCALED_K ? &job->keys : &job->args.v_new;

    return write8_row(&job->step, what, what == SCALED_K ? job->args.k_dtype : job->args.v_dtype,
                      tensor_at(from, row, head), job->places[row].page, job->places[row].token, head);
}

static void fill_source(struct write_job *job, uint32_t what, const struct attn_tensor *tensor,
                        uint32_t dtype, uint32_t dim, uint64_t salt)
{
    bool is_8bit = oracle_is_8bit(what == SCALED_K ? job->step.kv.k_dtype : job->step.kv.v_dtype);

    for (uint32_t row = 0; row < job->args.num_tokens; row++) {
        for (uint32_t head = 0; head < job->step.problem.kv_heads; head++) {
            unsigned char *at = tensor_at(tensor, row, head);
            if (is_8bit) {
                const struct row8 to = row_of(job, what, row, head);
                write8_fill(&to, mix(job->contents[row], salt + head));
            }
            for (uint32_t d = 0; !is_8bit && d < dim; d++)
                fill_hard(dtype, at + (size_t)d * oracle_size(dtype),
                          mix(mix(job->contents[row], salt + head), d));
        }
    }
}

/* Mostly the type that queries have; codes of the cache's own where their scale is given. */
static uint32_t pick_source_type(struct rng *rng, uint32_t q_dtype, uint32_t to_dtype, uint32_t granularity)
{
    static const uint32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};

    if (!oracle_is_8bit(to_dtype))
        return rng_pick(rng, types);
    if (granularity != ATTN_SCALES_TOKEN_HEAD && rng_chance(rng, 15))
        return to_dtype;
    return !oracle_is_8bit(q_dtype) && rng_chance(rng, 40) ? q_dtype : rng_pick(rng, types);
}

/* MLA keys in two tensors, at random. */
static void split_keys(struct write_job *job, struct rng *rng)
{
    const struct attn_kv_desc *kv = &job->step.kv;
    uint32_t size = oracle_size(job->args.k_dtype), rope = kv->head_dim - kv->head_dim_vo;
    const uint32_t shape[3] = {job->args.num_tokens, 1, kv->head_dim_vo};
    const uint32_t rope_shape[3] = {job->args.num_tokens, 1, rope};
    struct arena *arena = &job->step.arena;

    if (rope == 0 || rng_chance(rng, 50))
        return;
    struct guarded *first =
        tensor_init(&job->args.k_new, arena, "latent of k_new", shape, size, &job->step.layout, rng, 0xff);
    struct guarded *second =
        tensor_init(&job->args.k_rope, arena, "k_rope", rope_shape, size, &job->step.layout, rng, 0xff);
    for (uint32_t row = 0; row < job->args.num_tokens; row++) {
        const unsigned char *from = tensor_at(&job->keys, row, 0);
        memcpy(tensor_at(&job->args.k_new, row, 0), from, (size_t)kv->head_dim_vo * size);
        memcpy(tensor_at(&job->args.k_rope, row, 0), from + (size_t)kv->head_dim_vo * size,
               (size_t)rope * size);
    }
    guarded_protect(first);
    guarded_protect(second);
}

static void add_sources(struct write_job *job, struct rng *rng)
{
    const struct attn_problem *problem = &job->step.problem;
    const uint32_t k_shape[3] = {job->args.num_tokens, problem->kv_heads, problem->head_dim};
    const uint32_t v_shape[3] = {job->args.num_tokens, problem->kv_heads, problem->head_dim_vo};
    struct arena *arena = &job->step.arena;

    job->args.k_dtype = pick_source_type(rng, problem->q_dtype, problem->k_dtype, problem->k_scale);
    job->args.v_dtype = pick_source_type(rng, problem->q_dtype, problem->v_dtype, problem->v_scale);
    if (problem->mla != 0)
        job->args.v_dtype = 0;
    else if (rng_chance(rng, 70) && oracle_size(job->args.k_dtype) > 1 && oracle_size(job->args.v_dtype) > 1)
        job->args.v_dtype = job->args.k_dtype;
    write8_place_scales(&job->step);
    struct guarded *k = tensor_init(&job->args.k_new, arena, "k_new", k_shape, oracle_size(job->args.k_dtype),
                                    &job->step.layout, rng, 0xff);
    job->keys = job->args.k_new;
    fill_source(job, SCALED_K, &job->keys, job->args.k_dtype, problem->head_dim, 0);
    guarded_protect(k);
    if (problem->mla != 0) {
        split_keys(job, rng);
        return;
    }
    struct guarded *v = tensor_init(&job->args.v_new, arena, "v_new", v_shape, oracle_size(job->args.v_dtype),
                                    &job->step.layout, rng, 0xff);
    fill_source(job, SCALED_V, &job->args.v_new, job->args.v_dtype, problem->head_dim_vo, 1000);
    guarded_protect(v);
}

/* Distinct slots of the whole cache, some rows nowhere. */
static void map_slots(struct write_job *job, struct rng *rng)
{
    uint32_t slots = job->step.kv.pages * job->step.kv.block;
    uint32_t rows = rng_below(rng, slots < 90 ? slots + 1 : 90);
    uint32_t *order = need(calloc((size_t)slots + 1, sizeof *order));
    int64_t *mapping = need(calloc((size_t)rows + 1, sizeof *mapping));

    rng_shuffle(rng, order, slots);
    job->args.num_tokens = rows;
    job->places = need(calloc((size_t)rows + 1, sizeof *job->places));
    job->contents = need(calloc((size_t)rows + 1, sizeof *job->contents));
    for (uint32_t row = 0; row < rows; row++) {
        bool skip = rng_chance(rng, 15);
        mapping[row] = skip ? -1 - (int64_t)rng_below(rng, 5) : (int64_t)order[row];
        job->places[row].page = skip ? -1 : (int64_t)(order[row] / job->step.kv.block);
        job->places[row].token = order[row] % job->step.kv.block;
        job->contents[row] = rng_next(rng);
    }
    struct guarded *memory = arena_add(&job->step.arena, "slot_mapping", (size_t)rows * 8, 8, 0xff);
    memcpy(memory->data, mapping, (size_t)rows * 8);
    guarded_protect(memory);
    job->args.slot_mapping = buffer_at(memory->data, rng);
    free(order);
    free(mapping);
}

/* The last q_len tokens of each sequence. Sequences that share a page write the same into it. */
static void map_batch(struct write_job *job)
{
    const struct step *step = &job->step;
    const struct conform_case *c = step->the_case;
    uint32_t rows = step->batch.num_tokens;

    job->args.num_tokens = rows;
    job->args.batch = &step->batch;
    job->args.addressing = step->problem.addressing;
    job->args.index_dtype = step->problem.index_dtype;
    job->places = need(calloc((size_t)rows + 1, sizeof *job->places));
    job->contents = need(calloc((size_t)rows + 1, sizeof *job->contents));
    for (uint32_t n = 0; n < step->seqs; n++) {
        if (step->source[n] < 0)
            continue;
        const struct sequence *s = &c->sequences[step->source[n]];
        for (uint32_t i = 0; i < s->q_len; i++) {
            struct place *place = &job->places[step->first_row[n] + i];
            uint32_t j = s->kv_len - s->q_len + i;
            int64_t slot = case_slot(c, (uint32_t)step->source[n], j);
            step_place(step, n, j, &place->page, &place->token);
            job->contents[step->first_row[n] + i] = mix(c->seed, (uint64_t)slot);
        }
    }
}

static int32_t call_write(void *arg, void *stream, struct attn_error *err)
{
    struct write_job *job = arg;

    return attn_kv_write(job->backend, &job->args, stream, err);
}

/* One stored vector against the source. */
static bool is_stored(uint32_t from_dtype, const unsigned char *from, uint32_t to_dtype,
                      const unsigned char *to, uint32_t dim, uint32_t *out_d)
{
    for (uint32_t d = 0; d < dim; d++) {
        unsigned char wanted[4] = {0};
        double value, stored;
        oracle_load(from_dtype, from + (size_t)d * oracle_size(from_dtype), 1, &value);
        oracle_load(to_dtype, to + (size_t)d * oracle_size(to_dtype), 1, &stored);
        oracle_store(to_dtype, value, wanted);
        *out_d = d;
        if (isnan(value) ? !isnan(stored)
                         : memcmp(wanted, to + (size_t)d * oracle_size(to_dtype), oracle_size(to_dtype)) != 0)
            return false;
    }
    return true;
}

/* One vector of keys or values; its own scale holds the pattern again after `restore`. */
static bool check_vector(struct write_job *job, uint32_t what, uint32_t row, uint32_t head, bool restore,
                         char *why, size_t size)
{
    const struct attn_kv_desc *kv = &job->step.kv;
    const struct place *place = &job->places[row];
    bool keys = what == SCALED_K;
    uint32_t dtype = keys ? kv->k_dtype : kv->v_dtype, dim = keys ? kv->head_dim : kv->head_dim_vo, d = 0;
    uint32_t element = oracle_size(dtype);
    unsigned char *at = vector_room(0, dim);
    const struct row8 row8 = row_of(job, what, row, head);
    char detail[160] = "";
    bool good;

    if (restore) {
        for (d = 0; d < dim; d++)
            pattern_restore(keys ? job->step.k_memory : job->step.v_memory,
                            keys ? key_element(kv, place->page, place->token, head, d)
                                 : value_element(kv, place->page, place->token, head, d),
                            element);
        if (row8.own)
            pattern_restore(job->step.scales[what], row8.stored_scale, sizeof(float));
        return true;
    }
    if (keys)
        get_key(kv, place->page, place->token, head, at);
    else
        get_value(kv, place->page, place->token, head, at);
    if (oracle_is_8bit(dtype)) {
        good = write8_check(&row8, at, job->exact, detail, sizeof detail);
    } else {
        good = is_stored(row8.from_dtype, row8.from, dtype, at, dim, &d);
        snprintf(detail, sizeof detail, "dim %u is not what it should be", d);
    }
    if (!good)
        snprintf(why, size, "row %u head %u of the %s at page %lld token %lld: %s", row, head,
                 keys ? "keys" : "values", (long long)place->page, (long long)place->token, detail);
    return good;
}

/* The written places hold the rows; afterwards they hold the pattern again. */
static bool check_places(struct write_job *job, char *why, size_t size)
{
    const struct step *step = &job->step;

    for (int restore = 0; restore < 2; restore++) {
        for (uint32_t row = 0; row < job->args.num_tokens; row++) {
            for (uint32_t head = 0; head < step->kv.kv_heads && job->places[row].page >= 0; head++)
                if (!check_vector(job, SCALED_K, row, head, restore == 1, why, size) ||
                    (step->v_memory != NULL &&
                     !check_vector(job, SCALED_V, row, head, restore == 1, why, size)))
                    return false;
        }
    }
    int64_t at_k = pattern_check(step->k_memory);
    int64_t at_v = step->v_memory != NULL ? pattern_check(step->v_memory) : -1;
    if (at_k < 0 && at_v < 0)
        return write8_end(&job->step, why, size);
    snprintf(why, size, "byte %lld of the %s was written, but belongs to no row",
             (long long)(at_k >= 0 ? at_k : at_v), at_k >= 0 ? "keys" : "values");
    return false;
}

/* A cache's own type; or 8 bits out of what queries are. */
static bool is_common(const struct write_job *job, uint32_t from, uint32_t to)
{
    return from == to || (oracle_is_8bit(to) && from == job->step.problem.q_dtype);
}

/* A cache that is served can be written from its own types; conversions and other caches may be refused. */
static bool must_serve(const struct write_job *job, const struct target *target)
{
    char why[160];

    return is_common(job, job->args.k_dtype, job->step.kv.k_dtype) &&
           (job->step.problem.mla != 0 || is_common(job, job->args.v_dtype, job->step.kv.v_dtype)) &&
           target_accepts(target, &job->step.problem, NULL, why, sizeof why);
}

static void run_write(struct write_job *job, const struct target *target, enum executor executor)
{
    struct attn_kv *kv = NULL;
    struct attn_error err;
    const char *name = "";
    char why[512] = "";

    ATTN_INIT(&err);
    pattern_fill(job->step.k_memory);
    if (job->step.v_memory != NULL)
        pattern_fill(job->step.v_memory);
    write8_begin(&job->step);
    job->exact = target->device.type == ATTN_DEVICE_CPU;
    job->backend = target->backend;
    job->args.kv_desc = job->step.use_handle ? NULL : &job->step.kv;
    int32_t status =
        job->step.use_handle ? attn_kv_create(target->backend, &job->step.kv, &kv, &err) : (int32_t)ATTN_OK;
    job->args.kv = kv;
    if (status == ATTN_OK)
        status = executor_call(executor, call_write, job, &err);
    attn_kv_destroy(kv);
    const bool blocks = oracle_has_blocks(job->step.kv.k_dtype) || oracle_has_blocks(job->step.kv.v_dtype);
    if (blocks && status != ATTN_E_UNSUPPORTED)
        tap_fail("a cache in blocks, which are only read, is taken with %s", attn_status_name(status));
    else if (blocks && arena_check(&job->step.arena, &name))
        tap_pass();
    else if (status == ATTN_E_UNSUPPORTED && !must_serve(job, target))
        tap_skip(err.message);
    else if (status != ATTN_OK)
        tap_fail("%s: %s (%s)", attn_status_name(status), err.message, err.field);
    else if (!arena_check(&job->step.arena, &name))
        tap_fail("wrote outside of %s", name);
    else if (!check_places(job, why, sizeof why))
        tap_fail("%s; %s, %s to %s", why, job->args.batch != NULL ? "by batch" : "by slot mapping",
                 attn_dtype_name(job->args.k_dtype), attn_dtype_name(job->step.kv.k_dtype));
    else
        tap_pass();
}

static void check_case(struct target_list *list, const struct attn_problem *problem, uint64_t seed)
{
    static const struct effort effort = {5e7, 300000, 0};
    struct rng rng = {mix(seed, 10)};
    struct conform_case the_case;
    struct layout layout;
    struct write_job job = {0};

    case_init(&the_case, problem, seed, &effort, true);
    layout_init(&layout, &the_case, seed);
    step_init(&job.step, &the_case, &layout, false);
    ATTN_INIT(&job.args);
    if (rng_chance(&rng, 50))
        map_slots(&job, &rng);
    else
        map_batch(&job);
    add_sources(&job, &rng);
    enum executor executor = rng_chance(&rng, 50) ? EXECUTOR_POOL : (enum executor)rng_below(&rng, EXECUTORS);
    for (uint32_t t = 0; t < list->count; t++) {
        tap_begin(&list->targets[t], "write", the_case.text, seed);
        run_write(&job, &list->targets[t], executor);
    }
    free(job.places);
    free(job.contents);
    step_finish(&job.step);
    case_finish(&the_case);
}

void check_write(struct target_list *list, const struct run_options *options)
{
    uint32_t cases = options_cases(options, 120, 800);

    for (uint32_t n = 0; n < cases; n++) {
        struct attn_problem problem;
        uint64_t seed;
        if (!options_mine(options, n) || !options_served(options, list, n, 100, &problem, &seed))
            continue;
        problem.kv_source = ATTN_KV_CACHE;
        problem.cp = 0;
        check_case(list, &problem, seed);
    }
}
