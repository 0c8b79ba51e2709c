/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What --help offers stands in the manual page too, and the other way round. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static char *page_read(const char *name)
{
    char path[1024];
    char *text = calloc(1, 1 << 16);

    snprintf(path, sizeof path, "%s/%s", places.man, name);
    FILE *file = fopen(path, "r");
    if (file == NULL || text == NULL || fread(text, 1, (1 << 16) - 1, file) == 0)
        exit(2);
    fclose(file);
    return text;
}

/* Calls for every word of `text` that begins with `start`: is it in `other`, between `open` and `close`? */
static void compare(const char *text, const char *start, const char *other, const char *open,
                    const char *close, const char *where)
{
    const char *from = text;
    char word[64], wanted[80];
    unsigned found = 0;

    while ((from = strstr(from, start)) != NULL) {
        size_t size = strlen(start);
        while (islower((unsigned char)from[size]) || from[size] == '-')
            size++;
        snprintf(word, sizeof word, "%.*s", (int)size, from);
        from += size;
        if (strlen(word) == strlen(start))
            continue;
        snprintf(wanted, sizeof wanted, "%s%s%s", open, word, close);
        found++;
        check(strstr(other, wanted) != NULL, NULL, "%s stands in %s", word, where);
    }
    check(found >= 4, NULL, "options were found to look for in %s", where);
}

static void test_tool(const char *tool, const char *page_name, const char *close)
{
    struct result help;
    char *page = page_read(page_name);

    run(&help, "", tool, "--help");
    compare(help.out, "--", page, "*", close, page_name);
    compare(page, "--", help.out, "", "", "--help");
    free(page);
    result_finish(&help);
}

static void test_words(const char *page_name, const char *const *words)
{
    char *page = page_read(page_name), wanted[80];

    for (; *words != NULL; words++) {
        snprintf(wanted, sizeof wanted, "\n*%s*", *words);
        check(strstr(page, wanted) != NULL, NULL, "%s is explained in %s", *words, page_name);
    }
    free(page);
}

int main(int argc, char **argv)
{
    static const char *const commands[] = {"list", "devices", "caps",   "explain", "why",
                                           "env",  "path",    "exists", NULL};
    static const char *const modes[] = {"decode",  "prefill",  "mixed", "compare", "skew",  "dispatch",
                                        "load",    "ceilings", "seqs",  "ctx",     "q_len", "layers",
                                        "threads", "reps",     "cold",  NULL};

    static const char *const kinds[] = {"side-effects", "abi",   "query", "faults",    "huge",
                                        "write",        "merge", "det",   "attention", NULL};
    const char *attn_check = getenv("CLI_ATTN_CHECK"), *attn_replay = getenv("CLI_ATTN_REPLAY");

    cli_init(argc, argv);
    test_tool(places.attn_info, "attn-info.1.scd", "*\n");
    test_tool(places.attn_bench, "attn-bench.1.scd", "*\n");
    test_tool(attn_check != NULL ? attn_check : "", "attn-check.1.scd", "*");
    test_tool(attn_replay != NULL ? attn_replay : "", "attn-replay.1.scd", "*");
    test_words("attn-check.1.scd", kinds);
    test_words("attn-info.1.scd", commands);
    test_words("attn-bench.1.scd", modes);
    return cli_finish();
}
