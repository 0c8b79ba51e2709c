/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* graph_state.json: states capture a ladder of sizes; a recording plan table writes their calls down. */
#include "core.h"
#include "steps.h"

#include <string.h>

/* The model that was recorded: 8 heads, 2 kv heads, head dim 128, f16. */
enum { MAX_BATCH = 4, BLOCK = 16, MAX_LEN = 64, CACHE_BLOCKS = 6, MOST_PLANS = 16 };

/* Plans that were made, and the calls so far. */
static struct {
    struct attn_plan_table plain;
    struct attn_plan_impl *plans[MOST_PLANS];
    struct attn_problem problems[MOST_PLANS];
    uint32_t count;
    json_t *calls;
} tape;

static json_t *shape_of(uint64_t elements, const char *dtype)
{
    return json_pack("{s:[I], s:s}", "s", (json_int_t)elements, "d", dtype);
}

static json_t *values_of(const struct attn_buffer *buffer, uint64_t count)
{
    const int32_t *values = (const int32_t *)(const void *)((const char *)buffer->data + buffer->byte_offset);

    return json_pack("{s:s, s:[I], s:o}", "d", "int32", "s", (json_int_t)count, "v",
                     golden_list_i32(values, (size_t)count));
}

static int32_t record_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                             struct attn_plan_impl **out, struct attn_error *err)
{
    const int32_t status = tape.plain.create(backend, problem, out, err);

    if (status != ATTN_OK || tape.count == MOST_PLANS)
        return status;
    tape.plans[tape.count] = *out;
    tape.problems[tape.count++] = *problem;
    json_t *args =
        json_pack("[n, o, n, o, s, b]", shape_of((uint64_t)problem->max_seqs + 1, "int32"),
                  shape_of(problem->max_seqs, "int32"), problem->layout == ATTN_STRIDED ? "NHD" : "other",
                  problem->heads / problem->kv_heads > 4);
    json_array_append_new(tape.calls, json_pack("[s, o, {}]", "init", args));
    return status;
}

static int32_t record_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                              const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                              struct attn_error *err)
{
    uint32_t newest = tape.count; /* the address of a plan that is gone may be another's now */

    while (newest > 0 && tape.plans[newest - 1] != plan)
        newest--;
    if (newest > 0 && tape.problems[newest - 1].addressing == ATTN_CSR) {
        const struct attn_problem *p = &tape.problems[newest - 1];
        json_t *indptr = values_of(&batch->csr_indptr, (uint64_t)batch->seqs + 1);
        const json_t *ends = json_object_get(indptr, "v");
        const uint64_t pages = (uint64_t)json_integer_value(json_array_get(ends, batch->seqs));
        json_t *args = json_pack("[o, o, o, I, I, I, I]", indptr, values_of(&batch->csr_indices, pages),
                                 values_of(&batch->last_page_lens, batch->seqs), (json_int_t)p->heads,
                                 (json_int_t)p->kv_heads, (json_int_t)p->head_dim, (json_int_t)p->block);
        json_t *named =
            json_pack("{s:s, s:s, s:s}", "pos_encoding_mode", p->alibi == ATTN_ALIBI_NONE ? "NONE" : "ALIBI",
                      "data_type", p->k_dtype == ATTN_F16 ? "float16" : "other", "q_data_type",
                      p->q_dtype == ATTN_F16 ? "float16" : "other");
        json_array_append_new(tape.calls, json_pack("[s, o, o]", "begin_forward", args, named));
    }
    return tape.plain.prepare(plan, batch, schedule, staging, stream, err);
}

/* Recorded calls by their last name, without those that nothing corresponds to, and without workspaces. */
static json_t *calls_of(const json_t *recorded)
{
    json_t *calls = json_array();
    size_t i;
    json_t *call;

    json_array_foreach(recorded, i, call)
    {
        const char *name = json_string_value(json_array_get(call, 0));
        const char *dot = name != NULL ? strrchr(name, '.') : NULL;
        name = dot != NULL ? dot + 1 : "";
        if (strcmp(name, "end_forward") == 0)
            continue;
        json_t *copy = json_deep_copy(call);
        json_array_set_new(copy, 0, json_string(name));
        if (strcmp(name, "init") ==
            0) { /* the workspace, and the room for indices, which is the cache's size */
            json_array_set_new(json_array_get(copy, 1), 0, json_null());
            json_array_set_new(json_array_get(copy, 1), 2, json_null());
        }
        json_array_append_new(calls, copy);
    }
    return calls;
}

/* The buffers that a graph is filled through, under their names. */
static json_t *inputs_of(const struct attn_state *clone, const json_t *like)
{
    json_t *all = json_object();
    struct attn_view view;
    struct attn_error err;

    for (uint32_t field = 1; field < ATTN_FIELDS; field++) {
        const char *name = attn_field_name(field);
        ATTN_INIT(&err);
        ATTN_INIT(&view);
        if (name == NULL || strncmp(name, "multi_modal", 11) == 0)
            continue;
        if (attn_state_get_input(clone, field, 0, &view, &err) != ATTN_OK)
            json_object_set_new(all, name, json_string(err.message));
        else if (view.kind != ATTN_VIEW_NULL)
            json_object_set_new(all, name, step_view(&view, json_object_get(like, name)));
    }
    return all;
}

static void check_size(struct golden *g, struct attn_state *state, const json_t *size, bool cross)
{
    static const char *const ignored[] = {"device", NULL};
    struct attn_state_capture_args args;
    struct attn_metadata *metadata = NULL;
    struct attn_state *clone = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&args);
    args.batch = (uint32_t)golden_int(size, "batch", MAX_BATCH);
    args.encoder_decoder = cross;
    json_array_clear(tape.calls);
    const int32_t status = attn_state_get_capture_metadata(state, &args, NULL, &metadata, &err);
    if (golden_exception(size) != NULL) {
        golden_check_exception(g, golden_exception(size), status, &err);
        return;
    }
    if (!golden_ok(g, "attn_state_get_capture_metadata", status, &err) ||
        !golden_ok(g, "attn_state_clone", attn_state_clone(state, args.batch, &clone, &err), &err))
        return;
    json_t *fields = step_fields(metadata, json_object_get(size, "meta"));
    json_t *calls = calls_of(json_object_get(size, "calls"));
    json_t *inputs = inputs_of(clone, json_object_get(size, "buffers"));
    golden_same(g, "meta", json_object_get(size, "meta"), fields, ignored);
    golden_same(g, "calls", calls, tape.calls, NULL);
    golden_same(g, "buffers", json_object_get(size, "buffers"), inputs, NULL);
    if (json_object_size(inputs) != json_object_size(json_object_get(size, "buffers")))
        golden_differ(g, "there are %zu buffers, recorded are %zu", json_object_size(inputs),
                      json_object_size(json_object_get(size, "buffers")));
    json_decref(fields);
    json_decref(calls);
    json_decref(inputs);
    attn_state_destroy(clone);
}

static struct attn_state *make_state(struct golden *g, struct attn_backend *backend, uint32_t flavour,
                                     bool cross)
{
    const struct attn_builder_group group = {
        .block = BLOCK, .max_blocks = MAX_LEN / BLOCK, .max_indices = MAX_BATCH * CACHE_BLOCKS};
    struct attn_layer_class class = {.problem = NULL};
    struct attn_state_params params;
    struct attn_state *state = NULL;
    struct attn_problem problem;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&params);
    params.flavour = flavour;
    params.group = &group;
    params.max_capture_len = MAX_LEN;
    params.cross = cross ? &group : NULL;
    class.problem = &problem;
    if (!golden_ok(
            g, "attn_problem_parse",
            attn_problem_parse(flavour == ATTN_FLASHINFER
                                   ? "q=f16 heads=8 kv_heads=2 head_dim=128 block=16 addr=csr max_seqs=4 "
                                     "max_q=4 max_kv=64 max_rows=16"
                                   : "q=f16 heads=8 kv_heads=2 head_dim=128 block=16 max_seqs=4 max_q=4 "
                                     "max_kv=64 max_rows=16",
                               &problem, &err),
            &err) ||
        !golden_ok(g, "attn_state_create", attn_state_create(backend, &class, 1, &params, &state, &err),
                   &err))
        return NULL;
    return state;
}

static void check_row(struct golden *g, struct attn_backend *backend, const json_t *row)
{
    const uint32_t flavour = step_flavour(golden_text(row, "backend", ""));
    const bool cross = golden_bool(row, "encdec");
    const json_t *outside = golden_exception(json_object_get(row, "clone_outside_capture"));
    struct attn_state *state = make_state(g, backend, flavour, cross), *clone = NULL;
    struct attn_error err;
    size_t i;
    json_t *size;

    ATTN_INIT(&err);
    if (state == NULL)
        return;
    if (outside != NULL)
        golden_check_exception(g, outside, attn_state_clone(state, MAX_BATCH, &clone, &err), &err);
    if (golden_ok(g, "attn_state_begin_capture", attn_state_begin_capture(state, MAX_BATCH, NULL, &err),
                  &err)) {
        json_array_foreach(json_object_get(row, "per_batch"), i, size) check_size(g, state, size, cross);
        if (golden_exception(row) != NULL) /* instead of the first size */
            check_size(g, state, row, cross);
        golden_ok(g, "attn_state_end_capture", attn_state_end_capture(state, &err), &err);
        if (attn_state_end_capture(state, &err) == ATTN_OK)
            golden_differ(g, "the state still captures");
    }
    attn_state_destroy(state);
}

void check_graph_state(struct golden *g, const json_t *data)
{
    size_t i;
    json_t *row;

    json_array_foreach(data, i, row)
    {
        const char *name = golden_text(row, "backend", "");
        golden_begin(g, "[%zu] %s%s", i, name, golden_bool(row, "encdec") ? " with encoder" : "");
        struct attn_backend *backend =
            golden_backend(g, strcmp(name, "FLASHINFER") == 0 ? "cpu/flashinfer" : "cpu/flash-attn",
                           "heads=8 head_dim=128 q=bf16");
        if (backend == NULL) {
            golden_differ(g, "no backend");
        } else {
            struct attn_plan_table *table = &backend->entry->plan;
            tape.plain = *table;
            tape.count = 0;
            tape.calls = json_array();
            table->create = record_create;
            table->prepare = record_prepare;
            check_row(g, backend, row);
            *table = tape.plain;
            json_decref(tape.calls);
            attn_backend_destroy(backend);
        }
        golden_end(g);
    }
}
