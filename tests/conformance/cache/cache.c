/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Operations on caches: right bytes, nothing else touched, and the same on all threads there are. */
#include "cache.h"

#include <stdio.h>

#include "need.h"

static const struct cache_operation *const operations[] = {
    &cache_copy_slots,   &cache_copy_blocks, &cache_swap_blocks, &cache_convert,
    &cache_slot_mapping, &cache_gather,      &cache_write,       &cache_advance_step};

enum { OPERATIONS = sizeof operations / sizeof operations[0] };

/* Every struct of arguments begins with its size. */
static void args_init(struct cache_case *c)
{
    memset(&c->args, 0, sizeof c->args);
    const uint32_t sizes[OPERATIONS] = {sizeof c->args.copy_slots,   sizeof c->args.copy_blocks,
                                        sizeof c->args.swap_blocks,  sizeof c->args.convert,
                                        sizeof c->args.slot_mapping, sizeof c->args.gather,
                                        sizeof c->args.write,        sizeof c->args.advance_step};
    for (uint32_t i = 0; i < OPERATIONS; i++)
        if (operations[i] == c->operation)
            memcpy(&c->args, &sizes[i], sizeof sizes[i]);
}

static void case_begin(struct cache_case *c, const struct cache_operation *operation, uint64_t seed,
                       bool exact)
{
    memset(c, 0, sizeof *c);
    c->rng.state = mix(seed, 70);
    c->operation = operation;
    c->layout.alignment = c->layout.stride_multiple = 1;
    c->exact = exact;
    arena_init(&c->arena, rng_chance(&c->rng, 50));
    args_init(c);
    operation->init(c);
}

static void case_end(struct cache_case *c)
{
    for (uint32_t i = 0; i < c->tracked_count; i++) {
        free(c->tracked[i].before);
        free(c->tracked[i].mirror);
    }
    arena_finish(&c->arena);
}

/* Handles for the caches that have one: of copy_blocks all or none. */
static int32_t make_handles(struct cache_case *c, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < c->box_count && status == ATTN_OK; i++) {
        bool wanted = c->operation == &cache_copy_blocks ? c->boxes[0].use_handle : c->boxes[i].use_handle;
        if (wanted)
            status = attn_kv_create(c->backend, &c->boxes[i].desc, &c->boxes[i].kv, err);
    }
    return status;
}

static int32_t run(struct cache_case *c, struct attn_backend *backend, enum executor executor,
                   struct attn_error *err)
{
    c->backend = backend;
    int32_t status = make_handles(c, err);
    if (status == ATTN_OK)
        status = executor_call(executor, c->operation->call, c, err);
    for (uint32_t i = 0; i < c->box_count; i++) {
        attn_kv_destroy(c->boxes[i].kv);
        c->boxes[i].kv = NULL;
    }
    return status;
}

/* Status and bytes of one run. False: `why`. */
static bool judge(struct cache_case *c, int32_t status, const struct attn_error *err, char *why, size_t size)
{
    const char *name = "";
    size_t at = 0;

    if (c->refused ? status != ATTN_E_INVALID : status != ATTN_OK)
        snprintf(why, size, "%s %s: %s (%s)", attn_status_name(status),
                 c->refused ? "for a pair beyond its cache" : "where nothing is wrong", err->message,
                 err->field);
    else if (!arena_check(&c->arena, &name))
        snprintf(why, size, "wrote outside of %s", name);
    else if (!cache_compare(c, &name, &at))
        snprintf(why, size, "byte %zu of the %s is not what it should be", at, name);
    else
        return true;
    return false;
}

/* Whether a target serves attention over all caches of a case: others it need not take. */
static bool is_claimed(const struct cache_case *c, const struct target *target)
{
    for (uint32_t i = 0; i < c->box_count; i++) {
        const struct attn_kv_desc *desc = &c->boxes[i].desc;
        struct attn_problem problem;
        char why[160];
        ATTN_INIT(&problem);
        problem.heads = problem.kv_heads = desc->kv_heads;
        problem.head_dim = desc->head_dim;
        problem.head_dim_vo = desc->head_dim_vo;
        problem.k_dtype = desc->k_dtype;
        problem.q_dtype = problem.out_dtype =
            oracle_is_8bit(desc->k_dtype) ? (uint32_t)ATTN_F32 : desc->k_dtype;
        problem.block = desc->block;
        problem.layout = desc->layout;
        problem.k_scale = desc->k_scale.granularity;
        problem.mla = desc->v.data == NULL;
        problem.v_dtype = problem.mla != 0 ? desc->k_dtype : desc->v_dtype;
        problem.v_scale = problem.mla != 0 ? (uint32_t)ATTN_SCALES_NONE : desc->v_scale.granularity;
        if (attn_problem_resolve(&problem, &problem, NULL) != ATTN_OK ||
            !target_accepts(target, &problem, NULL, why, sizeof why))
            return false;
    }
    return true;
}

/* The first run is judged by the reference; whatever threads do the next ones, not a bit may change. */
static void run_target(struct cache_case *c, const struct target *target)
{
    struct attn_error err;
    char why[640] = "";
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < EXECUTORS + POOLS; i++) {
        enum executor executor = i < EXECUTORS ? (enum executor)i : EXECUTOR_POOL;
        ATTN_INIT(&err);
        cache_restore(c);
        status = run(c, i < EXECUTORS ? target->backend : target->pools[i - EXECUTORS], executor, &err);
        if (i == 0 && status != ATTN_OK &&
            (status == ATTN_E_UNSUPPORTED || (!c->refused && !is_claimed(c, target)))) {
            tap_skip(err.message);
            return;
        }
        if (i == 0) {
            for (uint32_t k = 0; k < c->tracked_count; k++)
                memcpy(c->tracked[k].mirror, c->tracked[k].before, c->tracked[k].memory->size);
            if (!c->refused)
                c->operation->reference(c);
        }
        if (!judge(c, status, &err, why, sizeof why)) {
            tap_fail("%s; on %s %u", why, i < EXECUTORS ? executor_name(executor) : "a pool of size",
                     i < EXECUTORS ? 0 : i - EXECUTORS + 1);
            return;
        }
    }
    tap_pass();
}

static void check_case(struct target_list *list, const struct cache_operation *operation, uint64_t seed)
{
    struct cache_case *c = need(malloc(sizeof *c));

    for (uint32_t t = 0; t < list->count; t++) {
        /* What is beyond a cache can be seen where the arrays are the host's. */
        case_begin(c, operation, seed, list->targets[t].device.type == ATTN_DEVICE_CPU);
        tap_begin(&list->targets[t], "cache", operation->name, seed);
        run_target(c, &list->targets[t]);
        case_end(c);
    }
    free(c);
}

void check_cache(struct target_list *list, const struct run_options *options)
{
    bool one = options->seed_given && options->filter_kind == FILTER_NAME;
    uint32_t cases = one ? 1 : options_cases(options, 40, 250);

    for (uint32_t n = 0; n < cases; n++) {
        for (uint32_t i = 0; i < OPERATIONS; i++) {
            uint64_t seed = one ? options->seed : mix(options->seed + 300 + i, n) >> 32;
            if (options_mine(options, n) && options_wants(options, operations[i]->name))
                check_case(list, operations[i], seed);
        }
    }
}
