/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What attn-check has to say about each hostile plugin. */
#ifndef EXPECTED_H
#define EXPECTED_H

#include <stddef.h>

struct expected {
    const char *plugin; /* libattn-<plugin>.so */
    const char *kind;
    const char *check; /* must fail; NULL: nothing does */
    const char *text;  /* is part of what it says */
    const char *may;   /* "|one|two|": checks that the same fault may break as well */
};

extern const struct expected expected_failures[];
extern const size_t expected_count;

#endif
