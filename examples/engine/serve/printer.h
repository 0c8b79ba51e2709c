/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Texts as they come, sequence after sequence, and a line at a terminal that says how far a batch is. */
#ifndef ENGINE_PRINTER_H
#define ENGINE_PRINTER_H

#include <stdbool.h>
#include <stdint.h>

#include "batch.h"

struct printer {
    const struct engine *engine;
    const struct sequence *sequences;
    uint32_t count;
    bool numbered; /* a line with the number is printed before each text */
    bool whole; /* a text is printed once it is complete: until then the line of progress is in its place */
    uint32_t current; /* the first sequence whose text is not complete */
    uint32_t printed; /* tokens of it */
    bool begun;       /* its first line is printed */
    struct utf8_stream stream;
};

/* Prints what has come since the last call; a text waits until all before it are complete. */
void printer_continue(struct printer *p);

/* The text of a sequence in memory that the caller frees; always UTF-8. Ends the program without memory. */
char *sequence_text(const struct engine *e, const struct sequence *s);

/* Whether standard error is a terminal that can rewrite a line; otherwise the functions below do nothing. */
bool progress_begin(void);
/* Replaces the line, ten times a second at most. */
void progress_show(const struct batch_progress *p);
/* Removes the line, so that a text can take its place. */
void progress_clear(void);

#endif
