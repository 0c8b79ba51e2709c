/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Streams that do nothing before somebody waits: what was overwritten or freed too early shows in the
 * results. */
#include "lazy.h"

#include "kernels.h"
#include "stream.h"

#include <stdbool.h>

enum { MOST_STREAMS = 8 };

struct launch {
    struct launch *next;
    kernel_fn kernel;
    void *work;
};

struct stream {
    struct launch *first, **last;
    uint64_t launched, done;
};

struct event {
    struct stream *stream;
    uint64_t launched;
};

static struct stream *alive[MOST_STREAMS];

static struct lazy_counts *counts(void)
{
    static struct lazy_counts own;
    const char *text = getenv(LAZY_VARIABLE);
    void *found = NULL;
    return text != NULL && sscanf(text, "%p", &found) == 1 ? found : &own;
}

/* The stream, or NULL if it does not live. */
static struct stream *find(struct attn_backend_impl *backend, void *stream)
{
    const void *wanted = stream != NULL ? stream : backend->null_stream;
    for (int i = 0; i < MOST_STREAMS; i++)
        if (alive[i] != NULL && alive[i] == wanted)
            return alive[i];
    counts()->strays++;
    return NULL;
}

static void work_off(struct stream *stream, uint64_t launched)
{
    while (stream->done < launched) {
        struct launch *launch = stream->first;
        launch->kernel(launch->work);
        stream->first = launch->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        stream->done++;
        counts()->pending--;
        free(launch->work);
        free(launch);
    }
}

int32_t stream_launch(struct attn_backend_impl *backend, void *stream, kernel_fn kernel, const void *work,
                      size_t size, struct attn_error *err)
{
    struct stream *on = find(backend, stream);
    struct launch *launch = on != NULL ? malloc(sizeof *launch) : NULL;
    if (launch == NULL)
        return attn_util_fail(err, ATTN_E_MEMORY, "stream", "no memory for a launch");
    *launch = (struct launch){.kernel = kernel, .work = malloc(size)};
    if (launch->work == NULL) {
        free(launch);
        return attn_util_fail(err, ATTN_E_MEMORY, "stream", "no memory for a launch");
    }
    memcpy(launch->work, work, size);
    *on->last = launch;
    on->last = &launch->next;
    on->launched++;
    counts()->launches++;
    counts()->pending++;
    counts()->copies += kernel == kernel_copy;
    counts()->writes += kernel == kernel_write;
    counts()->runs += kernel == kernel_run;
    counts()->clears += kernel == kernel_run && ((const struct run_work *)work)->counters_dirty;
    return ATTN_OK;
}

int32_t stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    (void)backend;
    *out = NULL;
    for (int i = 0; i < MOST_STREAMS; i++) {
        if (alive[i] != NULL)
            continue;
        struct stream *stream = calloc(1, sizeof *stream);
        if (stream == NULL)
            break;
        stream->last = &stream->first;
        *out = alive[i] = stream;
        counts()->streams++;
        return ATTN_OK;
    }
    return attn_util_fail(err, ATTN_E_MEMORY, "stream", "no memory for a stream");
}

int32_t stream_synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err)
{
    struct stream *on = find(backend, stream);
    (void)err;
    counts()->waits++;
    if (on != NULL)
        work_off(on, on->launched);
    return ATTN_OK;
}

void stream_destroy(struct attn_backend_impl *backend, void *stream)
{
    struct stream *on = find(backend, stream);
    for (int i = 0; i < MOST_STREAMS && on != NULL; i++)
        if (alive[i] == on)
            alive[i] = NULL;
    if (on == NULL)
        return;
    work_off(on, on->launched);
    counts()->streams--;
    free(on);
}

int32_t event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    (void)backend;
    *out = counts()->no_events ? NULL : calloc(1, sizeof(struct event));
    if (*out == NULL)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "event", "there are none");
    counts()->events++;
    return ATTN_OK;
}

int32_t event_record(struct attn_backend_impl *backend, void *event, void *stream, struct attn_error *err)
{
    struct event *mark = event;
    (void)err;
    mark->stream = find(backend, stream);
    mark->launched = mark->stream != NULL ? mark->stream->launched : 0;
    return ATTN_OK;
}

/* The stream of a mark may be gone, and has done all then. */
static bool is_pending(const struct event *mark)
{
    for (int i = 0; i < MOST_STREAMS; i++)
        if (mark->stream != NULL && alive[i] == mark->stream)
            return mark->stream->done < mark->launched;
    return false;
}

int32_t event_query(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    (void)backend, (void)err;
    return is_pending(event) ? ATTN_E_BUSY : ATTN_OK;
}

int32_t event_synchronize(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    const struct event *mark = event;
    (void)backend, (void)err;
    counts()->waits++;
    if (is_pending(mark))
        work_off(mark->stream, mark->launched);
    return ATTN_OK;
}

void event_destroy(struct attn_backend_impl *backend, void *event)
{
    (void)backend;
    counts()->events--;
    free(event);
}
