/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Texts as they come, sequence after sequence. */
#ifndef GENERATE_PRINTER_H
#define GENERATE_PRINTER_H

#include <stdbool.h>
#include <stdint.h>

#include "batch.h"

struct printer {
    const struct engine *engine;
    const struct sequence *sequences;
    uint32_t count;
    bool numbered; /* a line with the number stands before each text */
    bool whole;    /* a text is printed when it is complete: a line of progress stands where it would grow */
    uint32_t current; /* the first sequence whose text is not complete */
    uint32_t printed; /* tokens of it */
    bool begun;       /* its first line is printed */
    struct utf8_stream stream;
};

/* Prints what has come since the last call; a text waits until all before it are complete. */
void printer_continue(struct printer *p);

/* The text of a sequence in memory that the caller frees; always UTF-8. Ends the program without memory. */
char *sequence_text(const struct engine *e, const struct sequence *s);

#endif
