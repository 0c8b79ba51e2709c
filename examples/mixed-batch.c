/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One batch of a prompt, a chunk of a prompt and a single token, with plans in memory of the program's own.
 */
#include <attn/attn.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEQS = 3, HEADS = 8, KV_HEADS = 2, DIM = 64, BLOCK = 16, PAGES = 6, ROWS = 7 + 5 + 1 };

/* All keys weigh the same where q is 0, and a value is its position: row i of `out` is the mean of them. */
static float q[ROWS][HEADS][DIM], k[ROWS][KV_HEADS][DIM], v[ROWS][KV_HEADS][DIM], out[ROWS][HEADS][DIM];
static float k_cache[PAGES][BLOCK][KV_HEADS][DIM], v_cache[PAGES][BLOCK][KV_HEADS][DIM];

static struct attn_error err;

static void check(int32_t status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "mixed-batch: %s\n", err.message);
    exit(1);
}

static struct attn_span take(uint64_t size, size_t alignment)
{
    struct attn_span span = {{NULL, 0}, size};
    span.buffer.data = aligned_alloc(alignment, ((size_t)size / alignment + 1) * alignment);
    if (span.buffer.data == NULL)
        exit(1);
    memset(span.buffer.data, 0, (size_t)size); /* counters begin at 0 */
    return span;
}

static int differs(float value, float wanted)
{
    return !(value - wanted < 1e-4F && wanted - value < 1e-4F);
}

static const int32_t q_offsets[SEQS + 1] = {0, 7, 12, 13}; /* 7 tokens, 5, and 1 */
static const int32_t kv_lens[SEQS] = {7, 17, 31}; /* of which 0, 12 and 30 are in the cache already */
static const int32_t table[SEQS][2] = {{4, -1}, {0, 3}, {5, 1}};

/* Who has how many tokens, and where keys are. On a GPU the arrays of the batch are device memory. */
static void describe_batch(struct attn_batch *batch, struct attn_batch_host *host)
{
    ATTN_INIT(host);
    host->q_offsets = q_offsets;
    host->kv_lens = kv_lens;
    host->table = &table[0][0];
    ATTN_INIT(batch);
    batch->given = ATTN_GIVEN_HOST_COPIES; /* the host plans, and checks */
    batch->host = host;
    batch->seqs = SEQS;
    batch->num_tokens = ROWS;
    batch->max_q = 7;
    batch->max_kv = 31;
    batch->q_offsets.data = (void *)q_offsets;
    batch->kv_lens.data = (void *)kv_lens;
    batch->table.data = (void *)table;
    batch->table_stride = sizeof table[0];
    batch->table_width = 2;
    batch->pages = PAGES;
}

static void describe_cache(struct attn_kv_desc *cache)
{
    ATTN_INIT(cache);
    cache->k_dtype = cache->v_dtype = ATTN_F32;
    cache->pages = PAGES;
    cache->block = BLOCK;
    cache->kv_heads = KV_HEADS;
    cache->head_dim = DIM;
    cache->k.data = k_cache;
    cache->v.data = v_cache;
    cache->k_head_stride = cache->v_head_stride = sizeof k_cache[0][0][0];
    cache->k_token_stride = cache->v_token_stride = sizeof k_cache[0][0];
    cache->k_page_stride = cache->v_page_stride = sizeof k_cache[0];
}

/* Values of earlier steps, and of this one. */
static void fill_values(void)
{
    for (int s = 0; s < SEQS; s++)
        for (int i = 0; i < kv_lens[s]; i++) {
            const int first = kv_lens[s] - (q_offsets[s + 1] - q_offsets[s]);
            float(*value)[DIM] =
                i < first ? v_cache[table[s][i / BLOCK]][i % BLOCK] : v[q_offsets[s] + i - first];
            for (int c = 0; c < KV_HEADS * DIM; c++)
                value[c / DIM][c % DIM] = (float)i;
        }
}

/* A row sees positions up to its own. */
static int count_wrong(void)
{
    int wrong = 0;
    for (int s = 0; s < SEQS; s++)
        for (int row = q_offsets[s]; row < q_offsets[s + 1]; row++)
            for (int c = 0; c < HEADS * DIM; c++)
                wrong +=
                    differs(out[row][c / DIM][c % DIM], (float)(kv_lens[s] - q_offsets[s + 1] + row) / 2);
    return wrong;
}

/* Once for each layer: new keys and values into the cache, then attention. */
static void forward(struct attn_backend *backend, const struct attn_plan *plan,
                    const struct attn_batch *batch, const struct attn_span *schedule,
                    const struct attn_scratch *scratch)
{
    struct attn_kv_desc cache;
    struct attn_kv_write_args write;
    struct attn_tensors tensors;

    describe_cache(&cache);
    ATTN_INIT(&write);
    write.k_dtype = write.v_dtype = ATTN_F32;
    write.num_tokens = ROWS;
    write.k_new = attn_tensor_of(k, ATTN_F32, KV_HEADS, DIM);
    write.v_new = attn_tensor_of(v, ATTN_F32, KV_HEADS, DIM);
    write.kv_desc = &cache;
    write.addressing = ATTN_TABLE;
    write.batch = batch;
    ATTN_INIT(&tensors);
    tensors.softmax_scale = 0.125F;
    tensors.q = attn_tensor_of(q, ATTN_F32, HEADS, DIM);
    tensors.out = attn_tensor_of(out, ATTN_F32, HEADS, DIM);
    tensors.kv_desc = &cache;
    check(attn_kv_write(backend, &write, NULL, &err));
    check(attn_plan_run(plan, batch, &tensors, schedule, scratch, NULL, &err));
}

int main(void)
{
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_backend *backend;
    struct attn_plan *plan;
    struct attn_select_options options;
    struct attn_problem problem;
    struct attn_plan_sizes sizes;
    struct attn_batch_host host;
    struct attn_batch batch;
    struct attn_scratch scratch;

    ATTN_INIT(&err);
    ATTN_INIT(&options);
    options.device = "cpu"; /* the arrays above are host memory */
    check(attn_context_create(NULL, &context, &err));
    check(attn_problem_parse("heads=8 kv_heads=2 head_dim=64 q=f32 block=16 "
                             "max_seqs=8 max_q=16 max_kv=32 max_rows=32",
                             &problem, &err));
    check(attn_select(context, &problem, 1, &options, &decision, &err));
    check(attn_backend_open(context, decision, NULL, &backend, &err));

    /* Once for each layer class: the plan, and what its steps need. */
    ATTN_INIT(&sizes);
    ATTN_INIT(&scratch);
    check(attn_plan_create(backend, &problem, &plan, &err));
    check(attn_plan_get_sizes(plan, &sizes, &err));
    const struct attn_span schedule = take(sizes.schedule, sizes.alignment);
    const struct attn_span staging = take(sizes.staging, sizes.alignment);
    scratch.scratch = take(sizes.scratch, sizes.alignment);
    scratch.counters = take(sizes.counters, sizes.alignment);

    /* Once for each step. */
    describe_batch(&batch, &host);
    check(attn_plan_prepare(plan, &batch, &schedule, &staging, NULL, &err));

    fill_values();
    forward(backend, plan, &batch, &schedule, &scratch);
    const int wrong = count_wrong();
    printf("%s: %d sequences, %d tokens; %d numbers wrong\n", attn_backend_get_name(backend), SEQS, ROWS,
           wrong);
    free(schedule.buffer.data);
    free(staging.buffer.data);
    free(scratch.scratch.buffer.data);
    free(scratch.counters.buffer.data);
    attn_plan_destroy(plan);
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
    attn_context_destroy(context);
    return wrong != 0;
}
