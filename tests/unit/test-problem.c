/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The problem string: defaults, refusals with field, value and what is accepted, and the way there and back.
 */
#include <criterion/criterion.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "malformed.h"
#include "select/problem.h"

static struct attn_problem parsed(const char *text)
{
    struct attn_problem problem;
    struct attn_error err;
    ATTN_INIT(&err);
    cr_assert_eq(attn_problem_parse(text, &problem, &err), ATTN_OK, "%s: %s", text, err.message);
    return problem;
}

/* Refused, with the field and each piece of text. */
static void refused(const char *text, const char *field, const char *piece)
{
    struct attn_problem problem;
    struct attn_error err;
    ATTN_INIT(&err);
    cr_assert_eq(attn_problem_parse(text, &problem, &err), ATTN_E_INVALID, "%s was accepted", text);
    cr_assert_eq(err.status, ATTN_E_INVALID);
    cr_assert_eq(err.reason, 0, "%s: %u", text, err.reason);
    cr_assert_str_eq(err.field, field, "%s: field %s: %s", text, err.field, err.message);
    cr_assert_not_null(strstr(err.message, piece), "%s: '%s' is not in: %s", text, piece, err.message);
}

static const char *formatted(const struct attn_problem *problem)
{
    static char text[1024];
    struct attn_error err;
    ATTN_INIT(&err);
    cr_assert_eq(attn_problem_format(problem, text, sizeof text, NULL, &err), ATTN_OK, "%s", err.message);
    return text;
}

Test(problem, defaults)
{
    const struct attn_problem p = parsed("heads=32 head_dim=128 q=bf16");
    cr_assert_eq(p.struct_size, sizeof p);
    cr_assert_eq(p.type, ATTN_DECODER);
    cr_assert_eq(p.q_dtype, ATTN_BF16);
    cr_assert_eq(p.k_dtype, ATTN_BF16);
    cr_assert_eq(p.v_dtype, ATTN_BF16);
    cr_assert_eq(p.out_dtype, ATTN_BF16);
    cr_assert_eq(p.kv_heads, 32);
    cr_assert_eq(p.head_dim_vo, 128);
    cr_assert_eq(p.addressing, ATTN_TABLE);
    cr_assert_eq(p.index_dtype, ATTN_INT32);
    cr_assert_eq(p.block, 16);
    cr_assert_eq(p.causal, ATTN_CAUSAL_YES);
    cr_assert_eq(p.align, ATTN_ALIGN_END);
    cr_assert_eq(p.window_left, -1);
    cr_assert_eq(p.window_right, 0);
    cr_assert_eq(p.softcap, 0);
    cr_assert_eq(p.alibi, ATTN_ALIBI_NONE);
    cr_assert_eq(p.sinks, 0);
    cr_assert_eq(p.mask, ATTN_MASK_NONE);
    cr_assert_eq(p.span, ATTN_SPAN_SQUARE);
    cr_assert_eq(p.kv_source, ATTN_KV_CACHE);
    cr_assert_eq(p.layout, ATTN_STRIDED);
    cr_assert_eq(p.q_scale, ATTN_SCALES_NONE);
    cr_assert_eq(p.out_scale, ATTN_SCALES_NONE);
    cr_assert_eq(p.graph, ATTN_GRAPH_NEVER);
    cr_assert_eq(p.max_seqs + p.max_q + p.max_kv + p.max_rows, 0);
    cr_assert_str_eq(formatted(&p), "heads=32 head_dim=128 q=bf16");
}

Test(problem, defaults_that_follow)
{
    struct attn_problem p = parsed("heads=8 head_dim=64 q=bf16 type=encoder");
    cr_assert_eq(p.causal, ATTN_CAUSAL_NO);
    cr_assert_eq(p.kv_source, ATTN_KV_NEW);
    cr_assert_eq(p.window_right, -1);
    p = parsed("heads=8 head_dim=64 q=bf16 type=encoder_only window=7");
    cr_assert_eq(p.kv_source, ATTN_KV_NEW);
    cr_assert_eq(p.window_right, 7, "one number holds for both sides where nothing is causal");
    cr_assert_eq(p.given, ATTN_GIVEN_WINDOW_LEFT);
    p = parsed("heads=8 head_dim=64 q=bf16 type=encoder_decoder");
    cr_assert_eq(p.kv_source, ATTN_KV_CACHE);
    cr_assert_eq(p.causal, ATTN_CAUSAL_NO);
    p = parsed("heads=8 head_dim=64 q=bf16 window=7");
    cr_assert_eq(p.window_right, 0);
    p = parsed("heads=8 head_dim=64 q=bf16 window=7/3");
    cr_assert_eq(p.window_right, 3);
    cr_assert_eq(p.given, ATTN_GIVEN_WINDOW_LEFT | ATTN_GIVEN_WINDOW_RIGHT);
    p = parsed("q=e4m3 q_scale=tensor scales=head heads=8 head_dim=64");
    cr_assert_eq(p.out_dtype, ATTN_BF16);
    cr_assert_eq(p.k_dtype, ATTN_E4M3);
    cr_assert_eq(p.v_scale, ATTN_SCALES_HEAD);
    p = parsed("q=f32 heads=8 head_dim=64");
    cr_assert_eq(p.out_dtype, ATTN_F32);
    p = parsed("heads=16 head_dim=576/512 q=bf16 mla=1 kv=e4m3 scales=tensor");
    cr_assert_eq(p.kv_heads, 1);
    cr_assert_eq(p.head_dim, 576);
    cr_assert_eq(p.head_dim_vo, 512);
    cr_assert_eq(p.k_scale, ATTN_SCALES_TENSOR);
    cr_assert_eq(p.v_scale, ATTN_SCALES_NONE);
}

Test(problem, separators_and_order)
{
    const struct attn_problem a = parsed("heads=8,head_dim=64 q=bf16,kv_heads=2");
    const struct attn_problem b = parsed("  kv_heads=2, head_dim=64 q=bf16  heads=8 , ");
    cr_assert_arr_eq(&a, &b, sizeof a);
}

Test(problem, refuses_bad_strings)
{
    refused("", "heads", "must be given");
    refused("heads=8", "head_dim", "must be given");
    refused("head_dim=64 q=bf16", "heads", "must be given");
    refused("heads=8 head_dim=64 q=bf16 hedas=8", "hedas", "did you mean 'heads'");
    refused("heads=8 head_dim=64 q=bf16 zzzzzz=8", "zzzzzz", "unknown key");
    refused("heads=8 head_dim=64 q=bf17", "q", "did you mean q=bf16");
    refused("heads=8 head_dim=64 q=banana", "q", "accepted: f32|f16");
    refused("heads=8 heads=8 head_dim=64 q=bf16", "heads", "given twice");
    refused("heads=8 head_dim=64 q=bf16 kv=f16 k=f32", "k", "kv and k set the same thing");
    refused("heads=8 head_dim=64 q=bf16 v_scale=unit scales=unit", "scales", "v_scale and scales");
    refused("heads= head_dim=64 q=bf16", "heads", "empty value");
    refused("heads head_dim=64 q=bf16", "heads", "has no value");
    refused("heads=8\thead_dim=64", "heads", "heads=8?head_dim=64");
    refused("heads=-8 head_dim=64 q=bf16", "heads", "heads=-8");
    refused("heads=+8 head_dim=64 q=bf16", "heads", "1 to 2147483647");
    refused("heads=0x8 head_dim=64 q=bf16", "heads", "1 to 2147483647");
    refused("heads=2147483648 head_dim=64 q=bf16", "heads", "2147483647");
    refused("heads=99999999999999999999999 head_dim=64 q=bf16", "heads", "2147483647");
    refused("heads=0 head_dim=64 q=bf16", "heads", "1 to");
    refused("heads=8 head_dim=64/ q=bf16", "head_dim", "DQK/DVO");
    refused("heads=8 head_dim=/64 q=bf16", "head_dim", "DQK/DVO");
    refused("heads=8 head_dim=64/64/64 q=bf16", "head_dim", "DQK/DVO");
    refused("heads=8 head_dim=65537 q=bf16", "head_dim", "65536");
    refused("heads=8 head_dim=64/65537 q=bf16", "head_dim", "65536");
    refused("heads=8 head_dim=64 q=bf16 block=0", "block", "1 to 1048576");
    refused("heads=8 head_dim=64 q=bf16 block=1048577", "block", "1 to 1048576");
    refused("heads=8 head_dim=64 q=bf16 window=-2", "window", "-1");
    refused("heads=8 head_dim=64 q=bf16 window=1/-2", "window", "-1");
    refused("heads=8 head_dim=64 q=bf16 softcap=-1", "softcap", "finite");
    refused("heads=8 head_dim=64 q=bf16 softcap=inf", "softcap", "finite");
    refused("heads=8 head_dim=64 q=bf16 softcap=nan", "softcap", "finite");
    refused("heads=8 head_dim=64 q=bf16 softcap=1e99", "softcap", "finite");
    refused("heads=8 head_dim=64 q=bf16 softcap=0x10", "softcap", "finite");
    refused("heads=8 head_dim=64 q=bf16 sinks=2", "sinks", "0|1");
}

Test(problem, refuses_bad_combinations)
{
    refused("heads=7 kv_heads=2 head_dim=64 q=bf16", "kv_heads", "divisor of heads=7");
    refused("heads=2 kv_heads=4 head_dim=64 q=bf16", "kv_heads", "divisor");
    refused("heads=8 head_dim=64 q=bf16 kv=e4m3", "k_scale", "k_scale=unit");
    refused("heads=8 head_dim=64 q=bf16 v=int8", "v_scale", "v=int8 has 8 bits");
    refused("heads=8 head_dim=64 q=e5m2 kv=bf16", "q_scale", "q_scale=unit");
    refused("heads=8 head_dim=64 q=bf16 out=e4m3fnuz", "out_scale", "out_scale=unit");
    refused("heads=8 head_dim=64 q=bf16 scales=tensor", "k_scale", "accepted: none");
    refused("heads=8 head_dim=64 q=bf16 q_scale=unit", "q_scale", "no scale");
    refused("heads=8 head_dim=64 q=bf16 out=int8 out_scale=token-head", "out_scale", "none|unit|tensor|head");
    refused("heads=8 head_dim=64 q=bf16 kv=int8 scales=kv-head", "scales", "token-head");
    refused("heads=8 head_dim=64 q=bf16 alibi=mask", "alibi", "additive mask");
    refused("heads=8 head_dim=64 q=bf16 alibi=mask mask=bits", "alibi", "mask is bits");
    refused("heads=8 head_dim=64 q=bf16 cp=1 kv_source=new", "kv_source", "kv_source=cache");
    refused("heads=8 head_dim=64 q=bf16 cp=1 kv_source=cache+new", "kv_source", "kv_source=cache");
    refused("heads=8 kv_heads=8 head_dim=64 q=bf16 mla=1", "kv_heads", "one kv head");
    refused("heads=8 head_dim=64/128 q=bf16 mla=1", "head_dim", "first columns of k");
    refused("heads=8 head_dim=64 q=bf16 mla=1 k=e4m3 k_scale=unit v=bf16", "v",
            "v is bf16; with mla=1 v is stored in k, which is e4m3");
    refused("heads=8 head_dim=64 q=bf16 mla=1 kv=e4m3 k_scale=unit v_scale=unit", "v_scale",
            "leave v_scale out");
    refused("heads=2147483647 head_dim=65536 q=bf16 max_rows=2147483647", "max_rows", "63 bits");
    refused("heads=2147483647 head_dim=65536 q=bf16 max_kv=9000 max_seqs=2147483647", "max_kv", "63 bits");
}

Test(problem, blocks_are_read_from_a_strided_cache)
{
    struct attn_problem p = parsed("heads=4 head_dim=64 q=f16 k=q8_0 v=q4_0 k_scale=unit");

    cr_assert_eq(p.k_dtype, ATTN_Q8_0);
    cr_assert_eq(p.v_dtype, ATTN_Q4_0);
    cr_assert_eq(attn_row_bytes(p.k_dtype, 64), 68);
    cr_assert_eq(attn_row_bytes(p.v_dtype, 64), 36);
    cr_assert_eq(attn_dtype_size(p.k_dtype), 0);
    refused("heads=4 head_dim=64 q=q8_0", "q", "accepted");
    refused("heads=4 head_dim=64 q=f16 out=q4_0", "out", "accepted");
    refused("heads=4 head_dim=40 q=f16 kv=iq4_nl", "head_dim", "multiples of 32");
    refused("heads=4 head_dim=64/40 q=f16 v=q5_0", "head_dim", "multiples of 32");
    refused("heads=4 head_dim=64 q=f16 k=q5_1 k_scale=head", "k_scale", "none, unit");
    refused("heads=4 head_dim=64 q=f16 k=q4_1 layout=paged-x", "layout", "strided");
    refused("heads=4 head_dim=64 q=f16 v=q4_0 kv_source=cache+new", "kv_source", "cache");
}

Test(problem, structs_are_checked_as_strings_are)
{
    struct attn_problem p;
    struct attn_error err;
    ATTN_INIT(&err);
    ATTN_INIT(&p);
    p.heads = 8;
    p.head_dim = 64;
    struct attn_problem out;
    cr_assert_eq(attn_problem_resolve(&p, &out, &err), ATTN_E_INVALID, "no element type");
    cr_assert_str_eq(err.field, "q");
    p.q_dtype = ATTN_BF16;
    cr_assert_eq(attn_problem_resolve(&p, &out, &err), ATTN_OK);
    p.window_left = 5;
    cr_assert_eq(attn_problem_resolve(&p, &out, &err), ATTN_E_INVALID, "a window without its bit");
    cr_assert_str_eq(err.field, "window");
    p.given = ATTN_GIVEN_WINDOW_LEFT;
    cr_assert_eq(attn_problem_resolve(&p, &out, &err), ATTN_OK);
    p.window_right = 9;
    cr_assert_eq(attn_problem_resolve(&p, &out, &err), ATTN_E_INVALID);
    p.window_right = 0;
    p.given = 8;
    cr_assert_eq(attn_problem_resolve(&p, &out, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, "given");
    p.given = 0;
    p.window_left = 0;
    p.type = 77;
    cr_assert_eq(attn_problem_resolve(&p, &out, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, "type");
    p.type = 0;
    p.q_dtype = ATTN_INT32;
    cr_assert_eq(attn_problem_resolve(&p, &out, &err), ATTN_E_INVALID, "no queries of i32");
    p.q_dtype = ATTN_BF16;
    p.softcap = NAN;
    cr_assert_eq(attn_problem_resolve(&p, &out, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, "softcap");
    p.softcap = 0;
    p.reserved[2] = 1;
    cr_assert_eq(attn_problem_resolve(&p, &out, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, "reserved");
    cr_assert_eq(err.reason, 0);
    p.reserved[2] = 0;
    p.struct_size = 8;
    cr_assert_eq(attn_problem_resolve(&p, &out, &err), ATTN_E_INVALID);
    cr_assert_eq(attn_problem_resolve(NULL, &out, &err), ATTN_E_INVALID);
    cr_assert_eq(attn_problem_resolve(&p, NULL, NULL), ATTN_E_INVALID);
    cr_assert_eq(attn_problem_parse(NULL, &out, &err), ATTN_E_INVALID);
}

Test(problem, format_measures)
{
    const struct attn_problem p =
        parsed("heads=8 head_dim=64 q=bf16 softcap=30.5 kv=e4m3 scales=tensor window=4/-1");
    const char *whole = "heads=8 head_dim=64 q=bf16 kv=e4m3 window=4/-1 softcap=30.5 scales=tensor";
    char text[128];
    size_t needed = 0;
    struct attn_error err;
    ATTN_INIT(&err);
    cr_assert_eq(attn_problem_format(&p, text, sizeof text, &needed, &err), ATTN_OK);
    cr_assert_str_eq(text, whole);
    cr_assert_eq(needed, strlen(whole) + 1);
    memset(text, '#', sizeof text);
    cr_assert_eq(attn_problem_format(&p, text, needed - 1, &needed, &err), ATTN_E_SIZE);
    cr_assert_eq(needed, strlen(whole) + 1);
    cr_assert_eq(strlen(text), needed - 2, "what fits, with an end");
    cr_assert_eq(text[needed - 1], '#', "nothing beyond");
    cr_assert_eq(attn_problem_format(&p, NULL, 0, &needed, &err), ATTN_E_SIZE);
    cr_assert_eq(attn_problem_format(&p, text, needed, NULL, NULL), ATTN_OK);
    cr_assert_eq(attn_problem_format(&p, NULL, 5, &needed, &err), ATTN_E_INVALID);
}

Test(problem, keys_can_be_listed)
{
    const char *fallback;
    const char *values;
    cr_assert_str_eq(attn_problem_key(0, &fallback, &values), "heads");
    cr_assert_str_eq(fallback, "");
    cr_assert_str_eq(attn_problem_key(1, NULL, NULL), "head_dim");
    uint32_t count = 0;
    for (; attn_problem_key(count, &fallback, &values) != NULL; count++) {
        cr_assert(values[0] != 0 && fallback != NULL);
        for (uint32_t j = 0; j < count; j++)
            cr_assert_str_neq(attn_problem_key(j, NULL, NULL), attn_problem_key(count, NULL, NULL));
    }
    cr_assert_eq(count, 39);
    for (count = 0; strcmp(attn_problem_key(count, &fallback, &values), "v") != 0;)
        count++;
    cr_assert_str_eq(fallback, "q; k with mla");
    cr_assert_eq(strncmp(values, "f32|f16|", 8), 0, "%s", values);
    for (count = 0; strcmp(attn_problem_key(count, &fallback, &values), "softcap") != 0;)
        count++;
    cr_assert_str_eq(fallback, "0");
    cr_assert_str_eq(values, "a finite number >= 0; 0 = none");
    for (count = 0; strcmp(attn_problem_key(count, &fallback, &values), "window") != 0;)
        count++;
    cr_assert_str_eq(fallback, "-1");
}

Test(problem, numbers_ignore_the_locale)
{
    static const char source[] = "comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \",\"\n"
                                 "thousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n";
    struct malformed malformed;
    char command[512];
    char number[8];
    malformed_create(&malformed);
    malformed_write(&malformed, "source", source, sizeof source - 1);
    snprintf(command, sizeof command,
             "localedef --quiet --no-archive -c -i %s/source -f ANSI_X3.4-1968 %s/comma 2>&1", malformed.path,
             malformed.path);
    (void)!system(command); /* it warns of the categories that are not there */
    setenv("LOCPATH", malformed.path, 1);
    cr_assert_not_null(setlocale(LC_NUMERIC, "comma"), "localedef made no locale");
    snprintf(number, sizeof number, "%g", 1.5);
    cr_assert_str_eq(number, "1,5", "the locale is in force");
    const struct attn_problem p = parsed("heads=8 head_dim=64 q=bf16 softcap=30.5");
    cr_assert_eq(p.softcap, 30.5F);
    cr_assert_str_eq(formatted(&p), "heads=8 head_dim=64 q=bf16 softcap=30.5");
    malformed_remove(&malformed);
}

/* ---------------------------------------------------------------- there and back */

static uint64_t state = 88172645463325252U;

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 16) % below);
}

/* A value of a key that is often right. */
static void draw_value(const struct attn__key *key, char *text, size_t size)
{
    static const char *const caps[] = {"0",          "30",           "0.1",   "1e-3",
                                       "123456.789", "3.4028235e38", "1e-45", "50.0"};
    if (strcmp(key->name, "window") == 0) {
        snprintf(text, size, draw(2) ? "%d" : "%d/%d", (int)draw(5) - 1, (int)draw(5) - 1);
    } else if (strcmp(key->name, "softcap") == 0) {
        snprintf(text, size, "%s", caps[draw(8)]);
    } else if (strcmp(key->name, "head_dim") == 0) {
        snprintf(text, size, draw(2) ? "%u" : "%u/%u", 1 + draw(300), 1 + draw(300));
    } else if (key->choices != NULL) {
        uint32_t count = 0;
        while (key->choices[count].name != NULL)
            count++;
        snprintf(text, size, "%s", key->choices[draw(count)].name);
    } else {
        snprintf(text, size, "%u", key->min + draw(40));
    }
}

static void draw_problem(char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "heads=%u", 1U << draw(6));
    for (uint32_t i = 1; i < attn__key_count; i++) {
        const bool needed = attn__keys[i].fallback[0] == 0;
        if (!needed && draw(6) != 0)
            continue;
        char value[64];
        draw_value(&attn__keys[i], value, sizeof value);
        used += (size_t)snprintf(text + used, size - used, "%c%s=%s", draw(2) ? ' ' : ',', attn__keys[i].name,
                                 value);
    }
}

Test(problem, parse_of_format_is_the_same)
{
    uint32_t accepted = 0;
    for (uint32_t round = 0; round < 200000; round++) {
        char text[2048];
        draw_problem(text, sizeof text);
        struct attn_problem first;
        struct attn_error err;
        ATTN_INIT(&err);
        if (attn_problem_parse(text, &first, &err) != ATTN_OK) {
            cr_assert(err.field[0] != 0 && err.message[0] != 0, "%s", text);
            continue;
        }
        accepted++;
        const char *canonical = formatted(&first);
        const struct attn_problem second = parsed(canonical);
        cr_assert_arr_eq(&first, &second, sizeof first, "%s became %s", text, canonical);
        char again[1024];
        snprintf(again, sizeof again, "%s", canonical);
        cr_assert_str_eq(formatted(&second), again);
        struct attn_problem twice;
        cr_assert_eq(attn_problem_resolve(&first, &twice, &err), ATTN_OK);
        cr_assert_arr_eq(&first, &twice, sizeof first, "%s: resolving twice changes something", text);
    }
    cr_assert_gt(accepted, 5000, "only %u of the drawn problems were right", accepted);
}

/* ---------------------------------------------------------------- names of other projects */

static const struct {
    const char *name, *key;
    int less;
} key_aliases[] = {
#define ATTN_KEY_ALIAS(name, key, less) {#name, #key, less},
#include "select/alias.def"
};

static const struct {
    const char *name, *value;
} value_aliases[] = {
#define ATTN_VALUE_ALIAS(name, value) {#name, #value},
#include "select/alias.def"
};

/* The rest of a problem that is given key by key. */
static const char *rest_of(const char *key)
{
    return strcmp(key, "heads") == 0      ? "head_dim=64 q=f16 kv_heads=1"
           : strcmp(key, "head_dim") == 0 ? "heads=8 q=f16"
           : strcmp(key, "q") == 0        ? "heads=8 head_dim=64"
                                          : "heads=8 head_dim=64 q=f16";
}

static const char *value_of(const char *key)
{
    static const struct {
        const char *key, *value;
    } values[] = {{"q", "bf16"}, {"kv", "bf16"}, {"type", "encoder"}, {"softcap", "30"}, {"causal", "0"},
                  {"lse", "1"},  {"det", "1"},   {"window", "7"},     {"kv_heads", "2"}};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (strcmp(values[i].key, key) == 0)
            return values[i].value;
    return "32";
}

Test(problem, keys_of_other_projects)
{
    for (size_t i = 0; i < sizeof key_aliases / sizeof key_aliases[0]; i++) {
        const char *key = key_aliases[i].key, *value = value_of(key);
        char theirs[128], ours[128], wanted[1024];
        snprintf(theirs, sizeof theirs, "%s %s=%s", rest_of(key), key_aliases[i].name, value);
        if (key_aliases[i].less != 0)
            snprintf(ours, sizeof ours, "%s %s=%d", rest_of(key), key, atoi(value) - key_aliases[i].less);
        else
            snprintf(ours, sizeof ours, "%s %s=%s", rest_of(key), key, value);
        struct attn_problem p = parsed(ours);
        snprintf(wanted, sizeof wanted, "%s", formatted(&p));
        p = parsed(theirs);
        cr_assert_str_eq(formatted(&p), wanted, "%s", theirs);
        snprintf(theirs, sizeof theirs, "%s %s=%s %s=%s", rest_of(key), key_aliases[i].name, value, key,
                 value);
        refused(theirs, key, "given twice");
    }
    struct attn_problem p = parsed("heads=8 head_dim=64 q=f16 sliding_window=-1");
    cr_assert_eq(p.window_left, -1);
    refused("heads=8 head_dim=64 q=f16 sliding_window=x", "window", "window=x");
}

Test(problem, values_of_other_projects)
{
    for (size_t i = 0; i < sizeof value_aliases / sizeof value_aliases[0]; i++) {
        const char *value = value_aliases[i].value;
        const bool flag = strlen(value) == 1;
        char theirs[128], ours[128], wanted[1024];
        const char *format =
            flag ? "heads=8 head_dim=64 q=f16 lse=%s" : "heads=8 head_dim=64 kv=f16 q_scale=%s q=%s";
        const char *scale = strstr(value, "e4m3") || strstr(value, "e5m2") ? "unit" : "none";
        snprintf(ours, sizeof ours, format, flag ? value : scale, value);
        snprintf(theirs, sizeof theirs, format, flag ? value_aliases[i].name : scale, value_aliases[i].name);
        struct attn_problem p = parsed(ours);
        snprintf(wanted, sizeof wanted, "%s", formatted(&p));
        p = parsed(theirs);
        cr_assert_str_eq(formatted(&p), wanted, "%s", theirs);
    }
    refused("heads=8 head_dim=64 q=float24", "q", "accepted");
}
