/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sorts KEY=VALUE arguments into the bench's own keys and those of the problem string. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "complete.h"
#include "core.h"
#include "transport.h"

enum { NAMES = 96, MOST_SEQS = 1 << 20, MOST_KEYS = 1 << 28 };

struct own_key;
static bool set_skew(const struct own_key *own, void *to, const char *value);
static bool set_switch(const struct own_key *own, void *to, const char *value);
static bool set_file(const struct own_key *own, void *to, const char *value);
static bool set_speed(const struct own_key *own, void *to, const char *value);
static bool set_transport(const struct own_key *own, void *to, const char *value);
static bool set_pass(const struct own_key *own, void *to, const char *value);

static const struct own_key {
    const char *name;
    size_t offset;
    uint32_t most; /* 0: what `set` takes */
    bool (*set)(const struct own_key *own, void *to, const char *value);
} own_keys[] = {
    {"seqs", offsetof(struct bench_keys, seqs), MOST_SEQS, NULL},
    {"ctx", offsetof(struct bench_keys, ctx), MOST_KEYS, NULL},
    {"q_len", offsetof(struct bench_keys, q_len), 1u << 24, NULL},
    {"prefix", offsetof(struct bench_keys, prefix), MOST_KEYS, NULL},
    {"skew", offsetof(struct bench_keys, skew), 0, set_skew},
    {"layers", offsetof(struct bench_keys, layers), 4096, NULL},
    {"threads", offsetof(struct bench_keys, threads), 4096, NULL},
    {"reps", offsetof(struct bench_keys, reps), 1000000, NULL},
    {"cold", offsetof(struct bench_keys, cold), 1u << 20, NULL},
    {"ranks", offsetof(struct bench_keys, ranks), 1024, NULL},
    {"transport", offsetof(struct bench_keys, transport), 0, set_transport},
    {"pass", offsetof(struct bench_keys, pass), 0, set_pass},
    {"trace", offsetof(struct bench_keys, trace), 0, set_file},
    {"requests", offsetof(struct bench_keys, requests), 1u << 30, NULL},
    {"chunk", offsetof(struct bench_keys, chunk), 1u << 24, NULL},
    {"blocks", offsetof(struct bench_keys, blocks), 1u << 28, NULL},
    {"host_blocks", offsetof(struct bench_keys, host_blocks), 1u << 28, NULL},
    {"reuse", offsetof(struct bench_keys, reuse), 0, set_switch},
    {"speed", offsetof(struct bench_keys, speed), 0, set_speed},
    {"noop", offsetof(struct bench_keys, noop), 0, set_switch},
};

/* True if the list, separated by spaces, holds the word. */
static bool list_holds(const char *list, const char *word, size_t size)
{
    for (; *list != '\0'; list += strcspn(list, " "), list += strspn(list, " "))
        if (strcspn(list, " ") == size && strncmp(list, word, size) == 0)
            return true;
    return false;
}

static bool is_problem_key(const char *name, size_t size)
{
    const char *key;

    for (uint32_t i = 0; (key = attn_problem_key(i, NULL, NULL)) != NULL; i++)
        if (strlen(key) == size && strncmp(key, name, size) == 0)
            return true;
    return false;
}

/* The keys of a mode as a text; free it. */
static char *accepted_keys(const char *allowed)
{
    char *text = need_copy("");

    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++) {
        if (!list_holds(allowed, own_keys[i].name, strlen(own_keys[i].name)))
            continue;
        char *longer = need_format("%s%s%s", text, text[0] != '\0' ? ", " : "", own_keys[i].name);
        free(text);
        text = longer;
    }
    if (!list_holds(allowed, "problem", 7))
        return text;
    char *longer = need_format("%s and the keys of the problem string", text);
    free(text);
    return longer;
}

void keys_offer(const struct command_line *line, const char *allowed)
{
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        if (list_holds(allowed, own_keys[i].name, strlen(own_keys[i].name)) &&
            !complete_is_given(line, 1, own_keys[i].name))
            complete_offer(line, "", own_keys[i].name, "=");
    if (list_holds(allowed, "problem", 7))
        complete_problem(line, 1);
}

/* Says that a key is not known to a mode, what is, and what was perhaps meant. */
static void complain_unknown(const char *mode, const char *allowed, const char *key)
{
    const char *names[NAMES], *problem_key;
    size_t count = 0;

    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        if (list_holds(allowed, own_keys[i].name, strlen(own_keys[i].name)))
            names[count++] = own_keys[i].name;
    bool problem = list_holds(allowed, "problem", 7);
    for (uint32_t i = 0; problem && count < NAMES && (problem_key = attn_problem_key(i, NULL, NULL)) != NULL;
         i++)
        names[count++] = problem_key;
    const char *nearest = attn__nearest(key, names, count);
    char *accepted = accepted_keys(allowed);
    complain("mode %s has no key \"%s\"%s%s%s; accepted are %s", mode, key,
             nearest != NULL ? ", did you mean \"" : "", nearest != NULL ? nearest : "",
             nearest != NULL ? "\"?" : "", accepted);
    free(accepted);
}

static void complain_keyless(const char *mode, const char *allowed, const char *word)
{
    char *accepted = accepted_keys(allowed);

    complain("argument \"%s\" is no KEY=VALUE; mode %s accepts %s, as in reps=5", word, mode, accepted);
    free(accepted);
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

static bool is_twice(const struct own_key *own, bool given)
{
    if (given)
        complain("key %s is given twice; give it once", own->name);
    return given;
}

static bool set_skew(const struct own_key *own, void *to, const char *value)
{
    struct bench_skew skew, *out = to;
    const char *rest = value;

    if (is_twice(own, out->count != 0))
        return false;
    if (!take_number(&rest, MOST_KEYS, &skew.longer) || *rest++ != ':' ||
        !take_number(&rest, MOST_SEQS - 1, &skew.count) || *rest++ != 'x' ||
        !take_number(&rest, MOST_KEYS, &skew.shorter) || *rest != '\0') {
        complain("key skew has the value \"%s\"; accepted is LONG:COUNTxSHORT with whole numbers: one "
                 "sequence of LONG keys (1 to %u) and COUNT (1 to %u) of SHORT keys (1 to %u)",
                 value, MOST_KEYS, MOST_SEQS - 1, MOST_KEYS);
        return false;
    }
    *out = skew;
    return true;
}

static bool set_switch(const struct own_key *own, void *to, const char *value)
{
    struct bench_switch *out = to;

    if (is_twice(own, out->given))
        return false;
    if ((value[0] != '0' && value[0] != '1') || value[1] != '\0') {
        complain("key %s has the value \"%s\"; accepted are 0 and 1", own->name, value);
        return false;
    }
    *out = (struct bench_switch){.given = 1, .on = value[0] == '1'};
    return true;
}

static bool set_file(const struct own_key *own, void *to, const char *value)
{
    const char **out = to;

    if (is_twice(own, *out != NULL))
        return false;
    if (value[0] == '\0') {
        complain("key %s has no value; accepted is the path of a file", own->name);
        return false;
    }
    *out = value;
    return true;
}

/* One of the words of a list that is separated by ", ". */
static bool set_word(const struct own_key *own, void *to, const char *value, const char *accepted)
{
    const size_t size = strlen(value);
    const char **out = to;

    if (is_twice(own, *out != NULL))
        return false;
    for (const char *word = accepted; *word != '\0'; word += strcspn(word, " "), word += *word == ' ')
        if (size > 0 && strcspn(word, ", ") == size && strncmp(word, value, size) == 0) {
            *out = value;
            return true;
        }
    complain("key %s has the value \"%s\"; accepted are %s", own->name, value, accepted);
    return false;
}

static bool set_transport(const struct own_key *own, void *to, const char *value)
{
    return set_word(own, to, value, TRANSPORTS);
}

static bool set_pass(const struct own_key *own, void *to, const char *value)
{
    return set_word(own, to, value, "keys, queries, heads, cheaper");
}

static bool set_speed(const struct own_key *own, void *to, const char *value)
{
    const char **out = to;
    char *end;
    double speed = strtod(value, &end);

    if (is_twice(own, *out != NULL))
        return false;
    if (strspn(value, "0123456789.") != strlen(value) || value[0] == '\0' || *end != '\0' ||
        (speed != 0 && !(speed >= 1e-3 && speed <= 1e6))) {
        complain("key %s has the value \"%s\"; accepted are 0 and numbers from 0.001 to 1000000", own->name,
                 value);
        return false;
    }
    *out = value;
    return true;
}

static bool set_own(struct bench_keys *keys, const struct own_key *own, const char *value)
{
    uint32_t number, wanted;
    const char *rest = value;

    if (own->set != NULL)
        return own->set(own, (char *)keys + own->offset, value);
    if (!take_number(&rest, own->most, &wanted) || *rest != '\0') {
        complain("key %s has the value \"%s\"; accepted are whole numbers from 1 to %u", own->name, value,
                 own->most);
        return false;
    }
    memcpy(&number, (const char *)keys + own->offset, sizeof number);
    if (is_twice(own, number != 0))
        return false;
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

bool keys_have(const struct bench_keys *keys, const char *key)
{
    const size_t size = strlen(key);

    for (const char *at = keys->problem; *at != '\0'; at += strcspn(at, " "), at += strspn(at, " "))
        if (strncmp(at, key, size) == 0 && at[size] == '=')
            return true;
    return false;
}

bool keys_parse(struct bench_keys *keys, const char *mode, const char *allowed, char **args, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        size_t size = strcspn(args[i], "=");
        const struct own_key *own = NULL;
        bool good;

        if (args[i][size] != '=' || size == 0) {
            complain_keyless(mode, allowed, args[i]);
            return false;
        }
        for (size_t j = 0; j < sizeof own_keys / sizeof *own_keys; j++)
            if (strlen(own_keys[j].name) == size && strncmp(own_keys[j].name, args[i], size) == 0)
                own = &own_keys[j];
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
