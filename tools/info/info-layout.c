/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Text that several commands of attn-info print: fields, reasons, backends of a file, names of a group. */
#include <stdlib.h>
#include <string.h>

#include "info.h"

enum { FIELD_COLUMN = 16 };

void print_field(const char *name, const char *value)
{
    if (text_or_null(value) == NULL)
        return;
    int column = fprintf(output_stream(), "  %s:", name);

    column += fprintf(output_stream(), "%*s", column < FIELD_COLUMN ? FIELD_COLUMN - column : 1, "");
    output_wrap((unsigned)column, FIELD_COLUMN, value);
}

void print_reason(const char *lead, uint32_t reason, const char *text)
{
    const char *said = text_or_null(text) != NULL ? text : attn_reason_text(reason);
    int column = fprintf(output_stream(), "%s%s: ", lead, attn_reason_name(reason));

    output_wrap((unsigned)column, (unsigned)strspn(lead, " ") + 2, said);
}

void print_advice(const char *advice)
{
    if (text_or_null(advice) == NULL)
        return;
    fputs("  advice: ", output_stream());
    output_wrap(10, 4, advice);
}

/* ---------------------------------------------------------------- backends of files */

void backend_widths(const struct attn_report *report, struct widths *out)
{
    const struct attn_backend_record *backend;

    *out = (struct widths){(unsigned)strlen("BACKEND"), (unsigned)strlen("DEVICE")};
    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++) {
        unsigned name = (unsigned)strlen(backend->name), device = (unsigned)strlen(backend->device_name);
        if (name > out->name)
            out->name = name;
        if (backend->has_device && device > out->device)
            out->device = device;
    }
}

void print_backend_titles(const struct widths *widths)
{
    char *titles =
        need_format("  %-*s  %-*s  STATE", (int)widths->name, "BACKEND", (int)widths->device, "DEVICE");

    style_print(output_stream(), STYLE_TITLE, titles);
    fputc('\n', output_stream());
    free(titles);
}

void print_backends_of(const struct attn_report *report, const char *file, const struct widths *widths)
{
    const struct attn_backend_record *backend;

    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++) {
        if (strcmp(backend->file, file) != 0)
            continue;
        enum style style = backend->state == ATTN_BACKEND_READY     ? STYLE_GOOD
                           : backend->state == ATTN_BACKEND_REFUSED ? STYLE_BAD
                                                                    : STYLE_PLAIN;
        fprintf(output_stream(), "  %-*s  %-*s  ", (int)widths->name, output_shown(backend->name),
                (int)widths->device, backend->has_device ? output_shown(backend->device_name) : "-");
        style_print(output_stream(), style, attn_backend_state_name(backend->state));
        fputc('\n', output_stream());
    }
}

/* ---------------------------------------------------------------- names of a group */

/* "a, b" behind the text; takes the text and returns another one. */
static char *append(char *text, const char *separator, const char *word)
{
    char *longer = need_format("%s%s%s", text, text[0] != '\0' ? separator : "", word);

    free(text);
    return longer;
}

/* The devices of a name, "x, y"; "" if it has none. Free it. */
static char *devices_of(const struct place *places, unsigned count, const char *name)
{
    char *text = need_copy("");

    for (unsigned i = 0; i < count; i++)
        if (places[i].device != NULL && strcmp(places[i].name, name) == 0)
            text = append(text, ", ", places[i].device);
    return text;
}

/* The names whose devices are these, "a, b"; "" if place `index` is not the first of them. Free it. */
static char *names_on(const struct place *places, unsigned count, unsigned index, const char *devices)
{
    char *text = need_copy("");

    for (unsigned i = 0; i < count; i++) {
        char *own = devices_of(places, count, places[i].name);
        bool same = strcmp(own, devices) == 0, again = false;
        free(own);
        for (unsigned j = 0; j < i; j++)
            again = again || strcmp(places[j].name, places[i].name) == 0;
        if (!same || again)
            continue;
        if (i < index)
            break;
        text = append(text, ", ", places[i].name);
    }
    return text;
}

char *places_text(const struct place *places, unsigned count)
{
    char *text = need_copy("");

    for (unsigned i = 0; i < count; i++) {
        char *devices = devices_of(places, count, places[i].name);
        char *names = names_on(places, count, i, devices);
        bool again = false;
        for (unsigned j = 0; j < i; j++)
            again = again || strcmp(places[j].name, places[i].name) == 0;
        if (names[0] != '\0' && !again) {
            char *part = need_format("%s%s%s", names, devices[0] != '\0' ? " on " : "", devices);
            text = append(text, "; ", part);
            free(part);
        }
        free(names);
        free(devices);
    }
    return text;
}
