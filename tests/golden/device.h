/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Recorded results on a plugin's device: with --plugin steps are built and caches written in its memory, and
 * what is compared is what comes back from there. Without it everything lies in host memory, and what these
 * functions lend is the host's own.
 */
#ifndef GOLDEN_DEVICE_H
#define GOLDEN_DEVICE_H

#include "golden.h"

/* The plugin's backend; ends the program if there is none. From then on golden_device() answers it. */
void golden_device_open(struct golden *g, const char *plugin);
void golden_device_close(void);
struct attn_backend *golden_device(void);

/* Memory of the host that a call may read and write where the device reaches it. */
struct golden_lent {
    struct attn_buffer buffer;
    void *host;
    uint64_t size;
};

struct golden_lent golden_lend(void *host, uint64_t size);
/* What the device made of it comes back. */
void golden_return(const struct golden_lent *lent);
/* Copies an array of the device; false if there is none. It is counted. */
bool golden_read(const struct attn_buffer *from, void *to, uint64_t size);
unsigned long golden_reads(void);
/* A message of the library without "BACKEND: call: ", which calls on a backend begin with. */
const char *golden_message(const struct attn_error *err);

#endif
