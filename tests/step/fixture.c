/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A device whose memory is apart from the host's, and random steps. */
#include "fixture.h"

#include "advance.h"
#include "metadata.h"

/* ---------------------------------------------------------------- the device */

/* Addresses of the device are the host's with a bit set, so that nobody reads them by mistake. */
#define APART ((uintptr_t)1 << 62)

static void *host_of(const struct attn_buffer *buffer)
{
    return buffer->data == NULL ? NULL : (void *)(((uintptr_t)buffer->data & ~APART) + buffer->byte_offset);
}

static int32_t device_alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                            struct attn_error *err)
{
    void *memory = NULL;

    (void)backend;
    (void)err;
    if (posix_memalign(&memory, 64, size) != 0)
        return ATTN_E_MEMORY;
    memset(memory, 0xab, size);
    *out = (struct attn_buffer){(void *)((uintptr_t)memory | APART), 0};
    return ATTN_OK;
}

static void device_free(struct attn_backend_impl *backend, const struct attn_buffer *buffer)
{
    (void)backend;
    free((void *)((uintptr_t)buffer->data & ~APART));
}

static int32_t device_copy(struct attn_backend_impl *backend, const struct attn_buffer *to,
                           const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                           struct attn_error *err)
{
    (void)backend;
    (void)stream;
    (void)err;
    if (((uintptr_t)to->data & APART) == 0 || ((uintptr_t)from->data & APART) != 0 ||
        kind != ATTN_COPY_TO_DEVICE) {
        printf("a copy goes the wrong way\n");
        exit(1);
    }
    memcpy(host_of(to), host_of(from), size);
    return ATTN_OK;
}

const struct attn_memory_table fixture_memory = {
    .struct_size = sizeof fixture_memory, .alloc = device_alloc, .free = device_free, .copy = device_copy};

static int32_t device_advance(struct attn_backend_impl *backend, const struct attn_kv_advance_step_args *args,
                              void *stream, struct attn_error *err)
{
    const struct attn_advance advance = {.seqs = args->seqs,
                                         .queries = args->queries,
                                         .num_tokens = args->num_tokens,
                                         .block = args->block,
                                         .keep_padding = args->keep_padding,
                                         .windowed = args->windowed,
                                         .window = args->window,
                                         .table_width = args->table_width,
                                         .index_size = args->index_dtype == ATTN_INT64 ? 8 : 4,
                                         .table_stride = args->table_stride,
                                         .table = host_of(&args->table),
                                         .query_starts = host_of(&args->query_starts),
                                         .accepted = host_of(&args->accepted),
                                         .sampled = host_of(&args->sampled),
                                         .tokens = host_of(&args->tokens),
                                         .positions = host_of(&args->positions),
                                         .slots = host_of(&args->slots),
                                         .seq_lens = host_of(&args->seq_lens),
                                         .context_lens = host_of(&args->context_lens),
                                         .seq_starts = host_of(&args->seq_starts),
                                         .csr_capacity = args->csr_capacity,
                                         .csr_indptr = host_of(&args->csr_indptr),
                                         .csr_indices = host_of(&args->csr_indices),
                                         .csr_last_page_lens = host_of(&args->last_page_lens),
                                         .csr_pages = host_of(&args->csr_pages)};
    int32_t status = attn__advance_check(&advance, err);

    (void)backend;
    (void)stream;
    if (status == ATTN_OK)
        attn__advance_write(&advance);
    return status;
}

const struct attn_kv_table fixture_kv = {.struct_size = sizeof fixture_kv, .advance_step = device_advance};

/* ---------------------------------------------------------------- steps */

static int64_t roll_block(struct dice *dice, const struct fixture_step *step)
{
    return dice_roll(dice, 0, step->index_dtype == ATTN_INT64 ? INT64_C(1) << 40 : INT32_MAX);
}

static void roll_seq(struct dice *dice, enum fixture_kind kind, const struct fixture_step *step,
                     uint32_t prompt, struct fixture_seq *seq)
{
    uint32_t most = UINT32_MAX;

    for (uint32_t g = 0; g < step->groups; g++)
        most = step->block[g] * FIXTURE_BLOCKS < most ? step->block[g] * FIXTURE_BLOCKS : most;
    /* Three further steps of up to three tokens. */
    most = kind == FIXTURE_ANY ? most : most - 9;
    most = most < 40 ? most : 40;
    const uint32_t q = prompt ? (uint32_t)dice_roll(dice, 1, most / 2)
                       : step->flavour == ATTN_FLASH_ATTN && kind != FIXTURE_TO_DECODE
                           ? (uint32_t)dice_roll(dice, 1, 3)
                           : 1;
    seq->prompt = prompt;
    seq->query_len = q;
    seq->context_len = (uint32_t)dice_roll(dice, 0, most - q);
    if (prompt && (!step->chunked || dice_roll(dice, 0, 1)))
        seq->context_len = 0;
    seq->hit = prompt && dice_roll(dice, 0, 7) == 0;
    const uint32_t room = seq->context_len + q + (kind == FIXTURE_ANY ? 0 : 9);
    for (uint32_t g = 0; g < step->groups; g++) {
        seq->count[g] = (room + step->block[g] - 1) / step->block[g];
        if (seq->count[g] < FIXTURE_BLOCKS)
            seq->count[g] += (uint32_t)dice_roll(dice, 0, 1);
        for (uint32_t i = 0; i < seq->count[g]; i++)
            seq->blocks[g][i] = roll_block(dice, step);
    }
    if (step->cross) {
        seq->encoder_len = (uint32_t)dice_roll(dice, 1, 10);
        seq->count[FIXTURE_GROUPS] =
            (seq->encoder_len + step->block[FIXTURE_GROUPS] - 1) / step->block[FIXTURE_GROUPS];
        for (uint32_t i = 0; i < seq->count[FIXTURE_GROUPS]; i++)
            seq->blocks[FIXTURE_GROUPS][i] = roll_block(dice, step);
    }
    seq->pairs = prompt && step->modalities ? (uint32_t)dice_roll(dice, 0, q < 3 ? q : 3) : 0;
    for (uint32_t i = 0; i < seq->pairs; i++) {
        seq->sources[i] = dice_roll(dice, 0, 5);
        seq->destinations[i] = i;
    }
}

void fixture_roll(struct dice *dice, enum fixture_kind kind, struct fixture_step *step)
{
    static const uint32_t blocks[] = {4, 8, 16, 3, 32};
    uint32_t prompts, decodes;

    memset(step, 0, sizeof *step);
    step->flavour =
        (uint32_t)dice_roll(dice, ATTN_FLASH_ATTN, kind == FIXTURE_DECODES ? ATTN_ROCM_FLASH : ATTN_XFORMERS);
    if (kind == FIXTURE_TO_DECODE)
        step->flavour = ATTN_FLASH_ATTN;
    step->groups = (uint32_t)dice_roll(dice, 1, FIXTURE_GROUPS);
    for (uint32_t g = 0; g <= FIXTURE_GROUPS; g++)
        step->block[g] = blocks[dice_roll(dice, 0, 4)];
    step->index_dtype = dice_roll(dice, 0, 1) ? ATTN_INT64 : ATTN_INT32;
    step->chunked = kind == FIXTURE_TO_DECODE || dice_roll(dice, 0, 1);
    step->apart = dice_roll(dice, 0, 3) == 0;
    step->modalities = kind == FIXTURE_ANY && dice_roll(dice, 0, 2) == 0 ? FIXTURE_MODALITY : 0;
    step->cross = kind == FIXTURE_ANY && dice_roll(dice, 0, 3) == 0 &&
                  (step->flavour == ATTN_FLASH_ATTN || step->flavour == ATTN_XFORMERS);
    step->profile = kind == FIXTURE_ANY && dice_roll(dice, 0, 15) == 0;
    prompts = kind == FIXTURE_DECODES ? 0 : (uint32_t)dice_roll(dice, 0, 4);
    decodes = step->profile || (step->cross && prompts > 0) ? 0 : (uint32_t)dice_roll(dice, prompts == 0, 5);
    prompts = step->profile && prompts == 0 ? 1 : prompts;
    for (uint32_t i = 0; i < prompts + decodes; i++)
        roll_seq(dice, kind, step, i < prompts, &step->seq[i]);
    step->seqs = prompts + decodes;
    /* A profile run has a slot for every token, so that parts only have all of them without a context. */
    for (uint32_t i = 0; i < step->seqs && step->profile; i++)
        step->seq[i].context_len = 0;
    step->graph =
        step->profile || (prompts > 0 && kind != FIXTURE_TO_DECODE) ? 0 : (uint32_t)dice_roll(dice, 0, 1);
    step->pad = step->graph ? (uint32_t)dice_roll(dice, 0, 3) : 0;
}

struct attn_builder_impl *fixture_builder(const struct fixture_step *step)
{
    static const char *const modalities[] = {"image", "audio"};
    struct attn_builder_group groups[FIXTURE_GROUPS + 1] = {{0}};
    struct attn_builder_impl *builder = NULL;
    struct attn_builder_params params;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&params);
    for (uint32_t g = 0; g <= FIXTURE_GROUPS; g++) {
        groups[g].block = step->block[g];
        groups[g].max_blocks = FIXTURE_BLOCKS;
    }
    params.flavour = step->flavour;
    params.groups = step->groups;
    params.chunked = step->chunked;
    params.group = groups;
    params.max_seqs = FIXTURE_SEQS;
    params.max_tokens = FIXTURE_TOKENS;
    params.index_dtype = step->index_dtype;
    params.steps = step->apart ? 3 : 1;
    params.heads = 8;
    params.kv_heads = 2;
    params.head_dim = 64;
    params.q_dtype = params.kv_dtype = ATTN_F16;
    if (step->cross) {
        params.cross = &groups[FIXTURE_GROUPS];
        params.max_encoder_tokens = FIXTURE_TOKENS;
    }
    params.modalities = modalities;
    params.modality_count = step->modalities;
    params.max_map = step->modalities ? FIXTURE_MAPS : 0;
    const struct attn_serving_host host = {.struct_size = sizeof host,
                                           .device_type = step->apart ? ATTN_DEVICE_CUDA : ATTN_DEVICE_CPU,
                                           .memory = step->apart ? &fixture_memory : NULL,
                                           .kv = &fixture_kv};
    if (attn_serving_builder.create(&host, &params, &builder, &err) != ATTN_OK) {
        printf("no builder: %s: %s\n", err.field, err.message);
        exit(1);
    }
    return builder;
}

static int32_t add(struct attn_builder_impl *builder, const struct fixture_step *step,
                   const struct fixture_seq *seq, struct attn_error *err)
{
    struct attn_blocks blocks[FIXTURE_GROUPS + 1] = {{0}};
    struct attn_index_map map = {.modality = 1, .count = seq->pairs, .rows = 6};
    struct attn_builder_add_args args;

    ATTN_INIT(&args);
    for (uint32_t g = 0; g <= FIXTURE_GROUPS && !step->profile; g++) {
        blocks[g].kind = ATTN_BLOCKS_LIST;
        blocks[g].count = seq->count[g];
        blocks[g].blocks = seq->blocks[g];
        blocks[g].computed = seq->hit && seq->count[g] > 0;
    }
    map.sources = seq->sources;
    map.destinations = seq->destinations;
    args.prompt = seq->prompt;
    args.prefix_hit = step->profile ? 0 : seq->hit;
    args.context_len = seq->context_len;
    args.query_len = seq->query_len;
    args.encoder_len = seq->encoder_len;
    args.blocks = blocks;
    args.cross = step->cross && !step->profile ? &blocks[FIXTURE_GROUPS] : NULL;
    args.maps = &map;
    args.map_count = seq->pairs > 0;
    return attn_serving_builder.add(builder, &args, err);
}

struct attn_metadata_impl *fixture_build(struct attn_builder_impl *builder, const struct fixture_step *step)
{
    struct attn_builder_build_args args;
    struct attn_metadata_impl *metadata = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&args);
    args.graph = step->graph;
    args.pad = step->pad;
    int32_t status = attn_serving_builder.reset(builder, &err);
    for (uint32_t i = 0; i < step->seqs && status == ATTN_OK; i++)
        status = add(builder, step, &step->seq[i], &err);
    if (status == ATTN_OK)
        status = attn_serving_builder.build(builder, &args, NULL, &metadata, &err);
    if (status == ATTN_OK)
        return metadata;
    printf("no step: %s: %s\n", err.field, err.message);
    exit(1);
}

/* ---------------------------------------------------------------- fields */

struct attn_view fixture_get(const struct attn_metadata_impl *metadata, uint32_t field, uint32_t index)
{
    struct attn_view view;
    struct attn_error err;

    ATTN_INIT(&view);
    ATTN_INIT(&err);
    if (attn_serving_builder.get(metadata, field, index, &view, &err) != ATTN_OK) {
        printf("no field: %s\n", err.message);
        exit(1);
    }
    return view;
}

uint64_t fixture_count(const struct attn_view *view)
{
    if (view->kind != ATTN_VIEW_ARRAY && view->kind != ATTN_VIEW_LIST)
        return 0;
    return view->rank == 2 ? view->shape[0] * view->shape[1] : view->shape[0];
}

int64_t fixture_at(const struct attn_view *view, uint64_t i, int device)
{
    const uint64_t size = view->dtype == ATTN_INT64 ? 8 : 4;
    const char *base = device ? host_of(&view->device) : view->host;
    const char *at = base + (view->rank == 2 ? (int64_t)(i / view->shape[1]) * view->stride +
                                                   (int64_t)(i % view->shape[1] * size)
                                             : (int64_t)(i * size));

    return size == 8 ? *(const int64_t *)(const void *)at : *(const int32_t *)(const void *)at;
}

static void same_field(const struct attn_metadata_impl *a, const struct attn_metadata_impl *b, uint32_t field,
                       uint32_t index, uint64_t seed)
{
    const struct attn_view x = fixture_get(a, field, index), y = fixture_get(b, field, index);
    const char *name = attn__field_name(field);

    CHECK(x.kind == y.kind && x.shape[0] == y.shape[0] && x.rank == y.rank, seed,
          "%s[%u]: kinds %u and %u, %llu and %llu", name, index, x.kind, y.kind,
          (unsigned long long)x.shape[0], (unsigned long long)y.shape[0]);
    if (x.kind != y.kind)
        return;
    if (x.kind == ATTN_VIEW_NUMBER)
        CHECK(x.value == y.value, seed, "%s[%u]: %lld and %lld", name, index, (long long)x.value,
              (long long)y.value);
    if (fixture_count(&x) != fixture_count(&y)) {
        CHECK(0, seed, "%s[%u]: shapes", name, index);
        return;
    }
    for (uint64_t i = 0; i < fixture_count(&x); i++) {
        CHECK(fixture_at(&x, i, 0) == fixture_at(&y, i, 0), seed, "%s[%u] at %llu: %lld and %lld", name,
              index, (unsigned long long)i, (long long)fixture_at(&x, i, 0), (long long)fixture_at(&y, i, 0));
        if (x.kind == ATTN_VIEW_ARRAY)
            CHECK(fixture_at(&x, i, 1) == fixture_at(&x, i, 0) &&
                      fixture_at(&y, i, 1) == fixture_at(&y, i, 0),
                  seed, "%s[%u] at %llu: not on the device: %lld, %lld", name, index, (unsigned long long)i,
                  (long long)fixture_at(&x, i, 1), (long long)fixture_at(&y, i, 1));
    }
}

void fixture_same(const struct fixture_step *step, const struct attn_metadata_impl *a,
                  const struct attn_metadata_impl *b, int bound, uint64_t seed)
{
    for (uint32_t field = 1; field < ATTN_FIELDS; field++) {
        const enum attn__scope scope = attn__field_infos[field].scope;
        const uint32_t count = scope == ATTN__GROUP      ? step->groups
                               : scope == ATTN__MODALITY ? step->modalities
                                                         : 1;
        for (uint32_t i = 0; i < count && (bound || field != ATTN_FIELD_BLOCK_TABLE_BOUND); i++)
            same_field(a, b, field, i, seed);
    }
}
