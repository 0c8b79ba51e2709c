/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * libattn-serving: the builder, state and layers that the plugins of libattn have, as a static library for
 * others. It exports nothing. A plugin takes all of it in three lines of its struct attn_backend_table,
 *
 *     .builder = &attn_serving_builder,
 *     .state = &attn_serving_state,
 *     .layer = &attn_serving_layer,
 *
 * or copies a table, replaces functions of the copy by its own, and calls the library's from them. The
 * flavour of a builder or state is that of the backend's name, or the one that its parameters give.
 */
#ifndef ATTN_SERVING_H
#define ATTN_SERVING_H

#include "attn/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The builder. */
extern const struct attn_builder_table attn_serving_builder;
/* The state; it comes with the layers. */
extern const struct attn_state_table attn_serving_state;
/* The layers. */
extern const struct attn_layer_table attn_serving_layer;

#ifdef __cplusplus
}
#endif
#endif
