/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The recorded logits of another runtime (README.md says how they came about). */
#ifndef TESTS_MODEL_REFERENCE_H
#define TESTS_MODEL_REFERENCE_H

#include <stdint.h>

enum { REFERENCE_TOP = 8, REFERENCE_SAMPLE = 32 };

struct reference_position {
    uint32_t index;
    int32_t top_ids[REFERENCE_TOP];
    double top[REFERENCE_TOP];
    double sample[REFERENCE_SAMPLE];
    double mean;
    double rms;
};

struct reference_prompt {
    const char *name;
    const char *text;
    int32_t *tokens;
    uint32_t token_count;
    int32_t *greedy;
    uint32_t greedy_count;
    struct reference_position *positions;
    uint32_t position_count;
};

struct reference {
    void *json; /* keeps the texts */
    const char *sha256;
    int32_t sample_ids[REFERENCE_SAMPLE];
    struct reference_prompt *prompts;
    uint32_t prompt_count;
};

/* Returns -1 after a message when the file is not what it should be. */
int reference_load(const char *path, struct reference *out);
void reference_finish(struct reference *r);

#endif
