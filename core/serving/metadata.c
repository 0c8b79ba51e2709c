/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Calls on metadata that was built: parts, advancing to the next step, serialising and restoring. */
#include "serving/handle.h"

/* Begins a call that accepts only the whole metadata, and that the builder need not offer. */
static int32_t begin(const struct attn_metadata *metadata, const char *what, bool offered,
                     struct attn_error *err)
{
    const int32_t status = attn__metadata_begin(metadata, what, err);
    if (status != ATTN_OK)
        return status;
    if (metadata->builder == NULL)
        return attn__fail(
            err, ATTN_E_STATE, 0, "metadata",
            "%s: this is the metadata of a capture, which shows its buffers; a builder's is accepted", what);
    if (metadata != &metadata->builder->whole)
        return attn__fail(err, ATTN_E_STATE, 0, "metadata", "%s: this is a part; the whole is accepted",
                          what);
    return offered ? ATTN_OK
                   : attn__fail(err, ATTN_E_UNSUPPORTED, 0, "metadata", "%s: the backend's builder has none",
                                what);
}

/* Whether the builder behind a handle, which may be NULL, has this function. */
#define OFFERS(metadata, entry) ((metadata) != NULL && (metadata)->table->entry != NULL)

/* The part of the same kind of a part is itself; it has no part of the other kind. */
static int32_t part_of_part(struct attn_metadata *metadata, uint32_t part, struct attn_metadata **out)
{
    const struct attn_builder *builder = metadata->builder;
    const struct attn_metadata *own = part == ATTN_PART_PREFILL ? &builder->prefill : &builder->decode;
    *out = metadata == own ? metadata : NULL;
    return ATTN_OK;
}

int32_t attn_metadata_get_part(struct attn_metadata *metadata, uint32_t part, struct attn_metadata **out,
                               struct attn_error *err)
{
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL");
    *out = NULL;
    int32_t status = attn__metadata_begin(metadata, "attn_metadata_get_part", err);
    if (status != ATTN_OK)
        return status;
    if (part != ATTN_PART_PREFILL && part != ATTN_PART_DECODE)
        return attn__fail(err, ATTN_E_INVALID, 0, "part", "part is %u; accepted: 1 (prefill) and 2 (decode)",
                          part);
    struct attn_builder *builder = metadata->builder;
    if (builder != NULL && metadata != &builder->whole)
        return part_of_part(metadata, part, out);
    status = begin(metadata, "attn_metadata_get_part", metadata->table->part != NULL, err);
    if (status != ATTN_OK)
        return status;
    struct attn_metadata_impl *impl = NULL;
    struct attn_error own;
    attn__error_open(&own);
    status = attn__builder_end(builder, builder->table->part(builder->impl, part, &impl, &own), &own,
                               "metadata part", err);
    if (status != ATTN_OK || impl == NULL)
        return status;
    struct attn_metadata *handle = part == ATTN_PART_PREFILL ? &builder->prefill : &builder->decode;
    handle->impl = impl;
    *out = impl == metadata->impl ? metadata : handle;
    return ATTN_OK;
}

int32_t attn_metadata_advance_step(struct attn_metadata *metadata, const struct attn_advance_args *args,
                                   void *stream, struct attn_error *err)
{
    struct attn_advance_args copy;
    const void *known = NULL;
    int32_t status = begin(metadata, "attn_metadata_advance_step", OFFERS(metadata, advance), err);
    if (status != ATTN_OK)
        return status;
    struct attn_builder *builder = metadata->builder;
    status = attn__serving_take(args, &copy, sizeof copy, builder->table->advance_size, "args", &known, err);
    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    status = builder->table->advance(builder->impl, known, stream, &own);
    if (status == ATTN_OK)
        builder->prefill.impl = builder->decode.impl = NULL;
    return attn__builder_end(builder, status, &own, "metadata advance", err);
}

int32_t attn_metadata_serialise(const struct attn_metadata *metadata, void *data, uint64_t capacity,
                                uint64_t *out_size, struct attn_error *err)
{
    int32_t status = begin(metadata, "attn_metadata_serialise", OFFERS(metadata, serialise), err);
    if (status != ATTN_OK)
        return status;
    if (out_size == NULL || (data == NULL && capacity > 0))
        return attn__fail(err, ATTN_E_INVALID, 0, out_size == NULL ? "out_size" : "data", "%s is NULL",
                          out_size == NULL ? "out_size" : "data");
    const struct attn_builder *builder = metadata->builder;
    struct attn_error own;
    attn__error_open(&own);
    status = builder->table->serialise(builder->impl, data, capacity, out_size, &own);
    return attn__builder_end(builder, status, &own, "metadata serialise", err);
}

int32_t attn_builder_restore(struct attn_builder *builder, const void *data, uint64_t size, void *stream,
                             struct attn_metadata **out, struct attn_error *err)
{
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL");
    *out = NULL;
    int32_t status = attn__builder_begin(builder, "attn_builder_restore", err);
    if (status != ATTN_OK)
        return status;
    if (builder->table->restore == NULL)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "builder",
                          "attn_builder_restore: the backend's builder has none");
    if (data == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "data", "data is NULL");
    status = attn_builder_reset(builder, err);
    if (status != ATTN_OK)
        return status;
    struct attn_metadata_impl *impl = NULL;
    struct attn_error own;
    attn__error_open(&own);
    status =
        attn__builder_end(builder, builder->table->restore(builder->impl, data, size, stream, &impl, &own),
                          &own, "builder restore", err);
    if (status != ATTN_OK)
        return status;
    builder->whole.impl = impl;
    *out = &builder->whole;
    return ATTN_OK;
}
