/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Cuts a text into words without accents and each word into the longest pieces that the vocabulary has. */
#include "wordpiece.h"
#include "strmap.h"
#include "wordpiece-impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- characters */

/* Index of the last of "count" rows whose first number is at most the code; count if there is none. */
static size_t find(const uint32_t *rows, size_t count, size_t width, uint32_t code)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (rows[middle * width] <= code)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? low - 1 : count;
}

/* Syllables of Hangul are letters by arithmetic. */
static uint32_t fold_hangul(uint32_t code, uint32_t *out)
{
    enum { FIRST = 0xac00, LEADS = 0x1100, VOWELS = 0x1161, TAILS = 0x11a7, V = 21, T = 28 };
    uint32_t index = code - FIRST;
    out[0] = LEADS + index / (V * T);
    out[1] = VOWELS + index % (V * T) / T;
    out[2] = TAILS + index % T;
    return index % T ? 3 : 2;
}

uint32_t wordpiece_fold(uint32_t code, uint32_t *out)
{
    if (code >= 0xac00 && code <= 0xd7a3)
        return fold_hangul(code, out);
    size_t at = find(&wordpiece_splits[0][0], wordpiece_split_count, 4, code);
    if (at < wordpiece_split_count && wordpiece_splits[at][0] == code) {
        for (uint32_t i = 0; i < 3; i++)
            out[i] = wordpiece_splits[at][i + 1];
        return out[2] ? 3 : 2;
    }
    out[0] = code;
    at = find(wordpiece_folds, wordpiece_fold_count, WORDPIECE_FOLD, code);
    if (at == wordpiece_fold_count)
        return 1;
    const uint32_t *fold = wordpiece_folds + at * WORDPIECE_FOLD;
    uint32_t past = code - fold[0];
    if (past % fold[2] == 0 && past / fold[2] < fold[1])
        out[0] = fold[3] ? fold[3] + past / fold[2] * fold[4] : 0;
    return out[0] ? 1 : 0;
}

/* Whether a character is a word of its own: punctuation and ideographs. */
static bool is_alone(uint32_t code)
{
    static const uint32_t ideographs[][2] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                             {0x20000, 0x2a6df}, {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f},
                                             {0x2b820, 0x2ceaf}, {0x2f800, 0x2fa1f}};
    enum { IDEOGRAPHS = sizeof ideographs / sizeof ideographs[0] };
    size_t at = find(&wordpiece_marks[0][0], wordpiece_mark_count, 2, code);
    if (at < wordpiece_mark_count && code <= wordpiece_marks[at][1])
        return true;
    at = find(&ideographs[0][0], IDEOGRAPHS, 2, code);
    return at < IDEOGRAPHS && code <= ideographs[at][1];
}

/* Longer words are unknown as a whole, as in the models' own tokenizer. */
enum { MOST_CHARACTERS = 100, BEGIN_BYTES = 3 };

/* Precedes pieces that begin a word: U+2581. */
static const char begin[BEGIN_BYTES + 1] = "\xe2\x96\x81";

struct wordpiece {
    uint32_t count;
    struct strmap ids;
    int32_t cls;
    int32_t sep;
    int32_t unknown;
};

/* A word while it grows, behind the mark of a beginning. */
struct word {
    char bytes[BEGIN_BYTES + 4 * (MOST_CHARACTERS + 1)];
    size_t size;
    uint32_t characters;
};

/* ---------------------------------------------------------------- vocabulary */

static int read_special(const struct gguf *file, struct wordpiece *w, struct failure *err)
{
    const struct {
        const char *key;
        uint64_t usual;
        int32_t *out;
    } list[] = {{"tokenizer.ggml.cls_token_id", 101, &w->cls},
                {"tokenizer.ggml.seperator_token_id", 102, &w->sep}, /* the format's own spelling */
                {"tokenizer.ggml.unknown_token_id", 100, &w->unknown}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        uint64_t value = list[i].usual;
        if (gguf_get_u64(file, list[i].key, value >= w->count, 0, w->count - 1, &value, err) < 0)
            return -1;
        *list[i].out = (int32_t)value;
    }
    return 0;
}

static int read_tokens(const struct gguf *file, struct wordpiece *w, struct failure *err)
{
    const struct gguf_value *tokens = gguf_find(file, "tokenizer.ggml.tokens");
    if (!tokens || !tokens->array || tokens->type != GGUF_STRING)
        return failure_set(err, "%s: tokenizer.ggml.tokens is %s; accepted is an array of strings",
                           file->path, tokens ? "something else" : "missing");
    if (tokens->count == 0 || tokens->count > INT32_MAX)
        return failure_set(err, "%s: tokenizer.ggml.tokens has %" PRIu64 " items; accepted are 1 to %d",
                           file->path, tokens->count, INT32_MAX);
    w->count = (uint32_t)tokens->count;
    if (strmap_init(&w->ids, w->count) < 0)
        return failure_set(err, "%s: no memory for %" PRIu32 " tokens", file->path, w->count);
    const uint8_t *at = tokens->data;
    for (uint32_t i = 0; i < w->count; i++) {
        struct gguf_string text = gguf_next_string(&at);
        if (text.size > TOKENIZER_MOST_BYTES)
            return failure_set(err, "%s: token %" PRIu32 " has %zu bytes; accepted are up to %d", file->path,
                               i, text.size, TOKENIZER_MOST_BYTES);
        strmap_add(&w->ids, text.data, text.size, (int32_t)i);
    }
    return 0;
}

static int load(const struct gguf *file, struct wordpiece *w, struct failure *err)
{
    struct gguf_string model = {0};
    if (gguf_get_string(file, "tokenizer.ggml.model", true, &model, err) < 0)
        return -1;
    if (!gguf_string_equals(model, "bert"))
        return failure_set(err, "%s: tokenizer.ggml.model is %.*s; accepted is bert", file->path,
                           gguf_width(model), model.data);
    if (read_tokens(file, w, err) < 0)
        return -1;
    return read_special(file, w, err);
}

int wordpiece_create(const struct gguf *file, struct wordpiece **out, struct failure *err)
{
    struct wordpiece *w = calloc(1, sizeof *w);
    if (!w)
        return failure_set(err, "no memory for the tokenizer");
    if (load(file, w, err) < 0) {
        wordpiece_destroy(w);
        return -1;
    }
    *out = w;
    return 0;
}

void wordpiece_destroy(struct wordpiece *w)
{
    if (!w)
        return;
    strmap_finish(&w->ids);
    free(w);
}

uint32_t wordpiece_size(const struct wordpiece *w)
{
    return w->count;
}

/* ---------------------------------------------------------------- words */

static void word_clear(struct word *word)
{
    memcpy(word->bytes, begin, BEGIN_BYTES);
    word->size = BEGIN_BYTES;
    word->characters = 0;
}

/* A character too many is counted and not kept: the word is unknown then. */
static void word_add(struct word *word, uint32_t code)
{
    uint8_t *to = (uint8_t *)word->bytes + word->size;
    if (++word->characters > MOST_CHARACTERS)
        return;
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint8_t leads[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (uint8_t)(leads[more] | code >> (6 * more));
    for (int i = 1; i <= more; i++)
        to[i] = (uint8_t)(0x80 | (code >> (6 * (more - i)) & 0x3f));
    word->size += (size_t)more + 1;
}

/* The longest piece at each place; a rest that no piece begins makes the whole word unknown. */
static int word_end(const struct wordpiece *w, struct word *word, struct tokens *out, struct failure *err)
{
    size_t before = out->count;
    size_t at = 0;
    bool known = word->characters <= MOST_CHARACTERS;
    if (word->characters == 0)
        return 0;
    while (known && at < word->size) {
        size_t end = word->size;
        int32_t id = -1;
        for (; end > at; end--) /* cuts inside of characters find nothing */
            if ((id = strmap_find(&w->ids, word->bytes + at, end - at)) >= 0)
                break;
        known = id >= 0 && (at > 0 || end > BEGIN_BYTES);
        if (known && tokens_add(out, id, err) < 0)
            return -1;
        at = end;
    }
    word_clear(word);
    if (known)
        return 0;
    out->count = before;
    return tokens_add(out, w->unknown, err);
}

/* The UTF-8 character at *at, which moves behind it; -1 if there is no well-formed one. */
static int32_t next_character(const uint8_t *text, size_t size, size_t *at)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    uint8_t lead = text[*at];
    size_t more = lead < 0x80 ? 0 : lead >= 0xc2 && lead < 0xe0 ? 1 : (lead & 0xf0) == 0xe0 ? 2 : 3;
    if (lead > 0xf4 || (lead >= 0x80 && lead < 0xc2) || more >= size - *at)
        return -1;
    uint32_t code = more == 0 ? lead : lead & (0x3fu >> more);
    for (size_t i = 1; i <= more; i++) {
        if ((text[*at + i] & 0xc0) != 0x80)
            return -1;
        code = code << 6 | (text[*at + i] & 0x3f);
    }
    if (code < least[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return -1;
    *at += more + 1;
    return (int32_t)code;
}

static int add_character(const struct wordpiece *w, struct word *word, uint32_t code, struct tokens *out,
                         struct failure *err)
{
    uint32_t list[3];
    uint32_t count = wordpiece_fold(code, list);
    for (uint32_t i = 0; i < count; i++) {
        bool alone = is_alone(list[i]);
        if ((alone || list[i] == ' ') && word_end(w, word, out, err) < 0)
            return -1;
        if (list[i] != ' ')
            word_add(word, list[i]);
        if (alone && word_end(w, word, out, err) < 0)
            return -1;
    }
    return 0;
}

int wordpiece_encode(const struct wordpiece *w, const char *text, size_t size, struct tokens *out,
                     struct failure *err)
{
    struct word word;
    word_clear(&word);
    if (tokens_add(out, w->cls, err) < 0)
        return -1;
    for (size_t at = 0; at < size;) {
        size_t before = at;
        int32_t code = next_character((const uint8_t *)text, size, &at);
        if (code < 0)
            return failure_set(err, "byte %zu of the text is 0x%02x; accepted is text in UTF-8", before,
                               (unsigned)(uint8_t)text[before]);
        if (add_character(w, &word, (uint32_t)code, out, err) < 0)
            return -1;
    }
    if (word_end(w, &word, out, err) < 0)
        return -1;
    return tokens_add(out, w->sep, err);
}
