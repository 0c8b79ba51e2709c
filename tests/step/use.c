/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Does with a step of unknown origin whatever can be done with one, so that checkers of memory see it. */
#include "fixture.h"
#include "metadata.h"

static volatile uint64_t sum;

static void read_fields(const struct fixture_step *step, const struct attn_metadata_impl *metadata)
{
    for (uint32_t field = 1; field < ATTN_FIELDS; field++) {
        const enum attn__scope scope = attn__field_infos[field].scope;
        const uint32_t count = scope == ATTN__GROUP      ? step->groups
                               : scope == ATTN__MODALITY ? step->modalities
                                                         : 1;
        for (uint32_t i = 0; i < count; i++) {
            const struct attn_view view = fixture_get(metadata, field, i);
            sum += (uint64_t)view.value;
            for (uint64_t k = 0; k < fixture_count(&view); k++)
                sum += (uint64_t)fixture_at(&view, k, 0) +
                       (uint64_t)fixture_at(&view, k, view.kind == ATTN_VIEW_ARRAY);
        }
    }
}

/* Start locations that kernels follow: from 0, never falling, inside of what they lead into. */
static void judge_starts(const struct attn_metadata_impl *metadata, uint32_t field, uint32_t index,
                         int64_t most)
{
    const struct attn_view view = fixture_get(metadata, field, index);
    int64_t last = 0;

    for (uint64_t i = 0; i < fixture_count(&view); i++) {
        const int64_t at = fixture_at(&view, i, 0);
        CHECK(at >= last && at <= most && (i > 0 || at == 0), 0, "%s[%u] at %llu: %lld",
              attn__field_name(field), index, (unsigned long long)i, (long long)at);
        last = at;
    }
}

static void judge(const struct fixture_step *step, const struct attn_metadata_impl *whole)
{
    judge_starts(whole, ATTN_FIELD_QUERY_START_LOC, 0, FIXTURE_TOKENS);
    judge_starts(whole, ATTN_FIELD_ENCODER_SEQ_START_LOC, 0, INT32_MAX);
    for (uint32_t g = 0; g < step->groups; g++) {
        const struct attn_view indices = fixture_get(whole, ATTN_FIELD_PAGED_KV_INDICES, g);
        const struct attn_view lens = fixture_get(whole, ATTN_FIELD_SEQ_LENS_TENSOR, g);
        judge_starts(whole, ATTN_FIELD_PAGED_KV_INDPTR, g, (int64_t)fixture_count(&indices));
        judge_starts(whole, ATTN_FIELD_SEQ_START_LOC, g, INT32_MAX);
        for (uint64_t i = 0; i < fixture_count(&lens); i++)
            CHECK(fixture_at(&lens, i, 0) >= 0, 0, "length %llu", (unsigned long long)i);
    }
}

static void advance(const struct attn_metadata_impl *whole, struct attn_builder_impl *builder, int to_decode)
{
    static int64_t tokens[FIXTURE_TOKENS], positions[FIXTURE_TOKENS];
    struct attn_advance_args args;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&args);
    args.seqs = whole->step.seqs;
    args.queries = whole->step.queries;
    args.prefill_to_decode = (uint32_t)to_decode;
    args.sampled.data = args.tokens.data = tokens;
    args.positions.data = positions;
    (void)attn_serving_builder.advance(builder, &args, NULL, &err);
}

void fixture_use(const struct fixture_step *step, struct attn_builder_impl *builder,
                 struct attn_metadata_impl *whole)
{
    struct attn_error err;

    ATTN_INIT(&err);
    read_fields(step, whole);
    judge(step, whole);
    for (int n = 0; n < 3; n++) {
        for (uint32_t part = ATTN_PART_PREFILL; part <= ATTN_PART_DECODE; part++) {
            struct attn_metadata_impl *half = NULL;
            if (attn_serving_builder.part(builder, part, &half, &err) == ATTN_OK && half != NULL)
                read_fields(step, half);
        }
        advance(whole, builder, n == 0);
        read_fields(step, whole);
        judge(step, whole);
    }
}

struct attn_metadata_impl *fixture_restore(struct attn_builder_impl *builder, const void *data, uint64_t size,
                                           uint64_t seed)
{
    struct attn_metadata_impl *out = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    attn_serving_builder.reset(builder, &err);
    const int32_t status = attn_serving_builder.restore(builder, data, size, NULL, &out, &err);
    if (status == ATTN_OK)
        return out;
    CHECK((status == ATTN_E_INVALID || status == ATTN_E_SIZE) && err.field[0] != '\0' &&
              err.message[0] != '\0' && out == NULL,
          seed, "%d, \"%s\", \"%s\"", status, err.field, err.message);
    return NULL;
}
