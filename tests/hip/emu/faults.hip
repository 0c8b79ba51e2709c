/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A kernel that is right, and kernels with a fault each that the emulator has to find. */
#define KERNEL extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, 256))) void
typedef unsigned int u32;

struct arguments {
    const u32 *from;
    const u32 *table;
    u32 *to;
    u32 count;
    u32 pad;
};

extern __attribute__((shared)) u32 shared[];

static __attribute__((device)) inline u32 thread(void)
{
    return __builtin_amdgcn_workitem_id_x();
}

static __attribute__((device)) inline u32 index(void)
{
    return __builtin_amdgcn_workgroup_id_x() * 256 + thread();
}

static __attribute__((device)) inline void barrier(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/* Each group reversed, through LDS, and a table's entry added. */
KERNEL right(struct arguments a)
{
    u32 t = thread(), i = index();
    shared[t] = i < a.count ? a.from[i] : 0;
    barrier();
    if (i < a.count)
        a.to[i] = shared[255 - t] + a.table[i & 7];
}

KERNEL table_off_by_one(struct arguments a)
{
    u32 i = index();
    if (i < a.count)
        a.to[i] = a.table[(i & 7) + 1];
}

KERNEL write_to_input(struct arguments a)
{
    ((u32 *)a.table)[thread() & 7] = 1;
}

KERNEL divergent_barrier(struct arguments a)
{
    u32 t = thread();
    if (t < 128)
        barrier();
    a.to[t] = t;
}

KERNEL missing_barrier(struct arguments a)
{
    u32 t = thread();
    shared[t] = t;
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    a.to[t] = shared[255 - t];
}

KERNEL write_after_read(struct arguments a)
{
    u32 t = thread();
    shared[t] = t;
    barrier();
    u32 x = shared[t];
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup");
    if (t >= 128)
        shared[t - 128] = x;
    barrier();
    a.to[t] = shared[t];
}

/* Neighbouring bytes belong to different words: no race, whatever the order of waves. */
KERNEL bytes_apart(struct arguments a)
{
    u32 t = thread();
    unsigned char *bytes = (unsigned char *)shared;
    bytes[(t & 63) * 4 + t / 64] = (unsigned char)t;
    barrier();
    if (t < 64)
        a.to[t] = shared[t];
}

KERNEL lds_overrun(struct arguments a)
{
    u32 t = thread();
    shared[t + a.count] = t;
    barrier();
    a.to[t] = shared[t];
}

KERNEL lds_unwritten(struct arguments a)
{
    a.to[thread()] = shared[thread()];
}

KERNEL endless(struct arguments a)
{
    volatile u32 *to = a.to;
    while (*to != 12345)
        to[1] = 0;
}

KERNEL atomic_misaligned(struct arguments a)
{
    __atomic_fetch_add((u32 *)((char *)a.to + 2), 1u, __ATOMIC_RELAXED);
}

KERNEL counted(struct arguments a)
{
    u32 old = __atomic_fetch_add(a.to, 1u, __ATOMIC_RELAXED);
    __atomic_fetch_or(&a.to[1 + old / 32], 1u << (old & 31), __ATOMIC_RELAXED);
}

KERNEL unmodelled(struct arguments a)
{
    asm volatile("s_setprio 0\n\ts_sethalt 0");
    a.to[thread()] = 0;
}
