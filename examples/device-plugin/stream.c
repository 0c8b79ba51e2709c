/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Streams and events, by a thread for each stream: replace this file by calls of your runtime. */
#include "stream.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct launch {
    struct launch *next;
    kernel_fn kernel;
    _Alignas(max_align_t) unsigned char work[];
};

/* One lock is enough for an example: it is never held while a kernel runs. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct stream {
    pthread_t thread;
    struct launch *first, **last;
    uint64_t launched, done; /* numbers of launches */
    int holders;             /* the program, and events that are recorded on it */
    bool ended;
};

struct event {
    struct stream *stream; /* NULL: reached */
    uint64_t launched;     /* reached when the stream has done so many */
};

static struct stream *find(struct attn_backend_impl *backend, void *stream)
{
    return stream != NULL ? stream : backend->null_stream;
}

static void *work_off(void *arg)
{
    struct stream *stream = arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (stream->first == NULL && !stream->ended)
            pthread_cond_wait(&changed, &lock);
        struct launch *launch = stream->first;
        if (launch == NULL)
            break;
        pthread_mutex_unlock(&lock);
        launch->kernel(launch->work);
        pthread_mutex_lock(&lock);
        stream->first = launch->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        stream->done++;
        pthread_cond_broadcast(&changed);
        free(launch);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

int32_t stream_launch(struct attn_backend_impl *backend, void *stream, kernel_fn kernel, const void *work,
                      size_t size, struct attn_error *err)
{
    struct stream *on = find(backend, stream);
    struct launch *launch = malloc(sizeof *launch + size);
    if (launch == NULL)
        return attn_util_fail(err, ATTN_E_MEMORY, "stream", "no memory for a launch");
    launch->next = NULL;
    launch->kernel = kernel;
    memcpy(launch->work, work, size);
    pthread_mutex_lock(&lock);
    *on->last = launch;
    on->last = &launch->next;
    on->launched++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return ATTN_OK;
}

/* ---------------------------------------------------------------- streams */

int32_t stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    struct stream *stream = calloc(1, sizeof *stream);
    (void)backend;
    *out = NULL;
    if (stream == NULL)
        return attn_util_fail(err, ATTN_E_MEMORY, "stream", "no memory for a stream");
    stream->last = &stream->first;
    stream->holders = 1;
    if (pthread_create(&stream->thread, NULL, work_off, stream) != 0) {
        free(stream);
        return attn_util_fail(err, ATTN_E_MEMORY, "stream", "no thread for a stream");
    }
    *out = stream;
    return ATTN_OK;
}

static void wait_for(const struct stream *stream, uint64_t launched)
{
    while (stream->done < launched)
        pthread_cond_wait(&changed, &lock);
}

int32_t stream_synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err)
{
    const struct stream *on = find(backend, stream);
    (void)err;
    pthread_mutex_lock(&lock);
    wait_for(on, on->launched);
    pthread_mutex_unlock(&lock);
    return ATTN_OK;
}

/* With the lock held. */
static void let_go(struct stream *stream)
{
    if (stream != NULL && --stream->holders == 0)
        free(stream);
}

void stream_destroy(struct attn_backend_impl *backend, void *stream)
{
    struct stream *on = stream;
    (void)backend;
    pthread_mutex_lock(&lock);
    on->ended = true; /* the thread does what was launched, then returns */
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(on->thread, NULL);
    pthread_mutex_lock(&lock);
    let_go(on);
    pthread_mutex_unlock(&lock);
}

/* ---------------------------------------------------------------- events */

int32_t event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    (void)backend;
    *out = calloc(1, sizeof(struct event));
    return *out != NULL ? ATTN_OK : attn_util_fail(err, ATTN_E_MEMORY, "event", "no memory for an event");
}

int32_t event_record(struct attn_backend_impl *backend, void *event, void *stream, struct attn_error *err)
{
    struct event *mark = event;
    struct stream *on = find(backend, stream);
    (void)err;
    pthread_mutex_lock(&lock);
    on->holders++;
    let_go(mark->stream);
    mark->stream = on;
    mark->launched = on->launched;
    pthread_mutex_unlock(&lock);
    return ATTN_OK;
}

int32_t event_query(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    const struct event *mark = event;
    (void)backend, (void)err;
    pthread_mutex_lock(&lock);
    const bool reached = mark->stream == NULL || mark->stream->done >= mark->launched;
    pthread_mutex_unlock(&lock);
    return reached ? ATTN_OK : ATTN_E_BUSY;
}

int32_t event_synchronize(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    const struct event *mark = event;
    (void)backend, (void)err;
    pthread_mutex_lock(&lock);
    if (mark->stream != NULL)
        wait_for(mark->stream, mark->launched);
    pthread_mutex_unlock(&lock);
    return ATTN_OK;
}

void event_destroy(struct attn_backend_impl *backend, void *event)
{
    (void)backend;
    pthread_mutex_lock(&lock);
    let_go(((struct event *)event)->stream);
    pthread_mutex_unlock(&lock);
    free(event);
}
