/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Moves the contents of places in caches to other places, by pairs that take effect in order. A work-group
 * owns a slice of every place, which no other reads or writes, so that the order matters within a work-group
 * alone. For each place that a chunk of pairs changes it finds the last pair that writes it and the place
 * that this pair's contents come from in the end; then it reads all of these, and writes them when all are
 * read. So chains, cycles and repeated targets come out right.
 */
#ifndef HEAD_DIM

/* A chunk of pairs: offsets of places; to < 0: nothing to write. */
struct chunk {
    long from[OPENCL_ITEMS];
    long to[OPENCL_ITEMS];
    int before[OPENCL_ITEMS]; /* the last earlier pair that writes what this one reads; itself if there is
                                 none */
};

INLINE long place_at(const struct opencl_places *places, long place)
{
    return places->at + place / places->block * places->page + place % places->block * places->token;
}

/* Reads pair `i`; false if it is skipped. */
INLINE bool read_pair(const struct opencl_plane *plane, __global const long *pairs, int i, long *from,
                      long *to)
{
    const long source = pairs[2 * (long)i], target = pairs[2 * (long)i + 1];

    if (source < 0 || target < 0 || source >= plane->from.count || target >= plane->to.count)
        return false;
    *from = place_at(&plane->from, source);
    *to = place_at(&plane->to, target);
    return true;
}

/*
 * The move that a work-item's pair of the chunk stands for when all moves are done at once. `apart` is the
 * distance of the buffers, by which places of both are compared.
 */
INLINE void resolve_pair(__local struct chunk *chunk, int count, long apart)
{
    const int i = (int)get_local_id(0);
    const long from = chunk->from[i], to = chunk->to[i];
    int before = i, last = i, root = i;

    for (int j = 0; j < count; j++) {
        const long written = chunk->to[j];
        if (j < i && written >= 0 && written + apart == from)
            before = j;
        if (j > i && written >= 0 && written == to)
            last = j;
    }
    chunk->before[i] = before;
    barrier(CLK_LOCAL_MEM_FENCE);
    while (chunk->before[root] != root)
        root = chunk->before[root];
    const long source = chunk->from[root];
    barrier(CLK_LOCAL_MEM_FENCE);
    chunk->from[i] = source;
    chunk->to[i] = last == i && source != to + apart ? to : -1;
    barrier(CLK_LOCAL_MEM_FENCE);
}

INLINE uint4 load_unit(__global const uchar *at, int unit)
{
    switch (unit) {
    case 16:
        return *(__global const uint4 *)at;
    case 8:
        return (uint4)(*(__global const uint2 *)at, 0, 0);
    case 4:
        return (uint4)(*(__global const uint *)at, 0, 0, 0);
    case 2:
        return (uint4)(*(__global const ushort *)at, 0, 0, 0);
    default:
        return (uint4)(*at, 0, 0, 0);
    }
}

INLINE void store_unit(__global uchar *at, int unit, uint4 all)
{
    switch (unit) {
    case 16:
        *(__global uint4 *)at = all;
        break;
    case 8:
        *(__global uint2 *)at = all.xy;
        break;
    case 4:
        *(__global uint *)at = all.x;
        break;
    case 2:
        *(__global ushort *)at = (ushort)all.x;
        break;
    default:
        *at = (uchar)all.x;
    }
}

/* Byte offset of a unit within a place. */
INLINE long unit_at(const struct opencl_plane *plane, const struct opencl_places *places, long unit)
{
    const long nth = unit / plane->run; /* run of the place */

    return nth / plane->inner * places->outer + nth % plane->inner * places->inner +
           unit % plane->run * plane->unit;
}

#define PICK(name, plane) ((plane) == 0 ? name##0 : (plane) == 1 ? name##1 : (plane) == 2 ? name##2 : name##3)

/* Dimension 0 of the grid is that of slices, dimension 1 of planes. */
__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void
attn_move(__global uchar *from0, __global uchar *from1, __global uchar *from2, __global uchar *from3,
          __global uchar *to0, __global uchar *to1, __global uchar *to2, __global uchar *to3,
          __global const uchar *pairs, const struct opencl_move a)
{
    __local struct chunk chunk;
    const int item = (int)get_local_id(0), slice = a.slice;
    const int step = OPENCL_ITEMS / slice, chunk_pairs = step * OPENCL_HELD;
    /* A copy: Rusticl of Mesa 22.3 reads arguments at computed offsets well only where all work-items do. */
    const struct opencl_plane own = a.planes[get_group_id(1)], *plane = &own;
    const long unit = (long)get_group_id(0) * slice + item % slice;
    const bool there = unit < plane->units;
    __global uchar *from = PICK(from, get_group_id(1)), *to = PICK(to, get_group_id(1));
    const long apart = (long)to - (long)from;
    const long from_unit = unit_at(plane, &plane->from, unit), to_unit = unit_at(plane, &plane->to, unit);
    uint4 held[OPENCL_HELD];

    for (int first = 0; first < a.count; first += chunk_pairs) {
        const int count = min(chunk_pairs, a.count - first);
        long source = 0, target = -1;
        if (item < count)
            read_pair(plane, (__global const long *)(pairs + a.pairs), first + item, &source, &target);
        chunk.from[item] = source;
        chunk.to[item] = target;
        barrier(CLK_LOCAL_MEM_FENCE);
        resolve_pair(&chunk, count, apart);
        for (int k = 0; k < OPENCL_HELD; k++) {
            const int i = k * step + item / slice;
            if (there && i < count && chunk.to[i] >= 0)
                held[k] = load_unit(from + chunk.from[i] + from_unit, plane->unit);
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        for (int k = 0; k < OPENCL_HELD; k++) {
            const int i = k * step + item / slice;
            if (there && i < count && chunk.to[i] >= 0)
                store_unit(to + chunk.to[i] + to_unit, plane->unit, held[k]);
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    }
}

#endif
