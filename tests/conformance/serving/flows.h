/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of flows. */
#ifndef LAYER_FLOWS_H
#define LAYER_FLOWS_H

#include "model.h"

/* Bits of flow.wants and kind.has: a flow runs with the kinds that have all that it wants. */
#define FLOW_DECODER      UINT32_C(1) /* self-attention over a cache */
#define FLOW_APART        UINT32_C(2) /* prompts without rows may run apart from decodes */
#define FLOW_WINDOW       UINT32_C(4) /* a window, so that rows can be trimmed */
#define FLOW_ENCODER_ONLY UINT32_C(8)
#define FLOW_CROSS        UINT32_C(16)   /* encoder, decoder and cross-attention */
#define FLOW_REPEAT       UINT32_C(32)   /* the keys of a step may be read again from the cache */
#define FLOW_SEVERAL      UINT32_C(64)   /* several tokens of a decode: FlashAttention alone */
#define FLOW_WHOLE        UINT32_C(128)  /* every token of a prompt gets a slot */
#define FLOW_NO_PAGES     UINT32_C(256)  /* prompts whose blocks nothing shows: not with FlashInfer */
#define FLOW_RING         UINT32_C(512)  /* new tokens may take the places of old ones that are still seen */
#define FLOW_GRAPH        UINT32_C(1024) /* steps of single tokens are captured */
#define FLOW_STEPS        UINT32_C(2048) /* decodes advance without a builder */
#define FLOW_DEVICE       UINT32_C(4096) /* the arrays of a step are on the device already */
#define FLOW_MIX          UINT32_C(8192) /* steps of prompts and decodes are captured */

/* ---------------------------------------------------------------- flows.c: sequences and the step at hand */

enum { SEQUENCES = 5 };

struct scene {
    struct model *model;
    struct sequence_state all[SEQUENCES];
    struct step_def step;
};

struct scene scene_of(struct model *model);
void scene_begin(struct scene *scene);
struct entry *scene_add(struct scene *scene, uint32_t n, uint32_t prompt, uint32_t q_len);
bool scene_run(struct scene *scene);
/* Prompts of sequences 0 to 2, of which one is longer than any window; decodes of them. */
bool scene_prompts(struct scene *scene);
bool scene_decodes(struct scene *scene, uint32_t steps);

/* ---------------------------------------------------------------- flows-graph.c: sequences that all decode
 */

enum { MANY = 8 };

/* One size, of decodes or with num_tokens of any mix; `out_metadata` is that of its capture. */
int32_t graph_clone(struct model *model, uint32_t size, uint32_t num_tokens, struct attn_state **out,
                    struct attn_metadata **out_metadata, struct attn_error *err);
/* One token of each of `seqs` sequences from number `first` on. */
struct step_def graph_decodes(struct sequence_state *all, uint32_t first, uint32_t seqs);
/* The prompts of all sequences. */
bool graph_begin(struct model *model, struct sequence_state *all);

/* ---------------------------------------------------------------- flows-steps.c, flows-graph.c,
 * flows-replay.c */

bool flow_advanced(struct model *model);
bool flow_advanced_trimmed(struct model *model);
bool flow_device_decodes(struct model *model);
bool flow_device_prompts(struct model *model);
bool flow_padded(struct model *model);
bool flow_device_padded(struct model *model);
bool flow_replayed(struct model *model);
bool flow_replayed_mix(struct model *model);

/* ---------------------------------------------------------------- the table */

struct flow {
    const char *name;
    uint32_t wants;
    uint32_t chunked;
    bool (*run)(struct model *model);
};

extern const struct flow flows[];
extern const uint32_t flow_count;

#endif
