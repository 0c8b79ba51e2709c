/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Requests of a recorded trace, and the made-up tokens of their prompts.
 *
 * A trace tells when a request came and how long it was, not what it said. What prompts hold is made from the
 * number of the request alone, by a rule that lets some of them begin alike: see serve-trace.c.
 */
#ifndef SERVE_TRACE_H
#define SERVE_TRACE_H

#include <stdint.h>

#include "failure.h"

/* Most tokens of a prompt, and of an answer. */
enum { SERVE_MOST_TOKENS = 1 << 24 };

struct serve_request {
    double arrival;        /* seconds after the first */
    uint32_t prompt;       /* tokens */
    uint32_t answer;       /* tokens that are generated, 1 at least */
    uint32_t conversation; /* whose tokens it has, from the beginning on */
    uint32_t line;         /* in the file */
};

struct serve_trace {
    struct serve_request *requests; /* in order of arrival */
    uint32_t count;
    uint32_t longest; /* prompt and answer */
};

/*
 * Reads at most `limit` requests (0 = all) of a file: a line "TIMESTAMP,ContextTokens,GeneratedTokens", then
 * one such line for each. The failure names the file and the line. serve_trace_finish may follow either way.
 */
int serve_trace_read(struct serve_trace *trace, const char *path, uint32_t limit, struct failure *err);
void serve_trace_finish(struct serve_trace *trace);

/* Tokens [first, first + count) of a request's prompt and answer. */
void serve_trace_tokens(const struct serve_trace *trace, uint32_t request, uint32_t first, uint32_t count,
                        int32_t *out);

#endif
