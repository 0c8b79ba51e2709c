/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info devices: every device once, with the backends that run on it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "info.h"

/* True if no earlier record is on the same device. */
static bool is_first(const struct attn_report *report, uint32_t index)
{
    const char *name = attn_report_get_backend(report, index)->device_name;

    for (uint32_t i = 0; i < index; i++) {
        const struct attn_backend_record *backend = attn_report_get_backend(report, i);
        if (backend->has_device && strcmp(backend->device_name, name) == 0)
            return false;
    }
    return true;
}

/* Names of the backends on a device, separated by commas; free it. */
static char *backends_on(const struct attn_report *report, const char *device, const char *separator)
{
    const struct attn_backend_record *backend;
    char *names = need_copy("");

    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++) {
        if (!backend->has_device || strcmp(backend->device_name, device) != 0)
            continue;
        char *longer = need_format("%s%s%s", names, names[0] != '\0' ? separator : "", backend->name);
        free(names);
        names = longer;
    }
    return names;
}

static void print_text(const struct attn_report *report)
{
    static const char *const titles[] = {"DEVICE", "CLASS", "ARCH", "UNITS", "MEMORY", "NAME, BACKENDS"};
    const struct attn_backend_record *backend;
    struct table table;

    table_init(&table, 6, titles);
    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++) {
        if (!backend->has_device || !is_first(report, i))
            continue;
        char *backends = backends_on(report, backend->device_name, ", ");
        char *units = need_format("%u", backend->units);
        char *memory = need_format("%.1f GiB", (double)backend->memory_bytes / 0x1p30);
        char *last = need_format("%s (%s)", backend->device_text, backends);
        const char *const cells[] = {backend->device_name,
                                     class_name(backend->device_class),
                                     text_or_null(backend->device_arch),
                                     units,
                                     backend->memory_bytes != 0 ? memory : NULL,
                                     last};
        table_add(&table, cells);
        free(backends);
        free(units);
        free(memory);
        free(last);
    }
    table_finish(&table);
    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++) {
        if (backend->has_device || backend->reason == 0)
            continue;
        fprintf(output_stream(), "\n%s\n", backend->name);
        print_reason("  ", backend->reason, backend->text);
    }
}

static int print_json(const struct info *info, const struct attn_report *report, int code)
{
    struct jsonout *json = jsonout_create("devices");
    const struct attn_backend_record *backend;

    jsonout_array(json, "devices");
    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++) {
        if (!backend->has_device || !is_first(report, i))
            continue;
        char *backends = backends_on(report, backend->device_name, ",");
        jsonout_object(json, NULL);
        jsonout_string(json, "device", backend->device_name);
        jsonout_string(json, "type", backend->device_type);
        jsonout_integer(json, "ordinal", backend->device.ordinal);
        jsonout_string(json, "name", text_or_null(backend->device_text));
        jsonout_string(json, "arch", text_or_null(backend->device_arch));
        jsonout_string(json, "class", class_name(backend->device_class));
        jsonout_integer(json, "units", backend->units);
        jsonout_integer(json, "memory_bytes", (int64_t)backend->memory_bytes);
        jsonout_strings(json, "backends", backends, ',');
        jsonout_close(json);
        free(backends);
    }
    jsonout_close(json);
    jsonout_array(json, "absent");
    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++)
        if (!backend->has_device)
            json_backend(info, json, backend);
    jsonout_close(json);
    return json_end(json, code);
}

int devices_command(const struct info *info)
{
    struct attn_report *report;
    int code = report_everything(info, &report);

    if (code != EXIT_YES)
        return code;
    code = usable_or_missing(report);
    if (info->common.json)
        code = print_json(info, report, code);
    else
        print_text(report);
    attn_report_destroy(report);
    return code;
}
