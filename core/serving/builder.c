/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Builders and their metadata: checks handles and arguments, and calls the function table of the builder. */
#include <stdlib.h>

#include "attn/serving.h"
#include "flavour.h"
#include "serving/handle.h"

int32_t attn__builder_begin(const struct attn_builder *builder, const char *what, struct attn_error *err)
{
    if (builder == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "builder", "%s: the handle is NULL", what);
    return builder->backend != NULL ? attn__call_begin(builder->backend, what, err)
                                    : attn__check_fork(builder->born, what, err);
}

int32_t attn__metadata_begin(const struct attn_metadata *metadata, const char *what, struct attn_error *err)
{
    if (metadata == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "metadata", "%s: the handle is NULL", what);
    if (metadata->impl == NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "metadata",
                          "%s: the step of this metadata has ended; build the next one first", what);
    return metadata->backend != NULL ? attn__call_begin(metadata->backend, what, err)
                                     : attn__check_fork(metadata->born, what, err);
}

static int32_t end_call(const struct attn_metadata *metadata, int32_t status, struct attn_error *own,
                        const char *what, struct attn_error *err)
{
    if (metadata->backend != NULL)
        return attn__call_end(metadata->backend, status, own, what, err);
    return status == ATTN_OK ? ATTN_OK : attn__fail(err, status, own->reason, own->field, "%s", own->message);
}

int32_t attn__builder_end(const struct attn_builder *builder, int32_t status, struct attn_error *own,
                          const char *what, struct attn_error *err)
{
    return end_call(&builder->whole, status, own, what, err);
}

int32_t attn__serving_take(const void *args, void *copy, size_t size, uint32_t known, const char *name,
                           const void **out, struct attn_error *err)
{
    *out = args;
    if (args == NULL || *(const uint32_t *)args != (uint32_t)size) {
        const int32_t status = attn__argument_copy(args, copy, size, name, out, err);
        if (status != ATTN_OK)
            return status;
    }
    if (known < size && attn__has_bytes(*out, known, size))
        return attn__fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_UNKNOWN_TO_PLUGIN, name,
                          "%s has a value beyond byte %u, which is all that the plugin knows", name, known);
    return ATTN_OK;
}

static int32_t create_impl(struct attn_builder *builder, const struct attn_builder_params *params,
                           struct attn_error *err)
{
    struct attn_backend *backend = builder->backend;
    struct attn_builder_params copy;
    const void *known = NULL;
    int32_t status =
        attn__serving_take(params, &copy, sizeof copy, builder->table->params_size, "params", &known, err);
    if (status != ATTN_OK)
        return status;
    struct attn_serving_host host = {.struct_size = sizeof host, .device_type = ATTN_DEVICE_CPU};
    if (backend != NULL)
        attn__serving_host(backend, &host);
    struct attn_error own;
    attn__error_open(&own);
    status = builder->table->create(&host, known, &builder->impl, &own);
    return attn__builder_end(builder, status, &own, "builder create", err);
}

int32_t attn_builder_create(struct attn_backend *backend, const struct attn_builder_params *params,
                            struct attn_builder **out, struct attn_error *err)
{
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL");
    *out = NULL;
    int32_t status = backend != NULL ? attn__call_begin(backend, "attn_builder_create", err) : ATTN_OK;
    if (status != ATTN_OK)
        return status;
    struct attn_builder *builder = calloc(1, sizeof *builder);
    if (builder == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "builder", "no memory for a builder");
    builder->born = attn__fork_generation();
    builder->backend = backend;
    builder->table = backend != NULL ? backend->entry->table.builder : &attn_serving_builder;
    builder->whole = (struct attn_metadata){
        .table = builder->table, .builder = builder, .backend = backend, .born = builder->born};
    builder->prefill = builder->decode = builder->whole;
    status = create_impl(builder, params, err);
    if (status != ATTN_OK) {
        free(builder);
        return status;
    }
    if (backend != NULL)
        attn__backend_hold(backend);
    *out = builder;
    return ATTN_OK;
}

void attn_builder_destroy(struct attn_builder *builder)
{
    if (builder == NULL)
        return;
    /* A child after fork cannot free memory of the device. */
    if (builder->backend == NULL || builder->born == attn__fork_generation())
        builder->table->destroy(builder->impl);
    if (builder->backend != NULL)
        attn__backend_drop(builder->backend);
    free(builder);
}

static void end_step(struct attn_builder *builder)
{
    builder->whole.impl = builder->prefill.impl = builder->decode.impl = NULL;
}

int32_t attn_builder_reset(struct attn_builder *builder, struct attn_error *err)
{
    const int32_t status = attn__builder_begin(builder, "attn_builder_reset", err);
    if (status != ATTN_OK)
        return status;
    end_step(builder);
    struct attn_error own;
    attn__error_open(&own);
    return attn__builder_end(builder, builder->table->reset(builder->impl, &own), &own, "builder reset", err);
}

int32_t attn_builder_add(struct attn_builder *builder, const struct attn_builder_add_args *args,
                         struct attn_error *err)
{
    struct attn_builder_add_args copy;
    const void *known;
    int32_t status = attn__builder_begin(builder, "attn_builder_add", err);
    if (status == ATTN_OK)
        status = attn__serving_take(args, &copy, sizeof copy, builder->table->add_size, "args", &known, err);
    if (status != ATTN_OK)
        return status;
    if (builder->whole.impl != NULL)
        return attn__fail(
            err, ATTN_E_STATE, 0, "builder",
            "attn_builder_add: the step was built; the next one begins with attn_builder_reset");
    struct attn_error own;
    attn__error_open(&own);
    return attn__builder_end(builder, builder->table->add(builder->impl, known, &own), &own, "builder add",
                             err);
}

int32_t attn_builder_set_row(struct attn_builder *builder, const struct attn_builder_row_args *args,
                             struct attn_error *err)
{
    struct attn_builder_row_args copy;
    const void *known;
    int32_t status = attn__builder_begin(builder, "attn_builder_set_row", err);
    if (status == ATTN_OK)
        status = attn__serving_take(args, &copy, sizeof copy, builder->table->row_size, "args", &known, err);
    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    return attn__builder_end(builder, builder->table->set_row(builder->impl, known, &own), &own,
                             "builder set_row", err);
}

int32_t attn_builder_set_device(struct attn_builder *builder, const struct attn_builder_device_args *args,
                                struct attn_error *err)
{
    struct attn_builder_device_args copy;
    const void *known;
    int32_t status = attn__builder_begin(builder, "attn_builder_set_device", err);
    if (status == ATTN_OK)
        status = attn__serving_take(args, &copy, sizeof copy, (uint32_t)sizeof copy, "args", &known, err);
    if (status != ATTN_OK)
        return status;
    if (builder->whole.impl != NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "builder",
                          "attn_builder_set_device: the step was built; accepted: after attn_builder_reset");
    if (builder->table->set_device == NULL)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "set_device",
                          "the backend's builder has no set_device");
    struct attn_error own;
    attn__error_open(&own);
    return attn__builder_end(builder, builder->table->set_device(builder->impl, known, &own), &own,
                             "builder set_device", err);
}

int32_t attn_builder_build(struct attn_builder *builder, const struct attn_builder_build_args *args,
                           void *stream, struct attn_metadata **out, struct attn_error *err)
{
    static const struct attn_builder_build_args none = {.struct_size = sizeof none};
    struct attn_builder_build_args copy;
    const void *known = &none;
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL");
    *out = NULL;
    int32_t status = attn__builder_begin(builder, "attn_builder_build", err);
    if (status == ATTN_OK && args != NULL)
        status =
            attn__serving_take(args, &copy, sizeof copy, builder->table->build_size, "args", &known, err);
    if (status != ATTN_OK)
        return status;
    end_step(builder);
    struct attn_metadata_impl *impl = NULL;
    struct attn_error own;
    attn__error_open(&own);
    status = attn__builder_end(builder, builder->table->build(builder->impl, known, stream, &impl, &own),
                               &own, "builder build", err);
    if (status != ATTN_OK)
        return status;
    builder->whole.impl = impl;
    *out = &builder->whole;
    return ATTN_OK;
}

const char *attn_flavour_name(uint32_t flavour)
{
    const struct attn__flavour *known = attn__flavour_get(flavour);
    return known != NULL ? known->name : NULL;
}

const char *attn_field_name(uint32_t field)
{
    static const char *const names[ATTN_FIELDS] = {
#define ATTN_FIELD(name, value, text, scope, flavours) [value] = (text),
#include "attn/field.def"
    };
    return field < ATTN_FIELDS ? names[field] : NULL;
}

int32_t attn_metadata_get(const struct attn_metadata *metadata, uint32_t field, uint32_t index,
                          struct attn_view *out, struct attn_error *err)
{
    int32_t status = attn__metadata_begin(metadata, "attn_metadata_get", err);
    if (status == ATTN_OK)
        status = attn__answer_begin(out, sizeof *out, "out", err);
    if (status != ATTN_OK)
        return status;
    struct attn_view own;
    struct attn_error inner;
    ATTN_INIT(&own);
    attn__error_open(&inner);
    status = metadata->table->get(metadata->impl, field, index, &own, &inner);
    status = end_call(metadata, status, &inner, "metadata get", err);
    return status == ATTN_OK ? attn__answer(out, &own, sizeof own, "out", err) : status;
}
