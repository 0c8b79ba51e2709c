/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Metadata: a step with its flavour, of a builder or of a capture, and the numbered fields as a view of it.
 */
#ifndef ATTN_SERVING_METADATA_H
#define ATTN_SERVING_METADATA_H

#include <stdbool.h>

#include "flavour.h"
#include "step.h"

struct attn_builder_impl;

enum attn__scope { ATTN__BATCH, ATTN__GROUP, ATTN__MODALITY };

struct attn__field_info {
    const char *name; /* NULL: no field has this number */
    enum attn__scope scope;
    uint32_t flavours; /* bits: 1 << enum attn_flavour */
};

/* [ATTN_FIELDS], indexed by enum attn_field. */
extern const struct attn__field_info attn__field_infos[];

static inline const char *attn__field_name(uint32_t field)
{
    return attn__field_infos[field].name;
}

struct attn_metadata_impl {
    struct attn_step step;
    const struct attn__flavour *flavour;
    uint32_t part;                     /* enum attn_part; 0: the whole */
    struct attn_builder_impl *builder; /* NULL: of a capture */
};

static inline int32_t *attn__ints(const struct attn_step_array *array)
{
    return (int32_t *)array->host;
}

static inline int64_t *attn__longs(const struct attn_step_array *array)
{
    return (int64_t *)array->host;
}

static inline uint32_t attn__index_size(uint32_t dtype)
{
    return dtype == ATTN_INT64 ? 8 : 4;
}

/* What a field is in a step. */
enum attn__field_kind { ATTN__FIELD_NUMBER = 1, ATTN__FIELD_ARRAY, ATTN__FIELD_LIST, ATTN__FIELD_TABLE };
enum attn__field_kind attn__field_kind(uint32_t field);
/* The array or table of a field; `index` is the cache group or modality. */
struct attn_step_array *attn__step_array(struct attn_step *step, uint32_t field, uint32_t index);
/* The number of a field. */
uint32_t *attn__step_number(struct attn_step *step, uint32_t field, uint32_t index);
/* How often a step has a field. */
uint32_t attn__field_count(const struct attn_step *step, uint32_t field);
/* True if metadata of a flavour has the field. */
bool attn__flavour_has(const struct attn__flavour *flavour, uint32_t field);

/* A field as a view; ATTN_E_INVALID if there is no such field, group or modality. */
int32_t attn__metadata_get(const struct attn_metadata_impl *metadata, uint32_t field, uint32_t index,
                           struct attn_view *out, struct attn_error *err);

#endif
