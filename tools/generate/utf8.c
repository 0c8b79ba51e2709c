/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Puts bytes that come one by one together to whole UTF-8 characters. */
#include "tokenizer.h"

#include <string.h>

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
