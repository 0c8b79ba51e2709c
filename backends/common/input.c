/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What an engine computes before a step: slots, start index, and which tokens are new. */
#include "attn/input.h"

#include "args.h"
#include "fail.h"
#include "slot-map.h"

int attn_input_is_profile(const void *const *lists, uint32_t count)
{
    if (lists == NULL)
        return 1;
    for (uint32_t i = 0; i < count; i++)
        if (lists[i] != NULL)
            return 0;
    return 1;
}

int64_t attn_input_start(int prompt, int64_t query_len, int64_t window)
{
    return prompt != 0 && window >= 0 && query_len > window ? query_len - window : 0;
}

int32_t attn_slot_mapping(const struct attn_slot_args *args, int64_t *slots, uint64_t capacity,
                          uint64_t *out_count, struct attn_error *err)
{
    struct attn_slot_args own;
    struct attn_slots checked;
    int32_t status = attn__take(&own, sizeof own, args, ATTN__ARGS_MIN, "args", err);

    if (status == ATTN_OK && out_count == NULL)
        status = attn__fail(err, ATTN_E_INVALID, 0, "out_count", "out_count is NULL");
    if (status == ATTN_OK)
        status = attn__slots_init(&checked, &own, err);
    if (status != ATTN_OK)
        return status;
    *out_count = attn__slots_count(&checked);
    if (*out_count > capacity)
        return attn__fail(err, ATTN_E_SIZE, 0, "slots", "slots has room for %llu, but there are %llu",
                          (unsigned long long)capacity, (unsigned long long)*out_count);
    if (*out_count > 0 && slots == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "slots", "slots is NULL, but capacity is %llu",
                          (unsigned long long)capacity);
    if (*out_count > 0)
        attn__slots_write(&checked, slots);
    return ATTN_OK;
}

/* ---------------------------------------------------------------- one sequence */

static int32_t check_request(const struct attn_input_rules *rules, const struct attn_input_request *request,
                             struct attn_error *err)
{
    if (rules->block == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "block", "block is 0; accepted: 1 and more tokens");
    if (request->total_len > INT32_MAX)
        return attn__fail(err, ATTN_E_INVALID, 0, "total_len", "total_len is %u; accepted: up to %d",
                          request->total_len, INT32_MAX);
    if (request->computed_len > request->total_len)
        return attn__fail(err, ATTN_E_INVALID, 0, "computed_len",
                          "computed_len is %u; accepted: up to total_len, %u", request->computed_len,
                          request->total_len);
    return ATTN_OK;
}

/* Skips the cached beginning of a prompt, but computes at least its last token. */
static void use_hits(const struct attn_input_rules *rules, uint32_t cached_blocks, struct attn_input *input)
{
    const uint64_t cached = (uint64_t)cached_blocks * rules->block;

    input->prefix_hit = 1;
    if (cached <= input->context_len)
        return;
    if (cached < input->orig_seq_len)
        input->context_len = (uint32_t)cached;
    else if (input->orig_seq_len > 0)
        input->context_len = input->orig_seq_len - 1;
}

/* With a window a decode attends to as many whole pages as the window needs, and to the last, partial page.
 */
static void use_window(const struct attn_input_rules *rules, struct attn_input *input)
{
    const uint64_t pages = (uint64_t)rules->window / rules->block + (rules->window % rules->block != 0);
    const uint32_t rest = input->seq_len % rules->block;
    const uint64_t kept = pages * rules->block + rest, blocks = pages + (rest > 0);

    if (kept < input->seq_len)
        input->seq_len = (uint32_t)kept;
    input->window_blocks = blocks > UINT32_MAX ? UINT32_MAX : (uint32_t)blocks;
}

int32_t attn_input_prepare(const struct attn_input_rules *rules, const struct attn_input_request *request,
                           struct attn_input *out, struct attn_error *err)
{
    struct attn_input_rules r;
    struct attn_input_request q;
    int32_t status = attn__take(&r, sizeof r, rules, ATTN__ARGS_MIN, "rules", err);

    if (status == ATTN_OK)
        status = attn__take(&q, sizeof q, request, ATTN__ARGS_MIN, "request", err);
    if (status == ATTN_OK)
        status = check_request(&r, &q, err);
    if (status == ATTN_OK)
        status = attn__args_clear(out, sizeof *out, "out", err);
    if (status != ATTN_OK)
        return status;
    const int windowed = (r.given & ATTN_GIVEN_INPUT_WINDOW) != 0;
    out->context_len = q.computed_len;
    out->orig_seq_len = q.total_len;
    if (q.prompt != 0) {
        const uint64_t end = (uint64_t)q.computed_len + q.chunk;
        out->orig_seq_len = end < q.total_len ? (uint32_t)end : q.total_len;
    } else if ((r.multi_step != 0 || r.encoder_decoder != 0) && q.total_len > 0) {
        out->context_len = q.total_len - 1;
    }
    out->seq_len = out->orig_seq_len;
    if (q.prompt != 0 && !windowed && q.cached_blocks > 0)
        use_hits(&r, q.cached_blocks, out);
    if (q.prompt == 0 && windowed)
        use_window(&r, out);
    out->query_len = out->orig_seq_len - out->context_len;
    return ATTN_OK;
}
