/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lists of words, and the values that the keys of the problem string have. */
#ifndef KEY_VALUES_H
#define KEY_VALUES_H

#include <stdbool.h>

/* A growing list of texts. */
struct words {
    char **items;
    unsigned count;
};

void words_add(struct words *words, const char *text);
/* Adds the words of a text, which spaces separate. */
void words_split(struct words *words, const char *text);
void words_finish(struct words *words);
/* All of them with ", " between; free it. */
char *words_join(const struct words *words);

/* The values behind "a|b|c (remark)"; false if those of the key are no list. */
bool key_list(const char *key, struct words *out);
/* The values of a key that tell what a backend can do: the library's list, or a sample; none if it has none.
 */
void key_values(const char *key, struct words *out);
/* "key" where the value is a switch or a sample, else "key=value"; free it. */
char *key_label(const char *key, const char *value);

#endif
