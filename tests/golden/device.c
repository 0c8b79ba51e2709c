/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The device of --plugin: its backend, and memory that goes there and back. */
#include "device.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/device.h"

static struct attn_backend *device;
static unsigned long reads;

static void give_up(const char *text)
{
    fprintf(stderr, "golden-check: %s\n", text);
    exit(2);
}

/* libattn-NAME.so offers NAME/flash-attn, but that of HIP. */
void golden_device_open(struct golden *g, const char *plugin)
{
    char path[PATH_MAX], directory[PATH_MAX], name[128], *file;

    if (realpath(plugin, path) == NULL)
        give_up("--plugin: there is no such file");
    memcpy(directory, path, sizeof path);
    file = basename(path);
    if (sscanf(file, "libattn-%100[a-z0-9_].so", name) != 1)
        give_up("--plugin wants a file libattn-NAME.so");
    strcat(name, strcmp(name, "hip") == 0 ? "/rocm-flash" : "/flash-attn");
    g->plugin_directory = dirname(directory);
    device = golden_backend(g, name, "heads=8 kv_heads=2 head_dim=128 q=f16");
    g->plugin_directory = NULL;
    if (device == NULL)
        give_up("--plugin: its backend cannot be opened on a device of this machine");
    printf("device: %s\n", attn_backend_get_device(device));
}

void golden_device_close(void)
{
    attn_backend_destroy(device);
    device = NULL;
}

struct attn_backend *golden_device(void)
{
    return device;
}

static void copy(const struct attn_buffer *to, const struct attn_buffer *from, uint64_t size, uint32_t kind)
{
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn_memory_copy(device, to, from, size, kind, NULL, &err) != ATTN_OK ||
        attn_stream_synchronize(device, NULL, &err) != ATTN_OK)
        give_up(err.message);
}

struct golden_lent golden_lend(void *host, uint64_t size)
{
    struct golden_lent lent = {{host, 0}, host, size};
    const struct attn_buffer from = {host, 0};
    struct attn_error err;

    ATTN_INIT(&err);
    if (device == NULL || host == NULL || size == 0)
        return lent;
    if (attn_memory_alloc(device, size, &lent.buffer, &err) != ATTN_OK)
        give_up(err.message);
    copy(&lent.buffer, &from, size, ATTN_COPY_TO_DEVICE);
    return lent;
}

void golden_return(const struct golden_lent *lent)
{
    const struct attn_buffer to = {lent->host, 0};

    if (device == NULL || lent->host == NULL || lent->size == 0)
        return;
    copy(&to, &lent->buffer, lent->size, ATTN_COPY_TO_HOST);
    attn_memory_free(device, &lent->buffer);
}

bool golden_read(const struct attn_buffer *from, void *to, uint64_t size)
{
    const struct attn_buffer target = {to, 0};

    if (device == NULL || from->data == NULL || size == 0)
        return false;
    copy(&target, from, size, ATTN_COPY_TO_HOST);
    reads++;
    return true;
}

unsigned long golden_reads(void)
{
    return reads;
}

const char *golden_message(const struct attn_error *err)
{
    const char *name = device != NULL ? attn_backend_get_name(device) : NULL;
    const char *call =
        name != NULL && strncmp(err->message, name, strlen(name)) == 0 ? strstr(err->message, ": ") : NULL;
    const char *text = call != NULL ? strstr(call + 2, ": ") : NULL;

    return text != NULL ? text + 2 : err->message;
}
