/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads a record from memory: every size and number is judged before it is used. */
#include <inttypes.h>

#include "base/hash.h"
#include "fail.h"
#include "record/record.h"

/* A file that is being read. */
struct source {
    const unsigned char *data;
    size_t size;
    struct attn__record_head head;
    uint64_t end; /* of what was read */
};

/* ---------------------------------------------------------------- head and table */

static int32_t read_head(struct source *source, struct attn_error *err)
{
    struct attn__record_head *head = &source->head;

    if (source->size < sizeof *head)
        return attn__record_refuse(err, "size", source->size, "at least the bytes of a head,", sizeof *head);
    memcpy(head, source->data, sizeof *head);
    if (memcmp(head->magic, ATTN__RECORD_MAGIC, sizeof head->magic) != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "magic",
                          "the file begins with 0x%02x%02x%02x%02x; accepted: a record, which begins with "
                          "ATTNREC: ATTN_RECORD makes them",
                          source->data[0], source->data[1], source->data[2], source->data[3]);
    if (head->version != ATTN__RECORD_VERSION)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "version",
                          "the record's version is %u; accepted: %u, by attn-replay of the libattn that "
                          "recorded it",
                          head->version, ATTN__RECORD_VERSION);
    if (head->file_bytes != source->size)
        return attn__record_refuse(err, "file_bytes", head->file_bytes, "the size of the file,",
                                   source->size);
    if (head->parts > ATTN__PARTS)
        return attn__record_refuse(err, "parts", head->parts, "up to", ATTN__PARTS);
    if (head->text_bytes > ATTN__RECORD_TEXT)
        return attn__record_refuse(err, "text_bytes", head->text_bytes, "up to", ATTN__RECORD_TEXT);
    source->end = sizeof *head + head->parts * sizeof(struct attn__record_entry) + head->text_bytes;
    if (source->end > source->size)
        return attn__record_refuse(err, "size", source->size, "at least head, table and fields,",
                                   source->end);
    uint64_t hash = attn__hash(ATTN__HASH_START, head, offsetof(struct attn__record_head, hash));
    hash = attn__hash(hash, source->data + sizeof *head, source->end - sizeof *head);
    return hash == head->hash
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "hash",
                            "the record's hash of head, table and fields is %016" PRIx64 ", but they have "
                            "%016" PRIx64 ": the file is damaged; give a whole copy",
                            head->hash, hash);
}

/* Bytes between two parts are zeros, so that every byte of a file counts. */
static int32_t check_gap(const struct source *source, uint64_t to, struct attn_error *err)
{
    for (uint64_t i = source->end; i < to && i < source->size; i++)
        if (source->data[i] != 0)
            return attn__fail(err, ATTN_E_INVALID, 0, "gap",
                              "byte %" PRIu64 " of the record, between two parts, is 0x%02x; accepted: 0", i,
                              source->data[i]);
    return ATTN_OK;
}

/* Where the bytes of a part lie: behind those of the part before it. */
static int32_t place(struct source *source, const char *name, uint64_t offset, struct attn__part *part,
                     struct attn_error *err)
{
    const uint64_t begin = (source->end + ATTN__RECORD_ALIGN - 1) / ATTN__RECORD_ALIGN * ATTN__RECORD_ALIGN;
    uint64_t bytes;

    if (!attn__part_bytes(part, &bytes))
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s of the record has %" PRIu64 " times %" PRIu64 " times %" PRIu64
                          " vectors of %" PRIu64 " bytes; accepted: what fits 63 bits",
                          name, part->count[0], part->count[1], part->count[2], part->row);
    if (offset != begin)
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s of the record begins at byte %" PRIu64 "; accepted: %" PRIu64
                          ", behind the part before it",
                          name, offset, begin);
    const int32_t status = check_gap(source, begin, err);
    if (status != ATTN_OK)
        return status;
    if (begin > source->size || bytes > source->size - begin)
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s of the record has %" PRIu64 " bytes at %" PRIu64 "; accepted: what ends within "
                          "the file's %zu",
                          name, bytes, begin, source->size);
    source->end = begin + bytes;
    part->bytes = source->data + begin;
    const uint64_t hash = attn__hash(ATTN__HASH_START, part->bytes, bytes);
    return hash == part->hash ? ATTN_OK
                              : attn__fail(err, ATTN_E_INVALID, 0, name,
                                           "the record's hash of %s is %016" PRIx64 ", but its bytes have "
                                           "%016" PRIx64 ": the file is damaged; give a whole copy",
                                           name, part->hash, hash);
}

static int32_t read_entry(struct source *source, uint32_t number, uint32_t *next, struct attn__part *parts,
                          struct attn_error *err)
{
    struct attn__record_entry entry;
    uint64_t extent, first;

    memcpy(&entry, source->data + sizeof source->head + number * sizeof entry, sizeof entry);
    if (entry.kind < *next || entry.kind >= ATTN__PARTS)
        return attn__fail(err, ATTN_E_INVALID, 0, "kind",
                          "part %u of the record has kind %u; accepted: %u to %u, each once and in order",
                          number, entry.kind, *next, ATTN__PARTS - 1);
    const char *name = attn__part_name(entry.kind);
    const uint32_t most = attn__part_is_tensor(entry.kind) ? ATTN__PART_HASH : ATTN__PART_BYTES;
    if (entry.form < ATTN__PART_BYTES || entry.form > most)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s of the record has form %u; accepted: 1 to %u",
                          name, entry.form, most);
    if (entry.align >= ATTN__RECORD_ALIGN)
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s of the record has align %u; accepted: less than %u", name, entry.align,
                          ATTN__RECORD_ALIGN);
    struct attn__part *part = &parts[entry.kind];
    *part = (struct attn__part){
        .form = entry.form, .place = entry.place, .align = entry.align, .row = entry.row, .hash = entry.hash};
    memcpy(part->count, entry.count, sizeof part->count);
    memcpy(part->stride, entry.stride, sizeof part->stride);
    *next = entry.kind + 1;
    if (!attn__part_extent(part, &extent, &first))
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s of the record has strides of %" PRId64 ", %" PRId64 " and %" PRId64
                          " bytes; accepted: those that take up to %u times its bytes",
                          name, part->stride[0], part->stride[1], part->stride[2], ATTN__RECORD_SPARSE);
    if (entry.form == ATTN__PART_BYTES)
        return place(source, name, entry.offset, part, err);
    return extent <= ATTN__RECORD_HASHED
               ? ATTN_OK
               : attn__record_refuse(err, name, extent, "as a hash of what takes in bytes up to",
                                     ATTN__RECORD_HASHED);
}

static int32_t read_parts(struct source *source, struct attn__part *parts, struct attn_error *err)
{
    int32_t status = ATTN_OK;
    uint32_t next = 0;

    for (uint32_t i = 0; i < source->head.parts && status == ATTN_OK; i++)
        status = read_entry(source, i, &next, parts, err);
    if (status == ATTN_OK && source->end != source->size)
        status =
            attn__record_refuse(err, "file_bytes", source->size, "the end of the last part,", source->end);
    return status;
}

/* ---------------------------------------------------------------- the call */

static int32_t read_problem(const struct attn__call *call, struct attn_problem *out, struct attn_error *err)
{
    struct attn_error own;

    ATTN_INIT(&own);
    if (attn_problem_parse(call->problem, out, &own) != ATTN_OK)
        return attn__fail(err, ATTN_E_INVALID, own.reason, own.field[0] != '\0' ? own.field : "problem",
                          "the record's problem is not accepted: %s", own.message);
    if (out->max_seqs != 0 && out->max_q != 0 && out->max_kv != 0 && out->max_rows != 0)
        return ATTN_OK;
    return attn__fail(err, ATTN_E_INVALID, 0, "problem",
                      "the record's problem has max_seqs=%u max_q=%u max_kv=%u max_rows=%u; accepted: all "
                      "four above 0",
                      out->max_seqs, out->max_q, out->max_kv, out->max_rows);
}

int32_t attn__record_read(const void *data, size_t size, struct attn__call *call,
                          struct attn_problem *problem, struct attn_error *err)
{
    struct source source = {.data = data, .size = size};

    memset(call, 0, sizeof *call);
    int32_t status = read_head(&source, err);
    if (status != ATTN_OK)
        return status;
    const uint64_t text = source.head.text_bytes;
    status = attn__fields_read((const char *)source.data + (source.end - text), text, call, err);
    if (status == ATTN_OK)
        status = read_parts(&source, call->parts, err);
    if (status == ATTN_OK)
        status = read_problem(call, problem, err);
    return status == ATTN_OK ? attn__call_check(call, problem, err) : status;
}
