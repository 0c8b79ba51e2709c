/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of keys: all values of an enumeration, classes of sizes. */
#include "pairs.h"

#define COUNT(list) ((uint32_t)(sizeof(list) / sizeof *(list)))

/* ---------------------------------------------------------------- classes */

static const char *const group_labels[] = {"1", "even", "odd"};

static uint32_t group_get(const struct attn_problem *problem)
{
    uint32_t group = problem->heads / problem->kv_heads;

    return group == 1 ? 0 : group % 2 == 0 ? 1 : 2;
}

static void group_set(struct attn_problem *problem, uint32_t which)
{
    static const uint32_t groups[] = {1, 4, 3};

    problem->heads = problem->kv_heads * groups[which];
}

static const char *const kv_heads_labels[] = {"1", "more"};

static uint32_t kv_heads_get(const struct attn_problem *problem)
{
    return problem->kv_heads > 1;
}

static void kv_heads_set(struct attn_problem *problem, uint32_t which)
{
    uint32_t group = problem->heads / problem->kv_heads;

    problem->kv_heads = which == 0 ? 1 : 2;
    problem->heads = problem->kv_heads * group;
}

static const char *const head_dim_labels[] = {"below 64", "64", "128", "256", "above 256", "other"};

static uint32_t head_dim_get(const struct attn_problem *problem)
{
    uint32_t dim = problem->head_dim;

    if (dim == 64 || dim == 128 || dim == 256)
        return dim == 64 ? 1 : dim == 128 ? 2 : 3;
    return dim < 64 ? 0 : dim > 256 ? 4 : 5;
}

static void head_dim_set(struct attn_problem *problem, uint32_t which)
{
    static const uint32_t dims[] = {40, 64, 128, 256, 576, 192};

    problem->head_dim = problem->head_dim_vo = dims[which];
}

static const char *const dims_labels[] = {"equal", "narrower", "wider"};

static uint32_t dims_get(const struct attn_problem *problem)
{
    if (problem->head_dim_vo == problem->head_dim)
        return 0;
    return problem->head_dim_vo < problem->head_dim ? 1 : 2;
}

static void dims_set(struct attn_problem *problem, uint32_t which)
{
    uint32_t dim = problem->head_dim;

    problem->head_dim_vo = dim;
    if (which == 1) /* as models have them */
        problem->head_dim_vo = dim == 576 ? 512 : dim == 192 ? 128 : dim > 1 ? dim - (dim + 7) / 8 : 1;
    if (which == 2)
        problem->head_dim_vo = dim + 8;
}

static const char *const block_labels[] = {"1", "2 to 15", "16", "32", "other"};

static uint32_t block_get(const struct attn_problem *problem)
{
    uint32_t block = problem->block;

    return block == 1 ? 0 : block < 16 ? 1 : block == 16 ? 2 : block == 32 ? 3 : 4;
}

static void block_set(struct attn_problem *problem, uint32_t which)
{
    static const uint32_t blocks[] = {1, 5, 16, 32, 64};

    problem->block = blocks[which];
}

static const char *const window_labels[] = {"-1", "L", "L/R", "-1/R"};

static uint32_t window_get(const struct attn_problem *problem)
{
    bool right = (problem->given & ATTN_GIVEN_WINDOW_RIGHT) != 0 && problem->window_right >= 0;

    return problem->window_left >= 0 ? (right ? 2 : 1) : right ? 3 : 0;
}

static void window_set(struct attn_problem *problem, uint32_t which)
{
    problem->given &= ~(ATTN_GIVEN_WINDOW_LEFT | ATTN_GIVEN_WINDOW_RIGHT);
    problem->window_left = problem->window_right = 0;
    if (which == 1 || which == 2) {
        problem->given |= ATTN_GIVEN_WINDOW_LEFT;
        problem->window_left = 17;
    }
    if (which >= 2) {
        problem->given |= ATTN_GIVEN_WINDOW_RIGHT;
        problem->window_right = 3;
    }
}

static const char *const softcap_labels[] = {"0", "above 0"};

static uint32_t softcap_get(const struct attn_problem *problem)
{
    return problem->softcap > 0;
}

static void softcap_set(struct attn_problem *problem, uint32_t which)
{
    problem->softcap = which == 0 ? 0 : 30;
}

/* ---------------------------------------------------------------- enumerations */

static const char *const type_labels[] = {"decoder", "encoder", "encoder_only", "encoder_decoder"};
static const uint32_t types[] = {ATTN_DECODER, ATTN_ENCODER, ATTN_ENCODER_ONLY, ATTN_ENCODER_DECODER};
static const char *const dtype_labels[] = {"f32",  "f16",      "bf16",     "e4m3",
                                           "e5m2", "e4m3fnuz", "e5m2fnuz", "int8"};
static const uint32_t dtypes[] = {ATTN_F32,  ATTN_F16,      ATTN_BF16,     ATTN_E4M3,
                                  ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ, ATTN_INT8};
static const char *const kv_dtype_labels[] = {"f32",  "f16",  "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz",
                                              "int8", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1",     "iq4_nl"};
static const uint32_t kv_dtypes[] = {ATTN_F32,      ATTN_F16,      ATTN_BF16, ATTN_E4M3,  ATTN_E5M2,
                                     ATTN_E4M3FNUZ, ATTN_E5M2FNUZ, ATTN_INT8, ATTN_Q8_0,  ATTN_Q4_0,
                                     ATTN_Q4_1,     ATTN_Q5_0,     ATTN_Q5_1, ATTN_IQ4_NL};
static const char *const addr_labels[] = {"dense", "table", "csr"};
static const uint32_t addressings[] = {ATTN_DENSE, ATTN_TABLE, ATTN_CSR};
static const char *const index_labels[] = {"i32", "i64"};
static const uint32_t indices[] = {ATTN_INT32, ATTN_INT64};
static const char *const causal_labels[] = {"0", "1"};
static const char *const align_labels[] = {"end", "start"};
static const char *const alibi_labels[] = {"none", "key", "distance", "mask"};
static const char *const mask_labels[] = {"none", "bits", "f16", "bf16", "f32"};
static const char *const span_labels[] = {"square", "full"};
static const char *const source_labels[] = {"cache", "new", "cache+new"};
static const char *const layout_labels[] = {"strided", "paged-x"};
static const char *const scale_labels[] = {"none", "unit", "tensor", "head", "token-head", "kv-head"};
static const char *const graph_labels[] = {"never", "single", "uniform", "always"};
static const char *const flag_labels[] = {"0", "1"};
static const uint32_t from_one[] = {1, 2, 3, 4, 5, 6}; /* enumerations that count from 1 */
static const uint32_t flags[] = {0, 1};

#define LIST(key, member, labels, values, n)                                                                 \
    {                                                                                                        \
        key, labels, n, values, offsetof(struct attn_problem, member), NULL, NULL                            \
    }
#define ENUM(key, member, labels) LIST(key, member, labels, from_one, COUNT(labels))
#define FLAG(key)                 LIST(#key, key, flag_labels, flags, 2)
#define CLASS(key)                                                                                           \
    {                                                                                                        \
#key, key##_labels, COUNT(key##_labels), NULL, 0, key##_get, key##_set                               \
    }

const struct pair_key pair_keys[] = {
    LIST("type", type, type_labels, types, COUNT(types)),
    LIST("q", q_dtype, dtype_labels, dtypes, COUNT(dtypes)),
    LIST("k", k_dtype, kv_dtype_labels, kv_dtypes, COUNT(kv_dtypes)),
    LIST("v", v_dtype, kv_dtype_labels, kv_dtypes, COUNT(kv_dtypes)),
    LIST("out", out_dtype, dtype_labels, dtypes, COUNT(dtypes)),
    CLASS(kv_heads),
    CLASS(group),
    CLASS(head_dim),
    CLASS(dims),
    LIST("addr", addressing, addr_labels, addressings, COUNT(addressings)),
    LIST("index", index_dtype, index_labels, indices, COUNT(indices)),
    CLASS(block),
    ENUM("causal", causal, causal_labels),
    ENUM("align", align, align_labels),
    CLASS(window),
    CLASS(softcap),
    ENUM("alibi", alibi, alibi_labels),
    FLAG(sinks),
    ENUM("mask", mask, mask_labels),
    ENUM("span", span, span_labels),
    ENUM("kv_source", kv_source, source_labels),
    ENUM("layout", layout, layout_labels),
    ENUM("q_scale", q_scale, scale_labels),
    LIST("k_scale", k_scale, scale_labels, from_one, 5),
    LIST("v_scale", v_scale, scale_labels, from_one, 5),
    LIST("out_scale", out_scale, scale_labels, from_one, 4),
    FLAG(positions),
    FLAG(seq_causal),
    FLAG(mla),
    FLAG(cp),
    FLAG(lse),
    FLAG(det),
    ENUM("graph", graph, graph_labels),
};

const uint32_t pair_key_count = COUNT(pair_keys);

uint32_t pair_get(const struct pair_key *key, const struct attn_problem *problem)
{
    uint32_t value, which = 0;

    if (key->get != NULL)
        return key->get(problem);
    memcpy(&value, (const char *)problem + key->offset, sizeof value);
    while (which < key->count && key->values[which] != value)
        which++;
    return which;
}

void pair_set(const struct pair_key *key, struct attn_problem *problem, uint32_t which)
{
    if (key->set != NULL)
        key->set(problem, which);
    else
        memcpy((char *)problem + key->offset, &key->values[which], sizeof key->values[which]);
}

uint64_t pair_bit(const char *name)
{
    uint32_t i = 0;

    while (i < pair_key_count && strcmp(pair_keys[i].name, name) != 0)
        i++;
    return UINT64_C(1) << i;
}

/* ---------------------------------------------------------------- keys that depend on others */

static void fit_scale(uint32_t *dtype, uint32_t *scale, uint64_t dtype_bit, uint64_t scale_bit,
                      uint64_t pinned)
{
    bool is_8bit = oracle_is_8bit(*dtype), scaled = *scale != ATTN_SCALES_NONE;

    if (is_8bit == scaled || (oracle_has_blocks(*dtype) && *scale <= ATTN_SCALES_UNIT))
        return;
    if ((pinned & scale_bit) == 0)
        *scale = is_8bit ? ATTN_SCALES_TENSOR : ATTN_SCALES_NONE;
    else if ((pinned & dtype_bit) == 0)
        *dtype = scaled ? ATTN_E4M3 : ATTN_F16;
}

/* Blocks are of strided caches, without scales beside them. */
static void fit_type(uint32_t *dtype, uint64_t dtype_bit, struct attn_problem *problem, uint64_t pinned)
{
    if (!oracle_has_blocks(*dtype))
        return;
    if (problem->layout == ATTN_PAGED_X && (pinned & pair_bit("layout")) == 0)
        problem->layout = ATTN_STRIDED;
    if (problem->kv_source != ATTN_KV_CACHE && (pinned & pair_bit("kv_source")) == 0)
        problem->kv_source = ATTN_KV_CACHE;
    if ((problem->layout == ATTN_PAGED_X || problem->kv_source != ATTN_KV_CACHE) && (pinned & dtype_bit) == 0)
        *dtype = ATTN_F16;
}

/* Sizes of whole blocks, of the same classes as before where there are such. */
static void fit_dims(struct attn_problem *problem)
{
    const bool k = oracle_has_blocks(problem->k_dtype), v = oracle_has_blocks(problem->v_dtype);
    const uint32_t dims = dims_get(problem), dim = problem->head_dim;

    if (!k && !v)
        return;
    if (k || dims == 0)
        problem->head_dim = dim < 64 ? 32 : (dim + 31) / 32 * 32;
    dims_set(problem, dims);
    if (v && problem->head_dim_vo % 32 != 0)
        problem->head_dim_vo = dims == 2 || problem->head_dim_vo < 32 ? (problem->head_dim_vo + 31) / 32 * 32
                                                                      : problem->head_dim_vo / 32 * 32;
}

static void fit_mla(struct attn_problem *problem, uint64_t pinned)
{
    uint32_t group = problem->heads / problem->kv_heads;

    problem->kv_heads = 1;
    problem->heads = group;
    if ((pinned & pair_bit("v")) != 0)
        problem->k_dtype = problem->v_dtype;
    problem->v_dtype = problem->k_dtype;
    problem->v_scale = ATTN_SCALES_NONE;
    if (problem->head_dim_vo > problem->head_dim)
        problem->head_dim_vo = problem->head_dim;
}

bool pairs_fit(struct attn_problem *problem, uint64_t pinned)
{
    fit_type(&problem->k_dtype, pair_bit("k"), problem, pinned);
    fit_type(&problem->v_dtype, pair_bit("v"), problem, pinned);
    if (problem->mla != 0)
        fit_mla(problem, pinned);
    fit_dims(problem);
    fit_scale(&problem->q_dtype, &problem->q_scale, pair_bit("q"), pair_bit("q_scale"), pinned);
    fit_scale(&problem->k_dtype, &problem->k_scale, pair_bit("k"), pair_bit("k_scale"), pinned);
    if (problem->mla == 0)
        fit_scale(&problem->v_dtype, &problem->v_scale, pair_bit("v"), pair_bit("v_scale"), pinned);
    else
        problem->v_dtype = problem->k_dtype;
    fit_scale(&problem->out_dtype, &problem->out_scale, pair_bit("out"), pair_bit("out_scale"), pinned);
    if (problem->alibi == ATTN_ALIBI_MASK && problem->mask <= ATTN_MASK_BITS) {
        if ((pinned & pair_bit("mask")) == 0)
            problem->mask = ATTN_MASK_F32;
        else if ((pinned & pair_bit("alibi")) == 0)
            problem->alibi = ATTN_ALIBI_KEY;
    }
    if (problem->index_dtype == ATTN_INT64 && (pinned & pair_bit("addr")) == 0)
        problem->addressing = ATTN_CSR;
    if (problem->cp != 0 && (pinned & pair_bit("kv_source")) == 0)
        problem->kv_source = ATTN_KV_CACHE;
    return attn_problem_resolve(problem, problem, NULL) == ATTN_OK;
}
