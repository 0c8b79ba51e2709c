/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Operations on the cache of a case, and the plain copies that they are held against. Every key of the batch
 * is a row; half of the pages are copied over the other half, and some of them swapped with host memory.
 */
#include <stdlib.h>

#include "bridge-inner.h"
#include "fill.h"

enum { SWAPPED_PAGES = 512, FILL_ROWS = 4099 };

static int32_t upload(struct gpu_case *the_case, const void *from, uint64_t size, struct attn_buffer *out)
{
    return workload_upload(&the_case->workload, from, size, out, gpu_bench_err());
}

/* ---------------------------------------------------------------- making room */

/* Fills rows with numbers that do not repeat within FILL_ROWS of them. */
static int32_t fill_rows(struct gpu_case *the_case, struct attn_buffer *to, uint64_t seed)
{
    const struct kv_room *room = &the_case->room;
    uint64_t size = room->row_bytes * FILL_ROWS, all = room->row_bytes * room->rows;
    void *block = malloc(size);
    int32_t status = ATTN_OK;

    if (block == NULL)
        return gpu_bench_refuse("rows", "out of memory");
    fill_random(the_case->workload.problem.k_dtype, block,
                size / attn_dtype_size(the_case->workload.problem.k_dtype), seed);
    for (uint64_t done = 0; done < all && status == ATTN_OK; done += size) {
        struct attn_buffer host = {block, 0}, part = {to->data, to->byte_offset + done};
        status =
            attn_memory_copy(the_case->bench->backend, &part, &host, all - done < size ? all - done : size,
                             ATTN_COPY_TO_DEVICE, the_case->workload.stream, gpu_bench_err());
    }
    if (status == ATTN_OK)
        status =
            attn_stream_synchronize(the_case->bench->backend, the_case->workload.stream, gpu_bench_err());
    free(block);
    return status;
}

int32_t gpu_case_kv_refill(struct gpu_case *the_case, uint64_t seed)
{
    int32_t status = fill_rows(the_case, &the_case->room.k, seed);

    return status == ATTN_OK ? fill_rows(the_case, &the_case->room.v, seed + 1) : status;
}

/* Slot of every key, and where a sequence's rows begin. */
static int32_t places_init(struct gpu_case *the_case)
{
    const struct workload *w = &the_case->workload;
    struct kv_room *room = &the_case->room;
    int32_t *offsets = calloc((size_t)w->batch.seqs + 1, sizeof *offsets);
    uint64_t row = 0;
    int32_t status;

    room->slot = calloc(room->rows, sizeof *room->slot);
    if (offsets == NULL || room->slot == NULL) {
        free(offsets);
        return gpu_bench_refuse("rows", "out of memory");
    }
    for (uint32_t i = 0; i < w->batch.seqs; i++) {
        for (uint32_t key = 0; key < w->the_case->sequence[i].ctx; key++)
            room->slot[row++] =
                (int64_t)w->table[(uint64_t)i * w->batch.table_width + key / w->desc.block] * w->desc.block +
                key % w->desc.block;
        offsets[i + 1] = (int32_t)row;
    }
    status = upload(the_case, room->slot, room->rows * sizeof *room->slot, &room->slots);
    if (status == ATTN_OK)
        status = upload(the_case, offsets, ((uint64_t)w->batch.seqs + 1) * sizeof *offsets, &room->offsets);
    free(offsets);
    return status;
}

/* Page i to page half + i. */
static int32_t pairs_init(struct gpu_case *the_case)
{
    struct kv_room *room = &the_case->room;

    room->count = the_case->workload.desc.pages / 2;
    room->swapped = room->count < SWAPPED_PAGES ? room->count : SWAPPED_PAGES;
    room->pair = calloc((size_t)room->count * 2, sizeof *room->pair);
    if (room->pair == NULL)
        return gpu_bench_refuse("pairs", "out of memory");
    for (uint32_t i = 0; i < room->count; i++) {
        room->pair[2 * i] = i;
        room->pair[2 * i + 1] = room->count + i;
    }
    return upload(the_case, room->pair, (uint64_t)room->count * 2 * sizeof *room->pair, &room->pairs);
}

/* A cache of the same shape in pinned host memory, for the pages that are swapped. */
static int32_t host_init(struct gpu_case *the_case)
{
    const struct workload *w = &the_case->workload;
    struct kv_room *room = &the_case->room;
    struct attn_kv_shape shape;
    struct attn_buffer memory = {NULL, 0};
    struct attn_error *err = gpu_bench_err();

    ATTN_INIT(&shape);
    int32_t status = attn_kv_get_shape(the_case->bench->backend, &w->problem, room->swapped, &shape, err);
    if (status == ATTN_OK)
        status = attn_memory_alloc_pinned(the_case->bench->backend, shape.bytes, &room->host, err);
    if (status != ATTN_OK)
        return status;
    memory.data = room->host;
    room->host_bytes = shape.bytes;
    attn_kv_desc_init(&room->host_desc, &shape, &memory);
    return ATTN_OK;
}

int32_t gpu_case_kv_init(struct gpu_case *the_case)
{
    const struct workload *w = &the_case->workload;
    const struct attn_problem *problem = &w->problem;
    struct kv_room *room = &the_case->room;

    if (problem->addressing != ATTN_TABLE || problem->mla || problem->k_dtype != problem->v_dtype ||
        problem->head_dim != problem->head_dim_vo || attn_dtype_size(problem->k_dtype) < 2 ||
        w->desc.pages < 2)
        return gpu_bench_refuse("problem", "operations on caches are measured with a table of two pages at "
                                           "least and 16-bit or f32 keys that are like the values");
    room->rows = 0;
    for (uint32_t i = 0; i < w->batch.seqs; i++)
        room->rows += w->the_case->sequence[i].ctx;
    if (room->rows > INT32_MAX)
        return gpu_bench_refuse("lengths", "the batch has too many keys; accepted are 2^31 - 1");
    room->row_bytes = (uint64_t)problem->kv_heads * problem->head_dim * attn_dtype_size(problem->k_dtype);
    int32_t status = ATTN_OK;
    struct attn_buffer *const sides[] = {&room->k, &room->v};
    for (unsigned i = 0; i < 2 && status == ATTN_OK; i++)
        status = workload_alloc(&the_case->workload, room->rows * room->row_bytes, sides[i], gpu_bench_err());
    if (status == ATTN_OK)
        status = gpu_case_kv_refill(the_case, 77);
    if (status == ATTN_OK)
        status = places_init(the_case);
    if (status == ATTN_OK)
        status = pairs_init(the_case);
    return status == ATTN_OK ? host_init(the_case) : status;
}

void gpu_case_kv_finish(struct gpu_case *the_case)
{
    free(the_case->room.slot);
    free(the_case->room.pair);
    if (the_case->room.host != NULL)
        attn_memory_free_pinned(the_case->bench->backend, the_case->room.host);
}

/* ---------------------------------------------------------------- the operations */

static struct attn_tensor rows_of(const struct gpu_case *the_case, const struct attn_buffer *buffer)
{
    const struct attn_problem *problem = &the_case->workload.problem;

    return (struct attn_tensor){.buffer = *buffer,
                                .token_stride = (int64_t)the_case->room.row_bytes,
                                .head_stride =
                                    (int64_t)problem->head_dim * attn_dtype_size(problem->k_dtype)};
}

static int32_t run_write(struct gpu_case *the_case, void *stream)
{
    struct attn_kv_write_args args;

    ATTN_INIT(&args);
    args.k_dtype = args.v_dtype = the_case->workload.problem.k_dtype;
    args.num_tokens = (uint32_t)the_case->room.rows;
    args.k_new = rows_of(the_case, &the_case->room.k);
    args.v_new = rows_of(the_case, &the_case->room.v);
    args.kv = the_case->workload.kv[0];
    args.slot_mapping = the_case->room.slots;
    return attn_kv_write(the_case->bench->backend, &args, stream, gpu_bench_err());
}

static int32_t run_gather(struct gpu_case *the_case, void *stream)
{
    struct attn_kv_gather_args args;

    ATTN_INIT(&args);
    args.tokens = (uint32_t)the_case->room.rows;
    args.k_dtype = args.v_dtype = the_case->workload.problem.k_dtype;
    args.addressing = ATTN_TABLE;
    args.kv = the_case->workload.kv[0];
    args.batch = &the_case->workload.batch;
    args.offsets = the_case->room.offsets;
    args.k = rows_of(the_case, &the_case->room.k);
    args.v = rows_of(the_case, &the_case->room.v);
    return attn_kv_gather(the_case->bench->backend, &args, stream, gpu_bench_err());
}

static int32_t run_copy(struct gpu_case *the_case, void *stream)
{
    struct attn_kv_copy_blocks_args args;

    ATTN_INIT(&args);
    args.count = the_case->room.count;
    args.layers = 1;
    args.kvs = the_case->workload.kv;
    args.pairs = the_case->room.pairs;
    return attn_kv_copy_blocks(the_case->bench->backend, &args, stream, gpu_bench_err());
}

/* Pages of the device are scattered as the table's first ones are. */
static int32_t run_swap(struct gpu_case *the_case, bool out, void *stream)
{
    const struct kv_room *room = &the_case->room;
    struct attn_kv_swap_blocks_args args;
    int64_t *pairs = calloc((size_t)room->swapped * 2, sizeof *pairs);

    if (pairs == NULL)
        return gpu_bench_refuse("pairs", "out of memory");
    for (uint32_t i = 0; i < room->swapped; i++) {
        pairs[2 * i] = out ? gpu_case_swapped(the_case, i) : i;
        pairs[2 * i + 1] = out ? i : gpu_case_swapped(the_case, i);
    }
    ATTN_INIT(&args);
    args.count = room->swapped;
    args.pairs = pairs;
    args.kind = out ? ATTN_COPY_TO_HOST : ATTN_COPY_TO_DEVICE;
    *(out ? &args.from : &args.to) = the_case->workload.kv[0];
    *(out ? &args.to_desc : &args.from_desc) = &room->host_desc;
    int32_t status = attn_kv_swap_blocks(the_case->bench->backend, &args, stream, gpu_bench_err());
    free(pairs);
    return status;
}

int64_t gpu_case_swapped(const struct gpu_case *the_case, uint32_t index)
{
    const struct kv_room *room = &the_case->room;

    return room->slot[(uint64_t)index * room->rows / room->swapped] / the_case->workload.desc.block;
}

/* Bytes of a plain copy between device and host. */
static uint64_t plain_bytes(const struct kv_room *room)
{
    uint64_t rows = room->rows * room->row_bytes;

    return room->host_bytes < rows ? room->host_bytes : rows;
}

/* The ceilings: plain copies. */
static int32_t run_plain(struct gpu_case *the_case, uint32_t kind, void *stream)
{
    const struct kv_room *room = &the_case->room;
    const struct attn_buffer host = {room->host, 0};
    const uint64_t size = kind == ATTN_COPY_ON_DEVICE ? room->rows * room->row_bytes : plain_bytes(room);

    return attn_memory_copy(the_case->bench->backend, kind == ATTN_COPY_TO_HOST ? &host : &room->v,
                            kind == ATTN_COPY_TO_DEVICE ? &host : &room->k, size, kind, stream,
                            gpu_bench_err());
}

int32_t gpu_case_kv_run(struct gpu_case *the_case, const char *name, void *stream)
{
    if (strcmp(name, "write") == 0)
        return run_write(the_case, stream);
    if (strcmp(name, "gather") == 0)
        return run_gather(the_case, stream);
    if (strcmp(name, "copy pages") == 0)
        return run_copy(the_case, stream);
    if (strncmp(name, "swap ", 5) == 0)
        return run_swap(the_case, strcmp(name, "swap out") == 0, stream);
    if (strcmp(name, "plain copy") == 0)
        return run_plain(the_case, ATTN_COPY_ON_DEVICE, stream);
    if (strcmp(name, "plain to host") == 0)
        return run_plain(the_case, ATTN_COPY_TO_HOST, stream);
    if (strcmp(name, "plain to device") == 0)
        return run_plain(the_case, ATTN_COPY_TO_DEVICE, stream);
    return gpu_bench_refuse("name", "there is no such operation on caches");
}

double gpu_case_kv_bytes(const struct gpu_case *the_case, const char *name)
{
    const struct kv_room *room = &the_case->room;
    double all = (double)room->rows * (double)room->row_bytes;

    if (strncmp(name, "swap ", 5) == 0)
        return (double)room->host_bytes;
    if (strncmp(name, "plain to ", 9) == 0)
        return (double)plain_bytes(room);
    if (strcmp(name, "copy pages") == 0)
        return 4.0 * room->count * the_case->workload.desc.block * (double)room->row_bytes;
    return strcmp(name, "plain copy") == 0 ? 2 * all : 4 * all;
}
