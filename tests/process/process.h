/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests of processes: TAP lines, children with an end, and one attention step whose result is known. */
#ifndef ATTN_TEST_PROCESS_H
#define ATTN_TEST_PROCESS_H

#include <stdbool.h>

#include "attn/attn.h"
#include "attn/device.h"

/* ---------------------------------------------------------------- tap.c */

/* Standard output of the program is kept for TAP; what others print goes to stderr. */
void tap_begin(void);
bool check(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));
void skip(const char *name, const char *reason);
/* A line that is no result. */
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The exit status of the program. */
int tap_end(void);

/*
 * Runs work(arg) in a child after fork and returns what it returned (0 to 250). CHILD_HANGS if it did not end
 * within the seconds, CHILD_DIED if a signal ended it.
 */
enum { CHILD_HANGS = 251, CHILD_DIED = 252, CHILD_NONE = 253 };
int in_child(int (*work)(void *arg), void *arg, unsigned seconds);

/* True under a sanitizer. */
bool is_sanitized(void);

/* ---------------------------------------------------------------- step.c */

/* The functions of one copy of the library. */
struct library {
    const char *name;
#define LIBRARY_FUNCTIONS(F)                                                                                 \
    F(attn_context_create)                                                                                   \
    F(attn_context_destroy)                                                                                  \
    F(attn_context_load_all)                                                                                 \
    F(attn_context_rescan)                                                                                   \
    F(attn_context_inspect)                                                                                  \
    F(attn_context_get_report)                                                                               \
    F(attn_context_get_variable)                                                                             \
    F(attn_context_query)                                                                                    \
    F(attn_context_get_axes)                                                                                 \
    F(attn_report_get_file)                                                                                  \
    F(attn_report_destroy)                                                                                   \
    F(attn_problem_parse)                                                                                    \
    F(attn_select)                                                                                           \
    F(attn_decision_destroy)                                                                                 \
    F(attn_backend_open)                                                                                     \
    F(attn_backend_destroy)                                                                                  \
    F(attn_backend_query)                                                                                    \
    F(attn_kv_get_shape)                                                                                     \
    F(attn_kv_desc_init)                                                                                     \
    F(attn_kv_create)                                                                                        \
    F(attn_kv_destroy)                                                                                       \
    F(attn_plan_create)                                                                                      \
    F(attn_plan_destroy)                                                                                     \
    F(attn_plan_get_sizes)                                                                                   \
    F(attn_plan_prepare)                                                                                     \
    F(attn_plan_run)
#define LIBRARY_MEMBER(name) __typeof__(name) *name;
    LIBRARY_FUNCTIONS(LIBRARY_MEMBER)
#undef LIBRARY_MEMBER
};

/* The copy that the program is linked with. */
extern const struct library linked_library;

/* Sequences of one query each over a cache, with everything that belongs to it. */
struct step {
    const struct library *library;
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_backend *backend;
    struct attn_plan *plan;
    struct attn_kv *kv;
    struct attn_problem problem;
    struct attn_kv_desc desc;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_plan_sizes sizes;
    struct attn_span schedule;
    struct attn_scratch scratch;
    struct attn_error err;
    int32_t *q_offsets, *kv_lens, *table;
    float *cache, *q, *out;
};

/* Makes all handles on the CPU plugin of ATTN_PLUGIN_PATH. False with err filled. */
bool step_open(struct step *step, const struct library *library, const char *threads);
/* Prepares and runs; the status of the first call that failed. */
int32_t step_run(struct step *step);
/* True if the result is the right one. */
bool step_is_right(const struct step *step);
/* Destroys the handles in the order of a permutation of 0 to 4. */
void step_close(struct step *step, unsigned order);
/* open, run, compare, close. */
bool step_works(const struct library *library, const char *threads);

#endif
