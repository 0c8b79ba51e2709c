/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The original's backend selection as a pure function: what it chose, and what it logged. */
#ifndef GOLDEN_SELECTION_H
#define GOLDEN_SELECTION_H

#include <stdbool.h>
#include <stddef.h>

struct selection_request {
    const char *platform; /* "cuda", "rocm", "cpu", "openvino", "xpu", "tpu", "hpu" */
    int capability;       /* 90 = 9.0 */
    int head_dim;
    const char *dtype;    /* "float16", ... */
    const char *kv_dtype; /* may be NULL */
    int block;
    bool blocksparse;
    bool attention_free;
    bool v1;
    const char *env;    /* the variable, or NULL */
    const char *forced; /* the override, or NULL */
    bool has_package;   /* the flash package is installed */
};

struct selection {
    const char *backend; /* NULL: the request failed, see error */
    char error[256];
    char log[2][192];
    int log_count;
};

void selection_choose(const struct selection_request *request, struct selection *out);

/* Every name of the original's enumeration. */
extern const char *const selection_names[];
extern const size_t selection_name_count;

/* The override: a scope that may be nested, left in any way, and holds a name or NULL (automatic). */
struct selection_scope {
    const char *before;
};
void selection_enter(struct selection_scope *scope, const char *forced);
void selection_leave(const struct selection_scope *scope);
const char *selection_forced(void);

#endif
