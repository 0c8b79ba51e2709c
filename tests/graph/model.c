/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The model: one class sees all keys, the other a window. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>

#define MUST(call)                                                                                           \
    do {                                                                                                     \
        struct attn_error err_;                                                                              \
        ATTN_INIT(&err_);                                                                                    \
        struct attn_error *const err = &err_;                                                                \
        if ((call) != ATTN_OK) {                                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, err_.field, err_.message);                \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static bool is_infer(const struct attn_backend *backend)
{
    return strcmp(attn_backend_get_name(backend), "cpu/flashinfer") == 0;
}

void model_describe(struct model *model, struct attn_backend *backend)
{
    memset(model, 0, sizeof *model);
    model->backend = backend;
    for (uint32_t i = 0; i < MODEL_CLASSES; i++) {
        char text[256];
        snprintf(
            text, sizeof text,
            "q=f32 heads=4 kv_heads=2 head_dim=32 block=8 addr=%s window=%d det=1 graph=single max_seqs=%d "
            "max_q=%d max_kv=%d max_rows=%d",
            is_infer(backend) ? "csr" : "table", i == 0 ? -1 : 20, MODEL_SEQS, MODEL_TOKENS, MODEL_LEN,
            MODEL_TOKENS);
        MUST(attn_problem_parse(text, &model->problems[i], err));
        model->classes[i] = (struct attn_layer_class){.problem = &model->problems[i], .group = i};
        /* A graph sees fewer columns than a row has. */
        model->groups[i] = (struct attn_builder_group){
            .block = MODEL_BLOCK, .max_blocks = MODEL_BLOCKS + 3, .graph_blocks = MODEL_BLOCKS};
    }
    ATTN_INIT(&model->params);
    model->params.groups = MODEL_CLASSES;
    model->params.group = model->groups;
    model->params.steps = 2;
}

static void make_cache(struct model *model, uint32_t way, uint32_t i)
{
    const int64_t head = MODEL_DIM * sizeof(float);
    struct attn_kv_desc desc;

    ATTN_INIT(&desc);
    desc.k_dtype = desc.v_dtype = ATTN_F32;
    desc.pages = MODEL_PAGES;
    desc.block = MODEL_BLOCK;
    desc.kv_heads = MODEL_KV_HEADS;
    desc.head_dim = MODEL_DIM;
    desc.k.data = model->memory[way]->cache[i][0];
    desc.v.data = model->memory[way]->cache[i][1];
    desc.k_head_stride = desc.v_head_stride = head;
    desc.k_token_stride = desc.v_token_stride = head * MODEL_KV_HEADS;
    desc.k_page_stride = desc.v_page_stride = head * MODEL_KV_HEADS * MODEL_BLOCK;
    MUST(attn_kv_create(model->backend, &desc, &model->kv[way][i], err));
}

void model_init(struct model *model, struct attn_backend *backend)
{
    struct attn_builder_params params;
    uint32_t state = 1;

    model_describe(model, backend);
    ATTN_INIT(&params);
    params.groups = MODEL_CLASSES;
    params.group = model->groups;
    params.chunked = 1;
    params.max_seqs = MODEL_SEQS;
    params.max_tokens = MODEL_TOKENS;
    params.steps = 2;
    MUST(attn_builder_create(backend, &params, &model->builder, err));
    MUST(attn_state_create(backend, model->classes, MODEL_CLASSES, &model->params, &model->state, err));
    for (uint32_t way = 0; way < 2; way++) {
        model->memory[way] = calloc(1, sizeof *model->memory[way]);
        for (uint32_t i = 0; i < MODEL_CLASSES; i++)
            make_cache(model, way, i);
    }
    float *first = (float *)model->memory[0], *second = (float *)model->memory[1];
    for (size_t i = 0; i < sizeof *model->memory[0] / sizeof(float); i++) {
        state = state * UINT32_C(1664525) + UINT32_C(1013904223);
        first[i] = second[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
}

void model_finish(struct model *model)
{
    attn_state_destroy(model->state);
    attn_builder_destroy(model->builder);
    for (uint32_t way = 0; way < 2; way++) {
        for (uint32_t i = 0; i < MODEL_CLASSES; i++)
            attn_kv_destroy(model->kv[way][i]);
        free(model->memory[way]);
    }
}

static uint32_t next(uint32_t *state)
{
    *state = *state * UINT32_C(1664525) + UINT32_C(1013904223);
    return *state >> 8;
}

/* Every sequence has pages of its own, which are dealt anew in every step. */
static void deal(struct model *model, uint32_t *state)
{
    for (uint32_t i = 0; i < MODEL_CLASSES; i++) {
        int64_t pages[MODEL_PAGES - 1];
        for (uint32_t k = 0; k < MODEL_PAGES - 1; k++) {
            uint32_t other = next(state) % (k + 1);
            pages[k] = pages[other];
            pages[other] = k + 1;
        }
        memcpy(model->blocks[i], pages, sizeof pages);
    }
}

/* New numbers for the tokens of the step, the same for both ways. */
static void draw(struct model *model, uint32_t *state)
{
    struct model_memory *a = model->memory[0], *b = model->memory[1];
    float *const arrays[] = {&a->q[0][0][0][0], &a->k[0][0][0][0], &a->v[0][0][0][0]};
    float *const copies[] = {&b->q[0][0][0][0], &b->k[0][0][0][0], &b->v[0][0][0][0]};
    const size_t counts[] = {sizeof a->q / sizeof(float), sizeof a->k / sizeof(float),
                             sizeof a->v / sizeof(float)};

    for (uint32_t i = 0; i < 3; i++)
        for (size_t k = next(state) % 8; k < counts[i]; k += 8)
            arrays[i][k] = copies[i][k] = (float)next(state) / (1 << 23) - 1;
}

struct attn_metadata *model_step(struct model *model, uint32_t seqs, uint32_t prompts, uint32_t graph,
                                 uint32_t pad, uint32_t seed)
{
    struct attn_metadata *metadata = NULL;
    struct attn_builder_build_args build;
    struct attn_builder_add_args add;
    struct attn_blocks blocks[MODEL_CLASSES];
    uint32_t state = seed * UINT32_C(2654435761) + 17;

    deal(model, &state);
    draw(model, &state);
    MUST(attn_builder_reset(model->builder, err));
    for (uint32_t n = 0; n < seqs; n++) {
        ATTN_INIT(&add);
        add.prompt = n < prompts;
        add.query_len = add.prompt                      ? 1 + next(&state) % 4
                        : n == 0 && model->first_q != 0 ? model->first_q
                                                        : 1;
        add.context_len = next(&state) % (MODEL_LEN - add.query_len);
        memset(blocks, 0, sizeof blocks);
        for (uint32_t i = 0; i < MODEL_CLASSES; i++) {
            blocks[i].kind = ATTN_BLOCKS_LIST;
            blocks[i].blocks = model->blocks[i][n];
            blocks[i].count = (add.context_len + add.query_len + MODEL_BLOCK - 1) / MODEL_BLOCK;
        }
        add.blocks = blocks;
        MUST(attn_builder_add(model->builder, &add, err));
    }
    ATTN_INIT(&build);
    build.graph = graph;
    build.pad = pad;
    MUST(attn_builder_build(model->builder, &build, NULL, &metadata, err));
    return metadata;
}

static struct attn_tensor view(void *data, uint32_t heads)
{
    return (struct attn_tensor){.buffer = {data, 0},
                                .token_stride = (int64_t)(heads * MODEL_DIM * sizeof(float)),
                                .head_stride = MODEL_DIM * sizeof(float)};
}

int32_t model_layers(struct model *model, const struct attn_state *state, uint32_t way,
                     const struct attn_buffer *slots, uint32_t rows, void *stream, struct attn_error *err)
{
    struct model_memory *memory = model->memory[way];
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < MODEL_CLASSES && status == ATTN_OK; i++) {
        struct attn_kv_write_args write;
        struct attn_tensors tensors;
        struct attn_state_step step;
        ATTN_INIT(&write);
        ATTN_INIT(&tensors);
        ATTN_INIT(&step);
        write.k_dtype = write.v_dtype = ATTN_F32;
        write.num_tokens = rows;
        write.k_new = view(memory->k[i], MODEL_KV_HEADS);
        write.v_new = view(memory->v[i], MODEL_KV_HEADS);
        write.kv = model->kv[way][i];
        write.slot_mapping = slots[i];
        tensors.softmax_scale = 0.17f;
        tensors.q = view(memory->q[i], MODEL_HEADS);
        tensors.out = view(memory->out[i], MODEL_HEADS);
        tensors.kv = model->kv[way][i];
        status = attn_kv_write(model->backend, &write, stream, err);
        if (status == ATTN_OK)
            status = attn_state_get_step(state, i, &step, err);
        if (status == ATTN_OK)
            status = attn_plan_run(step.plan, step.batch, &tensors, step.schedule, step.scratch, stream, err);
    }
    return status;
}
