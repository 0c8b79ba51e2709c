/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files that read variables and write the log share with each other and with tests. */
#ifndef ATTN_ENV_H
#define ATTN_ENV_H

#include "core.h"

/* ---------------------------------------------------------------- env.c, env-check.c */

/* attn__env_init with everything it takes from the process: the environment and AT_SECURE. */
int32_t attn__env_init_from(struct attn__env *env, const struct attn_context_options *options,
                            char *const *environment, bool elevated, struct attn_error *err);
/* Keeps a copy of text as long as env; NULL without memory. */
char *attn__env_keep(struct attn__env *env, const char *text);
/* The same for a message: with what is no plain text escaped. */
char *attn__env_keep_words(struct attn__env *env, const char *words);
/* True if value is right for a type of env.def; else problem says what is accepted. */
bool attn__env_check(const char *name, const char *type, const char *value, char *problem, size_t size);
/*
 * Judges what only the notes can tell: variables of plugins, names in ATTN_BACKEND. Then says everything that
 * is wrong, once. `notes` are those of the files seen.
 */
int32_t attn__env_resolve(struct attn__env *env, struct attn__log *log, const struct attn_note *const *notes,
                          uint32_t count, struct attn_error *err);

/* ---------------------------------------------------------------- log.c */

/* Parses "level,level:subsystem" into log (may be NULL: only check). False: problem says what is wrong. */
bool attn__log_parse(const char *text, struct attn__log *log, char *problem, size_t size);

#endif
