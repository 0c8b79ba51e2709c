/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files that read variables and write the log share, and what tests call. */
#ifndef ATTN_ENV_H
#define ATTN_ENV_H

#include "core.h"

/* ---------------------------------------------------------------- env.c, env-check.c */

/* attn__env_init with the environment and AT_SECURE as arguments instead of the values of the process. */
int32_t attn__env_init_from(struct attn__env *env, const struct attn_context_options *options,
                            char *const *environment, bool elevated, struct attn_error *err);
/* Copies text, to live as long as env; NULL without memory. */
char *attn__env_keep(struct attn__env *env, const char *text);
/* The same for messages: escapes what attn__show does. */
char *attn__env_keep_escaped(struct attn__env *env, const char *text);
/* True if value is valid for a type of env.def; otherwise problem says what is accepted. */
bool attn__env_check(const char *name, const char *type, const char *value, char *problem, size_t size);
/*
 * Checks what depends on the notes of the plugin files: variables of plugins, and names in ATTN_BACKEND. Then
 * logs all problems, once.
 */
int32_t attn__env_resolve(struct attn__env *env, struct attn__log *log, const struct attn_note *const *notes,
                          uint32_t count, struct attn_error *err);

/* ---------------------------------------------------------------- clock.c */

/* Seconds since 1970 as 2026-11-23T12:34:56.789. */
void attn__time_format(int64_t seconds, long nanoseconds, char *text, size_t size);

/* ---------------------------------------------------------------- log.c */

/* Parses "level,level:subsystem" into log; with NULL it only checks. If false, problem says what is wrong. */
bool attn__log_parse(const char *text, struct attn__log *log, char *problem, size_t size);

#endif
