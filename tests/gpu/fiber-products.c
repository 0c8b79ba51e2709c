/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Products of warp groups on fibers: which are under way, and what they read meanwhile. */
#include <stdlib.h>

#include "fiber-cta.h"

static bool ranges_meet(const struct fiber_range *a, const struct fiber_range *b)
{
    return a->begin < b->end && b->begin < a->end;
}

static struct fiber_range range_of(const void *at, uint32_t bytes)
{
    return (struct fiber_range){(uintptr_t)at, (uintptr_t)at + bytes};
}

/* Makes `range` the smallest one that holds both. */
static void extend(struct fiber_range *range, const struct fiber_range *other)
{
    if (range->end == 0 || other->begin < range->begin)
        range->begin = other->begin;
    if (other->end > range->end)
        range->end = other->end;
}

void fiber_check_not_read(const void *shared, uint32_t size)
{
    const struct fiber_range range = range_of(shared, size);

    for (uint32_t i = 0; i < fiber_cta.grid.threads; i += GPU_WARP)
        for (uint32_t k = 0; k < fiber_cta.thread[i].product_count; k++)
            for (uint32_t j = 0; j < fiber_cta.thread[i].products[k].range_count; j++)
                if (ranges_meet(&range, &fiber_cta.thread[i].products[k].ranges[j]))
                    fiber_die("a copy to %p, which a product of thread %u reads", shared, i);
}

/* Whether a thread has copied into a range without a fence. */
static bool is_unfenced(uint32_t thread, const struct fiber_range *range)
{
    bool found = false;

    for (uint32_t i = 0; i < FIBER_UNFENCED; i++)
        found = found || ranges_meet(range, &fiber_cta.thread[thread].unfenced[i]);
    return found;
}

void fiber_check_fenced(const void *shared, uint32_t size)
{
    const struct fiber_range range = range_of(shared, size);

    for (uint32_t i = 0; i < fiber_cta.grid.threads; i++)
        if (is_unfenced(i, &range))
            fiber_die("a box is copied over what thread %u has copied without a fence", i);
}

/* A thread's share of a stage lies scattered in it, and another stage may be between two that it has copied:
 * only what is near is one range. */
void fiber_note_copy(const void *shared, uint32_t size)
{
    struct fiber_range *unfenced = fiber_own_thread()->unfenced;
    const struct fiber_range range = range_of(shared, size),
                             near = {range.begin - FIBER_NEAR, range.end + FIBER_NEAR};
    uint32_t i = 0;

    while (i + 1 < FIBER_UNFENCED && unfenced[i].end != 0 && !ranges_meet(&near, &unfenced[i]))
        i++;
    extend(&unfenced[i], &range);
}

static const uint32_t under_way = 0x7fc0dead; /* what accumulators hold meanwhile: NaN */

static void check_untouched(const struct fiber_product *product)
{
    for (uint32_t i = 0; i < 4 * product->count; i++)
        if (memcmp(&product->d[i / 4][i % 4], &under_way, sizeof under_way) != 0)
            fiber_die("accumulators of a product under way are written");
}

float (*gpu_fiber_begin_product(float (*d)[4], uint32_t count))[4]
{
    struct fiber_thread *thread = fiber_own_thread();
    struct fiber_product *product = thread->products;

    while (product < thread->products + thread->product_count && product->d != d)
        product++;
    if (product == thread->products + FIBER_PRODUCTS || count > 32)
        fiber_die("products with more accumulators than are accepted");
    if (product == thread->products + thread->product_count) {
        thread->product_count++;
        product->d = d;
        product->count = count;
        product->range_count = 0;
        memcpy(product->values, d, count * sizeof *d);
        for (uint32_t i = 0; i < 4 * count; i++)
            memcpy(&d[i / 4][i % 4], &under_way, sizeof under_way);
    }
    check_untouched(product);
    product->group = thread->product_groups;
    if (product !=
        thread->products + thread->product_count - 1) { /* the last is that of which ranges are noted */
        const struct fiber_product own = *product;
        *product = thread->products[thread->product_count - 1];
        thread->products[thread->product_count - 1] = own;
        product = thread->products + thread->product_count - 1;
    }
    return product->values;
}

void gpu_fiber_reads_matrix(const unsigned char *at, uint32_t bytes)
{
    struct fiber_thread *thread = fiber_own_thread();
    struct fiber_product *product = &thread->products[thread->product_count - 1];
    const struct fiber_range range = range_of(at, bytes);

    fiber_check_shared(at, 1);
    if (fiber_cta.current % GPU_WARP != 0)
        return;
    for (uint32_t i = 0; i < fiber_cta.grid.threads; i++)
        if (is_unfenced(i, &range))
            fiber_die("a product reads what thread %u has copied without a fence", i);
    for (uint32_t i = 0; i < product->range_count; i++) {
        struct fiber_range *known = &product->ranges[i];
        if (range.begin <= known->end && known->begin <= range.end) {
            extend(known, &range);
            return;
        }
    }
    if (product->range_count == sizeof product->ranges / sizeof product->ranges[0])
        fiber_die("a product reads more places than are accepted");
    product->ranges[product->range_count++] = range;
}

void gpu_fiber_commit_products(void)
{
    fiber_own_thread()->product_groups++;
}

void gpu_fiber_wait_products(uint32_t groups)
{
    struct fiber_thread *thread = fiber_own_thread();
    uint32_t kept = 0;

    for (uint32_t i = 0; i < thread->product_count; i++) {
        struct fiber_product *product = &thread->products[i];
        check_untouched(product);
        if (product->group + groups >= thread->product_groups) {
            thread->products[kept++] = *product;
            continue;
        }
        memcpy(product->d, product->values, product->count * sizeof *product->d);
    }
    thread->product_count = kept;
}

void gpu_fiber_fence_copies(void)
{
    for (uint32_t i = 0; i < fiber_cta.grid.threads; i++)
        memset(fiber_cta.thread[i].unfenced, 0, sizeof fiber_cta.thread[i].unfenced);
}
