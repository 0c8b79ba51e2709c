/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * golden-check: recorded results of the original layer against libattn.
 *
 * A file's handler walks its rows. A row's inputs go through the library, the answer is written down as the
 * same kind of JSON that was recorded, and the two are compared member by member. Where a defect of the
 * original shows, the recorded value is mended first, by a rule that looks at the input alone (rules.c).
 */
#ifndef GOLDEN_H
#define GOLDEN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "attn/attn.h"

struct golden {
    const char *directory;
    const char *file; /* "slot_mapping.json" */
    unsigned long passed;
    unsigned long failed;
    unsigned long model_passed; /* of these, those that compat and selection.c answered */
    unsigned long model_failed;
    bool bad;       /* the case at hand has failed */
    bool model;     /* it is the test's own model of the original that answers it, not libattn */
    char name[128]; /* of the case at hand */
    struct attn_context *context;
    const char *plugin_directory; /* another one that is searched for plugins, or NULL */
};

/* ---------------------------------------------------------------- report.c: cases */

void golden_begin(struct golden *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a case that the test's own model of the original answers, without libattn. */
void golden_begin_model(struct golden *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Says once per case what differs. */
void golden_differ(struct golden *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
void golden_end(struct golden *g);
/* How many cases passed and failed, of libattn, of the model, and of both. */
void golden_print_counts(const struct golden *g);
/* A file or row that cannot be read is a failed case of its own. */
void golden_broken(struct golden *g, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---------------------------------------------------------------- compare.c: JSON against JSON */

/*
 * Compares every member of `expected` with `actual`; `path` names the place. Members named in `ignored` (NULL
 * at its end; may be NULL) are left out at any depth. A null stands for a member that is not there.
 */
bool golden_same(struct golden *g, const char *path, const json_t *expected, const json_t *actual,
                 const char *const *ignored);
/* Whether two JSON numbers are one number. */
bool golden_number(const json_t *expected, const json_t *actual);

/* ---------------------------------------------------------------- exceptions.c */

/* The recorded exception of a row or value ({error, args}), or NULL. */
const json_t *golden_exception(const json_t *value);
/* Compares a status with a recorded exception, and the text where texts compare. */
void golden_check_exception(struct golden *g, const json_t *exception, int32_t status,
                            const struct attn_error *err);
/* For calls that should succeed: says so and returns false if one did not. */
bool golden_ok(struct golden *g, const char *what, int32_t status, const struct attn_error *err);

/* ---------------------------------------------------------------- read.c: members of rows */

int64_t golden_int(const json_t *object, const char *key, int64_t fallback);
double golden_real(const json_t *object, const char *key, double fallback);
bool golden_bool(const json_t *object, const char *key);
const char *golden_text(const json_t *object, const char *key, const char *fallback);
/* A list of integers as an array that the caller frees; NULL if it is no list. Never NULL for an empty list.
 */
int64_t *golden_ints(const json_t *list, size_t *out_count);
int32_t *golden_int32s(const json_t *list, size_t *out_count);
/* An allocation that cannot fail: the program ends if it does. */
void *golden_memory(size_t count, size_t size);

/* ---------------------------------------------------------------- write.c: arrays as recorded tensors */

json_t *golden_list_i32(const int32_t *values, size_t count);
json_t *golden_list_i64(const int64_t *values, size_t count);
json_t *golden_list_u64(const uint64_t *values, size_t count);

/* ---------------------------------------------------------------- context.c */

/* A backend of the CPU plugin or of the recording plugin, by its name; NULL with a message on failure. */
struct attn_backend *golden_backend(struct golden *g, const char *name, const char *problem);
void golden_context_end(struct golden *g);

/* ---------------------------------------------------------------- handlers: one per file format */

typedef void (*golden_fn)(struct golden *g, const json_t *data);

void check_selector(struct golden *g, const json_t *data);
void check_shapes(struct golden *g, const json_t *data);
void check_slot_mapping(struct golden *g, const json_t *data);
void check_start_idx(struct golden *g, const json_t *data);
void check_block_tables_empty(struct golden *g, const json_t *data);
void check_graph_batch_size(struct golden *g, const json_t *data);
void check_graph_state(struct golden *g, const json_t *data);
void check_builder(struct golden *g, const json_t *data);
void check_advance(struct golden *g, const json_t *data);
void check_advance_edges(struct golden *g, const json_t *data);
void check_edges(struct golden *g, const json_t *data);
void check_forward(struct golden *g, const json_t *data);
void check_cache_ops(struct golden *g, const json_t *data);

#endif
