/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The stack: memory, layers and captures. */
#include "stack.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn/device.h"
#include "attn/input.h"

/* The class of a layer, whose number is that of its cache group too; the cross group is behind them. */
static uint32_t class_of(uint32_t layer)
{
    return layer % STACK_CLASSES;
}

uint32_t stack_tokens(const struct stack *stack)
{
    const uint32_t tokens = stack->config->tokens;

    return tokens == STACK_MIX ? 0 : tokens != 0 ? tokens : 1;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int32_t describe(struct stack *stack, struct attn_error *err)
{
    static const char *const levels[] = {"always", "single", "uniform"};
    const struct stack_config *config = stack->config;
    char text[320];
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < STACK_CLASSES && status == ATTN_OK; i++) {
        const bool cross = config->cross && i == 1;
        const bool infer = config->flavour == ATTN_FLASHINFER || strstr(config->backend, "infer") != NULL;
        snprintf(
            text, sizeof text,
            "%s%s heads=%d kv_heads=%d head_dim=%d block=%u addr=%s window=%d det=1 graph=%s max_seqs=%d "
            "max_q=%d max_kv=%d max_rows=%d",
            cross ? "type=encoder_decoder " : "", config->types, STACK_HEADS, STACK_KV_HEADS, STACK_DIM,
            crowd_block[cross ? CROWD_GROUPS : i], infer && !cross ? "csr" : "table",
            i == 1 && !cross ? 20 : -1, levels[smaller(stack_tokens(stack), 2)], CROWD_SEQS, CROWD_CHUNK,
            CROWD_LEN, CROWD_ROWS);
        status = attn_problem_parse(text, &stack->problems[i], err);
        stack->classes[i] = (struct attn_layer_class){.problem = &stack->problems[i], .group = cross ? 0 : i};
    }
    return status;
}

static int32_t make_state(struct stack *stack, struct attn_error *err)
{
    struct attn_state_params params;

    ATTN_INIT(&params);
    params.flavour = stack->config->flavour;
    params.group = stack->eager.groups;
    params.groups = CROWD_GROUPS;
    params.steps = 2;
    params.capture_tokens = stack_tokens(stack);
    params.capture_num_tokens = stack_tokens(stack) == 0 ? CROWD_ROWS : 0;
    params.cross = stack->config->cross ? &stack->eager.groups[CROWD_GROUPS] : NULL;
    return attn_state_create(stack->backend, stack->classes, STACK_CLASSES, &params, &stack->state, err);
}

static int32_t make_layer(struct stack *stack, uint32_t i, struct attn_error *err)
{
    struct attn_layer_desc desc;

    ATTN_INIT(&desc);
    desc.class_index = class_of(i);
    desc.layer_class = &stack->classes[class_of(i)];
    desc.softmax_scale = 0.5f + 0.25f * (float)i;
    return attn_layer_create(stack->backend, &desc, &stack->layers[i], err);
}

/* ---------------------------------------------------------------- memory */

static int32_t fill(const struct stack *stack, struct attn_buffer *out, uint64_t bytes, unsigned char *from,
                    struct attn_error *err)
{
    const struct attn_buffer source = {from, 0};
    int32_t status = attn_memory_alloc(stack->backend, bytes, out, err);

    return status == ATTN_OK
               ? attn_memory_copy(stack->backend, out, &source, bytes, ATTN_COPY_TO_DEVICE, NULL, err)
               : status;
}

/* Numbers from -1 to 1 in the type of the elements; of one byte small codes. */
static void random_numbers(struct crowd *random, unsigned char *out, uint64_t bytes, uint32_t element)
{
    for (uint64_t i = 0; i + element <= bytes; i += element) {
        const float number = (float)crowd_random(random, 1u << 24) / (1 << 23) - 1;
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        if (element == 4)
            memcpy(out + i, &bits, 4);
        else if (element == 2)
            memcpy(out + i, (unsigned char *)&bits + 2, 2);
        else
            out[i] = (unsigned char)crowd_random(random, 0x70);
    }
}

static int32_t make_cache(struct stack *stack, uint32_t way, uint32_t i, unsigned char *from,
                          struct attn_error *err)
{
    const uint32_t granularity = stack->config->scales;
    struct stack_way *w = &stack->way[way];
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;

    ATTN_INIT(&shape);
    ATTN_INIT(&desc);
    int32_t status =
        attn_kv_get_shape(stack->backend, &stack->problems[class_of(i)], CROWD_PAGES, &shape, err);
    if (status != ATTN_OK)
        return status;
    struct crowd random = {.random = 77 + i};
    stack->cache_bytes[class_of(i)] = shape.bytes;
    stack->scale_bytes[class_of(i)] = shape.scale_bytes;
    random_numbers(&random, from, shape.bytes, granularity != 0 ? 1 : stack->element);
    status = fill(stack, &w->cache[i], shape.bytes, from, err);
    attn_kv_desc_init(&desc, &shape, &w->cache[i]);
    for (uint32_t part = 0; part < 2 && granularity != 0 && status == ATTN_OK; part++) {
        struct attn_scale *scale = part == 0 ? &desc.k_scale : &desc.v_scale;
        *scale = (struct attn_scale){.kind = ATTN_SCALE_HOST, .granularity = granularity};
        scale->buffer.data = &stack->scale;
        if (granularity != ATTN_SCALES_TOKEN_HEAD)
            continue;
        for (uint64_t k = 0; k < shape.scale_bytes / sizeof(float); k++)
            ((float *)(void *)from)[k] = 0.01f;
        status = fill(stack, &w->scales[i][part], shape.scale_bytes, from, err);
        scale->kind = ATTN_SCALE_DEVICE;
        scale->buffer = w->scales[i][part];
        scale->head_stride = sizeof(float);
        scale->token_stride = STACK_KV_HEADS * (int64_t)sizeof(float);
        scale->outer_stride = scale->token_stride * stack->problems[class_of(i)].block;
    }
    return status == ATTN_OK ? attn_kv_create(stack->backend, &desc, &w->kv[i], err) : status;
}

static int32_t make_way(struct stack *stack, uint32_t way, unsigned char *from, struct attn_error *err)
{
    struct stack_way *w = &stack->way[way];
    int32_t status = fill(stack, &w->inputs, sizeof(struct stack_inputs), memset(from, 0, 1u << 20), err);

    if (status == ATTN_OK)
        status = fill(stack, &w->outputs, sizeof(struct stack_outputs), from, err);
    if (status == ATTN_OK)
        status = fill(stack, &w->spare, sizeof(struct stack_outputs), from, err);
    for (uint32_t i = 0; i < STACK_LAYERS && status == ATTN_OK; i++)
        status = make_cache(stack, way, i, from, err);
    return status;
}

int32_t stack_init(struct stack *stack, struct attn_backend *backend, const struct stack_config *config,
                   struct attn_error *err)
{
    unsigned char *from = malloc(4u << 20); /* more than any block of a stack */

    memset(stack, 0, sizeof *stack);
    stack->backend = backend;
    stack->config = config;
    stack->scale = 0.02f;
    stack->element = config->dtype == ATTN_F32 ? 4 : 2;
    int32_t status = from == NULL ? (int32_t)ATTN_E_MEMORY : describe(stack, err);
    if (status == ATTN_OK)
        status = crowd_builder_init(&stack->eager, backend, config->flavour, config->cross, err);
    if (status == ATTN_OK)
        status = crowd_builder_init(&stack->replay, backend, config->flavour, config->cross, err);
    if (status == ATTN_OK)
        status = make_state(stack, err);
    for (uint32_t i = 0; i < STACK_LAYERS && status == ATTN_OK; i++)
        status = make_layer(stack, i, err);
    for (uint32_t way = 0; way < STACK_WAYS && status == ATTN_OK; way++)
        status = make_way(stack, way, from, err);
    free(from);
    return status == ATTN_OK ? attn_stream_create(backend, &stack->stream, err) : status;
}

void stack_finish(struct stack *stack)
{
    for (uint32_t i = 0; i < stack->size_count; i++) {
        attn_graph_destroy(stack->sizes[i].graph);
        attn_state_destroy(stack->sizes[i].clone);
    }
    for (uint32_t way = 0; way < STACK_WAYS; way++) {
        struct stack_way *w = &stack->way[way];
        for (uint32_t i = 0; i < STACK_LAYERS; i++) {
            attn_kv_destroy(w->kv[i]);
            attn_memory_free(stack->backend, &w->cache[i]);
            attn_memory_free(stack->backend, &w->scales[i][0]);
            attn_memory_free(stack->backend, &w->scales[i][1]);
        }
        attn_memory_free(stack->backend, &w->inputs);
        attn_memory_free(stack->backend, &w->outputs);
        attn_memory_free(stack->backend, &w->spare);
    }
    for (uint32_t i = 0; i < STACK_LAYERS; i++)
        attn_layer_destroy(stack->layers[i]);
    attn_state_destroy(stack->state);
    attn_builder_destroy(stack->eager.builder);
    attn_builder_destroy(stack->replay.builder);
    attn_stream_destroy(stack->backend, stack->stream);
}

/* ---------------------------------------------------------------- steps */

static struct attn_tensor view(const struct stack *stack, const struct attn_buffer *base, uint64_t offset,
                               uint32_t heads)
{
    struct attn_tensor tensor = {.buffer = *base,
                                 .token_stride = (int64_t)heads * STACK_DIM * stack->element,
                                 .head_stride = (int64_t)STACK_DIM * stack->element};

    tensor.buffer.byte_offset += offset;
    return tensor;
}

static bool has_mask(const struct stack *stack)
{
    return stack->problems[0].mask == ATTN_MASK_BITS;
}

int32_t stack_forward(const struct stack *stack, struct attn_state *state,
                      const struct attn_metadata *metadata, uint32_t way, const struct attn_buffer *outputs,
                      void *stream, struct attn_error *err)
{
    const struct stack_way *w = &stack->way[way];
    const size_t one = sizeof((struct stack_outputs *)NULL)->out[0], new = STACK_NEW * 4;
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < STACK_LAYERS && status == ATTN_OK; i++) {
        struct attn_layer_tensors tensors;
        ATTN_INIT(&tensors);
        tensors.q = i == 0 ? view(stack, &w->inputs, offsetof(struct stack_inputs, q), STACK_HEADS)
                           : view(stack, outputs, (i - 1) * one, STACK_HEADS);
        tensors.out = view(stack, outputs, i * one, STACK_HEADS);
        if (!stack->config->cross || class_of(i) == 0) {
            tensors.k_new =
                view(stack, &w->inputs, offsetof(struct stack_inputs, k) + i * new, STACK_KV_HEADS);
            tensors.v_new =
                view(stack, &w->inputs, offsetof(struct stack_inputs, v) + i * new, STACK_KV_HEADS);
        }
        if (has_mask(stack)) {
            tensors.mask = w->inputs;
            tensors.mask.byte_offset += offsetof(struct stack_inputs, mask);
            tensors.mask_seq_stride = STACK_MASK;
            tensors.mask_row_stride = 1;
        }
        status = attn_layer_forward(stack->layers[i], state, metadata, w->kv[i], &tensors, stream, err);
    }
    return status;
}

static int32_t capture_size(struct stack *stack, struct stack_size *size, bool plan, struct attn_error *err)
{
    const struct attn_buffer *outputs = &stack->way[1].outputs;
    struct attn_state_capture_args args;

    ATTN_INIT(&args);
    args.batch = size->seqs;
    args.tokens = stack_tokens(stack);
    args.num_tokens = size->num_tokens;
    args.encoder_decoder = stack->config->cross;
    int32_t status = attn_state_get_capture_metadata(stack->state, &args, NULL, &size->metadata, err);
    if (status == ATTN_OK)
        status = attn_state_clone(stack->state, size->seqs, &size->clone, err);
    if (status == ATTN_OK)
        status = attn_state_begin_forward(size->clone, size->metadata, NULL, err);
    if (status == ATTN_OK) /* warm-up */
        status = stack_forward(stack, size->clone, size->metadata, 1, outputs, NULL, err);
    if (status == ATTN_OK)
        status = attn_graph_begin(stack->backend, stack->stream, &size->graph, err);
    if (status == ATTN_OK && plan)
        status = attn_state_begin_forward(size->clone, size->metadata, stack->stream, err);
    if (status == ATTN_OK)
        status = stack_forward(stack, size->clone, size->metadata, 1, outputs, stack->stream, err);
    return status == ATTN_OK ? attn_graph_end(size->graph, err) : status;
}

/* A ladder of sequences; with STACK_MIX one of query tokens, of which one size has room for everybody. */
static void choose_sizes(struct stack *stack, uint32_t most)
{
    static const uint32_t tokens[] = {CROWD_CHUNK, 12, 20, 24, CROWD_ROWS, CROWD_ROWS};
    static const uint32_t seqs[] = {1, 2, CROWD_SEQS, 4, 8, CROWD_SEQS};
    uint32_t sizes[STACK_SIZES];
    const bool mix = stack_tokens(stack) == 0;

    stack->size_count = mix ? 6 : attn_graph_sizes(most, sizes, STACK_SIZES);
    for (uint32_t i = 0; i < stack->size_count; i++) {
        stack->sizes[i].seqs = smaller(mix ? seqs[i] : sizes[i], most);
        stack->sizes[i].num_tokens = mix ? smaller(tokens[i], stack->sizes[i].seqs * CROWD_CHUNK) : 0;
    }
}

int32_t stack_capture(struct stack *stack, bool plan, struct attn_error *err)
{
    const uint32_t tokens = stack_tokens(stack);
    const uint32_t most = smaller(CROWD_ROWS / (tokens != 0 ? tokens : 1), CROWD_SEQS);
    int32_t status = attn_state_begin_capture(stack->state, most, NULL, err);

    choose_sizes(stack, most);
    for (uint32_t i = stack->size_count; i-- > 0 && status == ATTN_OK;)
        status = capture_size(stack, &stack->sizes[i], plan, err);
    return status == ATTN_OK ? attn_state_end_capture(stack->state, err) : status;
}

const struct stack_size *stack_find(const struct stack *stack, const struct crowd *crowd)
{
    const uint32_t rows = stack_tokens(stack) == 0 ? crowd_rows(crowd) : 0;
    uint32_t i = 0;

    while (stack->sizes[i].seqs < crowd->seqs || stack->sizes[i].num_tokens < rows)
        i++;
    return &stack->sizes[i];
}

/* ---------------------------------------------------------------- to and fro */

void stack_draw(const struct stack *stack, struct crowd *crowd, struct stack_inputs *out)
{
    random_numbers(crowd, out->q, sizeof out->q, stack->element);
    random_numbers(crowd, out->k[0], sizeof out->k, stack->element);
    random_numbers(crowd, out->v[0], sizeof out->v, stack->element);
    for (uint32_t n = 0; n < CROWD_SEQS && has_mask(stack); n++) {
        int32_t parents[STACK_MASK];
        for (uint32_t i = 0; i < STACK_MASK; i++)
            parents[i] = (int32_t)crowd_random(crowd, i + 1) - 1;
        attn_tree_mask(parents, STACK_MASK, 0, out->mask[n], 1, NULL, NULL);
    }
}

int32_t stack_copy_in(const struct stack *stack, uint32_t way, const struct stack_inputs *inputs,
                      void *stream, struct attn_error *err)
{
    const struct attn_buffer from = {(void *)(uintptr_t)inputs, 0};

    return attn_memory_copy(stack->backend, &stack->way[way].inputs, &from, sizeof *inputs,
                            ATTN_COPY_TO_DEVICE, stream, err);
}

int32_t stack_copy_out(const struct stack *stack, uint32_t way, struct stack_outputs *out, void *stream,
                       struct attn_error *err)
{
    const struct attn_buffer to = {out, 0};

    return attn_memory_copy(stack->backend, &to, &stack->way[way].outputs, sizeof *out, ATTN_COPY_TO_HOST,
                            stream, err);
}

static bool is_same(const struct stack *stack, const struct attn_buffer *a, const struct attn_buffer *b,
                    uint64_t size, char *room)
{
    const struct attn_buffer first = {room, 0}, second = {room, size};

    return attn_memory_copy(stack->backend, &first, a, size, ATTN_COPY_TO_HOST, NULL, NULL) == ATTN_OK &&
           attn_memory_copy(stack->backend, &second, b, size, ATTN_COPY_TO_HOST, NULL, NULL) == ATTN_OK &&
           memcmp(room, room + size, size) == 0;
}

bool stack_same_caches(const struct stack *stack)
{
    const struct stack_way *a = &stack->way[0], *b = &stack->way[1];
    char *room = malloc(8u << 20);
    bool same = room != NULL;

    for (uint32_t i = 0; i < STACK_LAYERS && same; i++) {
        same = is_same(stack, &a->cache[i], &b->cache[i], stack->cache_bytes[class_of(i)], room);
        for (uint32_t part = 0; part < 2 && same && a->scales[i][part].data != NULL; part++)
            same = is_same(stack, &a->scales[i][part], &b->scales[i][part], stack->scale_bytes[class_of(i)],
                           room);
    }
    free(room);
    return same;
}
