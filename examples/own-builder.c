/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* An engine that makes the metadata of its steps itself: page lists and slots from its own sequences. */
#include <attn/attn.h>
#include <attn/device.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEQS = 2, HEADS = 8, KV_HEADS = 2, DIM = 64, BLOCK = 4, PAGES = 16, STEPS = 12, ROWS = 16 };

/* All keys weigh the same where q is 0, and a value is its position: row i of `out` is the mean of them. */
static float q[ROWS][HEADS][DIM], k[ROWS][KV_HEADS][DIM], v[ROWS][KV_HEADS][DIM], out[ROWS][HEADS][DIM];

static struct attn_error err;

static void check(int32_t status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "own-builder: %s\n", err.message);
    exit(1);
}

/* What the engine knows of a sequence. */
struct sequence {
    int32_t keys, tokens; /* before this step, and new in it */
    int32_t pages[PAGES], page_count;
};

/* What a step's calls read. Lists of pages as FlashInfer has them: addr=csr. */
struct metadata {
    int32_t q_offsets[SEQS + 1], kv_lens[SEQS], starts[SEQS + 1], pages[PAGES];
    int64_t slots[ROWS]; /* where new keys go: page * BLOCK + token */
};

static void build(struct sequence *sequences, int32_t *free_page, struct metadata *to)
{
    memset(to, 0, sizeof *to);
    for (int s = 0; s < SEQS; s++) {
        struct sequence *seq = &sequences[s];
        while (seq->page_count * BLOCK < seq->keys + seq->tokens)
            seq->pages[seq->page_count++] = (*free_page)++;
        for (int i = 0; i < seq->tokens; i++) {
            const int position = seq->keys + i;
            to->slots[to->q_offsets[s] + i] =
                (int64_t)seq->pages[position / BLOCK] * BLOCK + position % BLOCK;
        }
        memcpy(&to->pages[to->starts[s]], seq->pages, (size_t)seq->page_count * sizeof(int32_t));
        to->q_offsets[s + 1] = to->q_offsets[s] + seq->tokens;
        to->kv_lens[s] = seq->keys + seq->tokens;
        to->starts[s + 1] = to->starts[s] + seq->page_count;
    }
}

/* The step as libattn takes it: addresses of the engine's arrays, which prepare reads on the host too. */
static void describe(const struct metadata *metadata, struct attn_batch *batch, struct attn_batch_host *host)
{
    ATTN_INIT(host);
    host->q_offsets = metadata->q_offsets;
    host->kv_lens = metadata->kv_lens;
    host->csr_indptr = metadata->starts;
    host->csr_indices = metadata->pages;
    ATTN_INIT(batch);
    batch->given = ATTN_GIVEN_HOST_COPIES;
    batch->host = host;
    batch->seqs = SEQS;
    batch->num_tokens = (uint32_t)metadata->q_offsets[SEQS];
    batch->max_q = ROWS;
    batch->max_kv = 32;
    batch->pages = PAGES;
    batch->q_offsets.data = (void *)metadata->q_offsets; /* on a GPU: copies in device memory */
    batch->kv_lens.data = (void *)metadata->kv_lens;
    batch->csr_indptr.data = (void *)metadata->starts;
    batch->csr_indices.data = (void *)metadata->pages;
}

static struct attn_span take(struct attn_backend *backend, uint64_t size)
{
    struct attn_span span = {{NULL, 0}, size};
    if (size > 0)
        check(attn_memory_alloc(backend, size, &span.buffer, &err));
    return span;
}

/* Once for each layer class: the plan, and what its steps need. */
static struct attn_plan *make_plan(struct attn_backend *backend, const struct attn_problem *problem,
                                   struct attn_span *schedule, struct attn_span *staging,
                                   struct attn_scratch *scratch)
{
    struct attn_plan_sizes sizes;
    struct attn_plan *plan;

    ATTN_INIT(&sizes);
    ATTN_INIT(scratch);
    check(attn_plan_create(backend, problem, &plan, &err));
    check(attn_plan_get_sizes(plan, &sizes, &err));
    *schedule = take(backend, sizes.schedule);
    *staging = take(backend, sizes.staging);
    scratch->scratch = take(backend, sizes.scratch);
    scratch->counters = take(backend, sizes.counters);
    scratch->counters_dirty = 1; /* until the first run has left them 0 */
    return plan;
}

/* Once for each layer, with the step's metadata. */
static void forward(struct attn_backend *backend, const struct attn_plan *plan, struct attn_kv *kv,
                    const struct metadata *metadata, const struct attn_batch *batch,
                    const struct attn_span *schedule, const struct attn_scratch *scratch)
{
    struct attn_kv_write_args write;
    struct attn_tensors tensors;

    ATTN_INIT(&write);
    write.k_dtype = write.v_dtype = ATTN_F32;
    write.num_tokens = batch->num_tokens;
    write.k_new = attn_tensor_of(k, ATTN_F32, KV_HEADS, DIM);
    write.v_new = attn_tensor_of(v, ATTN_F32, KV_HEADS, DIM);
    write.kv = kv;
    write.slot_mapping.data = (void *)metadata->slots;
    check(attn_kv_write(backend, &write, NULL, &err));
    ATTN_INIT(&tensors);
    tensors.softmax_scale = 0.125F;
    tensors.q = attn_tensor_of(q, ATTN_F32, HEADS, DIM);
    tensors.out = attn_tensor_of(out, ATTN_F32, HEADS, DIM);
    tensors.kv = kv;
    check(attn_plan_run(plan, batch, &tensors, schedule, scratch, NULL, &err));
}

/* The position of a row of the step in its sequence. */
static int32_t find_position(const struct metadata *metadata, int row)
{
    int s = 0;
    while (row >= metadata->q_offsets[s + 1])
        s++;
    return metadata->kv_lens[s] - metadata->q_offsets[s + 1] + row;
}

static int differs(float value, float wanted)
{
    return !(value - wanted < 1e-4F && wanted - value < 1e-4F);
}

/* In the shape that the backend has for it. */
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

/* Values are positions, and so are the results, halved. */
static void fill_values(const struct metadata *metadata)
{
    for (int row = 0; row < metadata->q_offsets[SEQS]; row++)
        for (int c = 0; c < KV_HEADS * DIM; c++)
            v[row][c / DIM][c % DIM] = (float)find_position(metadata, row);
}

static int count_wrong(const struct metadata *metadata)
{
    int wrong = 0;
    for (int row = 0; row < metadata->q_offsets[SEQS]; row++)
        for (int c = 0; c < HEADS * DIM; c++)
            wrong += differs(out[row][c / DIM][c % DIM], (float)find_position(metadata, row) / 2);
    return wrong;
}

int main(void)
{
    struct sequence sequences[SEQS] = {{0, 11, {0}, 0}, {0, 3, {0}, 0}}; /* two prompts */
    struct metadata metadata;
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_backend *backend;
    struct attn_select_options options;
    struct attn_problem problem;
    struct attn_span schedule, staging;
    struct attn_buffer memory;
    struct attn_scratch scratch;
    struct attn_batch batch;
    struct attn_batch_host host;
    int32_t free_page = 0;
    int wrong = 0;

    ATTN_INIT(&err);
    ATTN_INIT(&options);
    options.device = "cpu"; /* the arrays above are host memory */
    check(attn_context_create(NULL, &context, &err));
    check(attn_problem_parse("heads=8 kv_heads=2 head_dim=64 q=f32 block=4 addr=csr "
                             "max_seqs=2 max_q=16 max_kv=32 max_rows=16",
                             &problem, &err));
    check(attn_select(context, &problem, 1, &options, &decision, &err));
    check(attn_backend_open(context, decision, NULL, &backend, &err));
    struct attn_kv *kv = make_cache(backend, &problem, &memory);
    struct attn_plan *plan = make_plan(backend, &problem, &schedule, &staging, &scratch);

    for (int step = 0; step < STEPS; step++) {
        build(sequences, &free_page, &metadata);
        describe(&metadata, &batch, &host);
        fill_values(&metadata);
        check(attn_plan_prepare(plan, &batch, &schedule, &staging, NULL, &err));
        forward(backend, plan, kv, &metadata, &batch, &schedule, &scratch);
        scratch.counters_dirty = 0;
        wrong += count_wrong(&metadata);
        for (int s = 0; s < SEQS; s++) {
            sequences[s].keys += sequences[s].tokens;
            sequences[s].tokens = 1; /* from now on */
        }
    }
    printf("%s: %d steps, %d pages; %d numbers wrong\n", attn_backend_get_name(backend), STEPS, free_page,
           wrong);

    attn_kv_destroy(kv);
    const struct attn_buffer *const blocks[] = {&memory, &schedule.buffer, &staging.buffer,
                                                &scratch.scratch.buffer, &scratch.counters.buffer};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        attn_memory_free(backend, blocks[i]);
    attn_plan_destroy(plan);
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
    attn_context_destroy(context);
    return wrong != 0;
}
