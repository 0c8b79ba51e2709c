/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Puts the library's own tables into a manual page: copies the page from a file to stdout and replaces a line
 * "@variables@", "@statuses@", "@load-reasons@" or "@query-reasons@" by what the .def files hold.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { ABSENCE, REFUSAL, EXPLICIT, ADVICE };
enum { FIRST_QUERY_REASON = 256 };

static const struct variable {
    const char *name, *type, *fallback;
    int elevated;
    const char *help;
} variables[] = {
#define ATTN_VARIABLE(name, type, fallback, elevated, help) {#name, type, fallback, elevated, help},
#include "base/env.def"
};

static const struct status {
    const char *name;
    int value;
    const char *text, *advice;
} statuses[] = {
#define ATTN_STATUS(name, value, text, advice) {"ATTN_" #name, value, text, advice},
#include "attn/status.def"
};

static const struct reason {
    const char *name;
    int value;
    enum kind kind;
    const char *text, *advice;
} reasons[] = {
#define ATTN_REASON(name, value, kind, text, advice) {#name, value, kind, text, advice},
#include "attn/reason.def"
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* Text with scdoc's own characters escaped. */
static void print(const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("*_\\`#", *text) != NULL)
            putchar('\\');
        putchar(*text);
    }
}

static void print_term(const char *name)
{
    putchar('*');
    print(name);
    putchar('*');
}

static void print_variables(void)
{
    for (size_t i = 0; i < COUNT(variables); i++) {
        const struct variable *variable = &variables[i];
        print_term(variable->name);
        fputs("=", stdout);
        print(variable->type);
        fputs("\n\t", stdout);
        print(variable->help);
        fputs(".", stdout);
        if (variable->fallback[0] != '\0') {
            fputs(" Default: ", stdout);
            print(variable->fallback);
            fputs(".", stdout);
        }
        puts(variable->elevated ? "\n" : " Ignored by processes with raised privileges.\n");
    }
}

static void print_statuses(void)
{
    for (size_t i = 0; i < COUNT(statuses); i++) {
        print_term(statuses[i].name);
        printf(" (%d)\n\t", statuses[i].value);
        print(statuses[i].text);
        if (statuses[i].advice[0] != '\0') {
            fputs("; ", stdout);
            print(statuses[i].advice);
        }
        puts(".\n");
    }
}

static void print_reasons(int query)
{
    static const char *const kinds[] = {"absence", "refusal", "explicit refusal", "advice"};

    for (size_t i = 0; i < COUNT(reasons); i++) {
        if ((reasons[i].value >= FIRST_QUERY_REASON) != query)
            continue;
        print_term(reasons[i].name);
        printf(" (%d, %s)\n\t", reasons[i].value, kinds[reasons[i].kind]);
        print(reasons[i].text);
        fputs("; ", stdout);
        print(reasons[i].advice);
        puts(".\n");
    }
}

int main(int argc, char **argv)
{
    FILE *page = argc == 2 ? fopen(argv[1], "r") : NULL;
    char line[4096];

    if (page == NULL) {
        fprintf(stderr, "usage: make-tables PAGE.scd > RESULT.scd\n");
        return 2;
    }
    while (fgets(line, sizeof line, page) != NULL)
        if (strcmp(line, "@variables@\n") == 0)
            print_variables();
        else if (strcmp(line, "@statuses@\n") == 0)
            print_statuses();
        else if (strcmp(line, "@load-reasons@\n") == 0)
            print_reasons(0);
        else if (strcmp(line, "@query-reasons@\n") == 0)
            print_reasons(1);
        else
            fputs(line, stdout);
    fclose(page);
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
