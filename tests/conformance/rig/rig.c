/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A small step, its blocks, its right result, and a cache to write into. */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>

#include "need.h"

enum { WRITE_ROWS = 4, WRITE_PAGES = 3 };

/* Keys that go into a cache of the flavour's own shape: the shape is asked of the backend. */
static bool make_write(struct rig *rig, const struct target *target, char *why, size_t size)
{
    struct attn_problem *problem = &rig->step.problem;
    const uint32_t k_shape[3] = {WRITE_ROWS, problem->kv_heads, problem->head_dim};
    const uint32_t v_shape[3] = {WRITE_ROWS, problem->kv_heads, problem->head_dim_vo};
    struct rng rng = {mix(rig->the_case.seed, 50)};
    struct attn_kv_shape shape;
    struct attn_error err;

    ATTN_INIT(&shape);
    ATTN_INIT(&err);
    if (attn_kv_get_shape(target->backend, problem, WRITE_PAGES, &shape, &err) != ATTN_OK) {
        snprintf(why, size, "kv_get_shape: %s", err.message);
        return false;
    }
    rig->write_memory = arena_add(&rig->arena, "written cache", shape.bytes, 64, 0xff);
    struct attn_buffer memory = {rig->write_memory->data, 0};
    attn_kv_desc_init(&rig->write_kv, &shape, &memory);
    ATTN_INIT(&rig->write);
    rig->write.rows = WRITE_ROWS;
    rig->write.k_dtype = problem->k_dtype;
    rig->write.v_dtype = problem->v_dtype;
    tensor_init(&rig->write.k_new, &rig->arena, "k_new", k_shape, oracle_size(problem->k_dtype),
                &rig->step.layout, &rng, 0x3c);
    tensor_init(&rig->write.v_new, &rig->arena, "v_new", v_shape, oracle_size(problem->v_dtype),
                &rig->step.layout, &rng, 0x3c);
    for (uint32_t i = 0; i < WRITE_ROWS; i++)
        rig->slots[i] = (int64_t)i * rig->write_kv.block / 2;
    rig->write.slot_mapping.data = rig->slots;
    rig->write.kv_desc = &rig->write_kv;
    return true;
}

/* A run through the ordinary calls: judged, and kept. */
static int find_expected(struct rig *rig, const struct target *target, char *why, size_t size)
{
    struct attempt attempt = {.backend = target->backend};
    struct step *step = &rig->step;
    int ran = step_run(step, target, &attempt, why, size);

    if (ran != 1)
        return ran;
    rig->expected_out = need(malloc(step->out_memory->size + 1));
    memcpy(rig->expected_out, step->out_memory->data, step->out_memory->size);
    if (step->lse_memory != NULL) {
        rig->expected_lse = need(malloc(step->lse_memory->size + 1));
        memcpy(rig->expected_lse, step->lse_memory->data, step->lse_memory->size);
    }
    bool good = reference_init(&rig->reference, step, 1e9) && step_judge(step, &rig->reference, why, size);
    return good ? 1 : -1;
}

/* Seeds whose batch has next to no rows or keys show nothing, and NaN compares badly. */
static void find_step(struct rig *rig, const struct target *target, const struct attn_problem *problem,
                      uint64_t seed)
{
    static const struct effort effort = {3e5, 60000, 0};
    struct layout layout;

    for (;; seed += 1000003) {
        case_init(&rig->the_case, problem, seed, &effort, true);
        layout_init(&layout, &rig->the_case, seed);
        layout.padding = 0;
        target_demands(target, problem, &layout);
        step_init(&rig->step, &rig->the_case, &layout, true);
        rig->step.problem.max_q += 64; /* room to be wrong within the maxima */
        rig->step.problem.max_rows += 64;
        rig->step.problem.max_kv += 64;
        if (rig->step.batch.rows > 1 && rig->step.batch.max_kv > 1 && rig->step.seqs > 1 &&
            rig->the_case.injection_count == 0)
            return;
        step_finish(&rig->step);
        case_finish(&rig->the_case);
    }
}

int rig_init(struct rig *rig, const struct target *target, const char *problem, uint64_t seed, char *why,
             size_t size)
{
    struct attn_problem parsed;
    struct attn_error err;
    int made = 1;

    memset(rig, 0, sizeof *rig);
    ATTN_INIT(&err);
    if (attn_problem_parse(problem, &parsed, &err) != ATTN_OK) {
        snprintf(why, size, "%s", err.message);
        return -1;
    }
    parsed.max_seqs = parsed.max_q = parsed.max_kv = parsed.max_rows = 0;
    parsed.det = 1;
    rig->deterministic = target_accepts(target, &parsed, NULL, why, size);
    parsed.det = rig->deterministic;
    if (!target_accepts(target, &parsed, NULL, why, size))
        return 0;
    arena_init(&rig->arena, false);
    find_step(rig, target, &parsed, seed);
    if (parsed.kv_source != ATTN_KV_NEW && !make_write(rig, target, why, size))
        made = -1;
    if (made == 1)
        made = find_expected(rig, target, why, size);
    if (made == 1)
        rig_clear(rig);
    else
        rig_finish(rig);
    return made;
}

void rig_finish(struct rig *rig)
{
    free(rig->expected_out);
    free(rig->expected_lse);
    reference_finish(&rig->reference);
    arena_finish(&rig->arena);
    step_finish(&rig->step);
    case_finish(&rig->the_case);
    memset(rig, 0, sizeof *rig);
}

static struct attn_span add_span(struct rig *rig, const char *name, uint64_t size, uint32_t alignment,
                                 uint8_t fill)
{
    struct attn_span span = {{NULL, 0}, size};

    if (size > 0)
        span.buffer.data = arena_add(&rig->arena, name, size, alignment > 0 ? alignment : 1, fill)->data;
    return span;
}

void rig_blocks(struct rig *rig, const struct attn_plan_sizes *sizes)
{
    rig->schedule = add_span(rig, "schedule", sizes->schedule, sizes->alignment, 0xff);
    rig->staging = add_span(rig, "staging", sizes->staging, sizes->alignment, 0xff);
    ATTN_INIT(&rig->scratch);
    rig->scratch.scratch = add_span(rig, "scratch", sizes->scratch, sizes->alignment, 0xff);
    rig->scratch.counters = add_span(rig, "counters", sizes->counters, sizes->alignment, 0);
}

void rig_clear(struct rig *rig)
{
    pattern_fill(rig->step.out_memory);
    if (rig->step.lse_memory != NULL)
        pattern_fill(rig->step.lse_memory);
}

static bool is_equal(const struct guarded *memory, const unsigned char *expected)
{
    return memory == NULL || memcmp(memory->data, expected, memory->size) == 0;
}

bool rig_judge(const struct rig *rig, char *why, size_t size)
{
    const char *name = "";

    if (!rig->deterministic && !step_judge(&rig->step, &rig->reference, why, size))
        return false;
    if (rig->deterministic && (!is_equal(rig->step.out_memory, rig->expected_out) ||
                               !is_equal(rig->step.lse_memory, rig->expected_lse))) {
        snprintf(why, size, "out or lse have other bits than those of an undisturbed run");
        return false;
    }
    if (arena_check(&rig->arena, &name) && arena_check(&rig->step.arena, &name))
        return true;
    snprintf(why, size, "wrote outside of %s", name);
    return false;
}

bool rig_untouched(const struct rig *rig)
{
    return pattern_check(rig->step.out_memory) < 0 &&
           (rig->step.lse_memory == NULL || pattern_check(rig->step.lse_memory) < 0);
}
