/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Slots and input preparation against the plainest way to say the same, over random sequences. */
#include "attn/input.h"
#include "step.h"

unsigned long checks_failed;

#define CASES    100000
#define MOST_LEN 400

static struct fence slot_fence, block_fence;

/* ---------------------------------------------------------------- slots, one position after the other */

static int64_t page_of(const struct attn_slot_args *args, int64_t index)
{
    return args->block_dtype == ATTN_INT64 ? ((const int64_t *)args->blocks)[index]
                                           : ((const int32_t *)args->blocks)[index];
}

/* Number of the position among those of its rank, -1 on another rank: counted, not computed. */
static int64_t local_of(const struct attn_slot_args *args, int64_t position)
{
    int64_t local = 0;

    if (args->cp_world == 0)
        return position;
    if (position / args->cp_interleave % args->cp_world != args->cp_rank)
        return -1;
    for (int64_t p = 0; p < position; p++)
        local += p / args->cp_interleave % args->cp_world == args->cp_rank;
    return local;
}

/* Returns how many, or -1 if a page is missing. */
static int64_t plain_slots(const struct attn_slot_args *args, int64_t *out)
{
    int64_t n = 0;

    for (int64_t i = 0; i < args->seq_len && args->profile; i++)
        out[n++] = -1;
    if (args->profile)
        return n;
    for (int64_t i = args->context_len; i < args->start; i++)
        out[n++] = -1;
    for (int64_t p = args->context_len; p < args->seq_len; p++) {
        if (p < args->start)
            continue;
        int64_t local = local_of(args, p);
        if (local >= 0 && local / args->block >= (int64_t)args->block_count)
            return -1;
        int64_t page = local < 0 ? -1 : page_of(args, local / args->block);
        out[n++] = page < 0 ? -1 : page * args->block + local % args->block;
    }
    return n;
}

static void fill_blocks(struct dice *dice, struct attn_slot_args *args)
{
    const int wide = args->block_dtype == ATTN_INT64;
    char *blocks = fence_end(&block_fence, args->block_count * (wide ? 8 : 4));

    for (uint64_t i = 0; i < args->block_count; i++) {
        int64_t page = dice_roll(dice, 0, wide ? INT64_C(1) << 40 : INT32_MAX);
        if (dice_roll(dice, 0, 15) == 0)
            page = -1 - dice_roll(dice, 0, 3);
        if (wide)
            memcpy(blocks + i * 8, &page, 8);
        else
            memcpy(blocks + i * 4, &(int32_t){(int32_t)page}, 4);
    }
    args->blocks = blocks;
}

static void one_mapping(uint64_t seed)
{
    static const uint32_t blocks[] = {1, 2, 4, 8, 12, 16, 32, 64, 128};
    static int64_t wanted[3 * MOST_LEN];
    struct dice dice = {seed};
    struct attn_slot_args args;
    struct attn_error err;
    uint64_t count = 0;

    ATTN_INIT(&err);
    ATTN_INIT(&args);
    args.profile = dice_roll(&dice, 0, 19) == 0;
    args.block = blocks[dice_roll(&dice, 0, 8)];
    args.block_dtype = (uint32_t[]){0, ATTN_INT32, ATTN_INT64}[dice_roll(&dice, 0, 2)];
    args.seq_len = dice_roll(&dice, 0, dice_roll(&dice, 0, 1) ? MOST_LEN : 40);
    args.context_len = dice_roll(&dice, 0, 2) ? dice_roll(&dice, 0, args.seq_len + 3) : 0;
    args.start = dice_roll(&dice, 0, 2) == 0 ? dice_roll(&dice, 0, args.seq_len + 9) : 0;
    if (dice_roll(&dice, 0, 2) == 0) {
        args.cp_world = (uint32_t)dice_roll(&dice, 1, 5);
        args.cp_rank = (uint32_t)dice_roll(&dice, 0, args.cp_world - 1);
        do
            args.cp_interleave = (uint32_t)dice_roll(&dice, 1, args.block);
        while (args.block % args.cp_interleave != 0);
    }
    args.block_count = (uint64_t)((args.seq_len + args.block - 1) / args.block);
    if (args.cp_world > 1)
        args.block_count = args.block_count / args.cp_world + (uint64_t)dice_roll(&dice, 0, 1);
    if (args.block_count > 0 && dice_roll(&dice, 0, 7) == 0)
        args.block_count--;
    fill_blocks(&dice, &args);

    const int64_t plain = plain_slots(&args, wanted);
    const uint64_t room = plain < 0 ? 8 : (uint64_t)plain;
    int64_t *slots = fence_end(&slot_fence, room * sizeof *slots);
    memset(slots, 0x5a, room * sizeof *slots);
    const int32_t status = attn_slot_mapping(&args, slots, room, &count, &err);
    if (plain < 0) {
        CHECK(status == ATTN_E_INVALID && strcmp(err.field, "blocks") == 0, seed, "%d %s", status, err.field);
        for (uint64_t i = 0; i < room; i++)
            CHECK(slots[i] == INT64_C(0x5a5a5a5a5a5a5a5a), seed, "slot %llu written", (unsigned long long)i);
        return;
    }
    CHECK(status == ATTN_OK && count == room, seed, "%d, %llu of %llu: %s", status, (unsigned long long)count,
          (unsigned long long)room, err.message);
    CHECK(memcmp(slots, wanted, room * sizeof *slots) == 0, seed, "slots differ");
    if (room > 0) {
        memset(slots, 0x5a, room * sizeof *slots);
        CHECK(attn_slot_mapping(&args, slots, room - 1, &count, &err) == ATTN_E_SIZE && count == room, seed,
              "%llu of %llu", (unsigned long long)count, (unsigned long long)room);
        CHECK(slots[0] == INT64_C(0x5a5a5a5a5a5a5a5a), seed, "written");
    }
}

static void check_refusals(void)
{
    const int64_t far[] = {INT64_C(1) << 40, INT64_MAX / 16 + 1};
    int64_t slots[32] = {7};
    struct attn_slot_args good, bad;
    struct attn_error err;
    uint64_t count;

    ATTN_INIT(&err);
    ATTN_INIT(&good);
    good.block = 16;
    good.block_dtype = ATTN_INT64;
    good.blocks = far;
    good.block_count = 1;
    good.seq_len = 16;
    CHECK(attn_slot_mapping(&good, slots, 32, &count, &err) == ATTN_OK && slots[15] == (far[0] << 4) + 15, 0,
          "%lld", (long long)slots[15]);
#define REFUSED(member, value, name)                                                                         \
    do {                                                                                                     \
        bad = good;                                                                                          \
        bad.member = (value);                                                                                \
        CHECK(attn_slot_mapping(&bad, slots, 32, &count, &err) == ATTN_E_INVALID &&                          \
                  strcmp(err.field, name) == 0 && err.reason == 0,                                           \
              0, "%s", err.message);                                                                         \
    } while (0)
    REFUSED(seq_len, -1, "seq_len");
    REFUSED(context_len, -1, "context_len");
    REFUSED(start, INT64_MIN, "start");
    REFUSED(block, 0, "block");
    REFUSED(block_dtype, ATTN_F32, "block_dtype");
    REFUSED(blocks, NULL, "blocks");
    REFUSED(blocks, &far[1], "blocks");
    REFUSED(seq_len, INT64_MAX, "blocks");
    REFUSED(cp_world, 2, "cp_interleave");
    good.cp_world = 2;
    good.cp_interleave = 16;
    REFUSED(cp_rank, 2, "cp_rank");
    REFUSED(cp_interleave, 3, "cp_interleave");
    REFUSED(struct_size, 0, "args");
    CHECK(attn_slot_mapping(&good, slots, 32, NULL, &err) == ATTN_E_INVALID, 0, "%s", err.message);
    CHECK(attn_slot_mapping(NULL, slots, 32, &count, &err) == ATTN_E_INVALID, 0, "%s", err.message);
    CHECK(attn_slot_mapping(&good, NULL, 32, &count, &err) == ATTN_E_INVALID, 0, "%s", err.message);
}

static void check_profile(void)
{
    const int some = 0;
    const void *lists[] = {NULL, NULL, &some};

    CHECK(attn_input_is_profile(NULL, 3) == 1, 0, "no lists");
    CHECK(attn_input_is_profile(lists, 0) == 1, 0, "none");
    CHECK(attn_input_is_profile(lists, 2) == 1, 0, "all NULL");
    CHECK(attn_input_is_profile(lists, 3) == 0, 0, "one");
    CHECK(attn_input_start(1, 128, 0) == 128 && attn_input_start(1, 128, 28) == 100, 0, "window");
    CHECK(attn_input_start(1, 5, 16) == 0 && attn_input_start(1, 5, -1) == 0, 0, "no window");
    CHECK(attn_input_start(0, 128, 4) == 0, 0, "decode");
}

/* ---------------------------------------------------------------- which tokens */

/* Token by token: what is computed, and which pages a trimmed decode still sees. */
static void one_request(uint64_t seed)
{
    struct dice dice = {seed};
    struct attn_input_rules rules;
    struct attn_input_request request;
    struct attn_input input;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&rules);
    ATTN_INIT(&request);
    ATTN_INIT(&input);
    rules.block = (uint32_t)dice_roll(&dice, 1, 20);
    rules.window = (uint32_t)dice_roll(&dice, 0, 60);
    rules.given = dice_roll(&dice, 0, 1) ? ATTN_GIVEN_INPUT_WINDOW : 0;
    rules.multi_step = (uint32_t)dice_roll(&dice, 0, 1);
    request.prompt = (uint32_t)dice_roll(&dice, 0, 1);
    request.total_len = (uint32_t)dice_roll(&dice, 1, 200);
    request.computed_len = (uint32_t)dice_roll(&dice, 0, request.total_len - 1);
    request.chunk = (uint32_t)dice_roll(&dice, 1, 250);
    request.cached_blocks = (uint32_t)dice_roll(&dice, 0, 12);
    CHECK(attn_input_prepare(&rules, &request, &input, &err) == ATTN_OK, seed, "%s", err.message);

    uint32_t end = request.total_len, begin = request.computed_len;
    const uint32_t cached = request.cached_blocks * rules.block;
    if (request.prompt && end - begin > request.chunk)
        end = begin + request.chunk;
    if (!request.prompt && rules.multi_step)
        begin = end - 1;
    const int hit = request.prompt && !rules.given && cached > 0;
    for (uint32_t token = begin; hit && token + 1 < end && token < cached; token++)
        begin++;
    CHECK(input.context_len == begin && input.orig_seq_len == end && input.query_len == end - begin, seed,
          "%u %u %u", input.context_len, input.query_len, input.orig_seq_len);
    CHECK(input.prefix_hit == (uint32_t)hit, seed, "hit");
    if (request.prompt || !rules.given) {
        CHECK(input.seq_len == end && input.window_blocks == 0, seed, "%u", input.seq_len);
        return;
    }
    /* Whole pages go from the front while the window is still full without them. */
    uint32_t len = end, pages = (rules.window + rules.block - 1) / rules.block;
    while (len > pages * rules.block + end % rules.block)
        len -= rules.block;
    CHECK(input.seq_len == len, seed, "%u, not %u", input.seq_len, len);
    CHECK(input.window_blocks == pages + (end % rules.block > 0), seed, "%u", input.window_blocks);
}

/* ---------------------------------------------------------------- graphs */

/* Whatever is wrong with the first argument is said, though the others are right. */
static void check_arguments(void)
{
    struct attn_input_rules rules;
    struct attn_input_request request;
    struct attn_input input;
    struct attn_error err;

    ATTN_INIT(&rules);
    ATTN_INIT(&request);
    ATTN_INIT(&input);
    ATTN_INIT(&err);
    rules.block = 16;
    request.total_len = 3;
    request.prompt = 1;
    CHECK(attn_input_prepare(NULL, &request, &input, &err) == ATTN_E_INVALID &&
              strcmp(err.field, "rules") == 0,
          0, "%s", err.message);
    CHECK(attn_input_prepare(&rules, NULL, &input, &err) == ATTN_E_INVALID &&
              strcmp(err.field, "request") == 0,
          0, "%s", err.message);
    input.struct_size--;
    CHECK(attn_input_prepare(&rules, &request, &input, &err) == ATTN_E_INVALID && err.reason == 0 &&
              strcmp(err.field, "out") == 0,
          0, "%s", err.message);
    rules.struct_size = 1;
    CHECK(attn_input_prepare(&rules, &request, &input, &err) == ATTN_E_INVALID &&
              strcmp(err.field, "rules") == 0,
          0, "%s", err.message);
}

static void check_sizes(void)
{
    static uint32_t sizes[1100];
    const uint32_t count = attn_graph_sizes(UINT32_MAX, sizes, 1100);

    CHECK(count == 1027 && sizes[0] == 1 && sizes[3] == 8 && sizes[1026] == 8192, 0, "%u", count);
    CHECK(attn_graph_sizes(0, sizes, 1100) == 0, 0, "no sequences");
    sizes[2] = 99;
    CHECK(attn_graph_sizes(256, sizes, 2) == 35 && sizes[1] == 2 && sizes[2] == 99, 0, "written behind");
    attn_graph_sizes(8192, sizes, 1100);
    for (uint32_t n = 1, at = 0; n <= 8192; n++) {
        at += n > sizes[at];
        CHECK(attn_graph_padded(n) == sizes[at], n, "%u", attn_graph_padded(n));
        CHECK(attn_graph_largest(n) == sizes[at], n, "%u", attn_graph_largest(n));
    }
    CHECK(attn_graph_padded(0) == 0 && attn_graph_padded(8193) == 8200 && attn_graph_largest(8193) == 8192, 0,
          "ends");
}

static void check_pad(void)
{
    struct attn_input_rules rules;
    struct attn_input_step step;
    struct attn_error err;
    int32_t pad;

    ATTN_INIT(&err);
    for (uint64_t seed = 0; seed < 20000; seed++) {
        struct dice dice = {seed};
        ATTN_INIT(&rules);
        ATTN_INIT(&step);
        rules.max_seqs = (uint32_t)dice_roll(&dice, 0, 1) ? (uint32_t)dice_roll(&dice, 1, 40) : 9000;
        rules.max_capture_len = 100;
        rules.multi_step = (uint32_t)dice_roll(&dice, 0, 1);
        rules.chunked_prefill = (uint32_t)dice_roll(&dice, 0, 1);
        rules.eager = dice_roll(&dice, 0, 7) == 0;
        step.seqs = (uint32_t)dice_roll(&dice, 1, dice_roll(&dice, 0, 3) ? 45 : 9000);
        step.prompts = dice_roll(&dice, 0, 1) ? (uint32_t)dice_roll(&dice, 0, step.seqs) : 0;
        step.max_decode_len = (uint32_t)dice_roll(&dice, 90, 102);
        step.max_encoder_len = (uint32_t)dice_roll(&dice, 90, 102);
        CHECK(attn_graph_pad(&rules, &step, &pad, &err) == ATTN_OK, seed, "%s", err.message);
        int may = !rules.eager && step.max_decode_len <= 100 && step.max_encoder_len <= 100;
        may = may && (step.prompts == 0 || (rules.multi_step && rules.chunked_prefill));
        may = may && step.seqs <= 8192 && step.seqs <= attn_graph_largest(rules.max_seqs);
        CHECK(pad == (may ? (int32_t)(attn_graph_padded(step.seqs) - step.seqs) : -1), seed, "%d", pad);
    }
    step.prompts = step.seqs + 1;
    CHECK(attn_graph_pad(&rules, &step, &pad, &err) == ATTN_E_INVALID, 0, "%s", err.message);
}

int main(void)
{
    fence_init(&slot_fence, 3 * MOST_LEN * sizeof(int64_t));
    fence_init(&block_fence, (MOST_LEN + 2) * sizeof(int64_t));
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        one_mapping(seed);
        one_request(seed);
    }
    check_refusals();
    check_profile();
    check_arguments();
    check_sizes();
    check_pad();
    fence_finish(&slot_fence);
    fence_finish(&block_fence);
    printf("%d sequences, %lu checks failed\n", CASES, checks_failed);
    return checks_failed != 0;
}
