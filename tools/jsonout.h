/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Builds one JSON document from the outside in: open an object or array, add members, close it.
 *
 * `key` is NULL inside an array. Errors stick and are told by jsonout_finish. Texts that are not UTF-8 (paths
 * may be anything) get U+FFFD for each byte at fault.
 */
#ifndef JSONOUT_H
#define JSONOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct jsonout;

/* The document of a tool: an object that begins with schema_version, libattn and command. */
struct jsonout *jsonout_create(const char *command);
void jsonout_object(struct jsonout *json, const char *key);
void jsonout_array(struct jsonout *json, const char *key);
void jsonout_close(struct jsonout *json);

/* NULL becomes null. */
void jsonout_string(struct jsonout *json, const char *key, const char *value);
/* The pieces between the separator. */
void jsonout_strings(struct jsonout *json, const char *key, const char *list, char separator);
void jsonout_integer(struct jsonout *json, const char *key, int64_t value);
/* NaN and infinities become null. */
void jsonout_real(struct jsonout *json, const char *key, double value);
void jsonout_bool(struct jsonout *json, const char *key, bool value);

/* Prints (nothing if stream is NULL) and frees. False if memory ran out or a value could not be expressed. */
bool jsonout_finish(struct jsonout *json, FILE *stream);

#endif
