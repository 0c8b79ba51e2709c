/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The flavours that libattn-serving knows (enum attn_flavour). */
#ifndef ATTN_SERVING_FLAVOUR_H
#define ATTN_SERVING_FLAVOUR_H

#include "attn/plugin.h"

/* "flash-attn", static; NULL for a number that is no flavour. */
const char *attn__flavour_name(uint32_t flavour);
/*
 * Fills in a flavour that is 0 from the backend's name; names that no flavour has get FlashAttention's rules.
 * Refuses other numbers, and 0 without a backend.
 */
int32_t attn__flavour_choose(const struct attn_serving_host *host, uint32_t *flavour, struct attn_error *err);

#endif
