/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* From recorded fields back to sequences: lengths, new tokens, and blocks as tables or slots tell them. */
#include "trace-step.h"

#include <stdlib.h>
#include <string.h>

/* Recorded fields as arrays; NULL if a field is null. */
struct fields {
    int64_t *lens;
    int64_t *starts;
    int64_t *slots;
    int64_t *table;
    int64_t *indptr;
    int64_t *indices;
    int64_t *encoder_lens;
    int64_t *cross_slots;
    int64_t *cross_table;
    size_t seqs;
    size_t slot_count;
    size_t width; /* of the table */
    size_t cross_count;
    size_t cross_width;
    size_t cross_cells;
    size_t index_count;
    size_t prefills;
    int64_t encoder_tokens;
    uint32_t flavour;
    int64_t block;
};

static int64_t *values(const json_t *meta, const char *name, size_t *count)
{
    const json_t *field = json_object_get(meta, name);
    size_t own;

    return golden_ints(json_is_array(field) ? field : json_object_get(field, "v"),
                       count != NULL ? count : &own);
}

static size_t columns(const json_t *meta, const char *name)
{
    const json_t *shape = json_object_get(json_object_get(meta, name), "s");

    return (size_t)json_integer_value(json_array_get(shape, 1));
}

static void read_fields(const json_t *meta, uint32_t flavour, int64_t block, struct fields *f)
{
    *f = (struct fields){.flavour = flavour, .block = block};
    f->lens = values(meta, "seq_lens_tensor", &f->seqs);
    f->starts = values(meta, "query_start_loc", NULL);
    f->slots = values(meta, "slot_mapping", &f->slot_count);
    f->table = values(meta, "block_tables", NULL);
    f->width = columns(meta, "block_tables");
    f->indptr = values(meta, "paged_kv_indptr", NULL);
    f->indices = values(meta, "paged_kv_indices", &f->index_count);
    f->encoder_lens = values(meta, "encoder_seq_lens_tensor", NULL);
    f->cross_slots = values(meta, "cross_slot_mapping", &f->cross_count);
    f->cross_table = values(meta, "cross_block_tables", &f->cross_cells);
    f->cross_width = columns(meta, "cross_block_tables");
    f->prefills = (size_t)golden_int(meta, "num_prefills", 0);
    f->encoder_tokens = golden_int(meta, "num_encoder_tokens", 0);
}

static void free_fields(struct fields *f)
{
    int64_t *all[] = {f->lens,    f->starts,       f->slots,       f->table,      f->indptr,
                      f->indices, f->encoder_lens, f->cross_slots, f->cross_table};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static bool is_profile(const struct fields *f)
{
    bool none = f->slot_count > 0;

    for (size_t i = 0; i < f->slot_count; i++)
        none = none && f->slots[i] == -1;
    return none;
}

static uint32_t pages_of(const struct fields *f, int64_t tokens)
{
    return (uint32_t)((tokens + f->block - 1) / f->block);
}

static int64_t context_of(const struct fields *f, size_t i)
{
    return f->lens[i] - (f->starts[i + 1] - f->starts[i]);
}

/* Page p of sequence i, which this flavour tells of every sequence. */
static int64_t page_at(const struct fields *f, size_t i, size_t p)
{
    const size_t at = (size_t)f->indptr[i] + p;

    return at < f->index_count ? f->indices[at] : 0;
}

/* Cells of row i up to its last block: zeros behind that are padding. */
static uint32_t cells_of(const struct fields *f, size_t i)
{
    size_t cells = f->width;

    while (cells > 0 && f->table[i * f->width + cells - 1] == 0)
        cells--;
    return (uint32_t)cells;
}

/* A prompt's row shows what was computed before, its whole list, or nothing; decodes show their list. */
static bool is_hit(const struct fields *f, size_t i)
{
    const int64_t context = context_of(f, i);
    const uint32_t cells = cells_of(f, i);

    if (i >= f->prefills || context == 0 || cells == 0)
        return false;
    return f->flavour != ATTN_FLASHINFER || cells * f->block <= context || context + 1 == f->lens[i];
}

/* Rows of prompts without a hit are there with chunked prefill, or with FlashAttention beside a hit. */
static bool is_chunked(const struct fields *f)
{
    bool shown = false, hit = false;

    for (size_t i = 0; i < f->prefills; i++) {
        hit = hit || is_hit(f, i);
        shown = shown || (cells_of(f, i) > 0 && !is_hit(f, i));
    }
    return shown && !(hit && f->flavour == ATTN_FLASH_ATTN);
}

/* Blocks of sequence i: from pages or the table, or where its new tokens went. */
static void find_blocks(const struct fields *f, size_t i, struct attn_blocks *out, int64_t *list)
{
    const uint32_t cells = cells_of(f, i), pages = pages_of(f, f->lens[i]);
    const uint32_t count = cells > pages ? cells : pages;
    const int64_t context = context_of(f, i);

    if (is_profile(f))
        return;
    for (uint32_t p = 0; p < count; p++)
        if (f->indptr != NULL && p < pages)
            list[p] = page_at(f, i, p);
        else
            list[p] = p < cells ? f->table[i * f->width + p] : 0;
    for (int64_t t = context; t < f->lens[i]; t++) {
        const int64_t slot = f->slots[f->starts[i] + t - context];
        if (slot >= 0)
            list[t / f->block] = slot / f->block;
    }
    out->kind = ATTN_BLOCKS_LIST;
    out->count = count;
    out->blocks = list;
    out->computed = !is_hit(f, i)                   ? 0
                    : f->flavour == ATTN_FLASHINFER ? cells
                                                    : (uint32_t)(context / f->block);
}

/* Blocks of its encoder: a decode's row of the table, of its whole width; a prompt's slots. */
static void find_cross(const struct fields *f, size_t i, struct attn_blocks *out, int64_t *list)
{
    const uint32_t pages = pages_of(f, f->encoder_lens[i]);
    const bool prompt = i < f->prefills;
    size_t first = 0;

    if (f->cross_slots == NULL || f->cross_table == NULL)
        return;
    for (size_t s = 0; s < i; s++)
        first += (size_t)f->encoder_lens[s];
    out->kind = ATTN_BLOCKS_LIST;
    out->count = !prompt && f->cross_width > pages ? (uint32_t)f->cross_width : pages;
    out->blocks = list;
    for (uint32_t p = 0; p < out->count; p++) {
        const size_t at = first + (size_t)(p * f->block), cell = i * f->cross_width + p;
        if (prompt)
            list[p] = at < f->cross_count ? f->cross_slots[at] / f->block : 0;
        else
            list[p] = p < f->cross_width && cell < f->cross_cells ? f->cross_table[cell] : 0;
    }
}

static int32_t add(const struct fields *f, size_t i, struct attn_builder *builder, int64_t *room,
                   struct attn_error *err)
{
    struct attn_builder_add_args args;
    struct attn_blocks blocks = {.kind = 0}, cross = {.kind = 0};

    ATTN_INIT(&args);
    find_blocks(f, i, &blocks, room);
    args.query_len = (uint32_t)(f->starts[i + 1] - f->starts[i]);
    args.context_len = (uint32_t)context_of(f, i);
    args.prompt = i < f->prefills;
    args.prefix_hit = blocks.kind != 0 && is_hit(f, i);
    args.blocks = &blocks;
    if (f->encoder_lens != NULL) {
        args.encoder_len = (uint32_t)f->encoder_lens[i];
        find_cross(f, i, &cross, room + blocks.count);
        args.cross = cross.kind != 0 ? &cross : NULL;
    }
    return attn_builder_add(builder, &args, err);
}

static uint32_t dtype_of(const json_t *meta, const char *name)
{
    const char *text = golden_text(meta, name, "float16");

    return strcmp(text, "float8_e5m2") == 0        ? ATTN_E5M2
           : strncmp(text, "float8_e4m3", 11) == 0 ? ATTN_E4M3
           : strcmp(text, "float32") == 0          ? ATTN_F32
           : strcmp(text, "bfloat16") == 0         ? ATTN_BF16
                                                   : ATTN_F16;
}

static int32_t make(const json_t *meta, const struct fields *f, struct attn_backend *backend,
                    struct trace_step *step, struct attn_builder **builder, struct attn_error *err)
{
    static const char *const modalities[] = {"image"};
    struct attn_builder_params params;
    int64_t encoder = 0;

    for (size_t i = 0; i < f->seqs; i++) {
        step->max_len = f->lens[i] > step->max_len ? (uint32_t)f->lens[i] : step->max_len;
        encoder += f->encoder_lens != NULL ? f->encoder_lens[i] : 0;
    }
    step->seqs = (uint32_t)f->seqs;
    step->tokens = (uint32_t)(f->starts[f->seqs] > f->lens[0] ? f->starts[f->seqs] : f->lens[0]);
    step->max_len = encoder > step->max_len ? (uint32_t)encoder : step->max_len;
    step->has_cross = f->encoder_lens != NULL;
    step->group.block = step->cross.block = (uint32_t)f->block;
    const size_t width = f->width > f->cross_width ? f->width : f->cross_width;
    const uint32_t pages = pages_of(f, step->max_len);
    step->group.max_blocks = step->cross.max_blocks = (width > pages ? (uint32_t)width : pages) + 1;
    ATTN_INIT(&params);
    params.flavour = f->flavour;
    params.group = &step->group;
    params.chunked = is_chunked(f);
    params.max_seqs = step->seqs;
    params.max_tokens = step->tokens;
    params.heads = (uint32_t)golden_int(meta, "num_qo_heads", 1);
    params.kv_heads = (uint32_t)golden_int(meta, "num_kv_heads", 1);
    params.head_dim = (uint32_t)golden_int(meta, "head_dim", 1);
    params.q_dtype = dtype_of(meta, "q_data_type");
    params.kv_dtype = dtype_of(meta, "data_type");
    params.max_encoder_tokens = (uint32_t)encoder;
    params.modalities = modalities;
    params.modality_count = 1;
    params.max_map = 1;
    params.cross = step->has_cross ? &step->cross : NULL;
    return attn_builder_create(backend, &params, builder, err);
}

static struct attn_serialised_record *find(uint64_t *bytes, uint32_t field)
{
    struct attn_serialised_header *header = (struct attn_serialised_header *)(void *)bytes;
    struct attn_serialised_record *records =
        (struct attn_serialised_record *)(void *)((char *)bytes + sizeof *header +
                                                  8 * (size_t)header->groups);

    for (uint32_t i = 0; i < header->records; i++)
        if (records[i].field == field)
            return &records[i];
    return NULL;
}

static void set_slots(uint64_t *bytes, uint32_t field, const int64_t *slots, size_t count)
{
    const struct attn_serialised_record *record = find(bytes, field);

    if (record != NULL && slots != NULL && record->kind == ATTN_VIEW_ARRAY && record->shape[0] == count)
        memcpy((char *)bytes + record->offset, slots, count * sizeof(int64_t));
}

/* A step of decodes writes nothing for encoders: cross slots and the count of tokens are as was recorded. */
static void set_decodes(uint64_t *bytes, const struct fields *f)
{
    struct attn_serialised_header *header = (struct attn_serialised_header *)(void *)bytes;
    struct attn_serialised_record *slots = find(bytes, ATTN_FIELD_CROSS_SLOT_MAPPING);
    struct attn_serialised_record *tokens = find(bytes, ATTN_FIELD_NUM_ENCODER_TOKENS);

    if (f->prefills > 0 || f->cross_slots == NULL || slots == NULL || tokens == NULL)
        return;
    tokens->value = f->encoder_tokens;
    slots->shape[0] = f->cross_count;
    slots->offset = (header->bytes + 7) / 8 * 8;
    header->bytes = slots->offset + f->cross_count * sizeof(int64_t);
}

/* Recorded slots may begin within a block, which no list of blocks says: through bytes and back. */
static int32_t set_all_slots(const struct fields *f, struct attn_builder *builder,
                             struct attn_metadata **metadata, struct attn_error *err)
{
    uint64_t size = 0;
    int32_t status = attn_metadata_serialise(*metadata, NULL, 0, &size, err);

    if (status != ATTN_E_SIZE)
        return status;
    uint64_t *bytes = golden_memory((size_t)size / 8 + 1 + f->cross_count, 8);
    status = attn_metadata_serialise(*metadata, bytes, size, &size, err);
    if (status == ATTN_OK) {
        set_decodes(bytes, f);
        set_slots(bytes, ATTN_FIELD_SLOT_MAPPING, f->slots, f->slot_count);
        set_slots(bytes, ATTN_FIELD_CROSS_SLOT_MAPPING, f->cross_slots, f->cross_count);
        size = ((const struct attn_serialised_header *)(const void *)bytes)->bytes;
        status = attn_builder_restore(builder, bytes, size, NULL, metadata, err);
    }
    free(bytes);
    return status;
}

int32_t trace_build(const json_t *meta, uint32_t flavour, int64_t block, struct attn_backend *backend,
                    struct trace_step *step, struct attn_builder **builder, struct attn_metadata **out,
                    struct attn_error *err)
{
    struct fields f;

    *step = (struct trace_step){.seqs = 0};
    read_fields(meta, flavour, block, &f);
    int32_t status =
        f.lens != NULL && f.starts != NULL && f.slots != NULL && f.seqs > 0 ? ATTN_OK : ATTN_E_INVALID;
    if (status == ATTN_OK)
        status = make(meta, &f, backend, step, builder, err);
    int64_t *room = golden_memory((f.seqs + 1) * 2 * (step->group.max_blocks + (size_t)1), sizeof *room);
    if (status == ATTN_OK)
        status = attn_builder_reset(*builder, err);
    for (size_t i = 0; i < f.seqs && status == ATTN_OK; i++)
        status = add(&f, i, *builder, room + i * 2 * step->group.max_blocks, err);
    if (status == ATTN_OK)
        status = attn_builder_build(*builder, NULL, NULL, out, err);
    if (status == ATTN_OK)
        status = set_all_slots(&f, *builder, out, err);
    free(room);
    free_fields(&f);
    return status;
}
