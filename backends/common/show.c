/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Escapes foreign text, so that it stays on one line and cannot control a terminal. */
#include <stdio.h>
#include <string.h>

#include "show.h"

/* The code of the well-formed UTF-8 character at `text`, and its bytes; 0 bytes if there is none. */
static unsigned decode(const unsigned char *text, size_t *out_size)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned code = text[0];
    size_t size = code < 0x80 ? 1 : (code & 0xe0) == 0xc0 ? 2 : (code & 0xf0) == 0xe0 ? 3 : 4;
    *out_size = 0;
    if (size == 4 && (code & 0xf8) != 0xf0)
        return 0;
    if (size > 1)
        code &= 0x7fU >> size;
    for (size_t i = 1; i < size; i++) {
        if ((text[i] & 0xc0) != 0x80) /* not a continuation byte; the terminating zero is not one either */
            return 0;
        code = code << 6 | (text[i] & 0x3fU);
    }
    if (code < least[size] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    *out_size = size;
    return code;
}

/* False for control characters, line separators, and marks that change the direction of text. */
static bool is_printable(unsigned code)
{
    if (code < 0x20 || (code >= 0x7f && code < 0xa0))
        return false;
    return code != 0x61c && !(code >= 0x200e && code <= 0x200f) && !(code >= 0x2028 && code <= 0x202e) &&
           !(code >= 0x2066 && code <= 0x2069);
}

bool attn__is_printable(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t size; *p != 0; p += size) {
        unsigned code = decode(p, &size);
        if (size == 0 || !is_printable(code))
            return false;
    }
    return true;
}

static size_t escape(const unsigned char *text, size_t size, char *out, size_t room)
{
    char escaped[4 * 4 + 1];
    size_t length = 0;
    for (size_t i = 0; i < size; i++) {
        const char letter = text[i] == '\n' ? 'n' : text[i] == '\r' ? 'r' : text[i] == '\t' ? 't' : 0;
        length +=
            (size_t)(letter != 0 ? snprintf(escaped + length, sizeof escaped - length, "\\%c", letter)
                                 : snprintf(escaped + length, sizeof escaped - length, "\\x%02x", text[i]));
    }
    if (length >= room)
        return 0;
    memcpy(out, escaped, length);
    return length;
}

bool attn__show(const char *text, char *out, size_t size)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t used = 0, length;
    while (*p != 0 && used + 1 < size) {
        unsigned code = decode(p, &length);
        size_t wrote = length;
        if (length == 0 || !is_printable(code)) {
            length = length != 0 ? length : 1;
            wrote = escape(p, length, out + used, size - used);
        } else if (length < size - used) {
            memcpy(out + used, p, length);
        } else {
            wrote = 0;
        }
        if (wrote == 0) /* the escape or character does not fit */
            break;
        used += wrote;
        p += length;
    }
    if (size > 0)
        out[used] = '\0';
    return *p == 0;
}
