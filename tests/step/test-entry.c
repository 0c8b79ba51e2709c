/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * attn_kv_advance_step on the CPU plugin: random batches against the plainest way to say the same, arrays
 * that end at a page that nobody may touch, and refusals that leave everything alone.
 */
#include "attn/attn.h"
#include "step.h"

#define CASES 60000
#define SEQS  12
#define WIDTH 9
#define ROWS  60

unsigned long checks_failed;

/* The arrays of a batch. */
struct arrays {
    int64_t table[SEQS * WIDTH]; /* 32-bit elements use the front half */
    int32_t query_starts[SEQS + 1], accepted[SEQS];
    int64_t sampled[ROWS], tokens[ROWS], positions[ROWS], slots[ROWS];
    int32_t seq_lens[SEQS], context_lens[SEQS], seq_starts[SEQS + 1];
    int32_t indptr[SEQS + 1], last[SEQS], pages[SEQS];
    int64_t indices[SEQS * WIDTH];
};

enum { ARRAYS = 14 };
static const size_t places[ARRAYS] = {
    offsetof(struct arrays, table),        offsetof(struct arrays, query_starts),
    offsetof(struct arrays, accepted),     offsetof(struct arrays, sampled),
    offsetof(struct arrays, tokens),       offsetof(struct arrays, positions),
    offsetof(struct arrays, slots),        offsetof(struct arrays, seq_lens),
    offsetof(struct arrays, context_lens), offsetof(struct arrays, seq_starts),
    offsetof(struct arrays, indptr),       offsetof(struct arrays, indices),
    offsetof(struct arrays, last),         offsetof(struct arrays, pages),
};
static struct fence fences[ARRAYS];

struct batch {
    struct attn_kv_advance_step_args args;
    struct arrays at;
    size_t bytes[ARRAYS]; /* in use; 0 = not given */
    int wide;
};

static int64_t cell(const struct batch *b, uint32_t seq, int64_t page)
{
    const int64_t i = (int64_t)seq * b->args.table_width + page;
    return b->wide ? b->at.table[i] : ((const int32_t *)(const void *)b->at.table)[i];
}

static void set_cell(int64_t *array, int wide, int64_t i, int64_t value)
{
    if (wide)
        array[i] = value;
    else
        ((int32_t *)(void *)array)[i] = (int32_t)value;
}

static void make_rows(struct dice *dice, struct batch *b)
{
    struct attn_kv_advance_step_args *args = &b->args;
    const int uneven = dice_roll(dice, 0, 2) == 0;

    for (uint32_t i = 0; i < args->queries; i++)
        b->at.query_starts[i + 1] = b->at.query_starts[i] + (uneven ? (int32_t)dice_roll(dice, 0, 4) : 1);
    b->bytes[1] = uneven ? (args->queries + 1) * sizeof(int32_t) : 0;
    args->num_tokens = (uint32_t)b->at.query_starts[args->queries] + (args->seqs - args->queries);
    for (uint32_t i = 0; i < ROWS; i++) {
        b->at.sampled[i] = dice_roll(dice, 0, 50000);
        b->at.tokens[i] = b->at.positions[i] = b->at.slots[i] = 77;
    }
    for (uint32_t i = 0; i < args->seqs; i++) {
        const int32_t rows = i < args->queries ? b->at.query_starts[i + 1] - b->at.query_starts[i] : 1;
        b->at.accepted[i] = (int32_t)dice_roll(dice, 0, 3);
        b->at.seq_lens[i] = i < args->queries ? (int32_t)dice_roll(dice, rows, rows + 70) : 1;
        b->at.last[i] = b->at.pages[i] = 5;
    }
}

static void make_batch(struct dice *dice, struct batch *b)
{
    struct attn_kv_advance_step_args *args = &b->args;

    memset(b, 0, sizeof *b);
    ATTN_INIT(args);
    args->block = (uint32_t)dice_roll(dice, 1, 20);
    args->queries = (uint32_t)dice_roll(dice, 0, 8);
    args->seqs = args->queries + (uint32_t)(dice_roll(dice, 0, 1) ? dice_roll(dice, 0, 4) : 0);
    args->keep_padding = (uint32_t)dice_roll(dice, 0, 1);
    args->windowed = dice_roll(dice, 0, 2) == 0 ? (uint32_t)dice_roll(dice, 0, args->queries) : 0;
    args->window = (uint32_t)dice_roll(dice, 0, 4);
    args->table_width = (uint32_t)dice_roll(dice, 1, WIDTH);
    b->wide = (int)dice_roll(dice, 0, 1);
    args->index_dtype = b->wide ? ATTN_INT64 : ATTN_INT32;
    make_rows(dice, b);
    const uint32_t cells = args->seqs * args->table_width, size = b->wide ? 8 : 4;
    for (uint32_t i = 0; i < cells; i++)
        set_cell(b->at.table, b->wide, i,
                 dice_roll(dice, 0, 9) == 0 ? -1
                                            : dice_roll(dice, 0, b->wide ? INT64_C(1) << 40 : INT32_MAX));
    args->table_stride = (int64_t)args->table_width * size;
    args->csr_capacity = (uint64_t)dice_roll(dice, 0, cells);
    const int csr = (int)dice_roll(dice, 0, 1);
    const size_t n = args->seqs * sizeof(int32_t), r = args->num_tokens * sizeof(int64_t);
    const size_t real = (size_t)b->at.query_starts[args->queries] * sizeof(int64_t);
    b->bytes[0] = (size_t)cells * size;
    b->bytes[2] = dice_roll(dice, 0, 1) ? args->queries * sizeof(int32_t) : 0;
    b->bytes[3] = real;
    b->bytes[4] = b->bytes[5] = b->bytes[6] = r;
    b->bytes[7] = n;
    b->bytes[8] = args->queries * sizeof(int32_t);
    b->bytes[9] = n + sizeof(int32_t);
    b->bytes[10] = csr ? n + sizeof(int32_t) : 0;
    b->bytes[11] = csr ? args->csr_capacity * size : 0;
    b->bytes[12] = b->bytes[13] = csr ? n : 0;
}

/* The step, one sequence after the other; false if it must be refused. */
static int plain_step(struct batch *b)
{
    const struct attn_kv_advance_step_args *args = &b->args;
    struct arrays *at = &b->at;
    uint64_t pages = 0;

    for (uint32_t i = 0; i < args->queries; i++) {
        at->seq_lens[i] += b->bytes[2] ? at->accepted[i] : 1;
        const int64_t block = args->block, len = at->seq_lens[i];
        if (len > block * args->table_width)
            return 0;
        const int32_t first = at->query_starts[i], end = at->query_starts[i + 1];
        for (int32_t row = first; row < end; row++) {
            at->tokens[row] = at->sampled[row];
            at->positions[row] = len - end + row;
            const int64_t page = cell(b, i, at->positions[row] / block);
            const int hidden = i < args->windowed && at->positions[row] + args->window < end - first;
            at->slots[row] = page < 0 || hidden ? -1 : page * block + at->positions[row] % block;
        }
        at->context_lens[i] = (int32_t)len - (end - first);
        at->pages[i] = 0;
        for (int64_t token = 0; token < len; token += block, at->pages[i]++, pages++)
            if (pages < args->csr_capacity)
                set_cell(at->indices, b->wide, (int64_t)pages, cell(b, i, token / block));
        at->last[i] = (int32_t)(len == 0 ? block : (len - 1) % block + 1);
        at->indptr[i + 1] = (int32_t)pages;
    }
    for (int64_t row = at->query_starts[args->queries]; row < args->num_tokens && !args->keep_padding;
         row++) {
        at->tokens[row] = at->positions[row] = 0;
        at->slots[row] = -1;
    }
    for (uint32_t i = args->queries; i < args->seqs; i++)
        at->indptr[i + 1] = (int32_t)pages;
    for (uint32_t i = 0; i < args->seqs; i++)
        at->seq_starts[i + 1] = at->seq_starts[i] + at->seq_lens[i];
    return !b->bytes[10] || pages <= args->csr_capacity;
}

static void give(struct batch *b, char *given[ARRAYS])
{
    struct attn_kv_advance_step_args *a = &b->args;
    struct attn_buffer *buffers[ARRAYS] = {
        &a->table,      &a->query_starts, &a->accepted,       &a->sampled,      &a->tokens,
        &a->positions,  &a->slots,        &a->seq_lens,       &a->context_lens, &a->seq_starts,
        &a->csr_indptr, &a->csr_indices,  &a->last_page_lens, &a->csr_pages};

    for (int i = 0; i < ARRAYS; i++) {
        /* Arrays of no elements are given too, where the batch has the rest of their kind. */
        const int left_out = b->bytes[i] == 0 && (i == 1 || i == 2 || (i >= 10 && b->bytes[10] == 0));
        given[i] = fence_end(&fences[i], b->bytes[i]);
        if (i == 3 && b->args.block % 3 == 0)
            given[3] = fence_end(&fences[4], b->bytes[4]); /* the tokens themselves */
        if (left_out)
            continue;
        buffers[i]->data = given[i];
        memcpy(given[i], (const char *)&b->at + places[i], b->bytes[i]);
    }
    if (given[3] == given[4])
        memcpy(given[3], b->at.sampled, b->bytes[3]);
}

static void one_case(struct attn_backend *backend, uint64_t seed)
{
    struct dice dice = {seed};
    struct batch b, before;
    struct attn_error err;
    char *given[ARRAYS];

    ATTN_INIT(&err);
    make_batch(&dice, &b);
    give(&b, given);
    before = b;
    if (given[3] == given[4])
        memcpy(before.at.tokens, before.at.sampled, b.bytes[3]);
    const int served = plain_step(&b);
    const int32_t status = attn_kv_advance_step(backend, &b.args, NULL, &err);
    CHECK(status == (served ? ATTN_OK : ATTN_E_INVALID), seed, "%d %s", status, err.message);
    for (int i = 0; i < ARRAYS; i++)
        if (i != 3)
            CHECK(b.bytes[i] == 0 || memcmp(given[i], (const char *)(served ? &b.at : &before.at) + places[i],
                                            b.bytes[i]) == 0,
                  seed, "array %d", i);
}

static void check_refusals(struct attn_backend *backend)
{
    int32_t table[] = {3, 4}, lens[] = {5}, accepted[] = {-1}, starts[] = {0, 9};
    int64_t tokens[2] = {1, 2}, slots[2] = {8, 9};
    struct attn_kv_advance_step_args good, bad;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&good);
    good.block = 8;
    good.seqs = good.queries = good.num_tokens = 1;
    good.table_width = 2;
    good.table_stride = 8;
    good.table.data = table;
    good.seq_lens.data = lens;
    good.slots.data = slots;
#define REFUSED(member, value, name)                                                                         \
    do {                                                                                                     \
        bad = good;                                                                                          \
        bad.member = (value);                                                                                \
        CHECK(attn_kv_advance_step(backend, &bad, NULL, &err) == ATTN_E_INVALID &&                           \
                  strcmp(err.field, name) == 0 && err.reason == 0,                                           \
              0, "%s", err.message);                                                                         \
        CHECK(lens[0] == 5 && slots[0] == 8, 0, "%s, and written", name);                                    \
    } while (0)
    REFUSED(block, 0, "block");
    REFUSED(seqs, 0, "seqs");
    REFUSED(seqs, UINT32_MAX, "seqs");
    REFUSED(windowed, 2, "windowed");
    REFUSED(num_tokens, 0, "query_start_loc");
    REFUSED(index_dtype, ATTN_F32, "index_dtype");
    CHECK(strstr(err.message, "accepted: ATTN_INT32 and ATTN_INT64") != NULL, 0, "%s", err.message);
    REFUSED(seq_lens.data, NULL, "seq_lens");
    REFUSED(table.data, NULL, "table");
    REFUSED(table_stride, 6, "table_stride");
    REFUSED(slots.byte_offset, 4, "slots");
    REFUSED(sampled.data, tokens, "tokens");
    REFUSED(csr_indptr.data, starts, "csr_indices");
    REFUSED(accepted.data, accepted, "accepted");
    REFUSED(query_starts.data, starts, "seq_lens");
    REFUSED(struct_size, 0, "args");
    REFUSED(table_width, 0, "block_tables");
    CHECK(attn_kv_advance_step(NULL, &good, NULL, &err) == ATTN_E_INVALID, 0, "%s", err.message);
    CHECK(attn_kv_advance_step(backend, NULL, NULL, &err) == ATTN_E_INVALID, 0, "%s", err.message);
    CHECK(attn_kv_advance_step(backend, &good, NULL, &err) == ATTN_OK && lens[0] == 6 &&
              slots[0] == 3 * 8 + 5,
          0, "%s", err.message);
}

int main(void)
{
    struct attn_context *context = NULL;
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_problem problem;
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn_context_create(NULL, &context, &err) != ATTN_OK ||
        attn_problem_parse("heads=1 head_dim=64 q=f32", &problem, &err) != ATTN_OK ||
        attn_select(context, &problem, 1, NULL, &decision, &err) != ATTN_OK ||
        attn_backend_open(context, decision, NULL, &backend, &err) != ATTN_OK) {
        printf("no backend: %s\n", err.message);
        return 1;
    }
    for (int i = 0; i < ARRAYS; i++)
        fence_init(&fences[i], sizeof(struct arrays));
    for (uint64_t seed = 1; seed <= CASES; seed++)
        one_case(backend, seed);
    check_refusals(backend);
    for (int i = 0; i < ARRAYS; i++)
        fence_finish(&fences[i]);
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
    attn_context_destroy(context);
    printf("%d batches, %lu checks failed\n", CASES, checks_failed);
    return checks_failed != 0;
}
