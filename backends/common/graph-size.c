/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sizes that graphs are captured for, and whether a step uses one. */
#include "args.h"
#include "attn/input.h"
#include "fail.h"

/* Sizes above 4 are multiples of this. */
#define STEP 8u

uint32_t attn_graph_padded(uint32_t seqs)
{
    if (seqs <= 2)
        return seqs;
    if (seqs <= 4)
        return 4;
    return seqs / STEP * STEP + (seqs % STEP != 0 ? STEP : 0);
}

uint32_t attn_graph_largest(uint32_t max_seqs)
{
    return max_seqs >= ATTN_GRAPH_BATCH_MAX ? ATTN_GRAPH_BATCH_MAX : attn_graph_padded(max_seqs);
}

uint32_t attn_graph_sizes(uint32_t max_seqs, uint32_t *out, uint32_t capacity)
{
    const uint32_t largest = attn_graph_largest(max_seqs);
    uint32_t count = 0;

    for (uint32_t size = 1; size <= largest; size = attn_graph_padded(size + 1), count++)
        if (count < capacity)
            out[count] = size;
    return count;
}

int32_t attn_graph_pad(const struct attn_input_rules *rules, const struct attn_input_step *step,
                       int32_t *out_pad, struct attn_error *err)
{
    struct attn_input_rules r;
    struct attn_input_step s;
    int32_t status = attn__take(&r, sizeof r, rules, ATTN__ARGS_MIN, "rules", err);

    if (status == ATTN_OK)
        status = attn__take(&s, sizeof s, step, ATTN__ARGS_MIN, "step", err);
    if (status == ATTN_OK && out_pad == NULL)
        status = attn__fail(err, ATTN_E_INVALID, 0, "out_pad", "out_pad is NULL");
    if (status == ATTN_OK && s.prompts > s.seqs)
        status = attn__fail(err, ATTN_E_INVALID, 0, "prompts", "prompts is %u; accepted: up to seqs, %u",
                            s.prompts, s.seqs);
    if (status != ATTN_OK)
        return status;
    const int may = s.prompts == 0 || (r.multi_step != 0 && r.chunked_prefill != 0);
    *out_pad = -1;
    if (may && r.eager == 0 && s.seqs <= attn_graph_largest(r.max_seqs) &&
        s.max_decode_len <= r.max_capture_len && s.max_encoder_len <= r.max_capture_len)
        *out_pad = (int32_t)(attn_graph_padded(s.seqs) - s.seqs);
    return ATTN_OK;
}
