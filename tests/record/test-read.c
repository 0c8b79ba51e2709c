/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Damaged records: cut at every byte, with every bit changed, and with numbers that no file has. */
#define _GNU_SOURCE
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"

/* Reads an exact copy, so that address checkers see a read behind the end. */
static int32_t read_copy(const unsigned char *data, size_t size, struct attn_error *err)
{
    struct attn__call *call = malloc(sizeof *call);
    struct attn_problem problem;
    unsigned char *copy = malloc(size > 0 ? size : 1);

    memcpy(copy, data, size);
    ATTN_INIT(err);
    const int32_t status = attn__record_read(copy, size, call, &problem, err);
    free(copy);
    free(call);
    return status;
}

/* Refused, and the message names a field, and what is accepted or that the file is damaged. */
static void expect_refused(const unsigned char *data, size_t size, const char *what, size_t at)
{
    struct attn_error err;
    const int32_t status = read_copy(data, size, &err);

    cr_assert(status == ATTN_E_INVALID || status == ATTN_E_UNSUPPORTED, "%s %zu is accepted", what, at);
    cr_assert_neq(err.field[0], '\0', "%s %zu: %s", what, at, err.message);
    cr_assert(strstr(err.message, "accepted") != NULL || strstr(err.message, "damaged") != NULL, "%s",
              err.message);
}

static unsigned char *make(size_t *out_size)
{
    struct fixture *fixture = fixture_open("");
    struct attn_error err;

    cr_assert_eq(fixture_run(fixture), ATTN_OK);
    unsigned char *data = fixture_load(fixture, out_size);
    cr_assert_eq(read_copy(data, *out_size, &err), ATTN_OK, "%s", err.message);
    fixture_close(fixture);
    return data;
}

Test(read, a_file_that_was_cut)
{
    size_t size;
    unsigned char *data = make(&size);

    for (size_t cut = 0; cut < size; cut++)
        expect_refused(data, cut, "cut at", cut);
    free(data);
}

Test(read, a_file_that_is_too_long)
{
    size_t size;
    unsigned char *data = make(&size), *more = calloc(1, size + 64);

    memcpy(more, data, size);
    for (size_t extra = 1; extra <= 64; extra++)
        expect_refused(more, size + extra, "longer by", extra);
    free(more);
    free(data);
}

Test(read, a_byte_that_was_changed)
{
    size_t size;
    unsigned char *data = make(&size);

    for (size_t at = 0; at < size; at++) {
        data[at] ^= (unsigned char)(1 << at % 8);
        expect_refused(data, size, "changed byte", at);
        data[at] ^= (unsigned char)(1 << at % 8);
    }
    free(data);
}

/* The hash of head, table and fields, as who makes a file on purpose would write it. */
static void sign(unsigned char *data)
{
    struct attn__record_head head;

    memcpy(&head, data, sizeof head);
    head.hash = attn__hash(ATTN__HASH_START, &head, offsetof(struct attn__record_head, hash));
    head.hash = attn__hash(head.hash, data + sizeof head,
                           head.parts * sizeof(struct attn__record_entry) + head.text_bytes);
    memcpy(data, &head, sizeof head);
}

static const uint64_t absurd[] = {0,
                                  1,
                                  3,
                                  5,
                                  63,
                                  64,
                                  1000,
                                  0x7fffffff,
                                  0x80000000,
                                  0xffffffff,
                                  UINT64_C(1) << 40,
                                  UINT64_C(1) << 62,
                                  INT64_MAX,
                                  UINT64_C(1) << 63,
                                  UINT64_MAX};

/* Every number of the table in turn: whatever it is, it is refused, or lays the bytes out another way. */
Test(read, numbers_of_the_table)
{
    size_t size;
    unsigned char *data = make(&size), *copy = malloc(size);
    struct attn__record_head head;
    unsigned refused = 0;

    memcpy(&head, data, sizeof head);
    for (size_t at = sizeof head; at < sizeof head + head.parts * sizeof(struct attn__record_entry);
         at += 4) {
        for (size_t i = 0; i < sizeof absurd / sizeof absurd[0]; i++) {
            struct attn_error err;
            memcpy(copy, data, size);
            memcpy(copy + at, &absurd[i], at % 8 == 0 && i % 2 == 0 ? 8 : 4);
            sign(copy);
            refused += read_copy(copy, size, &err) != ATTN_OK && err.field[0] != '\0';
        }
    }
    cr_assert_gt(refused, head.parts * 150, "%u", refused);
    free(copy);
    free(data);
}

/* The entry of a part, with one stride and form changed. */
static void expect_entry(const unsigned char *data, size_t size, uint32_t kind, uint32_t form, int64_t stride,
                         const char *said)
{
    struct attn__record_entry entry = {.kind = ATTN__PARTS};
    struct attn_error err;
    unsigned char *copy = malloc(size);
    size_t at = sizeof(struct attn__record_head);

    memcpy(copy, data, size);
    for (memcpy(&entry, copy + at, sizeof entry); entry.kind != kind; memcpy(&entry, copy + at, sizeof entry))
        at += sizeof entry;
    entry.form = form;
    entry.stride[0] = stride;
    if (form == ATTN__PART_HASH)
        entry.count[0] = 1 << 30;
    memcpy(copy + at, &entry, sizeof entry);
    sign(copy);
    cr_assert_eq(read_copy(copy, size, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, attn__part_name(kind));
    cr_assert_not_null(strstr(err.message, said), "%s", err.message);
    free(copy);
}

/* A small file does not ask for much memory. */
Test(read, memory_of_a_part)
{
    size_t size;
    unsigned char *data = make(&size);

    expect_entry(data, size, ATTN__PART_q, ATTN__PART_BYTES, 1 << 30,
                 "accepted: those that take up to 64 times");
    expect_entry(data, size, ATTN__PART_q, ATTN__PART_BYTES, -(1 << 30),
                 "accepted: those that take up to 64 times");
    expect_entry(data, size, ATTN__PART_k, ATTN__PART_BYTES, INT64_MIN,
                 "accepted: those that take up to 64 times");
    expect_entry(data, size, ATTN__PART_q, ATTN__PART_HASH, 256, "in bytes up to 68719476736");
    free(data);
}

/* Replaces the value of a field by a text; the parts move. */
static unsigned char *with_field(const unsigned char *data, size_t size, const char *name, const char *value,
                                 size_t *out_size)
{
    struct attn__record_head head;
    char start[80];

    memcpy(&head, data, sizeof head);
    const size_t table = sizeof head + head.parts * sizeof(struct attn__record_entry),
                 end = table + head.text_bytes;
    unsigned char *copy = calloc(1, size + 4096);
    snprintf(start, sizeof start, "\n%s=", name);
    const unsigned char *from = memmem(data + table, head.text_bytes, start, strlen(start));
    cr_assert_not_null(from, "%s", name);
    from += strlen(start);
    const unsigned char *rest = memchr(from, '\n', (size_t)(data + end - from));
    const size_t before = (size_t)(from - data), length = strlen(value);
    memcpy(copy, data, before);
    memcpy(copy + before, value, length);
    memcpy(copy + before + length, rest, (size_t)(data + end - rest));
    head.text_bytes = before + length + (size_t)(data + end - rest) - table;
    /* Parts begin at the next multiple of 64. */
    const size_t old_first = (end + 63) / 64 * 64, first = (table + head.text_bytes + 63) / 64 * 64;
    memcpy(copy + first, data + old_first, size - old_first);
    head.file_bytes = *out_size = size - old_first + first;
    for (uint32_t i = 0; i < head.parts; i++) {
        struct attn__record_entry entry;
        memcpy(&entry, data + sizeof head + i * sizeof entry, sizeof entry);
        entry.offset += first - old_first;
        memcpy(copy + sizeof head + i * sizeof entry, &entry, sizeof entry);
    }
    memcpy(copy, &head, sizeof head);
    sign(copy);
    return copy;
}

static void expect_field(const unsigned char *data, size_t size, const char *name, const char *value,
                         const char *field, const char *said)
{
    struct attn_error err;
    size_t changed;
    unsigned char *copy = with_field(data, size, name, value, &changed);

    const int32_t status = read_copy(copy, changed, &err);
    cr_assert_eq(status, ATTN_E_INVALID, "%s=%s is accepted", name, value);
    cr_assert_str_eq(err.field, field, "%s=%s: %s: %s", name, value, err.field, err.message);
    cr_assert_not_null(strstr(err.message, said), "%s", err.message);
    free(copy);
}

Test(read, values_of_fields)
{
    size_t size, same;
    unsigned char *data = make(&size);
    struct attn_error err;

    unsigned char *copy = with_field(data, size, "device", "cpu:123", &same);
    cr_assert_eq(read_copy(copy, same, &err), ATTN_OK, "%s", err.message);
    free(copy);
    expect_field(data, size, "seqs", "-1", "seqs", "accepted: seqs=NUMBER from 0 to 2147483647");
    expect_field(data, size, "seqs", "99999999999999999999999", "seqs", "seqs=NUMBER");
    expect_field(data, size, "seqs", "02", "seqs", "\"seqs=02\"");
    expect_field(data, size, "seqs", "3", "q_offsets", "accepted: [4, 1, 1] of 4");
    expect_field(data, size, "seqs", "5", "seqs", "accepted: 0 to 4");
    expect_field(data, size, "num_tokens", "3", "q_offsets", "accepted: ");
    expect_field(data, size, "max_kv", "10", "kv_lens", "accepted: ");
    expect_field(data, size, "kv_pages", "3", "table", "accepted: below the number of pages, 3");
    expect_field(data, size, "kv_pages", "2147483647", "k", "accepted: [2147483647, 4, 2]");
    expect_field(data, size, "kv_block", "8", "kv_block", "accepted: block of its problem, 4");
    expect_field(data, size, "table_width", "2", "table", "accepted: [2, 2, 1]");
    expect_field(data, size, "cascade", "2", "cascade", "from 0 to 1");
    expect_field(data, size, "status", "ATTN_E_DEVICE", "out", "the record has an array out");
    expect_field(data, size, "problem", "heads=4", "head_dim", "head_dim");
    expect_field(data, size, "problem", "heads=4 head_dim=16 q=f32", "problem", "max_seqs=0");
    expect_field(data, size, "problem",
                 "heads=4 kv_heads=2 head_dim=32 q=f32 block=4 max_seqs=4 max_q=8 max_kv=64 max_rows=16", "q",
                 "accepted: [4, 4, 1] of 128");
    expect_field(
        data, size, "problem",
        "heads=4 kv_heads=2 head_dim=16 q=f32 lse=1 block=4 max_seqs=4 max_q=8 max_kv=64 max_rows=16", "lse",
        "no array lse");
    expect_field(data, size, "backend", "cpu\x01", "backend", "printable");
    free(data);
}

Test(read, another_version)
{
    struct attn_error err;
    size_t size;
    unsigned char *data = make(&size);

    data[8] = 2;
    cr_assert_eq(read_copy(data, size, &err), ATTN_E_UNSUPPORTED);
    cr_assert_str_eq(err.field, "version");
    free(data);
}
