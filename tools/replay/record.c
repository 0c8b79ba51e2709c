/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Loads the file of a record, and makes contents where it has only hashes of them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "output.h"
#include "replay.h"

/* The whole file, or NULL with a message. */
static void *load(const char *path, size_t *out_size)
{
    struct stat status;
    FILE *file = fopen(path, "re");
    void *data = NULL;

    if (file == NULL || fstat(fileno(file), &status) != 0) {
        complain("%s: %s; accepted is a file that ATTN_RECORD made", path, strerror(errno));
    } else if (!S_ISREG(status.st_mode)) {
        complain("%s is no file; accepted is one that ATTN_RECORD made", path);
    } else {
        *out_size = (size_t)status.st_size;
        data = need_memory(NULL, *out_size, 1);
        if (fread(data, 1, *out_size, file) != *out_size) {
            complain("%s: %s", path, ferror(file) ? strerror(errno) : "it became shorter while it was read");
            free(data);
            data = NULL;
        }
    }
    if (file != NULL)
        fclose(file);
    return data;
}

bool record_load(struct record *record, const char *path)
{
    struct attn_error err;
    size_t size;

    ATTN_INIT(&err);
    *record = (struct record){.path = path, .data = load(path, &size)};
    if (record->data == NULL)
        return false;
    if (attn__record_read(record->data, size, &record->call, &record->problem, &err) != ATTN_OK) {
        complain("%s: %s", path, err.message);
        record_finish(record);
        return false;
    }
    record->failed = strcmp(record->call.status, attn_status_name(ATTN_OK)) != 0;
    for (uint32_t kind = 0; kind < ATTN__PARTS; kind++)
        record->seeded |= record->call.parts[kind].form == ATTN__PART_HASH;
    return true;
}

void record_finish(struct record *record)
{
    free(record->data);
    record->data = NULL;
}

static uint32_t dtype_of(const struct record *record, uint32_t kind)
{
    const struct attn_problem *problem = &record->problem;

    switch (kind) {
    case ATTN__PART_q:
    case ATTN__PART_q_rope:
        return problem->q_dtype;
    case ATTN__PART_v:
    case ATTN__PART_v_new:
        return problem->v_dtype;
    default:
        return problem->k_dtype;
    }
}

/*
 * Few columns get positive values alone, as in attn-check: sums of so few can cancel to nearly nothing, and
 * no bound holds then.
 */
static bool is_positive(const struct record *record, uint32_t kind)
{
    const struct attn_problem *problem = &record->problem;
    const bool values = kind == ATTN__PART_v || kind == ATTN__PART_v_new ||
                        (problem->mla != 0 && (kind == ATTN__PART_k || kind == ATTN__PART_k_new));

    return values && problem->head_dim_vo <= FEW_COLUMNS;
}

/* Blocks of random codes whose scales, and minima where there are any, are small numbers. */
static void fill_blocks(uint32_t dtype, unsigned char *to, uint64_t size, uint64_t seed)
{
    const uint64_t block = attn_block_bytes(dtype);
    const bool minimum = dtype == ATTN_Q4_1 || dtype == ATTN_Q5_1;

    for (uint64_t i = 0; i < size; i++)
        to[i] = (unsigned char)(mix(seed, i) >> 32);
    for (uint64_t i = 0; i + block <= size; i += block) {
        fill_vector(ATTN_F16, to + i, 1, mix(seed, size + i), 0x1p-6, true);
        if (minimum)
            fill_vector(ATTN_F16, to + i + 2, 1, mix(seed, size + i + 2), 0x1p-3, false);
    }
}

unsigned char *record_contents(const struct record *record, uint32_t kind)
{
    const struct attn__part *part = &record->call.parts[kind];
    const uint32_t dtype = dtype_of(record, kind);
    uint64_t bytes = 0;

    (void)attn__part_bytes(part, &bytes);
    unsigned char *contents = need_memory(NULL, bytes, 1);
    if (part->form == ATTN__PART_BYTES)
        memcpy(contents, part->bytes, bytes);
    else if (attn_block_bytes(dtype) != 0)
        fill_blocks(dtype, contents, bytes, part->hash);
    else
        for (uint64_t at = 0; at < bytes; at += part->row)
            fill_vector(dtype, contents + at, (uint32_t)(part->row / oracle_size(dtype)), mix(part->hash, at),
                        1, is_positive(record, kind));
    return contents;
}
