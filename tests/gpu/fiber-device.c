/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Device intrinsics on fibers: warp operations, barriers, copies that arrive late, matrix fragments. */
#include "device-fiber.h"

#include <stdlib.h>

#include "fiber-cta.h"

/* ---------------------------------------------------------------- places */

uint32_t gpu_thread(void)
{
    return fiber_cta.current;
}
uint32_t gpu_threads(void)
{
    return fiber_cta.grid.threads;
}
uint32_t gpu_cta(void)
{
    return fiber_cta.x;
}
uint32_t gpu_cta_y(void)
{
    return fiber_cta.y;
}
uint32_t gpu_cta_z(void)
{
    return fiber_cta.z;
}
uint32_t gpu_ctas(void)
{
    return fiber_cta.grid.x;
}
unsigned char *gpu_shared(void)
{
    return fiber_cta.shared;
}

/* ---------------------------------------------------------------- meetings */

/* Others run until somebody makes this thread ready: first the lane that is next in the launch's order. */
static void wait_in_warp(void)
{
    struct fiber_thread *thread = fiber_own_thread();
    const uint32_t lane = fiber_cta.current % GPU_WARP;
    const uint32_t next = (fiber_cta.grid.order % 3 == 1 ? lane + GPU_WARP - 1 : lane + 1) % GPU_WARP;
    struct fiber_thread *other = thread - lane + next;

    thread->state = FIBER_IN_WARP;
    fiber_cta.warp[fiber_cta.current / GPU_WARP].ready--;
    if (other->state != FIBER_READY) {
        fiber_step(&thread->stack, &fiber_cta.scheduler);
        return;
    }
    fiber_cta.current += next - lane;
    fiber_step(&thread->stack, &other->stack);
}

static void make_ready(uint32_t index)
{
    fiber_cta.thread[index].state = FIBER_READY;
    fiber_cta.warp[index / GPU_WARP].ready++;
}

const struct gpu_fiber_slot *gpu_fiber_meet(enum gpu_fiber_op op, const struct gpu_fiber_slot *own)
{
    const uint32_t index = fiber_cta.current / GPU_WARP, first = index * GPU_WARP;
    struct fiber_warp *warp = &fiber_cta.warp[index];
    struct gpu_fiber_slot *slots = warp->slots[warp->phase % 2];

    if (warp->arrived > 0 && warp->op != op)
        fiber_die("warp operation %d, while other lanes wait in operation %d", (int)op, (int)warp->op);
    warp->op = op;
    slots[fiber_cta.current - first] = *own;
    if (++warp->arrived < GPU_WARP) {
        wait_in_warp();
        return slots;
    }
    warp->arrived = 0;
    warp->phase++;
    for (uint32_t i = first; i < first + GPU_WARP; i++)
        if (i != fiber_cta.current)
            make_ready(i);
    return slots;
}

void fiber_open_barrier(uint32_t id, uint32_t wanted)
{
    if (fiber_cta.arrived[id] == 0 || fiber_cta.arrived[id] < wanted)
        return;
    fiber_cta.arrived[id] = 0;
    fiber_cta.opened++;
    memset(fiber_cta.here[id], 0, sizeof fiber_cta.here[id]);
    for (uint32_t i = 0; i < fiber_cta.grid.threads; i++)
        if (fiber_cta.thread[i].state == FIBER_AT_BARRIER && fiber_cta.thread[i].barrier == id)
            make_ready(i);
}

static void arrive_at(uint32_t id, uint32_t wanted)
{
    if (id >= NAMED_BARRIERS || wanted % GPU_WARP != 0)
        fiber_die("barrier %u of %u threads; 0 to 15 and multiples of %u are accepted", id, wanted, GPU_WARP);
    if (fiber_cta.here[id][fiber_cta.current])
        fiber_die("arrives at barrier %u twice", id);
    fiber_cta.here[id][fiber_cta.current] = true;
    fiber_cta.arrived[id]++;
}

static void wait_at(uint32_t id, uint32_t wanted)
{
    struct fiber_thread *thread = fiber_own_thread();

    arrive_at(id, wanted);
    thread->barrier = id;
    thread->state = FIBER_AT_BARRIER;
    fiber_cta.warp[fiber_cta.current / GPU_WARP].ready--;
    fiber_open_barrier(id, wanted);
    if (thread->state == FIBER_AT_BARRIER)
        fiber_step(&thread->stack, &fiber_cta.scheduler);
}

void gpu_barrier(void)
{
    const uint32_t live = fiber_cta.grid.threads - fiber_cta.done;

    /* Threads that returned count as there, as on sm_70 and later. */
    wait_at(0, fiber_cta.done == 0 ? live : live - live % GPU_WARP);
}

void gpu_barrier_part(uint32_t id, uint32_t threads)
{
    wait_at(id, threads);
}

/* Those that waited go on first: what this thread does from here on comes too late for them. */
static void pause_behind(uint32_t opened)
{
    struct fiber_thread *thread = fiber_own_thread();

    thread->paused = opened;
    thread->state = FIBER_PAUSED;
    fiber_cta.warp[fiber_cta.current / GPU_WARP].ready--;
    fiber_step(&thread->stack, &fiber_cta.scheduler);
}

void gpu_barrier_arrive(uint32_t id, uint32_t threads)
{
    const uint32_t opened = fiber_cta.opened;

    arrive_at(id, threads);
    fiber_open_barrier(id, threads);
    pause_behind(opened);
}

/* A barrier in shared memory: arrivals of a phase, those still missing, the number of the phase, and units of
 * 16 bytes that are missing too. */
struct mbarrier {
    uint16_t all, missing;
    uint16_t phase, units;
};

static struct mbarrier mbarrier_at(const uint64_t *at)
{
    struct mbarrier barrier;

    memcpy(&barrier, at, sizeof barrier);
    if ((barrier.missing == 0 && barrier.units == 0) || barrier.missing > barrier.all ||
        barrier.all > FIBER_THREADS)
        fiber_die("%p is no barrier", (const void *)at);
    return barrier;
}

void gpu_mbarrier_init(uint64_t *at, uint32_t arrivals)
{
    const struct mbarrier barrier = {(uint16_t)arrivals, (uint16_t)arrivals, 0, 0};

    memcpy(at, &barrier, sizeof barrier);
}

/* Takes these off what is missing; the last of it ends the phase. */
static void arrive_at_mbarrier(uint64_t *at, uint32_t threads, uint32_t bytes)
{
    struct mbarrier barrier = mbarrier_at(at);

    if (threads > barrier.missing || bytes / 16 > barrier.units)
        fiber_die("%u arrivals and %u bytes at a barrier that waits for %u and %u", threads, bytes,
                  barrier.missing, barrier.units * 16u);
    barrier.missing = (uint16_t)(barrier.missing - threads);
    barrier.units = (uint16_t)(barrier.units - bytes / 16);
    const bool over = barrier.missing == 0 && barrier.units == 0;
    if (over) {
        barrier.missing = barrier.all;
        barrier.phase++;
        fiber_cta.opened++;
    }
    memcpy(at, &barrier, sizeof barrier);
    for (uint32_t i = 0; over && i < fiber_cta.grid.threads; i++)
        if (fiber_cta.thread[i].state == FIBER_AT_MBARRIER && fiber_cta.thread[i].mbarrier == at)
            make_ready(i);
}

void gpu_mbarrier_arrive_as(uint64_t *at, uint32_t threads)
{
    const uint32_t opened = fiber_cta.opened;

    arrive_at_mbarrier(at, threads, 0);
    pause_behind(opened);
}

void gpu_mbarrier_arrive(uint64_t *at)
{
    gpu_mbarrier_arrive_as(at, 1);
}

void gpu_mbarrier_expect(uint64_t *at, uint32_t bytes)
{
    struct mbarrier barrier = mbarrier_at(at);

    if (barrier.missing == 0 || bytes % 16 != 0 || barrier.units + bytes / 16 > UINT16_MAX)
        fiber_die("%u bytes that a barrier cannot expect", bytes);
    barrier.units = (uint16_t)(barrier.units + bytes / 16);
    memcpy(at, &barrier, sizeof barrier);
}

void gpu_copy_arrive(uint64_t *at)
{
    struct fiber_thread *thread = fiber_own_thread();

    mbarrier_at(at);
    if (thread->arrival_count == FIBER_ARRIVALS)
        fiber_die("more than %d arrivals behind copies", (int)FIBER_ARRIVALS);
    thread->arrivals[thread->arrival_count++] = (struct fiber_arrival){at, thread->groups++};
}

bool fiber_arrive_behind_copies(uint32_t index)
{
    struct fiber_thread *thread = &fiber_cta.thread[index];

    if (thread->arrival_count == 0)
        return false;
    const struct fiber_arrival first = thread->arrivals[0];
    thread->arrival_count--;
    memmove(thread->arrivals, thread->arrivals + 1, thread->arrival_count * sizeof first);
    fiber_cta.current = index;
    gpu_fiber_copy_wait(thread->groups - first.group - 1);
    arrive_at_mbarrier(first.barrier, 1, 0);
    return true;
}

void gpu_mbarrier_wait(uint64_t *at, uint32_t parity)
{
    struct fiber_thread *thread = fiber_own_thread();

    while (mbarrier_at(at).phase % 2 == parity) {
        thread->mbarrier = at;
        thread->state = FIBER_AT_MBARRIER;
        fiber_cta.warp[fiber_cta.current / GPU_WARP].ready--;
        fiber_step(&thread->stack, &fiber_cta.scheduler);
    }
}

uint32_t gpu_atomic_add(uint32_t *at, uint32_t value)
{
    const uint32_t old = *at;

    *at += value;
    return old;
}

uint32_t gpu_atomic_or(uint32_t *at, uint32_t bits)
{
    const uint32_t old = *at;

    *at |= bits;
    return old;
}

/* ---------------------------------------------------------------- shared memory */

extern unsigned char __start_gpu_shared_arrays[] __attribute__((weak));
extern unsigned char __stop_gpu_shared_arrays[] __attribute__((weak));

void fiber_check_shared(const void *at, uint32_t size)
{
    const uintptr_t address = (uintptr_t)at, dynamic = (uintptr_t)fiber_cta.shared;
    const bool in_dynamic = address >= dynamic && address + size <= dynamic + fiber_cta.grid.shared;
    const bool in_fixed = address >= (uintptr_t)__start_gpu_shared_arrays &&
                          address + size <= (uintptr_t)__stop_gpu_shared_arrays;

    if (!in_dynamic && !in_fixed)
        fiber_die("%p does not lie in shared memory", at);
    if (address % size != 0)
        fiber_die("%p is not aligned to %u bytes", at, size);
}

static void copy_later(void *shared, const void *global, uint32_t size, uint32_t bytes)
{
    struct fiber_thread *thread = fiber_own_thread();

    fiber_check_shared(shared, size);
    fiber_check_not_read(shared, size);
    if ((bytes > 0 && (uintptr_t)global % size != 0) || bytes > size)
        fiber_die("a copy of %u bytes from %p; up to %u from a multiple of %u are accepted", bytes, global,
                  size, size);
    if (thread->copy_count == thread->copy_room) {
        thread->copy_room = thread->copy_room > 0 ? 2 * thread->copy_room : 16;
        thread->copies = realloc(thread->copies, thread->copy_room * sizeof *thread->copies);
        if (thread->copies == NULL)
            fiber_die("no memory for %u copies", thread->copy_room);
    }
    memset(shared, 0xff, size);
    thread->copies[thread->copy_count++] = (struct fiber_copy){shared, global, size, bytes, thread->groups};
}

void gpu_copy_async16(void *shared, const void *global, uint32_t bytes)
{
    copy_later(shared, global, 16, bytes);
}

void gpu_copy_async4(void *shared, uint64_t global)
{
    copy_later(shared, (const void *)(uintptr_t)global, 4, 4);
}

void gpu_copy_commit(void)
{
    fiber_own_thread()->groups++;
}

void gpu_fiber_copy_wait(uint32_t groups)
{
    struct fiber_thread *thread = fiber_own_thread();
    uint32_t kept = 0;

    for (uint32_t i = 0; i < thread->copy_count; i++) {
        const struct fiber_copy copy = thread->copies[i];
        if (copy.group + groups >= thread->groups) {
            thread->copies[kept++] = copy;
            continue;
        }
        memset(copy.to, 0, copy.size);
        fiber_note_copy(copy.to, copy.size);
        if (copy.bytes > 0)
            memcpy(copy.to, copy.from, copy.bytes);
    }
    thread->copy_count = kept;
}

/* ---------------------------------------------------------------- boxes */

void gpu_prefetch_map(const struct gpu_tensor_map *map)
{
    if ((uintptr_t)map % 64 != 0)
        fiber_die("%p is not aligned to 64 bytes", (const void *)map);
}

static uint32_t rows_of_box(const struct fiber_map *map)
{
    return map->box[1] * map->box[2] * map->box[3];
}

/* A row of a box, or zeros of what the tensor does not have, whose 16-byte chunks lie where a swizzle of 128
 * bytes puts them. */
static void copy_box_row(const struct fiber_box *box, uint32_t row)
{
    const struct fiber_map *map = &box->map;
    const uint32_t columns = map->box[0], plane = row / map->box[1];
    const uint32_t token = box->token + row % map->box[1], head = box->head + plane % map->box[2],
                   page = box->page + plane / map->box[2];
    const bool inside = token < map->dims[1] && head < map->dims[2] && page < map->dims[3];
    const uint64_t from =
        map->base + token * map->strides[0] + head * map->strides[1] + page * map->strides[2];

    for (uint32_t i = 0; i < columns; i++) {
        const uintptr_t linear = (uintptr_t)box->to + (row * columns + i) * sizeof(uint16_t);
        uint16_t *to = (uint16_t *)(linear ^ (linear >> 7 & 7) << 4);
        *to = 0;
        if (inside && box->column + i < map->dims[0])
            memcpy(to, (const uint16_t *)from + box->column + i, sizeof *to);
    }
}

void gpu_copy_box(void *to, const struct gpu_tensor_map *map, uint32_t column, uint32_t token, uint32_t head,
                  uint32_t page, uint64_t *barrier)
{
    struct fiber_box box = {to, {0, {0}, {0}, {0}}, barrier, column, token, head, page};

    gpu_prefetch_map(map);
    memcpy(&box.map, map, sizeof box.map);
    const uint32_t bytes = rows_of_box(&box.map) * box.map.box[0] * (uint32_t)sizeof(uint16_t);
    mbarrier_at(barrier);
    if ((uintptr_t)to % 1024 != 0 || box.map.box[0] != 64)
        fiber_die("a box to %p; rows of 128 bytes to a multiple of 1024 are accepted", to);
    fiber_check_shared(to, 16);
    fiber_check_shared((const char *)to + bytes - 16, 16);
    fiber_check_not_read(to, bytes);
    fiber_check_fenced(to, bytes);
    if (fiber_cta.box_count == FIBER_BOXES)
        fiber_die("more than %d boxes under way", (int)FIBER_BOXES);
    memset(to, 0xff, bytes);
    fiber_cta.boxes[fiber_cta.box_count++] = box;
}

bool fiber_box_arrives(void)
{
    if (fiber_cta.box_count == 0)
        return false;
    const struct fiber_box box = fiber_cta.boxes[0];
    fiber_cta.box_count--;
    memmove(fiber_cta.boxes, fiber_cta.boxes + 1, fiber_cta.box_count * sizeof box);
    const uint32_t rows = rows_of_box(&box.map);
    for (uint32_t i = 0; i < rows; i++)
        copy_box_row(&box, i);
    arrive_at_mbarrier(box.barrier, 0, rows * box.map.box[0] * (uint32_t)sizeof(uint16_t));
    return true;
}

/* ---------------------------------------------------------------- matrices */

void gpu_fiber_load_matrix(uint32_t *to, const void *row, uint32_t matrices, uint32_t trans)
{
    const uint32_t lane = fiber_cta.current % GPU_WARP, major = lane / 4, minor = lane % 4 * 2;
    const struct gpu_fiber_slot own = {(uint64_t)(uintptr_t)row, {matrices, trans}};
    const struct gpu_fiber_slot *slots;

    if (lane < 8 * matrices)
        fiber_check_shared(row, 16);
    slots = gpu_fiber_meet(GPU_FIBER_MATRIX, &own);
    if (memcmp(slots[0].fragment, own.fragment, sizeof own.fragment) != 0)
        fiber_die("lanes of one warp load matrices in two ways");
    for (uint32_t m = 0; m < matrices; m++) {
        uint16_t pair[2];
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t r = trans ? minor + i : major, c = trans ? major : minor + i;
            memcpy(&pair[i], (const char *)(uintptr_t)slots[8 * m + r].word + c * sizeof *pair, sizeof *pair);
        }
        memcpy(&to[m], pair, sizeof pair);
    }
}

uint32_t gpu_transpose_matrix(uint32_t pair)
{
    const uint32_t lane = fiber_cta.current % GPU_WARP, column = lane / 4, row = lane % 4 * 2;
    const struct gpu_fiber_slot own = {pair, {0}};
    const struct gpu_fiber_slot *slots = gpu_fiber_meet(GPU_FIBER_TRANSPOSE, &own);
    const uint64_t low = slots[row * 4 + column / 2].word, high = slots[(row + 1) * 4 + column / 2].word;

    return (uint32_t)(low >> 16 * (column % 2) & 0xffff) | (uint32_t)(high >> 16 * (column % 2) & 0xffff)
                                                               << 16;
}

static float half_of(const struct gpu_fiber_slot *slot, uint32_t word, uint32_t high, uint32_t bf16)
{
    const uint16_t bits = (uint16_t)(slot->fragment[word] >> (16 * high));

    return bf16 ? attn__bf16_to_f32(bits) : attn__f16_to_f32(bits);
}

/* Element (row, k) of the 16x16 operand, element (k, column) of the 16x8 one. */
static float element_a(const struct gpu_fiber_slot *slots, uint32_t row, uint32_t k, uint32_t bf16)
{
    return half_of(&slots[row % 8 * 4 + k % 8 / 2], row / 8 + k / 8 * 2, k % 2, bf16);
}
static float element_b(const struct gpu_fiber_slot *slots, uint32_t k, uint32_t column, uint32_t bf16)
{
    return half_of(&slots[column * 4 + k % 8 / 2], 4 + k / 8, k % 2, bf16);
}

void gpu_fiber_mma(float d[4], const uint32_t a[4], const uint32_t b[2], uint32_t bf16)
{
    const uint32_t lane = fiber_cta.current % GPU_WARP;
    const struct gpu_fiber_slot own = {bf16, {a[0], a[1], a[2], a[3], b[0], b[1]}};
    const struct gpu_fiber_slot *slots = gpu_fiber_meet(GPU_FIBER_MMA, &own);

    if (slots[0].word != bf16)
        fiber_die("lanes of one warp multiply two types");
    /* Two rows and two columns make four results. */
    double rows[2][16], columns[2][16];
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t k = 0; k < 16; k++) {
            rows[i][k] = (double)element_a(slots, lane / 4 + i * 8, k, bf16);
            columns[i][k] = (double)element_b(slots, k, lane % 4 * 2 + i, bf16);
        }
    for (uint32_t i = 0; i < 4; i++) {
        double sum = (double)d[i];
        for (uint32_t k = 0; k < 16; k++)
            sum += rows[i / 2][k] * columns[i % 2][k];
        d[i] = (float)sum;
    }
}

/* A word of an operand of tf32, whose low 13 bits do not count. */
static double tf32_of(const struct gpu_fiber_slot *slot, uint32_t word)
{
    return (double)attn__f32_of_bits(slot->fragment[word] & 0xffffe000u);
}

/*
 * As matrix instructions of sm_80 and newer do, or worse: what is added loses the bits that are 2^-25 times
 * smaller than the largest of it, and the sum is rounded towards zero.
 */
static float sum_of(const double *x, uint32_t count)
{
    double largest = 0, sum = 0;
    int exponent;

    for (uint32_t i = 0; i < count; i++) {
        largest = fabs(x[i]) > largest ? fabs(x[i]) : largest;
        sum += x[i];
    }
    if (!isfinite(sum)) /* nothing finite here has a sum that is not */
        return (float)sum;
    frexp(largest, &exponent);
    const double up = ldexp(1, 26 - exponent), down = ldexp(1, exponent - 26);
    sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += (double)(int32_t)(x[i] * up) * down;
    const float out = (float)sum;
    return isfinite(out) && fabs((double)out) > fabs(sum) ? nextafterf(out, 0) : out;
}

void gpu_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    const uint32_t lane = fiber_cta.current % GPU_WARP;
    const struct gpu_fiber_slot own = {2, {a[0], a[1], a[2], a[3], b[0], b[1]}};
    const struct gpu_fiber_slot *slots = gpu_fiber_meet(GPU_FIBER_MMA, &own);

    if (slots[0].word != 2)
        fiber_die("lanes of one warp multiply two types");
    double rows[2][8], columns[2][8];
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t k = 0; k < 8; k++) {
            rows[i][k] = tf32_of(&slots[lane / 4 * 4 + k % 4], i + k / 4 * 2);
            columns[i][k] = tf32_of(&slots[(lane % 4 * 2 + i) * 4 + k % 4], 4 + k / 4);
        }
    for (uint32_t i = 0; i < 4; i++) {
        double x[9];
        for (uint32_t k = 0; k < 8; k++)
            x[k] = rows[i / 2][k] * columns[i % 2][k];
        x[8] = (double)d[i];
        d[i] = sum_of(x, 9);
    }
}
