/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pre-tokenizers by name, each a regular expression in PCRE2's UTF mode. */
#include "pretoken.h"
#include "architecture.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

struct pretoken {
    pcre2_code *code;
};

/*
 * smollm takes single digits out first and cuts the rest as GPT-2 does. In one expression: a digit never
 * joins a run, and where GPT-2 asks whether white space is followed by anything, a digit counts as the end of
 * the text.
 */
static const char smollm[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"
                             "|\\s+(?![^\\s\\p{N}])|\\s+";

int pretoken_create(struct gguf_string name, struct pretoken **out, struct failure *err)
{
    if (!gguf_string_equals(name, "smollm"))
        return failure_set(err, "tokenizer.ggml.pre is '%.*s'; accepted is smollm; " ARCHITECTURE_ELSEWHERE,
                           gguf_width(name), name.data);
    struct pretoken *pre = malloc(sizeof *pre);
    int number = 0;
    size_t at = 0;
    if (!pre)
        return failure_set(err, "no memory for the pre-tokenizer");
    pre->code =
        pcre2_compile((PCRE2_SPTR)smollm, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &number, &at, NULL);
    if (!pre->code) {
        free(pre);
        return failure_set(err, "pre-tokenizer smollm: PCRE2 refuses its expression at %zu (error %d)", at,
                           number);
    }
    *out = pre;
    return 0;
}

void pretoken_destroy(struct pretoken *pre)
{
    if (!pre)
        return;
    pcre2_code_free(pre->code);
    free(pre);
}

static int report(int number, size_t at, struct failure *err)
{
    char text[128] = "";
    pcre2_get_error_message(number, (PCRE2_UCHAR *)text, sizeof text);
    return failure_set(err, "text cannot be split at byte %zu: %s; accepted is valid UTF-8", at, text);
}

static int split(const struct pretoken *pre, pcre2_match_data *match, const char *text, size_t size,
                 pretoken_piece_fn piece, void *arg, struct failure *err)
{
    uint32_t options = 0; /* the first match checks the whole text, later ones need not */
    size_t at = 0;
    while (at < size) {
        int count = pcre2_match(pre->code, (PCRE2_SPTR)text, size, at, options, match, NULL);
        const size_t *range = pcre2_get_ovector_pointer(match);
        if (count < 0 && count != PCRE2_ERROR_NOMATCH)
            return report(count, count <= PCRE2_ERROR_UTF8_ERR1 ? pcre2_get_startchar(match) : at, err);
        size_t first = count < 0 ? size : range[0];
        size_t end = count < 0 ? size : range[1];
        if (first > at && piece(arg, text + at, first - at, err) < 0)
            return -1;
        if (end > first && piece(arg, text + first, end - first, err) < 0)
            return -1;
        at = end;
        options = PCRE2_NO_UTF_CHECK;
    }
    return 0;
}

int pretoken_split(const struct pretoken *pre, const char *text, size_t size, pretoken_piece_fn piece,
                   void *arg, struct failure *err)
{
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(pre->code, NULL);
    if (!match)
        return failure_set(err, "no memory to split the text");
    int status = split(pre, match, text, size, piece, arg, err);
    pcre2_match_data_free(match);
    return status;
}
