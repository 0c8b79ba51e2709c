/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How foreign text (values of variables, paths, messages of plugins) is written into messages. */
#ifndef ATTN_SHOW_H
#define ATTN_SHOW_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Copies text; control characters, marks that change the direction of text, and bytes that are not UTF-8
 * become escapes such as "\n" or "\x1b". Text that does not fit is cut between characters, and false
 * returned. Escaped text is not changed again.
 */
bool attn__show(const char *text, char *out, size_t size);
/* True if attn__show would not change the text. */
bool attn__is_printable(const char *text);

#endif
