/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The layer API from model to answer: a prompt of 20 tokens beside one of 3, then five tokens more of each.
 */
#include <stdio.h>
#include <stdlib.h>

#include <attn/device.h>
#include <attn/layer.h>

enum { LAYERS = 2, HEADS = 8, KV_HEADS = 2, DIM = 64, BLOCK = 16, PAGES = 8, STEPS = 6 };

static struct attn_error err;

static void check(int32_t status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "layers: %s\n", err.message); /* the field, its value, and what is accepted */
    exit(1);
}

/* Keys and queries of a pattern, values of 1: attention over them is 1, whatever it attends to. */
static struct attn_tensor make_tensor(struct attn_backend *backend, int64_t heads, float step)
{
    static float host[32 * HEADS * DIM];
    struct attn_tensor tensor = {.token_stride = heads * DIM * 4, .head_stride = DIM * 4};
    const struct attn_buffer from = {host, 0};

    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        host[i] = step > 0 ? step * (float)(i % 13) - 1 : 1.0F;
    check(attn_memory_alloc(backend, sizeof host, &tensor.buffer, &err));
    check(attn_memory_copy(backend, &tensor.buffer, &from, sizeof host, ATTN_COPY_TO_DEVICE, NULL, &err));
    check(attn_stream_synchronize(backend, NULL, &err));
    return tensor;
}

/* The cache of one layer. */
static struct attn_kv *make_cache(struct attn_backend *backend, const struct attn_problem *problem,
                                  struct attn_buffer *memory)
{
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;
    struct attn_kv *kv;

    ATTN_INIT(&shape);
    check(attn_kv_get_shape(backend, problem, PAGES, &shape, &err));
    check(attn_memory_alloc(backend, shape.bytes, memory, &err));
    attn_kv_desc_init(&desc, &shape, memory);
    check(attn_kv_create(backend, &desc, &kv, &err));
    return kv;
}

static int differs(float value, float wanted)
{
    return !(value - wanted < 1e-4F && wanted - value < 1e-4F);
}

int main(void)
{
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_backend *backend;
    struct attn_problem problem;
    struct attn_builder *builder;
    struct attn_state *state;
    struct attn_layer *layer;
    struct attn_metadata *metadata;
    struct attn_kv *kv[LAYERS];
    struct attn_buffer memory[LAYERS];

    ATTN_INIT(&err);
    check(attn_context_create(NULL, &context, &err));
    /* begin */
    /* Once: the model's layers are of one class; the backend that wins serves it. */
    check(attn_problem_parse("heads=8 kv_heads=2 head_dim=64 q=f32 kv=f16 block=16 "
                             "max_seqs=4 max_q=32 max_kv=128 max_rows=32",
                             &problem, &err));
    check(attn_select(context, &problem, 1, NULL, &decision, &err));
    check(attn_backend_open(context, decision, NULL, &backend, &err));

    const struct attn_builder_group group = {.block = BLOCK, .max_blocks = PAGES};
    const struct attn_layer_class layer_class = {.problem = &problem};
    struct attn_builder_params sizes = {
        .struct_size = sizeof sizes, .chunked = 1, .group = &group, .max_seqs = 4, .max_tokens = 32};
    struct attn_state_params params = {.struct_size = sizeof params, .group = &group};
    struct attn_layer_desc desc = {
        .struct_size = sizeof desc, .layer_class = &layer_class, .softmax_scale = 0.125F};
    check(attn_builder_create(backend, &sizes, &builder, &err));               /* a step's metadata */
    check(attn_state_create(backend, &layer_class, 1, &params, &state, &err)); /* plans, schedules, scratch */
    check(attn_layer_create(backend, &desc, &layer, &err));
    for (int l = 0; l < LAYERS; l++)
        kv[l] = make_cache(backend, &problem, &memory[l]);
    struct attn_layer_tensors t = {.struct_size = sizeof t};
    t.q = make_tensor(backend, HEADS, 0.3F);
    t.k_new = make_tensor(backend, KV_HEADS, 0.7F);
    t.v_new = make_tensor(backend, KV_HEADS, 0);
    t.out = make_tensor(backend, HEADS, 0.1F);

    /* Each step: which sequences, which of their tokens are new, and in which blocks they are. */
    const int64_t blocks[2][2] = {{5, 2}, {3, 7}};
    const uint32_t prompt[2] = {20, 3};
    for (uint32_t step = 0; step < STEPS; step++) {
        check(attn_builder_reset(builder, &err));
        for (uint32_t s = 0; s < 2; s++) {
            const struct attn_blocks list = {
                .kind = ATTN_BLOCKS_LIST, .count = 2, .blocks = blocks[s], .unchanged = step > 0 ? 2U : 0U};
            struct attn_builder_add_args add = {.struct_size = sizeof add, .blocks = &list};
            add.prompt = step == 0;
            add.context_len = step > 0 ? prompt[s] + step - 1 : 0;
            add.query_len = step > 0 ? 1 : prompt[s];
            check(attn_builder_add(builder, &add, &err));
        }
        check(attn_builder_build(builder, NULL, NULL, &metadata, &err));
        check(attn_state_begin_forward(state, metadata, NULL, &err));
        for (int l = 0; l < LAYERS; l++) /* between them, an engine computes the rest of the model */
            check(attn_layer_forward(layer, state, metadata, kv[l], &t, NULL, &err));
    }
    /* end */

    float out[2 * HEADS * DIM];
    int wrong = 0;
    const struct attn_buffer to = {out, 0};
    check(attn_memory_copy(backend, &to, &t.out.buffer, sizeof out, ATTN_COPY_TO_HOST, NULL, &err));
    check(attn_stream_synchronize(backend, NULL, &err));
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        wrong += differs(out[i], 1);
    printf("%s: %d layers, %d steps, 2 sequences; %d numbers wrong\n", attn_backend_get_name(backend), LAYERS,
           STEPS, wrong);

    const struct attn_buffer *const tensors[] = {&t.q.buffer, &t.k_new.buffer, &t.v_new.buffer,
                                                 &t.out.buffer};
    for (int i = 0; i < 4; i++)
        attn_memory_free(backend, tensors[i]);
    for (int l = 0; l < LAYERS; l++) {
        attn_kv_destroy(kv[l]);
        attn_memory_free(backend, &memory[l]);
    }
    attn_layer_destroy(layer);
    attn_state_destroy(state);
    attn_builder_destroy(builder);
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
    attn_context_destroy(context);
    return wrong != 0;
}
