/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Products of warp groups on fibers: when their sums are there, and which errors of a kernel are reported. */
#include <criterion/criterion.h>
#include <signal.h>

#include "device-fiber.h"
#include "fiber.h"

enum { THREADS = 128, MATRIX = 1024 };

/* What a kernel does wrong. */
enum fault { NONE, WRITES_SUMS, COPIES_OVER, NO_FENCE, NO_WAIT, ARRIVES_TWICE };

static _Alignas(16) uint8_t zeros[16];

/* Sums of two groups of products. */
static void multiply(const void *argument)
{
    const enum fault fault = *(const enum fault *)argument;
    unsigned char *matrix = gpu_shared();
    float a[8][4] = {{1}}, b[8][4] = {{2}};

    gpu_copy_async16(matrix + 16 * gpu_thread() % MATRIX, zeros, 16);
    gpu_copy_commit();
    GPU_COPY_WAIT(0);
    if (fault != NO_FENCE)
        gpu_fiber_fence_copies();
    gpu_barrier();
    gpu_fiber_begin_product(a, 8)[0][0] += 10;
    gpu_fiber_reads_matrix(matrix, MATRIX);
    gpu_fiber_commit_products();
    gpu_fiber_begin_product(b, 8)[0][0] += 10;
    gpu_fiber_reads_matrix(matrix + MATRIX, MATRIX);
    gpu_fiber_commit_products();
    if (fault == WRITES_SUMS)
        a[7][3] = 0;
    gpu_fiber_wait_products(1);
    cr_assert_eq(a[0][0], 11);
    cr_assert(isnan(b[0][0]), "a product is early");
    gpu_barrier();
    gpu_copy_async16(matrix + (fault == COPIES_OVER ? MATRIX : 0), zeros, 16);
    gpu_fiber_begin_product(b, 8)[0][0] += 10;
    gpu_fiber_commit_products();
    if (fault != NO_WAIT)
        gpu_fiber_wait_products(0);
    cr_assert(fault == NO_WAIT || b[0][0] == 22);
}

/* One half of the threads waits for the other, which does not. */
static void arrive(const void *argument)
{
    const enum fault fault = *(const enum fault *)argument;
    uint32_t *word = (uint32_t *)(void *)gpu_shared();

    for (uint32_t i = 0; i < 3; i++) {
        if (gpu_thread() >= THREADS / 2) {
            gpu_barrier_part(1, THREADS);
            cr_assert_eq(*word, i);
            gpu_barrier_arrive(2, THREADS);
            continue;
        }
        if (gpu_thread() == 0)
            *word = i;
        gpu_barrier_arrive(1, THREADS);
        if (fault == ARRIVES_TWICE)
            gpu_barrier_arrive(3, THREADS);
        gpu_barrier_part(2, THREADS);
    }
}

static void launch(fiber_kernel_fn kernel, enum fault fault, uint32_t order)
{
    const struct fiber_grid grid = {.x = 1, .threads = THREADS, .shared = 2 * MATRIX, .order = order};

    fiber_launch(kernel, &fault, &grid);
}

Test(products, sums_are_there_when_they_are_waited_for)
{
    for (uint32_t order = 0; order < 4; order++)
        launch(multiply, NONE, order);
}

Test(products, halves_meet_where_one_does_not_wait)
{
    launch(arrive, NONE, 0);
    launch(arrive, NONE, 2);
}

Test(products, sums_that_are_written_meanwhile_end_the_program, .signal = SIGABRT)
{
    launch(multiply, WRITES_SUMS, 0);
}

Test(products, copies_over_a_matrix_end_the_program, .signal = SIGABRT)
{
    launch(multiply, COPIES_OVER, 0);
}

Test(products, copies_without_a_fence_end_the_program, .signal = SIGABRT)
{
    launch(multiply, NO_FENCE, 0);
}

Test(products, products_that_nobody_waits_for_end_the_program, .signal = SIGABRT)
{
    launch(multiply, NO_WAIT, 0);
}

Test(products, a_thread_that_arrives_twice_ends_the_program, .signal = SIGABRT)
{
    launch(arrive, ARRIVES_TWICE, 0);
}
