/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Foreign text in messages: what could steer a terminal or forge a line is escaped, and nothing else is
 * changed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "show.h"

static char out[256];

Test(show, escapes_what_is_no_plain_text)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"", ""},
        {"plain, with spaces and \\", "plain, with spaces and \\"},
        {"a\nb\rc\td", "a\\nb\\rc\\td"},
        {"\033[31mred\007\177", "\\x1b[31mred\\x07\\x7f"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "2J",
         "\\xc2\\x9b2J"},                                      /* a control character of two bytes */
        {"\x9b", "\\x9b"},                                     /* and of one */
        {"\xff\xfe", "\\xff\\xfe"},                            /* no UTF-8 */
        {"\xc3", "\\xc3"},                                     /* cut */
        {"\xe2\x82", "\\xe2\\x82"},                            /* cut */
        {"\xc0\xaf", "\\xc0\\xaf"},                            /* too long a form of / */
        {"\xc0\x80", "\\xc0\\x80"},                            /* and of zero */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},                   /* half a pair */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},          /* beyond the last one */
        {"\xf8\x88\x80\x80\x80", "\\xf8\\x88\\x80\\x80\\x80"}, /* five bytes */
        {"\xe2\x80\xae", "\\xe2\\x80\\xae"},                   /* turns the direction */
        {"\xe2\x80\xa8", "\\xe2\\x80\\xa8"},                   /* separates lines */
        {"\xe2\x81\xa6x\xe2\x81\xa9", "\\xe2\\x81\\xa6x\\xe2\\x81\\xa9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char again[256];
        cr_assert(attn__show(cases[i].text, out, sizeof out));
        cr_assert_str_eq(out, cases[i].shown, "case %zu: %s", i, out);
        cr_assert_eq(attn__is_printable(cases[i].text), strcmp(cases[i].text, cases[i].shown) == 0,
                     "case %zu", i);
        cr_assert(attn__show(out, again, sizeof again) && strcmp(again, out) == 0);
    }
}

Test(show, every_byte_by_itself)
{
    for (unsigned byte = 1; byte < 256; byte++) {
        char text[2] = {(char)byte, '\0'};
        cr_assert(attn__show(text, out, sizeof out));
        cr_assert(attn__is_printable(out), "%u", byte);
        cr_assert_eq(strcmp(text, out) == 0, byte >= 0x20 && byte < 0x7f, "%u", byte);
    }
}

Test(show, cuts_between_characters)
{
    const char *text = "ab\xe2\x82\xac\ncd";
    static const char *const cut[] = {
        NULL, "", "a", "ab", "ab", "ab", "ab\xe2\x82\xac", "ab\xe2\x82\xac", "ab\xe2\x82\xac\\n"};
    for (size_t size = 1; size < sizeof cut / sizeof cut[0]; size++) {
        memset(out, 'x', sizeof out);
        cr_assert_not(attn__show(text, out, size));
        cr_assert_str_eq(out, cut[size], "%zu: %s", size, out);
        cr_assert_eq(out[size], 'x');
    }
    cr_assert_not(attn__show(text, out, 0));
    cr_assert(attn__show(text, out, 10));
    cr_assert_not(attn__show(text, out, 9));
}
