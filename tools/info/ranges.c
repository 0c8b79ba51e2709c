/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranges of numbers, joined to as few as say the same. */
#include "ranges.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

void ranges_add(struct ranges *ranges, int64_t first, int64_t last, int64_t step)
{
    ranges->items = need_memory(ranges->items, (size_t)ranges->count + 1, sizeof *ranges->items);
    ranges->items[ranges->count++] = (struct range){first, last, step > 1 ? step : 1};
}

/* `before` is what stands before the numbers. */
static void add_range(const struct range *range, const char *before, struct words *out)
{
    char *text;

    if (range->first == range->last)
        text = need_format("%s%" PRId64, before, range->first);
    else if (range->step > 1)
        text =
            need_format("%s%" PRId64 "-%" PRId64 "/%" PRId64, before, range->first, range->last, range->step);
    else
        text = need_format("%s%" PRId64 "-%" PRId64, before, range->first, range->last);
    words_add(out, text);
    free(text);
}

/* Joins b to a if both together are one range: they follow each other, or fill each other's gaps. */
static bool join_ranges(struct range *a, const struct range *b)
{
    const struct range *low = a->first < b->first ? a : b, *high = low == a ? b : a;
    int64_t step = a->step;

    if (a->step != b->step || (a->step > 1 && a->step % 2 != 0))
        return false;
    if (a->step > 1) {
        step = a->step / 2;
        if (high->first - low->first != step || llabs(high->last - low->last) != step)
            return false;
    } else if (low->last + 1 != high->first) {
        return false;
    }
    *a = (struct range){low->first, low->last > high->last ? low->last : high->last, step};
    return true;
}

void ranges_finish(struct ranges *ranges, const char *before, struct words *out)
{
    struct range *items = ranges->items;

    for (unsigned i = 0; i < ranges->count; i++) {
        for (unsigned j = i + 1; j < ranges->count; j++) {
            if (!join_ranges(&items[i], &items[j]))
                continue;
            memmove(&items[j], &items[j + 1], (ranges->count - j - 1) * sizeof *items);
            ranges->count--;
            i = (unsigned)-1; /* what was joined may join again */
            break;
        }
    }
    for (unsigned i = 0; i < ranges->count; i++)
        add_range(&items[i], before, out);
    free(items);
}
