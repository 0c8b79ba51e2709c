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

void read_descriptors(char *text, size_t size)
{
    trace_list_descriptors(text, size);
}

void read_threads(char *text, size_t size)
{
    static uint32_t first;
    uint32_t count = trace_count_threads(first == 0 ? UINT32_MAX : first);

    first = first == 0 ? count : first;
    add_line(text, size, "%u threads", count);
}
