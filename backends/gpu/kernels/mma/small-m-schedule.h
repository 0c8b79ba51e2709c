/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Small M: the next work tile of a warp. A step of small work is a chain of loads that wait for each other,
 * so every warp finds its work tile itself, with no barrier, and few divisions.
 *
 * Warps of a CTA take the same work tile, and a quarter of its keys each. Where sequences have about one KV
 * tile each, warps have work tiles of their own: results need no exchange, and one warp waits for memory
 * while others compute.
 */
#ifndef ATTN_GPU_MMA_SMALL_M_SCHEDULE_H
#define ATTN_GPU_MMA_SMALL_M_SCHEDULE_H

#include "config.h"

/* Where warps take work tiles alone: the most tiles of a sequence, on average, and how many times as many a
 * stretch has at least. */
constexpr uint32_t SMALL_M_ALONE_LENGTH = 2, SMALL_M_ALONE_ITEMS = 2;

/* Whether the schedule counts splits, which CTAs take in turn. */
GPU_INLINE bool small_m_counts_splits(const struct gpu_run *run, const struct small_m_list *list)
{
    return run->problem.det != 0 || list->even != 0;
}

/* Whether warps take the tiles of a stretch alone; `sum`: tiles of all sequences. */
template <class C> GPU_INLINE bool small_m_is_alone(const struct gpu_run *run, uint32_t sum, uint32_t tiles)
{
    /* Stages are zeroed by all warps together where vectors have fewer columns than they. */
    return C::Q_DIRECT && sum <= SMALL_M_ALONE_LENGTH * run->batch.seqs &&
           sum * (uint64_t)SMALL_M_ALONE_ITEMS <= tiles * (uint64_t)run->batch.seqs && run->k.dim == C::DK &&
           run->v.dim == C::DV;
}

/* The CTA's part of a work list of `all` > 0 tiles; `sum` of them for each KV head. */
template <class C>
GPU_INLINE struct small_m_list small_m_list_of(const struct gpu_run *run, uint32_t sum, uint32_t even,
                                               uint32_t all)
{
    const uint32_t cta = gpu_cta(), ctas = all < gpu_ctas() ? all : gpu_ctas(); /* none has an empty tile */
    struct small_m_list list;

    list.even = even;
    list.alone = 0;
    list.each = 0;
    list.longer = 0;
    list.begin = cta;
    list.end = all;
    if (!small_m_counts_splits(run, &list)) {
        list.each = all / ctas;
        list.longer = all - list.each * ctas;
        list.begin = list.each * cta + (cta < list.longer ? cta : list.longer);
        list.end = list.begin + list.each + (cta < list.longer ? 1 : 0);
        list.alone = small_m_is_alone<C>(run, sum, list.end - list.begin);
    }
    list.limit = list.end;
    if (list.alone != 0)
        list.limit = list.begin + (list.end - list.begin) * (gpu_thread() / GPU_WARP + 1) / C::WARPS;
    return list;
}

/* Where the warp's first work tile is, or the place in the tile of another warp behind which it is. */
template <class C> GPU_INLINE uint32_t small_m_first_position(const struct small_m_list *list)
{
    if (list->alone == 0)
        return list->begin;
    return list->begin + (list->end - list->begin) * (gpu_thread() / GPU_WARP) / C::WARPS;
}

/* The CTA whose stretch holds position `at`. */
GPU_INLINE uint32_t small_m_list_cta(const struct small_m_list *list, uint32_t at)
{
    const uint32_t longer_end = (list->each + 1) * list->longer;
    const bool longer = at < longer_end;

    return (longer ? at : at - longer_end) / (longer ? list->each + 1 : list->each) +
           (longer ? 0 : list->longer);
}

/* A split of fixed size, or an even one: number `inside` of the sequence and head, whose first is at `begin`.
 */
GPU_INLINE void small_m_split_at(const struct gpu_run *run, const struct small_m_list *list, uint32_t kv_len,
                                 uint32_t rows, uint32_t begin, uint32_t inside, uint32_t low, uint32_t high,
                                 struct gpu_work_tile *p)
{
    const uint32_t size =
        run->problem.det != 0
            ? gpu_det_split_tiles(kv_len, gpu_max_splits(rows, gpu_ctas(), run->problem.kv_heads))
            : list->even;
    const uint32_t first = (low / size + inside) * size;

    p->first = first > low ? first : low;
    p->end = first + size < high ? first + size : high;
    p->next = begin + inside + gpu_ctas() < list->end ? begin + inside + gpu_ctas() : 0;
    p->split = inside;
    p->first_partial = p->rest_partial = begin;
    p->partial_step = 1;
}

/* The part of a sequence and head, tiles [begin, stop) of the work list, that is in the stretch of the CTA.
 */
GPU_INLINE void small_m_stretch_at(const struct small_m_list *list, uint32_t at, uint32_t begin,
                                   uint32_t stop, uint32_t low, uint32_t high, struct gpu_work_tile *p)
{
    const uint32_t end = stop < list->end ? stop : list->end;

    p->first = low + at - begin;
    p->end = low + end - begin;
    p->end = p->end < high ? p->end : high;
    p->next = end < list->limit ? end : 0;
    p->splits = 1;
    p->split = p->first_partial = p->rest_partial = 0;
    p->partial_step = 2;
    if (begin < list->begin || stop > list->end) {
        const uint32_t from = small_m_list_cta(list, begin);
        p->splits = small_m_list_cta(list, stop - 1) - from + 1;
        p->split = gpu_cta() - from;
        /* A CTA stores the partial result of its first work tile at its even index, of its last one at the
         * odd. */
        const uint32_t from_begin = list->each * from + (from < list->longer ? from : list->longer);
        p->first_partial = 2 * from + (from_begin < begin ? 1 : 0);
        p->rest_partial = 2 * from;
    }
    /* The warp in whose part of the stretch a tile begins takes it whole. */
    if (at > begin && at > list->begin)
        p->splits = 0;
}

/* The work tile at position `at`, of a sequence whose sums are `below` and `above`. */
GPU_INLINE struct gpu_work_tile small_m_tile_at(const struct gpu_run *run, const struct gpu_sequence *s,
                                                const struct small_m_list *list, uint32_t at, uint32_t below,
                                                uint32_t above, uint32_t rows)
{
    const struct gpu_split_rules rules = gpu_split_rules_of(&run->problem, ATTN__DECODE, 0);
    const uint32_t heads = run->problem.kv_heads, length = above - below;
    const uint32_t behind = at - below * heads;
    struct gpu_work_tile p;
    uint32_t low;

    const uint32_t tiles = gpu_key_tiles(&rules, &s->visible, 0, s->q_len - 1, s->kv_len, &low);
    p.seq = s->index;
    p.row0 = 0;
    p.kv_head = behind / length;
    const uint32_t inside = behind - p.kv_head * length;
    p.splits = length;
    if (small_m_counts_splits(run, list))
        small_m_split_at(run, list, s->kv_len, rows, at - inside, inside, low, low + tiles, &p);
    else
        small_m_stretch_at(list, at, at - inside, at - inside + length, low, low + tiles, &p);
    p.end = p.end > p.first ? p.end : p.first;
    return p;
}

/*
 * Finds the warp's first work tile, or the one behind the last. Each lane looks at one sequence, and the lane
 * whose sequence holds the position writes the tile: of the first 32 sequences, or of those behind the last
 * tile's, without a search. work.splits 0: there is no tile, and the next one is at work.next if that is not
 * 0.
 */
template <class C>
GPU_INLINE void small_m_next_tile(const struct gpu_run *run, mma_shared<C> *shared, bool begins)
{
    const uint32_t seqs = run->batch.seqs, lane = gpu_thread() % GPU_WARP;
    const uint32_t sum = gpu_sum(run, seqs), even = ((const uint32_t *)run->schedule)[2 * (uint64_t)seqs + 1];
    uint32_t index = lane + (begins || seqs <= GPU_WARP ? 0 : shared->work.seq);
    struct small_m_list list;
    uint32_t at = 0, unit = 0;

    GPU_LOOP
    for (bool searched = false;; searched = true) {
        uint32_t below = 0, above = 0;
        struct gpu_sequence s;
        if (index < seqs) {
            below = gpu_sum(run, index);
            above = gpu_sum(run, index + 1);
            s = gpu_sequence(run, index);
        }
        if (!searched) {
            const uint32_t all = sum * run->problem.kv_heads;
            bool none = begins && gpu_cta() >= all;
            if (!begins) {
                list = shared->list;
                at = (uint32_t)shared->work.next;
            } else if (!none) {
                list = small_m_list_of<C>(run, sum, even, all);
                at = small_m_first_position<C>(&list);
                none = at >= list.limit;
            }
            if (none) {
                shared->work.splits = 0;
                shared->work.next = 0;
                gpu_warp_barrier();
                return;
            }
            unit = at / run->problem.kv_heads;
        }
        const bool holds = unit >= below && unit < above;
        if (gpu_ballot(holds) == 0 && !searched) {
            index = lane + gpu_find_block(run, unit);
            continue;
        }
        if (holds) { /* all lanes have read the last work tile */
            shared->list = list;
            shared->sequence = s;
            shared->work = small_m_tile_at(run, &s, &list, at, below, above, C::ROWS);
        }
        break;
    }
    gpu_warp_barrier();
}

#endif
