/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Stream, memory and copies of the backend that a model runs on, and the tensors of a layer there. */
#include "device.h"
#include "round.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int device_fail(struct failure *err, const char *what, const struct attn_error *error)
{
    return failure_set(err, "%s: %s: %.400s", what, attn_status_name(error->status), error->message);
}

static int explain(const struct attn_problem *problem, const struct attn_error *error, struct failure *err)
{
    char text[400];
    if (attn_problem_format(problem, text, sizeof text, NULL, NULL) < 0)
        return device_fail(err, "selection", error);
    return failure_set(err, "selection: %s: %.400s; all reasons: attn-info explain %s",
                       attn_status_name(error->status), error->message, text);
}

int device_select(struct attn_context *context, const struct attn_problem *problems, uint32_t count,
                  const char *backend, struct attn_decision **out, struct failure *err)
{
    struct attn_select_options options;
    struct attn_error error;
    ATTN_INIT(&options);
    ATTN_INIT(&error);
    options.backend = backend;
    if (attn_select(context, problems, count, &options, out, &error) >= 0)
        return 0;
    for (uint32_t i = 0; count > 1 && i < count; i++) {
        struct attn_decision *alone = NULL;
        struct attn_error own;
        ATTN_INIT(&own);
        int32_t status = attn_select(context, &problems[i], 1, &options, &alone, &own);
        attn_decision_destroy(alone);
        if (status < 0)
            return explain(&problems[i], &own, err);
    }
    return explain(&problems[0], &error, err);
}

/*
 * The vendor's name of the device is in the report's records of backends on it. The record of the backend
 * that was opened is preferred; where ATTN_BACKEND names another backend it has no device, and any other one
 * will do.
 */
static void name_device(struct device *d, struct attn_context *context)
{
    const char *backend = attn_backend_get_name(d->backend);
    const char *device = attn_backend_get_device(d->backend);
    struct attn_report *report = NULL;
    const struct attn_backend_record *r;
    bool found = false;
    snprintf(d->name, sizeof d->name, "%s", device);
    if (attn_context_get_report(context, &report, NULL) < 0)
        return;
    for (uint32_t i = 0; !found && (r = attn_report_get_backend(report, i)) != NULL; i++) {
        if (!r->has_device || strcmp(r->device_name, device) != 0)
            continue;
        found = strcmp(r->name, backend) == 0;
        snprintf(d->name, sizeof d->name, "%s, %s, %s", device, r->device_text, r->device_arch);
    }
    attn_report_destroy(report);
}

int device_open(struct device *d, struct attn_context *context, struct attn_backend *backend,
                struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    *d = (struct device){.backend = backend};
    name_device(d, context);
    int32_t status = attn_stream_create(backend, &d->stream, &error);
    if (status == ATTN_E_UNSUPPORTED)
        d->stream = NULL;
    return status < 0 && status != ATTN_E_UNSUPPORTED ? device_fail(err, "stream", &error) : 0;
}

void device_synchronize(struct device *d)
{
    if (d->backend)
        (void)attn_stream_synchronize(d->backend, d->stream, NULL);
}

void device_close(struct device *d)
{
    if (d->stream)
        attn_stream_destroy(d->backend, d->stream);
    *d = (struct device){0};
}

static bool has_name(const char *list, const char *name, size_t length)
{
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == length && memcmp(list, name, length) == 0)
            return true;
    return false;
}

static void add_names(const char *names, char *list, size_t size)
{
    for (size_t length; *names; names += length, names += *names == ',') {
        size_t used = strlen(list);
        length = strcspn(names, ",");
        if (!has_name(list, names, length))
            snprintf(list + used, size - used, "%s%.*s", used ? "," : "", (int)length, names);
    }
}

int device_name_kernels(const struct device *d, const struct attn_problem *problem, char *list, size_t size,
                        struct failure *err)
{
    struct attn_plan *plan = NULL;
    struct attn_plan_info info;
    struct attn_error error;
    ATTN_INIT(&info);
    ATTN_INIT(&error);
    if (attn_plan_create(d->backend, problem, &plan, &error) < 0)
        return device_fail(err, "plan", &error);
    int status = attn_plan_describe(plan, &info, &error) < 0 ? device_fail(err, "plan", &error) : 0;
    if (status == 0)
        add_names(info.kernels, list, size);
    attn_plan_destroy(plan);
    return status;
}

const char *device_find_generic(const struct attn_decision *decision)
{
    const struct attn_decision_info *info = attn_decision_get_info(decision);
    const struct attn_candidate *c;
    for (uint32_t i = 0; (c = attn_decision_get_candidate(decision, i)) != NULL; i++) {
        if (!c->accepted || strcmp(c->name, info->effective) != 0 || strcmp(c->device, info->device) != 0)
            continue;
        for (uint32_t k = 0; k < c->kernel_count; k++)
            if (c->kernels[k].speed == ATTN_SPEED_GENERIC)
                return c->kernels[k].name;
    }
    return NULL;
}

void device_print(const char *backend, const char *name, const char *kernels, const char *generic)
{
    fprintf(stderr, "backend: %s (%s)\n", backend, name);
    if (generic)
        fprintf(stderr, "kernels: %s (%s is generic: many times slower than an optimised one)\n", kernels,
                generic);
    else
        fprintf(stderr, "kernels: %s\n", kernels);
}

int device_alloc(const struct device *d, const char *what, uint64_t size, struct attn_buffer *out,
                 struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    return attn_memory_alloc(d->backend, size, out, &error) < 0 ? device_fail(err, what, &error) : 0;
}

void device_free(const struct device *d, struct attn_buffer *buffer)
{
    if (buffer->data)
        attn_memory_free(d->backend, buffer);
    *buffer = (struct attn_buffer){0};
}

int device_host_alloc(const struct device *d, const char *what, uint64_t size, struct device_host *out,
                      struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    int32_t status = attn_memory_alloc_pinned(d->backend, size, &out->memory, &error);
    out->pinned = status >= 0;
    if (out->pinned)
        memset(out->memory, 0, size);
    else if (status == ATTN_E_UNSUPPORTED)
        out->memory = calloc(1, size);
    else
        return device_fail(err, what, &error);
    return out->memory ? 0 : failure_set(err, "%s: no memory for %" PRIu64 " bytes of the host", what, size);
}

void device_host_free(const struct device *d, struct device_host *host)
{
    if (host->pinned)
        attn_memory_free_pinned(d->backend, host->memory);
    else
        free(host->memory);
    *host = (struct device_host){0};
}

static int copy(const struct device *d, const struct attn_buffer *to, const struct attn_buffer *from,
                uint64_t size, uint32_t kind, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    if (attn_memory_copy(d->backend, to, from, size, kind, d->stream, &error) < 0)
        return device_fail(err, kind == ATTN_COPY_TO_HOST ? "copy from the backend" : "copy to the backend",
                           &error);
    return 0;
}

int device_put(const struct device *d, const struct attn_buffer *to, const void *from, uint64_t size,
               struct failure *err)
{
    const struct attn_buffer host = {(void *)(uintptr_t)from, 0};
    return copy(d, to, &host, size, ATTN_COPY_TO_DEVICE, err);
}

int device_get(const struct device *d, void *to, const struct attn_buffer *from, uint64_t size,
               struct failure *err)
{
    const struct attn_buffer host = {to, 0};
    return copy(d, &host, from, size, ATTN_COPY_TO_HOST, err);
}

int device_wait(const struct device *d, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    return attn_stream_synchronize(d->backend, d->stream, &error) < 0 ? device_fail(err, "stream", &error)
                                                                      : 0;
}

/* ---------------------------------------------------------------- tensors of a layer */

/* Where a tensor may begin: kernels load vectors of this size at most. */
enum { ALIGNMENT = 64 };

static uint64_t align(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int device_tensors_make(const struct device *d, uint32_t dtype, uint64_t q, uint64_t kv,
                        struct device_tensors *out, struct failure *err)
{
    const uint32_t size = attn_dtype_size(dtype);
    const uint64_t up = align(q * size) + 2 * align(kv * size);
    *out = (struct device_tensors){.dtype = dtype};
    if (device_host_alloc(d, "queries, keys and values on the host", up, &out->up, err) < 0 ||
        device_host_alloc(d, "output on the host", q * size, &out->down, err) < 0 ||
        device_alloc(d, "queries, keys and values", up, &out->d_up, err) < 0)
        return -1;
    return device_alloc(d, "output", q * size, &out->d_down, err);
}

void device_tensors_free(const struct device *d, struct device_tensors *t)
{
    device_host_free(d, &t->up);
    device_host_free(d, &t->down);
    device_free(d, &t->d_up);
    device_free(d, &t->d_down);
}

void device_tensors_place(struct device_tensors *t, uint64_t q, uint64_t kv)
{
    const uint32_t size = attn_dtype_size(t->dtype);
    t->k = align(q * size);
    t->v = t->k + align(kv * size);
    t->up_size = kv ? t->v + kv * size : q * size;
    t->down_size = q * size;
}

void device_tensors_fill(struct device_tensors *t, const float *q, uint64_t q_count, const float *k,
                         const float *v, uint64_t kv_count)
{
    unsigned char *up = t->up.memory;
    round_from_float(t->dtype, q, q_count, up);
    if (kv_count == 0)
        return;
    round_from_float(t->dtype, k, kv_count, up + t->k);
    round_from_float(t->dtype, v, kv_count, up + t->v);
}

void device_tensors_take(const struct device_tensors *t, float *out, uint64_t count)
{
    round_to_float(t->dtype, t->down.memory, count, out);
}

int device_tensors_upload(const struct device *d, const struct device_tensors *t, struct failure *err)
{
    return device_put(d, &t->d_up, t->up.memory, t->up_size, err);
}

int device_tensors_download(const struct device *d, const struct device_tensors *t, struct failure *err)
{
    return device_get(d, t->down.memory, &t->d_down, t->down_size, err);
}

struct attn_tensor device_view(const struct device_tensors *t, struct attn_buffer buffer, uint64_t offset,
                               uint32_t heads, uint32_t dim)
{
    const int64_t head_stride = (int64_t)dim * attn_dtype_size(t->dtype);
    buffer.byte_offset += offset;
    return (struct attn_tensor){
        .buffer = buffer, .token_stride = heads * head_stride, .head_stride = head_stride};
}
