// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks of what runs, layers and writes are given: shapes, masks, and what each head has.
#include "tensors.h"

#include <nanobind/stl/string.h>

// ---------------------------------------------------------------- masks, sinks, slopes

// Bits of a mask of bools: column c is bit c mod 8 of byte c / 8 of its row.
static void pack_row(const uint8_t *from, int64_t columns, uint8_t *to)
{
    for (int64_t c = 0; c < columns; c += 8) {
        unsigned byte = 0;
        const int64_t count = columns - c < 8 ? columns - c : 8;
        for (int64_t i = 0; i < count; i++)
            byte |= (unsigned)(from[c + i] != 0) << i;
        *to++ = (uint8_t)byte;
    }
}

static std::vector<uint8_t> pack(const Array &array, int64_t row_bytes)
{
    const int64_t seqs = array.size(0), heads = array.size(1), rows = array.size(2), columns = array.size(3);
    std::vector<uint8_t> bits((size_t)(seqs * heads * rows * row_bytes));
    uint8_t *to = bits.data();
    for (int64_t s = 0; s < seqs; s++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t r = 0; r < rows; r++, to += row_bytes)
                pack_row((const uint8_t *)array.data() + s * array.stride(0) + h * array.stride(1) +
                             r * array.stride(2),
                         columns, to);
    return bits;
}

static void need_one_or(const Array &array, int dim, int64_t size)
{
    if (array.size(dim) != 1)
        array.need_size(dim, size);
}

Mask::Mask(const Array &array, int64_t seqs, int64_t heads, int64_t rows, int64_t columns)
{
    array.need_rank(4).need_inner().need_size(3, columns);
    need_one_or(array, 0, seqs);
    need_one_or(array, 1, heads);
    need_one_or(array, 2, rows);
    kind = array.dtype() == BOOL        ? ATTN_MASK_BITS
           : array.dtype() == ATTN_F16  ? ATTN_MASK_F16
           : array.dtype() == ATTN_BF16 ? ATTN_MASK_BF16
           : array.dtype() == ATTN_F32  ? ATTN_MASK_F32
                                        : ATTN_MASK_NONE;
    if (kind == ATTN_MASK_NONE)
        refuse("mask", "mask is " + dtype_text(array.dtype()) +
                           "; bool (True: is seen) and f32, f16, bf16 (added to scores) are accepted");
    buffer = array.buffer();
    seq_stride = array.stride(0);
    head_stride = array.stride(1);
    row_stride = array.stride(2);
    if (kind != ATTN_MASK_BITS)
        return;
    if (array.device_type() != ATTN_DEVICE_CPU)
        refuse("mask",
               "mask is bool in device memory; there f32, f16 and bf16 are accepted, added to scores");
    const int64_t row_bytes = (columns + 7) / 8;
    bits = pack(array, row_bytes);
    buffer = {bits.data(), 0};
    row_stride = rows == 1 || array.size(2) == 1 ? 0 : row_bytes;
    head_stride = array.size(1) == 1 ? 0 : array.size(2) * row_bytes;
    seq_stride = array.size(0) == 1 ? 0 : array.size(1) * array.size(2) * row_bytes;
}

static const char *mask_text(uint32_t kind)
{
    return kind == ATTN_MASK_BITS   ? "bits, for bool"
           : kind == ATTN_MASK_F16  ? "f16"
           : kind == ATTN_MASK_BF16 ? "bf16"
                                    : "f32";
}

Mask mask_of(const Array &array, const attn_problem &problem, const attn_batch &batch,
             const attn_device &device)
{
    const uint32_t columns = problem.span == ATTN_SPAN_FULL ? batch.max_kv : batch.max_q;
    array.need_rank(4).need_on(device);
    if (array.size(3) < columns || (array.size(2) != 1 && array.size(2) < batch.max_q))
        refuse("mask", "mask has " + std::to_string(array.size(2)) + " rows of " +
                           std::to_string(array.size(3)) + "; one or at least " +
                           std::to_string(batch.max_q) + " rows of at least " + std::to_string(columns) +
                           " are accepted");
    Mask mask(array, batch.seqs, problem.heads, array.size(2), array.size(3));
    if (mask.kind != problem.mask)
        refuse("mask", "mask is " + dtype_text(array.dtype()) +
                           ", and the problem has mask=" + mask_text(problem.mask));
    return mask;
}

void give_sinks(attn_tensors &tensors, const Array &sinks, uint32_t heads, const attn_device &device)
{
    if (!sinks)
        return;
    sinks.need_on(device).need_list(heads).need_size(0, heads);
    if (sinks.dtype() != ATTN_F32 && sinks.dtype() != ATTN_BF16)
        refuse("sinks", "sinks is " + dtype_text(sinks.dtype()) + "; f32 and bf16 are accepted");
    tensors.sinks = sinks.buffer();
    tensors.sinks_dtype = sinks.dtype();
}

void give_slopes(attn_tensors &tensors, const Array &slopes, uint32_t heads, const attn_device &device)
{
    if (!slopes)
        return;
    slopes.need_on(device).need_dtype(ATTN_F32).need_list(heads).need_size(0, heads);
    tensors.alibi_slopes = slopes.buffer();
}

// ---------------------------------------------------------------- scales

static const char *granularity_text(uint32_t granularity)
{
    static const char *const names[] = {"none", "none", "unit", "tensor", "head", "token-head", "kv-head"};
    return names[granularity <= ATTN_SCALES_KV_HEAD ? granularity : 0];
}

static bool is_number(nb::handle given)
{
    return nb::isinstance<nb::float_>(given) || nb::isinstance<nb::int_>(given);
}

static Scale number_scale(nb::handle given)
{
    Scale scale;
    scale.number = nb::cast<float>(given);
    scale.value.kind = ATTN_SCALE_HOST;
    scale.value.granularity = ATTN_SCALES_TENSOR;
    return scale;
}

static Scale unit_scale()
{
    Scale scale;
    scale.value.kind = ATTN_SCALE_UNIT;
    return scale;
}

// The last dimension are heads, the one before tokens, the one before these pages.
static Scale array_scale(Array array, uint32_t granularity, const attn_device &device)
{
    Scale scale;
    array.need_on(device).need_dtype(ATTN_F32);
    const int rank = array.rank();
    scale.value.kind = ATTN_SCALE_DEVICE;
    scale.value.granularity = granularity;
    scale.value.buffer = array.buffer();
    scale.value.head_stride = array.stride(rank - 1);
    scale.value.token_stride = rank > 1 ? array.stride(rank - 2) : 0;
    scale.value.outer_stride = rank > 2 ? array.stride(rank - 3) : 0;
    scale.array = std::make_unique<Array>(std::move(array));
    return scale;
}

// Of granularity `granularity` for so many tokens and heads; `heads` are the values of one token.
static Scale scale_of(nb::handle given, const char *name, uint32_t granularity, int64_t tokens, int64_t heads,
                      const attn_device &device)
{
    if (given.is_none())
        return granularity == ATTN_SCALES_UNIT ? unit_scale() : Scale();
    const std::string has = std::string("the problem has ") + name + "=" + granularity_text(granularity);
    if (granularity < ATTN_SCALES_TENSOR)
        refuse(name, std::string(name) + " is given, and " + has);
    if (is_number(given) && granularity == ATTN_SCALES_TENSOR)
        return number_scale(given);
    if (is_number(given))
        refuse(name, std::string(name) + " is a number, and " + has + "; an array of f32 is accepted");
    Array array(given, name);
    if (granularity != ATTN_SCALES_TOKEN_HEAD) {
        array.need_rank(1).need_size(0, granularity == ATTN_SCALES_TENSOR ? 1 : heads);
    } else {
        array.need_rank(2).need_size(1, heads);
        if (array.size(0) < tokens)
            array.need_size(0, tokens);
    }
    return array_scale(std::move(array), granularity, device);
}

// Of keys or values that a run reads beside the cache or in its place; the cache has its own.
static Scale new_scale_of(nb::handle given, const char *name, uint32_t granularity, int64_t tokens,
                          const attn_problem &problem, const attn_device &device)
{
    if (problem.kv_source != ATTN_KV_CACHE)
        return scale_of(given, name, granularity, tokens, problem.kv_heads, device);
    if (!given.is_none())
        refuse(name,
               std::string(name) +
                   " is given, and the problem has no kv_source=new; Backend.kv takes the scales of a cache");
    return Scale();
}

Scales::Scales(nb::handle q_scale, nb::handle k_scale, nb::handle v_scale, nb::handle out_scale,
               const attn_problem &problem, int64_t queries, int64_t keys, const attn_device &device)
    : q(scale_of(q_scale, "q_scale", problem.q_scale, queries,
                 problem.q_scale == ATTN_SCALES_KV_HEAD ? problem.kv_heads : problem.heads, device)),
      k(new_scale_of(k_scale, "k_scale", problem.k_scale, keys, problem, device)),
      v(new_scale_of(v_scale, "v_scale", problem.v_scale, keys, problem, device)),
      out(scale_of(out_scale, "out_scale", problem.out_scale, queries, problem.heads, device))
{
}

Scale cache_scale_of(nb::handle given, const char *name, const attn_kv_desc &desc, const attn_device &device)
{
    if (given.is_none())
        return Scale();
    if (is_number(given))
        return number_scale(given);
    std::string word;
    if (nb::try_cast(given, word)) {
        if (word != "unit")
            refuse(name, std::string(name) + " is '" + word + "'; 'unit', a number and arrays are accepted");
        return unit_scale();
    }
    Array array(given, name);
    if (array.rank() == 1) {
        array.need_size(0, desc.kv_heads);
        return array_scale(std::move(array), ATTN_SCALES_HEAD, device);
    }
    array = Array(given, name, true);
    array.need_rank(3).need_size(0, desc.pages).need_size(1, desc.block).need_size(2, desc.kv_heads);
    return array_scale(std::move(array), ATTN_SCALES_TOKEN_HEAD, device);
}

// ---------------------------------------------------------------- shapes

void need_tokens(const Array &array, int64_t tokens, int64_t heads, int64_t dim)
{
    array.need_rank(3).need_size(1, heads).need_size(2, dim);
    if (array.size(0) < tokens)
        refuse(array.name(), std::string(array.name()) + " has " + std::to_string(array.size(0)) +
                                 " tokens; at least " + std::to_string(tokens) + " are accepted");
}

attn_tensor lse_tensor(const Array &lse, int64_t tokens, int64_t heads, const attn_device &device)
{
    attn_tensor tensor{};
    lse.need_on(device).need_dtype(ATTN_F32).need_rank(2).need_size(1, heads);
    if (lse.size(0) < tokens)
        lse.need_size(0, tokens);
    tensor.buffer = lse.buffer();
    tensor.dtype = ATTN_F32;
    tensor.token_stride = lse.stride(0);
    tensor.head_stride = lse.stride(1);
    return tensor;
}

Columns columns_of(const Array &first, const Array &rope, int64_t tokens, uint32_t heads, uint32_t dim,
                   uint32_t dim_vo, const attn_device &device)
{
    need_tokens(first.need_on(device), tokens, heads, rope ? dim_vo : dim);
    if (!rope)
        return {first.tensor(), {}};
    need_tokens(rope.need_on(device).need_dtype(first.dtype()), tokens, heads, dim - dim_vo);
    return {first.tensor(), rope.tensor()};
}

void need_key(const Array &array, bool in_problem, const char *key)
{
    if (array && !in_problem)
        refuse(array.name(), std::string(array.name()) + " is given, and the problem has no " + key);
}
