/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A kernel of one table, by its name. */
#include <string.h>

#include "fiber-names.h"

const struct driver_kernel *driver_named(const struct driver_kernel *table, const char *name)
{
    for (const struct driver_kernel *kernel = table; kernel->name != NULL; kernel++)
        if (strcmp(kernel->name, name) == 0)
            return kernel;
    return NULL;
}
