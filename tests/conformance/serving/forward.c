/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One step through builder, state and attn_layer_forward, each layer judged. */
#include <stdio.h>

#include "model.h"

uint64_t (*model_allocations)(void);

/* ---------------------------------------------------------------- builder and state */

/* Leading blocks that are the same as at the last add of a builder's row; keeps these as the last. */
static uint32_t unchanged_blocks(struct model *model, uint32_t group, uint32_t row,
                                 const struct sequence_state *sequence)
{
    int64_t *last = model->last_rows[group][row];
    const uint32_t count = sequence->counts[group], before = model->last_counts[group][row];
    uint32_t same = 0;

    while (same < count && same < before && last[same] == sequence->blocks[group][same])
        same++;
    memcpy(last, sequence->blocks[group], sizeof sequence->blocks[group]);
    model->last_counts[group][row] = count;
    return same;
}

static int32_t add_entry(struct model *model, const struct step_def *step, uint32_t n, struct attn_error *err)
{
    const struct entry *entry = &step->entries[n];
    const struct sequence_state *sequence = entry->sequence;
    const bool none = step->profile || step->null_table;
    struct attn_blocks blocks[GROUPS + 1] = {{.kind = 0}};
    struct attn_builder_add_args add;

    ATTN_INIT(&add);
    add.prompt = entry->prompt;
    add.prefix_hit = entry->hit > 0;
    add.context_len = sequence->len;
    add.query_len = entry->q_len;
    if (step->row != UINT32_MAX) {
        add.given = ATTN_GIVEN_ROW;
        add.row = step->row + n;
    }
    for (uint32_t g = 0; g <= GROUPS; g++) {
        blocks[g].kind = step->profile ? 0 : step->null_table ? ATTN_BLOCKS_NULL : ATTN_BLOCKS_LIST;
        if (none)
            continue;
        blocks[g].blocks = sequence->blocks[g];
        blocks[g].count = sequence->counts[g];
        if (g < GROUPS) {
            const uint32_t same =
                unchanged_blocks(model, g, (step->row != UINT32_MAX ? step->row : 0) + n, sequence);
            blocks[g].unchanged = step->row != UINT32_MAX ? same : 0;
        }
        blocks[g].computed = g < GROUPS ? entry->hit : 0;
        if (g < GROUPS && entry->trimmed > 0 && entry->trimmed < sequence->counts[g]) {
            blocks[g].window_blocks = entry->trimmed;
            blocks[g].seq_len = sequence->len + entry->q_len - (sequence->counts[g] - entry->trimmed) * BLOCK;
        }
    }
    add.blocks = blocks;
    if (model->def->cross == 1) {
        add.encoder_len = sequence->encoder_len;
        add.cross = step->profile ? NULL : &blocks[CROSS];
    }
    return attn_builder_add(model->builder, &add, err);
}

/* An array of a step that is on the device already. */
static struct attn_buffer give(struct model *model, const char *name, const void *from, size_t size)
{
    struct guarded *array = arena_add(&model->given, name, size, 8, 0);

    memcpy(array->data, from, size);
    return (struct attn_buffer){array->data, 0};
}

/* The arrays of one cache group. Padding has one token, in a block that is none. */
static void make_batch(struct model *model, const struct step_def *step, uint32_t g, struct attn_batch *batch)
{
    const uint32_t seqs = step->count + step->pad;
    int32_t starts[ENTRIES + 1] = {0}, lens[ENTRIES], table[ENTRIES][MOST_BLOCKS];

    ATTN_INIT(batch);
    memset(table, 0, sizeof table);
    for (uint32_t n = 0; n < seqs; n++) {
        const struct entry *entry = &step->entries[n];
        const bool padding = n >= step->count;
        const uint32_t q_len = padding ? 1 : entry->q_len;
        const uint32_t len = padding ? 1 : entry->sequence->len + q_len;
        starts[n + 1] = starts[n] + (int32_t)q_len;
        lens[n] = (int32_t)len;
        if (padding)
            memset(table[n], 0xff, sizeof table[n]);
        for (uint32_t i = 0; !padding && i < entry->sequence->counts[g]; i++)
            table[n][i] = (int32_t)entry->sequence->blocks[g][i];
        batch->max_q = q_len > batch->max_q ? q_len : batch->max_q;
        batch->max_kv = len > batch->max_kv ? len : batch->max_kv;
    }
    batch->seqs = seqs;
    batch->num_tokens = (uint32_t)starts[seqs];
    batch->q_offsets = give(model, "q_offsets", starts, (seqs + 1) * sizeof *starts);
    batch->kv_lens = give(model, "kv_lens", lens, seqs * sizeof *lens);
    batch->table = give(model, "table", table, seqs * sizeof *table);
    batch->table_width = MOST_BLOCKS;
    batch->table_stride = sizeof *table;
}

static int32_t set_device(struct model *model, const struct step_def *step, struct attn_error *err)
{
    struct attn_batch batches[GROUPS];
    const struct attn_batch *pointers[GROUPS];
    struct attn_builder_device_args args;

    ATTN_INIT(&args);
    arena_finish(&model->given);
    arena_init(&model->given, false);
    for (uint32_t g = 0; g < GROUPS; g++) {
        make_batch(model, step, g, &batches[g]);
        pointers[g] = &batches[g];
    }
    for (uint32_t n = 0; n < step->count; n++) {
        const struct entry *entry = &step->entries[n];
        const uint32_t len = entry->sequence->len + entry->q_len;
        args.prefills += entry->prompt;
        args.prompt_tokens += entry->prompt == 1 ? entry->q_len : 0;
        if (entry->prompt == 1 && len > args.max_prefill_seq_len)
            args.max_prefill_seq_len = len;
        if (entry->prompt == 0 && entry->q_len > args.max_decode_query_len)
            args.max_decode_query_len = entry->q_len;
    }
    args.batches = pointers;
    args.positions.data = model->positions->data;
    return attn_builder_set_device(model->builder, &args, err);
}

static int32_t advance(struct model *model, const struct step_def *step, struct attn_error *err)
{
    struct attn_advance_args args;

    ATTN_INIT(&args);
    args.queries = step->count;
    args.seqs = step->count + step->pad;
    args.sampled.data = args.tokens.data = model->tokens->data;
    args.positions.data = model->positions->data;
    return attn_metadata_advance_step(model->metadata, &args, NULL, err);
}

int32_t model_build(struct model *model, const struct step_def *step, struct attn_error *err)
{
    struct attn_builder_build_args build;

    model->at = "attn_metadata_advance_step";
    if (step->way == STEP_ADVANCED)
        return advance(model, step, err);
    model->at = "attn_builder_reset";
    int32_t status = attn_builder_reset(model->builder, err);
    if (status == ATTN_OK && step->way == STEP_DEVICE) {
        model->at = "attn_builder_set_device";
        status = set_device(model, step, err);
    }
    for (uint32_t n = 0; n < step->count && status == ATTN_OK && step->way == STEP_BUILT; n++) {
        model->at = "attn_builder_add";
        status = add_entry(model, step, n, err);
    }
    if (status != ATTN_OK)
        return status;
    ATTN_INIT(&build);
    build.graph = step->graph;
    build.pad = step->way == STEP_DEVICE ? 0 : step->pad; /* the arrays have it */
    build.host_only = step->host_only;
    model->at = "attn_builder_build";
    return attn_builder_build(model->builder, &build, NULL, &model->metadata, err);
}

int32_t model_begin(struct model *model, const struct step_def *step, struct attn_error *err)
{
    int32_t status = model_build(model, step, err);

    if (status == ATTN_OK && step->graph) {
        model->at = "attn_state_prepare";
        status = attn_state_prepare(model->state, model->metadata, NULL, err);
    }
    if (status != ATTN_OK)
        return status;
    model->at = "attn_state_begin_forward";
    return attn_state_begin_forward(model->state, model->metadata, NULL, err);
}

/* ---------------------------------------------------------------- tensors */

/* Query tokens of an entry, and its new keys. */
static uint32_t query_count(const struct model *model, uint32_t c, const struct entry *entry)
{
    if (model->problems[c].type == ATTN_ENCODER)
        return entry->prompt == 1 ? entry->sequence->encoder_len : 0;
    return entry->q_len;
}

static uint32_t key_count(const struct model *model, uint32_t c, const struct entry *entry)
{
    if (is_cross(model, c))
        return entry->prompt == 1 ? entry->sequence->encoder_len : 0;
    return query_count(model, c, entry);
}

/* Where the new keys of an entry begin among all of its sequence. */
static uint32_t first_key(const struct model *model, uint32_t c, const struct entry *entry)
{
    const uint32_t type = model->problems[c].type;

    return type == ATTN_ENCODER || type == ATTN_ENCODER_DECODER ? 0 : entry->sequence->len;
}

uint32_t rows_before(const struct model *model, uint32_t c, const struct step_def *step, uint32_t n)
{
    uint32_t rows = 0;

    for (uint32_t i = 0; i < n; i++)
        rows += query_count(model, c, &step->entries[i]);
    return rows;
}

static struct pair make_pair(struct call *call, struct model *model, struct attn_tensor *whole,
                             struct attn_tensor *rest, const uint32_t shape[3], uint32_t dtype, uint32_t cut,
                             const char *name)
{
    const struct layout layout = {.alignment = 1, .stride_multiple = 1};
    struct pair pair = {whole, rest, cut, shape[2], oracle_size(dtype)};
    const bool apart = cut < shape[2] && rng_chance(&model->rng, 50);
    const uint32_t left[3] = {shape[0], shape[1], apart ? cut : shape[2]};
    const uint32_t right[3] = {shape[0], shape[1], shape[2] - cut};

    pair.cut = left[2];
    tensor_init(whole, &call->arena, name, left, pair.element, &layout, &model->rng, 0xff);
    if (apart)
        tensor_init(rest, &call->arena, name, right, pair.element, &layout, &model->rng, 0xff);
    return pair;
}

static void put_pair(const struct pair *pair, uint32_t row, uint32_t head, const unsigned char *vector)
{
    memcpy(tensor_at(pair->whole, row, head), vector, (size_t)pair->cut * pair->element);
    if (pair->cut < pair->columns)
        memcpy(tensor_at(pair->rest, row, head), vector + (size_t)pair->cut * pair->element,
               (size_t)(pair->columns - pair->cut) * pair->element);
}

static void make_queries(struct call *call, struct model *model, uint32_t c, const struct step_def *step)
{
    const struct attn_problem *problem = &model->problems[c];
    const uint32_t rows = rows_before(model, c, step, step->count);
    const uint32_t shape[3] = {rows + step->pad + rng_below(&model->rng, 3), problem->heads,
                               problem->head_dim};

    call->q = make_pair(call, model, &call->tensors.q, &call->tensors.q_rope, shape, problem->q_dtype,
                        problem->mla != 0 ? problem->head_dim_vo : problem->head_dim, "q");
}

static void fill_queries(const struct call *call, const struct model *model, uint32_t c,
                         const struct step_def *step)
{
    const struct attn_problem *problem = &model->problems[c];
    unsigned char vector[1024];
    uint32_t row = 0;

    for (uint32_t n = 0; n < step->count; n++) {
        const struct entry *entry = &step->entries[n];
        for (uint32_t i = 0; i < query_count(model, c, entry); i++, row++) {
            for (uint32_t head = 0; head < problem->heads; head++) {
                const uint64_t key = mix(mix(model->seed + 1, entry->sequence->id << 8 | c),
                                         (uint64_t)(entry->sequence->len + i) << 16 | head);
                fill_vector(problem->q_dtype, vector, problem->head_dim, key, 1, false);
                put_pair(&call->q, row, head, vector);
            }
        }
    }
}

static bool given_cache(const struct model *model, uint32_t c, const struct step_def *step)
{
    return model->caches[c].made && !step->profile && !step->no_kv;
}

/* Whether prompts read the cache. */
static bool prompts_cached(const struct model *model, uint32_t c, const struct step_def *step)
{
    bool hit = false;

    if (!given_cache(model, c, step) || model->problems[c].kv_source == ATTN_KV_NEW || is_cross(model, c) ||
        step->null_table)
        return false;
    for (uint32_t n = 0; n < step->count; n++)
        hit = hit || step->entries[n].hit > 0;
    return model->flavour == ATTN_FLASHINFER || model->def->chunked == 1 || hit;
}

/* Whether some sequence of the step reads keys from k_new. */
static bool reads_new(const struct model *model, uint32_t c, const struct step_def *step)
{
    return model->problems[c].kv_source != ATTN_KV_CACHE || !given_cache(model, c, step) ||
           (step->entries[0].prompt == 1 && !prompts_cached(model, c, step));
}

static void make_keys(struct call *call, struct model *model, uint32_t c, const struct step_def *step)
{
    const struct attn_problem *problem = &model->problems[c];
    const struct layout layout = {.alignment = 1, .stride_multiple = 1};
    const uint32_t dtype = new_dtype(model, c);
    uint32_t rows = 0;

    for (uint32_t n = 0; n < step->count; n++)
        rows += key_count(model, c, &step->entries[n]);
    if (step->no_new || rows == 0)
        return;
    rows += is_cross(model, c) ? 0 : step->pad;
    const uint32_t k_shape[3] = {rows, problem->kv_heads, problem->head_dim};
    const uint32_t v_shape[3] = {rows, problem->kv_heads, problem->head_dim_vo};
    const bool mla = problem->mla != 0;
    call->k =
        make_pair(call, model, &call->tensors.k_new, &call->tensors.k_rope, k_shape, dtype,
                  mla && !reads_new(model, c, step) ? problem->head_dim_vo : problem->head_dim, "k_new");
    if (!mla)
        tensor_init(&call->tensors.v_new, &call->arena, "v_new", v_shape, oracle_size(dtype), &layout,
                    &model->rng, 0xff);
    if (oracle_is_8bit(dtype)) {
        call->tensors.k_new_scale = model->caches[c].desc.k_scale;
        call->tensors.v_new_scale = model->caches[c].desc.v_scale;
    }
}

static void fill_keys(const struct call *call, const struct model *model, uint32_t c,
                      const struct step_def *step)
{
    const struct attn_problem *problem = &model->problems[c];
    const size_t v_size = (size_t)problem->head_dim_vo * oracle_size(new_dtype(model, c));
    uint32_t row = 0;
    unsigned char vector[1024];

    for (uint32_t n = 0; n < step->count && call->k.whole != NULL; n++) {
        const struct entry *entry = &step->entries[n];
        const uint32_t first = first_key(model, c, entry);
        for (uint32_t i = 0; i < key_count(model, c, entry); i++, row++) {
            for (uint32_t head = 0; head < problem->kv_heads; head++) {
                new_vector(model, c, entry->sequence, first + i, head, false, vector);
                put_pair(&call->k, row, head, vector);
                if (problem->mla != 0)
                    continue;
                new_vector(model, c, entry->sequence, first + i, head, true, vector);
                memcpy(tensor_at(&call->tensors.v_new, row, head), vector, v_size);
            }
        }
    }
}

void call_fill(const struct call *call, const struct model *model, uint32_t c, const struct step_def *step)
{
    fill_queries(call, model, c, step);
    fill_keys(call, model, c, step);
}

/* One bit for each key of a sequence, in rows of a fixed size; every third sequence has no mask. */
static void make_mask(struct call *call, struct model *model, uint32_t c, const struct step_def *step)
{
    enum { ROW = MOST_LEN / 8 + 1 };
    const uint32_t rows = rows_before(model, c, step, step->count);

    if (model->problems[c].mask == ATTN_MASK_NONE)
        return;
    struct guarded *bits = arena_add(&call->arena, "mask", (size_t)rows * ROW, 8, 0);
    for (uint32_t i = 0; i < rows * ROW; i++)
        bits->data[i] = (uint8_t)(rng_next(&model->rng) | rng_next(&model->rng));
    struct guarded *starts = arena_add(&call->arena, "mask_starts", ENTRIES * sizeof *call->starts, 8, 0);
    call->starts = (int64_t *)(void *)starts->data;
    for (uint32_t n = 0; n < step->count; n++)
        call->starts[n] =
            step->entries[n].sequence->id % 3 == 0 ? -1 : (int64_t)rows_before(model, c, step, n) * ROW;
    call->tensors.mask.data = bits->data;
    call->tensors.mask_starts.data = call->starts;
    call->tensors.mask_row_stride = ROW;
}

void call_init(struct call *call, struct model *model, uint32_t c, const struct step_def *step)
{
    const struct attn_problem *problem = &model->problems[c];
    const struct layout layout = {.alignment = 1, .stride_multiple = 1};
    const uint32_t rows = rows_before(model, c, step, step->count) + step->pad + rng_below(&model->rng, 2);
    const uint32_t shape[3] = {rows, problem->heads, problem->head_dim_vo};
    const uint32_t lse_shape[3] = {rows, problem->heads, 1};

    memset(call, 0, sizeof *call);
    ATTN_INIT(&call->tensors);
    arena_init(&call->arena, rng_chance(&model->rng, 50));
    make_queries(call, model, c, step);
    make_keys(call, model, c, step);
    call_fill(call, model, c, step);
    make_mask(call, model, c, step);
    call->out = tensor_init(&call->tensors.out, &call->arena, "out", shape, oracle_size(problem->out_dtype),
                            &layout, &model->rng, 0);
    pattern_fill(call->out);
    if (problem->lse == 0)
        return;
    call->lse = tensor_init(&call->tensors.lse, &call->arena, "lse", lse_shape, 4, &layout, &model->rng, 0);
    pattern_fill(call->lse);
}

void call_finish(struct call *call)
{
    arena_finish(&call->arena);
}

/* ---------------------------------------------------------------- what is expected */

/* Tokens whose slots the builder drops: those of a prompt before its window. */
static uint32_t first_written(const struct model *model, uint32_t c, const struct entry *entry)
{
    const uint32_t window = is_cross(model, c) ? 0 : model->def->windows[class_group(model, c)];
    const uint32_t first = first_key(model, c, entry);

    if (window == 0 || entry->prompt == 0 || entry->q_len <= window)
        return first;
    return entry->q_len - window > first ? entry->q_len - window : first;
}

static void expect_writes(struct model *model, uint32_t c, const struct step_def *step)
{
    if (!given_cache(model, c, step) || step->no_new || step->null_table)
        return;
    for (uint32_t n = 0; n < step->count; n++) {
        const struct entry *entry = &step->entries[n];
        const uint32_t first = first_key(model, c, entry);
        shadow_write(model, c, entry->sequence, first_written(model, c, entry),
                     first + key_count(model, c, entry));
    }
}

static bool judge_layer(struct model *model, uint32_t c, const struct step_def *step, const struct call *call)
{
    const bool cached = given_cache(model, c, step) && model->problems[c].kv_source != ATTN_KV_NEW;
    uint32_t prompts = 0;

    while (prompts < step->count && step->entries[prompts].prompt == 1)
        prompts++;
    if (!compare(model, c, step, call, 0, prompts, prompts_cached(model, c, step)))
        return false;
    if (model->problems[c].type != ATTN_ENCODER &&
        !compare(model, c, step, call, prompts, step->count, cached))
        return false;
    return compare_outside(model, c, step, call) && shadow_check(model, c);
}

struct attn_kv *call_cache_of(const struct model *model, uint32_t c, const struct step_def *step)
{
    return given_cache(model, c, step) ? model->caches[c].kv : NULL;
}

bool call_judge(struct model *model, uint32_t c, const struct step_def *step, const struct call *call)
{
    const char *where = "";

    expect_writes(model, c, step);
    if (!judge_layer(model, c, step, call))
        return false;
    if (arena_check(&call->arena, &where) && arena_check(&model->arena, &where))
        return true;
    snprintf(model->why, sizeof model->why, "class %u: wrote outside of %s", c, where);
    return false;
}

static bool run_layer(struct model *model, uint32_t c, const struct step_def *step)
{
    struct call call;
    struct attn_error err;
    static bool warm; /* the plugin's threads start with its first run */

    ATTN_INIT(&err);
    model->class_at = c;
    call_init(&call, model, c, step);
    const uint64_t before = model_allocations != NULL ? model_allocations() : 0;
    const int32_t status = attn_layer_forward(model->layers[c], model->state, model->metadata,
                                              call_cache_of(model, c, step), &call.tensors, NULL, &err);
    bool good = status == ATTN_OK;
    if (!good)
        model_fail(model, "attn_layer_forward", &err);
    if (good && warm && model_allocations != NULL && model_allocations() != before) {
        snprintf(model->why, sizeof model->why, "class %u: the forward allocates", c);
        good = false;
    }
    warm = true;
    good = good && call_judge(model, c, step, &call);
    call_finish(&call);
    return good;
}

/* Positions, which a step without a builder works out. */
static bool judge_positions(struct model *model, const struct step_def *step)
{
    const int64_t *position = (const int64_t *)(const void *)model->positions->data;

    for (uint32_t n = 0; n < step->count; n++) {
        for (uint32_t i = 0; i < step->entries[n].q_len; i++, position++) {
            const uint32_t wanted = step->entries[n].sequence->len + i;
            if (*position == wanted)
                continue;
            snprintf(model->why, sizeof model->why, "%s: token %u of sequence %u has position %lld, to be %u",
                     model->at, i, n, (long long)*position, wanted);
            return false;
        }
    }
    return true;
}

bool model_step(struct model *model, const struct step_def *step)
{
    struct attn_error err;

    ATTN_INIT(&err);
    for (uint32_t n = 0; n < step->count; n++)
        sequence_grow(model, step->entries[n].sequence,
                      step->entries[n].sequence->len + step->entries[n].q_len);
    if (model_begin(model, step, &err) != ATTN_OK)
        return model_fail(model, model->at, &err);
    if (step->way != STEP_BUILT && !judge_positions(model, step))
        return false;
    for (uint32_t c = 0; c < model->count; c++) {
        if (rows_before(model, c, step, step->count) == 0)
            continue; /* an encoder in a step of decodes */
        if (!run_layer(model, c, step))
            return false;
    }
    for (uint32_t n = 0; n < step->count; n++)
        step->entries[n].sequence->len += step->entries[n].q_len;
    return true;
}
