/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory that a test program cannot go on without. */
#ifndef NEED_H
#define NEED_H

#include <stdlib.h>

#include "output.h"

static inline void *need(void *memory)
{
    if (memory == NULL) {
        complain("out of memory");
        exit(EXIT_NO);
    }
    return memory;
}

#endif
