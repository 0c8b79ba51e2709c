/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scores and weights of a tile: a work-item takes a row, or a part of it. */
#ifdef PREFILL_MR

/* The score of a work-item's row for a key, or false if the row does not see it. */
INLINE bool prefill_score(const struct run *run, const struct sequence *s, const struct row *row, bool plain,
                          __local const struct prefill_tile *tile, int first, int at, float *score)
{
    const int key = first + at;
    float bias = 0;

    if (tile->k[at] < 0 || key < row->lo || key >= row->hi || (!plain && !sees(run, s, row, key, &bias)))
        return false;
    *score = score_of(run, *score, row->scale, tile->k_scale[at]) + bias;
    return true;
}

/* Turns the products of a work-item's row into scores, and returns the largest; *seen gets a bit for each
 * key. */
INLINE float prefill_scores(const struct run *run, const struct sequence *s, const struct row *row, int first,
                            int begin, __local const struct prefill_tile *tile, __local float4 *at,
                            uint *seen)
{
    const bool plain = !run->a->has_mask && !GIVEN(run, slopes);
    float most = -INFINITY;

    *seen = 0;
    for (int i = 0; i < PREFILL_SEGMENT; i += 4) {
        const float4 product = at[i / 4];
        float score[4] = {product.x, product.y, product.z, product.w};
        UNROLL
        for (int j = 0; j < 4; j++) {
            if (prefill_score(run, s, row, plain, tile, first, begin + i + j, &score[j])) {
                *seen |= 1u << (i + j);
                most = score[j] > most ? score[j] : most;
            }
        }
        at[i / 4] = (float4)(score[0], score[1], score[2], score[3]);
    }
    return most;
}

/* The same where every key is seen, nothing is added, and there is no soft cap. */
INLINE float prefill_plain_scores(const struct run *run, const struct row *row, int begin,
                                  __local const struct prefill_tile *tile, __local float4 *at)
{
    const float factor = row->scale * run->a->softmax_scale;
    float4 most = (float4)(-INFINITY);

    UNROLL
    for (int i = 0; i < PREFILL_SEGMENT / 4; i++) {
        float4 score = at[i] * factor;
        if (SIZE(K_DTYPE) == 1) /* only 8-bit keys have scales */
            score *= ((__local const float4 *)(tile->k_scale + begin))[i];
        at[i] = score;
        most.x = score.x > most.x ? score.x : most.x;
        most.y = score.y > most.y ? score.y : most.y;
        most.z = score.z > most.z ? score.z : most.z;
        most.w = score.w > most.w ? score.w : most.w;
    }
    most.x = most.y > most.x ? most.y : most.x;
    most.z = most.w > most.z ? most.w : most.z;
    return most.z > most.x ? most.z : most.x;
}

INLINE float prefill_weight(uint seen, int i, float score, float base)
{
    return (seen >> i & 1) != 0 ? PREFILL_EXP(score - base) : HIDDEN;
}

/*
 * Turns products into weights relative to the row's maximum, which it may raise; what the sums so far are
 * multiplied by goes into the tile. Returns the sum of the work-item's weights, and in *factor what the
 * earlier ones are worth.
 */
INLINE float prefill_weights(const struct run *run, const struct sequence *s, const struct row *row, bool all,
                             int first, int item, __local struct prefill_tile *tile, float *row_max,
                             float *factor)
{
    const int r = item % PREFILL_ROWS, segment = item / PREFILL_ROWS, begin = segment * PREFILL_SEGMENT;
    __local float4 *at = (__local float4 *)(tile->weight + r * PREFILL_STRIDE + begin);
    float4 sum = (float4)(0);
    const bool simple = all && !(run->a->softcap > 0);
    uint seen = ~0u;
    float most = simple ? prefill_plain_scores(run, row, begin, tile, at)
                        : prefill_scores(run, s, row, first, begin, tile, at, &seen);

    tile->segment_max[segment * PREFILL_ROWS + r] = most;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < PREFILL_SEGMENTS; i++)
        most =
            tile->segment_max[i * PREFILL_ROWS + r] > most ? tile->segment_max[i * PREFILL_ROWS + r] : most;
    *factor = 1;
    if (most > *row_max + RESCALE_THRESHOLD) {
        *factor = exp(*row_max - most);
        *row_max = most;
        tile->rescale = 1;
    }
    if (segment == 0)
        tile->factor[r] = *factor;
    const float base = base_of(*row_max);
    UNROLL
    for (int i = 0; i < PREFILL_SEGMENT; i += 4) {
        float4 weight = at[i / 4];
        weight.x = prefill_weight(seen, i, weight.x, base);
        weight.y = prefill_weight(seen, i + 1, weight.y, base);
        weight.z = prefill_weight(seen, i + 2, weight.z, base);
        weight.w = prefill_weight(seen, i + 3, weight.w, base);
        at[i / 4] = weight;
        sum += weight;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return (sum.x + sum.y) + (sum.z + sum.w);
}

#endif
