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

static void print_device(const struct attn_report *report, const struct attn_backend_record *backend)
{
    char *backends = backends_on(report, backend->device_name, ", ");
    char *units = need_format("%u", backend->units);
    char *memory = need_format("%.1f GiB", (double)backend->memory_bytes / 0x1p30);

    fprintf(output_stream(), "%s%s%s\n", output_shown(backend->device_name),
            text_or_null(backend->device_text) != NULL ? ": " : "", output_shown(backend->device_text));
    print_field("class", class_name(backend->device_class));
    print_field("architecture", text_or_null(backend->device_arch));
    print_field("units", backend->units != 0 ? units : NULL);
    print_field("memory", backend->memory_bytes != 0 ? memory : NULL);
    print_field("backends", backends);
    free(backends);
    free(units);
    free(memory);
}

/* Backends without a device, those with the same reason together. */
static void print_absent(const struct attn_report *report, uint32_t index)
{
    const struct attn_backend_record *backend = attn_report_get_backend(report, index), *other;
    char *names = need_copy("");
    bool told = backend->has_device || backend->reason == 0;

    for (uint32_t i = 0; (other = attn_report_get_backend(report, i)) != NULL && !told; i++) {
        if (other->has_device || other->reason != backend->reason || strcmp(other->text, backend->text) != 0)
            continue;
        told = i < index;
        char *longer = need_format("%s%s%s", names, names[0] != '\0' ? ", " : "", other->name);
        free(names);
        names = longer;
    }
    if (!told) {
        fputc('\n', output_stream());
        output_wrap(0, 2, names);
        print_reason("  ", backend->reason, backend->text);
        print_advice(backend->advice);
    }
    free(names);
}

static void print_text(const struct attn_report *report)
{
    const struct attn_backend_record *backend;

    for (uint32_t i = 0, printed = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++) {
        if (!backend->has_device || !is_first(report, i))
            continue;
        fputs(printed++ > 0 ? "\n" : "", output_stream());
        print_device(report, backend);
    }
    for (uint32_t i = 0; attn_report_get_backend(report, i) != NULL; i++)
        print_absent(report, i);
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
