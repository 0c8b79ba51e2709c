/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The public calls on built steps: handles and how long they live, what the original asserts before it
 * advances, and which field is named when something is not as it is to be.
 */
#include "attn/layer.h"
#include "step.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

unsigned long checks_failed;
static struct attn_error err;
static const int64_t lists[3][3] = {{3, 4, 5}, {7, 8, 9}, {11, 12, 13}};
static const uint32_t lengths[3] = {6, 11, 16};

static struct attn_builder *create(uint32_t flavour)
{
    const struct attn_builder_group group = {.block = 8, .max_blocks = 8};
    struct attn_builder_params params;
    struct attn_builder *builder = NULL;

    ATTN_INIT(&params);
    params.flavour = flavour;
    params.chunked = 1;
    params.group = &group;
    params.max_seqs = 8;
    params.max_tokens = 64;
    CHECK(attn_builder_create(NULL, &params, &builder, &err) == ATTN_OK, flavour, "%s", err.message);
    return builder;
}

/* Decodes of lengths 6, 11 and 16; the first `prompts` of them are prompts of that length. */
static struct attn_metadata *build(struct attn_builder *builder, uint32_t prompts, uint32_t blocks,
                                   uint32_t graph, uint32_t pad)
{
    struct attn_builder_build_args args;
    struct attn_metadata *metadata = NULL;

    attn_builder_reset(builder, &err);
    for (uint32_t i = 0; i < 3; i++) {
        const struct attn_blocks list = {.kind = ATTN_BLOCKS_LIST, .count = blocks, .blocks = lists[i]};
        struct attn_builder_add_args add;
        ATTN_INIT(&add);
        add.prompt = i < prompts;
        add.query_len = i < prompts ? lengths[i] : 1;
        add.context_len = lengths[i] - add.query_len;
        add.blocks = &list;
        CHECK(attn_builder_add(builder, &add, &err) == ATTN_OK, i, "%s", err.message);
    }
    ATTN_INIT(&args);
    args.graph = graph;
    args.pad = pad;
    CHECK(attn_builder_build(builder, &args, NULL, &metadata, &err) == ATTN_OK, graph, "%s", err.message);
    return metadata;
}

static int64_t tokens[8], sampled[8] = {101, 102, 103, 104, 105, 106, 107, 108};

static int32_t advance(struct attn_metadata *metadata, uint32_t seqs, uint32_t queries, uint32_t to_decode)
{
    struct attn_advance_args args;

    ATTN_INIT(&args);
    args.seqs = seqs;
    args.queries = queries;
    args.prefill_to_decode = to_decode;
    args.tokens.data = tokens;
    args.sampled.data = sampled;
    err.field[0] = '\0';
    return attn_metadata_advance_step(metadata, &args, NULL, &err);
}

static struct attn_view get(const struct attn_metadata *metadata, uint32_t field)
{
    struct attn_view view;

    ATTN_INIT(&view);
    CHECK(attn_metadata_get(metadata, field, 0, &view, &err) == ATTN_OK, field, "%s", err.message);
    return view;
}

/* ---------------------------------------------------------------- handles */

static void check_handles(void)
{
    struct attn_builder *builder = create(ATTN_FLASH_ATTN), *other = create(ATTN_FLASH_ATTN);
    struct attn_metadata *whole = build(builder, 1, 3, 0, 0), *prefill, *decode, *again;
    char bytes[4096];
    uint64_t size;

    CHECK(attn_metadata_get_part(whole, ATTN_PART_PREFILL, &prefill, &err) == ATTN_OK && prefill != NULL, 0,
          "prefill");
    CHECK(attn_metadata_get_part(whole, ATTN_PART_DECODE, &decode, &err) == ATTN_OK && decode != NULL, 0,
          "decode");
    CHECK(get(prefill, ATTN_FIELD_SLOT_MAPPING).shape[0] == 6 &&
              get(decode, ATTN_FIELD_SLOT_MAPPING).shape[0] == 2,
          0, "slots");
    CHECK(attn_metadata_get_part(prefill, ATTN_PART_PREFILL, &again, &err) == ATTN_OK && again == prefill, 0,
          "itself");
    CHECK(attn_metadata_get_part(prefill, ATTN_PART_DECODE, &again, &err) == ATTN_OK && again == NULL, 0,
          "none");
    CHECK(attn_metadata_get_part(whole, 3, &again, &err) == ATTN_E_INVALID && strcmp(err.field, "part") == 0,
          0, "3");
    CHECK(attn_metadata_get_part(NULL, 1, &again, &err) == ATTN_E_INVALID, 0, "no metadata");
    CHECK(attn_metadata_get_part(whole, 1, NULL, &err) == ATTN_E_INVALID, 0, "no out");
    CHECK(advance(prefill, 1, 1, 0) == ATTN_E_STATE, 0, "a part advances: %s", err.message);
    CHECK(attn_metadata_serialise(decode, bytes, sizeof bytes, &size, &err) == ATTN_E_STATE, 0,
          "bytes of a part");
    CHECK(attn_metadata_advance_step(whole, NULL, NULL, &err) == ATTN_E_INVALID, 0, "no arguments");
    CHECK(advance(NULL, 3, 3, 0) == ATTN_E_INVALID, 0, "no metadata");

    /* Parts end with an advance, the whole with a reset. */
    CHECK(advance(whole, 3, 3, 1) == ATTN_OK, 0, "%s: %s", err.field, err.message);
    struct attn_view view;
    ATTN_INIT(&view);
    CHECK(attn_metadata_get(prefill, ATTN_FIELD_SLOT_MAPPING, 0, &view, &err) == ATTN_E_STATE, 0,
          "a stale part");
    CHECK(attn_metadata_get_part(whole, ATTN_PART_PREFILL, &prefill, &err) == ATTN_OK && prefill == NULL, 0,
          "prompts");
    CHECK(tokens[0] == 101 && tokens[2] == 103, 0, "tokens");
    CHECK(attn_metadata_serialise(whole, NULL, 0, &size, &err) == ATTN_E_SIZE && size <= sizeof bytes, 0,
          "%s", err.message);
    CHECK(attn_metadata_serialise(whole, bytes, size - 1, &size, &err) == ATTN_E_SIZE, 0, "%s", err.message);
    CHECK(attn_metadata_serialise(whole, NULL, 9, &size, &err) == ATTN_E_INVALID, 0, "%s", err.message);
    CHECK(attn_metadata_serialise(whole, bytes, sizeof bytes, NULL, &err) == ATTN_E_INVALID, 0, "%s",
          err.message);
    CHECK(attn_metadata_serialise(whole, bytes, sizeof bytes, &size, &err) == ATTN_OK, 0, "%s", err.message);
    CHECK(attn_builder_restore(other, bytes, size, NULL, &again, &err) == ATTN_OK && again != NULL, 0, "%s",
          err.message);
    CHECK(get(again, ATTN_FIELD_MAX_DECODE_SEQ_LEN).value == 17, 0, "longest");
    CHECK(attn_builder_restore(other, NULL, size, NULL, &again, &err) == ATTN_E_INVALID && err.reason == 0 &&
              strcmp(err.field, "data") == 0,
          0, "no data");
    CHECK(attn_builder_restore(other, bytes, size, NULL, NULL, &err) == ATTN_E_INVALID, 0, "no out");
    CHECK(attn_builder_restore(NULL, bytes, size, NULL, &again, &err) == ATTN_E_INVALID, 0, "no builder");
    attn_builder_reset(builder, &err);
    CHECK(advance(whole, 3, 3, 0) == ATTN_E_STATE, 0, "after a reset");
    attn_builder_destroy(builder);
    attn_builder_destroy(other);
}

/* ---------------------------------------------------------------- what is asserted */

/* A step with one record changed, or gone (kind 1), or with another value; NULL if it is not restored. */
static struct attn_metadata *changed(struct attn_builder *builder, struct attn_metadata *whole,
                                     uint32_t field, uint32_t kind, int64_t value)
{
    char bytes[4096];
    uint64_t size = 0;
    struct attn_serialised_header header;
    struct attn_serialised_record record;
    struct attn_metadata *out = NULL;

    CHECK(attn_metadata_serialise(whole, bytes, sizeof bytes, &size, &err) == ATTN_OK, field, "%s",
          err.message);
    memcpy(&header, bytes, sizeof header);
    char *at = bytes + sizeof header + 8;
    for (uint32_t i = 0; i < header.records; i++, at += sizeof record) {
        memcpy(&record, at, sizeof record);
        record.kind = record.field == field ? kind : record.kind;
        record.value = record.field == field ? value : record.value;
        memcpy(at, &record, sizeof record);
    }
    return attn_builder_restore(builder, bytes, size, NULL, &out, &err) == ATTN_OK ? out : NULL;
}

static void check_assertions(uint32_t flavour)
{
    static const struct {
        uint32_t field, kind;
        int64_t value;
        const char *name;
    } changes[] = {{ATTN_FIELD_SEQ_LENS, ATTN_VIEW_NULL, 0, "seq_lens"},
                   {ATTN_FIELD_SEQ_LENS_TENSOR, ATTN_VIEW_NULL, 0, "seq_lens_tensor"},
                   {ATTN_FIELD_CONTEXT_LENS_TENSOR, ATTN_VIEW_NULL, 0, "context_lens_tensor"},
                   {ATTN_FIELD_QUERY_START_LOC, ATTN_VIEW_NULL, 0, "query_start_loc"},
                   {ATTN_FIELD_SEQ_START_LOC, ATTN_VIEW_NULL, 0, "seq_start_loc"},
                   {ATTN_FIELD_BLOCK_TABLES, ATTN_VIEW_ARRAY, 0, ""},
                   {ATTN_FIELD_NUM_PREFILLS, ATTN_VIEW_NUMBER, 1, "num_prefills"},
                   {ATTN_FIELD_NUM_PREFILL_TOKENS, ATTN_VIEW_NUMBER, 1, "num_prefill_tokens"},
                   {ATTN_FIELD_NUM_DECODE_TOKENS, ATTN_VIEW_NUMBER, 2, "num_decode_tokens"},
                   {ATTN_FIELD_MAX_QUERY_LEN, ATTN_VIEW_NUMBER, 2, "max_query_len"},
                   {ATTN_FIELD_MAX_PREFILL_SEQ_LEN, ATTN_VIEW_NUMBER, 9, "max_prefill_seq_len"},
                   {ATTN_FIELD_MAX_DECODE_SEQ_LEN, ATTN_VIEW_NUMBER, 15, "max_decode_seq_len"}};
    struct attn_builder *builder = create(flavour), *other = create(flavour);
    struct attn_metadata *whole = build(builder, 0, 3, 0, 0);

    for (size_t i = 0; i < LENGTH(changes); i++) {
        struct attn_metadata *bad =
            changed(other, whole, changes[i].field, changes[i].kind, changes[i].value);
        const uint32_t field = changes[i].field;
        const int needed = field == ATTN_FIELD_SEQ_LENS_TENSOR || field == ATTN_FIELD_QUERY_START_LOC;
        CHECK((bad == NULL) == needed, field, "%s: %s", err.field, err.message);
        const int32_t status = bad == NULL ? ATTN_E_INVALID : advance(bad, 3, 3, 0);
        if (changes[i].name[0] == '\0')
            CHECK(status == ATTN_OK, changes[i].field, "%s: %s", err.field, err.message);
        else
            CHECK(status == ATTN_E_INVALID && strcmp(err.field, changes[i].name) == 0, changes[i].field,
                  "%d %s: %s", status, err.field, err.message);
    }
    CHECK(advance(whole, 2, 3, 0) == ATTN_E_INVALID && strcmp(err.field, "seqs") == 0, flavour, "%s",
          err.message);
    CHECK(advance(whole, 4, 3, 0) == ATTN_E_INVALID && strcmp(err.field, "seqs") == 0, flavour, "%s",
          err.message);
    CHECK(advance(whole, 2, 2, 0) == ATTN_E_INVALID, flavour, "%s", err.message);
    CHECK(advance(whole, 0, 0, 0) == ATTN_E_INVALID, flavour, "%s", err.message);
    if (flavour == ATTN_ROCM_FLASH)
        CHECK(
            advance(whole, 3, 3, 1) == ATTN_E_INVALID &&
                strcmp(err.message,
                       "Chunked prefill is not supported with rocm_flash_attn yet.turn_prefills_into_decodes "
                       "is a Multi-Step + Chunked-Prefill specific parameter.") == 0,
            flavour, "%s", err.message);
    whole = build(builder, 0, 3, 1, 2);
    CHECK(advance(whole, 5, 3, 0) == ATTN_OK, flavour, "%s: %s", err.field, err.message);
    CHECK(tokens[3] == 0 && get(whole, ATTN_FIELD_SLOT_MAPPING).shape[0] == 5, flavour, "padding");
    attn_builder_destroy(builder);
    attn_builder_destroy(other);
}

/* A token that has no block is refused before anything is written: cells behind a row's blocks are 0. */
static void check_blocks(void)
{
    for (uint32_t flavour = ATTN_FLASH_ATTN; flavour <= ATTN_ROCM_FLASH; flavour++) {
        struct attn_builder *builder = create(flavour);
        struct attn_metadata *whole = build(builder, 0, 2, 1, 0), *again;
        const int64_t slot = ((const int64_t *)get(whole, ATTN_FIELD_SLOT_MAPPING).host)[0];
        CHECK(advance(whole, 3, 3, 0) == ATTN_E_INVALID && strcmp(err.field, "block_tables") == 0, flavour,
              "%s: %s", err.field, err.message);
        CHECK(((const int64_t *)get(whole, ATTN_FIELD_SLOT_MAPPING).host)[0] == slot, flavour, "written");
        CHECK(((const int32_t *)get(whole, ATTN_FIELD_SEQ_LENS_TENSOR).host)[0] == 6, flavour, "written");
        attn_builder_destroy(builder);
        if (flavour == ATTN_FLASHINFER)
            continue;
        /* A block more, and the step goes on; its adds no longer say what it is. */
        builder = create(flavour);
        whole = build(builder, 0, 2, 0, 0);
        for (uint32_t n = 0; n < 9; n++) {
            struct attn_builder_row_args row;
            ATTN_INIT(&row);
            row.row = 2;
            row.first = 2 + n / 8;
            row.count = 1;
            row.blocks = &lists[2][n / 8];
            if (n % 8 == 0)
                CHECK(attn_builder_set_row(builder, &row, &err) == ATTN_OK, n, "%s: %s", err.field,
                      err.message);
            const int32_t status = advance(whole, 3, 3, 0);
            CHECK(status == (n < 5 ? ATTN_OK : ATTN_E_INVALID), n, "%s: %s", err.field, err.message);
            const int64_t *slots = get(whole, ATTN_FIELD_SLOT_MAPPING).host;
            CHECK(slots[2] == lists[2][0] * 8 + (n < 5 ? n : 4), n, "%lld", (long long)slots[2]);
        }
        CHECK(attn_builder_build(builder, NULL, NULL, &again, &err) == ATTN_E_STATE, flavour, "%s",
              err.message);
        attn_builder_destroy(builder);
    }
    struct attn_builder *builder = create(ATTN_XFORMERS);
    CHECK(advance(build(builder, 0, 3, 0, 0), 3, 3, 0) == ATTN_E_UNSUPPORTED, 0, "%s", err.message);
    attn_builder_destroy(builder);
}

/* A row that was trimmed to a window does not begin with the sequence's first block: its places are not
 * known. */
static void check_trimmed(void)
{
    for (uint32_t flavour = ATTN_FLASH_ATTN; flavour <= ATTN_ROCM_FLASH; flavour++) {
        struct attn_builder *builder = create(flavour);
        struct attn_metadata *whole = NULL;
        const struct attn_blocks list = {
            .kind = ATTN_BLOCKS_LIST, .count = 3, .blocks = lists[0], .window_blocks = 2, .seq_len = 12};
        struct attn_builder_add_args add;
        ATTN_INIT(&add);
        add.query_len = 1;
        add.context_len = 19;
        add.blocks = &list;
        CHECK(attn_builder_add(builder, &add, &err) == ATTN_OK, flavour, "%s", err.message);
        CHECK(attn_builder_build(builder, NULL, NULL, &whole, &err) == ATTN_OK, flavour, "%s", err.message);
        CHECK(advance(whole, 1, 1, 0) == ATTN_E_UNSUPPORTED && strcmp(err.field, "seq_lens") == 0, flavour,
              "%s: %s", err.field, err.message);
        attn_builder_destroy(builder);
    }
}

/* A sequence of a profile run has a slot for each token that is known: more than it has new ones. */
static void check_slots(void)
{
    const struct attn_builder_group group = {.block = 8, .max_blocks = 8};
    const struct attn_blocks none = {0};
    struct attn_blocks list = {.kind = ATTN_BLOCKS_LIST, .count = 1, .blocks = lists[0]};
    struct attn_builder_params params;
    struct attn_builder_add_args prompt, decode;
    struct attn_builder *builder = NULL;

    ATTN_INIT(&params);
    params.flavour = ATTN_FLASH_ATTN;
    params.group = &group;
    params.max_seqs = params.max_tokens = 4;
    CHECK(attn_builder_create(NULL, &params, &builder, &err) == ATTN_OK, 0, "%s", err.message);
    ATTN_INIT(&prompt);
    prompt.prompt = prompt.query_len = 1;
    prompt.context_len = 2;
    prompt.blocks = &none;
    ATTN_INIT(&decode);
    decode.query_len = 1;
    decode.context_len = 3;
    decode.blocks = &list;
    for (int step = 0; step < 3; step++) {
        prompt.context_len = step == 2 ? 3 : 2; /* three slots, then four */
        list.unchanged = step == 0 ? 0 : 1;     /* a usual decode from the second step on */
        CHECK(attn_builder_reset(builder, &err) == ATTN_OK, 0, "%s", err.message);
        CHECK(attn_builder_add(builder, &prompt, &err) == ATTN_OK, 0, "%s", err.message);
        const int32_t status = attn_builder_add(builder, &decode, &err);
        CHECK(step < 2 ? status == ATTN_OK : status == ATTN_E_SIZE && strcmp(err.field, "max_tokens") == 0,
              (uint64_t)step, "%d %s: %s", status, err.field, err.message);
    }
    attn_builder_destroy(builder);
}

int main(void)
{
    ATTN_INIT(&err);
    check_handles();
    check_assertions(ATTN_FLASH_ATTN);
    check_assertions(ATTN_ROCM_FLASH);
    check_blocks();
    check_trimmed();
    check_slots();
    printf("%lu checks failed\n", checks_failed);
    return checks_failed != 0;
}
