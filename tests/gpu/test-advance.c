/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A step of decoding by the kernels, on fibers, against the same step on the host: every array, every byte.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advance.h"
#include "fiber-names.h"
#include "kv-resolve.h"

enum { SEQS = 600, ROWS = 1400, WIDTH = 24, CASES = 60, GAP = 7 };

/* All arrays of a step; what lies behind the used part must stay. */
struct arrays {
    int64_t table[SEQS * WIDTH], csr_indices[SEQS * WIDTH];
    int64_t sampled[ROWS], tokens[ROWS], positions[ROWS], slots[ROWS];
    int32_t query_starts[SEQS + 1], accepted[SEQS], seq_lens[SEQS], context_lens[SEQS];
    int32_t seq_starts[SEQS + 1], csr_indptr[SEQS + 1], last_page_lens[SEQS], csr_pages[SEQS];
};

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % n;
}

struct flags {
    uint32_t wide, starts, accepted, sampled, same, positions, slots, context, sums, csr;
};

/* A valid step; returns the rows of the queries. */
static uint32_t fill(struct arrays *a, struct attn_kv_advance_step_args *args, const struct flags *flags)
{
    uint32_t rows = 0;

    memset(a, 0x5a, sizeof *a);
    for (uint32_t i = 0; i < SEQS * WIDTH; i++) {
        const int64_t page = below(8) == 0 ? -1 : (int64_t)below(100000);
        if (flags->wide != 0)
            a->table[i] = page;
        else
            ((int32_t *)(void *)a->table)[i] = (int32_t)page;
    }
    for (uint32_t i = 0; i < ROWS; i++)
        a->sampled[i] = a->tokens[i] = below(50000);
    a->query_starts[0] = 0;
    for (uint32_t i = 0; i < args->seqs; i++) {
        const uint32_t grows = flags->accepted != 0 ? below(4) : 1;
        const uint32_t room = args->table_width * args->block;
        const uint32_t most = room - grows;
        a->accepted[i] = (int32_t)grows;
        a->seq_lens[i] = (int32_t)(i < args->windowed   ? 1 + below(most < 8 ? most : 8)
                                   : flags->starts != 0 ? below(most + 1)
                                                        : 1 + below(most));
        uint32_t queries = flags->starts != 0 ? below(3) : 1;
        const uint32_t len = (uint32_t)a->seq_lens[i] + grows;
        queries = queries < len || flags->starts == 0 ? queries : len;
        if (i < args->windowed && flags->starts != 0) /* a prompt that begins */
            queries = len;
        rows += i < args->queries ? queries : 0;
        a->query_starts[i + 1] = (int32_t)rows;
    }
    return rows;
}

static struct attn_buffer at(void *array, uint32_t given)
{
    return (struct attn_buffer){given != 0 ? array : NULL, 0};
}

static void set_buffers(struct attn_kv_advance_step_args *args, struct arrays *a, const struct flags *flags)
{
    args->table = at(a->table, 1);
    args->query_starts = at(a->query_starts, flags->starts);
    args->accepted = at(a->accepted, flags->accepted);
    args->sampled = at(flags->same != 0 ? a->tokens : a->sampled, flags->sampled);
    args->tokens = at(a->tokens, flags->sampled);
    args->positions = at(a->positions, flags->positions);
    args->slots = at(a->slots, flags->slots);
    args->seq_lens = at(a->seq_lens, 1);
    args->context_lens = at(a->context_lens, flags->context);
    args->seq_starts = at(a->seq_starts, flags->sums);
    args->csr_indptr = at(a->csr_indptr, flags->csr);
    args->csr_indices = at(a->csr_indices, flags->csr);
    args->last_page_lens = at(a->last_page_lens, flags->csr);
    args->csr_pages = at(a->csr_pages, flags->csr);
}

static void on_host(const struct attn_kv_advance_step_args *args)
{
    struct attn_error err;
    const struct attn_advance advance = attn__advance_arrays(args);

    ATTN_INIT(&err);
    if (attn__advance_check(&advance, &err) != ATTN_OK) {
        fprintf(stderr, "a valid step is refused: %s\n", err.message);
        exit(1);
    }
    attn__advance_write(&advance);
}

static void on_fibers(const struct attn_kv_advance_step_args *args, uint32_t order)
{
    struct gpu_step step;
    struct fiber_grid grid = {.x = 1, .threads = GPU_KV_THREADS, .order = order};

    if (attn__advance_step_align(args, NULL) != ATTN_OK)
        exit(1);
    gpu_step_resolve(&step, args);
    fiber_launch(driver_named(driver_kv_kernels, "gpu_step_lengths")->call, &step, &grid);
    grid.x = (uint32_t)((gpu_step_work(&step) + GPU_KV_THREADS - 1) / GPU_KV_THREADS);
    grid.x = below(2) == 0 && grid.x > 2 ? 2 : grid.x; /* fewer than there is work for */
    fiber_launch(driver_named(driver_kv_kernels, "gpu_step_rows")->call, &step, &grid);
}

static int run_case(uint32_t number, struct arrays arrays[2])
{
    const uint32_t bits = below(1024);
    const struct flags flags = {bits & 1,      bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1, bits >> 4 & 1,
                                bits >> 5 & 1, bits >> 6 & 1, bits >> 7 & 1, bits >> 8 & 1, bits >> 9 & 1};
    struct attn_kv_advance_step_args args;

    ATTN_INIT(&args);
    args.block = 1 + below(20);
    args.seqs = 1 + below(below(2) == 0 ? 8 : SEQS);
    args.queries = below(args.seqs + 1);
    args.keep_padding = below(2);
    args.windowed = below(2) * below(args.queries < 64 ? args.queries + 1 : 64);
    args.window = below(4);
    args.index_dtype = flags.wide != 0 ? ATTN_INT64 : below(2) == 0 ? ATTN_INT32 : 0;
    args.table_width = 4 + below(WIDTH - 3);
    args.table_stride = (int64_t)WIDTH * (flags.wide != 0 ? 8 : 4);
    args.csr_capacity = SEQS * WIDTH;
    args.num_tokens = fill(&arrays[0], &args, &flags) + below(GAP);
    arrays[1] = arrays[0];
    set_buffers(&args, &arrays[0], &flags);
    on_host(&args);
    set_buffers(&args, &arrays[1], &flags);
    on_fibers(&args, number);
    if (memcmp(&arrays[0], &arrays[1], sizeof arrays[0]) == 0)
        return 0;
    const char *one = (const char *)&arrays[0], *two = (const char *)&arrays[1];
    size_t byte = 0;
    while (one[byte] == two[byte])
        byte++;
    fprintf(stderr, "case %u: byte %zu of the arrays differs (seqs %u, queries %u, rows %u, bits 0x%x)\n",
            number, byte, args.seqs, args.queries, args.num_tokens, bits);
    return 1;
}

int main(void)
{
    struct arrays *arrays = calloc(2, sizeof *arrays);
    int failed = 0;

    for (uint32_t i = 0; i < CASES && arrays != NULL; i++) {
        state = i;
        failed += run_case(i, arrays);
    }
    printf("%u steps, %d differ\n", CASES, failed);
    failed += arrays == NULL;
    free(arrays);
    return failed != 0;
}
