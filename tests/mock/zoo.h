/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Directories of mock plugins for tests. Every function ends the program with a message if it cannot do its
 * work. */
#ifndef ATTN_TEST_ZOO_H
#define ATTN_TEST_ZOO_H

#include <stddef.h>

#include "attn/attn.h"

/* A new directory under /tmp; zoo_remove takes it away with everything in it. */
struct zoo {
    char path[64];
};

void zoo_create(struct zoo *zoo);
void zoo_remove(struct zoo *zoo);
/* "path/name" of the zoo, valid until the eighth call after it. */
const char *zoo_path(const struct zoo *zoo, const char *name);
/* Copies the mock `kind` ("good", "no-note", ...) to `name`. */
void zoo_add(const struct zoo *zoo, const char *kind, const char *name);
/* Copies any file. */
void zoo_copy(const struct zoo *zoo, const char *from, const char *name);
/* Copies the library that the mock needs-library needs. */
void zoo_add_dependency(const struct zoo *zoo);
void zoo_write(const struct zoo *zoo, const char *name, const void *bytes, size_t size);
/* The bytes of a mock, for free(). */
unsigned char *zoo_read(const char *kind, size_t *out_size);
/* A silent context over the zoo alone; `variables` is a list of "NAME=VALUE" that ends with NULL, or NULL. */
struct attn_context *zoo_context(const struct zoo *zoo, const char *const *variables);
/* The record of the file of that name, or NULL. */
const struct attn_file_record *zoo_file(const struct attn_report *report, const char *name);

#endif
