/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory for what calls of the plugin fill in, where the probe sees whether they wrote beside it. */
#include <stdlib.h>

#include "plugin/probe/worker.h"

/* Bytes between outputs. A damaged offset of one byte misses its struct by at most 128. */
#define MARGIN 512u
#define MARK   0x5a

static unsigned char room[1u << 15];
static size_t used;
static struct {
    size_t at, size;
} outputs[8];
static uint32_t count;

void outputs_begin(void)
{
    memset(room, MARK, sizeof room);
    used = MARGIN;
    count = 0;
}

void *outputs_add(size_t size)
{
    const size_t at = used;

    if (count == sizeof outputs / sizeof outputs[0] || size > sizeof room - MARGIN - at)
        abort();
    outputs[count].at = at;
    outputs[count++].size = size;
    used += (size + 15) / 16 * 16 + MARGIN;
    return memset(room + at, 0, size);
}

bool outputs_are_alone(void)
{
    size_t from = 0;

    for (uint32_t i = 0; i <= count; i++) {
        const size_t to = i < count ? outputs[i].at : used;
        while (from < to)
            if (room[from++] != MARK)
                return false;
        from += i < count ? outputs[i].size : 0;
    }
    return true;
}
