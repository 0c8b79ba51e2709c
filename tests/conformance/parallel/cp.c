/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Context parallelism: ranks compute a step together, each over its own keys, and the oracle judges what they
 * get as if one rank had all keys. Ranks are threads, or the processes that were started with this one, each
 * of which makes the same cases and judges them.
 */
#include "conform.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn/parallel.h"
#include "need.h"
#include "output.h"
#include "shard.h"
#include "tokens.h"
#include "transport.h"

enum { MOST_RANKS = 7 };

/* Longer than any rank computes. */
#define LIMIT_NS UINT64_C(60000000000)

/* All ranks of one case on one target. */
struct group {
    struct step *step;
    struct attn_backend *backend;
    const struct attn_collectives *process; /* NULL: ranks are threads, and connected by ... */
    struct attn_local_ranks *connection;
    uint32_t size, interleave;
    bool split, graph;
    bool tokens; /* query tokens are spread, and pass is enum attn_cp_pass */
    uint32_t pass;
};

struct member {
    struct group *group;
    uint32_t rank;
    pthread_t thread;
    struct shard shard;
    struct tokens tokens;
    struct guarded *out, *lse; /* of a rank that gets what rank 0 gets */
    int32_t status;
    struct attn_error err;
};

/* ---------------------------------------------------------------- one rank */

/* Objects of a rank; whatever was made is freed. */
struct work {
    struct attn_plan *plan;
    struct attn_cp *cp;
    struct attn_graph *graph;
    void *stream;
    struct attn_span schedule, staging;
    struct attn_scratch scratch;
};

static struct attn_span make_span(struct shard *shard, const char *name, uint64_t size, uint32_t alignment,
                                  uint8_t fill)
{
    struct attn_span span = {{NULL, 0}, size};

    if (size > 0)
        span.buffer.data = arena_add(&shard->arena, name, size, alignment > 0 ? alignment : 1, fill)->data;
    return span;
}

static int32_t make_cp(struct member *member, struct work *work, struct attn_problem *problem,
                       struct attn_error *err)
{
    struct group *group = member->group;
    struct attn_collectives collectives;
    struct attn_cp_params params;
    int32_t status = ATTN_OK;

    ATTN_INIT(&collectives);
    ATTN_INIT(&params);
    problem->cp = 1;
    problem->positions |= group->tokens;
    if (group->process != NULL)
        collectives = *group->process;
    else
        status = attn_local_ranks_get(group->connection, member->rank, &collectives, err);
    params.queries = group->tokens ? ATTN_CP_TOKENS : group->split ? ATTN_CP_HEADS_SPLIT : ATTN_CP_HEADS_ALL;
    params.problem = problem;
    params.collectives = &collectives;
    if (group->tokens) {
        params.interleave = group->interleave;
        params.pass = group->pass;
    }
    return status == ATTN_OK ? attn_cp_create(group->backend, &params, &work->cp, err) : status;
}

static int32_t make_plan(struct member *member, struct work *work, const struct attn_problem *problem,
                         struct attn_error *err)
{
    struct attn_backend *backend = member->group->backend;
    struct attn_plan_sizes sizes;

    ATTN_INIT(&sizes);
    int32_t status = attn_plan_create(backend, problem, &work->plan, err);
    if (status == ATTN_OK)
        status = attn_plan_get_sizes(work->plan, &sizes, err);
    if (status != ATTN_OK)
        return status;
    work->schedule = make_span(&member->shard, "schedule", sizes.schedule, sizes.alignment, 0xff);
    work->staging = make_span(&member->shard, "staging", sizes.staging, sizes.alignment, 0xff);
    ATTN_INIT(&work->scratch);
    work->scratch.scratch = make_span(&member->shard, "scratch", sizes.scratch, sizes.alignment, 0xff);
    work->scratch.counters = make_span(&member->shard, "counters", sizes.counters, sizes.alignment, 0);
    return ATTN_OK;
}

/* The run is captured before the step is planned, so that only its launch can give the result. */
static int32_t run_graph(struct member *member, struct work *work, struct attn_cp_run_args *args,
                         struct attn_error *err)
{
    struct attn_backend *backend = member->group->backend;
    int32_t status = attn_stream_create(backend, &work->stream, err);

    if (status == ATTN_OK)
        status = attn_graph_begin(backend, work->stream, &work->graph, err);
    args->graph = work->graph;
    if (status == ATTN_OK)
        status = attn_cp_run(work->cp, args, work->stream, err);
    if (status == ATTN_OK)
        status = attn_graph_end(work->graph, err);
    if (status == ATTN_OK)
        status =
            attn_plan_prepare(work->plan, &member->shard.batch, &work->schedule, &work->staging, NULL, err);
    for (int i = 0; i < 2 && status == ATTN_OK; i++)
        status = attn_graph_launch(work->graph, NULL, err);
    return status == ATTN_OK ? attn_cp_wait(work->cp, NULL, err) : status;
}

static int32_t run(struct member *member, struct work *work, struct attn_error *err)
{
    struct attn_problem problem = member->group->step->problem;
    struct attn_cp_run_args args;
    int32_t status = make_cp(member, work, &problem, err);

    if (status == ATTN_OK && member->group->tokens)
        return tokens_run(&member->tokens, &member->shard, work->cp, err);
    if (status == ATTN_OK)
        status = make_plan(member, work, &problem, err);
    if (status != ATTN_OK)
        return status;
    ATTN_INIT(&args);
    args.plan = work->plan;
    args.batch = &member->shard.batch;
    args.tensors = &member->shard.tensors;
    args.schedule = &work->schedule;
    args.scratch = &work->scratch;
    if (member->group->graph)
        return run_graph(member, work, &args, err);
    status = attn_plan_prepare(work->plan, &member->shard.batch, &work->schedule,
                               work->staging.size > 0 ? &work->staging : NULL, NULL, err);
    if (status == ATTN_OK)
        status = attn_cp_run(work->cp, &args, NULL, err);
    return status == ATTN_OK ? attn_cp_wait(work->cp, NULL, err) : status;
}

static void *run_member(void *arg)
{
    struct member *member = arg;
    struct work work = {0};

    ATTN_INIT(&member->err);
    member->status = run(member, &work, &member->err);
    attn_graph_destroy(work.graph);
    attn_stream_destroy(member->group->backend, work.stream);
    attn_plan_destroy(work.plan);
    attn_cp_destroy(work.cp);
    return NULL;
}

/* ---------------------------------------------------------------- threads */

static void skip_heads(struct attn_tensor *tensor, uint32_t heads)
{
    if (tensor->buffer.data != NULL)
        tensor->buffer.byte_offset += (uint64_t)(heads * tensor->head_stride);
}

/* A tensor like one of the step's, in memory of the rank that begins as that of the step does. */
static struct guarded *mirror_tensor(struct member *member, struct attn_tensor *tensor, const char *name,
                                     const struct guarded *memory)
{
    const unsigned char *first = (const unsigned char *)tensor->buffer.data + tensor->buffer.byte_offset;
    struct guarded *own = arena_add(&member->shard.arena, name, memory->size, 64, 0);

    pattern_fill(own);
    tensor->buffer = (struct attn_buffer){own->data + (first - memory->data), 0};
    return own;
}

/* Rank 0 writes where the step says; other threads their heads of it, or the same elsewhere. */
static void place_outputs(struct member *member)
{
    const struct group *group = member->group;
    struct attn_tensors *tensors = &member->shard.tensors;
    const struct step *step = group->step;
    const uint32_t first = member->rank * (step->problem.heads / group->size);

    if (group->tokens) {
        tokens_init(&member->tokens, &member->shard, step, member->rank, group->size, group->interleave);
    } else if (group->split) {
        skip_heads(&tensors->q, first);
        skip_heads(&tensors->q_rope, first);
        skip_heads(&tensors->out, first);
        skip_heads(&tensors->lse, first);
    } else if (member->rank > 0 && group->process == NULL) {
        member->out = mirror_tensor(member, &tensors->out, "out of a rank", step->out_memory);
        member->lse = mirror_tensor(member, &tensors->lse, "lse of a rank", step->lse_memory);
    }
}

/* Whether a rank that gets all heads got what rank 0 did, to the bit. */
static bool is_same(const struct member *member)
{
    const struct step *step = member->group->step;

    return member->out == NULL ||
           (memcmp(member->out->data, step->out_memory->data, step->out_memory->size) == 0 &&
            memcmp(member->lse->data, step->lse_memory->data, step->lse_memory->size) == 0);
}

static int check_members(struct member *members, uint32_t size, char *why, size_t room)
{
    const char *name = "";
    int ran = 1;

    for (uint32_t r = 0; r < size && ran == 1; r++) {
        struct member *m = &members[r];
        ran = m->status == ATTN_OK && arena_check(&m->shard.arena, &name) && is_same(m) ? 1 : -1;
        if (m->status == ATTN_E_UNSUPPORTED)
            ran = 0;
        if (m->status != ATTN_OK)
            snprintf(why, room, "rank %u of %u: %s (%s)", r, size, m->err.message, m->err.field);
        else if (*name != '\0')
            snprintf(why, room, "rank %u of %u wrote outside of %s", r, size, name);
        else if (ran < 0)
            snprintf(why, room, "rank %u of %u has other bits than rank 0", r, size);
    }
    return ran;
}

static void take_tokens(struct member *member, int ran)
{
    if (ran == 1)
        tokens_take(&member->tokens);
    tokens_finish(&member->tokens);
}

/* 1 = ran, 0 = refused, -1 = failed, as step_run. */
static int run_threads(struct group *group, char *why, size_t size)
{
    static struct member members[MOST_RANKS];
    const char *name = "";
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn_local_ranks_create(group->size, LIMIT_NS, &group->connection, &err) != ATTN_OK) {
        snprintf(why, size, "%s", err.message);
        return -1;
    }
    for (uint32_t r = 0; r < group->size; r++) {
        memset(&members[r], 0, sizeof members[r]);
        members[r].group = group;
        members[r].rank = r;
        shard_init(&members[r].shard, group->step, r, group->size, group->interleave);
        place_outputs(&members[r]);
    }
    for (uint32_t r = 0; r < group->size; r++)
        if (pthread_create(&members[r].thread, NULL, run_member, &members[r]) != 0)
            need(NULL);
    for (uint32_t r = 0; r < group->size; r++)
        pthread_join(members[r].thread, NULL);
    int ran = check_members(members, group->size, why, size);
    for (uint32_t r = 0; r < group->size && group->tokens; r++)
        take_tokens(&members[r], ran);
    if (ran == 1 && !arena_check(&group->step->arena, &name)) {
        snprintf(why, size, "wrote outside of %s", name);
        ran = -1;
    }
    for (uint32_t r = 0; r < group->size; r++)
        shard_finish(&members[r].shard);
    attn_local_ranks_destroy(group->connection);
    return ran;
}

/* ---------------------------------------------------------------- processes */

/* Gathers as many bytes of every rank; whoever cannot is no rank any more. */
static unsigned char *gather(const struct attn_collectives *net, const void *own, size_t bytes)
{
    unsigned char *all = need(malloc(net->size * bytes + 1));
    const struct attn_buffer send = {(void *)(uintptr_t)own, 0}, receive = {all, 0};
    struct attn_error err;

    ATTN_INIT(&err);
    if (net->all_gather(net->arg, &send, &receive, bytes, NULL, &err) == ATTN_OK)
        return all;
    complain("%s", err.message);
    exit(EXIT_NO);
}

/* Puts the heads or tokens of all ranks where this rank's are; of ranks that have all, whether they have the
 * same. */
static bool take_outputs(const struct group *group, const struct attn_tensor *tensor, struct guarded *memory,
                         size_t bytes)
{
    const struct step *step = group->step;
    const uint32_t own = group->split ? step->problem.heads / group->size : 1;
    unsigned char *all = gather(group->process, memory->data, memory->size);
    bool same = true;

    for (uint32_t r = 0; r < group->size; r++) {
        const unsigned char *theirs = all + r * memory->size;
        same = same && (group->split || group->tokens || memcmp(theirs, memory->data, memory->size) == 0);
        for (uint32_t row = 0; row < (uint32_t)step->host.q_offsets[step->seqs]; row++) {
            for (uint32_t head = 0; head < step->problem.heads; head++) {
                unsigned char *at = tensor_at(tensor, row, head);
                if (group->tokens ? tokens_owner(step, row, group->size, group->interleave) == r
                                  : group->split && head / own == r)
                    memcpy(at, theirs + (at - memory->data), bytes);
            }
        }
    }
    free(all);
    return same;
}

static int run_process(struct group *group, char *why, size_t size)
{
    static struct member member;
    struct step *step = group->step;
    const struct attn_problem *problem = &step->problem;

    memset(&member, 0, sizeof member);
    member.group = group;
    member.rank = group->process->rank;
    shard_init(&member.shard, step, member.rank, group->size, group->interleave);
    place_outputs(&member);
    run_member(&member);
    int ran = check_members(&member, 1, why, size);
    if (group->tokens)
        take_tokens(&member, ran);
    shard_finish(&member.shard);
    int32_t *all = (int32_t *)(void *)gather(group->process, &ran, sizeof ran);
    for (uint32_t r = 0; r < group->size && ran == 1; r++) {
        ran = all[r];
        snprintf(why, size, "rank %u of %u failed or refused", r, group->size);
    }
    free(all);
    if (ran == 1 && (!take_outputs(group, &step->tensors.out, step->out_memory,
                                   problem->head_dim_vo * oracle_size(problem->out_dtype)) ||
                     !take_outputs(group, &step->tensors.lse, step->lse_memory, sizeof(float)))) {
        snprintf(why, size, "ranks have different bits");
        ran = -1;
    }
    return ran;
}

/* ---------------------------------------------------------------- cases */

/* What ATTN_CP_TOKENS refuses goes. */
static void allow_tokens(struct attn_problem *problem)
{
    problem->positions = problem->seq_causal = 0;
    problem->align = ATTN_ALIGN_END;
    problem->mask = ATTN_MASK_NONE;
    if (problem->alibi == ATTN_ALIBI_MASK)
        problem->alibi = ATTN_ALIBI_NONE;
    if (oracle_is_8bit(problem->q_dtype))
        problem->q_dtype = ATTN_BF16;
    problem->q_scale = ATTN_SCALES_NONE;
}

/* A cache of pages whose vectors are whole, and parts that can be merged. */
static void allow(struct attn_problem *problem, struct rng *rng)
{
    problem->cp = 0;
    problem->lse = 1;
    problem->kv_source = ATTN_KV_CACHE;
    problem->addressing = ATTN_TABLE;
    problem->layout = ATTN_STRIDED;
    problem->cascade = 0;
    if (oracle_is_8bit(problem->out_dtype)) {
        problem->out_dtype = ATTN_BF16;
        problem->out_scale = ATTN_SCALES_NONE;
    }
    /* The mean of a few large values is no f16, although that of all keys is one. */
    if (oracle_is_8bit(problem->v_dtype) && problem->out_dtype == ATTN_F16)
        problem->out_dtype = ATTN_F32;
    problem->graph = rng_chance(rng, 30) ? ATTN_GRAPH_ALWAYS : 0;
    if (rng_chance(rng, 50))
        allow_tokens(problem);
}

static void pick_ranks(struct group *group, const struct conform_case *c, struct rng *rng)
{
    static const uint32_t sizes[] = {1, 2, 2, 4, 4, 7};

    group->size = group->process != NULL ? group->process->size : rng_pick(rng, sizes);
    group->interleave = 1 + rng_below(rng, c->problem.block);
    while (!shard_allows(c, group->interleave))
        group->interleave = group->interleave % c->problem.block + 1;
    group->pass = rng_below(rng, 4);
    if (!tokens_allow(group->step, group->pass, group->size))
        group->pass = ATTN_CP_PASS_QUERIES;
    group->tokens = tokens_allow(group->step, group->pass, group->size) && rng_chance(rng, 75);
    group->split = !group->tokens && c->problem.heads % group->size == 0 &&
                   !oracle_is_8bit(c->problem.q_dtype) && rng_chance(rng, 60);
}

static void check_target(struct target *target, struct step *step, const struct reference *reference,
                         uint64_t seed, const struct attn_collectives *process)
{
    struct rng rng = {mix(seed, 91)};
    struct group group = {.step = step, .backend = target->backend, .process = process};
    char why[768] = "";

    pick_ranks(&group, step->the_case, &rng);
    group.graph = step->problem.graph == ATTN_GRAPH_ALWAYS;
    tap_begin(target, "cp", step->the_case->text, seed);
    struct attn_problem problem = step->problem;
    problem.cp = 1;
    problem.positions |= group.tokens;
    step->numerics = 0;
    const int ran = target_accepts(target, &problem, &step->numerics, why, sizeof why)
                        ? (process != NULL ? run_process : run_threads)(&group, why, sizeof why)
                        : 0;
    step_report(step, reference, ran, why, sizeof why);
}

static void check_case(struct target_list *list, const struct attn_problem *problem, uint64_t seed,
                       const struct attn_collectives *process)
{
    static const struct effort effort = {1e7, 600000, 10};
    struct conform_case the_case;
    struct reference reference;
    struct layout layout;
    struct step step;

    case_init(&the_case, problem, seed, &effort, false);
    the_case.scales[SCALED_K].outer &= the_case.scales[SCALED_K].token; /* pages of a shard are others */
    the_case.scales[SCALED_V].outer &= the_case.scales[SCALED_V].token;
    layout_init(&layout, &the_case, seed);
    targets_demand(list, problem, &layout);
    step_init(&step, &the_case, &layout, true);
    step_move_scales(&step);
    if (step_reference(&reference, &step, 2e6))
        for (uint32_t t = 0; t < list->count; t++)
            check_target(&list->targets[t], &step, &reference, seed, process);
    reference_finish(&reference);
    step_finish(&step);
    case_finish(&the_case);
}

static void check_cases(struct target_list *list, const struct run_options *options,
                        const struct attn_collectives *process)
{
    const uint32_t cases = options_cases(options, 60, 1000);

    for (uint32_t n = 0; n < cases; n++) {
        struct attn_problem problem, full;
        uint64_t seed;
        if (!options_mine(options, n) || !options_served(options, list, n, 500, &problem, &seed))
            continue;
        struct rng rng = {mix(seed, 90)};
        allow(&problem, &rng);
        if (attn_problem_resolve(&problem, &full, NULL) != ATTN_OK)
            continue;
        problem_through_text(&full);
        check_case(list, &full, seed, process);
    }
}

void check_parallel(struct target_list *list, const struct run_options *options)
{
    struct transport *transport = NULL;
    struct attn_collectives process;
    struct attn_error err;

    if (strcmp(options->transport, "local") == 0) {
        check_cases(list, options, NULL);
        return;
    }
    ATTN_INIT(&err);
    ATTN_INIT(&process);
    if (strcmp(options->transport, "mpi") != 0) {
        complain("transport is %.64s; accepted: local, mpi", options->transport);
        exit(EXIT_USAGE);
    }
    if (transport_open_mpi(LIMIT_NS, &transport, &process, &err) != ATTN_OK) {
        complain("%s", err.message);
        exit(EXIT_USAGE);
    }
    check_cases(list, options, &process);
    transport_close(transport);
}
