/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Models that are decided part by part: who serves which part, and wrong arguments. */
#include "parts.h"

static const struct part phases[] = {{0, ATTN_PHASE_PREFILL, SMALL PROMPTS, NULL},
                                     {0, ATTN_PHASE_DECODE, SMALL DECODES, NULL}};

Test(parts, one_backend_serves_all)
{
    const struct part parts[] = {{0, ATTN_PHASE_PREFILL, SMALL PROMPTS, NULL},
                                 {1, 0, SMALL "window=128", NULL},
                                 {0, ATTN_PHASE_DECODE, SMALL DECODES, NULL}};
    struct world world;
    struct attn_parts *out =
        parts_expect(&world, "host gpu", parts, 3, ATTN_OK,
                     "gpu/flash-attn cuda:0 0 0; gpu/flash-attn cuda:0 0 0; gpu/flash-attn cuda:0 0 0");
    const struct attn_decision *one = attn_parts_get_decision(out, 0)->decision;
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(attn_parts_get_decision(out, i)->decision, one);
        cr_assert(!parts_say(out, i, "split"));
        parts_expect_texts(out, i, "", "");
    }
    struct attn_backend *backend;
    cr_assert_eq(attn_backend_open(world.context, one, NULL, &backend, &world.err), ATTN_OK);
    attn_backend_destroy(backend);
    parts_done(&world, out);
}

/* As attn_select: a CPU that serves all is taken, visibly, before a model is split. */
Test(parts, a_fallback_for_all_comes_before_a_split)
{
    const struct part parts[] = {{0, 0, SMALL, NULL}, {1, 0, LARGE, NULL}};
    struct world world;
    struct attn_parts *out = parts_expect(&world, "host gpu", parts, 2, ATTN_OK,
                                          "host/flash-attn cpu:0 0 0; host/flash-attn cpu:0 0 1");
    cr_assert_eq(parts_info(out, 0)->fallback, 1);
    parts_expect_texts(out, 1, "", "parts[0]: head_dim: 64 and 256");
    attn_parts_destroy(out);
    /* Where a fallback is an error the classes part, and the one without a GPU has no backend. */
    struct attn_select_options options;
    ATTN_INIT(&options);
    options.strict = 1;
    cr_assert_eq(parts_ask(&world, parts, 2, &options, &out), ATTN_E_NO_BACKEND);
    cr_assert_str_eq(parts_list(out), "gpu/flash-attn cuda:0 0 0; - - 1 1");
    cr_assert(
        parts_say(out, 0, "; split by class, because of the 2 parts together: host/flash-attn on cpu:0"));
    cr_assert(
        parts_say(out, 0, "refused as a fallback (strict): a better device class was refused (gpu/flash-"));
    cr_assert_eq(strncmp(world.err.message, "parts[1] (class 1, both phases): 'auto'", 39), 0, "%s",
                 world.err.message);
    parts_expect_texts(out, 1, "no backend serves it", "no backend serves it");
    parts_done(&world, out);
}

Test(parts, phases_that_different_backends_serve_share_a_cache)
{
    struct world world;
    struct attn_parts *out = parts_expect(&world, "prompts decodes", phases, 2, ATTN_OK,
                                          "prompts/flash-attn cuda:0 0 0; decodes/flash-attn cuda:0 0 0");
    cr_assert(parts_say(out, 0,
                        "'auto' (automatic): prompts/flash-attn on cuda:0, kernels mock_64; split by "
                        "phase, because of class 0 as a whole: no backend serves, closest is prompts/"));
    cr_assert(parts_say(out, 1, "split by phase, because of class 0 as a whole"));
    cr_assert(parts_say(out, 1, ": MAX_Q: max_q 1 is not its phase; lower max_q"));
    cr_assert_neq(attn_parts_get_decision(out, 0)->decision, attn_parts_get_decision(out, 1)->decision);
    cr_assert_eq(parts_info(out, 0)->fallback, 0);
    parts_expect_texts(out, 1, "", "");
    /* The second has taken a cache of the first; both are closed again. */
    cr_assert_eq(world_said(&world, "kv create"), 1);
    cr_assert_eq(world_said(&world, "mock: open"), 2);
    cr_assert_eq(world_said(&world, "mock: close"), 2);
    parts_done(&world, out);
}

Test(parts, a_class_that_one_backend_serves_is_not_split)
{
    const struct part parts[] = {{1, 0, LARGE, NULL},
                                 {0, ATTN_PHASE_DECODE, SMALL DECODES, NULL},
                                 {0, ATTN_PHASE_PREFILL, SMALL PROMPTS, NULL},
                                 {2, ATTN_PHASE_DECODE, LARGE DECODES, NULL},
                                 {2, ATTN_PHASE_PREFILL, LARGE PROMPTS, NULL}};
    struct world world;
    struct attn_parts *out =
        parts_expect(&world, "gpub decodes prompts", parts, 5, ATTN_OK,
                     "prompts/flash-attn cuda:0 0 0; gpub/flash-attn cuda:0 0 1; gpub/flash-attn cuda:0 0 1; "
                     "decodes/flash-attn cuda:0 0 0; prompts/flash-attn cuda:0 0 0");
    cr_assert(
        parts_say(out, 0, "split by class, because of the 5 parts together: no backend serves, closest is "));
    cr_assert(parts_say(out, 1, "split by class"));
    cr_assert_eq(attn_parts_get_decision(out, 1)->decision, attn_parts_get_decision(out, 2)->decision);
    cr_assert(parts_say(out, 3, "split by phase, because of class 2 as a whole"));
    parts_expect_texts(out, 1, "", "parts[0]: head_dim: 256 and 64");
    parts_done(&world, out);
}

Test(parts, a_list_of_its_own_is_for_one_part)
{
    struct part parts[] = {{0, ATTN_PHASE_PREFILL, SMALL PROMPTS, "gpu"},
                           {0, ATTN_PHASE_DECODE, SMALL DECODES, "Host/Flashinfer,auto"},
                           {1, 0, SMALL, NULL}};
    struct world world;
    struct attn_parts *out =
        parts_expect(&world, "gpub gpu host", parts, 3, ATTN_OK,
                     "gpu/flash-attn cuda:0 0 0; host/flashinfer cpu:0 1 1; gpub/flash-attn cuda:0 0 0");
    parts_expect_texts(out, 1, "parts[0]: device: cuda:0 and cpu:0, flavour: flash-attn and flashinfer",
                       "parts[0]: device: cuda:0 and cpu:0");
    cr_assert_str_eq(parts_info(out, 1)->requested, "Host/Flashinfer,auto");
    cr_assert_eq(parts_info(out, 1)->decided_by, ATTN_DECIDED_BY_CALL);
    cr_assert_eq(parts_info(out, 2)->decided_by, ATTN_DECIDED_BY_AUTOMATIC);
    /* The third is of the first one's device, but not of the second one's. */
    parts_expect_texts(out, 2, "parts[1]: device: cpu:0 and cuda:0, flavour: flashinfer and flash-attn",
                       "parts[1]: device: cpu:0 and cuda:0");
    attn_parts_destroy(out);
    /* The list of all parts is that of the others alone. */
    struct attn_select_options options;
    ATTN_INIT(&options);
    options.backend = "flashinfer";
    parts[1].backend = "none";
    cr_assert_eq(parts_ask(&world, parts, 3, &options, &out), ATTN_OK, "%s", world.err.message);
    cr_assert_str_eq(parts_list(out), "gpu/flash-attn cuda:0 0 0; - - 1 1; gpub/flashinfer cuda:0 2 0");
    parts_expect_texts(out, 1, "no backend is wanted", "no backend is wanted");
    parts_expect_texts(out, 2, "parts[0]: flavour: flash-attn and flashinfer", "");
    parts_done(&world, out);
}

Test(parts, hybrid_layers_of_which_one_plugin_serves_some)
{
    const struct part parts[] = {{0, 0, LARGE, NULL}, {1, 0, SMALL PROMPTS, NULL}};
    const struct attn_part_decision *part;
    struct world world;
    struct attn_parts *out = parts_expect(&world, "gpu decodes host", parts, 2, ATTN_OK,
                                          "host/flash-attn cpu:0 0 0; host/flash-attn cpu:0 0 1");
    attn_parts_destroy(out);
    /* Without the CPU nobody serves both. */
    struct attn_select_options options;
    ATTN_INIT(&options);
    options.device = "cuda";
    cr_assert_eq(parts_ask(&world, parts, 2, &options, &out), ATTN_OK, "%s", world.err.message);
    cr_assert_str_eq(parts_list(out), "decodes/flash-attn cuda:0 0 0; gpu/flash-attn cuda:0 0 1");
    part = attn_parts_get_decision(out, 0);
    cr_assert_eq(world_candidate(part->decision, "gpu/flash-attn", "cuda:0")->reasons[0].code,
                 ATTN_REASON_HEAD_DIM);
    part = attn_parts_get_decision(out, 1);
    cr_assert_eq(world_candidate(part->decision, "decodes/flash-attn", "cuda:0")->reasons[0].code,
                 ATTN_REASON_MAX_Q);
    parts_done(&world, out);
}

Test(parts, whom_nobody_serves_has_every_reason)
{
    const struct part parts[] = {{0, ATTN_PHASE_PREFILL, SMALL, NULL},
                                 {1, ATTN_PHASE_DECODE, HUGE, NULL},
                                 {0, ATTN_PHASE_DECODE, SMALL, NULL},
                                 {1, ATTN_PHASE_PREFILL, HUGE, NULL}};
    struct world world;
    struct attn_parts *out =
        parts_expect(&world, "host gpu", parts, 4, ATTN_E_NO_BACKEND,
                     "gpu/flash-attn cuda:0 0 0; - - 1 1; gpu/flash-attn cuda:0 0 0; - - 3 3");
    cr_assert_eq(world.err.reason, ATTN_REASON_HEAD_DIM);
    cr_assert_str_eq(world.err.field, "head_dim");
    cr_assert_eq(strncmp(world.err.message, "parts[1] (class 1, decode): 'auto' (automatic): no backend", 57),
                 0, "%s", world.err.message);
    cr_assert_eq(attn_parts_get_decision(out, 0)->status, ATTN_OK);
    for (uint32_t i = 1; i < 4; i += 2) {
        const struct attn_part_decision *part = attn_parts_get_decision(out, i);
        cr_assert_eq(part->status, ATTN_E_NO_BACKEND);
        cr_assert_str_eq(world_list(part->decision), "gpu/flash-attn cuda:0 HEAD_DIM; gpu/flashinfer cuda:0 "
                                                     "HEAD_DIM; host/flash-attn cpu:0 HEAD_DIM; "
                                                     "host/flashinfer cpu:0 HEAD_DIM");
        parts_expect_texts(out, i, "no backend serves it", "no backend serves it");
    }
    parts_done(&world, out);
}

/* An explicit refusal leads: it is the whole message. */
Test(parts, an_explicit_refusal_leads)
{
    static const char words[] = "ROCm/HIP is not currently supported with encoder/decoder models.";
    const struct part parts[] = {{0, 0, SMALL, NULL}, {1, 0, SMALL "type=encoder_decoder", NULL}};
    struct world world;
    struct attn_parts *out =
        parts_expect(&world, "hip", parts, 2, ATTN_E_NO_BACKEND, "hip/rocm-flash rocm:0 0 0; - - 1 1");
    cr_assert_str_eq(world.err.message, words);
    cr_assert_eq(world.err.reason, ATTN_REASON_ENC_DEC_ROCM_HIP);
    cr_assert_str_eq(parts_info(out, 1)->text, words);
    cr_assert(parts_say(out, 0, "; split by class, because of the 2 parts together: ROCm/HIP is not"));
    parts_done(&world, out);
}

/* ---------------------------------------------------------------- wrong arguments */

static void refused(const struct part *parts, uint32_t count, const char *field, const char *message)
{
    struct attn_parts *out;
    struct world world;
    world_open(&world, "host", NULL);
    cr_assert_eq(parts_ask(&world, parts, count, NULL, &out), ATTN_E_INVALID);
    cr_assert_null(out);
    cr_assert_str_eq(world.err.field, field);
    cr_assert_str_eq(world.err.message, message);
    world_close(&world);
}

#define REFUSED(field, message, ...)                                                                         \
    refused((const struct part[]){__VA_ARGS__},                                                              \
            sizeof((const struct part[]){__VA_ARGS__}) / sizeof(struct part), field, message)

Test(parts, wrong_parts)
{
    REFUSED("phase", "parts[1]: phase is 7; accepted: ATTN_PHASE_PREFILL, ATTN_PHASE_DECODE, or 0 for both",
            {0, 1, SMALL, NULL}, {0, 7, SMALL, NULL});
    REFUSED("phase",
            "parts[0] and parts[2] are both of class 0, decode and decode; accepted: one part of both "
            "phases, or one of each phase",
            {0, 2, SMALL, NULL}, {1, 2, SMALL, NULL}, {0, 2, SMALL, NULL});
    REFUSED("phase",
            "parts[1] and parts[0] are both of class 0, both phases and prefill; accepted: one part of both "
            "phases, or one of each phase",
            {0, 1, SMALL, NULL}, {0, 0, SMALL, NULL});
    REFUSED("layer_class",
            "parts[1]: layer_class is 2, but no part has 1; accepted: classes numbered from 0 without a gap",
            {0, 1, SMALL, NULL}, {2, 0, SMALL, NULL}, {0, 2, SMALL, NULL});
    REFUSED("layer_class",
            "parts[0]: layer_class is 1, but no part has 0; accepted: classes numbered from 0 without a gap",
            {1, 0, SMALL, NULL});
    REFUSED("backend",
            "parts[0]: backend is ' ,'; accepted: a comma list of vendor/flavour, vendor, flavour or auto, "
            "or none, or NULL for the list of all parts",
            {0, 0, SMALL, " ,"});
}

/* A call with these arguments. */
static void refused_call(struct world *world, const struct attn_model_part *parts, uint32_t count,
                         const char *field, const char *message)
{
    struct attn_parts *out = (struct attn_parts *)(void *)world;
    cr_assert_eq(attn_select_parts(world->context, parts, count, NULL, &out, &world->err), ATTN_E_INVALID);
    cr_assert_null(out);
    cr_assert_str_eq(world->err.field, field);
    cr_assert_str_eq(world->err.message, message);
}

Test(parts, wrong_arguments)
{
    struct attn_select_options options;
    struct attn_problem problem;
    struct attn_parts *out;
    struct world world;
    struct attn_model_part part = {.struct_size = sizeof part};
    world_open(&world, "host", NULL);
    cr_assert_eq(attn_select_parts(NULL, &part, 1, NULL, &out, &world.err), ATTN_E_INVALID);
    cr_assert_str_eq(world.err.field, "context");
    cr_assert_eq(attn_select_parts(world.context, &part, 1, NULL, NULL, &world.err), ATTN_E_INVALID);
    cr_assert_str_eq(world.err.field, "out");
    refused_call(&world, NULL, 1, "parts", "0 parts are given; accepted: 1 to 4096");
    refused_call(&world, &part, 0, "count", "0 parts are given; accepted: 1 to 4096");
    refused_call(&world, &part, 4097, "count", "4097 parts are given; accepted: 1 to 4096");
    refused_call(&world, &part, 1, "problem",
                 "parts[0]: problem is NULL; a struct made with ATTN_INIT is accepted");
    cr_assert_eq(attn_problem_parse(SMALL, &problem, NULL), ATTN_OK);
    part.problem = &problem;
    problem.kv_heads = 3;
    refused_call(&world, &part, 1, "kv_heads", "parts[0]: kv_heads is 3; accepted: a divisor of heads=8");
    problem.kv_heads = 4;
    part.struct_size = 8;
    refused_call(&world, &part, 1, "part",
                 "parts[0]: part has struct_size 8; 32 to 65536 is accepted: set it with ATTN_INIT");
    part.struct_size = sizeof part;
    ATTN_INIT(&options);
    options.device = "cuda:x";
    cr_assert_eq(attn_select_parts(world.context, &part, 1, &options, &out, &world.err), ATTN_E_INVALID);
    cr_assert_str_eq(world.err.field, "device");
    cr_assert_null(out);
    options.struct_size = 4;
    cr_assert_eq(attn_select_parts(world.context, &part, 1, &options, &out, &world.err), ATTN_E_INVALID);
    cr_assert_str_eq(world.err.field, "options");
    attn_parts_destroy(NULL);
    cr_assert_null(attn_parts_get_decision(NULL, 0));
    world_close(&world);
}

/* Structs of a newer caller lie further apart. */
Test(parts, larger_structs)
{
    struct {
        struct attn_model_part part;
        uint64_t more;
    } parts[2];
    struct attn_problem problem;
    struct attn_parts *out;
    struct world world;
    world_open(&world, "host", NULL);
    cr_assert_eq(attn_problem_parse(SMALL, &problem, NULL), ATTN_OK);
    memset(parts, 0, sizeof parts);
    for (uint32_t i = 0; i < 2; i++) {
        parts[i].part.struct_size = sizeof parts[0];
        parts[i].part.layer_class = i;
        parts[i].part.problem = &problem;
    }
    cr_assert_eq(attn_select_parts(world.context, &parts[0].part, 2, NULL, &out, &world.err), ATTN_OK);
    cr_assert_str_eq(parts_list(out), "host/flash-attn cpu:0 0 0; host/flash-attn cpu:0 0 0");
    attn_parts_destroy(out);
    parts[1].more = 1;
    cr_assert_eq(attn_select_parts(world.context, &parts[0].part, 2, NULL, &out, &world.err), ATTN_E_INVALID);
    cr_assert_not_null(strstr(world.err.message, "parts[1]: part has a value at byte 32"));
    world_close(&world);
}
