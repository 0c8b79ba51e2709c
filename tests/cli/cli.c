/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* TAP lines, files for tests, and looks into JSON. */
#define _GNU_SOURCE
#include "cli.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIRECTORIES = 16, COLUMNS = 80 };

struct places places;
static unsigned checks, failures;
static char *directories[DIRECTORIES];
static unsigned directory_count;

void cli_init(int argc, char **argv)
{
    if (argc < 7 || argc > 9) {
        fprintf(stderr,
                "usage: %s ATTN-INFO ATTN-BENCH PLUGIN-DIR NOOP-PLUGIN NOISY-DIR MAN-DIR [ATTN-GENERATE "
                "[SMALL-MODELS]]\n",
                argv[0]);
        exit(2);
    }
    places = (struct places){argv[1],
                             argv[2],
                             argv[3],
                             argv[4],
                             argv[5],
                             argv[6],
                             argc > 7 ? argv[7] : NULL,
                             argc > 8 ? argv[8] : NULL};
}

/* Prints a text as TAP comments. */
static void comment(const char *title, const char *text)
{
    char *copy = strdup(text), *rest = copy;

    printf("# %s\n", title);
    for (char *line; copy != NULL && (line = strsep(&rest, "\n")) != NULL;)
        printf("#   %s\n", line);
    free(copy);
}

void check(bool good, const struct result *result, const char *format, ...)
{
    va_list args;

    printf("%sok %u - ", good ? "" : "not ", ++checks);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    if (good)
        return;
    failures++;
    if (result != NULL) {
        printf("# exit code %d\n", result->code);
        comment("stdout", result->out);
        comment("stderr", result->err);
    }
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

int cli_finish(void)
{
    for (unsigned i = 0; i < directory_count; i++) {
        nftw(directories[i], remove_one, 8, FTW_DEPTH | FTW_PHYS);
        free(directories[i]);
    }
    printf("1..%u\n", checks);
    return failures != 0;
}

const char *directory_make(void)
{
    char *path = strdup("/tmp/attn-cli-XXXXXX");

    if (path == NULL || directory_count == DIRECTORIES || mkdtemp(path) == NULL)
        exit(2);
    return directories[directory_count++] = path;
}

static void write_bytes(const char *directory, const char *name, const char *contents, size_t size)
{
    char *path;

    if (asprintf(&path, "%s/%s", directory, name) < 0)
        exit(2);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, contents, size) != (ssize_t)size || fchmod(fd, 0644) != 0)
        exit(2);
    close(fd);
    free(path);
}

void file_write(const char *directory, const char *name, const char *contents)
{
    write_bytes(directory, name, contents, strlen(contents));
}

void file_copy(const char *directory, const char *name, const char *from)
{
    FILE *file = fopen(from, "r");
    char *contents = NULL;
    size_t size = 0, capacity = 0;

    while (file != NULL && !feof(file)) {
        if (size == capacity)
            contents = realloc(contents, capacity += 1 << 16);
        if (contents == NULL)
            exit(2);
        size += fread(contents + size, 1, capacity - size, file);
    }
    if (file == NULL)
        exit(2);
    fclose(file);
    write_bytes(directory, name, contents, size);
    free(contents);
}

json_t *at(const struct result *result, const char *path)
{
    json_t *value = result->json;
    char key[64];

    while (value != NULL && *path != '\0') {
        size_t size = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)size, path);
        value = json_is_array(value) ? json_array_get(value, (size_t)atoi(key)) : json_object_get(value, key);
        path += size + (path[size] == '.');
    }
    return value;
}

bool is_text(const struct result *result, const char *path, const char *text)
{
    const char *value = json_string_value(at(result, path));

    return value != NULL && strcmp(value, text) == 0;
}

bool has_item(const struct result *result, const char *path, const char *key, const char *text,
              size_t *out_index)
{
    size_t index;
    json_t *item;

    json_array_foreach(at(result, path), index, item)
    {
        const char *value = json_string_value(key != NULL ? json_object_get(item, key) : item);
        if (value == NULL || strcmp(value, text) != 0)
            continue;
        if (out_index != NULL)
            *out_index = index;
        return true;
    }
    return false;
}

unsigned occurrences(const char *text, const char *part)
{
    unsigned count = 0;

    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        count++;
    return count;
}

bool fits_terminal(const char *text)
{
    while (*text != '\0') {
        size_t size = strcspn(text, "\n"), indent = strspn(text, " ");
        bool breakable = memchr(text + indent, ' ', size > indent ? size - indent : 0) != NULL;
        if (size > COLUMNS && breakable)
            return false;
        text += size + (text[size] == '\n');
    }
    return true;
}
