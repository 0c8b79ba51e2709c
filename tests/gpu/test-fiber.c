/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The fibers themselves: how threads exchange values, and which errors of a kernel are reported. */
#include <criterion/criterion.h>
#include <signal.h>

#include "device-fiber.h"
#include "fiber.h"

enum { THREADS = 128 };

struct scene {
    uint32_t got[THREADS];
    float number[THREADS];
    uint32_t ctas;
    uint32_t fault; /* what a kernel leaves out */
    _Alignas(16) float a[16][16];
    _Alignas(16) float b[16][8];
    float d[16][8];
};

static struct scene scene;

static void launch(fiber_kernel_fn kernel, uint32_t order, size_t shared)
{
    const struct fiber_grid grid = {.x = 2, .threads = THREADS, .shared = shared, .order = order};

    fiber_launch(kernel, &scene, &grid);
}

static void talk(const void *argument)
{
    const uint32_t thread = gpu_thread(), lane = thread % GPU_WARP;
    float sum = (float)lane;

    (void)argument;
    cr_assert_eq(gpu_shuffle_u32(thread, 5), thread - lane + 5);
    cr_assert_eq(gpu_shuffle_xor_u32(thread, 3), thread ^ 3);
    cr_assert_eq(gpu_shuffle_u64((uint64_t)thread << 40, lane / 2) >> 40, thread - lane + lane / 2);
    cr_assert_eq(gpu_ballot(lane % 3 == 0), 0x49249249u);
    for (uint32_t mask = 16; mask > 0; mask /= 2)
        sum += gpu_shuffle_xor_f32(sum, mask);
    cr_assert_eq(sum, 496);
    cr_assert_eq(gpu_shuffle_xor_f64((double)lane, 31), (double)(31 - lane));
    if (thread == 0)
        gpu_atomic_add(&scene.ctas, 1);
}

Test(fiber, lanes_talk)
{
    for (uint32_t order = 0; order < 4; order++) {
        scene.ctas = 0;
        launch(talk, order, 0);
        cr_assert_eq(scene.ctas, 2);
    }
}

/* Each thread reads what the one on the other side of the CTA wrote. */
static void turn_round(const void *argument)
{
    GPU_SHARED float turn[THREADS];
    const struct scene *s = argument;
    const uint32_t thread = gpu_thread();

    turn[thread] = (float)thread;
    if (s->fault == 0)
        gpu_barrier();
    scene.number[thread] = turn[THREADS - 1 - thread];
    if (thread >= THREADS / 2)
        return; /* the others' barrier does not wait for these */
    gpu_barrier();
    scene.got[thread] = thread;
}

static uint32_t count_wrong(uint32_t order)
{
    uint32_t wrong = 0;

    launch(turn_round, order, 0);
    for (uint32_t i = 0; i < THREADS; i++)
        wrong += !(scene.number[i] == (float)(THREADS - 1 - i));
    return wrong;
}

Test(fiber, barriers_order_shared_memory)
{
    for (uint32_t order = 0; order < 4; order++)
        cr_assert_eq(count_wrong(order), 0);
    scene.fault = 1;
    for (uint32_t order = 0; order < 4; order++)
        cr_assert_gt(count_wrong(order), 0, "no thread is early in order %u", order);
}

static void part_barriers(const void *argument)
{
    GPU_SHARED uint32_t words[2];
    const uint32_t half = gpu_thread() / (THREADS / 2);

    (void)argument;
    if (gpu_thread() % (THREADS / 2) == 0)
        words[half] = half + 7;
    gpu_barrier_part(1 + half, THREADS / 2);
    cr_assert_eq(words[half], half + 7);
}

Test(fiber, halves_have_barriers)
{
    for (uint32_t order = 0; order < 4; order++)
        launch(part_barriers, order, 0);
}

static void copy(const void *argument)
{
    const struct scene *s = argument;
    uint32_t *to = (uint32_t *)(void *)(gpu_shared() + 16 * gpu_thread());

    gpu_copy_async16(to, s->a, 4);
    gpu_copy_commit();
    cr_assert_eq(to[0], 0xffffffffu, "a copy is early");
    if (s->fault == 0)
        GPU_COPY_WAIT(0);
    scene.got[gpu_thread()] = to[0];
    if (s->fault != 0)
        return;
    cr_assert_eq(to[0], gpu_f32_bits(s->a[0][0]));
    cr_assert_eq(to[1], 0);
}

Test(fiber, copies_arrive_when_they_are_waited_for)
{
    scene.a[0][0] = 3;
    launch(copy, 0, 16 * THREADS);
    scene.fault = 1;
    launch(copy, 0, 16 * THREADS);
    cr_assert_eq(scene.got[3], 0xffffffffu);
}

static void copy_word(const void *argument)
{
    const struct scene *s = argument;
    float *to = (float *)(void *)gpu_shared() + gpu_thread();

    gpu_copy_async4(to, (uint64_t)(uintptr_t)&s->a[0][gpu_thread() % 16]);
    gpu_copy_commit();
    cr_assert_eq(gpu_f32_bits(*to), 0xffffffffu, "a copy is early");
    GPU_COPY_WAIT(0);
    cr_assert_eq(*to, s->a[0][gpu_thread() % 16]);
    gpu_barrier(); /* and no copy wrote beside its own word */
    cr_assert_eq(*((float *)(void *)gpu_shared() + (gpu_thread() + 1) % THREADS),
                 s->a[0][(gpu_thread() + 1) % THREADS % 16]);
}

Test(fiber, words_are_copied)
{
    for (uint32_t i = 0; i < 16; i++)
        scene.a[0][i] = (float)i + 1;
    launch(copy_word, 0, 4 * THREADS);
}

static void transpose(const void *argument)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, row = lane / 4, column = lane % 4 * 2;
    const uint32_t own = (row * 8 + column) | (row * 8 + column + 1) << 16;

    (void)argument;
    scene.got[gpu_thread()] = gpu_transpose_matrix(own);
}

Test(fiber, matrices_are_transposed)
{
    launch(transpose, 0, 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        const uint32_t row = i % 32 / 4, column = i % 4 * 2;
        cr_assert_eq(scene.got[i], (column * 8 + row) | ((column + 1) * 8 + row) << 16);
    }
}

/* One warp multiplies scene.a and scene.b, loaded from shared memory. */
static void multiply(const void *argument)
{
    const struct scene *s = argument;
    const uint32_t lane = gpu_thread();
    uint16_t *a = (uint16_t *)(void *)gpu_shared(), *b = a + 256;
    uint32_t left[4], right[4];
    float d[4] = {1, 1, 1, 1};

    for (uint32_t i = lane; i < 256; i += GPU_WARP)
        a[i] = s->fault != 0 ? gpu_f32_to_bf16(s->a[i / 16][i % 16]) : gpu_f32_to_f16(s->a[i / 16][i % 16]);
    for (uint32_t i = lane; i < 128; i += GPU_WARP)
        b[i] = s->fault != 0 ? gpu_f32_to_bf16(s->b[i / 8][i % 8]) : gpu_f32_to_f16(s->b[i / 8][i % 8]);
    gpu_warp_barrier();
    gpu_load_matrix4(left, a + (lane % 16) * 16 + lane / 16 * 8);
    gpu_load_matrix4_trans(right, b + (lane % 16) * 8);
    if (s->fault != 0)
        gpu_mma_bf16(d, left, right);
    else
        gpu_mma_f16(d, left, right);
    for (uint32_t i = 0; i < 4; i++)
        scene.d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = d[i];
}

Test(fiber, matrices_multiply)
{
    const struct fiber_grid grid = {.x = 1, .threads = 32, .shared = 768};

    for (scene.fault = 0; scene.fault < 2; scene.fault++) {
        for (uint32_t i = 0; i < 256; i++)
            scene.a[i / 16][i % 16] = (float)(i * 37 % 41) - 20;
        for (uint32_t i = 0; i < 128; i++)
            scene.b[i / 8][i % 8] = (float)(i * 29 % 31) - 15;
        fiber_launch(multiply, &scene, &grid);
        for (uint32_t r = 0; r < 16; r++) {
            for (uint32_t c = 0; c < 8; c++) {
                float sum = 1;
                for (uint32_t k = 0; k < 16; k++)
                    sum += scene.a[r][k] * scene.b[k][c];
                cr_assert_eq(scene.d[r][c], sum, "row %u column %u: %f, not %f", r, c, (double)scene.d[r][c],
                             (double)sum);
            }
        }
    }
}

static void part_ways(const void *argument)
{
    (void)argument;
    if (gpu_thread() % 2 == 0)
        gpu_ballot(true);
    else
        gpu_warp_barrier();
}

Test(fiber, lanes_that_part_ways_end_the_program, .signal = SIGABRT)
{
    launch(part_ways, 0, 0);
}

static void go_missing(const void *argument)
{
    (void)argument;
    if (gpu_thread() != 3)
        gpu_ballot(true);
}

Test(fiber, a_lane_that_is_gone_ends_the_program, .signal = SIGABRT)
{
    launch(go_missing, 0, 0);
}

static void wait_alone(const void *argument)
{
    (void)argument;
    gpu_barrier_part(2, gpu_thread() < 32 ? 64 : THREADS);
    gpu_barrier_part(3, 64);
}

Test(fiber, a_barrier_that_is_not_reached_ends_the_program, .signal = SIGABRT)
{
    const struct fiber_grid grid = {.x = 1, .threads = 32};

    fiber_launch(wait_alone, &scene, &grid);
}

static void miss_shared(const void *argument)
{
    const struct scene *s = argument;

    gpu_copy_async16((void *)(uintptr_t)&s->a, s->b, 16);
}

Test(fiber, a_copy_beyond_shared_memory_ends_the_program, .signal = SIGABRT)
{
    launch(miss_shared, 0, 64);
}
