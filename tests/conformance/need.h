/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory that a test program cannot go on without. */
#ifndef NEED_H
#define NEED_H

#include <stdio.h>
#include <stdlib.h>

static inline void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "check-kernels: out of memory\n");
        exit(2);
    }
    return memory;
}

#endif
