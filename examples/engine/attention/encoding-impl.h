/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the parts of the attention of models with an encoder share. */
#ifndef ENGINE_ENCODING_IMPL_H
#define ENGINE_ENCODING_IMPL_H

#include <attn/layer.h>

#include "device.h"
#include "encoding.h"

struct encoding_cache {
    struct attn_buffer memory;
    struct attn_buffer scales[2]; /* of keys and values, 8-bit types only */
    struct attn_kv *kv;
};

/* Batch slots of a class in its caches: batch slot i has the blocks from page[i * width] on. */
struct encoding_slots {
    uint32_t width;
    int64_t *page;
    struct encoding_cache *caches; /* one per layer */
};

struct encoding {
    struct encoding_shape shape;
    struct encoding_options options;
    uint32_t kv_dtype;
    struct attn_problem problems[ENCODING_CLASSES];
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_backend *backend;
    struct device device;
    char kernels[256]; /* of all classes */
    struct attn_builder *builder;
    struct attn_state *state;
    struct attn_layer *layers[ENCODING_CLASSES]; /* one serves all layers of a class */
    struct attn_metadata *metadata;              /* of the step that was begun */
    struct encoding_slots self;
    struct encoding_slots cross;
    uint32_t num_tokens;     /* new tokens of the step */
    uint32_t encoder_tokens; /* of the encoder in a step of prompts */

    struct device_tensors tensors; /* of a layer */
};

#endif
