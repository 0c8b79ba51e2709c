/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Resolves the arguments of a call into those of a kernel: buffers, strides, and which arrays exist. */
#include "opencl.h"

int32_t opencl_resolve_places(struct opencl_launch *launch, const struct opencl_place *places, size_t count,
                              struct attn_error *err)
{
    int32_t status = ATTN_OK;

    for (size_t i = 0; i < count && status == ATTN_OK; i++)
        status =
            opencl_launch_add(launch, places[i].which, places[i].buffer, places[i].size, places[i].name, err);
    return status;
}

int32_t opencl_resolve_batch(struct opencl_launch *launch, const struct attn_batch *batch,
                             uint32_t addressing, uint32_t index_dtype, struct attn_error *err)
{
    static const struct attn_buffer none;
    struct opencl_arguments *a = &launch->arguments;
    const bool table = addressing == ATTN_TABLE, csr = addressing == ATTN_CSR;
    const uint32_t index = csr && index_dtype == ATTN_INT64 ? 8 : 4;
    const struct opencl_place places[] = {
        {OPENCL_BUFFER_q_offsets, &batch->q_offsets, 4, "q_offsets"},
        {OPENCL_BUFFER_kv_lens, &batch->kv_lens, 4, "kv_lens"},
        {OPENCL_BUFFER_kv_offsets, addressing == ATTN_DENSE ? &batch->kv_offsets : &none, 4, "kv_offsets"},
        {OPENCL_BUFFER_table,
         table ? &batch->table
         : csr ? &batch->csr_indices
               : &none,
         index, table ? "table" : "csr_indices"},
        {OPENCL_BUFFER_indptr, csr ? &batch->csr_indptr : &none, 4, "csr_indptr"},
    };

    a->seqs = (opencl_i32)batch->seqs;
    a->num_tokens = (opencl_i32)batch->num_tokens;
    a->addressing = (opencl_i32)addressing;
    a->wide_index = index == 8;
    a->table_stride = batch->table_stride;
    return opencl_resolve_places(launch, places, sizeof places / sizeof places[0], err);
}

/* Keys have 16 bytes of a vector together, values one element. */
static void set_paged_x(struct opencl_arguments *a, const struct attn_kv_desc *desc)
{
    a->k_x = 16;
    a->v_x = (opencl_i32)opencl_size(desc->v_dtype);
    a->k.token = a->k_x;
    a->v.token = a->v_x;
    a->k_x_stride = (opencl_i32)desc->block * a->k_x;
    a->v_x_stride = (opencl_i32)desc->block * a->v_x;
}

int32_t opencl_resolve_cache(struct attn_backend_impl *backend, struct opencl_launch *launch,
                             const struct attn_kv_desc *desc, struct attn_error *err)
{
    const uint64_t counts[3] = {desc->pages, desc->block, desc->kv_heads};
    const struct opencl_place places[] = {
        {OPENCL_BUFFER_k, &desc->k, opencl_size(desc->k_dtype), "kv.k"},
        {OPENCL_BUFFER_v, &desc->v, opencl_size(desc->v_dtype), "kv.v"},
    };

    launch->arguments.k =
        (struct opencl_strides){desc->k_page_stride, desc->k_token_stride, desc->k_head_stride};
    launch->arguments.v =
        (struct opencl_strides){desc->v_page_stride, desc->v_token_stride, desc->v_head_stride};
    if (desc->layout == ATTN_PAGED_X)
        set_paged_x(&launch->arguments, desc);
    int32_t status = opencl_resolve_places(launch, places, sizeof places / sizeof places[0], err);
    if (status == ATTN_OK)
        status = opencl_scale_add(backend, launch, OPENCL_BUFFER_k_scale, &desc->k_scale, counts,
                                  "kv.k_scale", err);
    if (status == ATTN_OK)
        status = opencl_scale_add(backend, launch, OPENCL_BUFFER_v_scale, &desc->v_scale, counts,
                                  "kv.v_scale", err);
    return status;
}

struct opencl_rows opencl_rows_of(const struct attn_tensor *tensor)
{
    return (struct opencl_rows){tensor->token_stride, tensor->head_stride};
}

/* Only rank 0 adds the sink. */
static int32_t resolve_tensors(struct opencl_launch *launch, const struct attn_problem *p, uint32_t rank,
                               const struct attn_tensors *t, struct attn_error *err)
{
    static const struct attn_buffer none;
    const bool new = p->kv_source != ATTN_KV_CACHE;
    const struct opencl_place places[] = {
        {OPENCL_BUFFER_q, &t->q.buffer, opencl_size(p->q_dtype), "tensors.q"},
        {OPENCL_BUFFER_q_rope, p->mla != 0 ? &t->q_rope.buffer : &none, opencl_size(p->q_dtype),
         "tensors.q_rope"},
        {OPENCL_BUFFER_out, &t->out.buffer, opencl_size(p->out_dtype), "tensors.out"},
        {OPENCL_BUFFER_lse, p->lse != 0 ? &t->lse.buffer : &none, 4, "tensors.lse"},
        {OPENCL_BUFFER_k_new, new ? &t->k_new.buffer : &none, opencl_size(p->k_dtype), "tensors.k_new"},
        {OPENCL_BUFFER_v_new, new ? &t->v_new.buffer : &none, opencl_size(p->v_dtype), "tensors.v_new"},
        {OPENCL_BUFFER_slopes, p->alibi > ATTN_ALIBI_NONE ? &t->alibi_slopes : &none, 4,
         "tensors.alibi_slopes"},
        {OPENCL_BUFFER_sinks, p->sinks != 0 && rank == 0 ? &t->sinks : &none,
         t->sinks_dtype == ATTN_BF16 ? 2 : 4, "tensors.sinks"},
    };
    struct opencl_arguments *a = &launch->arguments;

    a->q = opencl_rows_of(&t->q);
    a->q_rope = opencl_rows_of(&t->q_rope);
    a->split = (opencl_i32)(p->mla != 0 && t->q_rope.buffer.data != NULL ? p->head_dim_vo : p->head_dim);
    a->out = opencl_rows_of(&t->out);
    a->lse = opencl_rows_of(&t->lse);
    a->k_new = opencl_rows_of(&t->k_new);
    a->v_new = opencl_rows_of(&t->v_new);
    a->sinks_bf16 = t->sinks_dtype == ATTN_BF16;
    a->softmax_scale = t->softmax_scale;
    return opencl_resolve_places(launch, places, sizeof places / sizeof places[0], err);
}

/* Only the device knows how many scales the tokens of new keys have that kv_offsets lay out. */
static bool has_uncounted(const struct attn_problem *p, const struct attn_batch *batch,
                          const struct attn_tensors *t)
{
    const bool k = t->k_new_scale.kind == ATTN_SCALE_HOST && t->k_new_scale.token_stride != 0;
    const bool v = t->v_new_scale.kind == ATTN_SCALE_HOST && t->v_new_scale.token_stride != 0;

    return p->kv_source == ATTN_KV_NEW && batch->kv_offsets.data != NULL && (k || v);
}

static int32_t resolve_scales(struct attn_backend_impl *backend, struct opencl_launch *launch,
                              const struct attn_problem *p, const struct attn_batch *batch,
                              const struct attn_tensors *t, struct attn_error *err)
{
    const bool by_kv_head = p->q_scale == ATTN_SCALES_KV_HEAD, new = p->kv_source != ATTN_KV_CACHE;
    static const struct attn_scale none;
    const uint64_t rows = batch->num_tokens;
    const struct {
        enum opencl_buffer which;
        const struct attn_scale *scale;
        uint64_t heads;
        const char *name;
    } scales[] = {
        {OPENCL_BUFFER_q_scale, &t->q_scale, by_kv_head ? p->kv_heads : p->heads, "tensors.q_scale"},
        {OPENCL_BUFFER_out_scale, &t->out_scale, p->heads, "tensors.out_scale"},
        {OPENCL_BUFFER_k_new_scale, new ? &t->k_new_scale : &none, p->kv_heads, "tensors.k_new_scale"},
        {OPENCL_BUFFER_v_new_scale, new ? &t->v_new_scale : &none, p->kv_heads, "tensors.v_new_scale"}};
    int32_t status = ATTN_OK;

    launch->arguments.q_scale_group = by_kv_head ? launch->arguments.group : 1;
    if (has_uncounted(p, batch, t))
        return opencl_fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_SCALES, "tensors.k_new_scale",
                           "with kv_offsets the scales of single tokens of k_new and v_new must be device "
                           "memory, because their number is known on the device alone");
    for (uint32_t i = 0; i < 4 && status == ATTN_OK; i++)
        status =
            opencl_scale_add(backend, launch, scales[i].which, scales[i].scale,
                             (const uint64_t[3]){batch->seqs, rows, scales[i].heads}, scales[i].name, err);
    return status;
}

static void resolve_problem(struct opencl_arguments *a, const struct attn_problem *p)
{
    a->heads = (opencl_i32)p->heads;
    a->group = (opencl_i32)(p->heads / p->kv_heads);
    a->head_dim = (opencl_i32)p->head_dim;
    a->head_dim_vo = (opencl_i32)p->head_dim_vo;
    a->q_dtype = (opencl_i32)p->q_dtype;
    a->out_dtype = (opencl_i32)p->out_dtype;
    a->k_to = (opencl_i32)p->k_dtype;
    a->v_to = (opencl_i32)(p->mla != 0 ? p->k_dtype : p->v_dtype);
    a->block = (opencl_i32)p->block;
    a->causal = p->causal == ATTN_CAUSAL_YES;
    a->from_start = p->align == ATTN_ALIGN_START;
    a->left = (p->given & ATTN_GIVEN_WINDOW_LEFT) != 0 ? p->window_left : -1;
    a->right = p->window_right;
    a->right_given = (p->given & ATTN_GIVEN_WINDOW_RIGHT) != 0;
    a->softcap = p->softcap;
    a->alibi = (opencl_i32)p->alibi;
    a->last_new = p->kv_source == ATTN_KV_CACHE_NEW;
    a->only_new = p->kv_source == ATTN_KV_NEW;
}

static uint32_t mask_dtype(uint32_t mask)
{
    return mask == ATTN_MASK_F16    ? (uint32_t)ATTN_F16
           : mask == ATTN_MASK_BF16 ? (uint32_t)ATTN_BF16
           : mask == ATTN_MASK_F32  ? (uint32_t)ATTN_F32
                                    : 0;
}

static int32_t resolve_mask(struct opencl_launch *launch, const struct attn_problem *p,
                            const struct attn_tensors *t, struct attn_error *err)
{
    const uint32_t dtype = mask_dtype(p->mask);
    const struct opencl_place places[] = {
        {OPENCL_BUFFER_mask, &t->mask, dtype != 0 ? opencl_size(dtype) : 1, "tensors.mask"},
        {OPENCL_BUFFER_mask_starts, &t->mask_starts, 8, "tensors.mask_starts"},
    };
    struct opencl_arguments *a = &launch->arguments;

    if (p->mask <= ATTN_MASK_NONE)
        return ATTN_OK;
    a->has_mask = 1;
    a->square = p->span == ATTN_SPAN_SQUARE;
    a->mask_dtype = (opencl_i32)dtype;
    a->mask_packed = p->mask == ATTN_MASK_BITS && t->mask_packed != 0;
    a->mask_seq = t->mask_seq_stride;
    a->mask_head = t->mask_head_stride;
    a->mask_row = t->mask_row_stride;
    return opencl_resolve_places(launch, places, sizeof places / sizeof places[0], err);
}

static int32_t resolve_shard(struct opencl_launch *launch, const struct attn_batch *batch,
                             struct attn_error *err)
{
    launch->arguments.cp_rank = (opencl_i32)batch->cp_rank;
    launch->arguments.cp_world = (opencl_i32)batch->cp_world;
    launch->arguments.cp_interleave = (opencl_i32)batch->cp_interleave;
    return opencl_launch_add(launch, OPENCL_BUFFER_global_lens, &batch->kv_global_lens, 4, "kv_global_lens",
                             err);
}

/* Gives a launch a buffer of its own under another name too. */
static void use_as(struct opencl_launch *launch, enum opencl_buffer from, enum opencl_buffer to)
{
    launch->buffers[to] = launch->buffers[from];
    launch->arguments.at[to] = launch->arguments.at[from];
    launch->arguments.given |= (launch->arguments.given >> from & 1) << to;
}

/* The values of MLA are the first columns of the keys, with their scales. */
static void take_keys_as_values(struct opencl_launch *launch)
{
    struct opencl_arguments *a = &launch->arguments;
    struct opencl_scale *scales = a->scales;

    use_as(launch, OPENCL_BUFFER_k, OPENCL_BUFFER_v);
    use_as(launch, OPENCL_BUFFER_k_scale, OPENCL_BUFFER_v_scale);
    use_as(launch, OPENCL_BUFFER_k_new, OPENCL_BUFFER_v_new);
    use_as(launch, OPENCL_BUFFER_k_new_scale, OPENCL_BUFFER_v_new_scale);
    scales[OPENCL_SCALE(v_scale)] = scales[OPENCL_SCALE(k_scale)];
    scales[OPENCL_SCALE(v_new_scale)] = scales[OPENCL_SCALE(k_new_scale)];
    a->v = a->k;
    a->v_new = a->k_new;
    a->v_x = a->k_x;
    a->v_x_stride = a->k_x_stride;
}

/* Without a cache the new keys and values are a dense cache of consecutive tokens. */
static void take_new_as_cache(struct opencl_launch *launch)
{
    struct opencl_arguments *a = &launch->arguments;
    struct opencl_scale *scales = a->scales;

    use_as(launch, OPENCL_BUFFER_k_new, OPENCL_BUFFER_k);
    use_as(launch, OPENCL_BUFFER_v_new, OPENCL_BUFFER_v);
    use_as(launch, OPENCL_BUFFER_k_new_scale, OPENCL_BUFFER_k_scale);
    use_as(launch, OPENCL_BUFFER_v_new_scale, OPENCL_BUFFER_v_scale);
    scales[OPENCL_SCALE(k_scale)] = scales[OPENCL_SCALE(k_new_scale)];
    scales[OPENCL_SCALE(v_scale)] = scales[OPENCL_SCALE(v_new_scale)];
    a->k = (struct opencl_strides){0, a->k_new.token, a->k_new.head};
    a->v = (struct opencl_strides){0, a->v_new.token, a->v_new.head};
    if ((a->given & 1 << OPENCL_BUFFER_kv_offsets) == 0)
        use_as(launch, OPENCL_BUFFER_q_offsets, OPENCL_BUFFER_kv_offsets);
}

int32_t opencl_resolve_run(struct attn_backend_impl *backend, struct opencl_launch *launch,
                           const struct attn_problem *problem, const struct attn_batch *batch,
                           const struct attn_tensors *tensors, const struct attn_kv_desc *desc,
                           struct attn_error *err)
{
    const bool has_cache = problem->kv_source != ATTN_KV_NEW, wide = batch->position_dtype == ATTN_INT64;

    *launch = (struct opencl_launch){.buffers = {NULL}};
    resolve_problem(&launch->arguments, problem);
    launch->arguments.wide_positions = wide;
    int32_t status = opencl_resolve_batch(launch, batch, has_cache ? problem->addressing : ATTN_DENSE,
                                          problem->index_dtype, err);
    if (status == ATTN_OK && problem->positions != 0)
        status = opencl_launch_add(launch, OPENCL_BUFFER_positions, &batch->q_positions, wide ? 8 : 4,
                                   "q_positions", err);
    if (status == ATTN_OK && problem->seq_causal != 0)
        status =
            opencl_launch_add(launch, OPENCL_BUFFER_seq_causal, &batch->seq_causal, 1, "seq_causal", err);
    if (status == ATTN_OK)
        status = resolve_tensors(launch, problem, problem->cp != 0 ? batch->cp_rank : 0, tensors, err);
    if (status == ATTN_OK)
        status = resolve_mask(launch, problem, tensors, err);
    if (status == ATTN_OK && problem->cp != 0)
        status = resolve_shard(launch, batch, err);
    if (status == ATTN_OK)
        status = resolve_scales(backend, launch, problem, batch, tensors, err);
    if (status == ATTN_OK && has_cache)
        status = opencl_resolve_cache(backend, launch, desc, err);
    if (status == ATTN_OK && problem->mla != 0)
        take_keys_as_values(launch);
    if (status == ATTN_OK && !has_cache)
        take_new_as_cache(launch);
    return status;
}
