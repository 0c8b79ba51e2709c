/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The decisions of a model that is decided part by part: parts.c makes them, parts-share.c compares them. */
#ifndef ATTN_PARTS_H
#define ATTN_PARTS_H

#include "select/select.h"

struct attn__part {
    struct attn_part_decision info;
    struct attn_problem problem; /* resolved */
    const char *wanted;          /* the caller's list of this part, or NULL; read while parts are decided */
    uint32_t reader; /* of the first part that uses a cache: the part whose problem gives its types */
    char metadata_text[320];
    char cache_text[320];
};

struct attn_parts {
    struct attn__part *parts;
    uint32_t count;
    struct attn_decision **decisions; /* [count], of which decision_count are there */
    uint32_t decision_count;
};

/* Fills in what each part shares with lower-numbered ones, and what differs where it does not. parts-share.c
 */
int32_t attn__parts_share(struct attn_parts *parts, struct attn_error *err);

#endif
