/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Calls with nothing where something is needed, and with numbers beyond every limit: each is refused by name.
 */
#include <criterion/criterion.h>

#include "args.h"
#include "attn/device.h"
#include "attn/layer.h"
#include "world.h"

#define PROBLEM "heads=8 kv_heads=2 head_dim=64 q=bf16 max_seqs=4 max_q=8 max_kv=64 max_rows=16"

static struct attn_error err;

/* A message that begins with the name of a function begins with that of the call. */
static void check_refusal(const char *call, int32_t got, const char *field)
{
    if (strncmp(err.message, "attn_", 5) == 0)
        cr_assert_eq(strncmp(err.message, call, strcspn(call, "(")), 0, "%s: %s", call, err.message);
    cr_assert_eq(got, ATTN_E_INVALID, "%s: %s", attn_status_name(got), err.message);
    cr_assert_str_eq(err.field, field, "%s: %s", err.field, err.message);
    cr_assert_eq(err.status, ATTN_E_INVALID);
    cr_assert_eq(err.reason, 0);
    cr_assert_str_neq(err.message, "");
    err.message[0] = err.field[0] = '\0';
}

#define refused(call, field) check_refusal(#call, (call), (field))

Test(nothing, handles_that_are_null)
{
    struct attn_problem problem;
    struct attn_plan_info info;
    struct attn_buffer buffer;
    struct attn_report *report;
    void *pointer;
    ATTN_INIT(&err);
    ATTN_INIT(&problem);
    ATTN_INIT(&info);
    refused(attn_context_rescan(NULL, &err), "context");
    refused(attn_context_load_all(NULL, &err), "context");
    refused(attn_context_get_report(NULL, &report, &err), "context");
    refused(attn_context_inspect(NULL, "x", &report, &err), "context");
    refused(attn_backend_open(NULL, NULL, NULL, NULL, &err), "context");
    refused(attn_plan_create(NULL, &problem, NULL, &err), "backend");
    refused(attn_plan_prepare(NULL, NULL, NULL, NULL, NULL, &err), "plan");
    refused(attn_plan_describe(NULL, &info, &err), "plan");
    refused(attn_kv_get_shape(NULL, &problem, 1, NULL, &err), "backend");
    refused(attn_kv_create(NULL, NULL, NULL, &err), "backend");
    refused(attn_kv_write(NULL, NULL, NULL, &err), "backend");
    refused(attn_kv_slot_mapping(NULL, NULL, NULL, &err), "backend");
    refused(attn_kv_copy_slots(NULL, NULL, NULL, &err), "backend");
    refused(attn_kv_copy_blocks(NULL, NULL, NULL, &err), "backend");
    refused(attn_kv_swap_blocks(NULL, NULL, NULL, &err), "backend");
    refused(attn_kv_gather(NULL, NULL, NULL, &err), "backend");
    refused(attn_kv_convert(NULL, NULL, NULL, &err), "backend");
    refused(attn_merge(NULL, NULL, NULL, &err), "backend");
    refused(attn_rescale(NULL, NULL, NULL, &err), "backend");
    refused(attn_memory_alloc(NULL, 1, &buffer, &err), "backend");
    refused(attn_memory_copy(NULL, &buffer, &buffer, 1, ATTN_COPY_TO_HOST, NULL, &err), "backend");
    refused(attn_memory_alloc_pinned(NULL, 1, &pointer, &err), "backend");
    refused(attn_stream_create(NULL, &pointer, &err), "backend");
    refused(attn_stream_synchronize(NULL, NULL, &err), "backend");
    /* Whatever the handle, a caller without interest in words gets the same status. */
    cr_assert_eq(attn_context_rescan(NULL, NULL), ATTN_E_INVALID);
    attn_kv_desc_init(NULL, NULL, NULL);
    attn_context_destroy(NULL);
    attn_report_destroy(NULL);
    attn_decision_destroy(NULL);
    attn_backend_destroy(NULL);
    attn_plan_destroy(NULL);
    attn_kv_destroy(NULL);
}

Test(nothing, handles_of_the_layer_and_of_devices_that_are_null)
{
    struct attn_builder_params params;
    struct attn_builder *builder;
    struct attn_metadata *metadata;
    struct attn_graph *graph;
    struct attn_view view;
    void *event;
    uint64_t size;
    ATTN_INIT(&err);
    ATTN_INIT(&params);
    ATTN_INIT(&view);
    refused(attn_builder_create(NULL, &params, NULL, &err), "out");
    refused(attn_builder_create(NULL, &params, &builder, &err), "flavour");
    refused(attn_builder_create(NULL, NULL, &builder, &err), "params");
    cr_assert_null(builder);
    refused(attn_builder_reset(NULL, &err), "builder");
    refused(attn_builder_add(NULL, NULL, &err), "builder");
    refused(attn_builder_set_row(NULL, NULL, &err), "builder");
    refused(attn_builder_build(NULL, NULL, NULL, NULL, &err), "out");
    refused(attn_builder_build(NULL, NULL, NULL, &metadata, &err), "builder");
    refused(attn_builder_restore(NULL, "", 0, NULL, &metadata, &err), "builder");
    refused(attn_metadata_get(NULL, 0, 0, &view, &err), "metadata");
    refused(attn_metadata_get_part(NULL, 0, &metadata, &err), "metadata");
    refused(attn_builder_restore(NULL, "", 0, NULL, NULL, &err), "out");
    refused(attn_metadata_get_part(NULL, 0, NULL, &err), "out");
    refused(attn_metadata_advance_step(NULL, NULL, NULL, &err), "metadata");
    refused(attn_metadata_serialise(NULL, NULL, 0, &size, &err), "metadata");
    refused(attn_event_create(NULL, &event, &err), "backend");
    refused(attn_event_record(NULL, NULL, NULL, &err), "backend");
    refused(attn_event_query(NULL, NULL, &err), "backend");
    refused(attn_event_synchronize(NULL, NULL, &err), "backend");
    refused(attn_graph_begin(NULL, NULL, &graph, &err), "backend");
    refused(attn_graph_end(NULL, &err), "graph");
    refused(attn_graph_launch(NULL, NULL, &err), "graph");
    cr_assert_null(attn_flavour_name(1000));
    cr_assert_null(attn_field_name(1000));
    attn_builder_destroy(NULL);
    attn_event_destroy(NULL, NULL);
    attn_graph_destroy(NULL);
}

static struct world world;

static struct attn_backend *open_backend(struct attn_problem *problem)
{
    struct attn_decision *decision;
    struct attn_backend *backend;
    ATTN_INIT(&err);
    world_open(&world, "gpu", NULL);
    cr_assert_eq(world_select(&world, PROBLEM, NULL, NULL, &decision), ATTN_OK, "%s", world.err.message);
    cr_assert_eq(attn_backend_open(world.context, decision, NULL, &backend, &err), ATTN_OK);
    attn_decision_destroy(decision);
    cr_assert_eq(attn_problem_parse(PROBLEM, problem, &err), ATTN_OK);
    return backend;
}

Test(nothing, places_that_are_null)
{
    struct attn_problem problem;
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;
    struct attn_buffer buffer = {&problem, 0};
    struct attn_backend *backend = open_backend(&problem);
    refused(attn_plan_create(backend, &problem, NULL, &err), "out");
    ATTN_INIT(&shape);
    refused(attn_kv_get_shape(backend, NULL, 0, NULL, &err), "out");
    refused(attn_kv_get_shape(backend, &problem, 0, &shape, &err), "pages");
    refused(attn_kv_get_shape(backend, &problem, UINT32_MAX, &shape, &err), "pages");
    cr_assert_eq(attn_kv_get_shape(backend, &problem, 4, &shape, &err), ATTN_OK);
    attn_kv_desc_init(&desc, &shape, &buffer);
    refused(attn_kv_create(backend, &desc, NULL, &err), "out");
    refused(attn_kv_write(backend, NULL, NULL, &err), "args");
    refused(attn_kv_slot_mapping(backend, NULL, NULL, &err), "args");
    refused(attn_kv_copy_slots(backend, NULL, NULL, &err), "args");
    refused(attn_kv_copy_blocks(backend, NULL, NULL, &err), "args");
    refused(attn_kv_swap_blocks(backend, NULL, NULL, &err), "args");
    refused(attn_kv_gather(backend, NULL, NULL, &err), "args");
    refused(attn_kv_convert(backend, NULL, NULL, &err), "args");
    refused(attn_kv_advance_step(backend, NULL, NULL, &err), "args");
    refused(attn_merge(backend, NULL, NULL, &err), "args");
    refused(attn_rescale(backend, NULL, NULL, &err), "args");
    refused(attn_memory_copy(backend, &buffer, &buffer, UINT64_MAX, ATTN_COPY_TO_HOST, NULL, &err), "size");
    cr_assert_eq(attn_memory_alloc(backend, UINT64_MAX, &buffer, &err), ATTN_E_INVALID);
    cr_assert_not_null(strstr(err.message, "accepted: 1 to 2^63 - 1 bytes"), "%s", err.message);
    refused(attn_memory_alloc(backend, UINT64_MAX, &buffer, &err), "size");
    /* What the mock does not offer is refused in its name. */
    void *event = &buffer;
    struct attn_graph *graph = NULL;
    cr_assert_eq(attn_event_create(backend, &event, &err), ATTN_E_UNSUPPORTED, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "gpu/flash-attn"), "%s", err.message);
    cr_assert_eq(attn_graph_begin(backend, NULL, &graph, &err), ATTN_E_UNSUPPORTED, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "gpu/flash-attn"), "%s", err.message);
    cr_assert(event == NULL && graph == NULL);
    attn_backend_destroy(backend);
    world_close(&world);
}

Test(nothing, lists_that_are_null_and_counts_beyond_limits)
{
    struct attn_problem problem;
    struct attn_merge_args merge;
    struct attn_rescale_args rescale;
    struct attn_context_options options;
    struct attn_context *context = NULL;
    struct attn_backend *backend = open_backend(&problem);
    ATTN_INIT(&merge);
    merge.dtype = ATTN_F32;
    merge.lse_base = ATTN_LSE_NATURAL;
    merge.count = 2;
    merge.num_tokens = merge.heads = merge.head_dim = 1;
    refused(attn_merge(backend, &merge, NULL, &err), "parts");
    ATTN_INIT(&rescale);
    rescale.dtype = ATTN_F32;
    rescale.lse_base = ATTN_LSE_NATURAL;
    rescale.count = 2;
    rescale.num_tokens = rescale.heads = rescale.head_dim = 1;
    refused(attn_rescale(backend, &rescale, NULL, &err), "all");
    ATTN_INIT(&options);
    options.variable_count = 3;
    refused(attn_context_create(&options, &context, &err), "variables");
    refused(attn_context_create(&options, NULL, &err), "out");
    attn_backend_destroy(backend);
    world_close(&world);
}

Test(nothing, problems_beyond_limits)
{
    struct attn_problem problem, out;
    char text[64];
    ATTN_INIT(&err);
    ATTN_INIT(&problem);
    ATTN_INIT(&out);
    cr_assert_eq(attn_problem_parse(PROBLEM, &problem, &err), ATTN_OK);
    refused(attn_problem_resolve(&problem, NULL, &err), "out");
    problem.head_dim_vo = 65537;
    refused(attn_problem_resolve(&problem, &out, &err), "head_dim");
    refused(attn_problem_format(&problem, text, sizeof text, NULL, &err), "head_dim");
    cr_assert_str_eq(text, "");
    problem.head_dim_vo = 64;
    problem.window_left = -2;
    refused(attn_problem_resolve(&problem, &out, &err), "window");
    problem.window_left = -1;
    problem.heads = UINT32_MAX;
    refused(attn_problem_resolve(&problem, &out, &err), "heads");
    refused(attn_problem_parse("heads=8 head_dim=x", &out, &err), "head_dim");
    refused(attn_problem_parse("heads=8 head_dim=64 q=bf16 softcap=1x", &out, &err), "softcap");
    refused(attn_problem_parse("heads=8 head_dim=64/ q=bf16", &out, &err), "head_dim");
    cr_assert_null(attn_problem_key(1000, NULL, NULL));
}

Test(nothing, members_beyond_an_older_callers_struct_are_zero)
{
    struct args {
        uint32_t struct_size, known, unknown;
    };
    const struct args old = {.struct_size = 2 * sizeof(uint32_t), .known = 7, .unknown = 9};
    struct args taken;
    memset(&taken, 0xff, sizeof taken);
    cr_assert_eq(attn__take(&taken, sizeof taken, &old, ATTN__ARGS_MIN, "args", &err), ATTN_OK);
    cr_assert_eq(taken.struct_size, sizeof taken);
    cr_assert_eq(taken.known, 7);
    cr_assert_eq(taken.unknown, 0);
}
