/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Every text that stands for a number or a variable: spelling, no placeholder that nobody filled, no two
 * codes with the same text, an advice that says what to do, and nothing in it that does not exist.
 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>

#include "base/env.h"

struct text {
    const char *name, *text, *advice;
};

static const struct text texts[] = {
#define ATTN_STATUS(name, value, text, advice) {"ATTN_" #name, text, advice},
#include "attn/status.def"
#define ATTN_REASON(name, value, kind, text, advice) {#name, text, advice},
#include "attn/reason.def"
};
enum { TEXTS = sizeof texts / sizeof texts[0], LONGEST = 110 };

/* The only text that is not this library's own: programs compare it. */
static bool is_foreign(const struct text *text)
{
    return strcmp(text->name, "ENC_DEC_ROCM_HIP") == 0;
}

static bool begins_with_one_of(const char *text, const char *const *words)
{
    for (; *words != NULL; words++) {
        size_t size = strlen(*words);
        if (strncmp(text, *words, size) == 0 && !isalpha((unsigned char)text[size]))
            return true;
    }
    return false;
}

static void check_spelling(const char *name, const char *text)
{
    static const char *const proper[] = {"ALiBi", "CPU", "ELF", "ROCm", NULL};
    static const char *const placeholders[] = {"%",   "{",    "}",    "<",     ">",   "$(", "(null)",
                                               "...", "TODO", "???",  "xxx",   "XXX", "@",  "  ",
                                               "\n",  "\t",   "n't ", "sorry", NULL};
    size_t size = strlen(text);

    cr_assert(size > 0 && size <= LONGEST, "%s has %zu letters: %s", name, size, text);
    cr_assert(islower((unsigned char)text[0]) || isdigit((unsigned char)text[0]) ||
                  begins_with_one_of(text, proper),
              "%s begins with a capital: %s", name, text);
    cr_assert(strchr(".!?:;, ", text[size - 1]) == NULL, "%s ends with a sign: %s", name, text);
    for (size_t i = 0; placeholders[i] != NULL; i++)
        cr_assert_null(strstr(text, placeholders[i]), "%s holds \"%s\": %s", name, placeholders[i], text);
    for (const char *p = text; *p != '\0'; p++)
        cr_assert((unsigned char)*p < 0x7f, "%s is not ASCII: %s", name, text);
}

/* Whether a variable of the table may have the value. */
static bool is_setting(const char *name, size_t size, const char *value)
{
    static const struct {
        const char *name, *type;
    } variables[] = {
#define ATTN_VARIABLE(name, type, fallback, elevated, help) {#name, type},
#include "base/env.def"
    };
    char problem[512];

    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        if (strlen(variables[i].name) == size && strncmp(variables[i].name, name, size) == 0)
            return value == NULL ||
                   attn__env_check(variables[i].name, variables[i].type, value, problem, sizeof problem);
    }
    return false;
}

/* Variables, functions, problem keys and commands in a text must be there. */
static void check_word(const char *name, const char *word)
{
    static const char *const others[] = {"ATTN_PLUGIN_NOTE", "attn_plugin_entry_v1", "attn_plan_get_sizes",
                                         "attn-info", NULL};
    const char *sign = strchr(word, '=');
    struct attn_problem problem;
    char string[128];

    if (strncmp(word, "ATTN_", 5) == 0 || strncmp(word, "attn", 4) == 0) {
        size_t size = sign != NULL ? (size_t)(sign - word) : strlen(word);
        cr_assert(is_setting(word, size, sign != NULL ? sign + 1 : NULL) ||
                      begins_with_one_of(word, others) || strncmp(word, "attn/", 5) == 0,
                  "%s speaks of %s, which does not exist", name, word);
    } else if (sign != NULL && word[0] != '-') {
        ATTN_INIT(&problem);
        snprintf(string, sizeof string, "heads=8 head_dim=64 q=bf16 %s", word);
        cr_assert_eq(attn_problem_parse(string, &problem, NULL), ATTN_OK, "%s advises %s", name, word);
    }
}

static void check_words(const char *name, const char *text)
{
    static const char *const commands[] = {"list", "explain", "why FILE", "rescan", "path", "matrix", NULL};
    char copy[256], *rest = copy;

    snprintf(copy, sizeof copy, "%s", text);
    for (char *word; (word = strsep(&rest, " ,;:")) != NULL;)
        check_word(name, word);
    const char *tool = strstr(text, "attn-info ");
    cr_assert(tool == NULL || begins_with_one_of(tool + strlen("attn-info "), commands),
              "%s sends to a command that does not exist: %s", name, text);
}

Test(texts, are_spelled_alike)
{
    for (size_t i = 0; i < TEXTS; i++) {
        if (!is_foreign(&texts[i]))
            check_spelling(texts[i].name, texts[i].text);
        check_words(texts[i].name, texts[i].text);
        if (strcmp(texts[i].name, "ATTN_OK") == 0) {
            cr_assert_str_eq(texts[i].advice, "");
            continue;
        }
        check_spelling(texts[i].name, texts[i].advice);
        check_words(texts[i].name, texts[i].advice);
    }
}

Test(texts, no_two_codes_have_the_same)
{
    for (size_t i = 0; i < TEXTS; i++) {
        for (size_t j = 0; j < i; j++) {
            cr_assert_str_neq(texts[i].text, texts[j].text, "%s and %s", texts[i].name, texts[j].name);
            cr_assert_str_neq(texts[i].name, texts[j].name);
        }
        cr_assert_str_neq(texts[i].text, texts[i].advice, "%s", texts[i].name);
    }
}

Test(texts, an_advice_says_what_to_do)
{
    static const char *const verbs[] = {
        "add",    "allocate",      "allow",  "ask",  "build",   "check",   "convert", "copy",
        "define", "destroy",       "export", "free", "give",    "install", "let",     "lower",
        "move",   "nothing to do", "put",    "read", "rebuild", "remove",  "report",  "restart",
        "run",    "split",         "update", "use",  "wait",    "write",   NULL};

    for (size_t i = 0; i < TEXTS; i++)
        if (strcmp(texts[i].name, "ATTN_OK") != 0)
            cr_assert(begins_with_one_of(texts[i].advice, verbs), "%s: %s", texts[i].name, texts[i].advice);
}

Test(texts, variables_are_explained)
{
    static const struct text variables[] = {
#define ATTN_VARIABLE(name, type, fallback, elevated, help) {#name, help, type},
#include "base/env.def"
    };
    const size_t count = sizeof variables / sizeof variables[0];

    for (size_t i = 0; i < count; i++) {
        const char *help = variables[i].text;
        size_t size = strlen(help);
        cr_assert(size > 10 && size < 200 && strchr(".!?:;, ", help[size - 1]) == NULL, "%s: %s",
                  variables[i].name, help);
        cr_assert(strstr(help, "  ") == NULL && strchr(help, '\n') == NULL, "%s", variables[i].name);
        cr_assert(islower((unsigned char)help[0]) || isdigit((unsigned char)help[0]) ||
                      strncmp(help, "CPU ", 4) == 0,
                  "%s: %s", variables[i].name, help);
        for (size_t j = 0; j < i; j++)
            cr_assert_str_neq(help, variables[j].text);
    }
}
