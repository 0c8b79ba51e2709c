/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Encoders and cross-attention on the HIP plugin itself: refused in the original's words by the query with
 * and without a device, by attn_layer_create, and by attn_layer_forward of a layer that the CPU made;
 * encoder_only and decoders are served.
 */
#include <stdio.h>
#include <string.h>

#include "../graph/tap.h"
#include "../graph/world.h"
#include "attn/layer.h"

#define WORDS "ROCm/HIP is not currently supported with encoder/decoder models."
#define HEADS "heads=8 head_dim=64 q=f16 max_seqs=4 max_q=16 max_kv=64 max_rows=16 "

static const char *const refused[] = {"encoder", "encoder_decoder"};

static struct attn_problem problem_of(const char *type)
{
    struct attn_problem problem;
    char text[160];

    snprintf(text, sizeof text, HEADS "type=%s", type);
    must(attn_problem_parse(text, &problem, &err));
    return problem;
}

static bool is_refusal(const struct attn_error *from)
{
    return from->reason == ATTN_REASON_ENC_DEC_ROCM_HIP && strcmp(from->message, WORDS) == 0;
}

static void ask(struct attn_context *context, const struct attn_device *device, const char *type,
                bool accepted, const char *what)
{
    const struct attn_problem problem = problem_of(type);
    struct attn_reason reasons[4];
    struct attn_query query;

    ATTN_INIT(&query);
    memset(reasons, 0, sizeof reasons);
    query.reasons = reasons;
    query.reason_capacity = 4;
    must(attn_context_query(context, "hip/rocm-flash", device, &problem, &query, &err));
    const bool said = query.reason_count == 1 && reasons[0].code == ATTN_REASON_ENC_DEC_ROCM_HIP &&
                      strcmp(reasons[0].text, WORDS) == 0 && strcmp(reasons[0].field, "type") == 0;
    check((query.accepted != 0) == accepted && said == !accepted, what, type);
}

/* ---------------------------------------------------------------- layers */

static struct attn_layer *make_layer(struct attn_backend *backend, const struct attn_problem *problem,
                                     int32_t *out_status)
{
    const struct attn_layer_class layer_class = {.problem = problem};
    struct attn_layer_desc desc;
    struct attn_layer *layer = NULL;

    ATTN_INIT(&desc);
    desc.layer_class = &layer_class;
    desc.softmax_scale = 1;
    *out_status = attn_layer_create(backend, &desc, &layer, &err);
    return layer;
}

/* A prompt of 4 tokens without blocks, begun. */
struct model {
    struct attn_builder *builder;
    struct attn_state *state;
    struct attn_metadata *metadata;
    struct attn_buffer rows;
};

enum { TOKENS = 4, ROW = 8 * 64 * 2 };

static void model_open(struct model *model, struct attn_backend *backend, const struct attn_problem *problem)
{
    const struct attn_builder_group group = {.block = 16, .max_blocks = 4};
    const struct attn_layer_class layer_class = {.problem = problem};
    const struct attn_blocks blocks = {.kind = 0};
    struct attn_builder_params params;
    struct attn_state_params state_params;
    struct attn_builder_add_args add;

    memset(model, 0, sizeof *model);
    ATTN_INIT(&params);
    params.group = &group;
    params.max_seqs = 4;
    params.max_tokens = 16;
    ATTN_INIT(&state_params);
    state_params.group = &group;
    ATTN_INIT(&add);
    add.prompt = 1;
    add.query_len = TOKENS;
    add.blocks = &blocks;
    must(attn_builder_create(backend, &params, &model->builder, &err));
    must(attn_state_create(backend, &layer_class, 1, &state_params, &model->state, &err));
    must(attn_builder_add(model->builder, &add, &err));
    must(attn_builder_build(model->builder, NULL, NULL, &model->metadata, &err));
    must(attn_state_begin_forward(model->state, model->metadata, NULL, &err));
    must(attn_memory_alloc(backend, TOKENS * ROW, &model->rows, &err));
}

static void model_close(struct model *model, struct attn_backend *backend)
{
    attn_memory_free(backend, &model->rows);
    attn_state_destroy(model->state);
    attn_builder_destroy(model->builder);
}

static int32_t forward(const struct model *model, const struct attn_layer *layer)
{
    const struct attn_tensor tensor = {.buffer = model->rows, .token_stride = ROW, .head_stride = ROW / 8};
    struct attn_layer_tensors tensors;

    ATTN_INIT(&tensors);
    tensors.q = tensors.k_new = tensors.v_new = tensors.out = tensor;
    return attn_layer_forward(layer, model->state, model->metadata, NULL, &tensors, NULL, &err);
}

static void test_layers(void)
{
    const struct attn_problem only = problem_of("encoder_only");
    struct attn_context *contexts[2];
    struct attn_backend *hip, *cpu;
    struct model model;
    int32_t status;

    backend_open("hip/rocm-flash", &contexts[0], &hip);
    backend_open("cpu/flash-attn", &contexts[1], &cpu);
    model_open(&model, hip, &only);
    struct attn_layer *own = make_layer(hip, &only, &status);
    check(own != NULL && forward(&model, own) == ATTN_OK, "a layer runs", "encoder_only");
    for (uint32_t i = 0; i < 2; i++) {
        const struct attn_problem problem = problem_of(refused[i]);
        struct attn_layer *layer = make_layer(hip, &problem, &status);
        check(layer == NULL && status == ATTN_E_UNSUPPORTED && is_refusal(&err),
              "create refuses in these words", refused[i]);
        layer = make_layer(cpu, &problem, &status);
        check(layer != NULL && forward(&model, layer) == ATTN_E_UNSUPPORTED && is_refusal(&err),
              "forward refuses the CPU's layer in these words", refused[i]);
        attn_layer_destroy(layer);
    }
    must(attn_stream_synchronize(hip, NULL, &err));
    attn_layer_destroy(own);
    model_close(&model, hip);
    attn_backend_destroy(hip);
    attn_backend_destroy(cpu);
    attn_context_destroy(contexts[0]);
    attn_context_destroy(contexts[1]);
}

int main(void)
{
    const struct attn_device device = {.type = ATTN_DEVICE_ROCM};
    struct attn_context *context = NULL;

    ATTN_INIT(&err);
    must(attn_context_create(NULL, &context, &err));
    for (uint32_t i = 0; i < 2; i++) {
        ask(context, NULL, refused[i], false, "refused without a device");
        ask(context, &device, refused[i], false, "refused on a device");
    }
    ask(context, &device, "encoder_only", true, "served on a device");
    ask(context, &device, "decoder", true, "served on a device");
    attn_context_destroy(context);
    test_layers();
    return finish_checks();
}
