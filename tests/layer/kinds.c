/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kinds of layers that go through the flows: cache types, features, attention types. */
#include "kinds.h"

#define HEADS    "heads=4 kv_heads=2 head_dim=32 "
#define SELF     (TOGETHER | FLOW_APART)
#define TOGETHER (FLOW_DECODER | FLOW_REPEAT | FLOW_WHOLE) /* what cannot run apart */

/* A decoder with a cache of one type. */
#define DECODER(text)                                                                                        \
    {                                                                                                        \
        text, SELF, {{.problem = HEADS text}},                                                               \
        {                                                                                                    \
            0                                                                                                \
        }                                                                                                    \
    }
/* All three kinds of layers of a model with an encoder. */
#define CROSS_MODEL(text)                                                                                    \
    {                                                                                                        \
        "enc-dec " text, FLOW_CROSS,                                                                         \
            {{.problem = HEADS "type=encoder " text},                                                        \
             {.problem = HEADS text},                                                                        \
             {.problem = HEADS "type=encoder_decoder " text}},                                               \
        {                                                                                                    \
            0                                                                                                \
        }                                                                                                    \
    }
#define ENCODER_ONLY(text, kept)                                                                             \
    {                                                                                                        \
        "encoder_only " text " " #kept, FLOW_ENCODER_ONLY,                                                   \
            {{.problem = HEADS "type=encoder_only " text, .cache_dtype = (kept)}},                           \
        {                                                                                                    \
            0                                                                                                \
        }                                                                                                    \
    }

const struct kind kinds[] = {
    DECODER("q=f32"),
    DECODER("q=f16"),
    DECODER("q=bf16"),
    DECODER("q=f32 kv=f16"),
    DECODER("q=bf16 kv=f32 out=f32"),
    DECODER("q=f16 kv=e4m3 scales=unit"),
    DECODER("q=bf16 kv=e4m3 scales=tensor"),
    DECODER("q=f32 kv=e4m3 scales=head"),
    DECODER("q=f32 kv=e4m3 scales=token-head"),
    DECODER("q=f32 kv=e5m2 scales=unit"),
    DECODER("q=f16 kv=e5m2 scales=tensor"),
    DECODER("q=f32 kv=e5m2 scales=head"),
    DECODER("q=bf16 kv=e5m2 scales=token-head"),
    DECODER("q=f32 kv=e4m3fnuz scales=unit"),
    DECODER("q=f32 kv=e4m3fnuz scales=tensor"),
    DECODER("q=f16 kv=e4m3fnuz scales=head"),
    DECODER("q=f32 kv=e4m3fnuz scales=token-head"),
    DECODER("q=bf16 kv=e5m2fnuz scales=unit"),
    DECODER("q=f32 kv=e5m2fnuz scales=tensor"),
    DECODER("q=f32 kv=e5m2fnuz scales=head"),
    DECODER("q=f16 kv=e5m2fnuz scales=token-head"),
    DECODER("q=f32 kv=int8 scales=unit"),
    DECODER("q=f32 kv=int8 scales=tensor"),
    DECODER("q=bf16 kv=int8 scales=head"),
    DECODER("q=f32 kv=int8 scales=token-head"),
    DECODER("q=f32 softcap=2"),
    DECODER("q=f32 alibi=key"),
    DECODER("q=f32 sinks=1"),
    DECODER("q=bf16 lse=1 sinks=1"),
    {"q=f32, new keys in bf16", SELF, {{.problem = HEADS "q=f32 kv=f32", .new_dtype = ATTN_BF16}}, {0}},
    {"mha", SELF, {{.problem = "q=f32 heads=3 head_dim=64"}}, {0}},
    {"window", SELF | FLOW_WINDOW, {{.problem = HEADS "q=f32 window=7"}}, {0}},
    {"window of the builder",
     FLOW_DECODER | FLOW_APART | FLOW_REPEAT | FLOW_WINDOW,
     {{.problem = HEADS "q=f16 window=7"}},
     {8, 0}},
    {"mask", TOGETHER, {{.problem = HEADS "q=f32 mask=bits span=full"}}, {0}},
    {"cache+new", FLOW_DECODER | FLOW_WHOLE, {{.problem = HEADS "q=f32 kv_source=cache+new"}}, {0}},
    {"cache+new e4m3",
     FLOW_DECODER | FLOW_WHOLE,
     {{.problem = HEADS "q=f32 kv=e4m3 scales=unit kv_source=cache+new"}},
     {0}},
    {"cache+new int8",
     FLOW_DECODER | FLOW_WHOLE,
     {{.problem = HEADS "q=f32 kv=int8 scales=tensor kv_source=cache+new"}},
     {0}},
    {"cache+new in a ring", FLOW_RING, {{.problem = HEADS "q=f32 kv_source=cache+new window=11"}}, {0}},
    {"new", FLOW_DECODER | FLOW_WHOLE, {{.problem = HEADS "q=f32 kv_source=new"}}, {0}},
    {"new, kept in e5m2",
     FLOW_DECODER | FLOW_WHOLE,
     {{.problem = HEADS "q=f32 kv_source=new", .cache_dtype = ATTN_E5M2}},
     {0}},
    {"mla", SELF, {{.problem = "q=f32 mla=1 heads=4 kv_heads=1 head_dim=48/32"}}, {0}},
    {"mla int8",
     SELF,
     {{.problem = "q=bf16 mla=1 heads=4 kv_heads=1 head_dim=48/32 kv=int8 k_scale=tensor"}},
     {0}},
    {"window and full",
     SELF,
     {{.problem = HEADS "q=f32 window=7"}, {.problem = HEADS "q=f32 kv=f16", .group = 1}},
     {0}},
    CROSS_MODEL("q=f32"),
    CROSS_MODEL("q=f16"),
    CROSS_MODEL("q=bf16"),
    CROSS_MODEL("q=f32 alibi=distance"),
    ENCODER_ONLY("q=f32", 0),
    ENCODER_ONLY("q=f16", ATTN_F16),
    ENCODER_ONLY("q=bf16", ATTN_F32),
    ENCODER_ONLY("q=f32 lse=1 window=5", ATTN_E4M3),
    ENCODER_ONLY("q=f32 alibi=distance", ATTN_INT8),
    {"enc-dec e4m3",
     FLOW_CROSS,
     {{.problem = HEADS "type=encoder q=f32"},
      {.problem = HEADS "q=f32 kv=e4m3 scales=head"},
      {.problem = HEADS "type=encoder_decoder q=f32 kv=e4m3 scales=token-head lse=1"}},
     {0}},
    {"enc-dec int8",
     FLOW_CROSS,
     {{.problem = HEADS "type=encoder q=f16 softcap=3"},
      {.problem = HEADS "q=f16 kv=int8 scales=token-head"},
      {.problem = HEADS "type=encoder_decoder q=f16 kv=int8 scales=tensor"}},
     {0}},
};

const uint32_t kind_count = sizeof kinds / sizeof kinds[0];
