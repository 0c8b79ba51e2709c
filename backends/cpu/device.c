/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The one device, this machine's CPUs: its name, level and number of cores. Also writes log lines. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cpu.h"

void cpu_log(const struct attn_instance *instance, uint32_t level, const char *format, ...)
{
    char text[256];
    va_list args;

    if (instance->host.log == NULL)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    instance->host.log(instance->host.ctx, level, "cpu", text);
}

uint32_t cpu_threads_option(const struct attn_instance *instance)
{
    const char *text = NULL;
    char *end;

    if (instance->host.get_option != NULL)
        text = instance->host.get_option(instance->host.ctx, "ATTN_THREADS");
    if (text == NULL || *text == '\0')
        return 0;
    unsigned long count = strtoul(text, &end, 10);
    if (*end != '\0' || *text == '-' || count > CPU_THREADS_MAX) {
        cpu_log(instance, ATTN_LOG_WARN, "ATTN_THREADS=%s is not used: a number from 0 to %u is wanted", text,
                CPU_THREADS_MAX);
        return 0;
    }
    return (uint32_t)count;
}

/* The value behind the colon of the first line that begins with `key`. */
static void read_cpuinfo(const char *key, char *out, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];

    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file) != NULL) {
        const char *value = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || value == NULL)
            continue;
        value += strspn(value, ": \t");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    fclose(file);
}

int32_t cpu_get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                        uint32_t *out_count, struct attn_error *err)
{
    (void)err;
    *out_count = 1;
    if (capacity == 0)
        return ATTN_OK;
    ATTN_INIT(out);
    out->device_class = ATTN_CLASS_CPU;
    out->device.type = ATTN_DEVICE_CPU;
    out->units = cpu_available("");
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0)
        out->memory_bytes = (uint64_t)pages * (uint64_t)page;
    snprintf(out->name, sizeof out->name, "CPU");
    read_cpuinfo("model name", out->name, sizeof out->name);
#if defined(__x86_64__)
    const char *family = "x86-64";
#elif defined(__aarch64__)
    const char *family = "aarch64";
#else
    const char *family = "generic";
#endif
    char features[21];
    cpu_flags_text(instance->flags, features, sizeof features);
    snprintf(out->arch, sizeof out->arch, "%s%s%s", family, features[0] != '\0' ? " " : "", features);
    return ATTN_OK;
}
