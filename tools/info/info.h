/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the commands of attn-info share. */
#ifndef INFO_H
#define INFO_H

#include "attn/attn.h"
#include "common-options.h"
#include "jsonout.h"
#include "output.h"

/* One call of the program. */
struct info {
    struct common_options common;
    bool stable;   /* without times and addresses */
    bool all;      /* explain: ask every candidate */
    bool markdown; /* matrix: a page of documentation */
    const char *command;
    char **args; /* what follows the command */
    unsigned arg_count;
    struct attn_context *context;
};

/* Ends with a row without a name. */
struct command {
    const char *name;
    unsigned least; /* arguments */
    unsigned most;
    int (*run)(const struct info *info);
    const char *arguments; /* as help writes them, or "" */
    const char *summary;
    const char *more; /* what help COMMAND says beyond it, or "" */
};
extern const struct command commands[];
const struct command *command_find(const char *name);
/* The commands with their summaries, a line each; free it. */
char *commands_text(void);
/* What --version says of libattn. */
void version_print(void);
extern const struct argp info_argp;

/* The commands. Each returns an enum exit_code. */
int list_command(const struct info *info);
int devices_command(const struct info *info);
int caps_command(const struct info *info);
int matrix_command(const struct info *info);
int explain_command(const struct info *info);
int why_command(const struct info *info);
int env_command(const struct info *info);
int path_command(const struct info *info);
int exists_command(const struct info *info);
int rescan_command(const struct info *info);
int doctor_command(const struct info *info);
int version_command(const struct info *info);
int help_command(const struct info *info);
struct command_line;
/* What --complete offers beside options; see complete.h. */
void info_offer(const struct command_line *line, const char *lead);

/* ---------------------------------------------------------------- info-common.c */

/* Opens every wanted plugin and takes the report. EXIT_YES, or EXIT_NO after a message. */
int report_everything(const struct info *info, struct attn_report **out);
/* EXIT_MISSING with a message if every file was tried and none became usable, else EXIT_YES. */
int usable_or_missing(const struct attn_report *report);

/* NULL for 0, else the reason's name. */
const char *reason_or_null(uint32_t reason);
/* The text, with --stable without its times. Valid until the next call. */
const char *stable_text(const struct info *info, const char *text);
/* NULL instead of "". */
const char *text_or_null(const char *text);
const char *class_name(uint32_t device_class);
const char *graph_level_name(uint32_t graph_level);
/* "optimised" or "generic"; NULL where a plugin does not say. */
const char *speed_name(uint32_t speed);
const char *cpu_level_name(uint32_t cpu_level);

/* Whether a backend can be queried, and is the first of its name: each is asked on its first device. */
bool backend_can_be_asked(const struct attn_report *report, uint32_t index);

/* Whether NAME means this backend: vendor/flavour, vendor or flavour; case, - and _ do not count. */
bool backend_matches(const char *wanted, const char *name);
/* The part of a backend's name before the slash; free it. */
char *vendor_of(const char *name);

/* Closes the document and turns a failure into EXIT_NO. */
int json_end(struct jsonout *json, int code);
/* reason, text and advice, null if there is none. */
void json_reason(struct jsonout *json, uint32_t reason, const char *text, const char *advice);
void json_file(const struct info *info, struct jsonout *json, const struct attn_file_record *file);
void json_backend(const struct info *info, struct jsonout *json, const struct attn_backend_record *backend);

/* ---------------------------------------------------------------- info-layout.c */

/* "  name:   value", wrapped; nothing without a value. */
void print_field(const char *name, const char *value);
/* "  CODE: text", wrapped. */
void print_reason(const char *lead, uint32_t reason, const char *text);
void print_advice(const char *advice);

/* Columns of the rows below: those of all backends, so that rows of different files stand in line. */
struct widths {
    unsigned name;
    unsigned device;
};
void backend_widths(const struct attn_report *report, struct widths *out);
void print_backend_titles(const struct widths *widths);
/* A row for each backend of a file: name, device, state. */
void print_backends_of(const struct attn_report *report, const char *file, const struct widths *widths);

/* A backend on a device; NULL is without one. */
struct place {
    const char *name;
    const char *device;
};
/* "a, b on x, y; c on x": names on the same devices together; free it. */
char *places_text(const struct place *places, unsigned count);

#endif
