/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The numbered fields of metadata, as a view of its step. */
#include "metadata.h"
#include "fail.h"

#define F ATTN__IN(ATTN_FLASH_ATTN)
#define I ATTN__IN(ATTN_FLASHINFER)
#define R ATTN__IN(ATTN_ROCM_FLASH)
#define X ATTN__IN(ATTN_XFORMERS)

const struct attn__field_info attn__field_infos[ATTN_FIELDS] = {
#define ATTN_FIELD(name, value, text, scope, flavours) [value] = {text, ATTN__##scope, flavours},
#include "attn/field.def"
};

/* Where the value of a field is: in struct attn_step, or in the struct of its cache group or modality. */
static const struct place {
    enum attn__field_kind kind;
    size_t offset;
    uint32_t prefill; /* flavours whose prefill part has the field, */
    uint32_t decode;  /* and whose decode part has it */
} places[ATTN_FIELDS] = {
#define STEP(member)  offsetof(struct attn_step, member)
#define GROUP(member) offsetof(struct attn_step_group, member)
#define MAP(member)   offsetof(struct attn_step_map, member)
    [ATTN_FIELD_NUM_PREFILLS] = {ATTN__FIELD_NUMBER, STEP(prefills), F | R | X, F | R | X},
    [ATTN_FIELD_NUM_PREFILL_TOKENS] = {ATTN__FIELD_NUMBER, STEP(prefill_tokens), F | R | X, F | R | X},
    [ATTN_FIELD_NUM_DECODE_TOKENS] = {ATTN__FIELD_NUMBER, STEP(decode_tokens), F | R | X, F | R | X},
    [ATTN_FIELD_SLOT_MAPPING] = {ATTN__FIELD_ARRAY, GROUP(slots), F | R | X, F | R | X},
    [ATTN_FIELD_MULTI_MODAL_SOURCES] = {ATTN__FIELD_LIST, MAP(sources), F | R | X, 0},
    [ATTN_FIELD_MULTI_MODAL_DESTINATIONS] = {ATTN__FIELD_LIST, MAP(destinations), F | R | X, 0},
    [ATTN_FIELD_SEQ_LENS] = {ATTN__FIELD_LIST, GROUP(seq_lens_list), F | R | X, 0},
    [ATTN_FIELD_SEQ_LENS_TENSOR] = {ATTN__FIELD_ARRAY, GROUP(seq_lens), F | R | X, F | R | X},
    [ATTN_FIELD_MAX_PREFILL_SEQ_LEN] = {ATTN__FIELD_NUMBER, STEP(max_prefill_len), F | R | X, F | R | X},
    [ATTN_FIELD_MAX_DECODE_SEQ_LEN] = {ATTN__FIELD_NUMBER, GROUP(max_decode_len), F | R | X, F | R | X},
    [ATTN_FIELD_CONTEXT_LENS_TENSOR] = {ATTN__FIELD_ARRAY, STEP(context_lens), F | R | X, 0},
    [ATTN_FIELD_BLOCK_TABLES] = {ATTN__FIELD_TABLE, GROUP(table), F | R | X, F | R | X},
    [ATTN_FIELD_USE_CUDA_GRAPH] = {ATTN__FIELD_NUMBER, STEP(graph), F | R | X, F | R | X},
    [ATTN_FIELD_MAX_QUERY_LEN] = {ATTN__FIELD_NUMBER, STEP(max_q), F | R | X, F},
    [ATTN_FIELD_MAX_DECODE_QUERY_LEN] = {ATTN__FIELD_NUMBER, STEP(max_decode_q), F, F},
    [ATTN_FIELD_DECODE_QUERY_LEN] = {ATTN__FIELD_NUMBER, STEP(max_decode_q), 0, 0},
    [ATTN_FIELD_QUERY_START_LOC] = {ATTN__FIELD_ARRAY, STEP(query_starts), F | R | X, F},
    [ATTN_FIELD_SEQ_START_LOC] = {ATTN__FIELD_ARRAY, GROUP(seq_starts), F | R, F},
    [ATTN_FIELD_ENCODER_SEQ_LENS] = {ATTN__FIELD_LIST, STEP(encoder.seq_lens_list), F | R | X, F | R | X},
    [ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR] = {ATTN__FIELD_ARRAY, STEP(encoder.seq_lens), F | R | X, F | R | X},
    [ATTN_FIELD_ENCODER_SEQ_START_LOC] = {ATTN__FIELD_ARRAY, STEP(encoder.seq_starts), F, F},
    [ATTN_FIELD_MAX_ENCODER_SEQ_LEN] = {ATTN__FIELD_NUMBER, STEP(encoder.max_len), F | R | X, F | R | X},
    [ATTN_FIELD_NUM_ENCODER_TOKENS] = {ATTN__FIELD_NUMBER, STEP(encoder.num_tokens), 0, 0},
    [ATTN_FIELD_CROSS_SLOT_MAPPING] = {ATTN__FIELD_ARRAY, STEP(encoder.slots), F | R | X, F | R | X},
    [ATTN_FIELD_CROSS_BLOCK_TABLES] = {ATTN__FIELD_TABLE, STEP(encoder.table), F | R | X, F | R | X},
    [ATTN_FIELD_BLOCK_TABLE_BOUND] = {ATTN__FIELD_ARRAY, GROUP(pages_in_use), 0, 0},
    [ATTN_FIELD_PAGED_KV_INDPTR] = {ATTN__FIELD_ARRAY, GROUP(page_starts), 0, 0},
    [ATTN_FIELD_PAGED_KV_INDICES] = {ATTN__FIELD_ARRAY, GROUP(page_indices), 0, 0},
    [ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN] = {ATTN__FIELD_ARRAY, GROUP(last_page_lens), 0, 0},
    [ATTN_FIELD_NUM_QO_HEADS] = {ATTN__FIELD_NUMBER, STEP(heads), 0, 0},
    [ATTN_FIELD_NUM_KV_HEADS] = {ATTN__FIELD_NUMBER, STEP(kv_heads), 0, 0},
    [ATTN_FIELD_HEAD_DIM] = {ATTN__FIELD_NUMBER, STEP(head_dim), 0, 0},
    [ATTN_FIELD_PAGE_SIZE] = {ATTN__FIELD_NUMBER, GROUP(block), 0, 0},
    [ATTN_FIELD_DATA_TYPE] = {ATTN__FIELD_NUMBER, STEP(kv_dtype), 0, 0},
    [ATTN_FIELD_Q_DATA_TYPE] = {ATTN__FIELD_NUMBER, STEP(q_dtype), 0, 0},
    [ATTN_FIELD_IS_PROFILE_RUN] = {ATTN__FIELD_NUMBER, STEP(profile), 0, 0},
};

enum attn__field_kind attn__field_kind(uint32_t field)
{
    return places[field].kind;
}

static void *member(struct attn_step *step, uint32_t field, uint32_t index)
{
    char *base = attn__field_infos[field].scope == ATTN__GROUP      ? (char *)&step->group[index]
                 : attn__field_infos[field].scope == ATTN__MODALITY ? (char *)&step->map[index]
                                                                    : (char *)step;
    return base + places[field].offset;
}

struct attn_step_array *attn__step_array(struct attn_step *step, uint32_t field, uint32_t index)
{
    return member(step, field, index);
}

uint32_t *attn__step_number(struct attn_step *step, uint32_t field, uint32_t index)
{
    return member(step, field, index);
}

uint32_t attn__field_count(const struct attn_step *step, uint32_t field)
{
    return attn__field_infos[field].scope == ATTN__GROUP      ? step->groups
           : attn__field_infos[field].scope == ATTN__MODALITY ? step->modalities
                                                              : 1;
}

bool attn__flavour_has(const struct attn__flavour *flavour, uint32_t field)
{
    return (attn__field_infos[field].flavours & ATTN__IN(flavour->number)) != 0;
}

static bool is_shown(const struct attn_metadata_impl *m, uint32_t field)
{
    const uint32_t flavours = m->part == ATTN_PART_PREFILL  ? places[field].prefill
                              : m->part == ATTN_PART_DECODE ? places[field].decode
                                                            : attn__field_infos[field].flavours;

    return (flavours & ATTN__IN(m->flavour->number)) != 0;
}

static void show_number(uint32_t value, struct attn_view *out)
{
    if (value == ATTN_STEP_NONE)
        return;
    out->kind = ATTN_VIEW_NUMBER;
    out->value = value;
}

static void show_array(const struct attn_step_array *array, enum attn__field_kind kind, struct attn_view *out)
{
    const bool table = kind == ATTN__FIELD_TABLE;

    if (array->dtype == 0)
        return;
    /* Metadata of a capture shows lists, which builders keep on the host, as arrays of its buffers. */
    out->kind = kind == ATTN__FIELD_LIST && array->device.data == NULL ? ATTN_VIEW_LIST : ATTN_VIEW_ARRAY;
    out->dtype = array->dtype;
    out->rank = table ? 2 : 1;
    out->shape[0] = array->count;
    out->shape[1] = table ? array->width : 0;
    out->stride = table ? array->stride : 0;
    out->host = array->host;
    out->device = array->device;
}

int32_t attn__metadata_get(const struct attn_metadata_impl *metadata, uint32_t field, uint32_t index,
                           struct attn_view *out, struct attn_error *err)
{
    static const char *const what[] = {"it exists once", "cache groups", "modalities"};
    struct attn_step *step = (struct attn_step *)(uintptr_t)&metadata->step; /* it is only read */

    if (field >= ATTN_FIELDS || attn__field_infos[field].name == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "field", "field is %u; enum attn_field is accepted", field);
    const struct attn__field_info *info = &attn__field_infos[field];
    const uint32_t count = attn__field_count(step, field);
    if (index >= count)
        return attn__fail(err, ATTN_E_INVALID, 0, "index", "index of %s is %u; there are %u (%s)", info->name,
                          index, count, what[info->scope]);
    *out = (struct attn_view){.struct_size = sizeof *out, .kind = ATTN_VIEW_NULL};
    if (!is_shown(metadata, field))
        return ATTN_OK;
    if (places[field].kind == ATTN__FIELD_NUMBER)
        show_number(*attn__step_number(step, field, index), out);
    else
        show_array(attn__step_array(step, field, index), places[field].kind, out);
    return ATTN_OK;
}
