/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Moves tokens and pages between caches of one type and layout. A task owns some bytes of every token or page
 * and goes through all pairs in order, so that pairs may depend on each other and tasks never do.
 */
#include "graph.h"
#include "row.h"

/* Elements of a vector in one task of copy_slots: a multiple of x in every layout. */
#define PART_ELEMENTS 128u
/* Tokens of a page in one task of copy_blocks and swap_blocks. */
#define PART_TOKENS 16u

/* Two caches, or one twice. */
struct move {
    struct cpu_kv_side from[2], to[2];
    uint32_t sides;
    uint32_t heads;
    uint32_t from_block, to_block;
    uint32_t parts; /* tasks of keys, or of values */
};

struct moves {
    struct move moves[ATTN_KV_LAYERS_MAX];
    uint32_t first_task[ATTN_KV_LAYERS_MAX + 1]; /* of each move */
    const int64_t *pairs;
    uint32_t count;
};

static void move_init(struct move *move, const struct attn_kv_desc *from, const struct attn_kv_desc *to)
{
    *move = (struct move){.sides = cpu_kv_sides(from),
                          .heads = from->kv_heads,
                          .from_block = from->block,
                          .to_block = to->block};
    for (uint32_t i = 0; i < move->sides; i++) {
        move->from[i] = cpu_kv_side_of(from, i == 1);
        move->to[i] = cpu_kv_side_of(to, i == 1);
    }
}

/* Checks that pairs are below the two limits, or negative. */
static int32_t check_pairs(const int64_t *pairs, uint32_t count, const uint64_t limits[2], const char *what,
                           struct attn_error *err)
{
    if ((uintptr_t)pairs % sizeof *pairs != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "pairs", "the address of pairs is no multiple of 8");
    for (uint32_t i = 0; i < count; i++) {
        const int64_t *pair = pairs + 2 * (size_t)i;
        if (pair[0] < 0 || pair[1] < 0)
            continue;
        for (int side = 0; side < 2; side++)
            if ((uint64_t)pair[side] >= limits[side])
                return attn__fail(err, ATTN_E_INVALID, 0, "pairs",
                                  "pairs[%u] names %s %lld of %s; those below %llu are accepted", i, what,
                                  (long long)pair[side], side == 0 ? "the source" : "the target",
                                  (unsigned long long)limits[side]);
    }
    return ATTN_OK;
}

static const int64_t *pair_array(const struct attn_buffer *buffer)
{
    return (const int64_t *)(const void *)attn__address(buffer);
}

/* Copies the scale of a row. */
static void move_scale(const struct cpu_kv_side *from, const struct cpu_kv_side *to, const int64_t place[4],
                       uint32_t head)
{
    if (from->token_head && to->token_head)
        memmove(cpu_scale_place(&to->scale, place[2], place[3], head),
                cpu_scale_place(&from->scale, place[0], place[1], head), sizeof(float));
}

/* ---------------------------------------------------------------- slots */

/* Moves elements [d, d + count) of a vector; both caches have the same layout. */
static void move_part(const struct attn__kv_view *from, const struct attn__kv_view *to, const char *source,
                      char *target, uint32_t d, uint32_t count)
{
    const uint32_t end = (d + count) * from->size;

    for (uint32_t byte = d * from->size; byte < end;) {
        uint32_t left = from->x_bytes - byte % from->x_bytes;
        uint32_t bytes = left < end - byte ? left : end - byte;
        memmove(target + attn__kv_column(to, byte / from->size),
                source + attn__kv_column(from, byte / from->size), bytes);
        byte += bytes;
    }
}

static void slots_task(void *arg, uint32_t task, uint32_t worker)
{
    const struct moves *moves = arg;
    const struct move *move = moves->moves;
    uint32_t side = task / move->parts, rest = task % move->parts;
    uint32_t head = rest % move->heads, d = rest / move->heads * PART_ELEMENTS;
    const struct cpu_kv_side *from = &move->from[side], *to = &move->to[side];

    (void)worker;
    if (d >= from->view.dim)
        return;
    uint32_t count = from->view.dim - d < PART_ELEMENTS ? from->view.dim - d : PART_ELEMENTS;
    for (uint32_t i = 0; i < moves->count; i++) {
        const int64_t *pair = moves->pairs + 2 * (size_t)i;
        if (pair[0] < 0 || pair[1] < 0)
            continue;
        const int64_t place[] = {pair[0] / move->from_block, pair[0] % move->from_block,
                                 pair[1] / move->to_block, pair[1] % move->to_block};
        move_part(&from->view, &to->view, attn__kv_at(&from->view, place[0], place[1], head),
                  attn__kv_at(&to->view, place[2], place[3], head), d, count);
        if (d == 0)
            move_scale(from, to, place, head);
    }
}

int32_t cpu_kv_copy_slots(struct attn_backend_impl *backend, const struct attn_kv_copy_slots_args *args,
                          const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                          struct attn_error *err)
{
    struct moves moves = {.pairs = pair_array(&args->pairs), .count = args->count};
    const struct attn_kv_desc *source = NULL, *target = NULL;
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status == ATTN_OK)
        status = attn__kv_resolve(from, &source, err);
    if (status == ATTN_OK)
        status = attn__kv_resolve(to, &target, err);
    if (status != ATTN_OK)
        return status;
    const struct attn_kv_ref caches[] = {*from, *to};
    const struct cpu_call call = {CPU_CALL_COPY_SLOTS, .args = args, .args_size = sizeof *args,
                                  .caches = caches, .cache_count = 2};
    if (executor.recording != NULL)
        return cpu_record(executor.recording, &call, err);
    const uint64_t limits[] = {(uint64_t)source->pages * source->block,
                               (uint64_t)target->pages * target->block};
    status = check_pairs(moves.pairs, moves.count, limits, "slot", err);
    if (status != ATTN_OK)
        return status;
    move_init(&moves.moves[0], source, target);
    uint32_t dim = source->head_dim_vo > source->head_dim ? source->head_dim_vo : source->head_dim;
    moves.moves[0].parts = (dim + PART_ELEMENTS - 1) / PART_ELEMENTS * source->kv_heads;
    return cpu_execute(&executor, NULL, moves.moves[0].parts * moves.moves[0].sides, slots_task, &moves, err);
}

/* ---------------------------------------------------------------- pages */

/* Moves `count` runs of `bytes`; one run if both sides are contiguous. */
static void move_runs(char *to, int64_t to_stride, const char *from, int64_t from_stride, uint32_t count,
                      size_t bytes)
{
    if (to_stride == (int64_t)bytes && from_stride == (int64_t)bytes) {
        memmove(to, from, bytes * count);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        memmove(to + i * to_stride, from + i * from_stride, bytes);
}

/* Moves tokens [first, first + count) from page to page. */
static void move_tokens(const struct move *move, const struct cpu_kv_side *from, const struct cpu_kv_side *to,
                        const int64_t *pair, uint32_t first, uint32_t count)
{
    const struct attn__kv_view *a = &from->view, *b = &to->view;
    const char *source = attn__kv_at(a, pair[0], first, 0);
    char *target = attn__kv_at(b, pair[1], first, 0);
    size_t vector = (size_t)a->dim * a->size, all = vector * move->heads;
    bool dense_heads = a->head_stride == (int64_t)vector && b->head_stride == (int64_t)vector;

    if (a->x_bytes == vector && dense_heads) {
        move_runs(target, b->token_stride, source, a->token_stride, count, all);
    } else {
        for (uint32_t head = 0; head < move->heads; head++) {
            for (uint32_t x = 0; x < vector / a->x_bytes; x++)
                move_runs(target + head * b->head_stride + x * b->x_stride, b->token_stride,
                          source + head * a->head_stride + x * a->x_stride, a->token_stride, count,
                          a->x_bytes);
        }
    }
    for (uint32_t token = first; from->token_head && token < first + count; token++) {
        const int64_t place[] = {pair[0], token, pair[1], token};
        for (uint32_t head = 0; head < move->heads; head++)
            move_scale(from, to, place, head);
    }
}

static void pages_task(void *arg, uint32_t task, uint32_t worker)
{
    const struct moves *moves = arg;
    uint32_t n = 0;

    (void)worker;
    while (task >= moves->first_task[n + 1])
        n++;
    const struct move *move = &moves->moves[n];
    uint32_t side = (task - moves->first_task[n]) / move->parts;
    uint32_t first = (task - moves->first_task[n]) % move->parts * PART_TOKENS;
    uint32_t count = move->from_block - first < PART_TOKENS ? move->from_block - first : PART_TOKENS;
    for (uint32_t i = 0; i < moves->count; i++) {
        const int64_t *pair = moves->pairs + 2 * (size_t)i;
        if (pair[0] >= 0 && pair[1] >= 0)
            move_tokens(move, &move->from[side], &move->to[side], pair, first, count);
    }
}

/* Adds a pair of caches; false if there would be too many tasks. */
static bool add_pages(struct moves *moves, uint32_t n, const struct attn_kv_desc *from,
                      const struct attn_kv_desc *to)
{
    struct move *move = &moves->moves[n];

    move_init(move, from, to);
    move->parts = from->block / PART_TOKENS + (from->block % PART_TOKENS != 0);
    return !__builtin_add_overflow(moves->first_task[n], move->parts * move->sides,
                                   &moves->first_task[n + 1]);
}

/* Adds the caches of all layers. */
static int32_t add_layers(struct moves *moves, uint32_t layers, const struct attn_kv_ref *caches,
                          struct attn_error *err)
{
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < layers && status == ATTN_OK; i++) {
        const struct attn_kv_desc *desc = NULL;
        status = attn__kv_resolve(&caches[i], &desc, err);
        if (status != ATTN_OK)
            return status;
        const uint64_t limits[] = {desc->pages, desc->pages};
        status = check_pairs(moves->pairs, moves->count, limits, "page", err);
        if (status == ATTN_OK && !add_pages(moves, i, desc, desc))
            status = attn__fail(err, ATTN_E_INVALID, 0, "block",
                                "pages of %u tokens in %u caches are too many; pass fewer caches in one call",
                                desc->block, layers);
    }
    return status;
}

int32_t cpu_kv_copy_blocks(struct attn_backend_impl *backend, const struct attn_kv_copy_blocks_args *args,
                           const struct attn_kv_ref *caches, void *stream, struct attn_error *err)
{
    struct moves moves = {.pairs = pair_array(&args->pairs), .count = args->count};
    const struct attn_kv_desc *desc = NULL;
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    for (uint32_t i = 0; i < args->layers && status == ATTN_OK && executor.recording != NULL; i++)
        status = attn__kv_resolve(&caches[i], &desc, err);
    const struct cpu_call call = {CPU_CALL_COPY_BLOCKS, .args = args, .args_size = sizeof *args,
                                  .caches = caches, .cache_count = args->layers};
    if (status == ATTN_OK && executor.recording != NULL)
        return cpu_record(executor.recording, &call, err);
    if (status == ATTN_OK)
        status = add_layers(&moves, args->layers, caches, err);
    return status == ATTN_OK
               ? cpu_execute(&executor, NULL, moves.first_task[args->layers], pages_task, &moves, err)
               : status;
}

int32_t cpu_kv_swap_blocks(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                           const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                           struct attn_error *err)
{
    struct moves moves = {.pairs = args->pairs, .count = args->count};
    const struct attn_kv_desc *source = NULL, *target = NULL;
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status == ATTN_OK)
        status = attn__kv_resolve(from, &source, err);
    if (status == ATTN_OK)
        status = attn__kv_resolve(to, &target, err);
    if (status != ATTN_OK)
        return status;
    const struct attn_kv_ref caches[] = {*from, *to};
    const struct cpu_call call = {CPU_CALL_SWAP_BLOCKS,
                                  .args = args,
                                  .args_size = sizeof *args,
                                  .caches = caches,
                                  .cache_count = 2,
                                  .list = args->pairs,
                                  .list_size = (uint64_t)args->count * 2 * sizeof *args->pairs};
    if (executor.recording != NULL)
        return cpu_record(executor.recording, &call, err);
    (void)add_pages(&moves, 0, source, target); /* one cache cannot have too many tasks */
    return cpu_execute(&executor, NULL, moves.first_task[1], pages_task, &moves, err);
}
