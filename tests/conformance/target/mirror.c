/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Twins of guarded buffers in a backend's memory. */
#include "mirror.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn/device.h"
#include "need.h"

enum { MOST_MIRRORS = 128, RED_BYTES = 256, RED = 0x5c, JUNK = 0xe7 };

struct mirror {
    struct attn_backend *backend;
    void *stream; /* NULL where the backend has none of its own */
    struct twin *twins;
};

struct twin {
    struct twin *next;   /* of the mirror */
    struct twin *beside; /* of the same buffer, on another backend */
    struct mirror *mirror;
    struct guarded *buffer;
    struct attn_buffer memory;
    unsigned char *image; /* what is copied: red zone, data, red zone */
    size_t before;        /* bytes in front of the data */
    size_t size;
    bool sent;
};

static struct mirror mirrors[MOST_MIRRORS];
static bool every_device, suspended;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void mirror_lock(void)
{
    pthread_mutex_lock(&lock);
}

void mirror_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void mirror_all(bool all)
{
    every_device = all;
}

void mirror_suspend(bool on)
{
    mirror_lock();
    suspended = on;
    mirror_unlock();
}

bool mirror_wanted(const char *device)
{
    if (suspended)
        return false;
    return every_device || device == NULL || strncmp(device, "cpu", 3) != 0;
}

struct mirror *mirror_of(const struct attn_backend *backend)
{
    for (uint32_t i = 0; i < MOST_MIRRORS && backend != NULL && !suspended; i++)
        if (mirrors[i].backend == backend)
            return &mirrors[i];
    return NULL;
}

void *mirror_stream(const struct mirror *mirror, void *stream)
{
    return stream != NULL ? stream : mirror->stream;
}

int32_t mirror_enable(struct attn_backend *backend, struct attn_error *err)
{
    uint32_t i = 0;

    while (i < MOST_MIRRORS && mirrors[i].backend != NULL)
        i++;
    if (i == MOST_MIRRORS) {
        snprintf(err->message, sizeof err->message, "too many backends are open");
        return ATTN_E_MEMORY;
    }
    mirrors[i] = (struct mirror){.backend = backend};
    int32_t status = attn_stream_create(backend, &mirrors[i].stream, err);
    if (status == ATTN_E_UNSUPPORTED)
        status = ATTN_OK;
    if (status != ATTN_OK)
        mirrors[i].backend = NULL;
    return status;
}

static void twin_destroy(struct twin *twin)
{
    struct twin **at = &twin->mirror->twins;

    while (*at != twin)
        at = &(*at)->next;
    *at = twin->next;
    attn_memory_free(twin->mirror->backend, &twin->memory);
    free(twin->image);
    free(twin);
}

/* The arena that a buffer belongs to goes away. */
static void drop_twins(struct guarded *buffer)
{
    mirror_lock();
    for (struct twin *twin = buffer->twins, *next; twin != NULL; twin = next) {
        next = twin->beside;
        twin_destroy(twin);
    }
    buffer->twins = NULL;
    mirror_unlock();
}

void mirror_disable(struct attn_backend *backend)
{
    struct mirror *mirror = mirror_of(backend);

    if (mirror == NULL)
        return;
    for (struct twin *twin; (twin = mirror->twins) != NULL; twin_destroy(twin)) {
        struct twin **at = &twin->buffer->twins;
        while (*at != twin)
            at = &(*at)->beside;
        *at = twin->beside;
    }
    if (mirror->stream != NULL)
        attn_stream_destroy(backend, mirror->stream);
    mirror->backend = NULL;
}

static struct twin *twin_create(struct mirror *mirror, struct guarded *buffer, struct attn_error *err)
{
    struct twin *twin = need(calloc(1, sizeof *twin));

    twin->mirror = mirror;
    twin->buffer = buffer;
    twin->before = RED_BYTES + ((uintptr_t)buffer->data & 63); /* as aligned as the original */
    twin->size = twin->before + buffer->size + RED_BYTES;
    if (attn_memory_alloc(mirror->backend, twin->size, &twin->memory, err) != ATTN_OK) {
        free(twin);
        return NULL;
    }
    twin->image = need(malloc(twin->size));
    twin->next = mirror->twins;
    mirror->twins = twin;
    twin->beside = buffer->twins;
    buffer->twins = twin;
    buffer->drop_twins = drop_twins;
    return twin;
}

int32_t mirror_translate(struct mirror *mirror, struct attn_buffer *buffer, struct attn_error *err)
{
    if (buffer->data == NULL)
        return ATTN_OK;
    const unsigned char *address = (const unsigned char *)((uintptr_t)buffer->data + buffer->byte_offset);
    struct guarded *guarded = arena_buffer(address);
    if (guarded == NULL) {
        snprintf(err->message, sizeof err->message,
                 "the checker gave an address that lies in none of its buffers");
        return ATTN_E_INVALID;
    }
    struct twin *twin = guarded->twins;
    while (twin != NULL && twin->mirror != mirror)
        twin = twin->beside;
    if (twin == NULL)
        twin = twin_create(mirror, guarded, err);
    if (twin == NULL)
        return ATTN_E_MEMORY;
    *buffer = twin->memory;
    buffer->byte_offset += twin->before + (uint64_t)(address - guarded->data);
    return ATTN_OK;
}

int32_t mirror_push(struct mirror *mirror, void *stream, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    for (struct twin *twin = mirror->twins; twin != NULL && status == ATTN_OK; twin = twin->next) {
        const struct attn_buffer image = {twin->image, 0};
        if (twin->sent && twin->buffer->constant)
            continue;
        memset(twin->image, RED, twin->size);
        memcpy(twin->image + twin->before, twin->buffer->data, twin->buffer->size);
        status = attn_memory_copy(mirror->backend, &twin->memory, &image, twin->size, ATTN_COPY_TO_DEVICE,
                                  stream, err);
        twin->sent = twin->buffer->constant;
    }
    return status;
}

static bool is_red(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != RED)
            return false;
    return true;
}

/* What came back: outputs go into the buffer, inputs must be what they were. */
static void take(struct twin *twin)
{
    struct guarded *buffer = twin->buffer;
    const unsigned char *data = twin->image + twin->before;

    if (!is_red(twin->image, twin->before) || !is_red(data + buffer->size, RED_BYTES) ||
        (buffer->constant && memcmp(data, buffer->data, buffer->size) != 0))
        buffer->spoiled = true;
    if (!buffer->constant)
        memcpy(buffer->data, data, buffer->size);
}

int32_t mirror_pull(struct mirror *mirror, void *stream, struct attn_error *err)
{
    /* Images of copies under way belong to the stream. */
    int32_t status = attn_stream_synchronize(mirror->backend, stream, err);

    for (struct twin *twin = mirror->twins; twin != NULL && status == ATTN_OK; twin = twin->next) {
        const struct attn_buffer image = {twin->image, 0};
        memset(twin->image, JUNK, twin->size);
        status = attn_memory_copy(mirror->backend, &image, &twin->memory, twin->size, ATTN_COPY_TO_HOST,
                                  stream, err);
    }
    if (status == ATTN_OK)
        status = attn_stream_synchronize(mirror->backend, stream, err);
    for (struct twin *twin = mirror->twins; twin != NULL && status == ATTN_OK; twin = twin->next)
        take(twin);
    return status;
}
