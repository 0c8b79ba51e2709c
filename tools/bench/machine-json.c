/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The machine in a document of results: processor, CPUs and caches, no names. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "jsonout.h"
#include "machine.h"

enum { CACHES = 16, TEXT = 128 };

/* The first word or line of a file of the kernel; empty if there is none. */
static void line_read(const char *path, char text[TEXT])
{
    FILE *file = fopen(path, "re");

    text[0] = '\0';
    if (file == NULL)
        return;
    if (fgets(text, TEXT, file) == NULL)
        text[0] = '\0';
    fclose(file);
    text[strcspn(text, "\n")] = '\0';
}

/* As /proc/cpuinfo has it on x86; other kernels do not say. */
static void processor_read(char text[TEXT])
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[2 * TEXT];

    text[0] = '\0';
    if (file == NULL)
        return;
    while (text[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        const char *value = strstr(line, ": ");
        if (strncmp(line, "model name", 10) == 0 && value != NULL)
            snprintf(text, TEXT, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
    }
    fclose(file);
}

static void cache_describe(struct jsonout *json, unsigned index)
{
    char path[96], level[TEXT], type[TEXT], size[TEXT];
    uint64_t kibibytes;
    int value;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/level", index);
    line_read(path, level);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/type", index);
    line_read(path, type);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/size", index);
    line_read(path, size);
    if (sscanf(level, "%d", &value) != 1 || sscanf(size, "%" SCNu64 "K", &kibibytes) != 1)
        return;
    jsonout_object(json, NULL);
    jsonout_integer(json, "level", value);
    jsonout_string(json, "type", type);
    jsonout_integer(json, "kib", (int64_t)kibibytes);
    jsonout_close(json);
}

void machine_describe(struct jsonout *json)
{
    char processor[TEXT];

    processor_read(processor);
    jsonout_object(json, "machine");
    jsonout_string(json, "processor", processor[0] != '\0' ? processor : NULL);
    jsonout_integer(json, "cpus", machine_cpus());
    jsonout_array(json, "caches");
    for (unsigned i = 0; i < CACHES; i++)
        cache_describe(json, i);
    jsonout_close(json);
    jsonout_close(json);
}
