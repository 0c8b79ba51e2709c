/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* States whose parameters are wrong, and states on a backend that is busy, fails, or has no memory. */
#include "core.h"
#include "model.h"
#include "tap.h"
#include "world.h"

static int32_t get_capture(struct model *model, uint32_t batch, uint32_t cross)
{
    struct attn_state_capture_args args;
    struct attn_metadata *metadata;

    ATTN_INIT(&args);
    args.batch = batch;
    args.encoder_decoder = cross;
    return attn_state_get_capture_metadata(model->state, &args, NULL, &metadata, &err);
}

static struct attn__backend plain; /* the tables as they are */
static const void *busy, *last;    /* events */
static uint32_t prepared, fail_prepare, fail_alloc;
static uint64_t staged;

static int32_t query_event(struct attn_backend_impl *backend, void *event, struct attn_error *words)
{
    return event == busy ? ATTN_E_BUSY : plain.memory.event_query(backend, event, words);
}

static int32_t record_event(struct attn_backend_impl *backend, void *event, void *stream,
                            struct attn_error *words)
{
    last = event;
    return plain.memory.event_record(backend, event, stream, words);
}

static int32_t prepare_many(const struct attn_plan_impl *const *plans,
                            const struct attn_batch *const *batches, const struct attn_span *schedules,
                            uint32_t n, const struct attn_span *staging, void *stream,
                            struct attn_error *words)
{
    int32_t status = ATTN_OK;

    prepared++;
    staged = staging->size;
    for (uint32_t i = 0; i < n && status == ATTN_OK; i++)
        status = i == 1 && fail_prepare != 0
                     ? (int32_t)ATTN_E_DEVICE
                     : plain.plan.prepare(plans[i], batches[i], &schedules[i], staging, stream, words);
    return status;
}

static int32_t sizes_staged(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    int32_t status = plain.plan.sizes(plan, out);

    out->staging = 100;
    return status;
}

static int32_t alloc_some(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                          struct attn_error *words)
{
    if (fail_alloc > 0 && --fail_alloc == 0)
        return ATTN_E_MEMORY;
    return plain.memory.alloc(backend, size, out, words);
}

static bool is_stateless(const struct attn_state *state)
{
    struct attn_state_step step;

    ATTN_INIT(&step);
    return attn_state_get_step(state, 0, &step, NULL) == ATTN_E_STATE;
}

static int32_t clone_nothing(struct attn_state_impl *state, uint32_t batch, struct attn_state_impl **out,
                             struct attn_error *words)
{
    (void)state, (void)batch, (void)out, (void)words;
    return ATTN_E_MEMORY;
}

/* A refusal without words has those of its status. */
static void test_silent_refusal(struct attn_backend *backend)
{
    struct attn_backend_table *table = &backend->entry->table;
    const struct attn_state_table *kept = table->state;
    struct attn_state_table silent = *kept;
    struct attn_state *clone = NULL;
    struct model model;

    silent.clone = clone_nothing;
    table->state = &silent;
    model_init(&model, backend);
    const struct attn_builder_build_args wrong = {.struct_size = 0};
    struct attn_metadata *metadata;
    REFUSED(attn_builder_build(model.builder, &wrong, NULL, &metadata, &err), ATTN_E_INVALID, "args");
    must(attn_state_begin_capture(model.state, 4, NULL, &err));
    must(get_capture(&model, 4, 0));
    check(attn_state_clone(model.state, 4, &clone, &err) == ATTN_E_MEMORY &&
              strcmp(err.message, attn_status_text(ATTN_E_MEMORY)) == 0,
          "a refusal without words has those of its status", "");
    must(attn_state_end_capture(model.state, &err));
    model_finish(&model);
    table->state = kept;
}

/* One staging block for all classes, steps in flight, and what a failure leaves. */
static void test_faults(struct attn_backend *backend)
{
    struct attn__backend *entry = backend->entry;
    struct attn_state *clone = NULL;
    struct model model;

    plain = *entry;
    entry->memory.event_query = query_event;
    entry->memory.event_record = record_event;
    entry->plan.prepare_many = prepare_many;
    entry->plan.sizes = sizes_staged;
    model_init(&model, backend);
    prepared = 0;
    struct attn_metadata *metadata = model_step(&model, 5, 2, 0, 0, 3);
    check(attn_state_begin_forward(model.state, metadata, NULL, &err) == ATTN_OK && prepared == 1 &&
              staged >= 200 && !is_stateless(model.state),
          "all classes are prepared at once, with the staging of all", "");
    busy = last;
    check(attn_state_begin_forward(model.state, metadata, NULL, &err) == ATTN_OK && prepared == 2,
          "two steps may be under way", "");
    REFUSED(attn_state_begin_forward(model.state, metadata, NULL, &err), ATTN_E_BUSY, "steps");
    check(prepared == 2 && !is_stateless(model.state), "a busy step changes nothing", "");
    busy = NULL;
    fail_prepare = 1;
    check(attn_state_begin_forward(model.state, metadata, NULL, &err) == ATTN_E_DEVICE &&
              is_stateless(model.state),
          "after a failed step there is none", "");
    fail_prepare = 0;
    check(attn_state_begin_forward(model.state, metadata, NULL, &err) == ATTN_OK &&
              !is_stateless(model.state),
          "and the next one is as good as any", "");
    must(attn_state_begin_capture(model.state, 4, NULL, &err));
    must(get_capture(&model, 4, 0));
    must(attn_state_clone(model.state, 4, &clone, &err));
    must(attn_state_end_capture(model.state, &err));
    if (strcmp(attn_backend_get_name(backend), "cpu/flash-attn") == 0) {
        model.first_q = 2; /* the right number of tokens, but not one of each sequence */
        metadata = model_step(&model, 3, 0, 1, 0, 3);
        REFUSED(attn_state_begin_forward(clone, metadata, NULL, &err), ATTN_E_INVALID, "max_query_len");
        check(is_stateless(model.state) && is_stateless(clone), "nobody has a step then", "");
    }
    attn_state_destroy(clone);
    model_finish(&model);
    entry->memory.event_create = NULL;
    model_describe(&model, backend);
    REFUSED(attn_state_create(backend, model.classes, MODEL_CLASSES, &model.params, &model.state, &err),
            ATTN_E_UNSUPPORTED, "events");
    entry->memory = plain.memory;
    entry->plan = plain.plan;
}

/* Without memory for one of its blocks nothing is left over; a capture can still be ended or begun again. */
static void test_memory(struct attn_backend *backend)
{
    struct attn__backend *entry = backend->entry;
    struct model model;
    int32_t status = ATTN_E_MEMORY;
    bool good = true;

    plain = *entry;
    entry->memory.alloc = alloc_some;
    model_describe(&model, backend);
    for (uint32_t nth = 1; status != ATTN_OK && nth < 20; nth++) {
        fail_alloc = nth;
        status = attn_state_create(backend, model.classes, MODEL_CLASSES, &model.params, &model.state, &err);
        good = good && (status == ATTN_OK || (status == ATTN_E_MEMORY && model.state == NULL));
    }
    check(good && status == ATTN_OK, "a state is made whole or not at all", "");
    fail_alloc = 1;
    check(attn_state_begin_capture(model.state, 8, NULL, &err) == ATTN_E_MEMORY &&
              attn_state_begin_capture(model.state, 8, NULL, &err) == ATTN_OK,
          "a capture that could not begin can begin again", "");
    fail_alloc = 1;
    status = get_capture(&model, 8, 0);
    check(status == (model.problems[0].addressing == ATTN_CSR ? (int32_t)ATTN_E_MEMORY : ATTN_OK) &&
              attn_state_end_capture(model.state, &err) == ATTN_OK,
          "a capture can be ended after a failure", "");
    fail_alloc = 0;
    entry->memory = plain.memory;
    attn_state_destroy(model.state);
}

static void test_parameters(struct attn_backend *backend)
{
    struct attn_state *state = NULL;
    struct model model;

    model_describe(&model, backend);
#define CREATE() attn_state_create(backend, model.classes, MODEL_CLASSES, &model.params, &state, &err)
    REFUSED(attn_state_create(NULL, model.classes, 2, &model.params, &state, &err), ATTN_E_INVALID,
            "backend");
    REFUSED(attn_state_create(backend, model.classes, 2, &model.params, NULL, &err), ATTN_E_INVALID, "out");
    REFUSED(attn_state_create(backend, NULL, 2, &model.params, &state, &err), ATTN_E_INVALID, "classes");
    REFUSED(attn_state_create(backend, model.classes, 2, NULL, &state, &err), ATTN_E_INVALID, "params");
    model.params.group = NULL;
    REFUSED(CREATE(), ATTN_E_INVALID, "group");
    model.params.group = model.groups;
    model.params.flavour = 9;
    REFUSED(CREATE(), ATTN_E_INVALID, "flavour");
    model.params.flavour = 0;
    model.params.index_dtype = ATTN_F16;
    REFUSED(CREATE(), ATTN_E_INVALID, "index_dtype");
    model.params.index_dtype = 0;
    model.classes[1].group = 2;
    REFUSED(CREATE(), ATTN_E_INVALID, "group");
    model.classes[1].group = 1;
    model.groups[1].block = 16;
    REFUSED(CREATE(), ATTN_E_INVALID, "block");
    model.groups[1].block = 8;
    uint32_t addressing = model.problems[1].addressing;
    model.problems[1].addressing = addressing == ATTN_CSR ? ATTN_TABLE : ATTN_CSR;
    REFUSED(CREATE(), ATTN_E_INVALID, "addr");
    model.problems[1].addressing = addressing;
    model.problems[1].max_q = 0;
    REFUSED(CREATE(), ATTN_E_INVALID, "max_q");
    check(strstr(err.message, "classes[1]") != NULL, "the class is named", "");
    model.problems[1].max_q = 4;
    check(CREATE() == ATTN_OK, "and then it is made", "");
    attn_state_destroy(state);
    attn_state_destroy(NULL);
}

int main(void)
{
    static const char *const names[] = {"cpu/flash-attn", "cpu/flashinfer"};

    ATTN_INIT(&err);
    for (uint32_t i = 0; i < 2; i++) {
        struct attn_context *context = NULL;
        struct attn_backend *backend = NULL;
        backend_open(names[i], &context, &backend);
        test_parameters(backend);
        test_faults(backend);
        test_silent_refusal(backend);
        test_memory(backend);
        attn_backend_destroy(backend);
        attn_context_destroy(context);
    }
    return finish_checks();
}
