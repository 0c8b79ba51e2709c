/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs a prompt and takes the largest logit again and again, keeping how clear each choice was. */
#include "greedy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void choose(const float *logits, uint32_t count, int32_t *out_id, double *out_margin)
{
    uint32_t best = 0;
    double second = -INFINITY;
    for (uint32_t i = 1; i < count; i++) {
        if (logits[i] > logits[best]) {
            second = (double)logits[best];
            best = i;
        } else if ((double)logits[i] > second) {
            second = (double)logits[i];
        }
    }
    *out_id = (int32_t)best;
    *out_margin = (double)logits[best] - second;
}

static int run(struct engine *e, const struct tokens *prompt, uint32_t chunk, float *logits,
               struct greedy_result *out, struct failure *err)
{
    uint32_t past = (uint32_t)prompt->count;
    if (forward_prompt(e->forward, e->attention, prompt->ids, past, chunk, logits, err) < 0)
        return -1;
    for (int i = 0; i < GREEDY_TOKENS; i++) {
        choose(logits, e->model.shape.vocab, &out->ids[i], &out->margins[i]);
        if (i + 1 < GREEDY_TOKENS &&
            forward_step(e->forward, e->attention, &out->ids[i], past++, 1, 0, logits, err) < 0)
            return -1;
    }
    return 0;
}

int greedy_run(struct engine *e, const struct tokens *prompt, const struct greedy_config *config,
               struct greedy_result *out, struct failure *err)
{
    uint32_t count = (uint32_t)prompt->count;
    uint32_t chunk = config->chunk && config->chunk < count ? config->chunk : count;
    struct attention_options options = {
        .block = config->block,
        .max_tokens = count + GREEDY_TOKENS,
        .max_chunk = chunk,
        .threads = config->threads,
        .kv = config->kv,
        .q = config->q,
        .backend = config->backend,
        .seed = config->block,
        .variables = &config->variable,
        .variable_count = config->variable ? 1 : 0,
    };
    struct attention_info info;
    float *logits = malloc(e->model.shape.vocab * sizeof *logits);
    *out = (struct greedy_result){0};
    int status = logits ? engine_start(e, &options, err) : failure_set(err, "no memory for logits");
    if (status == 0) {
        attention_get_info(e->attention, &info);
        snprintf(out->backend, sizeof out->backend, "%s", info.backend);
        snprintf(out->kernels, sizeof out->kernels, "%s", info.kernels);
        status = run(e, prompt, chunk, logits, out, err);
    }
    engine_stop(e);
    free(logits);
    return status;
}
