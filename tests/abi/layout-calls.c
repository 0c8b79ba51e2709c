/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sizes and offsets of the tables of plugin.h and the records of attn.h. */
#include "attn/attn.h"
#include "attn/plugin.h"

#define SIZE(name, bytes) _Static_assert(sizeof(struct name) == (bytes), "size of struct " #name)
#define AT(name, member, place)                                                                              \
    _Static_assert(offsetof(struct name, member) == (place), "offset of " #name "." #member)

/* clang-format off */

SIZE(attn_note, 312);
AT(attn_note, note_version, 0);
AT(attn_note, abi_major, 4);
AT(attn_note, abi_minor, 8);
AT(attn_note, device_class, 12);
AT(attn_note, cpu_level, 16);
AT(attn_note, reserved, 20);
AT(attn_note, name, 24);
AT(attn_note, vendor, 56);
AT(attn_note, version, 120);
AT(attn_note, backends, 152);

SIZE(attn_host, 56);
AT(attn_host, struct_size, 0);
AT(attn_host, abi_minor, 4);
AT(attn_host, ctx, 8);
AT(attn_host, out_instance, 16);
AT(attn_host, log, 24);
AT(attn_host, parallel_for, 32);
AT(attn_host, clock, 40);
AT(attn_host, get_option, 48);

SIZE(attn_device_info, 144);
AT(attn_device_info, struct_size, 0);
AT(attn_device_info, device_class, 4);
AT(attn_device_info, device, 8);
AT(attn_device_info, memory_bytes, 32);
AT(attn_device_info, units, 40);
AT(attn_device_info, reserved, 44);
AT(attn_device_info, name, 48);
AT(attn_device_info, arch, 112);

SIZE(attn_plan_table, 64);
AT(attn_plan_table, struct_size, 0);
AT(attn_plan_table, reserved, 4);
AT(attn_plan_table, create, 8);
AT(attn_plan_table, sizes, 16);
AT(attn_plan_table, prepare, 24);
AT(attn_plan_table, run, 32);
AT(attn_plan_table, destroy, 40);
AT(attn_plan_table, prepare_many, 48);
AT(attn_plan_table, describe, 56);

SIZE(attn_kv_ref, 16);
AT(attn_kv_ref, kv, 0);
AT(attn_kv_ref, desc, 8);

SIZE(attn_kv_table, 96);
AT(attn_kv_table, struct_size, 0);
AT(attn_kv_table, reserved, 4);
AT(attn_kv_table, shape, 8);
AT(attn_kv_table, create, 16);
AT(attn_kv_table, destroy, 24);
AT(attn_kv_table, write, 32);
AT(attn_kv_table, slot_mapping, 40);
AT(attn_kv_table, copy_slots, 48);
AT(attn_kv_table, copy_blocks, 56);
AT(attn_kv_table, swap_blocks, 64);
AT(attn_kv_table, gather, 72);
AT(attn_kv_table, convert, 80);
AT(attn_kv_table, advance_step, 88);

SIZE(attn_merge_table, 24);
AT(attn_merge_table, struct_size, 0);
AT(attn_merge_table, reserved, 4);
AT(attn_merge_table, merge, 8);
AT(attn_merge_table, rescale, 16);

SIZE(attn_memory_table, 152);
AT(attn_memory_table, struct_size, 0);
AT(attn_memory_table, reserved, 4);
AT(attn_memory_table, alloc, 8);
AT(attn_memory_table, free, 16);
AT(attn_memory_table, copy, 24);
AT(attn_memory_table, alloc_pinned, 32);
AT(attn_memory_table, free_pinned, 40);
AT(attn_memory_table, stream_create, 48);
AT(attn_memory_table, stream_synchronize, 56);
AT(attn_memory_table, stream_destroy, 64);
AT(attn_memory_table, event_create, 72);
AT(attn_memory_table, event_record, 80);
AT(attn_memory_table, event_query, 88);
AT(attn_memory_table, event_synchronize, 96);
AT(attn_memory_table, event_destroy, 104);
AT(attn_memory_table, graph_begin, 112);
AT(attn_memory_table, graph_add_host, 120);
AT(attn_memory_table, graph_end, 128);
AT(attn_memory_table, graph_launch, 136);
AT(attn_memory_table, graph_destroy, 144);

SIZE(attn_backend_table, 112);
AT(attn_backend_table, struct_size, 0);
AT(attn_backend_table, device_class, 4);
AT(attn_backend_table, name, 8);
AT(attn_backend_table, plan, 16);
AT(attn_backend_table, kv, 24);
AT(attn_backend_table, merge, 32);
AT(attn_backend_table, memory, 40);
AT(attn_backend_table, query, 48);
AT(attn_backend_table, axes, 56);
AT(attn_backend_table, open, 64);
AT(attn_backend_table, close, 72);
AT(attn_backend_table, get_extension, 80);
AT(attn_backend_table, builder, 88);
AT(attn_backend_table, state, 96);
AT(attn_backend_table, layer, 104);

SIZE(attn_plugin, 136);
AT(attn_plugin, struct_size, 0);
AT(attn_plugin, abi_major, 4);
AT(attn_plugin, abi_minor, 8);
AT(attn_plugin, problem_size, 12);
AT(attn_plugin, batch_size, 16);
AT(attn_plugin, tensors_size, 20);
AT(attn_plugin, kv_desc_size, 24);
AT(attn_plugin, kv_write_size, 28);
AT(attn_plugin, merge_size, 32);
AT(attn_plugin, rescale_size, 36);
AT(attn_plugin, scratch_size, 40);
AT(attn_plugin, open_config_size, 44);
AT(attn_plugin, slot_mapping_size, 48);
AT(attn_plugin, copy_slots_size, 52);
AT(attn_plugin, copy_blocks_size, 56);
AT(attn_plugin, swap_blocks_size, 60);
AT(attn_plugin, gather_size, 64);
AT(attn_plugin, convert_size, 68);
AT(attn_plugin, advance_step_size, 72);
AT(attn_plugin, reserved, 76);
AT(attn_plugin, name, 80);
AT(attn_plugin, vendor, 88);
AT(attn_plugin, version, 96);
AT(attn_plugin, get_devices, 104);
AT(attn_plugin, get_backends, 112);
AT(attn_plugin, finish, 120);
AT(attn_plugin, device_type, 128);

SIZE(attn_context_options, 64);
AT(attn_context_options, struct_size, 0);
AT(attn_context_options, given, 4);
AT(attn_context_options, plugin_path, 8);
AT(attn_context_options, log, 16);
AT(attn_context_options, log_user, 24);
AT(attn_context_options, parallel_for, 32);
AT(attn_context_options, parallel_for_arg, 40);
AT(attn_context_options, variables, 48);
AT(attn_context_options, variable_count, 56);
AT(attn_context_options, reserved, 60);

SIZE(attn_variable_record, 56);
AT(attn_variable_record, name, 0);
AT(attn_variable_record, value, 8);
AT(attn_variable_record, origin, 16);
AT(attn_variable_record, type, 24);
AT(attn_variable_record, fallback, 32);
AT(attn_variable_record, help, 40);
AT(attn_variable_record, problem, 48);

SIZE(attn_directory_record, 32);
AT(attn_directory_record, path, 0);
AT(attn_directory_record, origin, 8);
AT(attn_directory_record, reason, 16);
AT(attn_directory_record, group_writable, 20);
AT(attn_directory_record, text, 24);

SIZE(attn_file_record, 112);
AT(attn_file_record, path, 0);
AT(attn_file_record, stage, 8);
AT(attn_file_record, reason, 12);
AT(attn_file_record, signal, 16);
AT(attn_file_record, reserved, 20);
AT(attn_file_record, microseconds, 24);
AT(attn_file_record, text, 32);
AT(attn_file_record, advice, 40);
AT(attn_file_record, linker, 48);
AT(attn_file_record, library, 56);
AT(attn_file_record, name, 64);
AT(attn_file_record, vendor, 72);
AT(attn_file_record, version, 80);
AT(attn_file_record, backends, 88);
AT(attn_file_record, abi_major, 96);
AT(attn_file_record, abi_minor, 100);
AT(attn_file_record, device_class, 104);
AT(attn_file_record, cpu_level, 108);

SIZE(attn_backend_record, 136);
AT(attn_backend_record, name, 0);
AT(attn_backend_record, vendor, 8);
AT(attn_backend_record, flavour, 16);
AT(attn_backend_record, file, 24);
AT(attn_backend_record, state, 32);
AT(attn_backend_record, reason, 36);
AT(attn_backend_record, text, 40);
AT(attn_backend_record, advice, 48);
AT(attn_backend_record, device_class, 56);
AT(attn_backend_record, has_device, 60);
AT(attn_backend_record, device, 64);
AT(attn_backend_record, device_name, 88);
AT(attn_backend_record, device_text, 96);
AT(attn_backend_record, device_arch, 104);
AT(attn_backend_record, memory_bytes, 112);
AT(attn_backend_record, units, 120);
AT(attn_backend_record, reserved, 124);
AT(attn_backend_record, device_type, 128);

SIZE(attn_select_options, 32);
AT(attn_select_options, struct_size, 0);
AT(attn_select_options, ask_all, 4);
AT(attn_select_options, backend, 8);
AT(attn_select_options, device, 16);
AT(attn_select_options, strict, 24);
AT(attn_select_options, reserved, 28);

SIZE(attn_model_part, 32);
AT(attn_model_part, struct_size, 0);
AT(attn_model_part, layer_class, 4);
AT(attn_model_part, phase, 8);
AT(attn_model_part, reserved, 12);
AT(attn_model_part, problem, 16);
AT(attn_model_part, backend, 24);

SIZE(attn_part_decision, 48);
AT(attn_part_decision, layer_class, 0);
AT(attn_part_decision, phase, 4);
AT(attn_part_decision, status, 8);
AT(attn_part_decision, reserved, 12);
AT(attn_part_decision, decision, 16);
AT(attn_part_decision, metadata_part, 24);
AT(attn_part_decision, cache_part, 28);
AT(attn_part_decision, metadata_text, 32);
AT(attn_part_decision, cache_text, 40);

SIZE(attn_candidate, 56);
AT(attn_candidate, name, 0);
AT(attn_candidate, device, 8);
AT(attn_candidate, accepted, 16);
AT(attn_candidate, device_class, 20);
AT(attn_candidate, cost_rank, 24);
AT(attn_candidate, graph_level, 28);
AT(attn_candidate, kernels, 32);
AT(attn_candidate, kernel_count, 40);
AT(attn_candidate, reason_count, 44);
AT(attn_candidate, reasons, 48);

SIZE(attn_decision_info, 48);
AT(attn_decision_info, requested, 0);
AT(attn_decision_info, effective, 8);
AT(attn_decision_info, device, 16);
AT(attn_decision_info, decided_by, 24);
AT(attn_decision_info, fallback, 28);
AT(attn_decision_info, text, 32);
AT(attn_decision_info, candidate_count, 40);
AT(attn_decision_info, reserved, 44);

SIZE(attn_forward_args, 336);
AT(attn_forward_args, struct_size, 0);
AT(attn_forward_args, seqs, 4);
AT(attn_forward_args, q_lens, 8);
AT(attn_forward_args, kv_lens, 16);
AT(attn_forward_args, table, 24);
AT(attn_forward_args, table_width, 32);
AT(attn_forward_args, softmax_scale, 36);
AT(attn_forward_args, q, 40);
AT(attn_forward_args, k, 88);
AT(attn_forward_args, v, 136);
AT(attn_forward_args, out, 184);
AT(attn_forward_args, lse, 232);
AT(attn_forward_args, k_cache, 280);
AT(attn_forward_args, v_cache, 296);
AT(attn_forward_args, pages, 312);
AT(attn_forward_args, block, 316);
AT(attn_forward_args, kv, 320);
AT(attn_forward_args, extras, 328);
