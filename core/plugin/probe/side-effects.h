/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a plugin changes in its process: measured before it is loaded and after its finish. */
#ifndef ATTN_PLUGIN_SIDE_EFFECTS_H
#define ATTN_PLUGIN_SIDE_EFFECTS_H

/* Also turns stdout and stderr into a file in memory, so that output is seen. */
void side_effects_begin(void);
/* Says every difference; attn-check's kind side-effects has the details. */
void side_effects_end(void (*say)(const char *text));

#endif
