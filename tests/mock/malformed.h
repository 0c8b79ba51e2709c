/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Directories of mock plugins for tests. Every function ends the program with a message if it cannot do its
 * work. */
#ifndef ATTN_TEST_MALFORMED_H
#define ATTN_TEST_MALFORMED_H

#include <stddef.h>

#include "attn/attn.h"

/* A new directory under /tmp; malformed_remove takes it away with everything in it. */
struct malformed {
    char path[64];
};

void malformed_create(struct malformed *malformed);
void malformed_remove(struct malformed *malformed);
/* "path/name" of the malformed, valid until the eighth call after it. */
const char *malformed_path(const struct malformed *malformed, const char *name);
/* Copies the mock `kind` ("good", "no-note", ...) to `name`. */
void malformed_add(const struct malformed *malformed, const char *kind, const char *name);
/* Copies any file. */
void malformed_copy(const struct malformed *malformed, const char *from, const char *name);
/* Copies the library that the mock needs-library needs. */
void malformed_add_dependency(const struct malformed *malformed);
void malformed_write(const struct malformed *malformed, const char *name, const void *bytes, size_t size);
/* The bytes of a mock, for free(). */
unsigned char *malformed_read(const char *kind, size_t *out_size);
/* A silent context over the malformed alone; `variables` is a list of "NAME=VALUE" that ends with NULL, or
 * NULL. */
struct attn_context *malformed_context(const struct malformed *malformed, const char *const *variables);
/* The record of the file of that name, or NULL. */
const struct attn_file_record *malformed_file(const struct attn_report *report, const char *name);

#endif
