/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of metadata fields, and the function that reads one. */
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

int32_t attn__metadata_get(const struct attn_metadata_impl *metadata, uint32_t field, uint32_t index,
                           struct attn_view *out, struct attn_error *err)
{
    static const char *const what[] = {"it exists once", "cache groups", "modalities"};

    if (field >= ATTN_FIELDS || attn__field_infos[field].name == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "field", "field is %u; enum attn_field is accepted", field);
    const struct attn__field_info *info = &attn__field_infos[field];
    const uint32_t count = info->scope == ATTN__GROUP      ? metadata->groups
                           : info->scope == ATTN__MODALITY ? metadata->modalities
                                                           : 1;
    if (index >= count)
        return attn__fail(err, ATTN_E_INVALID, 0, "index", "index of %s is %u; there are %u (%s)", info->name,
                          index, count, what[info->scope]);
    *out = *attn__field(metadata, field, index);
    out->struct_size = (uint32_t)sizeof *out;
    return ATTN_OK;
}
