/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sorts KEY=VALUE arguments into the bench's own keys and those of the problem string. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "core.h"

enum { NAMES = 96, MOST_SEQS = 1 << 20, MOST_KEYS = 1 << 28 };

static const struct own_key {
    const char *name;
    size_t offset;
    uint32_t most; /* 0: LONG:COUNTxSHORT */
} own_keys[] = {
    {"seqs", offsetof(struct bench_keys, seqs), MOST_SEQS},
    {"ctx", offsetof(struct bench_keys, ctx), MOST_KEYS},
    {"q_len", offsetof(struct bench_keys, q_len), 1u << 24},
    {"skew", offsetof(struct bench_keys, skew), 0},
    {"layers", offsetof(struct bench_keys, layers), 4096},
    {"threads", offsetof(struct bench_keys, threads), 4096},
    {"reps", offsetof(struct bench_keys, reps), 1000000},
};

/* True if the list, separated by spaces, holds the word. */
static bool list_holds(const char *list, const char *word, size_t size)
{
    for (; *list != '\0'; list += strcspn(list, " "), list += strspn(list, " ")) {
        if (strcspn(list, " ") == size && strncmp(list, word, size) == 0)
            return true;
    }
    return false;
}

static bool is_problem_key(const char *name, size_t size)
{
    const char *key;

    for (uint32_t i = 0; (key = attn_problem_key(i, NULL, NULL)) != NULL; i++) {
        if (strlen(key) == size && strncmp(key, name, size) == 0)
            return true;
    }
    return false;
}

/* Says that a key is not known to a mode, what is, and what was perhaps meant. */
static void complain_unknown(const char *mode, const char *allowed, const char *key)
{
    const char *names[NAMES], *problem_key;
    size_t count = 0;

    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++) {
        if (list_holds(allowed, own_keys[i].name, strlen(own_keys[i].name)))
            names[count++] = own_keys[i].name;
    }
    bool problem = list_holds(allowed, "problem", 7);
    for (uint32_t i = 0; problem && count < NAMES && (problem_key = attn_problem_key(i, NULL, NULL)) != NULL;
         i++)
        names[count++] = problem_key;
    const char *nearest = attn__nearest(key, names, count);
    char *own = need_copy("");
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++) {
        if (!list_holds(allowed, own_keys[i].name, strlen(own_keys[i].name)))
            continue;
        char *longer = need_format("%s%s%s", own, own[0] != '\0' ? ", " : "", own_keys[i].name);
        free(own);
        own = longer;
    }
    complain("mode %s has no key \"%s\"%s%s%s; accepted are %s%s", mode, key,
             nearest != NULL ? ", did you mean \"" : "", nearest != NULL ? nearest : "",
             nearest != NULL ? "\"?" : "", own, problem ? " and the keys of the problem string" : "");
    free(own);
}

/* A whole number at the start of a text; false if there is none from 1 to `most`. */
static bool take_number(const char **text, uint32_t most, uint32_t *out)
{
    char *end;

    errno = 0;
    unsigned long long read = strtoull(*text, &end, 10);
    if ((*text)[0] < '0' || (*text)[0] > '9' || errno != 0 || read < 1 || read > most)
        return false;
    *out = (uint32_t)read;
    *text = end;
    return true;
}

static bool set_skew(struct bench_keys *keys, const char *value)
{
    struct bench_skew skew;
    const char *rest = value;

    if (keys->skew.count != 0) {
        complain("key skew is given twice; give it once");
        return false;
    }
    if (!take_number(&rest, MOST_KEYS, &skew.longer) || *rest++ != ':' ||
        !take_number(&rest, MOST_SEQS - 1, &skew.count) || *rest++ != 'x' ||
        !take_number(&rest, MOST_KEYS, &skew.shorter) || *rest != '\0') {
        complain("key skew has the value \"%s\"; accepted is LONG:COUNTxSHORT with whole numbers: one "
                 "sequence of LONG keys (1 to %u) and COUNT (1 to %u) of SHORT keys (1 to %u)",
                 value, MOST_KEYS, MOST_SEQS - 1, MOST_KEYS);
        return false;
    }
    keys->skew = skew;
    return true;
}

static bool set_own(struct bench_keys *keys, const struct own_key *own, const char *value)
{
    uint32_t number, wanted;
    const char *rest = value;

    if (own->most == 0)
        return set_skew(keys, value);
    if (!take_number(&rest, own->most, &wanted) || *rest != '\0') {
        complain("key %s has the value \"%s\"; accepted are whole numbers from 1 to %u", own->name, value,
                 own->most);
        return false;
    }
    memcpy(&number, (const char *)keys + own->offset, sizeof number);
    if (number != 0) {
        complain("key %s is given twice; give it once", own->name);
        return false;
    }
    memcpy((char *)keys + own->offset, &wanted, sizeof wanted);
    return true;
}

static bool add_problem(struct bench_keys *keys, const char *text)
{
    size_t used = strlen(keys->problem);

    if (used + strlen(text) + 2 > sizeof keys->problem) {
        complain("the problem string is longer than %zu bytes; shorten it", sizeof keys->problem - 1);
        return false;
    }
    snprintf(keys->problem + used, sizeof keys->problem - used, "%s%s", used > 0 ? " " : "", text);
    return true;
}

bool keys_parse(struct bench_keys *keys, const char *mode, const char *allowed, char **args, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        size_t size = strcspn(args[i], "=");
        const struct own_key *own = NULL;
        bool good;

        if (args[i][size] != '=' || size == 0) {
            complain("argument \"%s\" is not accepted; KEY=VALUE is", args[i]);
            return false;
        }
        for (size_t j = 0; j < sizeof own_keys / sizeof *own_keys; j++) {
            if (strlen(own_keys[j].name) == size && strncmp(own_keys[j].name, args[i], size) == 0)
                own = &own_keys[j];
        }
        if (own != NULL && list_holds(allowed, own->name, size)) {
            good = set_own(keys, own, args[i] + size + 1);
        } else if (own == NULL && list_holds(allowed, "problem", 7) && is_problem_key(args[i], size)) {
            good = add_problem(keys, args[i]);
        } else {
            char *key = need_format("%.*s", (int)size, args[i]);
            complain_unknown(mode, allowed, key);
            free(key);
            good = false;
        }
        if (!good)
            return false;
    }
    return true;
}
