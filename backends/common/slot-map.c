/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Slot mapping: where in the cache the keys and values of new tokens are written. */
#include "slot-map.h"

#include "fail.h"

static inline int64_t page_at(const void *blocks, int64_t wide, int64_t index)
{
    return wide != 0 ? ((const int64_t *)blocks)[index] : ((const int32_t *)blocks)[index];
}

/* The largest page number of a range. Checking it alone keeps a branch per page out of the loop. */
static int64_t largest_page(const void *blocks, int64_t wide, int64_t first, int64_t end)
{
    int64_t max = -1;

    if (wide != 0) {
        for (int64_t i = first; i < end; i++)
            max = ((const int64_t *)blocks)[i] > max ? ((const int64_t *)blocks)[i] : max;
    } else {
        int32_t max32 = -1;
        for (int64_t i = first; i < end; i++)
            max32 = ((const int32_t *)blocks)[i] > max32 ? ((const int32_t *)blocks)[i] : max32;
        max = max32;
    }
    return max;
}

static int32_t check_lengths(const struct attn_slot_args *args, struct attn_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } lengths[] = {{"seq_len", args->seq_len}, {"context_len", args->context_len}, {"start", args->start}};

    for (int i = 0; i < 3; i++)
        if (lengths[i].value < 0)
            return attn__fail(err, ATTN_E_INVALID, 0, lengths[i].name, "%s is %lld; accepted: 0 and more",
                              lengths[i].name, (long long)lengths[i].value);
    return ATTN_OK;
}

static int32_t check_ranks(const struct attn_slot_args *args, struct attn_error *err)
{
    if (args->cp_world == 0)
        return ATTN_OK;
    if (args->cp_rank >= args->cp_world)
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_rank", "cp_rank is %u; accepted: below cp_world, %u",
                          args->cp_rank, args->cp_world);
    if (args->cp_interleave == 0 || args->block % args->cp_interleave != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_interleave",
                          "cp_interleave is %u; accepted: divisors of block, %u", args->cp_interleave,
                          args->block);
    return ATTN_OK;
}

static int32_t check_rules(const struct attn_slot_args *args, struct attn_error *err)
{
    if (args->block == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "block", "block is 0; accepted: 1 and more tokens");
    if (args->block_dtype != 0 && args->block_dtype != ATTN_INT32 && args->block_dtype != ATTN_INT64)
        return attn__fail(err, ATTN_E_INVALID, 0, "block_dtype",
                          "block_dtype is 0x%x; accepted: ATTN_INT32 and ATTN_INT64", args->block_dtype);
    return check_ranks(args, err);
}

/* Checks that all keys of this rank have a page, and that their slots fit 64 bits. */
static int32_t check_pages(const struct attn_slots *slots, const struct attn_slot_args *args,
                           struct attn_error *err)
{
    const int64_t first = attn__cp_count(&slots->shard, slots->from);
    const int64_t end = attn__cp_count(&slots->shard, slots->to);

    if (end <= first)
        return ATTN_OK;
    const int64_t needed = (end - 1) / slots->block + 1;
    if (args->blocks == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "blocks",
                          "blocks is not given, but the sequence has %lld new tokens",
                          (long long)(end - first));
    if (args->block_count < (uint64_t)needed)
        return attn__fail(err, ATTN_E_INVALID, 0, "blocks",
                          "blocks has %llu pages of %u tokens, but the sequence of %lld tokens needs %lld",
                          (unsigned long long)args->block_count, args->block, (long long)args->seq_len,
                          (long long)needed);
    const int64_t max = largest_page(args->blocks, slots->wide, first / slots->block, needed);
    if (max > (INT64_MAX - slots->block) / slots->block)
        return attn__fail(err, ATTN_E_INVALID, 0, "blocks", "page %lld of %u tokens has no slots of 64 bits",
                          (long long)max, args->block);
    return ATTN_OK;
}

int32_t attn__slots_init(struct attn_slots *slots, const struct attn_slot_args *args, struct attn_error *err)
{
    int32_t status = check_lengths(args, err);

    if (status == ATTN_OK && args->profile != 0) {
        *slots = (struct attn_slots){.masked = args->seq_len};
        return ATTN_OK;
    }
    if (status == ATTN_OK)
        status = check_rules(args, err);
    if (status != ATTN_OK)
        return status;
    *slots =
        (struct attn_slots){.blocks = args->blocks,
                            .wide = args->block_dtype == ATTN_INT64,
                            .block = args->block,
                            .masked = args->start > args->context_len ? args->start - args->context_len : 0,
                            .from = args->start > args->context_len ? args->start : args->context_len};
    slots->to = args->seq_len > slots->from ? args->seq_len : slots->from;
    if (args->cp_world != 0)
        slots->shard = (struct attn_cp_shard){args->cp_rank, args->cp_world, args->cp_interleave};
    return check_pages(slots, args, err);
}

/* Kept this simple so that the compiler vectorises it. */
static inline void write_consecutive(int64_t *restrict out, int64_t slot, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = slot + i;
}

/* Slots of tokens [token, token + count) of a page. */
static inline void write_page(int64_t page, int64_t block, int64_t token, int64_t count,
                              int64_t *restrict out)
{
    if (page < 0)
        attn__slots_none(out, count);
    else
        write_consecutive(out, page * block + token, count);
}

/* Inlined with a constant block, so that the compiler unrolls the loop over the tokens of a page. */
static inline __attribute__((always_inline)) void
whole_pages(const struct attn_slots *slots, int64_t first, int64_t end, int64_t block, int64_t *restrict out)
{
    for (int64_t i = first; i < end; i++, out += block)
        write_page(page_at(slots->blocks, slots->wide, i), block, 0, block, out);
}

static void write_pages(const struct attn_slots *slots, int64_t first, int64_t end, int64_t *out)
{
    switch (slots->block) {
    case 8:
        whole_pages(slots, first, end, 8, out);
        break;
    case 16:
        whole_pages(slots, first, end, 16, out);
        break;
    case 32:
        whole_pages(slots, first, end, 32, out);
        break;
    default:
        whole_pages(slots, first, end, slots->block, out);
    }
}

/* Without sharding: the rest of the first page, whole pages, and the beginning of the last. */
static void write_all(const struct attn_slots *slots, int64_t *out)
{
    int64_t position = slots->from, page = position / slots->block, token = position % slots->block;

    if (token != 0) {
        int64_t count = slots->block - token;
        if (count > slots->to - position)
            count = slots->to - position;
        write_page(page_at(slots->blocks, slots->wide, page), slots->block, token, count, out);
        out += count;
        position += count;
        page++;
    }
    const int64_t end = slots->to / slots->block;
    if (page < end) {
        write_pages(slots, page, end, out);
        out += (end - page) * slots->block;
        position = end * slots->block;
        page = end;
    }
    if (position < slots->to)
        write_page(page_at(slots->blocks, slots->wide, page), slots->block, 0, slots->to - position, out);
}

/* Keys are sharded over the ranks in chunks of `interleave`, which never cross a page. */
static void write_sharded(const struct attn_slots *slots, int64_t *out)
{
    const struct attn_cp_shard *shard = &slots->shard;

    for (int64_t position = slots->from; position < slots->to;) {
        const int64_t chunk = position / shard->interleave, inside = position % shard->interleave;
        int64_t count = shard->interleave - inside;
        if (count > slots->to - position)
            count = slots->to - position;
        if (chunk % shard->world == shard->rank) {
            const int64_t local = chunk / shard->world * shard->interleave + inside;
            write_page(page_at(slots->blocks, slots->wide, local / slots->block), slots->block,
                       local % slots->block, count, out);
        } else {
            attn__slots_none(out, count);
        }
        out += count;
        position += count;
    }
}

void attn__slots_write(const struct attn_slots *slots, int64_t *out)
{
    attn__slots_none(out, slots->masked);
    out += slots->masked;
    if (slots->from == slots->to)
        return;
    if (slots->shard.world == 0)
        write_all(slots, out);
    else
        write_sharded(slots, out);
}
