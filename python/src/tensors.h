// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arrays as what runs, layers and writes take: tensors of tokens, masks, and what each head has.
#pragma once

#include <vector>

#include "array.h"

// What a mask is in a run: its place and strides, or bits that were packed of a mask of bools.
struct Mask {
    uint32_t kind = ATTN_MASK_NONE;
    std::vector<uint8_t> bits;
    attn_buffer buffer{};
    int64_t seq_stride = 0, head_stride = 0, row_stride = 0;

    Mask() = default;
    // [1 or seqs, 1 or heads, 1 or rows, columns]; bools are host memory.
    Mask(const Array &array, int64_t seqs, int64_t heads, int64_t rows, int64_t columns);

    // To attn_tensors or attn_layer_tensors.
    template <class Tensors> void give(Tensors &tensors) const
    {
        tensors.mask = buffer;
        tensors.mask_seq_stride = seq_stride;
        tensors.mask_head_stride = head_stride;
        tensors.mask_row_stride = row_stride;
    }
};

// A mask of the problem's kind, with room for the longest sequence of the batch.
Mask mask_of(const Array &array, const attn_problem &problem, const attn_batch &batch,
             const attn_device &device);

// Sinks and slopes, [heads].
void give_sinks(attn_tensors &tensors, const Array &sinks, uint32_t heads, const attn_device &device);
void give_slopes(attn_tensors &tensors, const Array &slopes, uint32_t heads, const attn_device &device);

// What lse is in a run: f32 [tokens or more, heads].
attn_tensor lse_tensor(const Array &lse, int64_t tokens, int64_t heads, const attn_device &device);

// A scale of an 8-bit type, with the number or the array that it is.
struct Scale {
    attn_scale value{};
    float number = 0;
    std::unique_ptr<Array> array; // null for numbers

    attn_scale get() const
    {
        attn_scale scale = value;
        if (scale.kind == ATTN_SCALE_HOST)
            scale.buffer.data = const_cast<float *>(&number);
        return scale;
    }
};
// That of a cache: a number, "unit", f32 [kv_heads] or [pages, block, kv_heads].
Scale cache_scale_of(nb::handle given, const char *name, const attn_kv_desc &desc, const attn_device &device);

// Those of a run, as the problem has them, a number or f32 [1], [heads] or [tokens or more, heads]: of q and
// out, and of k and v that are beside the cache or in its place.
struct Scales {
    Scale q, k, v, out;

    Scales(nb::handle q_scale, nb::handle k_scale, nb::handle v_scale, nb::handle out_scale,
           const attn_problem &problem, int64_t queries, int64_t keys, const attn_device &device);

    // To attn_tensors or attn_layer_tensors, which read numbers here.
    template <class Tensors> void give(Tensors &tensors) const
    {
        tensors.q_scale = q.get();
        tensors.k_new_scale = k.get();
        tensors.v_new_scale = v.get();
        tensors.out_scale = out.get();
    }
};

// [tokens or more, heads, dim].
void need_tokens(const Array &array, int64_t tokens, int64_t heads, int64_t dim);

// Queries or keys in one array, or of MLA in two: the first dim_vo columns, and those of RoPE.
struct Columns {
    attn_tensor first, rope;
};
Columns columns_of(const Array &first, const Array &rope, int64_t tokens, uint32_t heads, uint32_t dim,
                   uint32_t dim_vo, const attn_device &device);

// Refuses what the problem does not have, which would be left out silently; lse, slopes and sinks are refused
// by libattn itself.
void need_key(const Array &array, bool in_problem, const char *key);
