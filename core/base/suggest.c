/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Compares names as users write them: without case and dashes, by globs, and by the nearest known name. */
#define _GNU_SOURCE
#include <fnmatch.h>

#include "core.h"

/* Longer names are not compared. */
#define LONGEST_NAME 64

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool counts(char c)
{
    return c != '-' && c != '_';
}

/* Copies in lower case, without - and _; false if it does not fit. In brackets of a glob they are kept:
 * ranges. */
static bool fold(const char *name, bool glob, char *out, size_t size)
{
    size_t n = 0;
    bool inside = false;
    for (const char *p = name; *p != '\0'; p++) {
        if (glob && *p == '[' && strchr(p, ']') != NULL)
            inside = true;
        else if (*p == ']')
            inside = false;
        if (!inside && !counts(*p))
            continue;
        if (n + 1 >= size)
            return false;
        out[n++] = lower(*p);
    }
    out[n] = '\0';
    return true;
}

bool attn__same_name(const char *a, const char *b)
{
    for (;;) {
        while (*a != '\0' && !counts(*a))
            a++;
        while (*b != '\0' && !counts(*b))
            b++;
        if (lower(*a) != lower(*b))
            return false;
        if (*a == '\0')
            return true;
        a++;
        b++;
    }
}

const char *attn__kind_hint(const char *name)
{
    static const struct {
        const char *name, *hint;
    } kinds[] = {
#define ATTN_KIND(name, hint) {name, hint},
#include "base/kinds.def"
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (attn__same_name(name, kinds[i].name))
            return kinds[i].hint;
    return NULL;
}

void attn__add_name(char *list, size_t size, const char *name)
{
    const size_t used = strlen(list), length = strlen(name);
    for (const char *at = list; length > 0 && (at = strstr(at, name)) != NULL; at++)
        if ((at == list || at[-1] == ' ') && (at[length] == ',' || at[length] == '\0'))
            return;
    if (used + length + 3 <= size) {
        memcpy(list + used, ", ", 3);
        memcpy(list + used + (used > 0 ? 2 : 0), name, length + 1);
    }
}

bool attn__name_matches(const char *pattern, const char *name)
{
    char p[256], n[256];
    if (!fold(pattern, true, p, sizeof p) || !fold(name, false, n, sizeof n))
        return false;
    return fnmatch(p, n, 0) == 0;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edit distance: insertions, deletions, replacements, and swaps of neighbours. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t rows[3][LONGEST_NAME + 1];
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *now = rows[i % 3], *last = rows[(i - 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            now[j] = smaller(smaller(now[j - 1], last[j]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = smaller(now[j], rows[(i - 2) % 3][j - 2] + 1);
        }
    }
    return rows[na % 3][nb];
}

const char *attn__nearest(const char *name, const char *const *names, size_t count)
{
    char a[LONGEST_NAME + 1], b[LONGEST_NAME + 1];
    if (!fold(name, false, a, sizeof a))
        return NULL;
    size_t na = strlen(a);
    const char *best = NULL;
    size_t best_distance = 0;
    for (size_t i = 0; i < count; i++) {
        if (!fold(names[i], false, b, sizeof b))
            continue;
        size_t nb = strlen(b), d = distance(a, na, b, nb);
        /* Every third letter may differ; in very short names one, but not all of them. */
        size_t longer = na > nb ? na : nb, most = longer < 3 ? longer / 2 : longer / 3;
        if (d <= most && (best == NULL || d < best_distance)) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}
