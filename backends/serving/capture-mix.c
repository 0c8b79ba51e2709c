/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Graphs of any mix of prompts and decodes: which are captured, and which steps they take. */
#include "fail.h"
#include "state-copy.h"

/* ---------------------------------------------------------------- sizes */

uint32_t attn__mix_max_q(const struct attn__state_core *core, uint32_t num_tokens)
{
    uint32_t max_q = num_tokens;

    for (uint32_t i = 0; i < core->count; i++)
        max_q = core->problems[i].max_q < max_q ? core->problems[i].max_q : max_q;
    return max_q;
}

static int32_t check_class(const struct attn__state_core *core, uint32_t i,
                           const struct attn_state_capture_args *args, struct attn_error *err)
{
    const struct attn_problem *problem = &core->problems[i];

    if (problem->type == ATTN_ENCODER || problem->type == ATTN_ENCODER_DECODER)
        return attn__fail(err, ATTN_E_INVALID, 0, "type",
                          "classes[%u] reads an encoder's tokens, which a graph of any mix has none of; "
                          "decoders are accepted",
                          i);
    if (problem->graph != ATTN_GRAPH_ALWAYS)
        return attn__fail(err, ATTN_E_INVALID, ATTN_REASON_GRAPH, "graph",
                          "classes[%u]: graph=always is needed, which a graph of any mix asks of its plan",
                          i);
    const uint64_t queries = (uint64_t)args->batch * problem->max_q;
    const uint64_t most = queries < problem->max_rows ? queries : problem->max_rows;
    return args->num_tokens <= most
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "num_tokens",
                            "num_tokens is %u; classes[%u] has at most %llu of %u sequences: max_q=%u, "
                            "max_rows=%u",
                            args->num_tokens, i, (unsigned long long)most, args->batch, problem->max_q,
                            problem->max_rows);
}

int32_t attn__mix_check_size(const struct attn__state_core *core, const struct attn_state_capture_args *args,
                             struct attn_error *err)
{
    int32_t status = ATTN_OK;

    if (args->tokens > 1)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "tokens",
            "tokens is %u and num_tokens %u; a graph has as many tokens of each sequence, or any "
            "mix of them: one of the two is accepted",
            args->tokens, args->num_tokens);
    if (args->encoder_decoder != 0)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "encoder_decoder",
            "encoder_decoder is %u and num_tokens %u; a graph of any mix has no cross-attention",
            args->encoder_decoder, args->num_tokens);
    if (args->num_tokens > core->params.capture_num_tokens)
        return attn__fail(err, ATTN_E_INVALID, 0, "num_tokens",
                          "num_tokens is %u; 0 to %u, capture_num_tokens of the state, are accepted",
                          args->num_tokens, core->params.capture_num_tokens);
    for (uint32_t i = 0; i < core->count && status == ATTN_OK; i++)
        status = check_class(core, i, args, err);
    return status;
}

/* ---------------------------------------------------------------- steps */

/* One run over the whole step reads all keys of a class from its cache. */
static int32_t check_prompts(const struct attn__state_core *core, const struct attn_step *step, uint32_t i,
                             struct attn_error *err)
{
    if (core->problems[i].kv_source == ATTN_KV_NEW || step->prefills_without_table == 0)
        return attn__step_check_window(core, step, i, err);
    return attn__fail(
        err, ATTN_E_INVALID, 0, "block_tables",
        "%u of %u prompts have no row in block_tables, and a graph of any mix reads the cache of "
        "class %u; all have one from a builder made with chunked = 1",
        step->prefills_without_table, step->prefills, i);
}

int32_t attn__mix_check_step(const struct attn__step_copy *copy, struct attn_error *err)
{
    const struct attn__state_core *core = copy->clone->core;
    const struct attn_step *step = copy->step;
    const int32_t *starts = attn__ints(&step->query_starts);
    const uint32_t most = copy->clone->fields.step.max_q;
    int32_t status = ATTN_OK;

    if (!copy->on_host || starts == NULL)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "query_start_loc",
                          "the step is known to the device alone; a graph of any mix takes one that the host "
                          "knows");
    for (uint32_t i = 0; i < core->count && status == ATTN_OK; i++)
        status = check_prompts(core, step, i, err);
    for (uint32_t i = 0; i < copy->seqs && status == ATTN_OK; i++)
        if (starts[i + 1] < starts[i] || (uint32_t)(starts[i + 1] - starts[i]) > most)
            status = attn__fail(err, ATTN_E_SIZE, 0, "query_start_loc",
                                "sequence %u has %d new tokens; the graph was captured for 0 to %u of each",
                                i, starts[i + 1] - starts[i], most);
    return status;
}

/* Sequences of padding begin where the step's tokens end. */
void attn__mix_copy(const struct attn__step_copy *copy)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const int32_t *from = attn__ints(&copy->step->query_starts);
    int32_t *starts = (int32_t *)(void *)(copy->image + l->mixed_starts.offset);

    for (uint32_t i = 0; i <= copy->clone->batch; i++)
        starts[i] = from[i < copy->seqs ? i : copy->seqs];
}
