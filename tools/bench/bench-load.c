/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench load: making a context with ten plugin files on its search path. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "machine.h"
#include "noop-context.h"

enum { DEFAULT_REPS = 200, FILES = 10, WARM_UPS = 3 };

static char *copy_name(const char *directory, unsigned index)
{
    return need_format("%s/libattn-noop%u.so", directory, index);
}

/* Copies a file; false with errno set. */
static bool copy_file(const char *from, const char *to)
{
    char buffer[16384];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    ssize_t size = in >= 0 && out >= 0 ? 1 : -1;

    while (size > 0) {
        size = read(in, buffer, sizeof buffer);
        for (ssize_t done = 0; done < size;) {
            ssize_t written = write(out, buffer + done, (size_t)(size - done));
            if (written < 0) {
                size = -1;
                break;
            }
            done += written;
        }
    }
    /* Whatever the umask was: nobody else may write. */
    if (size == 0 && fchmod(out, 0644) != 0)
        size = -1;
    int error = errno;
    if (in >= 0)
        close(in);
    if (out >= 0 && close(out) != 0 && size == 0)
        size = -1;
    else
        errno = error;
    return size == 0;
}

static void directory_remove(const char *directory)
{
    for (unsigned i = 0; i < FILES; i++) {
        char *copy = copy_name(directory, i);
        unlink(copy);
        free(copy);
    }
    rmdir(directory);
}

/* A private directory with ten copies of the plugin; free it. NULL with a message. */
static char *directory_create(const char *plugin)
{
    const char *parent = getenv("TMPDIR");
    char *directory =
        need_format("%s/attn-bench-XXXXXX", parent != NULL && parent[0] == '/' ? parent : "/tmp");

    if (mkdtemp(directory) == NULL) {
        complain("directory %s cannot be made: %s; set TMPDIR to one that can be written to", directory,
                 strerror(errno));
        free(directory);
        return NULL;
    }
    for (unsigned i = 0; i < FILES; i++) {
        char *copy = copy_name(directory, i);
        bool good = copy_file(plugin, copy);
        if (!good)
            complain("%s cannot be copied to %s: %s", plugin, copy, strerror(errno));
        free(copy);
        if (!good) {
            directory_remove(directory);
            free(directory);
            return NULL;
        }
    }
    return directory;
}

/* Files of the report whose note was read: the measurement counts only if it is all of them. */
static uint32_t files_read(struct attn_context *context)
{
    struct attn_report *report;
    const struct attn_file_record *file;
    uint32_t read = 0;

    if (attn_context_get_report(context, &report, NULL) != ATTN_OK)
        return 0;
    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++)
        read += file->stage >= ATTN_STAGE_NOTE && file->name[0] != '\0';
    attn_report_destroy(report);
    return read;
}

static int measure(struct bench *bench, const char *directory)
{
    uint32_t reps = bench->keys.reps != 0 ? bench->keys.reps : DEFAULT_REPS, read = 0;
    double *seconds = need_memory(NULL, reps, sizeof *seconds);
    int32_t status = ATTN_OK;
    struct attn_error err;
    struct row row;

    ATTN_INIT(&err);
    for (uint32_t i = 0; i < reps + WARM_UPS && status == ATTN_OK; i++) {
        struct attn_context *context = NULL;
        double begin = machine_now();
        status = noop_context_create(directory, &context, &err);
        if (i >= WARM_UPS)
            seconds[i - WARM_UPS] = machine_now() - begin;
        if (status == ATTN_OK && i == 0)
            read = files_read(context);
        attn_context_destroy(context);
    }
    if (status != ATTN_OK) {
        bench_complain(bench, "load", err.message);
    } else if (read != FILES) {
        complain("load: the library read the notes of %u files in %s instead of %d", read, directory, FILES);
        status = ATTN_E_IO;
    } else {
        row_init(&row, "load_10_files", "load");
        row_set_times(&row, seconds, reps);
        bench_emit(bench, &row);
    }
    free(seconds);
    return status == ATTN_OK ? EXIT_YES : EXIT_NO;
}

int load_mode(struct bench *bench)
{
    char *plugin = noop_path();

    if (plugin == NULL)
        return EXIT_MISSING;
    char *directory = directory_create(plugin);
    free(plugin);
    if (directory == NULL)
        return EXIT_NO;
    int code = measure(bench, directory);
    directory_remove(directory);
    free(directory);
    return code;
}
