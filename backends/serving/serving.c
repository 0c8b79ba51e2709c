/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tables of libattn-serving: builder, state and layer. */
#include "attn/serving.h"
#include "builder-advance.h"
#include "builder-device.h"
#include "builder-part.h"
#include "builder.h"
#include "serialise.h"
#include "state.h"

const struct attn_builder_table attn_serving_builder = {
    .struct_size = sizeof attn_serving_builder,
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

const struct attn_state_table attn_serving_state = {
    .struct_size = sizeof attn_serving_state,
    ATTN_STATE_SIZES,
    .create = attn__state_create,
    .destroy = attn__state_destroy,
    .begin_forward = attn__state_begin_forward,
    .begin_capture = attn__state_begin_capture,
    .end_capture = attn__state_end_capture,
    .get_capture_metadata = attn__state_capture_metadata,
    .clone = attn__state_clone,
    .get_input = attn__state_get_input,
    .prepare = attn__state_prepare,
    .get_step = attn__state_get_step,
    .wait = attn__state_wait,
};

const struct attn_layer_table attn_serving_layer = {
    .struct_size = sizeof attn_serving_layer,
    ATTN_LAYER_SIZES,
    .create = attn__layer_create,
    .destroy = attn__layer_destroy,
    .forward = attn__layer_forward,
};
