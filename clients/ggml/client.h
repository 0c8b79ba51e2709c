/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the ggml client share: a node in libattn's words, and what computes it. */
#ifndef LIBATTN_GGML_CLIENT_H
#define LIBATTN_GGML_CLIENT_H

#include <attn/attn.h>
#include <ggml.h>

/* ---------------------------------------------------------------- node.c */

/* A GGML_OP_FLASH_ATTN_EXT node. Tensors of ggml have their dimensions innermost first: [dim, token, head,
 * sequence]. */
struct node {
    const struct ggml_tensor *q, *k, *v, *mask, *sinks, *out;
    float scale, max_bias;
    uint32_t tokens; /* query tokens of a sequence */
    uint32_t keys;   /* keys of a sequence */
    uint32_t seqs;
    uint32_t runs; /* 1, or seqs: queries whose sequences do not follow each other take a run each */
    struct attn_problem problem; /* without maxima */
};

/* Reads a node. Returns NULL, or why libattn has no words for it: static, or in `text`. */
const char *node_read(const struct ggml_tensor *op, struct node *out, char *text, size_t size);

/* The cache and the tensors of run number `run`; `slopes` has room for one number a head. */
void node_kv(const struct node *node, uint32_t run, struct attn_kv_desc *out);
void node_tensors(const struct node *node, uint32_t run, float *slopes, struct attn_tensors *out);

/* ---------------------------------------------------------------- library.c */

/* What a process has once: a context, and the backend that serves its CPU. */
struct library {
    struct attn_context *context; /* NULL: see `failure` */
    struct attn_decision *decision;
    char name[64];         /* "cpu/flash-attn" */
    char description[128]; /* for ggml: "libattn 0.1.0, cpu/flash-attn" */
    char failure[512];
};

const struct library *library_get(void);

/* Whether it serves a node by optimised kernels. LIBATTN_GGML_REFUSALS=1 prints why not, each reason once. */
bool library_serves(const struct ggml_tensor *op);

/* ---------------------------------------------------------------- attention.c */

/* An opened backend and its plans. Not for two threads at once, as ggml's backends. */
struct attention;

struct attention *attention_create(void);
void attention_destroy(struct attention *attention);
void attention_set_threads(struct attention *attention, uint32_t threads);
int32_t attention_compute(struct attention *attention, const struct ggml_tensor *op, struct attn_error *err);

/* ---------------------------------------------------------------- threads.c */

typedef void (*parallel_fn)(void (*)(void *), void *, unsigned, unsigned);

/* What libattn computes on: the threads of ggml's OpenMP library, for they and libattn's own would compete.
 */
struct team {
    struct attn_cpu_executor executor; /* `threads`: as many as ggml was told to use */
    parallel_fn region;                /* NULL: no such library, and libattn's own */
};

/* Looks for the library once; the team then stays where it is. */
void team_init(struct team *team);

#endif
