/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Takes the mask of a call: what each sequence has of it, one behind the other. */
#include "record/recorder.h"

/* Copies what a sequence has of the mask to `to`, its rows as far apart as they are. */
static bool copy_mask(struct attn__taken *taken, int64_t start, const struct attn__mask_rows *rows,
                      unsigned char *to)
{
    const struct attn__call *call = taken->call;
    const unsigned char *from = attn__taken_view(taken, &taken->run->tensors->mask, start, rows->extent);

    if (from == NULL)
        return false;
    for (uint64_t head = 0; head < rows->heads; head++) {
        for (uint64_t row = 0; row < rows->rows; row++) {
            const uint64_t at = head * call->mask_head_stride + row * call->mask_row_stride;
            memcpy(to + at, from + at, rows->row);
        }
    }
    attn__taken_drop(taken, from);
    return true;
}

/* Where the masks begin in the record, and how many bytes they have together. */
static int32_t place_masks(struct attn__taken *taken, const struct attn_batch_host *host,
                           const int64_t *given, int64_t *starts, uint64_t *out_bytes)
{
    const struct attn_problem *problem = &taken->run->plan->problem;
    struct attn__mask_rows rows;

    *out_bytes = 0;
    for (uint32_t i = 0; i < taken->call->seqs; i++) {
        starts[i] = -1;
        if (given != NULL && given[i] < 0)
            continue;
        if (!attn__mask_rows(problem, taken->call, host, i, &rows))
            return attn__fail(
                taken->err, ATTN_E_UNSUPPORTED, 0, "mask",
                "its mask has strides of %llu (head) and %llu (row) bytes, with more than %u times "
                "its bytes in between",
                (unsigned long long)taken->call->mask_head_stride,
                (unsigned long long)taken->call->mask_row_stride, ATTN__RECORD_SPARSE);
        starts[i] = (int64_t)*out_bytes;
        *out_bytes += (rows.extent + 7) / 8 * 8;
    }
    return ATTN_OK;
}

int32_t attn__taken_mask(struct attn__taken *taken)
{
    const struct attn_tensors *tensors = taken->run->tensors;
    const struct attn_problem *problem = &taken->run->plan->problem;
    struct attn__call *call = taken->call;
    struct attn_batch batch;
    struct attn_batch_host host;
    struct attn__mask_rows rows;
    const void *given = NULL;
    uint64_t bytes;

    if (problem->mask == ATTN_MASK_NONE)
        return ATTN_OK;
    if (tensors->mask_head_stride < 0 || tensors->mask_row_stride < 0)
        return attn__fail(taken->err, ATTN_E_UNSUPPORTED, 0, "mask", "its mask has negative strides");
    call->mask_head_stride = (uint64_t)tensors->mask_head_stride;
    call->mask_row_stride = (uint64_t)tensors->mask_row_stride;
    attn__call_batch(call, &batch, &host);
    int64_t *starts = attn__taken_room(taken, "mask_starts", call->seqs * sizeof *starts);
    if (starts == NULL)
        return taken->err->status;
    if (tensors->mask_starts.data != NULL) {
        given = attn__taken_view(taken, &tensors->mask_starts, 0, call->seqs * sizeof *starts);
        if (given == NULL)
            return taken->err->status;
    }
    const int32_t status = place_masks(taken, &host, given, starts, &bytes);
    if (status != ATTN_OK)
        return status;
    unsigned char *masks = attn__taken_room(taken, "mask", bytes);
    for (uint32_t i = 0; i < call->seqs && masks != NULL; i++) {
        const int64_t from =
            given != NULL ? ((const int64_t *)given)[i] : (int64_t)i * tensors->mask_seq_stride;
        if (starts[i] >= 0 && attn__mask_rows(problem, call, &host, i, &rows) && rows.extent > 0 &&
            !copy_mask(taken, from, &rows, masks + starts[i]))
            return taken->err->status;
    }
    if (masks == NULL ||
        !attn__taken_array(taken, ATTN__PART_mask_starts, starts, sizeof *starts, call->seqs) ||
        !attn__taken_array(taken, ATTN__PART_mask, masks, 1, bytes))
        return taken->err->status;
    return ATTN_OK;
}
