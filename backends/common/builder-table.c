/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The function table of the common builder. */
#include "builder-table.h"
#include "builder-device.h"
#include "builder.h"
#include "parts.h"
#include "serialise.h"
#include "step.h"

const struct attn_builder_table attn__common_builder = {
    .struct_size = sizeof attn__common_builder,
    ATTN_BUILDER_SIZES,
    .create = attn__builder_create,
    .destroy = attn__builder_destroy,
    .reset = attn__builder_reset,
    .add = attn__builder_add,
    .set_row = attn__builder_set_row,
    .build = attn__builder_build,
    .get = attn__metadata_get,
    .part = attn__builder_part,
    .advance = attn__builder_advance,
    .serialise = attn__builder_serialise,
    .restore = attn__builder_restore,
    .set_device = attn__builder_set_device,
};
