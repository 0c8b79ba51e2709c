/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Encoders and cross-attention on hip/rocm-flash, of a mock: refused in the original's words by the query
 * with and without a device, by selection, by attn_layer_create and by attn_layer_forward; encoder_only is
 * served. And a device that is lost in a forward.
 */
#include <stdbool.h>
#include <stdio.h>

#include "attn/layer.h"
#include "world.h"

#define WORDS "ROCm/HIP is not currently supported with encoder/decoder models."
#define HEADS "heads=8 head_dim=64 q=f16 max_seqs=4 max_q=16 max_kv=64 max_rows=16 "

static const char *const refused[] = {"encoder", "encoder_decoder"};
static uint32_t count, failed;

static void check(bool good, const char *what, const char *detail)
{
    printf("%s %u - %s\n", good ? "ok" : "not ok", ++count, what);
    if (!good)
        printf("# %s\n", detail);
    failed += !good;
}

static struct attn_problem problem_of(const char *type)
{
    struct attn_problem problem;
    struct attn_error err;
    char text[160];

    ATTN_INIT(&err);
    snprintf(text, sizeof text, HEADS "type=%s", type);
    if (attn_problem_parse(text, &problem, &err) != ATTN_OK)
        printf("# %s: %s\n", text, err.message);
    return problem;
}

/* ---------------------------------------------------------------- query and selection */

static void ask(struct world *world, const char *backend, const struct attn_device *device, const char *type,
                bool accepted, const char *what)
{
    const struct attn_problem problem = problem_of(type);
    struct attn_reason reasons[2];
    struct attn_query query;

    for (uint32_t capacity = 0; capacity < 3; capacity++) {
        ATTN_INIT(&query);
        memset(reasons, 0, sizeof reasons);
        query.reasons = reasons;
        query.reason_capacity = capacity;
        const int32_t status =
            attn_context_query(world->context, backend, device, &problem, &query, &world->err);
        bool good = status == ATTN_OK && query.accepted == (accepted ? 1 : 0);
        if (!accepted)
            good = good && query.reason_count == 1 &&
                   (capacity == 0 ||
                    (reasons[0].code == ATTN_REASON_ENC_DEC_ROCM_HIP && strcmp(reasons[0].text, WORDS) == 0 &&
                     strcmp(reasons[0].field, "type") == 0));
        check(good, what, status == ATTN_OK ? reasons[0].text : world->err.message);
    }
}

static void test_query(void)
{
    const struct attn_device device = {.type = ATTN_DEVICE_ROCM};
    struct world world;

    world_open(&world, "hip plain", NULL);
    for (uint32_t i = 0; i < 2; i++) {
        ask(&world, "hip/rocm-flash", NULL, refused[i], false, "refused without a device");
        ask(&world, "hip/rocm-flash", &device, refused[i], false, "refused on a device");
        ask(&world, "plain/flash-attn", NULL, refused[i], true, "another vendor is not concerned");
    }
    ask(&world, "hip/rocm-flash", NULL, "encoder_only", true, "encoder_only is served");
    ask(&world, "hip/rocm-flash", &device, "encoder_only", true, "encoder_only is served on a device");
    ask(&world, "hip/rocm-flash", &device, "decoder", true, "and so are decoders");
    world_close(&world);
}

/* The candidate has the reason; without a device behind NO_DEVICE, and the error leads with it. */
static void select_on(const char *mock, const char *device, uint32_t place)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct attn_decision *decision = NULL;
        struct world world;
        char text[160];
        world_open(&world, mock, NULL);
        snprintf(text, sizeof text, HEADS "type=%s", refused[i]);
        const int32_t status = world_select(&world, text, "hip/rocm-flash", NULL, &decision);
        check(status == ATTN_E_NO_BACKEND && strcmp(world.err.message, WORDS) == 0 &&
                  strcmp(attn_decision_get_info(decision)->text, WORDS) == 0 &&
                  world.err.reason == ATTN_REASON_ENC_DEC_ROCM_HIP,
              "nobody is selected, in these words alone", world.err.message);
        const struct attn_candidate *candidate = world_candidate(decision, "hip/rocm-flash", device);
        check(candidate != NULL && candidate->accepted == 0 && candidate->reason_count == place + 1 &&
                  candidate->reasons[place].code == ATTN_REASON_ENC_DEC_ROCM_HIP &&
                  strcmp(candidate->reasons[place].text, WORDS) == 0,
              "the candidate has the reason", world_list(decision));
        attn_decision_destroy(decision);
        world_close(&world);
    }
}

/* ---------------------------------------------------------------- layers */

static struct attn_backend *open_backend(struct world *world, const char *name)
{
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;

    if (world_select(world, HEADS, name, NULL, &decision) == ATTN_OK)
        attn_backend_open(world->context, decision, NULL, &backend, &world->err);
    check(backend != NULL, name, world->err.message);
    attn_decision_destroy(decision);
    return backend;
}

static struct attn_layer *make_layer(struct world *world, struct attn_backend *backend,
                                     const struct attn_problem *problem, float scale, int32_t *out_status)
{
    const struct attn_layer_class layer_class = {.problem = problem};
    struct attn_layer_desc desc;
    struct attn_layer *layer = NULL;

    ATTN_INIT(&desc);
    desc.layer_class = &layer_class;
    desc.softmax_scale = scale;
    ATTN_INIT(&world->err);
    *out_status = attn_layer_create(backend, &desc, &layer, &world->err);
    return layer;
}

/* A prompt of 4 tokens without blocks, begun. */
struct model {
    struct attn_builder *builder;
    struct attn_state *state;
    struct attn_metadata *metadata;
};

static bool model_open(struct model *model, struct world *world, struct attn_backend *backend,
                       const struct attn_problem *problem)
{
    const struct attn_builder_group group = {.block = 16, .max_blocks = 4};
    const struct attn_layer_class layer_class = {.problem = problem};
    const struct attn_blocks blocks = {.kind = 0};
    struct attn_builder_params params;
    struct attn_state_params state_params;
    struct attn_builder_add_args add;
    struct attn_error *err = &world->err;

    memset(model, 0, sizeof *model);
    ATTN_INIT(&params);
    params.group = &group;
    params.max_seqs = 4;
    params.max_tokens = 16;
    ATTN_INIT(&state_params);
    state_params.group = &group;
    ATTN_INIT(&add);
    add.prompt = 1;
    add.query_len = 4;
    add.blocks = &blocks;
    return attn_builder_create(backend, &params, &model->builder, err) == ATTN_OK &&
           attn_state_create(backend, &layer_class, 1, &state_params, &model->state, err) == ATTN_OK &&
           attn_builder_add(model->builder, &add, err) == ATTN_OK &&
           attn_builder_build(model->builder, NULL, NULL, &model->metadata, err) == ATTN_OK &&
           attn_state_begin_forward(model->state, model->metadata, NULL, err) == ATTN_OK;
}

static void model_close(struct model *model)
{
    attn_state_destroy(model->state);
    attn_builder_destroy(model->builder);
}

static int32_t forward(const struct model *model, const struct attn_layer *layer, struct attn_error *err)
{
    static uint16_t rows[4][8][64];
    const struct attn_tensor tensor = {
        .buffer = {rows, 0}, .token_stride = sizeof rows[0], .head_stride = sizeof rows[0][0]};
    struct attn_layer_tensors tensors;

    ATTN_INIT(&tensors);
    tensors.q = tensors.k_new = tensors.v_new = tensors.out = tensor;
    return attn_layer_forward(layer, model->state, model->metadata, NULL, &tensors, NULL, err);
}

static void test_layers(void)
{
    const struct attn_problem only = problem_of("encoder_only");
    struct world world;
    struct model model;
    int32_t status;

    world_open(&world, "hip plain", NULL);
    struct attn_backend *hip = open_backend(&world, "hip/rocm-flash");
    struct attn_backend *plain = open_backend(&world, "plain/flash-attn");
    check(model_open(&model, &world, hip, &only), "a step of encoder_only begins", world.err.message);
    struct attn_layer *own = make_layer(&world, hip, &only, 1, &status);
    check(status == ATTN_OK, "a layer of encoder_only is made", world.err.message);
    check(forward(&model, own, &world.err) == ATTN_OK, "and runs", world.err.message);
    for (uint32_t i = 0; i < 2; i++) {
        const struct attn_problem problem = problem_of(refused[i]);
        struct attn_layer *layer = make_layer(&world, hip, &problem, 1, &status);
        check(layer == NULL && status == ATTN_E_UNSUPPORTED &&
                  world.err.reason == ATTN_REASON_ENC_DEC_ROCM_HIP && strcmp(world.err.message, WORDS) == 0,
              "create refuses in these words", world.err.message);
        layer = make_layer(&world, plain, &problem, 1, &status);
        check(layer != NULL, "another vendor's layer is made", world.err.message);
        status = forward(&model, layer, &world.err);
        check(status == ATTN_E_UNSUPPORTED && world.err.reason == ATTN_REASON_ENC_DEC_ROCM_HIP &&
                  strcmp(world.err.message, WORDS) == 0,
              "forward refuses it in these words", world.err.message);
        attn_layer_destroy(layer);
    }
    attn_layer_destroy(own);
    model_close(&model);
    attn_backend_destroy(hip);
    attn_backend_destroy(plain);
    world_close(&world);
}

static void test_lost(void)
{
    const struct attn_problem decoder = problem_of("decoder");
    struct world world;
    struct model model;
    int32_t status;

    world_open(&world, "plain", NULL);
    struct attn_backend *backend = open_backend(&world, "plain/flash-attn");
    check(model_open(&model, &world, backend, &decoder), "a step begins", world.err.message);
    struct attn_layer *lost = make_layer(&world, backend, &decoder, 666, &status);
    struct attn_layer *later = make_layer(&world, backend, &decoder, 1, &status);
    check(forward(&model, later, &world.err) == ATTN_OK, "a layer runs", world.err.message);
    check(forward(&model, lost, &world.err) == ATTN_E_DEVICE_LOST &&
              strstr(world.err.message, "the mock fell off the bus") != NULL,
          "a layer whose device is lost meanwhile says so", world.err.message);
    check(forward(&model, later, &world.err) == ATTN_E_DEVICE_LOST, "and so do later ones",
          world.err.message);
    check(make_layer(&world, backend, &decoder, 1, &status) == NULL && status == ATTN_E_DEVICE_LOST,
          "no layer is made on it", world.err.message);
    attn_layer_destroy(lost);
    attn_layer_destroy(later);
    model_close(&model);
    attn_backend_destroy(backend);
    world_close(&world);
}

int main(void)
{
    test_query();
    select_on("hip", "rocm:0", 0);
    select_on("hip-nodev", NULL, 1);
    test_layers();
    test_lost();
    printf("1..%u\n", count);
    return failed != 0;
}
