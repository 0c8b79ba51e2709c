/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Turns text into token ids and back, and bytes that come one by one into whole UTF-8 characters. */
#include "tokenizer.h"
#include "tokenizer-impl.h"

#include <stdlib.h>
#include <string.h>

int tokens_add(struct tokens *tokens, int32_t id, struct failure *err)
{
    if (tokens->count == tokens->room) {
        size_t room = tokens->room ? 2 * tokens->room : 256;
        int32_t *ids = realloc(tokens->ids, room * sizeof *ids);
        if (!ids)
            return failure_set(err, "no memory for %zu tokens", room);
        tokens->ids = ids;
        tokens->room = room;
    }
    tokens->ids[tokens->count++] = id;
    return 0;
}

void tokens_finish(struct tokens *tokens)
{
    free(tokens->ids);
    *tokens = (struct tokens){0};
}

uint32_t tokenizer_size(const struct tokenizer *t)
{
    return t->count;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text)
{
    return strmap_find(&t->ids, text, strlen(text));
}

bool tokenizer_ends(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (id == t->eos || id == t->eot || id == t->end_of_text || id == t->end_of_turn);
}

/* What one call of tokenizer_encode carries through the pre-tokenizer. */
struct encoding {
    const struct tokenizer *t;
    struct tokens *out;
    struct bpe bpe;
    char *mapped;
    size_t mapped_room;
};

static int map_bytes(struct encoding *e, const char *piece, size_t size, size_t *out_size,
                     struct failure *err)
{
    if (e->mapped_room < 2 * size) {
        char *mapped = realloc(e->mapped, 2 * size);
        if (!mapped)
            return failure_set(err, "no memory for a piece of %zu bytes", size);
        e->mapped = mapped;
        e->mapped_room = 2 * size;
    }
    size_t at = 0;
    for (size_t i = 0; i < size; i++) {
        const struct byte_text *text = &e->t->bytes[(unsigned char)piece[i]];
        memcpy(e->mapped + at, text->text, text->size);
        at += text->size;
    }
    *out_size = at;
    return 0;
}

/* A symbol without a token of its own is spelled with the tokens of its characters. */
static int add_symbol(struct encoding *e, const char *text, size_t size, struct failure *err)
{
    int32_t id = strmap_find(&e->t->ids, text, size);
    if (id >= 0)
        return tokens_add(e->out, id, err);
    for (size_t at = 0; at < size;) {
        size_t bytes = (unsigned char)text[at] < 0x80 ? 1 : 2;
        id = strmap_find(&e->t->ids, text + at, bytes);
        if (id < 0)
            return failure_set(err, "the vocabulary has no token for the byte written as %.*s", (int)bytes,
                               text + at);
        if (tokens_add(e->out, id, err) < 0)
            return -1;
        at += bytes;
    }
    return 0;
}

static int encode_piece(void *arg, const char *piece, size_t size, struct failure *err)
{
    struct encoding *e = arg;
    size_t mapped = 0;
    if (map_bytes(e, piece, size, &mapped, err) < 0)
        return -1;
    if (bpe_merge(&e->bpe, &e->t->ranks, e->mapped, mapped) < 0)
        return failure_set(err, "no memory to tokenize a piece of %zu bytes", size);
    for (int32_t i = 0; i >= 0; i = e->bpe.symbols[i].next)
        if (add_symbol(e, e->mapped + e->bpe.symbols[i].start, e->bpe.symbols[i].size, err) < 0)
            return -1;
    return 0;
}

/* The longest special token that the text begins with. Specials are sorted longest first. */
static const struct special *match_special(const struct tokenizer *t, const char *text, size_t size)
{
    for (size_t i = 0; i < t->special_count; i++) {
        const struct special *s = &t->specials[i];
        if (s->text.size <= size && memcmp(s->text.data, text, s->text.size) == 0)
            return s;
    }
    return NULL;
}

static int encode(struct encoding *e, const char *text, size_t size, struct failure *err)
{
    const struct tokenizer *t = e->t;
    size_t plain = 0; /* where ordinary text began that is not yet encoded */
    for (size_t at = 0; at < size;) {
        const struct special *s =
            t->special_lead[(unsigned char)text[at]] ? match_special(t, text + at, size - at) : NULL;
        if (!s) {
            at++;
            continue;
        }
        if (pretoken_split(t->pre, text + plain, at - plain, encode_piece, e, err) < 0 ||
            tokens_add(e->out, s->id, err) < 0)
            return -1;
        at += s->text.size;
        plain = at;
    }
    return pretoken_split(t->pre, text + plain, size - plain, encode_piece, e, err);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t size, struct tokens *out,
                     struct failure *err)
{
    struct encoding e = {.t = t, .out = out};
    int status = t->add_bos ? tokens_add(out, t->bos, err) : 0;
    if (status == 0)
        status = encode(&e, text, size, err);
    bpe_finish(&e.bpe);
    free(e.mapped);
    return status;
}

/* Turns one mapped character back into its byte; other bytes stay as they are. */
static size_t unmap(const struct tokenizer *t, const char *text, size_t size, char *out)
{
    unsigned char lead = (unsigned char)text[0];
    if (lead >= 0x80 && size > 1) {
        unsigned code = (lead & 31u) << 6 | ((unsigned char)text[1] & 63u);
        if ((lead & 0xe0) == 0xc0 && code < UNMAP_CODES && t->unmap[code] >= 0) {
            *out = (char)t->unmap[code];
            return 2;
        }
    }
    *out = text[0];
    return 1;
}

size_t tokenizer_decode(const struct tokenizer *t, int32_t id, char *out, size_t size)
{
    if (id < 0 || (uint32_t)id >= t->count || t->kinds[id] == TOKEN_CONTROL)
        return 0;
    struct gguf_string text = t->texts[id];
    size_t count = 0;
    for (size_t at = 0; at < text.size; count++) {
        char byte = text.data[at];
        at += t->kinds[id] == TOKEN_USER ? 1 : unmap(t, text.data + at, text.size - at, &byte);
        if (count < size)
            out[count] = byte;
    }
    return count;
}

/* ---------------------------------------------------------------- UTF-8 */

static uint32_t length(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
}

/* Second bytes have narrower ranges where overlong forms, surrogates and numbers beyond U+10FFFF would begin.
 */
static bool continues(const struct utf8_stream *s, unsigned char byte)
{
    if ((byte & 0xc0) != 0x80)
        return false;
    if (s->count != 1)
        return true;
    switch ((unsigned char)s->bytes[0]) {
    case 0xe0:
        return byte >= 0xa0;
    case 0xed:
        return byte < 0xa0;
    case 0xf0:
        return byte >= 0x90;
    case 0xf4:
        return byte < 0x90;
    default:
        return true;
    }
}

static size_t replace(char *out)
{
    memcpy(out, "\xef\xbf\xbd", 3);
    return 3;
}

size_t utf8_stream_end(struct utf8_stream *s, char *out)
{
    size_t printed = s->count ? replace(out) : 0;
    s->count = 0;
    return printed;
}

size_t utf8_stream_push(struct utf8_stream *s, char byte, char *out)
{
    size_t printed = s->count && !continues(s, (unsigned char)byte) ? utf8_stream_end(s, out) : 0;
    if (s->count == 0 && length((unsigned char)byte) == 0)
        return printed + replace(out + printed);
    s->bytes[s->count++] = byte;
    if (s->count < length((unsigned char)s->bytes[0]))
        return printed;
    memcpy(out + printed, s->bytes, s->count);
    printed += s->count;
    s->count = 0;
    return printed;
}
