/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Files of prompts: what counts as one, and which files are refused with what words. */
#define _GNU_SOURCE
#include "serve/prompts.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Writes a file, reads it as prompts, and removes it. */
static int read_bytes(const char *bytes, size_t size, struct prompts *out, struct failure *err)
{
    char path[] = "/tmp/attn-prompts-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, bytes, size), (ssize_t)size);
    close(fd);
    int status = prompts_read(path, out, err);
    unlink(path);
    return status;
}

#define READ(literal, out, err) read_bytes(literal, sizeof literal - 1, out, err)

/* Refuses the bytes with a message that ends as given. */
static void refuse(const char *bytes, size_t size, const char *end)
{
    struct prompts p;
    struct failure err = {0};
    cr_assert_eq(read_bytes(bytes, size, &p, &err), -1);
    const char *colon = strstr(err.text, ": ");
    cr_assert_not_null(colon);
    cr_assert_str_eq(colon + 2, end);
    cr_assert_null(p.list);
    cr_assert_not(p.missing);
}

#define REFUSE(literal, end) refuse(literal, sizeof literal - 1, end)

Test(prompts, lines_with_text_are_prompts)
{
    struct prompts p;
    struct failure err = {0};
    cr_assert_eq(READ("\xef\xbb\xbfone\r\n\n  \t\ntwo words\n l\xc3\xa4st \xf0\x9f\x8c\x8a", &p, &err), 0,
                 "%s", err.text);
    cr_assert_eq(p.count, 3);
    cr_assert_str_eq(p.list[0].text, "one");
    cr_assert_eq(p.list[0].line, 1);
    cr_assert_str_eq(p.list[1].text, "two words");
    cr_assert_eq(p.list[1].line, 4);
    cr_assert_str_eq(p.list[2].text, " l\xc3\xa4st \xf0\x9f\x8c\x8a");
    cr_assert_eq(p.list[2].line, 5);
    prompts_finish(&p);
}

Test(prompts, many_and_long_lines)
{
    enum { LINES = 1000, WIDTH = 37 };
    struct prompts p;
    struct failure err = {0};
    char *bytes = malloc(LINES * WIDTH);
    memset(bytes, 'x', LINES * WIDTH);
    for (int i = 0; i < LINES; i++)
        bytes[i * WIDTH + WIDTH - 1] = '\n';
    cr_assert_eq(read_bytes(bytes, LINES * WIDTH, &p, &err), 0, "%s", err.text);
    cr_assert_eq(p.count, LINES);
    for (int i = 0; i < LINES; i++)
        cr_assert_eq(strlen(p.list[i].text), WIDTH - 1);
    prompts_finish(&p);
    memset(bytes, 'x', LINES * WIDTH);
    cr_assert_eq(read_bytes(bytes, LINES * WIDTH, &p, &err), 0, "%s", err.text);
    cr_assert_eq(p.count, 1);
    cr_assert_eq(strlen(p.list[0].text), LINES * WIDTH);
    prompts_finish(&p);
    free(bytes);
}

Test(prompts, files_without_a_prompt)
{
    REFUSE("", "there is no prompt in it; accepted is text, one prompt on each line");
    REFUSE("\n \n\r\n", "there is no prompt in it; accepted is text, one prompt on each line");
}

Test(prompts, what_is_no_text)
{
    REFUSE("one\ntw\0o\n", "line 2, byte 3 is 0x00; accepted is text in UTF-8, one prompt on each line");
    REFUSE("caf\xe9\n", "line 1, byte 4 is 0xe9; accepted is text in UTF-8, one prompt on each line");
    REFUSE("\xc3", "line 1, byte 1 is 0xc3; accepted is text in UTF-8, one prompt on each line");
    REFUSE("a\xc0\x80", "line 1, byte 2 is 0xc0; accepted is text in UTF-8, one prompt on each line");
    REFUSE("\xe0\x9f\xbf", "line 1, byte 1 is 0xe0; accepted is text in UTF-8, one prompt on each line");
    REFUSE("\xed\xa0\x80", "line 1, byte 1 is 0xed; accepted is text in UTF-8, one prompt on each line");
    REFUSE("\xf0\x8f\xbf\xbf", "line 1, byte 1 is 0xf0; accepted is text in UTF-8, one prompt on each line");
    REFUSE("\xf4\x90\x80\x80", "line 1, byte 1 is 0xf4; accepted is text in UTF-8, one prompt on each line");
    REFUSE("\xf5\x80\x80\x80", "line 1, byte 1 is 0xf5; accepted is text in UTF-8, one prompt on each line");
    REFUSE("\x80", "line 1, byte 1 is 0x80; accepted is text in UTF-8, one prompt on each line");
}

Test(prompts, missing_files_and_directories)
{
    struct prompts p;
    struct failure err = {0};
    cr_assert_eq(prompts_read("no/such/file", &p, &err), -1);
    cr_assert_str_eq(err.text, "--batch no/such/file: No such file or directory");
    cr_assert(p.missing);
    cr_assert_eq(prompts_read("/", &p, &err), -1);
    cr_assert_str_eq(err.text, "--batch /: Is a directory");
    cr_assert_not(p.missing);
}

Test(prompts, one_text_several_times)
{
    struct prompts p;
    cr_assert_eq(prompts_repeat("same", 5, &p, NULL), 0);
    cr_assert_eq(p.count, 5);
    for (int i = 0; i < 5; i++) {
        cr_assert_str_eq(p.list[i].text, "same");
        cr_assert_eq(p.list[i].line, 0);
    }
    prompts_finish(&p);
}
