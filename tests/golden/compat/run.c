/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One forward as the original does it: its limits, then the prefill part and the decode part, each its own
 * run. */
#include "run.h"

static struct attn_view view_of(const struct compat_run *run, uint32_t field)
{
    struct attn_view view;

    ATTN_INIT(&view);
    if (attn_metadata_get(run->metadata, field, 0, &view, NULL) != ATTN_OK)
        view.kind = ATTN_VIEW_NULL;
    return view;
}

static uint32_t number_of(const struct compat_run *run, uint32_t field)
{
    const struct attn_view view = view_of(run, field);

    return view.kind == ATTN_VIEW_NUMBER ? (uint32_t)view.value : 0;
}

static bool has(const struct compat_run *run, uint32_t field)
{
    const struct attn_view view = view_of(run, field);

    return view.kind == ATTN_VIEW_ARRAY || view.kind == ATTN_VIEW_LIST || view.kind == ATTN_VIEW_NUMBER;
}

/* ---------------------------------------------------------------- limits */

/* The original's name of a cache's type. */
static const char *kv_dtype_name(const struct attn_problem *problem)
{
    switch (problem->k_dtype) {
    case ATTN_E4M3:
        return "fp8_e4m3";
    case ATTN_E5M2:
        return "fp8_e5m2";
    default:
        return "auto";
    }
}

static void describe(const struct attn_problem *problem, uint32_t question, struct compat_desc *out)
{
    ATTN_INIT(out);
    out->questions = question;
    out->type = problem->type;
    out->heads = problem->heads;
    out->kv_heads = problem->kv_heads;
    out->head_dim = problem->head_dim;
    out->model_dtype = problem->q_dtype;
    out->kv_dtype = kv_dtype_name(problem);
    out->block = problem->block;
    if (problem->window_left >= 0) {
        out->given |= COMPAT_GIVEN_WINDOW;
        out->window = problem->window_left + 1;
    }
    if (problem->softcap > 0) {
        out->given |= COMPAT_GIVEN_SOFTCAP;
        out->softcap = problem->softcap;
    }
    if (problem->alibi != ATTN_ALIBI_NONE)
        out->given |= COMPAT_GIVEN_ALIBI;
}

int32_t compat_check_layer(struct attn_backend *backend, const struct attn_problem *problem,
                           struct attn_error *err)
{
    struct compat_desc desc;

    describe(problem, COMPAT_LAYER, &desc);
    return compat_check(attn_backend_get_name(backend), &desc, err);
}

static uint32_t parts_of(const struct compat_run *run)
{
    const struct attn_view table = view_of(run, ATTN_FIELD_BLOCK_TABLES);
    const bool prefill = number_of(run, ATTN_FIELD_NUM_PREFILLS) > 0;
    const bool lens = has(run, ATTN_FIELD_ENCODER_SEQ_LENS) && has(run, ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR) &&
                      has(run, ATTN_FIELD_MAX_ENCODER_SEQ_LEN);
    const bool cross = has(run, ATTN_FIELD_CROSS_SLOT_MAPPING) && has(run, ATTN_FIELD_CROSS_BLOCK_TABLES);
    const struct {
        bool given;
        uint32_t part;
    } parts[] = {
        {run->tensors->k_new.buffer.data != NULL, COMPAT_KEY},
        {run->tensors->v_new.buffer.data != NULL, COMPAT_VALUE},
        {run->kv != NULL, COMPAT_HAS_CACHE},
        {prefill && table.kind == ATTN_VIEW_ARRAY && table.shape[1] > 0, COMPAT_HAS_TABLE},
        {prefill, COMPAT_PREFILL},
        {number_of(run, ATTN_FIELD_NUM_DECODE_TOKENS) > 0, COMPAT_DECODE},
        {lens, COMPAT_ENCODER_LENS},
        {cross, COMPAT_CROSS},
        {has(run, ATTN_FIELD_NUM_ENCODER_TOKENS), COMPAT_ENCODER_TOKENS},
    };
    uint32_t all = 0;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        all |= parts[i].given ? parts[i].part : 0;
    return all;
}

static int32_t check_forward(const struct compat_run *run, struct attn_error *err)
{
    struct compat_desc desc;

    describe(run->problem, COMPAT_FORWARD, &desc);
    desc.parts = parts_of(run);
    desc.given |= has(run, ATTN_FIELD_MAX_DECODE_QUERY_LEN) ? COMPAT_GIVEN_DECODE_QUERY : 0;
    desc.max_decode_query = number_of(run, ATTN_FIELD_MAX_DECODE_QUERY_LEN) +
                            number_of(run, ATTN_FIELD_DECODE_QUERY_LEN); /* a flavour has one of the two */
    desc.max_decode_len = number_of(run, ATTN_FIELD_MAX_DECODE_SEQ_LEN);
    desc.seqs = number_of(run, ATTN_FIELD_NUM_DECODE_TOKENS);
    desc.k_scale = run->k_scale;
    desc.v_scale = run->v_scale;
    return compat_check(attn_backend_get_name(run->backend), &desc, err);
}

/* ---------------------------------------------------------------- runs */

static void move(struct attn_buffer *buffer, uint64_t bytes)
{
    if (buffer->data != NULL)
        buffer->byte_offset += bytes;
}

static void skip_tokens(struct attn_tensor *tensor, uint32_t tokens)
{
    move(&tensor->buffer, (uint64_t)(tokens * tensor->token_stride));
}

static int32_t write_all(const struct compat_run *run, struct attn_error *err)
{
    const struct attn_view slots = view_of(run, ATTN_FIELD_SLOT_MAPPING);
    struct attn_kv_write_args args;

    ATTN_INIT(&args);
    args.k_dtype = args.v_dtype = run->problem->q_dtype;
    args.num_tokens = (uint32_t)slots.shape[0];
    args.k_new = run->tensors->k_new;
    args.v_new = run->tensors->v_new;
    args.kv = run->kv;
    args.slot_mapping = slots.device;
    return attn_kv_write(run->backend, &args, NULL, err);
}

/* Decodes follow the prompts in every array; their queries are counted from 0. */
static void cut(const struct compat_run *run, const struct attn_batch *whole, struct compat_parts *parts)
{
    const uint32_t prompts = number_of(run, ATTN_FIELD_NUM_PREFILLS);
    const int32_t *all = view_of(run, ATTN_FIELD_QUERY_START_LOC).host;
    struct attn_batch *prefill = &parts->batch[0], *decode = &parts->batch[1];

    *prefill = *decode = *whole;
    prefill->seqs = prompts;
    prefill->num_tokens = parts->prompt_tokens;
    decode->seqs -= prompts;
    decode->num_tokens -= parts->prompt_tokens;
    for (uint32_t i = 0; i <= decode->seqs; i++)
        parts->starts[i] = all[prompts + i] - all[prompts];
    decode->q_offsets = (struct attn_buffer){parts->starts, 0};
    move(&decode->kv_lens, prompts * sizeof(int32_t));
    move(&decode->table, prompts * (uint64_t)decode->table_stride);
    move(&decode->csr_indptr, prompts * sizeof(int32_t));
    move(&decode->last_page_lens, prompts * sizeof(int32_t));
}

int32_t compat_split(const struct compat_run *run, struct compat_parts *out, struct attn_error *err)
{
    struct attn_state_step step;
    int32_t status = ATTN_OK;

    out->count = 0;
    if (number_of(run, ATTN_FIELD_NUM_PREFILLS) == 0 || number_of(run, ATTN_FIELD_NUM_DECODE_TOKENS) == 0 ||
        run->problem->kv_source != ATTN_KV_CACHE)
        return ATTN_OK;
    ATTN_INIT(&step);
    status = attn_state_get_step(run->state, 0, &step, err);
    if (status == ATTN_E_UNSUPPORTED) /* prompts without blocks have a run of their own already */
        return ATTN_OK;
    if (status == ATTN_OK && (step.batch->seqs >= COMPAT_SEQS))
        return compat_fail(err, ATTN_E_SIZE, 0, "seqs",
                           "the step has %u sequences; fewer than %d are accepted", step.batch->seqs,
                           COMPAT_SEQS);
    if (status != ATTN_OK)
        return status;
    out->count = 2;
    out->plan = step.plan;
    out->scratch = step.scratch;
    out->prompt_tokens = number_of(run, ATTN_FIELD_NUM_PREFILL_TOKENS);
    cut(run, step.batch, out);
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        out->schedule[i] = (struct attn_span){{out->memory[i], 0}, sizeof out->memory[i]};
        status = attn_plan_prepare(out->plan, &out->batch[i], &out->schedule[i], NULL, NULL, err);
    }
    return status;
}

static int32_t run_part(const struct compat_run *run, const struct compat_parts *parts, int part,
                        struct attn_error *err)
{
    struct attn_tensors tensors;

    ATTN_INIT(&tensors);
    tensors.softmax_scale = run->desc->softmax_scale;
    tensors.alibi_slopes = run->desc->alibi_slopes;
    tensors.q = run->tensors->q;
    tensors.out = run->tensors->out;
    tensors.kv = run->kv;
    if (part == 1) {
        skip_tokens(&tensors.q, parts->prompt_tokens);
        skip_tokens(&tensors.out, parts->prompt_tokens);
    }
    return attn_plan_run(parts->plan, &parts->batch[part], &tensors, &parts->schedule[part], parts->scratch,
                         NULL, err);
}

int32_t compat_forward_layer(const struct compat_run *run, const struct compat_parts *parts,
                             struct attn_error *err)
{
    int32_t status = check_forward(run, err);

    if (status != ATTN_OK)
        return status;
    if (parts->count == 0)
        return attn_layer_forward(run->layer, run->state, run->metadata, run->kv, run->tensors, NULL, err);
    status = write_all(run, err);
    for (int i = 0; i < 2 && status == ATTN_OK; i++)
        status = run_part(run, parts, i, err);
    return status;
}
