/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of flows, and the kinds of layers that go through them. */
#ifndef LAYER_FLOWS_H
#define LAYER_FLOWS_H

#include "layer-fixture.h"

/* Bits of flow.wants and kind.has: a flow runs with the kinds that have all that it wants. */
#define FLOW_DECODER      UINT32_C(1) /* self-attention over a cache */
#define FLOW_APART        UINT32_C(2) /* prompts without rows may run apart from decodes */
#define FLOW_WINDOW       UINT32_C(4) /* a window, so that rows can be trimmed */
#define FLOW_ENCODER_ONLY UINT32_C(8)
#define FLOW_CROSS        UINT32_C(16)  /* encoder, decoder and cross-attention */
#define FLOW_REPEAT       UINT32_C(32)  /* the keys of a step may be read again from the cache */
#define FLOW_SEVERAL      UINT32_C(64)  /* several tokens of a decode: FlashAttention alone */
#define FLOW_WHOLE        UINT32_C(128) /* every token of a prompt gets a slot */
#define FLOW_NO_PAGES     UINT32_C(256) /* prompts whose blocks nothing shows: not with FlashInfer */
#define FLOW_RING         UINT32_C(512) /* new tokens may take the places of old ones that are still seen */

struct flow {
    const char *name;
    uint32_t wants;
    uint32_t chunked;
    bool (*run)(struct model *model);
};

extern const struct flow flows[];
extern const uint32_t flow_count;

struct kind {
    const char *name;
    uint32_t has;
    struct class_def classes[CLASSES];
    uint32_t windows[GROUPS];
};

extern const struct kind kinds[];
extern const uint32_t kind_count;

#endif
