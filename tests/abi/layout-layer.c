/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sizes and offsets of the leaves and the view of layer-types.h, and the table of builders. */
#include "attn/plugin.h"

#define SIZE(name, bytes) _Static_assert(sizeof(struct name) == (bytes), "size of struct " #name)
#define AT(name, member, place)                                                                              \
    _Static_assert(offsetof(struct name, member) == (place), "offset of " #name "." #member)

/* clang-format off */

SIZE(attn_view, 72);
AT(attn_view, struct_size, 0);
AT(attn_view, kind, 4);
AT(attn_view, dtype, 8);
AT(attn_view, rank, 12);
AT(attn_view, shape, 16);
AT(attn_view, stride, 32);
AT(attn_view, value, 40);
AT(attn_view, host, 48);
AT(attn_view, device, 56);

SIZE(attn_builder_group, 88);
AT(attn_builder_group, given, 0);
AT(attn_builder_group, block, 4);
AT(attn_builder_group, window, 8);
AT(attn_builder_group, max_blocks, 12);
AT(attn_builder_group, graph_blocks, 16);
AT(attn_builder_group, max_indices, 20);
AT(attn_builder_group, table, 24);
AT(attn_builder_group, table_stride, 48);
AT(attn_builder_group, reserved, 56);

SIZE(attn_blocks, 40);
AT(attn_blocks, kind, 0);
AT(attn_blocks, count, 4);
AT(attn_blocks, blocks, 8);
AT(attn_blocks, unchanged, 16);
AT(attn_blocks, computed, 20);
AT(attn_blocks, window_blocks, 24);
AT(attn_blocks, seq_len, 28);
AT(attn_blocks, reserved, 32);

SIZE(attn_index_map, 32);
AT(attn_index_map, modality, 0);
AT(attn_index_map, count, 4);
AT(attn_index_map, sources, 8);
AT(attn_index_map, destinations, 16);
AT(attn_index_map, rows, 24);

SIZE(attn_advance_args, 96);
AT(attn_advance_args, struct_size, 0);
AT(attn_advance_args, seqs, 4);
AT(attn_advance_args, queries, 8);
AT(attn_advance_args, prefill_to_decode, 12);
AT(attn_advance_args, accepted, 16);
AT(attn_advance_args, max_accepted, 24);
AT(attn_advance_args, reserved, 28);
AT(attn_advance_args, accepted_device, 32);
AT(attn_advance_args, sampled, 48);
AT(attn_advance_args, tokens, 64);
AT(attn_advance_args, positions, 80);

SIZE(attn_serialised_header, 56);
AT(attn_serialised_header, magic, 0);
AT(attn_serialised_header, version, 8);
AT(attn_serialised_header, records, 12);
AT(attn_serialised_header, bytes, 16);
AT(attn_serialised_header, flavour, 24);
AT(attn_serialised_header, groups, 28);
AT(attn_serialised_header, modalities, 32);
AT(attn_serialised_header, index_dtype, 36);
AT(attn_serialised_header, seqs, 40);
AT(attn_serialised_header, queries, 44);
AT(attn_serialised_header, first_row, 48);
AT(attn_serialised_header, untabled, 52);

SIZE(attn_serialised_record, 56);
AT(attn_serialised_record, field, 0);
AT(attn_serialised_record, index, 4);
AT(attn_serialised_record, kind, 8);
AT(attn_serialised_record, dtype, 12);
AT(attn_serialised_record, rank, 16);
AT(attn_serialised_record, reserved, 20);
AT(attn_serialised_record, shape, 24);
AT(attn_serialised_record, value, 40);
AT(attn_serialised_record, offset, 48);

SIZE(attn_layer_class, 16);
AT(attn_layer_class, problem, 0);
AT(attn_layer_class, group, 8);
AT(attn_layer_class, new_dtype, 12);

SIZE(attn_builder_params, 104);
AT(attn_builder_params, struct_size, 0);
AT(attn_builder_params, max_map, 84);
AT(attn_builder_params, cp_rank, 88);
AT(attn_builder_params, cp_world, 92);
AT(attn_builder_params, cp_interleave, 96);
AT(attn_builder_params, reserved, 100);

SIZE(attn_state_params, 64);
AT(attn_state_params, struct_size, 0);
AT(attn_state_params, flavour, 4);
AT(attn_state_params, group, 8);
AT(attn_state_params, groups, 16);
AT(attn_state_params, index_dtype, 20);
AT(attn_state_params, max_capture_len, 24);
AT(attn_state_params, steps, 28);
AT(attn_state_params, cross, 32);
AT(attn_state_params, capture_tokens, 40);
AT(attn_state_params, capture_num_tokens, 44);
AT(attn_state_params, collectives, 48);
AT(attn_state_params, cp_heads, 56);
AT(attn_state_params, cp_interleave, 60);

SIZE(attn_state_capture_args, 24);
AT(attn_state_capture_args, struct_size, 0);
AT(attn_state_capture_args, batch, 4);
AT(attn_state_capture_args, encoder_decoder, 8);
AT(attn_state_capture_args, tokens, 12);
AT(attn_state_capture_args, num_tokens, 16);
AT(attn_state_capture_args, reserved, 20);

SIZE(attn_state_step, 40);
AT(attn_state_step, struct_size, 0);
AT(attn_state_step, reserved, 4);
AT(attn_state_step, plan, 8);
AT(attn_state_step, batch, 16);
AT(attn_state_step, schedule, 24);
AT(attn_state_step, scratch, 32);

SIZE(attn_layer_desc, 56);
AT(attn_layer_desc, struct_size, 0);
AT(attn_layer_desc, class_index, 4);
AT(attn_layer_desc, layer_class, 8);
AT(attn_layer_desc, softmax_scale, 16);
AT(attn_layer_desc, sinks_dtype, 20);
AT(attn_layer_desc, alibi_slopes, 24);
AT(attn_layer_desc, sinks, 40);

SIZE(attn_layer_tensors, 656);
AT(attn_layer_tensors, struct_size, 0);
AT(attn_layer_tensors, mask_packed, 4);
AT(attn_layer_tensors, q, 8);
AT(attn_layer_tensors, q_rope, 56);
AT(attn_layer_tensors, k_new, 104);
AT(attn_layer_tensors, v_new, 152);
AT(attn_layer_tensors, k_rope, 200);
AT(attn_layer_tensors, out, 248);
AT(attn_layer_tensors, lse, 296);
AT(attn_layer_tensors, mask, 344);
AT(attn_layer_tensors, mask_starts, 360);
AT(attn_layer_tensors, mask_seq_stride, 376);
AT(attn_layer_tensors, mask_head_stride, 384);
AT(attn_layer_tensors, mask_row_stride, 392);
AT(attn_layer_tensors, q_scale, 400);
AT(attn_layer_tensors, k_new_scale, 464);
AT(attn_layer_tensors, v_new_scale, 528);
AT(attn_layer_tensors, out_scale, 592);

SIZE(attn_builder_device_args, 48);
AT(attn_builder_device_args, struct_size, 0);
AT(attn_builder_device_args, prefills, 4);
AT(attn_builder_device_args, prompt_tokens, 8);
AT(attn_builder_device_args, max_prefill_seq_len, 12);
AT(attn_builder_device_args, max_decode_query_len, 16);
AT(attn_builder_device_args, batches, 24);
AT(attn_builder_device_args, positions, 32);
