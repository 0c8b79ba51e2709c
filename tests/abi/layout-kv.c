/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sizes and offsets of the arguments of operations on caches in types.h. */
#include "attn/types.h"

#define SIZE(name, bytes) _Static_assert(sizeof(struct name) == (bytes), "size of struct " #name)
#define AT(name, member, place)                                                                              \
    _Static_assert(offsetof(struct name, member) == (place), "offset of " #name "." #member)

/* clang-format off */

SIZE(attn_kv_write_args, 208);
AT(attn_kv_write_args, struct_size, 0);
AT(attn_kv_write_args, k_dtype, 4);
AT(attn_kv_write_args, v_dtype, 8);
AT(attn_kv_write_args, num_tokens, 12);
AT(attn_kv_write_args, k_new, 16);
AT(attn_kv_write_args, v_new, 64);
AT(attn_kv_write_args, kv, 112);
AT(attn_kv_write_args, kv_desc, 120);
AT(attn_kv_write_args, slot_mapping, 128);
AT(attn_kv_write_args, addressing, 144);
AT(attn_kv_write_args, index_dtype, 148);
AT(attn_kv_write_args, batch, 152);
AT(attn_kv_write_args, k_rope, 160);

SIZE(attn_kv_slot_mapping_args, 40);
AT(attn_kv_slot_mapping_args, struct_size, 0);
AT(attn_kv_slot_mapping_args, addressing, 4);
AT(attn_kv_slot_mapping_args, index_dtype, 8);
AT(attn_kv_slot_mapping_args, block, 12);
AT(attn_kv_slot_mapping_args, batch, 16);
AT(attn_kv_slot_mapping_args, slots, 24);

SIZE(attn_kv_copy_slots_args, 56);
AT(attn_kv_copy_slots_args, struct_size, 0);
AT(attn_kv_copy_slots_args, count, 4);
AT(attn_kv_copy_slots_args, from, 8);
AT(attn_kv_copy_slots_args, from_desc, 16);
AT(attn_kv_copy_slots_args, to, 24);
AT(attn_kv_copy_slots_args, to_desc, 32);
AT(attn_kv_copy_slots_args, pairs, 40);

SIZE(attn_kv_copy_blocks_args, 48);
AT(attn_kv_copy_blocks_args, struct_size, 0);
AT(attn_kv_copy_blocks_args, count, 4);
AT(attn_kv_copy_blocks_args, layers, 8);
AT(attn_kv_copy_blocks_args, reserved, 12);
AT(attn_kv_copy_blocks_args, kvs, 16);
AT(attn_kv_copy_blocks_args, kv_descs, 24);
AT(attn_kv_copy_blocks_args, pairs, 32);

SIZE(attn_kv_swap_blocks_args, 56);
AT(attn_kv_swap_blocks_args, struct_size, 0);
AT(attn_kv_swap_blocks_args, count, 4);
AT(attn_kv_swap_blocks_args, from, 8);
AT(attn_kv_swap_blocks_args, from_desc, 16);
AT(attn_kv_swap_blocks_args, to, 24);
AT(attn_kv_swap_blocks_args, to_desc, 32);
AT(attn_kv_swap_blocks_args, pairs, 40);
AT(attn_kv_swap_blocks_args, kind, 48);
AT(attn_kv_swap_blocks_args, reserved, 52);

SIZE(attn_kv_gather_args, 272);
AT(attn_kv_gather_args, struct_size, 0);
AT(attn_kv_gather_args, tokens, 4);
AT(attn_kv_gather_args, k_dtype, 8);
AT(attn_kv_gather_args, v_dtype, 12);
AT(attn_kv_gather_args, addressing, 16);
AT(attn_kv_gather_args, index_dtype, 20);
AT(attn_kv_gather_args, kv, 24);
AT(attn_kv_gather_args, kv_desc, 32);
AT(attn_kv_gather_args, batch, 40);
AT(attn_kv_gather_args, offsets, 48);
AT(attn_kv_gather_args, starts, 64);
AT(attn_kv_gather_args, k, 80);
AT(attn_kv_gather_args, v, 128);
AT(attn_kv_gather_args, k_scales, 176);
AT(attn_kv_gather_args, v_scales, 224);

SIZE(attn_kv_convert_args, 56);
AT(attn_kv_convert_args, struct_size, 0);
AT(attn_kv_convert_args, count, 4);
AT(attn_kv_convert_args, from, 8);
AT(attn_kv_convert_args, from_desc, 16);
AT(attn_kv_convert_args, to, 24);
AT(attn_kv_convert_args, to_desc, 32);
AT(attn_kv_convert_args, pairs, 40);

SIZE(attn_kv_advance_step_args, 280);
AT(attn_kv_advance_step_args, struct_size, 0);
AT(attn_kv_advance_step_args, block, 4);
AT(attn_kv_advance_step_args, seqs, 8);
AT(attn_kv_advance_step_args, queries, 12);
AT(attn_kv_advance_step_args, num_tokens, 16);
AT(attn_kv_advance_step_args, keep_padding, 20);
AT(attn_kv_advance_step_args, index_dtype, 24);
AT(attn_kv_advance_step_args, table_width, 28);
AT(attn_kv_advance_step_args, table, 32);
AT(attn_kv_advance_step_args, table_stride, 48);
AT(attn_kv_advance_step_args, csr_capacity, 56);
AT(attn_kv_advance_step_args, query_starts, 64);
AT(attn_kv_advance_step_args, accepted, 80);
AT(attn_kv_advance_step_args, sampled, 96);
AT(attn_kv_advance_step_args, tokens, 112);
AT(attn_kv_advance_step_args, positions, 128);
AT(attn_kv_advance_step_args, slots, 144);
AT(attn_kv_advance_step_args, seq_lens, 160);
AT(attn_kv_advance_step_args, context_lens, 176);
AT(attn_kv_advance_step_args, seq_starts, 192);
AT(attn_kv_advance_step_args, csr_indptr, 208);
AT(attn_kv_advance_step_args, csr_indices, 224);
AT(attn_kv_advance_step_args, last_page_lens, 240);
AT(attn_kv_advance_step_args, csr_pages, 256);
AT(attn_kv_advance_step_args, windowed, 272);
AT(attn_kv_advance_step_args, window, 276);
