/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lists of words, and the values that the keys of the problem string have. */
#include "key-values.h"

#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "output.h"

/* A value that tells for keys whose values are numbers without end. */
static const struct sample {
    const char *key;
    const char *value;
} samples[] = {{"window", "127"}, {"softcap", "30"}};

void words_add(struct words *words, const char *text)
{
    words->items = need_memory(words->items, (size_t)words->count + 1, sizeof *words->items);
    words->items[words->count++] = need_copy(text);
}

void words_split(struct words *words, const char *text)
{
    while (*text != '\0') {
        size_t size = strcspn(text, " ");
        char *word = need_format("%.*s", (int)size, text);
        words_add(words, word);
        free(word);
        text += size + (text[size] != '\0');
    }
}

void words_finish(struct words *words)
{
    for (unsigned i = 0; i < words->count; i++)
        free(words->items[i]);
    free(words->items);
    *words = (struct words){0};
}

char *words_join(const struct words *words)
{
    char *text = need_copy("");

    for (unsigned i = 0; i < words->count; i++) {
        char *longer = need_format("%s%s%s", text, i > 0 ? ", " : "", words->items[i]);
        free(text);
        text = longer;
    }
    return text;
}

bool key_list(const char *key, struct words *out)
{
    const char *name, *values;

    for (uint32_t i = 0; (name = attn_problem_key(i, NULL, &values)) != NULL; i++) {
        if (strcmp(name, key) != 0 || strchr(values, '|') == NULL)
            continue;
        size_t end = strcspn(values, " ");
        for (size_t at = 0; at < end;) {
            size_t size = strcspn(values + at, "| ");
            char *value = need_format("%.*s", (int)size, values + at);
            words_add(out, value);
            free(value);
            at += size + 1;
        }
        return true;
    }
    return false;
}

static bool is_sample(const char *key)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        if (strcmp(samples[i].key, key) == 0)
            return true;
    return false;
}

void key_values(const char *key, struct words *out)
{
    struct words values = {0};

    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        if (strcmp(samples[i].key, key) == 0)
            words_add(out, samples[i].value);
    key_list(key, &values);
    for (unsigned i = 0; i < values.count; i++) {
        const char *value = values.items[i];
        bool is_off = strcmp(value, "none") == 0 || strcmp(value, "never") == 0 ||
                      (strcmp(value, "0") == 0 && strcmp(key, "causal") != 0);
        if (!is_off)
            words_add(out, value);
    }
    words_finish(&values);
}

char *key_label(const char *key, const char *value)
{
    bool is_switch = strcmp(value, "1") == 0 && strcmp(key, "causal") != 0;

    return is_switch || is_sample(key) ? need_copy(key) : need_format("%s=%s", key, value);
}
