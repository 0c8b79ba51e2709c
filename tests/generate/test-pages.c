/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pages of a cache: no page belongs to two sequences, what was freed comes back, and too much is refused. */
#include "pages.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 11, BLOCK = 4, SEQS = 3, WIDTH = 6 };

static void start(struct pages *p)
{
    struct failure err = {0};
    cr_assert_eq(pages_init(p, COUNT, BLOCK, SEQS, WIDTH, 7, &err), 0, "%s", err.text);
}

/* Every page is either free once or held once. */
static void check_owners(const struct pages *p)
{
    uint32_t owners[COUNT] = {0};
    for (uint32_t i = 0; i < p->free_count; i++)
        owners[p->free_pages[i]]++;
    for (uint32_t s = 0; s < SEQS; s++)
        for (uint32_t i = 0; i < WIDTH; i++) {
            int32_t page = p->table[s * WIDTH + i];
            cr_assert((page >= 0) == (i < p->held[s]), "sequence %u, entry %u is %d", s, i, page);
            if (page >= 0)
                owners[page]++;
        }
    for (uint32_t i = 0; i < COUNT; i++)
        cr_assert_eq(owners[i], 1, "page %u has %u owners", i, owners[i]);
}

Test(pages, grow_by_whole_pages)
{
    struct pages p;
    start(&p);
    check_owners(&p);
    cr_assert_eq(pages_grow(&p, 0, 1, NULL), 0);
    cr_assert_eq(p.held[0], 1);
    cr_assert_eq(pages_grow(&p, 0, BLOCK, NULL), 0);
    cr_assert_eq(p.held[0], 1);
    cr_assert_eq(pages_grow(&p, 0, BLOCK + 1, NULL), 0);
    cr_assert_eq(p.held[0], 2);
    cr_assert_eq(pages_grow(&p, 1, 3 * BLOCK, NULL), 0);
    cr_assert_eq(p.held[1], 3);
    cr_assert_eq(p.free_count, COUNT - 5);
    check_owners(&p);
    cr_assert_eq(pages_slot(&p, 1, BLOCK + 2), p.table[WIDTH + 1] * BLOCK + 2);
    pages_finish(&p);
}

Test(pages, freed_pages_are_the_next)
{
    struct pages p;
    int32_t mine[3];
    start(&p);
    cr_assert_eq(pages_grow(&p, 0, 2 * BLOCK, NULL), 0);
    cr_assert_eq(pages_grow(&p, 1, 3 * BLOCK, NULL), 0);
    memcpy(mine, p.table + WIDTH, sizeof mine);
    pages_release(&p, 1);
    check_owners(&p);
    cr_assert_eq(p.held[1], 0);
    cr_assert_eq(pages_grow(&p, 2, 3 * BLOCK, NULL), 0);
    cr_assert_arr_eq(p.table + (size_t)2 * WIDTH, mine, sizeof mine);
    check_owners(&p);
    pages_release(&p, 1); /* it holds nothing any more */
    check_owners(&p);
    pages_finish(&p);
}

Test(pages, refuse_too_much_and_keep_the_rest)
{
    struct pages p;
    struct failure err = {0};
    start(&p);
    cr_assert_eq(pages_grow(&p, 0, WIDTH * BLOCK, NULL), 0);
    cr_assert_eq(pages_grow(&p, 0, WIDTH * BLOCK + 1, &err), -1);
    cr_assert_str_eq(err.text, "sequence 0 wants 7 pages; accepted are sequences below 3 and up to 6 pages");
    cr_assert_eq(pages_grow(&p, SEQS, 1, &err), -1);
    cr_assert_eq(pages_grow(&p, 1, WIDTH * BLOCK, &err), -1);
    cr_assert_str_eq(err.text, "sequence 1 wants 6 more pages; 5 of 11 are free");
    check_owners(&p);
    cr_assert_eq(pages_grow(&p, 1, 5 * BLOCK, NULL), 0);
    cr_assert_eq(p.free_count, 0);
    check_owners(&p);
    pages_finish(&p);
}

Test(pages, neighbours_in_a_table_are_not_neighbours_in_memory)
{
    struct pages p;
    uint32_t neighbours = 0;
    start(&p);
    cr_assert_eq(pages_grow(&p, 0, WIDTH * BLOCK, NULL), 0);
    for (uint32_t i = 1; i < WIDTH; i++)
        neighbours += abs(p.table[i] - p.table[i - 1]) == 1;
    cr_assert_lt(neighbours, WIDTH - 1);
    pages_finish(&p);
}
