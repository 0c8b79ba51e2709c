/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes and removes directories of mock plugins. */
#define _GNU_SOURCE
#include "malformed.h"

#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void give_up(const char *what, const char *name)
{
    fprintf(stderr, "malformed: %s %s: %s\n", what, name, strerror(errno));
    exit(99);
}

void malformed_create(struct malformed *malformed)
{
    snprintf(malformed->path, sizeof malformed->path, "/tmp/attn-malformed-XXXXXX");
    if (mkdtemp(malformed->path) == NULL)
        give_up("mkdtemp", malformed->path);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status, (void)type, (void)place;
    return remove(path);
}

void malformed_remove(struct malformed *malformed)
{
    if (nftw(malformed->path, remove_entry, 8, FTW_DEPTH | FTW_PHYS) != 0)
        give_up("nftw", malformed->path);
}

const char *malformed_path(const struct malformed *malformed, const char *name)
{
    static _Thread_local char paths[8][256];
    static _Thread_local unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", malformed->path, name);
    return path;
}

static unsigned char *read_file(const char *path, size_t *out_size)
{
    FILE *file = fopen(path, "rbe");
    struct stat status;
    if (file == NULL || fstat(fileno(file), &status) != 0)
        give_up("cannot open", path);
    size_t size = (size_t)status.st_size;
    unsigned char *bytes = malloc(size + 1);
    if (bytes == NULL || fread(bytes, 1, size, file) != size)
        give_up("cannot read", path);
    fclose(file);
    *out_size = size;
    return bytes;
}

static void mock_path(const char *file, char *path, size_t size)
{
    const char *directory = getenv("MOCK_DIR");
    if (directory == NULL)
        give_up("MOCK_DIR is not set, looking for", file);
    snprintf(path, size, "%s/%s", directory, file);
}

unsigned char *malformed_read(const char *kind, size_t *out_size)
{
    char file[64], path[512];
    snprintf(file, sizeof file, "libattn-%s.so", kind);
    mock_path(file, path, sizeof path);
    return read_file(path, out_size);
}

void malformed_write(const struct malformed *malformed, const char *name, const void *bytes, size_t size)
{
    /* A new file by rename, as an installer would do it. */
    char temporary[256];
    snprintf(temporary, sizeof temporary, "%s/.new", malformed->path);
    FILE *file = fopen(temporary, "wbe");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0 ||
        chmod(temporary, 0644) != 0 || rename(temporary, malformed_path(malformed, name)) != 0)
        give_up("cannot write", name);
}

void malformed_add(const struct malformed *malformed, const char *kind, const char *name)
{
    size_t size;
    unsigned char *bytes = malformed_read(kind, &size);
    malformed_write(malformed, name, bytes, size);
    free(bytes);
}

void malformed_copy(const struct malformed *malformed, const char *from, const char *name)
{
    size_t size;
    unsigned char *bytes = read_file(from, &size);
    malformed_write(malformed, name, bytes, size);
    free(bytes);
}

void malformed_add_dependency(const struct malformed *malformed)
{
    char path[512];
    size_t size;
    mock_path("dependency/libmock-dependency.so", path, sizeof path);
    unsigned char *bytes = read_file(path, &size);
    malformed_write(malformed, "libmock-dependency.so", bytes, size);
    free(bytes);
}

struct attn_context *malformed_context(const struct malformed *malformed, const char *const *variables)
{
    struct attn_context_options options;
    struct attn_context *context = NULL;
    struct attn_error err;
    ATTN_INIT(&options);
    ATTN_INIT(&err);
    options.given = ATTN_GIVEN_LOG;
    options.plugin_path = malformed->path;
    options.variables = variables;
    while (variables != NULL && variables[options.variable_count] != NULL)
        options.variable_count++;
    if (attn_context_create(&options, &context, &err) != ATTN_OK)
        give_up("attn_context_create", err.message);
    return context;
}

const struct attn_file_record *malformed_file(const struct attn_report *report, const char *name)
{
    const struct attn_file_record *record;
    for (uint32_t i = 0; (record = attn_report_get_file(report, i)) != NULL; i++) {
        const char *slash = strrchr(record->path, '/');
        if (strcmp(slash != NULL ? slash + 1 : record->path, name) == 0)
            return record;
    }
    return NULL;
}
