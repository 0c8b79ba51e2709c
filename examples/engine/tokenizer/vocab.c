/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Builds a tokenizer from metadata: vocabulary, merges, token kinds and the special ones. */
#include "architecture.h"
#include "tokenizer-impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 1 << 24 };

void tokenizer_init_bytes(struct tokenizer *t)
{
    unsigned next = 256; /* bytes that do not print get the codes from 256 on */
    memset(t->unmap, -1, sizeof t->unmap);
    for (unsigned byte = 0; byte < 256; byte++) {
        bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        unsigned code = prints ? byte : next++;
        t->unmap[code] = (int16_t)byte;
        struct byte_text *text = &t->bytes[byte];
        text->size = code < 0x80 ? 1 : 2;
        text->text[0] = (char)(code < 0x80 ? code : 0xc0u | code >> 6);
        text->text[1] = (char)(0x80u | (code & 63u));
    }
}

static int find_array(const struct gguf *file, const char *key, bool strings, const struct gguf_value **out,
                      struct failure *err)
{
    const struct gguf_value *value = gguf_find(file, key);
    *out = value;
    if (!value)
        return failure_set(err, "%s: metadata key %s is missing", file->path, key);
    bool fits = strings ? value->type == GGUF_STRING : gguf_is_integer(value->type);
    if (!value->array || !fits)
        return failure_set(err, "%s: %s is %s%s; accepted is an array of %s", file->path, key,
                           value->array ? "an array of " : "", gguf_type_name(value->type),
                           strings ? "strings" : "integers");
    if (value->count > MOST_TOKENS)
        return failure_set(err, "%s: %s has %" PRIu64 " items; accepted are up to %d", file->path, key,
                           value->count, MOST_TOKENS);
    return 0;
}

static int load_texts(struct tokenizer *t, const struct gguf *file, struct failure *err)
{
    const struct gguf_value *value;
    if (find_array(file, "tokenizer.ggml.tokens", true, &value, err) < 0)
        return -1;
    if (value->count == 0)
        return failure_set(err, "%s: tokenizer.ggml.tokens is empty", file->path);
    t->count = (uint32_t)value->count;
    t->texts = calloc(t->count, sizeof *t->texts);
    t->kinds = calloc(t->count, sizeof *t->kinds);
    if (!t->texts || !t->kinds || strmap_init(&t->ids, t->count) < 0)
        return failure_set(err, "%s: no memory for %" PRIu32 " tokens", file->path, t->count);
    const uint8_t *at = value->data;
    for (uint32_t i = 0; i < t->count; i++) {
        t->texts[i] = gguf_next_string(&at);
        if (t->texts[i].size > TOKENIZER_MOST_BYTES)
            return failure_set(err, "%s: token %" PRIu32 " has %zu bytes; accepted are up to 65535",
                               file->path, i, t->texts[i].size);
        strmap_add(&t->ids, t->texts[i].data, t->texts[i].size, (int32_t)i);
    }
    return 0;
}

static int load_kinds(struct tokenizer *t, const struct gguf *file, struct failure *err)
{
    const struct gguf_value *value;
    memset(t->kinds, TOKEN_NORMAL, t->count);
    if (!gguf_find(file, "tokenizer.ggml.token_type"))
        return 0;
    if (find_array(file, "tokenizer.ggml.token_type", false, &value, err) < 0)
        return -1;
    if (value->count != t->count)
        return failure_set(err,
                           "%s: tokenizer.ggml.token_type has %" PRIu64 " items; the vocabulary has %" PRIu32,
                           file->path, value->count, t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        int64_t kind = gguf_integer_item(value, i);
        if (kind < 1 || kind > 6)
            return failure_set(
                err, "%s: tokenizer.ggml.token_type of token %" PRIu32 " is %" PRId64 "; accepted are 1 to 6",
                file->path, i, kind);
        t->kinds[i] = (uint8_t)kind;
    }
    return 0;
}

static int load_merges(struct tokenizer *t, const struct gguf *file, struct failure *err)
{
    const struct gguf_value *value;
    if (find_array(file, "tokenizer.ggml.merges", true, &value, err) < 0)
        return -1;
    if (strmap_init(&t->ranks, (size_t)value->count) < 0)
        return failure_set(err, "%s: no memory for %" PRIu64 " merges", file->path, value->count);
    const uint8_t *at = value->data;
    for (uint64_t i = 0; i < value->count; i++) {
        struct gguf_string merge = gguf_next_string(&at);
        const char *space = merge.size > 2 ? memchr(merge.data + 1, ' ', merge.size - 2) : NULL;
        if (!space || merge.size > TOKENIZER_MOST_BYTES)
            return failure_set(err,
                               "%s: tokenizer.ggml.merges item %" PRIu64
                               " is \"%.*s\"; accepted are two texts with a space between",
                               file->path, i, gguf_width(merge), merge.data);
        strmap_add(&t->ranks, merge.data, merge.size, (int32_t)i);
    }
    return 0;
}

static int longest_first(const void *a, const void *b)
{
    const struct special *x = a;
    const struct special *y = b;
    if (x->text.size != y->text.size)
        return x->text.size > y->text.size ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int collect_specials(struct tokenizer *t, const struct gguf *file, struct failure *err)
{
    size_t count = 0;
    for (uint32_t i = 0; i < t->count; i++)
        count += (t->kinds[i] == TOKEN_CONTROL || t->kinds[i] == TOKEN_USER) && t->texts[i].size;
    t->specials = calloc(count + 1, sizeof *t->specials);
    if (!t->specials)
        return failure_set(err, "%s: no memory for %zu special tokens", file->path, count);
    for (uint32_t i = 0; i < t->count; i++) {
        if ((t->kinds[i] != TOKEN_CONTROL && t->kinds[i] != TOKEN_USER) || !t->texts[i].size)
            continue;
        t->specials[t->special_count++] = (struct special){t->texts[i], (int32_t)i};
        t->special_lead[(unsigned char)t->texts[i].data[0]] = true;
    }
    qsort(t->specials, t->special_count, sizeof *t->specials, longest_first);
    return 0;
}

/* A token id from the metadata, -1 when the key is absent. */
static int load_id(const struct tokenizer *t, const struct gguf *file, const char *key, int32_t *out,
                   struct failure *err)
{
    uint64_t id = UINT64_MAX;
    if (gguf_get_u64(file, key, false, 0, t->count - 1, &id, err) < 0)
        return -1;
    *out = id == UINT64_MAX ? -1 : (int32_t)id;
    return 0;
}

static int32_t find_control(const struct tokenizer *t, const char *text)
{
    int32_t id = tokenizer_find(t, text);
    return id >= 0 && t->kinds[id] == TOKEN_CONTROL ? id : -1;
}

static int load_roles(struct tokenizer *t, const struct gguf *file, struct failure *err)
{
    if (load_id(t, file, "tokenizer.ggml.bos_token_id", &t->bos, err) < 0 ||
        load_id(t, file, "tokenizer.ggml.eos_token_id", &t->eos, err) < 0 ||
        load_id(t, file, "tokenizer.ggml.eot_token_id", &t->eot, err) < 0 ||
        gguf_get_bool(file, "tokenizer.ggml.add_bos_token", &t->add_bos, err) < 0)
        return -1;
    if (t->add_bos && t->bos < 0)
        return failure_set(
            err, "%s: tokenizer.ggml.add_bos_token is true but tokenizer.ggml.bos_token_id is missing",
            file->path);
    t->end_of_text = find_control(t, "<|endoftext|>");
    t->end_of_turn = find_control(t, "<|im_end|>");
    return 0;
}

static int load(struct tokenizer *t, const struct gguf *file, struct failure *err)
{
    struct gguf_string model;
    struct gguf_string pre;
    struct failure why;
    if (gguf_get_string(file, "tokenizer.ggml.model", true, &model, err) < 0)
        return -1;
    if (!gguf_string_equals(model, "gpt2"))
        return failure_set(err,
                           "%s: tokenizer.ggml.model is '%.*s'; accepted is gpt2 (byte-level "
                           "BPE); " ARCHITECTURE_ELSEWHERE,
                           file->path, gguf_width(model), model.data);
    if (gguf_get_string(file, "tokenizer.ggml.pre", true, &pre, err) < 0)
        return -1;
    if (pretoken_create(pre, &t->pre, &why) < 0)
        return failure_set(err, "%s: %.300s", file->path, why.text);
    tokenizer_init_bytes(t);
    if (load_texts(t, file, err) < 0 || load_kinds(t, file, err) < 0 || load_merges(t, file, err) < 0 ||
        collect_specials(t, file, err) < 0)
        return -1;
    return load_roles(t, file, err);
}

int tokenizer_create(const struct gguf *file, struct tokenizer **out, struct failure *err)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return failure_set(err, "%s: no memory for the tokenizer", file->path);
    if (load(t, file, err) < 0) {
        tokenizer_destroy(t);
        return -1;
    }
    *out = t;
    return 0;
}

void tokenizer_destroy(struct tokenizer *t)
{
    if (!t)
        return;
    free(t->texts);
    free(t->kinds);
    free(t->specials);
    strmap_finish(&t->ids);
    strmap_finish(&t->ranks);
    pretoken_destroy(t->pre);
    free(t);
}
