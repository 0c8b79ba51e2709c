/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The keys of the problem string: names, defaults, values, and functions that read and write them. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "select/problem.h"

/* ---------------------------------------------------------------- members by offset */

static uint32_t get_word(const struct attn_problem *problem, uint32_t offset)
{
    uint32_t word;
    memcpy(&word, (const char *)problem + offset, sizeof word);
    return word;
}

static void set_word(struct attn_problem *problem, uint32_t offset, uint32_t word)
{
    memcpy((char *)problem + offset, &word, sizeof word);
}

/* The value of a member if its key is left out. */
static uint32_t default_word(const struct attn_problem *problem, uint32_t offset)
{
    struct attn_problem without = *problem;
    set_word(&without, offset, 0);
    attn__problem_fill(&without);
    return get_word(&without, offset);
}

static bool word_differs(const struct attn_problem *problem, uint32_t offset)
{
    return get_word(problem, offset) != default_word(problem, offset);
}

/* Reads decimal digits, with a minus sign if `min` allows one; nothing else is accepted. */
static bool read_integer(const char *text, int64_t min, int64_t max, int64_t *out)
{
    const char *digits = *text == '-' && min < 0 ? text + 1 : text;
    if (!isdigit((unsigned char)*digits))
        return false;
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno != 0 || *end != 0 || value < min || value > max)
        return false;
    *out = value;
    return true;
}

/* Splits "A/B"; *out_second is NULL without a slash. False if it does not fit. */
static bool split(const char *value, char *first, size_t size, const char **out_second)
{
    const char *slash = strchr(value, '/');
    const size_t length = slash != NULL ? (size_t)(slash - value) : strlen(value);
    if (length >= size)
        return false;
    memcpy(first, value, length);
    first[length] = 0;
    *out_second = slash != NULL ? slash + 1 : NULL;
    return true;
}

/* ---------------------------------------------------------------- numbers */

static bool parse_count(const struct attn__key *key, const char *value, struct attn_problem *problem)
{
    int64_t number;
    if (!read_integer(value, key->min, key->max, &number))
        return false;
    set_word(problem, key->member, (uint32_t)number);
    return true;
}

static void format_count(const struct attn__key *key, const struct attn_problem *problem, char *text,
                         size_t size)
{
    snprintf(text, size, "%u", get_word(problem, key->member));
}

static bool count_differs(const struct attn__key *key, const struct attn_problem *problem)
{
    return word_differs(problem, key->member);
}

static bool always(const struct attn__key *key, const struct attn_problem *problem)
{
    (void)key;
    (void)problem;
    return true;
}

static bool parse_head_dim(const struct attn__key *key, const char *value, struct attn_problem *problem)
{
    char first[16];
    const char *second;
    int64_t qk;
    int64_t vo = 0;
    if (!split(value, first, sizeof first, &second) || !read_integer(first, key->min, key->max, &qk) ||
        (second != NULL && !read_integer(second, key->min, key->max, &vo)))
        return false;
    problem->head_dim = (uint32_t)qk;
    problem->head_dim_vo = (uint32_t)vo;
    return true;
}

static void format_head_dim(const struct attn__key *key, const struct attn_problem *problem, char *text,
                            size_t size)
{
    (void)key;
    if (problem->head_dim_vo != problem->head_dim)
        snprintf(text, size, "%u/%u", problem->head_dim, problem->head_dim_vo);
    else
        snprintf(text, size, "%u", problem->head_dim);
}

static bool parse_window(const struct attn__key *key, const char *value, struct attn_problem *problem)
{
    (void)key;
    char first[16];
    const char *second;
    int64_t left;
    int64_t right = 0;
    if (!split(value, first, sizeof first, &second) || !read_integer(first, -1, INT32_MAX, &left) ||
        (second != NULL && !read_integer(second, -1, INT32_MAX, &right)))
        return false;
    problem->window_left = (int32_t)left;
    problem->given |= ATTN_GIVEN_WINDOW_LEFT;
    if (second != NULL) {
        problem->window_right = (int32_t)right;
        problem->given |= ATTN_GIVEN_WINDOW_RIGHT;
    }
    return true;
}

static void format_window(const struct attn__key *key, const struct attn_problem *problem, char *text,
                          size_t size)
{
    (void)key;
    if (problem->given & ATTN_GIVEN_WINDOW_RIGHT)
        snprintf(text, size, "%d/%d", problem->window_left, problem->window_right);
    else
        snprintf(text, size, "%d", problem->window_left);
}

static bool window_differs(const struct attn__key *key, const struct attn_problem *problem)
{
    (void)key;
    return problem->window_left != -1 || (problem->given & ATTN_GIVEN_WINDOW_RIGHT) != 0;
}

/* Numbers are read and written as in the C locale, whatever locale the program uses. */
static bool parse_float(const struct attn__key *key, const char *value, struct attn_problem *problem)
{
    if (strspn(value, "0123456789.eE+-") != strlen(value))
        return false;
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return false;
    char *end;
    const float number = strtof_l(value, &end, plain);
    freelocale(plain);
    if (end == value || *end != 0 || !isfinite(number) || number < 0)
        return false;
    const float positive = number + 0.0f; /* no -0 */
    memcpy((char *)problem + key->member, &positive, sizeof positive);
    return true;
}

static void format_float(const struct attn__key *key, const struct attn_problem *problem, char *text,
                         size_t size)
{
    float number;
    memcpy(&number, (const char *)problem + key->member, sizeof number);
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const locale_t before = plain != (locale_t)0 ? uselocale(plain) : (locale_t)0;
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, size, "%.*g", digits, (double)number);
        if (plain == (locale_t)0 || strtof_l(text, NULL, plain) == number)
            break;
    }
    if (plain != (locale_t)0) {
        uselocale(before);
        freelocale(plain);
    }
}

/* ---------------------------------------------------------------- enumerated values */

static const struct attn__value bool_values[] = {{"0", 0}, {"1", 1}, {NULL, 0}};
static const struct attn__value type_values[] = {{"decoder", ATTN_DECODER},
                                                 {"encoder", ATTN_ENCODER},
                                                 {"encoder_only", ATTN_ENCODER_ONLY},
                                                 {"encoder_decoder", ATTN_ENCODER_DECODER},
                                                 {NULL, 0}};
static const struct attn__value dtype_values[] = {
    {"f32", ATTN_F32},           {"f16", ATTN_F16},   {"bf16", ATTN_BF16},
    {"e4m3", ATTN_E4M3},         {"e5m2", ATTN_E5M2}, {"e4m3fnuz", ATTN_E4M3FNUZ},
    {"e5m2fnuz", ATTN_E5M2FNUZ}, {"int8", ATTN_INT8}, {NULL, 0}};
/* Keys and values may have blocks, too. */
static const struct attn__value kv_dtype_values[] = {
    {"f32", ATTN_F32},           {"f16", ATTN_F16},       {"bf16", ATTN_BF16},
    {"e4m3", ATTN_E4M3},         {"e5m2", ATTN_E5M2},     {"e4m3fnuz", ATTN_E4M3FNUZ},
    {"e5m2fnuz", ATTN_E5M2FNUZ}, {"int8", ATTN_INT8},     {"q8_0", ATTN_Q8_0},
    {"q4_0", ATTN_Q4_0},         {"q4_1", ATTN_Q4_1},     {"q5_0", ATTN_Q5_0},
    {"q5_1", ATTN_Q5_1},         {"iq4_nl", ATTN_IQ4_NL}, {NULL, 0}};
static const struct attn__value addr_values[] = {
    {"dense", ATTN_DENSE}, {"table", ATTN_TABLE}, {"csr", ATTN_CSR}, {NULL, 0}};
static const struct attn__value index_values[] = {{"i32", ATTN_INT32}, {"i64", ATTN_INT64}, {NULL, 0}};
static const struct attn__value causal_values[] = {{"0", ATTN_CAUSAL_NO}, {"1", ATTN_CAUSAL_YES}, {NULL, 0}};
static const struct attn__value align_values[] = {
    {"end", ATTN_ALIGN_END}, {"start", ATTN_ALIGN_START}, {NULL, 0}};
static const struct attn__value alibi_values[] = {{"none", ATTN_ALIBI_NONE},
                                                  {"key", ATTN_ALIBI_KEY},
                                                  {"distance", ATTN_ALIBI_DISTANCE},
                                                  {"mask", ATTN_ALIBI_MASK},
                                                  {NULL, 0}};
static const struct attn__value mask_values[] = {{"none", ATTN_MASK_NONE}, {"bits", ATTN_MASK_BITS},
                                                 {"f16", ATTN_MASK_F16},   {"bf16", ATTN_MASK_BF16},
                                                 {"f32", ATTN_MASK_F32},   {NULL, 0}};
static const struct attn__value span_values[] = {
    {"square", ATTN_SPAN_SQUARE}, {"full", ATTN_SPAN_FULL}, {NULL, 0}};
static const struct attn__value source_values[] = {
    {"cache", ATTN_KV_CACHE}, {"new", ATTN_KV_NEW}, {"cache+new", ATTN_KV_CACHE_NEW}, {NULL, 0}};
static const struct attn__value layout_values[] = {
    {"strided", ATTN_STRIDED}, {"paged-x", ATTN_PAGED_X}, {NULL, 0}};
static const struct attn__value q_scale_values[] = {{"none", ATTN_SCALES_NONE},
                                                    {"unit", ATTN_SCALES_UNIT},
                                                    {"tensor", ATTN_SCALES_TENSOR},
                                                    {"head", ATTN_SCALES_HEAD},
                                                    {"token-head", ATTN_SCALES_TOKEN_HEAD},
                                                    {"kv-head", ATTN_SCALES_KV_HEAD},
                                                    {NULL, 0}};
static const struct attn__value kv_scale_values[] = {{"none", ATTN_SCALES_NONE},
                                                     {"unit", ATTN_SCALES_UNIT},
                                                     {"tensor", ATTN_SCALES_TENSOR},
                                                     {"head", ATTN_SCALES_HEAD},
                                                     {"token-head", ATTN_SCALES_TOKEN_HEAD},
                                                     {NULL, 0}};
static const struct attn__value out_scale_values[] = {{"none", ATTN_SCALES_NONE},
                                                      {"unit", ATTN_SCALES_UNIT},
                                                      {"tensor", ATTN_SCALES_TENSOR},
                                                      {"head", ATTN_SCALES_HEAD},
                                                      {NULL, 0}};
static const struct attn__value graph_values[] = {{"never", ATTN_GRAPH_NEVER},
                                                  {"single", ATTN_GRAPH_SINGLE},
                                                  {"uniform", ATTN_GRAPH_UNIFORM},
                                                  {"always", ATTN_GRAPH_ALWAYS},
                                                  {NULL, 0}};

static const char *choice_name(const struct attn__value *choices, uint32_t value)
{
    for (; choices->name != NULL; choices++)
        if (choices->value == value)
            return choices->name;
    return "?";
}

static bool parse_choice(const struct attn__key *key, const char *value, struct attn_problem *problem)
{
    for (const struct attn__value *choice = key->choices; choice->name != NULL; choice++) {
        if (strcmp(choice->name, value) == 0) {
            set_word(problem, key->member, choice->value);
            if (key->second != 0)
                set_word(problem, key->second, choice->value);
            return true;
        }
    }
    return false;
}

static void format_choice(const struct attn__key *key, const struct attn_problem *problem, char *text,
                          size_t size)
{
    snprintf(text, size, "%s", choice_name(key->choices, get_word(problem, key->member)));
}

/* A key that sets two members is written if they are equal and neither has its default. */
static bool pair_differs(const struct attn__key *key, const struct attn_problem *problem)
{
    return get_word(problem, key->member) == get_word(problem, key->second) &&
           word_differs(problem, key->member);
}

/* The key of one member is left out if the key of both is written. */
static bool part_differs(const struct attn__key *key, const struct attn_problem *problem)
{
    for (const struct attn__key *pair = attn__keys; pair < attn__keys + attn__key_count; pair++)
        if (pair->second != 0 && (pair->member == key->member || pair->second == key->member) &&
            pair_differs(pair, problem))
            return false;
    return word_differs(problem, key->member);
}

/* ---------------------------------------------------------------- the table */

#define AT(member) ((uint32_t)offsetof(struct attn_problem, member))
#define CHOICE(name, fallback, values, member, choices)                                                      \
    {                                                                                                        \
        name, fallback, values, parse_choice, format_choice, count_differs, AT(member), 0, choices, 0, 0     \
    }
#define PART(name, fallback, values, member, choices)                                                        \
    {                                                                                                        \
        name, fallback, values, parse_choice, format_choice, part_differs, AT(member), 0, choices, 0, 0      \
    }
#define PAIR(name, fallback, values, member, second, choices)                                                \
    {                                                                                                        \
        name, fallback, values, parse_choice, format_choice, pair_differs, AT(member), AT(second), choices,  \
            0, 0                                                                                             \
    }
#define FLAG(name, member) CHOICE(name, "0", "0|1", member, bool_values)
#define COUNT(name, fallback, values, member, min, max, when)                                                \
    {                                                                                                        \
        name, fallback, values, parse_count, format_count, when, AT(member), 0, NULL, min, max               \
    }
#define TYPES     "f32|f16|bf16|e4m3|e5m2|e4m3fnuz|e5m2fnuz|int8"
#define KV_TYPES  TYPES "|q8_0|q4_0|q4_1|q5_0|q5_1|iq4_nl"
#define KV_SCALES "none|unit|tensor|head|token-head"
#define MAXIMUM   "0 (not given) to 2147483647"

const struct attn__key attn__keys[] = {
    COUNT("heads", "", "1 to 2147483647", heads, 1, ATTN__COUNT_MAX, always),
    {"head_dim", "", "D or DQK/DVO, each 1 to 65536", parse_head_dim, format_head_dim, always, AT(head_dim),
     0, NULL, 1, ATTN__HEAD_DIM_MAX},
    COUNT("kv_heads", "heads; 1 with mla", "a divisor of heads", kv_heads, 1, ATTN__COUNT_MAX, count_differs),
    CHOICE("type", "decoder", "decoder|encoder|encoder_only|encoder_decoder", type, type_values),
    {"q", "", TYPES, parse_choice, format_choice, always, AT(q_dtype), 0, dtype_values, 0, 0},
    PAIR("kv", "q", KV_TYPES " (sets k and v)", k_dtype, v_dtype, kv_dtype_values),
    PART("k", "q", KV_TYPES, k_dtype, kv_dtype_values),
    PART("v", "q; k with mla", KV_TYPES, v_dtype, kv_dtype_values),
    CHOICE("out", "q; bf16 if q has 8 bits", TYPES, out_dtype, dtype_values),
    CHOICE("addr", "table", "dense|table|csr", addressing, addr_values),
    CHOICE("index", "i32", "i32|i64", index_dtype, index_values),
    COUNT("block", "16", "1 to 1048576", block, 1, ATTN__BLOCK_MAX, count_differs),
    CHOICE("causal", "1 for decoder, else 0", "0|1", causal, causal_values),
    CHOICE("align", "end", "end|start", align, align_values),
    {"window", "-1", "L or L/R, each -1 (all) to 2147483647", parse_window, format_window, window_differs,
     AT(window_left), AT(window_right), NULL, 0, 0},
    {"softcap", "0", "a finite number >= 0; 0 = none", parse_float, format_float, count_differs, AT(softcap),
     0, NULL, 0, 0},
    CHOICE("alibi", "none", "none|key|distance|mask", alibi, alibi_values),
    FLAG("sinks", sinks),
    CHOICE("mask", "none", "none|bits|f16|bf16|f32", mask, mask_values),
    CHOICE("span", "square", "square|full", span, span_values),
    CHOICE("kv_source", "cache; new for encoder and encoder_only", "cache|new|cache+new", kv_source,
           source_values),
    CHOICE("layout", "strided", "strided|paged-x", layout, layout_values),
    CHOICE("q_scale", "none", "none|unit|tensor|head|token-head|kv-head", q_scale, q_scale_values),
    PAIR("scales", "none", KV_SCALES " (sets k_scale and v_scale)", k_scale, v_scale, kv_scale_values),
    PART("k_scale", "none", KV_SCALES, k_scale, kv_scale_values),
    PART("v_scale", "none", KV_SCALES, v_scale, kv_scale_values),
    CHOICE("out_scale", "none", "none|unit|tensor|head", out_scale, out_scale_values),
    FLAG("positions", positions),
    FLAG("seq_causal", seq_causal),
    FLAG("mla", mla),
    FLAG("cp", cp),
    FLAG("lse", lse),
    FLAG("det", det),
    CHOICE("graph", "never", "never|single|uniform|always", graph, graph_values),
    COUNT("max_seqs", "0", MAXIMUM, max_seqs, 0, ATTN__COUNT_MAX, count_differs),
    COUNT("max_q", "0", MAXIMUM, max_q, 0, ATTN__COUNT_MAX, count_differs),
    COUNT("max_kv", "0", MAXIMUM, max_kv, 0, ATTN__COUNT_MAX, count_differs),
    COUNT("max_rows", "0", MAXIMUM, max_rows, 0, ATTN__COUNT_MAX, count_differs),
    COUNT("cascade", "0", "0 (no step) to 2147483647", cascade, 0, ATTN__COUNT_MAX, count_differs),
};
const uint32_t attn__key_count = sizeof attn__keys / sizeof attn__keys[0];

const char *attn__key_choice(const char *key, uint32_t value)
{
    for (const struct attn__key *row = attn__keys; row < attn__keys + attn__key_count; row++)
        if (row->choices != NULL && strcmp(row->name, key) == 0)
            return choice_name(row->choices, value);
    return "?";
}

const char *attn_problem_key(uint32_t index, const char **out_default, const char **out_values)
{
    if (index >= attn__key_count)
        return NULL;
    if (out_default != NULL)
        *out_default = attn__keys[index].fallback;
    if (out_values != NULL)
        *out_values = attn__keys[index].values;
    return attn__keys[index].name;
}
