/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How foreign text (values of variables, paths, words of plugins) is written into messages. */
#ifndef ATTN_SHOW_H
#define ATTN_SHOW_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Copies text with every control character, every mark that turns the direction of writing and every byte
 * that is no UTF-8 as "\n" or "\x1b", cut between characters if it does not fit. A text that was treated once
 * stays as it is. False if it was cut.
 */
bool attn__show(const char *text, char *out, size_t size);
/* True if attn__show would change nothing. */
bool attn__is_plain(const char *text);

#endif
