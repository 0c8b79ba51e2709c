/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The GGUF reader on good files: every value type, arrays, tensors, alignment, typed access. */
#include "model/quant.h"
#include "small.h"

#include <criterion/criterion.h>
#include <string.h>

static void put_pair(struct gguf_writer *w, const char *key, uint32_t type, const void *value, size_t size)
{
    gguf_put_string(&w->pairs, key, strlen(key));
    gguf_put_u32(&w->pairs, type);
    gguf_put(&w->pairs, value, size);
    w->pair_count++;
}

Test(gguf, reads_every_integer_type)
{
    struct gguf_writer w = {0};
    struct gguf file;
    struct failure err;
    static const char *const keys[] = {"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"};
    static const uint32_t types[] = {GGUF_U8,  GGUF_I8,  GGUF_U16, GGUF_I16,
                                     GGUF_U32, GGUF_I32, GGUF_U64, GGUF_I64};
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8};
    uint64_t value = 77;
    for (int i = 0; i < 8; i++)
        put_pair(&w, keys[i], types[i], &value, sizes[i]);
    small_open(&w, &file);
    for (int i = 0; i < 8; i++) {
        uint64_t got = 0;
        cr_assert_eq(gguf_get_u64(&file, keys[i], true, 0, 100, &got, &err), 0, "%s: %s", keys[i], err.text);
        cr_assert_eq(got, 77, "%s", keys[i]);
    }
    small_close(&file);
}

Test(gguf, reads_floats_bools_and_strings)
{
    struct gguf_writer w = {0};
    struct gguf file;
    double wide = 2.5;
    double number = 0;
    uint8_t yes = 1;
    bool flag = false;
    struct gguf_string text = {0};
    put_pair(&w, "f64", GGUF_F64, &wide, 8);
    put_pair(&w, "bool", GGUF_BOOL, &yes, 1);
    gguf_write_f32(&w, "f32", 0.5f);
    gguf_write_string(&w, "text", "hello");
    small_open(&w, &file);
    cr_assert_eq(gguf_get_f64(&file, "f64", true, &number, NULL), 0);
    cr_assert_eq(number, 2.5);
    cr_assert_eq(gguf_get_f64(&file, "f32", true, &number, NULL), 0);
    cr_assert_eq(number, 0.5);
    cr_assert_eq(gguf_get_bool(&file, "bool", &flag, NULL), 0);
    cr_assert(flag);
    cr_assert_eq(gguf_get_string(&file, "text", true, &text, NULL), 0);
    cr_assert(gguf_string_equals(text, "hello"));
    cr_assert_not(gguf_string_equals(text, "hell"));
    small_close(&file);
}

Test(gguf, steps_through_arrays_and_over_nested_ones)
{
    struct gguf_writer w = {0};
    struct gguf file;
    gguf_write_array(&w, "names", GGUF_STRING, 2);
    gguf_put_string(&w.pairs, "a", 1);
    gguf_put_string(&w.pairs, "bc", 2);
    gguf_write_array(&w, "nested", GGUF_ARRAY, 2);
    for (uint32_t i = 0; i < 2; i++) {
        gguf_put_u32(&w.pairs, GGUF_U32);
        gguf_put_u64(&w.pairs, 1);
        gguf_put_u32(&w.pairs, 5);
    }
    gguf_write_array(&w, "shorts", GGUF_I16, 2);
    gguf_put(&w.pairs, (int16_t[]){-3, 9}, 4);
    gguf_write_u32(&w, "after", 11);
    small_open(&w, &file);
    const struct gguf_value *names = gguf_find(&file, "names");
    const struct gguf_value *shorts = gguf_find(&file, "shorts");
    uint64_t after = 0;
    cr_assert(names && names->array && names->count == 2);
    const uint8_t *at = names->data;
    cr_assert(gguf_string_equals(gguf_next_string(&at), "a"));
    cr_assert(gguf_string_equals(gguf_next_string(&at), "bc"));
    cr_assert_eq(gguf_integer_item(shorts, 0), -3);
    cr_assert_eq(gguf_integer_item(shorts, 1), 9);
    cr_assert_eq(gguf_get_u64(&file, "after", true, 0, 100, &after, NULL), 0);
    cr_assert_eq(after, 11);
    small_close(&file);
}

Test(gguf, finds_tensors_and_their_data)
{
    struct gguf_writer w = {0};
    struct gguf file;
    gguf_write_tensor(&w, "zz", QUANT_F32, 3, 0, 12);
    float *matrix = gguf_write_tensor(&w, "aa", QUANT_F32, 2, 3, 24);
    matrix[5] = 7.0f;
    small_open(&w, &file);
    const struct gguf_tensor *aa = gguf_find_tensor(&file, "aa");
    cr_assert(aa && gguf_find_tensor(&file, "zz"));
    cr_assert_null(gguf_find_tensor(&file, "a"));
    cr_assert_eq(aa->dims, 2);
    cr_assert_eq(aa->shape[0], 2);
    cr_assert_eq(aa->shape[1], 3);
    cr_assert_eq(aa->elements, 6);
    cr_assert_eq(aa->bytes, 24);
    float last;
    memcpy(&last, aa->data + 20, 4);
    cr_assert_eq(last, 7.0f);
    small_close(&file);
}

/* The text in front makes the descriptions end anywhere, so that a wrong alignment would find other bytes. */
static void check_alignment(uint32_t alignment, const char *text)
{
    struct gguf_writer w = {.alignment = alignment};
    struct gguf file;
    float value = 0;
    gguf_write_u32(&w, "general.alignment", alignment);
    gguf_write_string(&w, "text", text);
    float *data = gguf_write_tensor(&w, "t", QUANT_F32, 1, 0, 4);
    *data = 3.0f;
    small_open(&w, &file);
    memcpy(&value, gguf_find_tensor(&file, "t")->data, 4);
    cr_assert_eq(value, 3.0f, "alignment %u, text '%s'", alignment, text);
    small_close(&file);
}

Test(gguf, honours_other_alignments)
{
    static const uint32_t alignments[] = {1, 8, 64, 4096};
    static const char *const texts[] = {"", "1234567", "123456789abcdef", "123456789abcdef01234567"};
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++)
            check_alignment(alignments[i], texts[j]);
}

Test(gguf, names_key_value_and_range)
{
    struct gguf_writer w = {0};
    struct gguf file;
    struct failure err;
    uint64_t value = 5;
    int32_t negative = -4;
    put_pair(&w, "low", GGUF_I32, &negative, 4);
    gguf_write_u32(&w, "high", 400);
    gguf_write_string(&w, "text", "x");
    gguf_write_array(&w, "list", GGUF_U32, 0);
    small_open(&w, &file);
    cr_assert_lt(gguf_get_u64(&file, "low", true, 1, 9, &value, &err), 0);
    cr_assert_str_eq(err.text, "small: low is -4; accepted are 1 to 9");
    cr_assert_lt(gguf_get_u64(&file, "high", true, 1, 9, &value, &err), 0);
    cr_assert_str_eq(err.text, "small: high is 400; accepted are 1 to 9");
    cr_assert_lt(gguf_get_u64(&file, "text", true, 1, 9, &value, &err), 0);
    cr_assert_str_eq(err.text, "small: metadata key text has type string; accepted: integers");
    cr_assert_lt(gguf_get_u64(&file, "list", true, 1, 9, &value, &err), 0);
    cr_assert_str_eq(err.text, "small: metadata key list is an array; accepted is a single value");
    cr_assert_lt(gguf_get_u64(&file, "none", true, 1, 9, &value, &err), 0);
    cr_assert_str_eq(err.text, "small: metadata key none is missing");
    cr_assert_eq(gguf_get_u64(&file, "none", false, 1, 9, &value, &err), 0);
    cr_assert_eq(value, 5);
    small_close(&file);
}

Test(gguf, tells_a_missing_file_from_a_bad_one)
{
    struct gguf file;
    struct failure err;
    cr_assert_lt(gguf_open("/nonexistent/model.gguf", &file, &err), 0);
    cr_assert(file.missing);
    cr_assert_lt(gguf_open("/dev/null", &file, &err), 0);
    cr_assert_not(file.missing);
    cr_assert_str_eq(err.text, "/dev/null: is not a regular file");
}
