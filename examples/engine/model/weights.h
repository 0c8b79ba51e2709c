/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tensors of a GGUF file as floats, requested by name and shape; a tensor left over is an error. */
#ifndef ENGINE_WEIGHTS_H
#define ENGINE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "failure.h"
#include "gguf/gguf.h"

struct weights {
    const struct gguf *file;
    float **blocks; /* by the tensor's index in the file; NULL: not asked for */
};

/* A product with its bias: matrix is [outputs, inputs], rows contiguous. */
struct dense {
    const float *matrix;
    const float *bias;
    uint32_t inputs;
    uint32_t outputs;
};

/* Scale and shift of a norm, both as wide as a row. */
struct norm {
    const float *scale;
    const float *shift;
};

int weights_init(struct weights *w, const struct gguf *file, struct failure *err);
void weights_finish(struct weights *w);

/* A tensor of up to three dimensions, innermost first; absent ones are 1. */
int weights_take(struct weights *w, const char *name, uint64_t inner, uint64_t middle, uint64_t outer,
                 const float **out, struct failure *err);

/* "PREFIX.NAME.weight" and "PREFIX.NAME.bias". */
int weights_take_dense(struct weights *w, const char *prefix, const char *name, uint32_t inputs,
                       uint32_t outputs, struct dense *out, struct failure *err);
int weights_take_norm(struct weights *w, const char *prefix, const char *name, uint32_t width,
                      struct norm *out, struct failure *err);

/* A tensor that was not asked for would change the result: an error names it, and the kind of model. */
int weights_check_all(const struct weights *w, const char *model, struct failure *err);

/* Reads a metadata key that is a whole number from 1 on. */
int weights_get_u32(const struct gguf *file, const char *key, uint64_t most, uint32_t *out,
                    struct failure *err);

/* Reads the norms' epsilon, a number between 0 and 1. */
int weights_get_epsilon(const struct gguf *file, const char *key, float *out, struct failure *err);

#endif
