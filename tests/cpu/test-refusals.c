/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests that wrong arguments are refused by name before anything is read or written, and masks of features.
 */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <malloc.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "plugin.h"

static struct entered entered;
static struct attn_backend_impl *backend;
static struct step step;
static struct attn_error err;

static void set_up(void)
{
    plugin_enter(&entered, NULL, NULL);
    backend = plugin_open(&entered, 2);
    step_begin(&step, &entered, backend);
    ATTN_INIT(&err);
}

static void tear_down(void)
{
    step_end(&step, &entered);
    entered.table->close(backend);
    plugin_leave(&entered);
}

TestSuite(refusals, .init = set_up, .fini = tear_down);

static int32_t prepare(void)
{
    return entered.table->plan->prepare(step.plan, &step.batch, &step.schedule, NULL, NULL, &err);
}

static int32_t run_on(void *stream)
{
    return entered.table->plan->run(step.plan, &step.batch, &step.tensors, NULL, &step.kv, &step.schedule,
                                    &step.scratch, stream, &err);
}

#define REFUSED(call, status_, field_)                                                                       \
    do {                                                                                                     \
        cr_expect_eq((call), (status_), "%s", err.message);                                                  \
        cr_expect_str_eq(err.field, (field_), "%s", err.message);                                            \
        cr_expect_eq(err.reason, 0, "%s", err.message);                                                      \
        cr_expect(err.message[0] != '\0');                                                                   \
        ATTN_INIT(&err);                                                                                     \
    } while (0)

Test(refusals, batches)
{
    cr_assert_eq(prepare(), ATTN_OK);
    step.kv_lens[1] = 4201;
    REFUSED(prepare(), ATTN_E_INVALID, "kv_lens");
    step.kv_lens[1] = -1;
    REFUSED(prepare(), ATTN_E_INVALID, "kv_lens");
    step.kv_lens[1] = 4100;
    step.q_offsets[1] = 3;
    REFUSED(prepare(), ATTN_E_INVALID, "q_offsets");
    step.q_offsets[1] = 2;
    REFUSED(prepare(), ATTN_E_INVALID, "q_offsets"); /* two tokens, max_q is 1 */
    step.q_offsets[1] = 1;
    step.batch.num_tokens = 1;
    REFUSED(prepare(), ATTN_E_INVALID, "q_offsets");
    step.batch.num_tokens = 2;
    step.batch.table_width = 256; /* 4,100 keys take 257 pages */
    REFUSED(prepare(), ATTN_E_INVALID, "table_width");
    step.batch.table_width = STEP_PAGES;
    step.batch.pages = 200;
    REFUSED(prepare(), ATTN_E_INVALID, "table");
    step.batch.pages = 0;
    step.batch.kv_lens.byte_offset = 2;
    REFUSED(prepare(), ATTN_E_INVALID, "kv_lens");
    step.batch.kv_lens.byte_offset = 0;
    step.schedule.buffer.byte_offset = 8;
    REFUSED(prepare(), ATTN_E_INVALID, "schedule");
    step.schedule.buffer.byte_offset = 0;
    cr_assert_eq(prepare(), ATTN_OK);
}

Test(refusals, runs)
{
    REFUSED(run_on(NULL), ATTN_E_INVALID, "schedule"); /* never prepared */
    cr_assert_eq(prepare(), ATTN_OK);
    cr_assert_eq(run_on(NULL), ATTN_OK, "%s", err.message);
    step.batch.seqs = 1;
    REFUSED(run_on(NULL), ATTN_E_INVALID, "schedule");
    step.batch.seqs = 2;
    step.kv.pages = STEP_PAGES - 1; /* the table names the last page */
    REFUSED(run_on(NULL), ATTN_E_INVALID, "pages");
    step.kv.pages = STEP_PAGES;
    step.kv.v.byte_offset = 2;
    REFUSED(run_on(NULL), ATTN_E_INVALID, "kv.v");
    step.kv.v.byte_offset = 0;
    step.tensors.q.buffer.byte_offset = 2;
    REFUSED(run_on(NULL), ATTN_E_INVALID, "tensors.q");
    step.tensors.q.buffer.byte_offset = 0;
    step.tensors.sinks = (struct attn_buffer){step.cache, 2};
    step.tensors.sinks_dtype = ATTN_F32;
    REFUSED(run_on(NULL), ATTN_E_INVALID, "tensors.sinks");
    step.tensors.sinks_dtype = ATTN_BF16;
    cr_assert_eq(run_on(NULL), ATTN_OK, "%s", err.message);
    step.tensors.sinks.data = NULL;
    step.scratch.scratch.buffer.byte_offset = 8;
    REFUSED(run_on(NULL), ATTN_E_INVALID, "scratch");
    step.scratch.scratch.buffer.byte_offset = 0;
    struct attn_cpu_executor executor;
    ATTN_INIT(&executor);
    executor.kind = 9;
    REFUSED(run_on(&executor), ATTN_E_INVALID, "stream.kind");
    executor.kind = ATTN_EXECUTOR_PARALLEL_FOR;
    REFUSED(run_on(&executor), ATTN_E_INVALID, "stream.parallel_for");
    executor.kind = ATTN_EXECUTOR_TEAM;
    executor.nth = executor.ith = 2;
    cr_expect_eq(run_on(&executor), ATTN_E_INVALID);
    cr_expect_str_eq(err.message, "ith is 2, but nth is 2; 0 to nth - 1 are accepted");
    REFUSED(run_on(&executor), ATTN_E_INVALID, "stream.ith");
    executor.ith = 1;
    REFUSED(run_on(&executor), ATTN_E_INVALID, "stream.barrier");
    executor.struct_size--;
    REFUSED(run_on(&executor), ATTN_E_INVALID, "stream");
    struct attn_backend_impl *other = plugin_open(&entered, 1);
    struct attn_graph_impl *graph = NULL;
    void *stream = NULL;
    const struct attn_memory_table *memory = entered.table->memory;
    cr_assert_eq(memory->stream_create(other, &stream, &err), ATTN_OK);
    cr_assert_eq(memory->graph_begin(other, stream, &graph, &err), ATTN_OK);
    cr_expect_eq(run_on(stream), ATTN_E_INVALID);
    cr_expect_not_null(strstr(err.message, "by another backend; one of this backend is accepted"));
    REFUSED(run_on(stream), ATTN_E_INVALID, "stream");
    memory->graph_end(graph, NULL);
    memory->graph_destroy(graph);
    memory->stream_destroy(other, stream);
    entered.table->close(other);
    cr_assert_eq(run_on(NULL), ATTN_OK, "%s", err.message);
}

/* Threads of a caller that has none to give. */
static int32_t give_up(void *arg, attn_task_fn fn, void *task_arg, uint32_t n)
{
    (void)arg;
    (void)fn;
    (void)task_arg;
    (void)n;
    return ATTN_E_DEVICE;
}

/* Two of the works of a run are begun and never ended, as by a caller whose threads died. */
static int32_t give_up_early(void *arg, attn_task_fn fn, void *task_arg, uint32_t n)
{
    (void)fn;
    (void)task_arg;
    (void)n;
    memset(arg, 1, 16);
    return ATTN_E_DEVICE;
}

static bool counters_are_zero(void)
{
    const unsigned char *bytes = step.scratch.counters.buffer.data;
    uint32_t sum = 0;

    for (uint64_t i = 0; i < step.sizes.counters; i++)
        sum += bytes[i];
    return sum == 0;
}

Test(refusals, lengths_are_those_that_were_prepared)
{
    cr_assert_eq(prepare(), ATTN_OK);
    step.kv_lens[1]--;
    REFUSED(run_on(NULL), ATTN_E_INVALID, "schedule");
    step.kv_lens[1]++;
    cr_expect_eq(run_on(NULL), ATTN_OK);
}

Test(refusals, counters_are_clean_after_failures)
{
    float before[2 * STEP_HEADS * STEP_DIM];
    struct attn_cpu_executor executor;

    cr_assert_eq(prepare(), ATTN_OK);
    cr_assert_eq(run_on(NULL), ATTN_OK);
    cr_assert(counters_are_zero());
    memcpy(before, step.out, sizeof before);
    for (uint32_t i = 0; i < 2 * STEP_HEADS * STEP_DIM; i++)
        cr_assert(before[i] != 0 && isfinite(before[i]));

    ATTN_INIT(&executor);
    executor.kind = ATTN_EXECUTOR_PARALLEL_FOR;
    executor.parallel_for = give_up;
    REFUSED(run_on(&executor), ATTN_E_DEVICE, "parallel_for");
    cr_expect(counters_are_zero());
    executor.parallel_for = give_up_early;
    executor.arg = (char *)step.scratch.counters.buffer.data + step.sizes.counters - 16;
    REFUSED(run_on(&executor), ATTN_E_DEVICE, "parallel_for");
    cr_expect(counters_are_zero());

    /* One thread needs none of the caller's. */
    executor.threads = 1;
    cr_assert_eq(run_on(&executor), ATTN_OK);
    cr_expect_arr_eq(step.out, before, sizeof before);

    /* Said to be dirty, they are cleared; the split sequence is merged as before. */
    memset(step.scratch.counters.buffer.data, 0xff, step.sizes.counters);
    memset(step.out, 0xff, sizeof before);
    step.scratch.counters_dirty = 1;
    cr_assert_eq(run_on(NULL), ATTN_OK);
    cr_expect(counters_are_zero());
    cr_expect_arr_eq(step.out, before, sizeof before);
}

Test(refusals, writes_check_every_slot_first)
{
    int64_t slots[] = {5, -1, STEP_PAGES * STEP_BLOCK};
    float rows[3 * STEP_HEADS * STEP_DIM];
    float *slot = step.cache + 5 * STEP_HEADS * STEP_DIM, before = *slot;
    struct attn_kv_write_args args;

    for (uint32_t i = 0; i < 3 * STEP_HEADS * STEP_DIM; i++)
        rows[i] = 77;
    ATTN_INIT(&args);
    args.k_dtype = args.v_dtype = ATTN_F32;
    args.num_tokens = 3;
    args.k_new.buffer.data = rows;
    args.k_new.head_stride = STEP_DIM * sizeof(float);
    args.k_new.token_stride = STEP_HEADS * STEP_DIM * sizeof(float);
    args.v_new = args.k_new;
    args.slot_mapping.data = slots;
    REFUSED(entered.table->kv->write(backend, &args, NULL, &step.kv, NULL, &err), ATTN_E_INVALID,
            "slot_mapping");
    cr_expect_eq(*slot, before);
    step.kv.k.byte_offset = 2;
    REFUSED(entered.table->kv->write(backend, &args, NULL, &step.kv, NULL, &err), ATTN_E_INVALID, "kv.k");
    step.kv.k.byte_offset = 0;
    args.num_tokens = 2;
    cr_assert_eq(entered.table->kv->write(backend, &args, NULL, &step.kv, NULL, &err), ATTN_OK);
    cr_expect_eq(*slot, 77);
    args.slot_mapping.data = NULL;
    step.kv_lens[0] = 0; /* one new token, no room for it */
    args.batch = &step.batch;
    args.addressing = ATTN_TABLE;
    REFUSED(entered.table->kv->write(backend, &args, NULL, &step.kv, NULL, &err), ATTN_E_INVALID, "kv_lens");
}

Test(refusals, each_array_of_a_step_is_aligned)
{
    static const struct {
        size_t member;
        const char *name;
    } arrays[] = {
#define ARRAY(name) {offsetof(struct attn_kv_advance_step_args, name), #name}
        ARRAY(table),      ARRAY(query_starts), ARRAY(accepted),       ARRAY(sampled),      ARRAY(tokens),
        ARRAY(positions),  ARRAY(slots),        ARRAY(seq_lens),       ARRAY(context_lens), ARRAY(seq_starts),
        ARRAY(csr_indptr), ARRAY(csr_indices),  ARRAY(last_page_lens), ARRAY(csr_pages)};

    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        struct attn_kv_advance_step_args args;
        ATTN_INIT(&args);
        ((struct attn_buffer *)(void *)((char *)&args + arrays[i].member))->data = (char *)step.kv_lens + 2;
        REFUSED(entered.table->kv->advance_step(backend, &args, NULL, &err), ATTN_E_INVALID, arrays[i].name);
    }
}

/* Keys beyond a page, page numbers whose slots do not fit 64 bits. */
Test(refusals, slots_have_64_bits)
{
    int32_t q_offsets[] = {0, 1}, lens[] = {16}, indptr[] = {0, 1};
    int64_t indices[] = {0}, slots[] = {7};
    struct attn_kv_slot_mapping_args args;
    struct attn_batch batch;

    ATTN_INIT(&args);
    ATTN_INIT(&batch);
    batch.seqs = batch.num_tokens = batch.max_q = 1;
    batch.max_kv = 17;
    batch.q_offsets.data = q_offsets;
    batch.kv_lens.data = lens;
    args.batch = &batch;
    args.addressing = ATTN_DENSE;
    args.block = 16;
    args.slots.data = slots;
    cr_assert_eq(entered.table->kv->slot_mapping(backend, &args, NULL, &err), ATTN_OK, "%s", err.message);
    cr_expect_eq(slots[0], 15);
    lens[0] = 17;
    REFUSED(entered.table->kv->slot_mapping(backend, &args, NULL, &err), ATTN_E_INVALID, "kv_lens");
    lens[0] = 3;
    args.addressing = ATTN_CSR;
    args.index_dtype = ATTN_INT64;
    batch.csr_indptr.data = indptr;
    batch.csr_indices.data = indices;
    indices[0] = INT64_MAX / 16;
    REFUSED(entered.table->kv->slot_mapping(backend, &args, NULL, &err), ATTN_E_INVALID, "csr_indices");
    indices[0] = INT64_MAX / 16 - 1;
    cr_assert_eq(entered.table->kv->slot_mapping(backend, &args, NULL, &err), ATTN_OK, "%s", err.message);
    cr_expect_eq(slots[0], (INT64_MAX / 16 - 1) * 16 + 2);
}

/* A run of tokens without pages, long enough for several tasks. */
Test(refusals, slots_of_a_run_are_the_numbers_of_its_tokens)
{
    enum { TOKENS = 5000, FIRST = 20 };
    static int64_t slots[TOKENS];
    int32_t q_offsets[] = {0, TOKENS}, lens[] = {TOKENS}, starts[] = {FIRST, FIRST + TOKENS};
    struct attn_kv_slot_mapping_args args;
    struct attn_batch batch;

    ATTN_INIT(&args);
    ATTN_INIT(&batch);
    batch.seqs = 1;
    batch.num_tokens = batch.max_q = batch.max_kv = TOKENS;
    batch.q_offsets.data = q_offsets;
    batch.kv_lens.data = lens;
    batch.kv_offsets.data = starts;
    args.batch = &batch;
    args.addressing = ATTN_DENSE;
    args.block = STEP_BLOCK;
    args.slots.data = slots;
    cr_assert_eq(entered.table->kv->slot_mapping(backend, &args, NULL, &err), ATTN_OK, "%s", err.message);
    for (int i = 0; i < TOKENS; i++)
        cr_assert_eq(slots[i], FIRST + i, "slot %d is %lld", i, (long long)slots[i]);
}

/* Rows that are gathered end with the target and with the sequence. */
Test(refusals, gathers_end_with_their_sequences)
{
    int32_t offsets[] = {0, 40, 50}, starts[] = {0, 4090};
    static float rows[50 * STEP_HEADS * STEP_DIM];
    const struct attn_kv_ref cache = {NULL, &step.kv};
    struct attn_kv_gather_args args;

    ATTN_INIT(&args);
    args.batch = &step.batch;
    args.addressing = ATTN_TABLE;
    args.tokens = 50;
    args.k_dtype = ATTN_F32;
    args.k.buffer.data = rows;
    args.k.token_stride = STEP_HEADS * STEP_DIM * sizeof(float);
    args.k.head_stride = STEP_DIM * sizeof(float);
    args.offsets.data = offsets;
    args.starts.data = starts;
    cr_assert_eq(entered.table->kv->gather(backend, &args, &cache, NULL, &err), ATTN_OK, "%s", err.message);
    starts[0] = 1; /* 40 keys from key 1 on, of 40 */
    REFUSED(entered.table->kv->gather(backend, &args, &cache, NULL, &err), ATTN_E_INVALID, "starts");
    starts[0] = 0;
    starts[1] = 0;
    offsets[2] = 51;
    REFUSED(entered.table->kv->gather(backend, &args, &cache, NULL, &err), ATTN_E_INVALID, "offsets");
}

/* Name of the kernel that decodes, under a mask. */
static void get_kernel(const char *flags, uint32_t warnings, char *name, size_t size)
{
    struct entered other;
    struct attn_reason reasons[64];
    struct attn_kernel_info kernels[4];
    struct attn_query query = {.struct_size = sizeof query,
                               .reasons = reasons,
                               .reason_capacity = 64,
                               .kernels = kernels,
                               .kernel_capacity = 4};

    plugin_enter(&other, flags, NULL);
    cr_expect_eq(other.services.warnings, warnings, "%s: %s", flags, other.services.warning);
    cr_assert_eq(other.table->query(other.instance, NULL, &step.problem, &query), ATTN_OK);
    cr_assert_eq(query.accepted, 1);
    cr_assert(query.kernel_count >= 1 && query.reason_count <= 64);
    for (uint32_t i = 0; i < query.reason_count; i++)
        cr_expect(reasons[i].code != 0 && reasons[i].text[0] != '\0' && reasons[i].kernel[0] != '\0');
    snprintf(name, size, "%s", kernels[0].name);
    plugin_leave(&other);
}

Test(refusals, flags_mask_kernels)
{
    char best[64], name[64];

    get_kernel("", 0, best, sizeof best);
    get_kernel("none", 0, name, sizeof name);
    cr_expect_str_eq(name, "paged_attention_c");
    get_kernel("f16c", strcmp(best, name) != 0, name, sizeof name); /* no level of the machine's is left */
    cr_expect_str_eq(name, "paged_attention_c");
    get_kernel("-avx512,-avx2,-sve512,-sve256,-neon", 0, name, sizeof name);
    cr_expect_str_eq(name, "paged_attention_c");
    get_kernel("amx,avx512,avx2,f16c,sve512,sve256,neon", 0, name, sizeof name);
    cr_expect_str_eq(name, best);
    get_kernel("-fancy", 1, name, sizeof name);
    cr_expect_str_eq(name, best);
    if (strcmp(best, "paged_attention_c") == 0)
        cr_skip("this machine has one level only");
}

Test(refusals, bad_thread_numbers_are_logged)
{
    struct entered other;

    plugin_enter(&other, NULL, "many");
    cr_expect_eq(other.services.warnings, 1);
    cr_expect(strstr(other.services.warning, "many") != NULL);
    plugin_leave(&other);
    plugin_enter(&other, NULL, "3");
    cr_expect_eq(other.services.warnings, 0);
    plugin_leave(&other);
}

Test(refusals, problems_name_their_key)
{
    static const struct {
        size_t member;
        uint32_t value;
        uint32_t code;
    } cases[] = {
        {offsetof(struct attn_problem, q_dtype), ATTN_INT32, ATTN_REASON_DTYPE_Q},
        {offsetof(struct attn_problem, out_scale), ATTN_SCALES_TOKEN_HEAD, ATTN_REASON_SCALES},
        {offsetof(struct attn_problem, head_dim), 65537, ATTN_REASON_HEAD_DIM},
        {offsetof(struct attn_problem, max_kv), UINT32_MAX, ATTN_REASON_MAX_KV},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct attn_problem problem = step.problem;
        struct attn_reason reasons[64];
        struct attn_query query = {.struct_size = sizeof query, .reasons = reasons, .reason_capacity = 64};
        bool found = false;

        memcpy((char *)&problem + cases[i].member, &cases[i].value, sizeof cases[i].value);
        cr_assert_eq(entered.table->query(entered.instance, NULL, &problem, &query), ATTN_OK);
        cr_expect_eq(query.accepted, 0);
        for (uint32_t k = 0; k < query.reason_count && k < 64; k++) {
            found |= reasons[k].code == cases[i].code;
            if (strcmp(reasons[k].field, "out_scale") == 0)
                cr_expect_str_eq(reasons[k].got, "token-head");
        }
        cr_expect(found, "case %zu", i);
    }
    const struct attn_device second = {.type = ATTN_DEVICE_CPU, .ordinal = 1};
    struct attn_reason reason;
    struct attn_query query = {.struct_size = sizeof query, .reasons = &reason, .reason_capacity = 1};
    cr_assert_eq(entered.table->query(entered.instance, &second, &step.problem, &query), ATTN_OK);
    cr_expect_eq(query.accepted, 0);
    cr_expect_eq(reason.code, ATTN_REASON_DEVICE);
    cr_expect_str_eq(reason.wanted, "cpu:0");
}

Test(refusals, shapes_name_the_type_that_no_cache_has)
{
    struct attn_problem problem = step.problem;
    struct attn_kv_shape shape;

    ATTN_INIT(&shape);
    problem.k_dtype = ATTN_INT32;
    cr_assert_eq(entered.table->kv->shape(backend, &problem, 4, &shape, &err), ATTN_E_UNSUPPORTED);
    cr_expect(err.reason == ATTN_REASON_DTYPE_K && strcmp(err.field, "k") == 0, "%s", err.message);
    problem = step.problem;
    problem.v_dtype = ATTN_INT32;
    cr_assert_eq(entered.table->kv->shape(backend, &problem, 4, &shape, &err), ATTN_E_UNSUPPORTED);
    cr_expect(err.reason == ATTN_REASON_DTYPE_V && strcmp(err.field, "v") == 0, "%s", err.message);
}

Test(refusals, shapes_of_caches_in_blocks)
{
    struct attn_problem problem = step.problem;
    struct attn_kv_shape shape;

    ATTN_INIT(&shape);
    problem.k_dtype = ATTN_Q8_0;
    problem.head_dim = problem.head_dim_vo = 40;
    REFUSED(entered.table->kv->shape(backend, &problem, 4, &shape, &err), ATTN_E_INVALID, "head_dim");
    problem.head_dim = problem.head_dim_vo = 64;
    problem.layout = ATTN_PAGED_X;
    REFUSED(entered.table->kv->shape(backend, &problem, 4, &shape, &err), ATTN_E_INVALID, "layout");
    problem.layout = ATTN_STRIDED;
    problem.k_dtype = problem.v_dtype = ATTN_Q4_0;
    cr_assert_eq(entered.table->kv->shape(backend, &problem, 4, &shape, &err), ATTN_OK, "%s", err.message);
    cr_expect_eq(shape.desc.k_head_stride, 36);
    /* Keys of an odd number of bytes: values still begin at even addresses. */
    problem.k_dtype = ATTN_INT8;
    problem.k_scale = ATTN_SCALES_UNIT;
    problem.head_dim = 65;
    cr_assert_eq(entered.table->kv->shape(backend, &problem, 4, &shape, &err), ATTN_OK, "%s", err.message);
    cr_expect_eq(shape.desc.v_head_stride, 66);
    cr_expect_eq(shape.bytes, 2 * UINT64_C(66) * problem.kv_heads * problem.block * 4);
}

Test(refusals, a_gather_checks_its_lengths)
{
    const struct attn_kv_ref cache = {NULL, &step.kv};
    struct attn_kv_gather_args args;

    ATTN_INIT(&args);
    args.batch = &step.batch;
    args.addressing = ATTN_TABLE;
    step.kv_lens[1] = -1;
    REFUSED(entered.table->kv->gather(backend, &args, &cache, NULL, &err), ATTN_E_INVALID, "kv_lens");
}

/* One name where one kernel serves both phases, else both. */
Test(refusals, a_plan_names_its_kernels)
{
    struct attn_kernel_info kernels[4];
    struct attn_query query = {.struct_size = sizeof query, .kernels = kernels, .kernel_capacity = 4};
    struct attn_plan_info info;
    char wanted[256];

    ATTN_INIT(&info);
    cr_assert_eq(entered.table->query(entered.instance, NULL, &step.problem, &query), ATTN_OK);
    cr_assert(query.kernel_count == 1 || query.kernel_count == 2);
    snprintf(wanted, sizeof wanted, "%s%s%s", kernels[0].name, query.kernel_count == 2 ? "," : "",
             query.kernel_count == 2 ? kernels[1].name : "");
    cr_assert_eq(entered.table->plan->describe(step.plan, &info), ATTN_OK);
    cr_assert_str_eq(info.kernels, wanted);
}

Test(refusals, both_caches_of_a_move_are_aligned)
{
    const struct attn_kv_ref good = {NULL, &step.kv};
    struct attn_kv_desc wrong = step.kv;
    const struct attn_kv_ref bad = {NULL, &wrong};
    struct attn_kv_convert_args convert;
    struct attn_kv_swap_blocks_args swap;

    ATTN_INIT(&convert);
    ATTN_INIT(&swap);
    wrong.k.byte_offset = 2;
    REFUSED(entered.table->kv->convert(backend, &convert, &bad, &good, NULL, &err), ATTN_E_INVALID, "kv.k");
    REFUSED(entered.table->kv->convert(backend, &convert, &good, &bad, NULL, &err), ATTN_E_INVALID, "kv.k");
    REFUSED(entered.table->kv->swap_blocks(backend, &swap, &bad, &good, NULL, &err), ATTN_E_INVALID, "kv.k");
    REFUSED(entered.table->kv->swap_blocks(backend, &swap, &good, &bad, NULL, &err), ATTN_E_INVALID, "kv.k");
}

Test(refusals, moves_of_slots_stay_within_their_caches)
{
    const struct attn_kv_ref cache = {NULL, &step.kv};
    int64_t pairs[] = {0, STEP_PAGES * STEP_BLOCK, 0};
    struct attn_kv_copy_slots_args args;

    ATTN_INIT(&args);
    args.count = 1;
    args.pairs.data = pairs;
    REFUSED(entered.table->kv->copy_slots(backend, &args, &cache, &cache, NULL, &err), ATTN_E_INVALID,
            "pairs");
    args.pairs.data = pairs + 1;
    REFUSED(entered.table->kv->copy_slots(backend, &args, &cache, &cache, NULL, &err), ATTN_E_INVALID,
            "pairs");
    pairs[1]--;
    cr_assert_eq(entered.table->kv->copy_slots(backend, &args, &cache, &cache, NULL, &err), ATTN_OK, "%s",
                 err.message);
}

/* Other scales of the host are copied once; these change from step to step. */
Test(refusals, graphs_keep_no_host_scales_of_tokens)
{
    static const char *const names[] = {"tensors.q_scale", "tensors.k_new_scale", "tensors.v_new_scale",
                                        "tensors.out_scale"};
    struct attn_scale *const scales[] = {&step.tensors.q_scale, &step.tensors.k_new_scale,
                                         &step.tensors.v_new_scale, &step.tensors.out_scale};
    const struct attn_memory_table *memory = entered.table->memory;
    struct attn_graph_impl *graph = NULL;
    void *stream = NULL;

    cr_assert_eq(memory->stream_create(backend, &stream, &err), ATTN_OK);
    cr_assert_eq(memory->graph_begin(backend, stream, &graph, &err), ATTN_OK);
    for (int i = 0; i < 8; i++) {
        const struct attn_scale kept = *scales[i / 2];
        scales[i / 2]->kind = ATTN_SCALE_HOST;
        scales[i / 2]->granularity = i % 2 == 0 ? ATTN_SCALES_TOKEN_HEAD : ATTN_SCALES_HEAD;
        scales[i / 2]->token_stride = i % 2 == 0 ? 0 : 4;
        cr_expect_eq(run_on(stream), ATTN_E_UNSUPPORTED, "%s", names[i / 2]);
        cr_expect_str_eq(err.field, names[i / 2]);
        cr_expect_eq(err.reason, ATTN_REASON_SCALES);
        *scales[i / 2] = kept;
    }
    cr_expect_eq(run_on(stream), ATTN_OK, "%s", err.message);
    cr_expect_eq(memory->graph_end(graph, &err), ATTN_OK, "%s", err.message);
    memory->graph_destroy(graph);
    memory->stream_destroy(backend, stream);
}

Test(refusals, more_threads_than_there_may_be)
{
    const struct attn_device device = {.type = ATTN_DEVICE_CPU};
    struct attn_backend_impl *most = plugin_open(&entered, 1024), *more = NULL;
    struct attn_open_config config;

    entered.table->close(most);
    ATTN_INIT(&config);
    config.threads = 1025;
    REFUSED(entered.table->open(entered.instance, &device, &config, &more, &err), ATTN_E_INVALID, "threads");
}

/* The device has the name of the machine's first processor, where the system tells one. */
Test(refusals, the_name_of_the_device)
{
    struct attn_device_info info;
    char line[256], wanted[256] = "CPU";
    uint32_t count = 0;
    FILE *file = fopen("/proc/cpuinfo", "re");

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "model name : %255[^\n]", wanted) == 1)
            break;
    if (file != NULL)
        fclose(file);
    cr_assert_eq(entered.plugin->get_devices(entered.instance, &info, 1, &count, &err), ATTN_OK);
    cr_assert_eq(count, 1);
    cr_assert_eq(strncmp(info.name, wanted, sizeof info.name - 1), 0, "%s, not %s", info.name, wanted);
}

/* No feature of a problem leaves it to the reference kernel where there is a level of vector instructions. */
Test(refusals, every_feature_has_optimised_kernels)
{
    static const struct {
        size_t member;
        uint32_t value;
    } cases[] = {
        {offsetof(struct attn_problem, alibi), ATTN_ALIBI_KEY},
        {offsetof(struct attn_problem, alibi), ATTN_ALIBI_DISTANCE},
        {offsetof(struct attn_problem, mask), ATTN_MASK_BITS},
        {offsetof(struct attn_problem, mask), ATTN_MASK_F16},
        {offsetof(struct attn_problem, kv_source), ATTN_KV_CACHE_NEW},
        {offsetof(struct attn_problem, layout), ATTN_PAGED_X},
        {offsetof(struct attn_problem, q_dtype), ATTN_INT8},
        {offsetof(struct attn_problem, k_dtype), ATTN_E4M3},
        {offsetof(struct attn_problem, v_dtype), ATTN_E5M2FNUZ},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct attn_problem problem = step.problem;
        struct attn_reason reasons[64];
        struct attn_kernel_info kernels[4];
        struct attn_query query = {.struct_size = sizeof query, .reasons = reasons, .reason_capacity = 64};

        query.kernels = kernels;
        query.kernel_capacity = 4;
        cr_assert_eq(entered.table->query(entered.instance, NULL, &step.problem, &query), ATTN_OK);
        if (strcmp(kernels[0].name, "paged_attention_c") == 0)
            cr_skip("this machine has no AVX2: one level only");
        cr_expect_eq(kernels[0].speed, ATTN_SPEED_OPTIMISED);
        memcpy((char *)&problem + cases[i].member, &cases[i].value, sizeof cases[i].value);
        cr_assert_eq(entered.table->query(entered.instance, NULL, &problem, &query), ATTN_OK);
        cr_expect(query.accepted == 1 && query.kernel_count == 2, "case %zu", i);
        for (uint32_t k = 0; k < query.kernel_count; k++)
            cr_expect_eq(kernels[k].speed, ATTN_SPEED_OPTIMISED, "case %zu: %s", i, kernels[k].name);
    }
}

Test(refusals, units_are_the_processors_of_the_thread)
{
    struct attn_device_info info;
    uint32_t count = 0;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((unsigned)sched_getcpu(), &set);
    cr_assert_eq(sched_setaffinity(0, sizeof set, &set), 0);
    cr_assert_eq(entered.plugin->get_devices(entered.instance, &info, 1, &count, &err), ATTN_OK);
    cr_expect_eq(count, 1);
    cr_expect_eq(info.units, 1);
}

Test(refusals, memory_is_given_back)
{
    const struct attn_memory_table *memory = entered.table->memory;
    const struct mallinfo2 before = mallinfo2();
    struct attn_buffer buffer;

    cr_assert_eq(memory->alloc(backend, 4096, &buffer, &err), ATTN_OK);
    memory->free(backend, &buffer);
    memory->free(backend, NULL);
    cr_expect_eq(mallinfo2().uordblks, before.uordblks);
}
