/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Fuzz target for records. The input is read as it is, and again with sizes and hashes put right, for else
 * nothing behind them would be reached. What is refused names a field; of what is accepted everything can be
 * read that a replay reads.
 */
#include "base/hash.h"
#include "fuzz.h"
#include "record/record.h"

/* Reads every byte of the parts, and follows the batch to the pages that it names. */
static uint64_t use(const struct attn__call *call, const struct attn_problem *problem)
{
    struct attn_batch batch;
    struct attn_batch_host host;
    struct attn__reach reach;
    struct attn__mask_rows rows;
    uint64_t sum = 0, bytes, extent, first;

    for (uint32_t kind = 0; kind < ATTN__PARTS; kind++) {
        const struct attn__part *part = &call->parts[kind];
        FUZZ_CHECK(part->form == ATTN__PART_ABSENT ||
                   (attn__part_bytes(part, &bytes) && attn__part_extent(part, &extent, &first)));
        for (uint64_t i = 0; part->form == ATTN__PART_BYTES && i < bytes; i++)
            sum += part->bytes[i];
    }
    attn__call_batch(call, &batch, &host);
    FUZZ_CHECK(attn__reach_find(problem, &batch, &host, &reach, NULL) == ATTN_OK);
    const int64_t *starts = (const void *)call->parts[ATTN__PART_mask_starts].bytes;
    const unsigned char *mask = call->parts[ATTN__PART_mask].bytes;
    for (uint32_t i = 0; starts != NULL && i < batch.seqs; i++)
        if (starts[i] >= 0 && attn__mask_rows(problem, call, &host, i, &rows) && rows.extent > 0)
            sum += mask[(uint64_t)starts[i] + rows.extent - 1];
    return sum;
}

static void check(const uint8_t *data, size_t size)
{
    static struct attn__call call;
    struct attn_problem problem;
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn__record_read(data, size, &call, &problem, &err) == ATTN_OK)
        FUZZ_CHECK(use(&call, &problem) < UINT64_MAX); /* so that nothing of it is left out */
    else
        FUZZ_CHECK(err.field[0] != '\0' && err.message[0] != '\0');
}

/* The hashes of parts that lie within the file. */
static void sign_parts(uint8_t *data, size_t size, const struct attn__record_head *head)
{
    for (uint32_t i = 0; i < head->parts; i++) {
        struct attn__record_entry entry;
        const size_t at = sizeof *head + i * sizeof entry;
        if (at + sizeof entry > size)
            return;
        memcpy(&entry, data + at, sizeof entry);
        struct attn__part part = {.row = entry.row};
        uint64_t bytes;
        memcpy(part.count, entry.count, sizeof part.count);
        if (!attn__part_bytes(&part, &bytes) || entry.offset > size || bytes > size - entry.offset)
            continue;
        entry.hash = attn__hash(ATTN__HASH_START, data + entry.offset, bytes);
        memcpy(data + at, &entry, sizeof entry);
    }
}

static void sign(uint8_t *data, size_t size)
{
    struct attn__record_head head;

    if (size < sizeof head)
        return;
    memcpy(&head, data, sizeof head);
    head.file_bytes = size;
    sign_parts(data, size, &head);
    const uint64_t signed_bytes = head.parts * sizeof(struct attn__record_entry) + head.text_bytes;
    head.hash = attn__hash(ATTN__HASH_START, &head, offsetof(struct attn__record_head, hash));
    if (head.parts <= ATTN__PARTS && head.text_bytes <= ATTN__RECORD_TEXT &&
        signed_bytes <= size - sizeof head)
        head.hash = attn__hash(head.hash, data + sizeof head, signed_bytes);
    memcpy(data, &head, sizeof head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = calloc(1, size > 0 ? size : 1); /* aligned, as what a tool reads a file into */

    FUZZ_CHECK(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    check(copy, size);
    sign(copy, size);
    check(copy, size);
    free(copy);
    return 0;
}

#ifdef ATTN_FUZZ_REPLAY
#include "replay.h"
#endif
