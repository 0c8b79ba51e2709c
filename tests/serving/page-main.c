/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * serving-page PAGE [--write]: are the tables of a page what the code says today? Tables stand between the
 * lines `<!-- begin NAME -->` and `<!-- end -->`. With --write they are written anew.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "page.h"

static const char begin_mark[] = "<!-- begin ";
static const char end_mark[] = "<!-- end -->\n";

static char *read_page(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;

    if (file == NULL)
        return NULL;
    ssize_t length = getdelim(&text, &size, '\0', file);
    fclose(file);
    return length >= 0 ? text : NULL;
}

/* The page with every table made anew; NULL with a message. */
static char *renew(const char *page)
{
    char *made = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&made, &size);

    if (out == NULL)
        return NULL;
    for (const char *at = page; *at != '\0';) {
        const char *mark = strstr(at, begin_mark);
        if (mark == NULL) {
            fputs(at, out);
            break;
        }
        char name[32] = "";
        const char *line = strchr(mark, '\n');
        const char *end = strstr(mark, end_mark);
        if (sscanf(mark + strlen(begin_mark), "%31s", name) != 1 || line == NULL || end == NULL) {
            fprintf(stderr, "serving-page: a table has no name or no end\n");
            break;
        }
        fwrite(at, 1, (size_t)(line + 1 - at), out);
        if (!page_table(out, name)) {
            fprintf(stderr, "serving-page: no table %s can be made\n", name);
            break;
        }
        fputs(end_mark, out);
        at = end + strlen(end_mark);
    }
    return fclose(out) == 0 ? made : NULL;
}

/* The first line that differs. */
static int compare(const char *page, const char *made)
{
    unsigned line = 1;

    for (size_t i = 0; page[i] == made[i]; i++) {
        if (page[i] == '\0')
            return 0;
        line += page[i] == '\n';
    }
    fprintf(stderr, "serving-page: line %u is not what the code says; serving-page PAGE --write renews it\n",
            line);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc < 2 || (argc == 3 && strcmp(argv[2], "--write") != 0) || argc > 3) {
        fprintf(stderr, "Usage: serving-page PAGE [--write]\n");
        return 2;
    }
    char *page = read_page(argv[1]);
    char *made = page != NULL ? renew(page) : NULL;
    if (made == NULL) {
        fprintf(stderr, "serving-page: %s cannot be read or made\n", argv[1]);
        free(page);
        return 2;
    }
    int code = argc == 3 ? 0 : compare(page, made);
    if (argc == 3) {
        FILE *file = fopen(argv[1], "w");
        code = file == NULL || fputs(made, file) < 0 || fclose(file) != 0 ? 2 : 0;
    }
    free(page);
    free(made);
    return code;
}
