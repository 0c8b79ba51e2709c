/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tensor element types of GGML: their sizes, and the conversion to float of those that are supported. */
#ifndef ENGINE_QUANT_H
#define ENGINE_QUANT_H

#include <stdint.h>

enum quant_id {
    QUANT_F32 = 0,
    QUANT_F16 = 1,
    QUANT_Q4_0 = 2,
    QUANT_Q4_1 = 3,
    QUANT_Q8_0 = 8,
    QUANT_BF16 = 30,
};

struct quant_type {
    uint32_t id;
    const char *name;
    uint32_t elements; /* in a block */
    uint32_t bytes;    /* of a block */
    /* Converts blocks; NULL where the type is known by size only. */
    void (*to_float)(const uint8_t *blocks, uint64_t count, float *out);
};

/* NULL for a number that is not known at all. */
const struct quant_type *quant_type_find(uint32_t id);

/* Names of the types with a conversion, for messages. */
extern const char quant_supported[];

#endif
