/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Traits that are files: what was printed and read, which descriptors and threads there are. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "life.h"
#include "need.h"
#include "trace.h"

/* The checker's own way to what was printed, whatever becomes of descriptors 1 and 2. */
static int output, errors;

static int make_file(const char *name, const char *text, int at)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    int own = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 100);

    if (own < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || lseek(fd, 0, SEEK_SET) != 0 ||
        dup2(fd, at) < 0) {
        fprintf(stderr, "attn-check: no file for descriptor %d\n", at);
        _exit(2);
    }
    close(fd);
    return own;
}

void files_begin(void)
{
    fflush(NULL);
    close(make_file("input", "nobody reads this\n", STDIN_FILENO));
    errors = make_file("errors", "", STDERR_FILENO);
    output = make_file("output", "", STDOUT_FILENO);
}

/* Everything that was printed, as one line. */
static void read_printed(int fd, char *text, size_t size)
{
    char raw[1024];
    ssize_t have = pread(fd, raw, sizeof raw, 0);
    char line[sizeof raw + 1];
    size_t used = 0;

    for (ssize_t i = 0; i < have; i++)
        line[used++] = isprint((unsigned char)raw[i]) ? raw[i] : ' ';
    line[used] = '\0';
    add_line(text, size, "printed: \"%s\"", line);
}

static void read_place(int fd, char *text, size_t size)
{
    char link[64], path[256];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    add_line(text, size, "descriptor %d: %.*s", fd, length > 0 ? (int)length : 6,
             length > 0 ? path : "closed");
}

void read_output(char *text, size_t size)
{
    fflush(stdout);
    read_place(STDOUT_FILENO, text, size);
    read_printed(output, text, size);
}

void read_errors(char *text, size_t size)
{
    fflush(stderr);
    read_place(STDERR_FILENO, text, size);
    read_printed(errors, text, size);
}

void read_input(char *text, size_t size)
{
    read_place(STDIN_FILENO, text, size);
    add_line(text, size, "position %lld", (long long)lseek(STDIN_FILENO, 0, SEEK_CUR));
}

/* Calls fn with every number in a directory of /proc but that of the descriptor that reads it. */
static uint32_t list(const char *directory, char *text, size_t size)
{
    DIR *dir = need(opendir(directory));
    uint32_t count = 0;

    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        int number = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || (strcmp(directory, "/proc/self/fd") == 0 && number == dirfd(dir)))
            continue;
        count++;
        if (text != NULL)
            read_place(number, text, size);
    }
    closedir(dir);
    return count;
}

uint32_t trace_count_descriptors(void)
{
    return list("/proc/self/fd", NULL, 0);
}

void trace_list_descriptors(char *text, size_t size)
{
    list("/proc/self/fd", text, size);
}

/* The kernel lists a thread for a moment after it was joined. */
uint32_t trace_count_threads(uint32_t expected)
{
    const struct timespec pause = {0, 2000000};
    uint32_t count = list("/proc/self/task", NULL, 0);

    for (uint32_t i = 0; i < 250 && count > expected; i++) {
        nanosleep(&pause, NULL);
        count = list("/proc/self/task", NULL, 0);
    }
    return count;
}

uint32_t trace_settle_threads(void)
{
    const struct timespec pause = {0, 2000000};
    uint32_t count = list("/proc/self/task", NULL, 0);

    for (uint32_t i = 0, same = 0; i < 250 && same < 15; i++) {
        nanosleep(&pause, NULL);
        const uint32_t now = list("/proc/self/task", NULL, 0);
        same = now == count ? same + 1 : 0;
        count = now;
    }
    return count;
}

/* ---------------------------------------------------------------- what has come since */

enum { MOST_KINDS = 64, KIND = 128 };

/* Descriptors by what they lead to: numbers, and those of pipes and sockets, are others each time. */
struct kinds {
    char names[MOST_KINDS][KIND];
    uint32_t counts[MOST_KINDS];
    uint32_t count;
};

static struct kinds kept;
static uint32_t kept_threads; /* 0 before files_restart */

static void count_kind(struct kinds *kinds, int fd)
{
    char link[64], name[KIND];
    uint32_t i = 0;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length <= 0)
        return;
    name[length] = '\0';
    if (strncmp(name, "pipe:", 5) == 0 || strncmp(name, "socket:", 7) == 0)
        *strchr(name, ':') = '\0';
    while (i < kinds->count && strcmp(kinds->names[i], name) != 0)
        i++;
    if (i == MOST_KINDS)
        i--;
    if (i == kinds->count)
        memcpy(kinds->names[kinds->count++], name, sizeof name);
    kinds->counts[i]++;
}

static void count_kinds(struct kinds *kinds)
{
    DIR *dir = need(opendir("/proc/self/fd"));

    memset(kinds, 0, sizeof *kinds);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(dir))
            count_kind(kinds, atoi(entry->d_name));
    closedir(dir);
}

void files_restart(void)
{
    count_kinds(&kept);
    kept_threads = trace_settle_threads();
}

static void list_more(char *text, size_t size)
{
    static struct kinds now;

    count_kinds(&now);
    for (uint32_t i = 0; i < now.count; i++) {
        uint32_t before = 0;
        for (uint32_t k = 0; k < kept.count; k++)
            before += strcmp(kept.names[k], now.names[i]) == 0 ? kept.counts[k] : 0;
        if (now.counts[i] > before)
            add_line(text, size, "%u more of %s than after a life before", now.counts[i] - before,
                     now.names[i]);
    }
}

void read_descriptors(char *text, size_t size)
{
    if (kept_threads == 0)
        trace_list_descriptors(text, size);
    else
        list_more(text, size);
}

void read_threads(char *text, size_t size)
{
    static uint32_t first;
    const uint32_t expected = kept_threads > 0 ? kept_threads : first == 0 ? UINT32_MAX : first;
    const uint32_t count = trace_count_threads(expected);

    first = first == 0 ? count : first;
    if (kept_threads == 0)
        add_line(text, size, "%u threads", count);
    else if (count > kept_threads)
        add_line(text, size, "%u threads more than after a life before", count - kept_threads);
}
