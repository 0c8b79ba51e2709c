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
    bool stable; /* without times and addresses */
    bool all;    /* explain: ask every candidate */
    const char *command;
    char **args; /* what follows the command */
    unsigned arg_count;
    struct attn_context *context;
};

/* The commands. Each returns an enum exit_code. */
int list_command(const struct info *info);
int devices_command(const struct info *info);
int caps_command(const struct info *info);
int explain_command(const struct info *info);
int why_command(const struct info *info);
int env_command(const struct info *info);
int path_command(const struct info *info);
int exists_command(const struct info *info);
int rescan_command(const struct info *info);

/* ---------------------------------------------------------------- info-common.c */

/* Opens every wanted plugin and takes the report. EXIT_YES, or EXIT_NO after a message. */
int report_everything(const struct info *info, struct attn_report **out);
/* EXIT_MISSING with a message if every file was tried and none became usable, else EXIT_YES. */
int usable_or_missing(const struct attn_report *report);

/* NULL for 0, else the reason's name. */
const char *reason_or_null(uint32_t reason);
/* NULL instead of "". */
const char *text_or_null(const char *text);
const char *class_name(uint32_t device_class);
const char *graph_level_name(uint32_t graph_level);
const char *cpu_level_name(uint32_t cpu_level);

/* Whether NAME means this backend: vendor/flavour, vendor or flavour; case, - and _ do not count. */
bool backend_matches(const char *wanted, const char *name);
/* The part of a backend's name before the slash; free it. */
char *vendor_of(const char *name);

/* Closes the document and turns a failure into EXIT_NO. */
int json_end(struct jsonout *json, int code);
/* reason, text and advice, null if there is none. */
void json_reason(struct jsonout *json, uint32_t reason, const char *text, const char *advice);
void json_file(const struct info *info, struct jsonout *json, const struct attn_file_record *file);
void json_backend(struct jsonout *json, const struct attn_backend_record *backend);

/* "  CODE: text", wrapped. */
void print_reason(const char *lead, uint32_t reason, const char *text);
void print_backend_table(const struct attn_report *report);

#endif
