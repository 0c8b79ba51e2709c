/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sizes and offsets of the plain data of types.h, so that no change of them goes unnoticed. */
#include "attn/types.h"

#define SIZE(name, bytes) _Static_assert(sizeof(struct name) == (bytes), "size of struct " #name)
#define AT(name, member, place)                                                                              \
    _Static_assert(offsetof(struct name, member) == (place), "offset of " #name "." #member)

/* clang-format off */

SIZE(attn_error, 520);
AT(attn_error, struct_size, 0);
AT(attn_error, status, 4);
AT(attn_error, reason, 8);
AT(attn_error, reserved, 12);
AT(attn_error, field, 16);
AT(attn_error, message, 64);

SIZE(attn_reason, 392);
AT(attn_reason, code, 0);
AT(attn_reason, reserved, 4);
AT(attn_reason, kernel, 8);
AT(attn_reason, field, 72);
AT(attn_reason, got, 104);
AT(attn_reason, wanted, 152);
AT(attn_reason, text, 232);

SIZE(attn_device, 24);
AT(attn_device, type, 0);
AT(attn_device, ordinal, 4);
AT(attn_device, reserved, 8);

SIZE(attn_buffer, 16);
AT(attn_buffer, data, 0);
AT(attn_buffer, byte_offset, 8);

SIZE(attn_span, 24);
AT(attn_span, buffer, 0);
AT(attn_span, size, 16);

SIZE(attn_tensor, 48);
AT(attn_tensor, buffer, 0);
AT(attn_tensor, token_stride, 16);
AT(attn_tensor, head_stride, 24);
AT(attn_tensor, dtype, 32);
AT(attn_tensor, reserved0, 36);
AT(attn_tensor, reserved, 40);

SIZE(attn_scale, 64);
AT(attn_scale, kind, 0);
AT(attn_scale, granularity, 4);
AT(attn_scale, buffer, 8);
AT(attn_scale, outer_stride, 24);
AT(attn_scale, token_stride, 32);
AT(attn_scale, head_stride, 40);
AT(attn_scale, reserved, 48);

SIZE(attn_problem, 176);
AT(attn_problem, struct_size, 0);
AT(attn_problem, given, 4);
AT(attn_problem, type, 8);
AT(attn_problem, q_dtype, 12);
AT(attn_problem, k_dtype, 16);
AT(attn_problem, v_dtype, 20);
AT(attn_problem, out_dtype, 24);
AT(attn_problem, heads, 28);
AT(attn_problem, kv_heads, 32);
AT(attn_problem, head_dim, 36);
AT(attn_problem, head_dim_vo, 40);
AT(attn_problem, addressing, 44);
AT(attn_problem, index_dtype, 48);
AT(attn_problem, block, 52);
AT(attn_problem, causal, 56);
AT(attn_problem, align, 60);
AT(attn_problem, window_left, 64);
AT(attn_problem, window_right, 68);
AT(attn_problem, softcap, 72);
AT(attn_problem, alibi, 76);
AT(attn_problem, sinks, 80);
AT(attn_problem, mask, 84);
AT(attn_problem, span, 88);
AT(attn_problem, kv_source, 92);
AT(attn_problem, layout, 96);
AT(attn_problem, q_scale, 100);
AT(attn_problem, k_scale, 104);
AT(attn_problem, v_scale, 108);
AT(attn_problem, out_scale, 112);
AT(attn_problem, positions, 116);
AT(attn_problem, seq_causal, 120);
AT(attn_problem, mla, 124);
AT(attn_problem, cp, 128);
AT(attn_problem, lse, 132);
AT(attn_problem, det, 136);
AT(attn_problem, graph, 140);
AT(attn_problem, max_seqs, 144);
AT(attn_problem, max_q, 148);
AT(attn_problem, max_kv, 152);
AT(attn_problem, max_rows, 156);
AT(attn_problem, cascade, 160);
AT(attn_problem, reserved, 164);

SIZE(attn_batch_host, 88);
AT(attn_batch_host, struct_size, 0);
AT(attn_batch_host, reserved, 4);
AT(attn_batch_host, q_offsets, 8);
AT(attn_batch_host, kv_lens, 16);
AT(attn_batch_host, kv_offsets, 24);
AT(attn_batch_host, table, 32);
AT(attn_batch_host, csr_indptr, 40);
AT(attn_batch_host, csr_indices, 48);
AT(attn_batch_host, last_page_lens, 56);
AT(attn_batch_host, q_positions, 64);
AT(attn_batch_host, seq_causal, 72);
AT(attn_batch_host, kv_global_lens, 80);

SIZE(attn_batch, 232);
AT(attn_batch, struct_size, 0);
AT(attn_batch, given, 4);
AT(attn_batch, seqs, 8);
AT(attn_batch, num_tokens, 12);
AT(attn_batch, max_q, 16);
AT(attn_batch, max_kv, 20);
AT(attn_batch, q_offsets, 24);
AT(attn_batch, kv_lens, 40);
AT(attn_batch, kv_offsets, 56);
AT(attn_batch, table, 72);
AT(attn_batch, table_stride, 88);
AT(attn_batch, table_width, 96);
AT(attn_batch, pages, 100);
AT(attn_batch, csr_indptr, 104);
AT(attn_batch, csr_indices, 120);
AT(attn_batch, last_page_lens, 136);
AT(attn_batch, q_positions, 152);
AT(attn_batch, position_dtype, 168);
AT(attn_batch, cp_rank, 172);
AT(attn_batch, cp_world, 176);
AT(attn_batch, cp_interleave, 180);
AT(attn_batch, seq_causal, 184);
AT(attn_batch, kv_global_lens, 200);
AT(attn_batch, host, 216);
AT(attn_batch, cascade, 224);
AT(attn_batch, reserved, 228);

SIZE(attn_kv_desc, 248);
AT(attn_kv_desc, struct_size, 0);
AT(attn_kv_desc, k_dtype, 4);
AT(attn_kv_desc, v_dtype, 8);
AT(attn_kv_desc, layout, 12);
AT(attn_kv_desc, pages, 16);
AT(attn_kv_desc, block, 20);
AT(attn_kv_desc, kv_heads, 24);
AT(attn_kv_desc, head_dim, 28);
AT(attn_kv_desc, head_dim_vo, 32);
AT(attn_kv_desc, reserved, 36);
AT(attn_kv_desc, k, 40);
AT(attn_kv_desc, v, 56);
AT(attn_kv_desc, k_page_stride, 72);
AT(attn_kv_desc, k_token_stride, 80);
AT(attn_kv_desc, k_head_stride, 88);
AT(attn_kv_desc, v_page_stride, 96);
AT(attn_kv_desc, v_token_stride, 104);
AT(attn_kv_desc, v_head_stride, 112);
AT(attn_kv_desc, k_scale, 120);
AT(attn_kv_desc, v_scale, 184);

SIZE(attn_kv_shape, 336);
AT(attn_kv_shape, struct_size, 0);
AT(attn_kv_shape, rank, 4);
AT(attn_kv_shape, dims, 8);
AT(attn_kv_shape, bytes, 56);
AT(attn_kv_shape, scale_bytes, 64);
AT(attn_kv_shape, k_offset, 72);
AT(attn_kv_shape, v_offset, 80);
AT(attn_kv_shape, desc, 88);

SIZE(attn_tensors, 664);
AT(attn_tensors, struct_size, 0);
AT(attn_tensors, softmax_scale, 4);
AT(attn_tensors, q, 8);
AT(attn_tensors, q_rope, 56);
AT(attn_tensors, k_new, 104);
AT(attn_tensors, v_new, 152);
AT(attn_tensors, out, 200);
AT(attn_tensors, lse, 248);
AT(attn_tensors, kv, 296);
AT(attn_tensors, kv_desc, 304);
AT(attn_tensors, alibi_slopes, 312);
AT(attn_tensors, sinks, 328);
AT(attn_tensors, sinks_dtype, 344);
AT(attn_tensors, mask_packed, 348);
AT(attn_tensors, mask, 352);
AT(attn_tensors, mask_starts, 368);
AT(attn_tensors, mask_seq_stride, 384);
AT(attn_tensors, mask_head_stride, 392);
AT(attn_tensors, mask_row_stride, 400);
AT(attn_tensors, q_scale, 408);
AT(attn_tensors, k_new_scale, 472);
AT(attn_tensors, v_new_scale, 536);
AT(attn_tensors, out_scale, 600);

SIZE(attn_scratch, 56);
AT(attn_scratch, struct_size, 0);
AT(attn_scratch, counters_dirty, 4);
AT(attn_scratch, scratch, 8);
AT(attn_scratch, counters, 32);

SIZE(attn_plan_sizes, 40);
AT(attn_plan_sizes, struct_size, 0);
AT(attn_plan_sizes, alignment, 4);
AT(attn_plan_sizes, schedule, 8);
AT(attn_plan_sizes, scratch, 16);
AT(attn_plan_sizes, counters, 24);
AT(attn_plan_sizes, staging, 32);

SIZE(attn_plan_info, 296);
AT(attn_plan_info, struct_size, 0);
AT(attn_plan_info, graph_level, 4);
AT(attn_plan_info, splits, 8);
AT(attn_plan_info, split_keys, 12);
AT(attn_plan_info, alignment, 16);
AT(attn_plan_info, stride_multiple, 20);
AT(attn_plan_info, bytes_per_run, 24);
AT(attn_plan_info, kernels, 32);
AT(attn_plan_info, cascade, 288);
AT(attn_plan_info, reserved, 292);

SIZE(attn_merge_part, 96);
AT(attn_merge_part, out, 0);
AT(attn_merge_part, lse, 48);

SIZE(attn_merge_args, 136);
AT(attn_merge_args, struct_size, 0);
AT(attn_merge_args, count, 4);
AT(attn_merge_args, parts, 8);
AT(attn_merge_args, dtype, 16);
AT(attn_merge_args, lse_base, 20);
AT(attn_merge_args, num_tokens, 24);
AT(attn_merge_args, heads, 28);
AT(attn_merge_args, head_dim, 32);
AT(attn_merge_args, reserved, 36);
AT(attn_merge_args, out, 40);
AT(attn_merge_args, lse, 88);

SIZE(attn_rescale_args, 136);
AT(attn_rescale_args, struct_size, 0);
AT(attn_rescale_args, dtype, 4);
AT(attn_rescale_args, out, 8);
AT(attn_rescale_args, own, 56);
AT(attn_rescale_args, all, 104);
AT(attn_rescale_args, count, 112);
AT(attn_rescale_args, lse_base, 116);
AT(attn_rescale_args, num_tokens, 120);
AT(attn_rescale_args, heads, 124);
AT(attn_rescale_args, head_dim, 128);
AT(attn_rescale_args, reserved, 132);

SIZE(attn_cpu_executor, 56);
AT(attn_cpu_executor, struct_size, 0);
AT(attn_cpu_executor, kind, 4);
AT(attn_cpu_executor, arg, 8);
AT(attn_cpu_executor, parallel_for, 16);
AT(attn_cpu_executor, threads, 24);
AT(attn_cpu_executor, ith, 28);
AT(attn_cpu_executor, nth, 32);
AT(attn_cpu_executor, reserved, 36);
AT(attn_cpu_executor, barrier, 40);
AT(attn_cpu_executor, recording, 48);

SIZE(attn_kernel_info, 144);
AT(attn_kernel_info, name, 0);
AT(attn_kernel_info, when, 64);
AT(attn_kernel_info, graph_level, 128);
AT(attn_kernel_info, numerics, 132);
AT(attn_kernel_info, speed, 136);
AT(attn_kernel_info, reserved, 140);

SIZE(attn_query, 48);
AT(attn_query, struct_size, 0);
AT(attn_query, accepted, 4);
AT(attn_query, cost_rank, 8);
AT(attn_query, graph_level, 12);
AT(attn_query, reasons, 16);
AT(attn_query, reason_capacity, 24);
AT(attn_query, reason_count, 28);
AT(attn_query, kernels, 32);
AT(attn_query, kernel_capacity, 40);
AT(attn_query, kernel_count, 44);

SIZE(attn_axis, 48);
AT(attn_axis, key, 0);
AT(attn_axis, values, 8);
AT(attn_axis, value_count, 16);
AT(attn_axis, reserved, 20);
AT(attn_axis, first, 24);
AT(attn_axis, last, 32);
AT(attn_axis, step, 40);

SIZE(attn_open_config, 16);
AT(attn_open_config, struct_size, 0);
AT(attn_open_config, threads, 4);
AT(attn_open_config, native_context, 8);
