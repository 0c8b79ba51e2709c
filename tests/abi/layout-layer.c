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
