/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random steps whose strides, offsets and page numbers go beyond 2^32, judged like all others. */
#define _GNU_SOURCE
#include "huge.h"

#include <sys/mman.h>
#include <time.h>

static void check_target(const struct target *target, struct step *step, struct huge_step *huge,
                         const struct reference *reference, uint64_t seed)
{
    struct attempt attempt = {.backend = target->backend};
    char why[768] = "";

    tap_begin(target, "huge", step->the_case->text, seed);
    int ran = step_run(&huge->step, target, &attempt, why, sizeof why);
    step->numerics = huge->step.numerics;
    if (ran == 0)
        tap_skip(why);
    else if (ran < 0 || !huge_collect(huge, step, why, sizeof why) ||
             !step_judge(step, reference, why, sizeof why))
        tap_fail("%s", why);
    else
        tap_pass();
}

static void check_case(struct target_list *list, const struct attn_problem *problem, uint64_t seed)
{
    static const struct effort effort = {2e6, 60000, 0};
    struct conform_case the_case;
    struct layout layout;
    struct step step;
    struct huge_step huge;
    struct reference reference;

    case_init(&the_case, problem, seed, &effort, false);
    layout_init(&layout, &the_case, seed);
    for (uint32_t t = 0; t < list->count; t++)
        target_demands(&list->targets[t], problem, &layout);
    step_init(&step, &the_case, &layout, true);
    bool good = step_reference(&reference, &step, effort.products);
    for (uint32_t t = 0; t < list->count && good; t++) {
        if (!huge_init(&huge, &step, seed)) {
            tap_begin(&list->targets[t], "huge", the_case.text, seed);
            tap_skip("the address space is too small for strides of 2^32 bytes");
            continue;
        }
        check_target(&list->targets[t], &step, &huge, &reference, seed);
        huge_finish(&huge);
    }
    reference_finish(&reference);
    step_finish(&step);
    case_finish(&the_case);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* An emulator may keep a record of every page that is reserved: minutes for a case. */
static bool is_sparse(void)
{
    double least = 1;

    for (int i = 0; i < 5; i++) {
        double began = now();
        void *map =
            mmap(NULL, (size_t)1 << 34, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED)
            return false;
        munmap(map, (size_t)1 << 34);
        least = now() - began < least ? now() - began : least;
    }
    return least < 1e-3;
}

void check_huge(struct target_list *list, const struct run_options *options)
{
    uint32_t cases = options_cases(options, 40, 400);

    if (!is_sparse()) {
        tap_begin(list->count > 0 ? &list->targets[0] : NULL, "huge", "", 0);
        tap_skip("the address space is too small for strides of 2^32 bytes");
        return;
    }
    for (uint32_t n = 0; n < cases; n++) {
        struct attn_problem problem;
        uint64_t seed;
        if (options_mine(options, n) && options_problem(options, n, 500, &problem, &seed))
            check_case(list, &problem, seed);
    }
}
