/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kinds of layers that go through the flows: cache types, features, attention types. */
#include "flows.h"

#define FA   (UINT32_C(1) << ATTN_FLASH_ATTN)
#define FI   (UINT32_C(1) << ATTN_FLASHINFER)
#define ROCM (UINT32_C(1) << ATTN_ROCM_FLASH)
#define ALL  (FA | FI | ROCM)

#define HEADS    "heads=4 kv_heads=2 head_dim=32 "
#define SELF     (TOGETHER | FLOW_APART)
#define TOGETHER (FLOW_DECODER | FLOW_REPEAT | FLOW_WHOLE) /* what cannot run apart */

/* A decoder with a cache of one type. */
#define DECODER(text, strict_flavours)                                                                       \
    {                                                                                                        \
        text, SELF, strict_flavours, {{.problem = HEADS text}},                                              \
        {                                                                                                    \
            0                                                                                                \
        }                                                                                                    \
    }
/* All three kinds of layers of a model with an encoder. */
#define CROSS_MODEL(text)                                                                                    \
    {                                                                                                        \
        "enc-dec " text, FLOW_CROSS, FA,                                                                     \
            {{.problem = HEADS "type=encoder " text},                                                        \
             {.problem = HEADS text},                                                                        \
             {.problem = HEADS "type=encoder_decoder " text}},                                               \
        {                                                                                                    \
            0                                                                                                \
        }                                                                                                    \
    }
#define ENCODER_ONLY(text, kept, flavours)                                                                   \
    {                                                                                                        \
        "encoder_only " text " " #kept, FLOW_ENCODER_ONLY, flavours,                                         \
            {{.problem = HEADS "type=encoder_only " text, .cache_dtype = (kept)}},                           \
        {                                                                                                    \
            0                                                                                                \
        }                                                                                                    \
    }

const struct kind kinds[] = {
    DECODER("q=f32", ALL),
    DECODER("q=f16", ALL),
    DECODER("q=bf16", ALL),
    DECODER("q=f32 kv=f16", ALL),
    DECODER("q=bf16 kv=f32 out=f32", 0),
    DECODER("q=f16 kv=e4m3 scales=unit", ALL),
    DECODER("q=bf16 kv=e4m3 scales=tensor", FI | ROCM),
    DECODER("q=f32 kv=e4m3 scales=head", 0),
    DECODER("q=f32 kv=e4m3 scales=token-head", 0),
    DECODER("q=f32 kv=e5m2 scales=unit", ALL),
    DECODER("q=f16 kv=e5m2 scales=tensor", FI | ROCM),
    DECODER("q=f32 kv=e5m2 scales=head", 0),
    DECODER("q=bf16 kv=e5m2 scales=token-head", 0),
    DECODER("q=f32 kv=e4m3fnuz scales=unit", 0),
    DECODER("q=f32 kv=e4m3fnuz scales=tensor", 0),
    DECODER("q=f16 kv=e4m3fnuz scales=head", 0),
    DECODER("q=f32 kv=e4m3fnuz scales=token-head", 0),
    DECODER("q=bf16 kv=e5m2fnuz scales=unit", 0),
    DECODER("q=f32 kv=e5m2fnuz scales=tensor", 0),
    DECODER("q=f32 kv=e5m2fnuz scales=head", 0),
    DECODER("q=f16 kv=e5m2fnuz scales=token-head", 0),
    DECODER("q=f32 kv=int8 scales=unit", 0),
    DECODER("q=f32 kv=int8 scales=tensor", 0),
    DECODER("q=bf16 kv=int8 scales=head", 0),
    DECODER("q=f32 kv=int8 scales=token-head", 0),
    DECODER("q=f32 softcap=2", FA | FI),
    DECODER("q=f32 alibi=key", FA | FI | ROCM),
    DECODER("q=f32 sinks=1", 0),
    DECODER("q=bf16 lse=1 sinks=1", 0),
    {"q=f32, new keys in bf16", SELF, 0, {{.problem = HEADS "q=f32 kv=f32", .new_dtype = ATTN_BF16}}, {0}},
    {"mha", SELF, ALL, {{.problem = "q=f32 heads=3 head_dim=64"}}, {0}},
    {"window", SELF | FLOW_WINDOW, FA | ROCM, {{.problem = HEADS "q=f32 window=7"}}, {0}},
    {"window of the builder",
     FLOW_DECODER | FLOW_APART | FLOW_REPEAT | FLOW_WINDOW,
     0,
     {{.problem = HEADS "q=f16 window=7"}},
     {8, 0}},
    {"mask", TOGETHER, 0, {{.problem = HEADS "q=f32 mask=bits span=full"}}, {0}},
    {"cache+new", FLOW_DECODER | FLOW_WHOLE, 0, {{.problem = HEADS "q=f32 kv_source=cache+new"}}, {0}},
    {"cache+new e4m3",
     FLOW_DECODER | FLOW_WHOLE,
     0,
     {{.problem = HEADS "q=f32 kv=e4m3 scales=unit kv_source=cache+new"}},
     {0}},
    {"cache+new int8",
     FLOW_DECODER | FLOW_WHOLE,
     0,
     {{.problem = HEADS "q=f32 kv=int8 scales=tensor kv_source=cache+new"}},
     {0}},
    {"cache+new in a ring", FLOW_RING, 0, {{.problem = HEADS "q=f32 kv_source=cache+new window=11"}}, {0}},
    {"new", FLOW_DECODER | FLOW_WHOLE, 0, {{.problem = HEADS "q=f32 kv_source=new"}}, {0}},
    {"new, kept in e5m2",
     FLOW_DECODER | FLOW_WHOLE,
     0,
     {{.problem = HEADS "q=f32 kv_source=new", .cache_dtype = ATTN_E5M2}},
     {0}},
    {"latent", SELF, 0, {{.problem = "q=f32 mla=1 heads=4 kv_heads=1 head_dim=48/32"}}, {0}},
    {"latent int8",
     SELF,
     0,
     {{.problem = "q=bf16 mla=1 heads=4 kv_heads=1 head_dim=48/32 kv=int8 k_scale=tensor"}},
     {0}},
    {"window and full",
     SELF,
     FA,
     {{.problem = HEADS "q=f32 window=7"}, {.problem = HEADS "q=f32 kv=f16", .group = 1}},
     {0}},
    CROSS_MODEL("q=f32"),
    CROSS_MODEL("q=f16"),
    CROSS_MODEL("q=bf16"),
    CROSS_MODEL("q=f32 alibi=distance"),
    ENCODER_ONLY("q=f32", 0, FA),
    ENCODER_ONLY("q=f16", ATTN_F16, FA),
    ENCODER_ONLY("q=bf16", ATTN_F32, FA),
    ENCODER_ONLY("q=f32 lse=1 window=5", ATTN_E4M3, 0),
    ENCODER_ONLY("q=f32 alibi=distance", ATTN_INT8, 0),
    {"enc-dec e4m3",
     FLOW_CROSS,
     0,
     {{.problem = HEADS "type=encoder q=f32"},
      {.problem = HEADS "q=f32 kv=e4m3 scales=head"},
      {.problem = HEADS "type=encoder_decoder q=f32 kv=e4m3 scales=token-head lse=1"}},
     {0}},
    {"enc-dec int8",
     FLOW_CROSS,
     0,
     {{.problem = HEADS "type=encoder q=f16 softcap=3"},
      {.problem = HEADS "q=f16 kv=int8 scales=token-head"},
      {.problem = HEADS "type=encoder_decoder q=f16 kv=int8 scales=tensor"}},
     {0}},
};

const uint32_t kind_count = sizeof kinds / sizeof kinds[0];
