/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What attn_layer_forward refuses: status, field and text; and the original's words. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

/* A model with a prompt of 9 tokens in its caches, and a decode of it begun. */
struct scene {
    struct model model;
    struct sequence_state sequences[3];
    struct step_def step;
    struct call call;
};

static void scene_open(struct scene *scene, const struct model_def *def, struct attn_context *context,
                       struct attn_backend *backend)
{
    struct attn_error err;

    ATTN_INIT(&err);
    memset(scene, 0, sizeof *scene);
    bool good = model_init(&scene->model, def, context, backend, 5);
    for (uint32_t i = 0; i < 3; i++)
        scene->sequences[i] = (struct sequence_state){.id = i + 1, .encoder_len = def->cross == 1 ? 5 : 0};
    scene->step = (struct step_def){.entries = {{.sequence = &scene->sequences[0], .prompt = 1, .q_len = 9}},
                                    .count = 1,
                                    .row = UINT32_MAX};
    good = good && model_step(&scene->model, &scene->step);
    scene->step.entries[0].prompt = 0;
    scene->step.entries[0].q_len = 1;
    sequence_grow(&scene->model, &scene->sequences[0], 10);
    if (good && model_begin(&scene->model, &scene->step, &err) != ATTN_OK) {
        good = false;
        snprintf(scene->model.why, sizeof scene->model.why, "%s", err.message);
    }
    if (!good) {
        snprintf(err.message, sizeof err.message, "%.400s", scene->model.why);
        expect(ATTN_E_STATE, &err, ATTN_OK, "", "", def->name);
    }
    call_init(&scene->call, &scene->model, 0, &scene->step);
}

static void scene_close(struct scene *scene)
{
    call_finish(&scene->call);
    model_finish(&scene->model);
}

static int32_t forward(struct scene *scene, struct attn_error *err)
{
    struct model *model = &scene->model;

    return attn_layer_forward(model->layers[0], model->state, model->metadata, model->caches[0].kv,
                              &scene->call.tensors, NULL, err);
}

static void test_arguments(struct attn_context *context, struct attn_backend *backend)
{
    static const struct model_def def = {
        .name = "arguments", .classes = {{.problem = HEADS "q=f32 lse=1"}, {.problem = HEADS "q=f32"}}};
    static struct scene scene;
    struct model *model = &scene.model;
    struct attn_error err;

    ATTN_INIT(&err);
    scene_open(&scene, &def, context, backend);
    struct attn_layer *layer = model->layers[0];
    struct attn_kv *kv = model->caches[0].kv;
    const struct attn_layer_tensors whole = scene.call.tensors;
    struct attn_layer_tensors *tensors = &scene.call.tensors;
    expect(attn_layer_forward(NULL, model->state, model->metadata, kv, tensors, NULL, &err), &err,
           ATTN_E_INVALID, "layer", "NULL", "no layer");
    expect(attn_layer_forward(layer, NULL, model->metadata, kv, tensors, NULL, &err), &err, ATTN_E_INVALID,
           "state", "NULL", "no state");
    expect(attn_layer_forward(layer, model->state, NULL, kv, tensors, NULL, &err), &err, ATTN_E_INVALID,
           "metadata", "NULL", "no metadata");
    expect(attn_layer_forward(layer, model->state, model->metadata, kv, NULL, NULL, &err), &err,
           ATTN_E_INVALID, "tensors", "NULL", "no tensors");
    expect(attn_layer_forward(layer, model->state, model->metadata, NULL, tensors, NULL, &err), &err,
           ATTN_E_INVALID, "kv", "kv is NULL", "no cache for a decode");
    tensors->struct_size = 8;
    expect(forward(&scene, &err), &err, ATTN_E_INVALID, "tensors", "struct_size 8",
           "tensors that are too small");
    *tensors = whole;
    tensors->v_new.buffer.data = NULL;
    expect(forward(&scene, &err), &err, ATTN_E_INVALID, "v_new", "both or none", "k_new without v_new");
    *tensors = whole;
    tensors->k_new.buffer.data = NULL;
    expect(forward(&scene, &err), &err, ATTN_E_INVALID, "k_new", "both or none", "v_new without k_new");
    *tensors = whole;
    tensors->q.buffer.data = NULL;
    expect(forward(&scene, &err), &err, ATTN_E_INVALID, "q", "", "no queries");
    *tensors = whole;
    tensors->out.buffer.data = NULL;
    expect(forward(&scene, &err), &err, ATTN_E_INVALID, "out", "", "nowhere to put the result");
    *tensors = whole;
    tensors->lse.buffer.data = NULL;
    expect(forward(&scene, &err), &err, ATTN_E_INVALID, "lse", "", "no lse where the problem has one");
    *tensors = whole;
    expect(forward(&scene, &err), &err, ATTN_OK, "", "", "after all of them the step runs");
    scene_close(&scene);
}

static void test_classes(struct attn_context *context, struct attn_backend *backend)
{
    static const struct model_def def = {.name = "classes",
                                         .classes = {{.problem = HEADS "q=f32"}, {.problem = HEADS "q=f16"}}};
    static struct scene scene;
    struct model *model = &scene.model;
    struct attn_layer_desc desc;
    struct attn_layer_class changed;
    struct attn_error err;

    ATTN_INIT(&err);
    scene_open(&scene, &def, context, backend);
    for (uint32_t i = 0; i < 4; i++) {
        static const char *const what[] = {"a class that the state has not", "another problem",
                                           "another group", "another type of new keys"};
        struct attn_layer *layer = NULL;
        ATTN_INIT(&desc);
        changed = model->classes[0];
        changed.group = i == 2;
        changed.new_dtype = i == 3 ? ATTN_F16 : 0;
        desc.class_index = i == 0 ? 7 : i == 1;
        desc.layer_class = &changed;
        desc.softmax_scale = 0.2F;
        expect(attn_layer_create(backend, &desc, &layer, &err), &err, ATTN_OK, "", "",
               "a layer of another class");
        expect(attn_layer_forward(layer, model->state, model->metadata, model->caches[0].kv,
                                  &scene.call.tensors, NULL, &err),
               &err, ATTN_E_INVALID, "class_index", i == 0 ? "7" : "another class", what[i]);
        attn_layer_destroy(layer);
    }
    scene_close(&scene);
}

static void test_order(struct attn_context *context, struct attn_backend *backend)
{
    static const struct model_def def = {.name = "order", .classes = {{.problem = HEADS "q=f32"}}};
    static struct scene scene, other;
    struct attn_error err;
    struct attn_backend *second = NULL;
    struct attn_context *its = NULL;

    ATTN_INIT(&err);
    scene_open(&scene, &def, context, backend);
    scene_open(&other, &def, context, backend);
    struct attn_metadata *own = scene.model.metadata;
    scene.model.metadata = other.model.metadata;
    expect(forward(&scene, &err), &err, ATTN_E_STATE, "metadata", "other metadata",
           "metadata of another step");
    scene.model.metadata = own;
    struct attn_state *state = scene.model.state;
    struct attn_state_params params;
    struct attn_builder_group groups[GROUPS] = {{.block = BLOCK, .max_blocks = MOST_BLOCKS},
                                                {.block = BLOCK, .max_blocks = MOST_BLOCKS}};
    ATTN_INIT(&params);
    params.groups = GROUPS;
    params.group = groups;
    expect(attn_state_create(backend, scene.model.classes, 1, &params, &scene.model.state, &err), &err,
           ATTN_OK, "", "", "another state");
    expect(forward(&scene, &err), &err, ATTN_E_STATE, "state", "attn_state_begin_forward first",
           "a state that has begun no step");
    attn_state_destroy(scene.model.state);
    scene.model.state = state;
    if (fixture_open(attn_backend_get_name(backend), &its, &second)) {
        static struct model far;
        if (!model_init(&far, &def, its, second, 1))
            printf("# %s\n", far.why);
        expect(attn_layer_forward(far.layers[0], state, own, scene.model.caches[0].kv, &scene.call.tensors,
                                  NULL, &err),
               &err, ATTN_E_INVALID, "layer", "one backend handle", "a layer of another backend handle");
        model_finish(&far);
    }
    attn_backend_destroy(second);
    attn_context_destroy(its);
    expect(attn_builder_reset(scene.model.builder, &err), &err, ATTN_OK, "", "", "the builder begins anew");
    expect(forward(&scene, &err), &err, ATTN_E_STATE, "metadata", "", "metadata of a step that has ended");
    scene_close(&scene);
    scene_close(&other);
}

/* A child has no use for the handles of its parent. */
static void test_fork(struct attn_context *context, struct attn_backend *backend)
{
    static const struct model_def def = {.name = "fork", .classes = {{.problem = HEADS "q=f32"}}};
    static struct scene scene;
    struct attn_error err;
    int ended = 0;

    ATTN_INIT(&err);
    scene_open(&scene, &def, context, backend);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const int32_t status = forward(&scene, &err);
        struct create create;
        struct attn_layer *layer = NULL;
        create_init(&create, HEADS "q=bf16");
        bool good = status == ATTN_E_STATE && strstr(err.message, "fork") != NULL;
        good = good && attn_layer_create(backend, &create.desc, &layer, &err) == ATTN_E_STATE &&
               strstr(err.message, "fork") != NULL;
        attn_layer_destroy(scene.model.layers[0]);
        _exit(good ? 0 : 1);
    }
    const bool done = child > 0 && waitpid(child, &ended, 0) == child && ended == 0;
    expect(done ? ATTN_OK : ATTN_E_STATE, &err, ATTN_OK, "", "", "after a fork both calls name it");
    scene_close(&scene);
}

/* ---------------------------------------------------------------- steps */

/* A step that is refused when it is begun, or by the first layer. */
static void expect_step(struct attn_context *context, struct attn_backend *backend,
                        const struct model_def *def, const struct step_def *step, int32_t wanted,
                        const char *field, const char *words, const char *what)
{
    static struct scene scene;
    struct attn_error err;

    ATTN_INIT(&err);
    scene_open(&scene, def, context, backend);
    struct step_def own = *step;
    for (uint32_t n = 0; n < own.count; n++) {
        own.entries[n].sequence = &scene.sequences[own.count - 1 - n];
        sequence_grow(&scene.model, own.entries[n].sequence,
                      own.entries[n].sequence->len + own.entries[n].q_len);
    }
    call_finish(&scene.call);
    int32_t status = model_begin(&scene.model, &own, &err);
    call_init(&scene.call, &scene.model, 0, &own);
    if (status == ATTN_OK)
        status = forward(&scene, &err);
    expect(status, &err, wanted, field, words, what);
    scene_close(&scene);
}

static void test_steps(struct attn_context *context, struct attn_backend *backend)
{
    static const struct model_def masked = {.name = "mask",
                                            .classes = {{.problem = HEADS "q=f32 mask=bits span=full"}}};
    static const struct model_def new_keys = {.name = "cache+new",
                                              .classes = {{.problem = HEADS "q=f32 kv_source=cache+new"}}};
    static const struct model_def window = {.name = "window",
                                            .chunked = 1,
                                            .classes = {{.problem = HEADS "q=f32 window=11"}},
                                            .windows = {12, 0}};
    const struct step_def mixed = {
        .entries = {{.prompt = 1, .q_len = 4}, {.q_len = 1}}, .count = 2, .row = UINT32_MAX};
    const struct step_def longer = {
        .entries = {{.prompt = 1, .q_len = 13}, {.q_len = 1}}, .count = 2, .row = UINT32_MAX};
    const bool infer = strcmp(attn_backend_get_name(backend), "cpu/flashinfer") == 0;

    if (!infer) { /* its prompts have pages, and run with the others */
        expect_step(context, backend, &masked, &mixed, ATTN_E_UNSUPPORTED, "mask", "chunked = 1",
                    "a mask where prompts run apart");
        expect_step(context, backend, &new_keys, &mixed, ATTN_E_UNSUPPORTED, "kv_source", "chunked = 1",
                    "new keys beside cached ones where prompts run apart");
    }
    expect_step(context, backend, &window, &longer, ATTN_E_UNSUPPORTED, "window", "only the last 12",
                "a prompt longer than the window of its group's builder");
    expect_step(context, backend, &window, &mixed, ATTN_OK, "", "", "a shorter one");
}

static void test_mla(struct attn_context *context, struct attn_backend *backend)
{
    static const struct model_def def = {
        .name = "mla", .classes = {{.problem = "q=f32 mla=1 heads=4 kv_heads=1 head_dim=48/32"}}};
    static struct scene scene;
    struct attn_error err;

    ATTN_INIT(&err);
    scene_open(&scene, &def, context, backend);
    call_finish(&scene.call);
    scene.step = (struct step_def){.entries = {{.sequence = &scene.sequences[1], .prompt = 1, .q_len = 4}},
                                   .count = 1,
                                   .profile = true,
                                   .row = UINT32_MAX};
    expect(model_begin(&scene.model, &scene.step, &err), &err, ATTN_OK, "", "", "a profile run of MLA keys");
    call_init(&scene.call, &scene.model, 0, &scene.step);
    scene.call.tensors.k_rope = scene.call.tensors.k_new;
    expect(forward(&scene, &err), &err, ATTN_E_UNSUPPORTED, "k_rope", "all columns in k_new",
           "keys in two tensors that no cache takes");
    scene_close(&scene);
}

/* Refusals of encoders in the FlashAttention flavour; forward is of class 0. */
static void test_encoders(struct attn_context *context, struct attn_backend *backend)
{
    static const struct model_def encoder = {
        .name = "encoder", .cross = 1, .classes = {{.problem = HEADS "type=encoder q=f32"}}};
    static struct scene scene;
    struct attn_error err;

    ATTN_INIT(&err);
    scene_open(&scene, &encoder, context, backend);
    expect(forward(&scene, &err), &err, ATTN_E_INVALID, "metadata", "nothing for a layer",
           "an encoder in a step of decodes");
    scene_close(&scene);
}

int main(void)
{
    static const char *const names[] = {"cpu/flash-attn", "cpu/flashinfer", "cpu/rocm-flash"};

    for (uint32_t i = 0; i < 3; i++) {
        struct attn_context *context = NULL;
        struct attn_backend *backend = NULL;
        if (!fixture_open(names[i], &context, &backend))
            return 1;
        printf("# %s\n", names[i]);
        test_arguments(context, backend);
        test_classes(context, backend);
        test_order(context, backend);
        test_fork(context, backend);
        test_steps(context, backend);
        test_mla(context, backend);
        if (i == 0)
            test_encoders(context, backend);
        attn_backend_destroy(backend);
        attn_context_destroy(context);
    }
    return expect_end();
}
