/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the programs of this folder share: a directory of plugins with a cache of its own, output, questions.
 */
#ifndef ATTN_TEST_PLACE_H
#define ATTN_TEST_PLACE_H

#include <stdbool.h>

#include "malformed.h"

/* The plugin that must stay usable whatever lies beside it, and its file. */
#define SANE_FILE    "libattn-s.so"
#define SANE_BACKEND "sane/flash-attn"

struct place {
    struct malformed malformed, home;
    char cache[128];
    const char *variables[4];
};

/* `variable` ("NAME=VALUE") may be NULL. */
void place_create(struct place *place, const char *variable);
void place_remove(struct place *place);
/* A context that has opened everything, and what it knows then. */
struct attn_report *place_load(const struct place *place);
/* True if automatic selection gives the sane plugin and it can be opened. */
bool place_serves(struct attn_context *context);

/* TAP; plugins print to stdout, so that it goes to stderr and this to a private copy. */
void tap_begin(void);
void tap_check(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tap_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void tap_skip(const char *name, const char *reason);
/* Prints the plan; the exit code of the program. */
int tap_end(void);

/* Runs work in a child; a child that dies, or takes longer than `seconds`, is a failure. */
void tap_in_child(const char *name, unsigned seconds, void (*work)(const void *arg), const void *arg);

double seconds_now(void);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

/* The thread sanitizer makes a fork of every vfork. */
#if defined(__SANITIZE_THREAD__)
#define VFORK_IS_FORK true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VFORK_IS_FORK true
#endif
#endif
#ifndef VFORK_IS_FORK
#define VFORK_IS_FORK false
#endif

#endif
