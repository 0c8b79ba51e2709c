/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the ggml client share: a node in libattn's words, and what computes it. */
#ifndef LIBATTN_GGML_CLIENT_H
#define LIBATTN_GGML_CLIENT_H

#include <attn/device.h>
#include <ggml-backend-impl.h>
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
    uint32_t runs;      /* 1, or seqs: queries whose sequences do not follow each other take a run each */
    uint32_t head_runs; /* 1, or KV heads, which then take a run each of all these */
    struct attn_problem problem; /* of a run, without maxima */
};

/* Reads a node. Returns NULL, or why libattn has no words for it: static, or in `text`. */
const char *node_read(const struct ggml_tensor *op, struct node *out, char *text, size_t size);

/* Makes MLA of keys whose first columns are the values, and of which there are several heads: MLA has one.
 * False if they are not such keys. */
bool node_split(struct node *node);

/* The cache and the tensors of run number `run`, of runs * head_runs, without slopes. */
void node_kv(const struct node *node, uint32_t run, struct attn_kv_desc *out);
void node_tensors(const struct node *node, uint32_t run, struct attn_tensors *out);
/* ALiBi's slopes, one number a head, as ggml defines them by the largest bias. */
void node_slopes(const struct node *node, float *slopes);
/* Queries as a cache of keys, for libattn to convert. */
void node_queries(const struct node *node, struct attn_kv_desc *out);

/* ---------------------------------------------------------------- library.c */

struct answer;

/* A device of libattn, which is one of ggml. */
struct device {
    char label[24];        /* for ggml: "LIBATTN" is the CPU, "LIBATTN1" the first GPU */
    char place[24];        /* "cpu", "cuda:0" */
    char name[64];         /* of the backend: "cpu/flash-attn" */
    char description[128]; /* for ggml: "libattn 0.1.0, cpu/flash-attn" */
    bool gpu;
    int ordinal; /* of a GPU, from 0 */
    struct attn_decision *decision;
    struct answer *answers;
    ggml_backend_buffer_type_t buffers; /* of a GPU: memory.c; NULL until ggml asks */
    void *context; /* of the driver, where these are of ggml's own CUDA backend: beside.c */
};

#define MAX_DEVICES 17

/* What a process has once: a context, and the backends that serve its devices. */
struct library {
    struct attn_context *context;       /* NULL: see `failure` */
    struct device devices[MAX_DEVICES]; /* the CPU first */
    size_t count;
    char failure[512]; /* why there is none */
};

struct library *library_get(void);

/* Whether a device serves a node by optimised kernels. LIBATTN_GGML_REFUSALS=1 prints why not, each reason
 * once. */
bool device_serves(struct device *device, const struct ggml_tensor *op);

/* Changes a node into what a GPU serves by optimised kernels: queries of another type, and other runs. False
 * if there is no such form. */
bool device_adapt(struct device *device, struct node *node);

/* ---------------------------------------------------------------- memory.c */

/* The buffers that a GPU's tensors lie in: of ggml's own CUDA backend where the process has that for this
 * GPU, so that both compute on the same tensors, else of the client's own type. The first call decides. */
ggml_backend_buffer_type_t memory_type(struct device *device, ggml_backend_dev_t ggml_device);

/* ---------------------------------------------------------------- beside.c */

/* The buffers of ggml's own CUDA backend for a GPU, or NULL if the process has none whose work can be waited
 * for. */
ggml_backend_buffer_type_t beside_buffers(struct device *device);

/* Waits for all that such a GPU was given, and so for ggml's own kernels. */
int32_t beside_wait(const struct device *device, struct attn_error *err);

/* ---------------------------------------------------------------- attention.c */

/* An opened backend and its plans. Not for two threads at once, as ggml's backends. */
struct attention;

struct attention *attention_create(struct device *device);
void attention_destroy(struct attention *attention);
void attention_set_threads(struct attention *attention, uint32_t threads);
/* A GPU has only begun when this returns. */
int32_t attention_compute(struct attention *attention, const struct ggml_tensor *op, struct attn_error *err);
int32_t attention_wait(struct attention *attention, struct attn_error *err);

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
