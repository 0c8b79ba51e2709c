/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The GGUF reader on files that lie: each is refused with a message, and no prefix of a good file is accepted
 * or read past. */
#include "model/quant.h"
#include "small.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void expect(struct gguf_writer *w, const char *part)
{
    const char *text = small_refusal(w);
    cr_assert(strstr(text, part), "wanted '%s' in '%s'", part, text);
}

/* One tensor description with chosen numbers. */
static void put_tensor(struct gguf_writer *w, const char *name, uint32_t dims, const uint64_t *shape,
                       uint32_t type, uint64_t offset)
{
    gguf_put_string(&w->infos, name, strlen(name));
    gguf_put_u32(&w->infos, dims);
    for (uint32_t i = 0; i < dims && i < 8; i++)
        gguf_put_u64(&w->infos, shape[i]);
    gguf_put_u32(&w->infos, type);
    gguf_put_u64(&w->infos, offset);
    w->tensor_count++;
}

static const char *open_bytes(const void *data, size_t size)
{
    static struct failure err;
    struct gguf file;
    /* An exact copy on the heap lets address checkers see a read behind the end. */
    void *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    failure_set(&err, "was accepted");
    if (gguf_open_memory("bytes", copy, size, &file, &err) == 0)
        gguf_close(&file);
    free(copy);
    return err.text;
}

Test(gguf_hostile, refuses_every_prefix)
{
    struct gguf_writer w = {0};
    size_t size = 0;
    small_metadata(&w, NULL);
    small_vocab(&w);
    small_tensors(&w, NULL);
    uint8_t *data = gguf_write_finish(&w, &size);
    cr_assert(data);
    cr_assert_str_eq(open_bytes(data, size), "was accepted");
    for (size_t cut = 0; cut < size; cut++)
        cr_assert_str_neq(open_bytes(data, cut), "was accepted", "cut to %zu of %zu bytes", cut, size);
    free(data);
}

Test(gguf_hostile, refuses_foreign_magic_and_version)
{
    uint8_t header[24] = "GGUF";
    cr_assert(strstr(open_bytes(header, 24), "version is 0; accepted are 2 and 3"));
    header[4] = 1;
    cr_assert(strstr(open_bytes(header, 24), "version is 1"));
    header[4] = 3;
    cr_assert_str_eq(open_bytes(header, 24), "was accepted");
    header[0] = 'g';
    cr_assert(strstr(open_bytes(header, 24), "does not begin with GGUF"));
}

Test(gguf_hostile, refuses_counts_beyond_the_file)
{
    struct gguf_writer w = {.pair_count = UINT64_MAX};
    expect(&w, "number of metadata entries is 18446744073709551615");
    w = (struct gguf_writer){.tensor_count = UINT64_C(1) << 40};
    expect(&w, "number of tensors is 1099511627776");
}

Test(gguf_hostile, refuses_lengths_beyond_the_file)
{
    struct gguf_writer w = {.pair_count = 1};
    gguf_put_u64(&w.pairs, UINT64_MAX);
    gguf_put_u64(&w.pairs, 0);
    expect(&w, "metadata key at byte 32 needs 18446744073709551615 bytes");
    gguf_write_array(&w, "k", GGUF_U64, UINT64_C(1) << 62);
    expect(&w, "more than 64 bits can count");
    gguf_write_array(&w, "k", GGUF_STRING, UINT64_MAX);
    expect(&w, "string of an array");
    gguf_write_array(&w, "k", GGUF_U8, 1000);
    expect(&w, "needs 1000 bytes");
}

Test(gguf_hostile, refuses_unknown_types_deep_nests_and_odd_bools)
{
    struct gguf_writer w = {0};
    gguf_write_array(&w, "k", 13, 1);
    gguf_put_u64(&w.pairs, 0);
    expect(&w, "k has items of type 13");
    gguf_write_array(&w, "deep", GGUF_ARRAY, 1);
    for (int i = 0; i < 1000; i++) {
        gguf_put_u32(&w.pairs, GGUF_ARRAY);
        gguf_put_u64(&w.pairs, 1);
    }
    expect(&w, "deep nests arrays deeper than 4 levels");
    gguf_write_array(&w, "flags", GGUF_BOOL, 2);
    gguf_put(&w.pairs, "\x01\x02", 2);
    expect(&w, "flags is a bool of value 2");
}

Test(gguf_hostile, refuses_names_given_twice)
{
    struct gguf_writer w = {0};
    gguf_write_u32(&w, "one", 1);
    gguf_write_u32(&w, "two", 2);
    gguf_write_u32(&w, "one", 1);
    expect(&w, "metadata key one occurs twice");
    gguf_write_tensor(&w, "t", QUANT_F32, 1, 0, 4);
    gguf_write_tensor(&w, "t", QUANT_F32, 1, 0, 4);
    expect(&w, "tensor t occurs twice");
}

Test(gguf_hostile, refuses_impossible_shapes)
{
    struct gguf_writer w = {0};
    put_tensor(&w, "t", 0, NULL, QUANT_F32, 0);
    expect(&w, "tensor t: number of dimensions is 0");
    put_tensor(&w, "t", 5, (uint64_t[]){1, 1, 1, 1, 1}, QUANT_F32, 0);
    expect(&w, "tensor t: number of dimensions is 5");
    put_tensor(&w, "t", 2, (uint64_t[]){4, 0}, QUANT_F32, 0);
    expect(&w, "tensor t: a dimension is 0");
    put_tensor(&w, "t", 2, (uint64_t[]){UINT64_C(1) << 33, UINT64_C(1) << 33}, QUANT_F32, 0);
    expect(&w, "tensor t: a dimension is 8589934592; accepted: a product that fits 64 bits");
    put_tensor(&w, "t", 1, (uint64_t[]){UINT64_C(1) << 62}, QUANT_F32, 0);
    expect(&w, "tensor t: number of elements is 4611686018427387904");
    put_tensor(&w, "t", 1, (uint64_t[]){33}, QUANT_Q4_1, 0);
    expect(&w, "first dimension is 33; Q4_1 wants a multiple of 32");
    put_tensor(&w, "t", 1, (uint64_t[]){32}, 999, 0);
    expect(&w, "tensor t: type number is 999");
}

Test(gguf_hostile, refuses_places_outside)
{
    struct gguf_writer w = {0};
    put_tensor(&w, "t", 1, (uint64_t[]){8}, QUANT_F32, 0);
    expect(&w, "reach beyond the 0 bytes of data");
    put_tensor(&w, "t", 1, (uint64_t[]){8}, QUANT_F32, UINT64_MAX - 31);
    expect(&w, "offset 18446744073709551584 and size 32 reach beyond");
    put_tensor(&w, "t", 1, (uint64_t[]){8}, QUANT_F32, 4);
    expect(&w, "offset 4 is no multiple of the alignment 32");
    gguf_write_u32(&w, "general.alignment", 24);
    expect(&w, "general.alignment is 24; accepted are powers of two");
    gguf_write_u32(&w, "general.alignment", 0);
    expect(&w, "general.alignment is 0");
}
