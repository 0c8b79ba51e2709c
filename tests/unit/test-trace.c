/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ATTN_LOG=trace: the line of each call, its fields, and nothing without it. */
#include <criterion/criterion.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn/device.h"
#include "dispatch/trace.h"
#include "world.h"

#define PROBLEM "heads=8 kv_heads=2 head_dim=64 q=bf16 max_seqs=4 max_q=8 max_kv=64 max_rows=16"

/* Counts what the library asks of malloc, where the test may stand in for it. */
static unsigned allocations;
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&                 \
    !defined(__clang__)
void *__libc_malloc(size_t size);
void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}
#endif

static struct world world;
static struct attn_backend *backend;
static struct attn_plan *plan;
static struct attn_batch batch;
static struct attn_span block;
static char memory[4096];

static void open_plan(void)
{
    struct attn_decision *decision;
    struct attn_problem problem;
    cr_assert_eq(world_select(&world, PROBLEM, NULL, NULL, &decision), ATTN_OK, "%s", world.err.message);
    cr_assert_eq(attn_backend_open(world.context, decision, NULL, &backend, &world.err), ATTN_OK);
    attn_decision_destroy(decision);
    cr_assert_eq(attn_problem_parse(PROBLEM, &problem, &world.err), ATTN_OK);
    cr_assert_eq(attn_plan_create(backend, &problem, &plan, &world.err), ATTN_OK, "%s", world.err.message);
    ATTN_INIT(&batch);
    batch.seqs = 2;
    batch.num_tokens = 3;
    batch.max_q = 2;
    batch.max_kv = 20;
    batch.table_width = 2;
    batch.table_stride = 8;
    batch.q_offsets.data = batch.kv_lens.data = batch.table.data = memory;
    block.buffer.data = memory;
    block.size = sizeof memory;
}

static void open_world(const char *mock, const char *variables)
{
    world_open(&world, mock, variables);
    open_plan();
    world.log_used = 0;
    world.log[0] = '\0';
}

static void close_world(void)
{
    attn_plan_destroy(plan);
    attn_backend_destroy(backend);
    world_close(&world);
}

static int32_t run(float softmax_scale)
{
    struct attn_problem problem;
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;
    struct attn_tensors tensors;
    struct attn_scratch scratch;
    struct attn_buffer buffer = {memory, 16};
    cr_assert_eq(attn_problem_parse(PROBLEM, &problem, &world.err), ATTN_OK);
    ATTN_INIT(&shape);
    cr_assert_eq(attn_kv_get_shape(backend, &problem, 4, &shape, &world.err), ATTN_OK);
    attn_kv_desc_init(&desc, &shape, &buffer);
    ATTN_INIT(&tensors);
    tensors.softmax_scale = softmax_scale;
    tensors.q.buffer.data = tensors.out.buffer.data = memory;
    tensors.q.token_stride = tensors.out.token_stride = 1024;
    tensors.q.head_stride = tensors.out.head_stride = 128;
    tensors.kv_desc = &desc;
    ATTN_INIT(&scratch);
    scratch.scratch = scratch.counters = block;
    return attn_plan_run(plan, &batch, &tensors, &block, &scratch, NULL, &world.err);
}

static void expect_line(const char *pattern)
{
    regex_t regex;
    cr_assert_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NEWLINE | REG_NOSUB), 0);
    cr_assert_eq(regexec(&regex, world.log, 0, NULL, 0), 0, "%s\nis not in\n%s", pattern, world.log);
    regfree(&regex);
}

#define PLAN "gpu/flash-attn,cuda:0,heads=8 [^,]*max_rows=16[^,]*,mock_64,seqs=2 tokens=3 max_q=2 max_kv=20,"
#define TIME "enqueued in [0-9]+\\.[0-9]{3} ms$"

Test(trace, calls_of_a_plan)
{
    open_world("gpu", "ATTN_LOG=trace");
    cr_assert_eq(attn_plan_prepare(plan, &batch, &block, &block, NULL, &world.err), ATTN_OK);
    expect_line("^6 call: prepare," PLAN TIME);
    cr_assert_eq(run(0.125F), ATTN_OK, "%s", world.err.message);
    expect_line("^6 call: run," PLAN TIME);
    cr_assert_eq(world_said(&world, "call: "), 2);
    close_world();
}

Test(trace, a_cpu_is_done_when_the_call_returns)
{
    open_world("host", "ATTN_LOG=trace");
    const uint64_t began = attn__trace_now();
    cr_assert_eq(run(0.125F), ATTN_OK, "%s", world.err.message);
    const double most = (double)(attn__trace_now() - began) * 1e-6;
    expect_line("^6 call: run,host/flash-attn,cpu:0,[^,]*,mock_64,[^,]*,[0-9]+\\.[0-9]{3} ms$");
    cr_assert_leq(strtod(strrchr(world.log, ',') + 1, NULL), most, "of %f ms in all: %s", most, world.log);
    close_world();
}

Test(trace, a_call_that_fails_says_how)
{
    open_world("gpu", "ATTN_LOG=trace");
    cr_assert_eq(run(666), ATTN_E_DEVICE_LOST);
    expect_line("^6 call: run,.*,failed with ATTN_E_DEVICE_LOST after [0-9]+\\.[0-9]{3} ms$");
    close_world();
}

Test(trace, a_call_that_is_refused_before_the_backend_has_no_line)
{
    open_world("gpu", "ATTN_LOG=trace:call");
    batch.num_tokens = 17;
    cr_assert_eq(run(0.125F), ATTN_E_INVALID);
    cr_assert_eq(world.log_used, 0, "%s", world.log);
    close_world();
}

Test(trace, a_merge_has_sizes_and_neither_problem_nor_kernels)
{
    open_world("gpu", "ATTN_LOG=trace");
    struct attn_merge_part parts[1];
    struct attn_merge_args args;
    memset(parts, 0, sizeof parts);
    ATTN_INIT(&args);
    args.dtype = ATTN_BF16;
    args.lse_base = ATTN_LSE_NATURAL;
    args.count = 1;
    args.num_tokens = 3;
    args.heads = 8;
    args.head_dim = 64;
    args.parts = parts;
    args.out.buffer.data = parts[0].out.buffer.data = parts[0].lse.buffer.data = memory;
    args.out.token_stride = parts[0].out.token_stride = 1024;
    args.out.head_stride = parts[0].out.head_stride = 128;
    parts[0].lse.token_stride = 32;
    parts[0].lse.head_stride = 4;
    cr_assert_eq(attn_merge(backend, &args, NULL, &world.err), ATTN_OK, "%s", world.err.message);
    expect_line("^6 call: merge,gpu/flash-attn,cuda:0,,,parts=1 tokens=3 heads=8 head_dim=64," TIME);
    close_world();
}

Test(trace, lines_in_a_file_take_no_memory)
{
    char file[256], text[1024];
    struct attn_context_options options;
    setenv("TZ", "ABC3DEF", 1); /* which the C library would take memory to read */
    world_open(&world, "host", NULL);
    attn_context_destroy(world.context);
    snprintf(file, sizeof file, "ATTN_LOG_FILE=%s", malformed_path(&world.malformed, "log"));
    const char *variables[] = {"ATTN_LOG=trace:call", file};
    ATTN_INIT(&options);
    options.plugin_path = world.malformed.path;
    options.variables = variables;
    options.variable_count = 2;
    cr_assert_eq(attn_context_create(&options, &world.context, &world.err), ATTN_OK);
    open_plan();
    const unsigned before = allocations;
    cr_assert_eq(run(0.125F), ATTN_OK, "%s", world.err.message);
    cr_assert_eq(allocations, before);
    FILE *log = fopen(malformed_path(&world.malformed, "log"), "re");
    cr_assert_not_null(log);
    text[fread(text, 1, sizeof text - 1, log)] = '\0';
    fclose(log);
    cr_assert_not_null(strstr(text, " libattn trace    call: run,host/flash-attn,cpu:0,"), "%s", text);
    close_world();
}

Test(trace, nothing_at_lower_levels)
{
    open_world("gpu", "ATTN_LOG=debug");
    cr_assert_eq(attn_plan_prepare(plan, &batch, &block, &block, NULL, &world.err), ATTN_OK);
    cr_assert_eq(run(0.125F), ATTN_OK);
    cr_assert_eq(world_said(&world, "call: "), 0);
    close_world();
    open_world("gpu", "ATTN_LOG=trace,warn:call");
    cr_assert_eq(run(0.125F), ATTN_OK);
    cr_assert_eq(world_said(&world, "call: "), 0);
    close_world();
}
