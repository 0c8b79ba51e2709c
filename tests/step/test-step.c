/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Properties of metadata after its build, over random steps in every flavour, in host memory and on a device
 * of its own: parts are the whole, an advance is the next step built from scratch, and what was written as
 * bytes and read again is the same step.
 */
#include "fixture.h"

#include "metadata.h"

#define CASES 110000

unsigned long checks_failed;
static unsigned long parts_seen, advances_seen, to_decode_seen, restores_seen, damaged_seen;
static struct fence bytes_fence, token_fence, position_fence;

/* ---------------------------------------------------------------- parts */

static struct attn_metadata_impl *part_of(struct attn_builder_impl *builder, uint32_t part, uint64_t seed)
{
    struct attn_metadata_impl *out = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    CHECK(attn_serving_builder.part(builder, part, &out, &err) == ATTN_OK, seed, "%s: %s", err.field,
          err.message);
    return out;
}

/* Elements of both parts, one behind the other, are those of the whole, `less` of the second. */
static void concatenate(const struct attn_metadata_impl *whole, const struct attn_metadata_impl *prefill,
                        const struct attn_metadata_impl *decode, uint32_t field, uint32_t group,
                        uint64_t overlap, int64_t less, uint64_t seed)
{
    const struct attn_view all = fixture_get(whole, field, group);
    struct attn_view parts[2] = {{0}, {0}};
    uint64_t at = 0;

    if (prefill != NULL)
        parts[0] = fixture_get(prefill, field, group);
    if (decode != NULL)
        parts[1] = fixture_get(decode, field, group);
    for (int p = 0; p < 2; p++) {
        for (uint64_t i = 0; i < fixture_count(&parts[p]); i++) {
            const int64_t value = fixture_at(&parts[p], i, 0) + (p == 1 ? less : 0);
            if (at >= fixture_count(&all))
                break;
            CHECK(value == fixture_at(&all, at, 0), seed, "%s[%u] at %llu: %lld", attn__field_name(field),
                  group, (unsigned long long)at, (long long)value);
            if (parts[p].kind == ATTN_VIEW_ARRAY)
                CHECK(fixture_at(&parts[p], i, 1) == fixture_at(&parts[p], i, 0), seed, "%s on the device",
                      attn__field_name(field));
            at++;
        }
        at -= p == 0 && fixture_count(&parts[0]) > 0 && parts[1].kind == ATTN_VIEW_ARRAY ? overlap : 0;
    }
    if (parts[1].kind != ATTN_VIEW_NULL || decode == NULL)
        CHECK(at == fixture_count(&all), seed, "%s: %llu of %llu", attn__field_name(field),
              (unsigned long long)at, (unsigned long long)fixture_count(&all));
}

static int64_t number(const struct attn_metadata_impl *m, uint32_t field)
{
    return m != NULL ? fixture_get(m, field, 0).value : 0;
}

static void check_parts(const struct fixture_step *step, struct attn_builder_impl *builder,
                        struct attn_metadata_impl *whole, uint64_t seed)
{
    struct attn_metadata_impl *prefill = part_of(builder, ATTN_PART_PREFILL, seed);
    struct attn_metadata_impl *decode = part_of(builder, ATTN_PART_DECODE, seed);
    const int64_t tokens = number(whole, ATTN_FIELD_NUM_PREFILL_TOKENS);

    CHECK((prefill != NULL) == (number(whole, ATTN_FIELD_NUM_PREFILLS) > 0), seed, "prefill");
    CHECK((decode != NULL) == (number(whole, ATTN_FIELD_NUM_DECODE_TOKENS) > 0), seed, "decode");
    if (step->flavour == ATTN_FLASHINFER) {
        CHECK((prefill == NULL || prefill == whole) && (decode == NULL || decode == whole), seed, "itself");
        return;
    }
    parts_seen += prefill != NULL && decode != NULL;
    for (uint32_t g = 0; g < step->groups; g++) {
        concatenate(whole, prefill, decode, ATTN_FIELD_SLOT_MAPPING, g, 0, 0, seed);
        concatenate(whole, prefill, decode, ATTN_FIELD_SEQ_LENS_TENSOR, g, 0, 0, seed);
        concatenate(whole, prefill, decode, ATTN_FIELD_BLOCK_TABLES, g, 0, 0, seed);
        if (step->flavour == ATTN_FLASH_ATTN)
            concatenate(whole, prefill, decode, ATTN_FIELD_SEQ_START_LOC, g, 1, 0, seed);
    }
    if (step->flavour == ATTN_FLASH_ATTN)
        concatenate(whole, prefill, decode, ATTN_FIELD_QUERY_START_LOC, 0, 1, tokens, seed);
    CHECK(number(prefill, ATTN_FIELD_NUM_PREFILLS) + number(decode, ATTN_FIELD_NUM_PREFILLS) ==
              number(whole, ATTN_FIELD_NUM_PREFILLS),
          seed, "counts");
    CHECK(number(prefill, ATTN_FIELD_NUM_PREFILL_TOKENS) + number(decode, ATTN_FIELD_NUM_PREFILL_TOKENS) ==
              tokens,
          seed, "prompt tokens");
    CHECK(number(prefill, ATTN_FIELD_NUM_DECODE_TOKENS) + number(decode, ATTN_FIELD_NUM_DECODE_TOKENS) ==
              number(whole, ATTN_FIELD_NUM_DECODE_TOKENS),
          seed, "decode tokens");
    CHECK(number(prefill, ATTN_FIELD_MAX_DECODE_SEQ_LEN) == 0 &&
              number(decode, ATTN_FIELD_MAX_PREFILL_SEQ_LEN) == 0,
          seed, "longest");
    for (uint32_t m = 0; m < step->modalities && prefill != NULL; m++)
        concatenate(whole, prefill, NULL, ATTN_FIELD_MULTI_MODAL_DESTINATIONS, m, 0, 0, seed);
    if (decode != NULL && step->modalities)
        CHECK(fixture_get(decode, ATTN_FIELD_MULTI_MODAL_SOURCES, 1).kind == ATTN_VIEW_NULL, seed,
              "maps of decodes");
}

/* ---------------------------------------------------------------- bytes */

/* Whether nothing was allocated since then. */
static void check_heap(unsigned long before, const char *what, uint64_t seed)
{
    CHECK(fixture_allocations == before, seed, "%s allocates", what);
}

static void *write_bytes(struct attn_builder_impl *builder, uint64_t *size, uint64_t seed)
{
    struct attn_error err;
    uint64_t again;
    const unsigned long before = fixture_allocations;

    ATTN_INIT(&err);
    CHECK(attn_serving_builder.serialise(builder, NULL, 0, size, &err) == ATTN_E_SIZE, seed, "%s",
          err.message);
    char *data = fence_end(&bytes_fence, *size);
    CHECK(attn_serving_builder.serialise(builder, data, *size, &again, &err) == ATTN_OK && again == *size,
          seed, "%s", err.message);
    check_heap(before, "serialise", seed);
    return data;
}

/* Another builder makes the same step of the bytes, and the same bytes of the step. */
static struct attn_metadata_impl *check_bytes(const struct fixture_step *step,
                                              struct attn_builder_impl *builder,
                                              struct attn_metadata_impl *whole,
                                              struct attn_builder_impl *other, uint64_t seed)
{
    struct attn_metadata_impl *restored = NULL;
    struct attn_error err;
    uint64_t size, again;

    ATTN_INIT(&err);
    char *data = write_bytes(builder, &size, seed);
    char *kept = malloc(size);
    memcpy(kept, data, size);
    const unsigned long before = fixture_allocations;
    attn_serving_builder.reset(other, &err);
    CHECK(attn_serving_builder.restore(other, data, size, NULL, &restored, &err) == ATTN_OK, seed, "%s: %s",
          err.field, err.message);
    check_heap(before, "restore", seed);
    if (restored != NULL) {
        restores_seen++;
        fixture_same(step, whole, restored, 1, seed);
        memset(data, 0, size);
        char *second = write_bytes(other, &again, seed);
        CHECK(again == size && memcmp(second, kept, size) == 0, seed, "other bytes");
        check_parts(step, other, restored, seed);
    }
    free(kept);
    return restored;
}

/* Words and bytes are changed; what is not refused can be used like any step. */
static void check_damage(struct dice *dice, const struct fixture_step *step,
                         struct attn_builder_impl *builder, struct attn_builder_impl *other, uint64_t seed)
{
    static const int64_t edge_values[] = {-1,        0,         1,         2,          255,    INT32_MAX,
                                          INT32_MIN, INT64_MAX, INT64_MIN, UINT32_MAX, 1 << 20};
    uint64_t size;
    char *data = write_bytes(builder, &size, seed);

    for (int64_t n = dice_roll(dice, 1, 3); n > 0; n--) {
        const uint64_t most = dice_roll(dice, 0, 1) && size > 1500 ? 1500 : size,
                       at = (uint64_t)dice_roll(dice, 0, (int64_t)most - 8);
        const int64_t word = edge_values[dice_roll(dice, 0, 10)];
        if (dice_roll(dice, 0, 1))
            memcpy(data + at / 8 * 8, &word, sizeof word);
        else if (dice_roll(dice, 0, 1))
            memcpy(data + at / 4 * 4, &word, 4);
        else
            data[at] = (char)dice_roll(dice, -128, 127);
    }
    const uint64_t shown = dice_roll(dice, 0, 9) ? size : (uint64_t)dice_roll(dice, 0, (int64_t)size);
    char *copy = fence_end(&bytes_fence, shown);
    memmove(copy, data, shown);
    struct attn_metadata_impl *restored = fixture_restore(other, copy, shown, seed);
    damaged_seen += restored != NULL;
    if (restored != NULL && !step->apart)
        fixture_use(step, other, restored);
}

/* ---------------------------------------------------------------- the next step */

struct tokens {
    int64_t *tokens;
    int64_t *positions;
    uint32_t count;
};

static int32_t advance(struct dice *dice, const struct fixture_step *step, struct attn_builder_impl *builder,
                       const int32_t *accepted, const struct attn_metadata_impl *whole, int to_decode,
                       struct tokens *at)
{
    const uintptr_t apart = step->apart ? (uintptr_t)1 << 62 : 0;
    struct attn_advance_args args;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&args);
    args.seqs = step->seqs + step->pad;
    args.queries = step->seqs;
    args.prefill_to_decode = (uint32_t)to_decode;
    args.accepted = accepted;
    if (accepted != NULL && step->apart)
        args.accepted_device.data = (void *)((uintptr_t)accepted | apart);
    const struct attn_view slots = fixture_get(whole, ATTN_FIELD_SLOT_MAPPING, 0);
    at->count = to_decode ? args.seqs : (uint32_t)slots.shape[0];
    at->tokens = fence_end(&token_fence, at->count * sizeof *at->tokens);
    at->positions = fence_end(&position_fence, at->count * sizeof *at->positions);
    for (uint32_t i = 0; i < at->count; i++)
        at->tokens[i] = dice_roll(dice, 1, 9);
    args.tokens.data = args.sampled.data = (void *)((uintptr_t)at->tokens | apart);
    args.positions.data = (void *)((uintptr_t)at->positions | apart);
    memset(at->positions, 0x5a, at->count * sizeof *at->positions);
    const int32_t status = attn_serving_builder.advance(builder, &args, NULL, &err);
    if (status != ATTN_OK)
        printf("%s: %s\n", err.field, err.message);
    return status;
}

static void check_positions(const struct fixture_step *next, const struct tokens *at, uint64_t seed)
{
    uint32_t row = 0;

    for (uint32_t i = 0; i < next->seqs; i++)
        for (uint32_t q = 0; q < next->seq[i].query_len; q++, row++)
            CHECK(at->positions[row] == next->seq[i].context_len + q && at->tokens[row] != 0, seed,
                  "position %u is %lld", row, (long long)at->positions[row]);
    for (; row < at->count; row++)
        CHECK(next->flavour == ATTN_FLASHINFER ? at->positions[row] == INT64_C(0x5a5a5a5a5a5a5a5a)
                                               : at->positions[row] == 0 && at->tokens[row] == 0,
              seed, "padding %u", row);
}

/* Pages in use, which an advance fills in and a build leaves at 0. */
static void check_bound(const struct fixture_step *next, const struct attn_metadata_impl *whole,
                        uint64_t seed)
{
    for (uint32_t g = 0; g < next->groups && next->flavour == ATTN_FLASHINFER; g++) {
        const struct attn_view bound = fixture_get(whole, ATTN_FIELD_BLOCK_TABLE_BOUND, g);
        for (uint32_t i = 0; i < next->seqs; i++) {
            const uint32_t len = next->seq[i].context_len + next->seq[i].query_len;
            CHECK(fixture_at(&bound, i, 0) == (len + next->block[g] - 1) / next->block[g] &&
                      fixture_at(&bound, i, 1) == fixture_at(&bound, i, 0),
                  seed, "bound %u", i);
        }
    }
}

static void check_advance(struct dice *dice, const struct fixture_step *step,
                          struct attn_builder_impl *builder, struct attn_metadata_impl *whole, int to_decode,
                          uint64_t seed)
{
    struct attn_builder_impl *fresh = fixture_builder(step), *worker = fixture_builder(step);
    struct fixture_step next = *step;

    for (int n = 0; n < 3; n++) {
        int32_t accepted[FIXTURE_SEQS];
        const int counted = (int)dice_roll(dice, 0, 1);
        struct tokens at;
        for (uint32_t i = 0; i < next.seqs; i++) {
            struct fixture_seq *seq = &next.seq[i];
            accepted[i] = (int32_t)dice_roll(dice, 0, 3);
            const uint32_t len = seq->context_len + seq->query_len + (counted ? (uint32_t)accepted[i] : 1);
            seq->query_len = to_decode && n == 0 ? 1 : seq->query_len;
            seq->context_len = len - seq->query_len;
            seq->prompt = seq->hit = 0;
        }
        unsigned long before = fixture_allocations;
        struct attn_metadata_impl *scratch = fixture_build(fresh, &next);
        check_heap(before, "build", seed);
        const int32_t status =
            advance(dice, &next, builder, counted ? accepted : NULL, whole, to_decode && n == 0, &at);
        CHECK(status == ATTN_OK, seed, "step %d", n);
        check_heap(before, "advance", seed);
        if (status != ATTN_OK)
            break;
        advances_seen++;
        to_decode_seen += to_decode && n == 0;
        fixture_same(&next, whole, scratch, 0, seed);
        check_positions(&next, &at, seed);
        check_bound(&next, whole, seed);
        check_parts(&next, builder, whole, seed);
        if (n == 1) {
            /* A worker that got the step as bytes goes on as this one does. */
            struct attn_metadata_impl *restored = check_bytes(&next, builder, whole, worker, seed);
            if (restored == NULL)
                break;
            attn_serving_builder.destroy(builder);
            builder = worker;
            whole = restored;
            worker = NULL;
        }
    }
    attn_serving_builder.destroy(builder);
    attn_serving_builder.destroy(fresh);
    attn_serving_builder.destroy(worker);
}

static void one_case(uint64_t seed)
{
    const enum fixture_kind kind = (enum fixture_kind)(seed % 3);
    struct dice dice = {seed};
    struct fixture_step step;

    fixture_roll(&dice, kind, &step);
    struct attn_builder_impl *builder = fixture_builder(&step);
    struct attn_metadata_impl *whole = fixture_build(builder, &step);
    check_parts(&step, builder, whole, seed);
    if (kind != FIXTURE_ANY) {
        int prompts = 0;
        for (uint32_t i = 0; i < step.seqs; i++)
            prompts += step.seq[i].prompt != 0;
        check_advance(&dice, &step, builder, whole, prompts > 0, seed);
        return;
    }
    struct attn_builder_impl *other = fixture_builder(&step);
    check_bytes(&step, builder, whole, other, seed);
    for (int n = 0; n < 3; n++)
        check_damage(&dice, &step, builder, other, seed);
    attn_serving_builder.destroy(builder);
    attn_serving_builder.destroy(other);
}

int main(int argc, char **argv)
{
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    const uint64_t last = argc > 2 ? strtoull(argv[2], NULL, 0) : argc > 1 ? first : CASES;

    fence_init(&bytes_fence, 1 << 20);
    fence_init(&token_fence, FIXTURE_TOKENS * sizeof(int64_t));
    fence_init(&position_fence, FIXTURE_TOKENS * sizeof(int64_t));
    for (uint64_t seed = first; seed <= last; seed++)
        one_case(seed);
    CHECK(fixture_allocations > 0, 0, "allocations are not counted");
    fence_finish(&bytes_fence);
    fence_finish(&token_fence);
    fence_finish(&position_fence);
    printf("%llu steps: %lu of both parts, %lu advances, %lu of them from prefill to decode, %lu restored, "
           "%lu damaged ones "
           "accepted; "
           "%lu checks failed\n",
           (unsigned long long)(last - first + 1), parts_seen, advances_seen, to_decode_seen, restores_seen,
           damaged_seen, checks_failed);
    return checks_failed != 0;
}
