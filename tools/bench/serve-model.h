/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The attention layers of a model on the layer API, with made-up queries, keys and values. */
#ifndef SERVE_MODEL_H
#define SERVE_MODEL_H

#include "attn/device.h"
#include "attn/layer.h"
#include "scheduler.h"

struct serve_shape {
    struct attn_problem problem; /* resolved, with maxima */
    uint32_t layers;
    uint32_t blocks;      /* of each cache */
    uint32_t host_blocks; /* on the host, for those that are moved out */
    uint32_t threads;     /* 0: as libattn decides */
    const char *noop;     /* directory of the plugin that computes nothing; NULL: the selected backend */
};

struct serve_layer {
    struct attn_layer *layer;
    struct attn_buffer cache;
    struct attn_buffer scales[2]; /* of keys and values, those of 8 bits */
    struct attn_kv *kv;
    void *host; /* its blocks on the host */
    void *host_scales[2];
    struct attn_kv_desc host_desc;
};

struct serve_model {
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_backend *backend;
    struct attn_builder *builder;
    struct attn_state *state;
    struct attn_problem problem;
    void *stream;
    uint32_t layer_count;
    struct serve_layer *layers;
    struct attn_kv **kvs;
    uint32_t blocks;
    uint32_t host_blocks;
    struct attn_buffer q, k, v, out;
    struct attn_layer_tensors tensors;
    struct attn_buffer device_pairs;
    int64_t *pairs;
    uint32_t width;                 /* most blocks of a sequence */
    struct attn_metadata *metadata; /* of the step */
};

int serve_model_init(struct serve_model *model, const struct serve_shape *shape, struct failure *err);
void serve_model_finish(struct serve_model *model);

/* A step, in this order. */
int serve_model_move(struct serve_model *model, const struct scheduler_step *step, struct failure *err);
int serve_model_build(struct serve_model *model, const struct attn_builder_add_args *adds, uint32_t count,
                      struct failure *err);
int serve_model_begin(struct serve_model *model, struct failure *err);
int serve_model_run(struct serve_model *model, struct failure *err);

/* ---------------------------------------------------------------- serve-move.c */

int serve_moves_init(struct serve_model *model, struct failure *err);
void serve_moves_finish(struct serve_model *model);

/* Translates an error of libattn. */
int serve_fail(struct failure *err, const char *what, const struct attn_error *error);

#endif
