/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Selection with mock plugins: order, fallback, strictness, and the reasons of everybody. */
#include <criterion/criterion.h>

#include "world.h"

#define SMALL  "heads=8 head_dim=64 q=bf16"
#define MEDIUM "heads=8 head_dim=128 q=bf16"
#define LARGE  "heads=8 head_dim=256 q=bf16"
#define HUGE   "heads=8 head_dim=512 q=bf16"

struct expectation {
    int32_t status;
    const char *effective; /* NULL = none */
    const char *device;
    uint32_t fallback;
};

/* One selection in a new world; the world stays open for more questions. */
static struct attn_decision *expect(struct world *world, const char *problem, const char *backend,
                                    const char *device, struct expectation wanted)
{
    struct attn_decision *decision;
    const int32_t status = world_select(world, problem, backend, device, &decision);
    cr_assert_eq(status, wanted.status, "%s: %s", attn_status_name(status), world->err.message);
    cr_assert_not_null(decision);
    const struct attn_decision_info *info = attn_decision_get_info(decision);
    if (wanted.effective == NULL) {
        cr_assert_null(info->effective, "%s won: %s", info->effective, info->text);
        cr_assert_null(info->device);
    } else {
        cr_assert_not_null(info->effective, "nobody won: %s", info->text);
        cr_assert_str_eq(info->effective, wanted.effective);
        cr_assert_str_eq(info->device, wanted.device);
    }
    cr_assert_eq(info->fallback, wanted.fallback, "%s", info->text);
    cr_assert_gt(world_said(world, info->text), 0, "the log has the decision's text");
    return decision;
}

/* The same in a world of its own, with the list of candidates. */
static void check(const char *mocks, const char *variables, const char *problem, const char *backend,
                  const char *device, struct expectation wanted, const char *candidates)
{
    struct world world;
    world_open(&world, mocks, variables);
    struct attn_decision *decision = expect(&world, problem, backend, device, wanted);
    if (candidates != NULL)
        cr_assert_str_eq(world_list(decision), candidates);
    attn_decision_destroy(decision);
    world_close(&world);
}

#define WON(name, device)      ((struct expectation){ATTN_OK, name, device, 0})
#define FALLBACK(name, device) ((struct expectation){ATTN_OK, name, device, 1})
#define NOBODY                 ((struct expectation){ATTN_E_NO_BACKEND, NULL, NULL, 0})

Test(select, best_class_then_cost_then_ordinal_then_name)
{
    check("host gpu gpub", NULL, SMALL, NULL, NULL, WON("gpub/flash-attn", "cuda:0"),
          "gpub/flash-attn cuda:0 ok; gpub/flash-attn cuda:1 ok; gpub/flashinfer cuda:0 ok; "
          "gpub/flashinfer cuda:1 ok; gpu/flash-attn cuda:0 ok; gpu/flashinfer cuda:0 ok; "
          "host/flash-attn - NOT_ASKED; host/flashinfer - NOT_ASKED");
}

Test(select, order_of_files_changes_nothing)
{
    for (int round = 0; round < 3; round++) {
        check(round == 0 ? "gpub gpu host" : "host gpu gpub", NULL, SMALL, NULL, NULL,
              WON("gpub/flash-attn", "cuda:0"), NULL);
    }
}

Test(select, a_refusal_of_a_better_class_makes_a_fallback)
{
    check("host gpu", NULL, LARGE, NULL, NULL, FALLBACK("host/flash-attn", "cpu:0"),
          "gpu/flash-attn cuda:0 HEAD_DIM; gpu/flashinfer cuda:0 HEAD_DIM; host/flash-attn cpu:0 ok; "
          "host/flashinfer cpu:0 ok");
}

Test(select, a_refusal_within_the_class_makes_none)
{
    check("host gpu gpub", NULL, MEDIUM, NULL, NULL, WON("gpu/flash-attn", "cuda:0"), NULL);
}

Test(select, an_absence_makes_no_fallback)
{
    check(
        "host nodrv nodev", NULL, LARGE, NULL, NULL, WON("host/flash-attn", "cpu:0"),
        "nodev/flash-attn - NO_DEVICE; nodrv/flash-attn - NO_DRIVER,HEAD_DIM; nodev/flashinfer - NO_DEVICE; "
        "nodrv/flashinfer - NO_DRIVER,HEAD_DIM; host/flash-attn cpu:0 ok; host/flashinfer cpu:0 ok");
}

Test(select, a_plugin_that_cannot_start_makes_a_fallback)
{
    check("host noentry", NULL, SMALL, NULL, NULL, FALLBACK("host/flash-attn", "cpu:0"),
          "noentry/flash-attn - ENTRY_FAILED; noentry/flashinfer - ENTRY_FAILED; host/flash-attn cpu:0 ok; "
          "host/flashinfer cpu:0 ok");
}

Test(select, a_candidate_counts_by_its_devices_class)
{
    /* The file could offer a GPU, so it is asked first, but its device is a CPU of the last class. */
    check("host port", NULL, SMALL, NULL, NULL, WON("host/flash-attn", "cpu:0"),
          "host/flash-attn cpu:0 ok; host/flashinfer cpu:0 ok; port/flash-attn opencl:0 ok; "
          "port/flashinfer opencl:0 ok");
    check("port", NULL, SMALL, NULL, NULL, WON("port/flash-attn", "opencl:0"), NULL);
}

Test(select, a_chosen_cpu_touches_no_driver)
{
    struct world world;
    world_open(&world, "host gpu nodrv", "ATTN_BACKEND=host,auto");
    attn_decision_destroy(expect(&world, SMALL, NULL, NULL, WON("host/flash-attn", "cpu:0")));
    attn_decision_destroy(expect(&world, SMALL, "auto", "cpu", WON("host/flash-attn", "cpu:0")));
    cr_assert_eq(world_said(&world, "devices of host"), 1);
    cr_assert_eq(world_said(&world, "devices of gpu"), 0);
    cr_assert_eq(world_said(&world, "devices of nodrv"), 0);
    world_close(&world);
}

Test(select, first_item_that_serves_wins)
{
    check("host gpu", "ATTN_BACKEND=host,gpu", SMALL, NULL, NULL, WON("host/flash-attn", "cpu:0"),
          "host/flash-attn cpu:0 ok; host/flashinfer cpu:0 ok; gpu/flash-attn - NOT_ASKED; "
          "gpu/flashinfer - NOT_ASKED");
    check("host gpu", "ATTN_BACKEND=FLASHINFER", SMALL, NULL, NULL, WON("gpu/flashinfer", "cuda:0"),
          "gpu/flashinfer cuda:0 ok; gpu/flash-attn - NOT_REQUESTED; host/flash-attn - NOT_REQUESTED; "
          "host/flashinfer - NOT_ASKED");
    check("host gpu", "ATTN_BACKEND=Host/Flash_Attn", SMALL, NULL, NULL, WON("host/flash-attn", "cpu:0"),
          NULL);
    check("host gpu", NULL, SMALL, "host/flashinfer", NULL, WON("host/flashinfer", "cpu:0"), NULL);
}

Test(select, an_earlier_item_that_did_not_serve_makes_a_fallback)
{
    check("host", "ATTN_BACKEND=cuda,auto", SMALL, NULL, NULL, FALLBACK("host/flash-attn", "cpu:0"),
          "cuda - NO_SUCH_BACKEND; host/flash-attn cpu:0 ok; host/flashinfer cpu:0 ok");
    check("host nodrv", "ATTN_BACKEND=nodrv,host", SMALL, NULL, NULL, FALLBACK("host/flash-attn", "cpu:0"),
          NULL);
    check("host gpu", "ATTN_BACKEND=host,gpu", HUGE, NULL, NULL, NOBODY, NULL);
    check("host gpu", "ATTN_BACKEND=gpu,host;ATTN_DISABLE=gpu", SMALL, NULL, NULL,
          FALLBACK("host/flash-attn", "cpu:0"), NULL);
}

Test(select, strict_refuses_fallbacks)
{
    const struct expectation refused = {ATTN_E_NO_BACKEND, NULL, NULL, 1};
    check("host gpu", "ATTN_STRICT=1", LARGE, NULL, NULL, refused,
          "gpu/flash-attn cuda:0 HEAD_DIM; gpu/flashinfer cuda:0 HEAD_DIM; host/flash-attn cpu:0 ok; "
          "host/flashinfer cpu:0 ok");
    check("host gpu", "ATTN_STRICT=1", SMALL, NULL, NULL, WON("gpu/flash-attn", "cuda:0"), NULL);
    check("host nodrv", "ATTN_STRICT=1", SMALL, NULL, NULL, WON("host/flash-attn", "cpu:0"), NULL);
    check("host", "ATTN_STRICT=1;ATTN_BACKEND=cuda,host", SMALL, NULL, NULL, refused, NULL);
    struct world world;
    world_open(&world, "host gpu", NULL);
    struct attn_problem problem;
    cr_assert_eq(attn_problem_parse(LARGE, &problem, NULL), ATTN_OK);
    struct attn_select_options options;
    ATTN_INIT(&options);
    options.strict = 1;
    struct attn_decision *decision;
    cr_assert_eq(attn_select(world.context, &problem, 1, &options, &decision, &world.err), ATTN_E_NO_BACKEND);
    cr_assert_eq(world.err.reason, ATTN_REASON_HEAD_DIM);
    struct attn_backend *backend;
    cr_assert_eq(attn_backend_open(world.context, decision, NULL, &backend, &world.err), ATTN_E_STATE);
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(select, a_fallback_is_warned_of_once)
{
    struct world world;
    world_open(&world, "host gpu", NULL);
    for (int i = 0; i < 3; i++)
        attn_decision_destroy(expect(&world, LARGE, NULL, NULL, FALLBACK("host/flash-attn", "cpu:0")));
    cr_assert_eq(world_said(&world, "2 select: "), 1, "%s", world.log);
    cr_assert_eq(world_said(&world, "4 select: "), 3, "%s", world.log);
    cr_assert_gt(world_said(&world, "HEAD_DIM: head_dim 256 is above 128"), 0);
    world_close(&world);
}

Test(select, a_call_overrules_the_variable)
{
    struct world world;
    world_open(&world, "host gpu", "ATTN_BACKEND=gpu");
    struct attn_decision *decision = expect(&world, SMALL, NULL, NULL, WON("gpu/flash-attn", "cuda:0"));
    cr_assert_eq(attn_decision_get_info(decision)->decided_by, ATTN_DECIDED_BY_ENVIRONMENT);
    cr_assert_str_eq(attn_decision_get_info(decision)->requested, "gpu");
    attn_decision_destroy(decision);
    for (int i = 0; i < 2; i++) {
        decision = expect(&world, SMALL, "host", NULL, WON("host/flash-attn", "cpu:0"));
        cr_assert_eq(attn_decision_get_info(decision)->decided_by, ATTN_DECIDED_BY_CALL);
        cr_assert_not_null(strstr(attn_decision_get_info(decision)->text, "overrules ATTN_BACKEND"));
        attn_decision_destroy(decision);
    }
    cr_assert_eq(world_said(&world, "overrules ATTN_BACKEND=gpu"), 1);
    world_close(&world);
    world_open(&world, "host", NULL);
    decision = expect(&world, SMALL, NULL, NULL, WON("host/flash-attn", "cpu:0"));
    cr_assert_eq(attn_decision_get_info(decision)->decided_by, ATTN_DECIDED_BY_AUTOMATIC);
    cr_assert_str_eq(attn_decision_get_info(decision)->requested, "auto");
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(select, none_is_a_decision_without_winner)
{
    struct world world;
    world_open(&world, "host gpu", "ATTN_BACKEND=none");
    const struct expectation nothing = {ATTN_OK, NULL, NULL, 0};
    struct attn_decision *decision = expect(&world, SMALL, NULL, NULL, nothing);
    cr_assert_str_eq(world_list(decision),
                     "gpu/flash-attn - NOT_REQUESTED; gpu/flashinfer - NOT_REQUESTED; "
                     "host/flash-attn - NOT_REQUESTED; host/flashinfer - NOT_REQUESTED");
    struct attn_backend *backend;
    cr_assert_eq(attn_backend_open(world.context, decision, NULL, &backend, &world.err), ATTN_E_STATE);
    cr_assert_null(backend);
    attn_decision_destroy(decision);
    cr_assert_eq(world_said(&world, "devices of"), 0);
    world_close(&world);
}

Test(select, devices)
{
    check("gpub host", NULL, SMALL, NULL, "cuda:1", WON("gpub/flash-attn", "cuda:1"),
          "gpub/flash-attn cuda:0 DEVICE; gpub/flashinfer cuda:0 DEVICE; gpub/flash-attn cuda:1 ok; "
          "gpub/flashinfer cuda:1 ok; host/flash-attn - NOT_ASKED; host/flashinfer - NOT_ASKED");
    check("gpub host", NULL, SMALL, NULL, "cuda", WON("gpub/flash-attn", "cuda:0"), NULL);
    check("gpub host", NULL, SMALL, NULL, "any", WON("gpub/flash-attn", "cuda:0"), NULL);
    check("gpub host", NULL, SMALL, NULL, "cuda:7", NOBODY,
          "gpub/flash-attn cuda:0 DEVICE; gpub/flashinfer cuda:0 DEVICE; gpub/flash-attn cuda:1 DEVICE; "
          "gpub/flashinfer cuda:1 DEVICE; host/flash-attn cpu:0 DEVICE; host/flashinfer cpu:0 DEVICE");
    /* A type that no plugin has excludes everybody. */
    check("host", NULL, SMALL, NULL, "gpu", NOBODY,
          "host/flash-attn cpu:0 DEVICE; host/flashinfer cpu:0 DEVICE");
    /* The caller ruled the GPU out: it did not refuse, and the CPU is no fallback. */
    check("port host", NULL, SMALL, NULL, "opencl", WON("port/flash-attn", "opencl:0"), NULL);
    check("gpub host", "ATTN_STRICT=1", SMALL, NULL, "cpu:0", WON("host/flash-attn", "cpu:0"), NULL);
    static const char *const bad[] = {
        "",         "cuda:",           "cuda:x", "cuda:-1",
        "cuda:1:2", "cuda:9999999999", ":1",     "a-name-of-thirty-two-characters-",
        "cuda:+1",  "cuda:(1"};
    struct world world;
    world_open(&world, "host", NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct attn_decision *decision;
        cr_assert_eq(world_select(&world, SMALL, NULL, bad[i], &decision), ATTN_E_INVALID, "'%s'", bad[i]);
        cr_assert_str_eq(world.err.field, "device");
        cr_assert_null(decision);
    }
    world_close(&world);
}

Test(select, ask_all_asks_everybody_and_changes_nothing)
{
    struct world world;
    world_open(&world, "host gpu", NULL);
    struct attn_problem problem;
    cr_assert_eq(attn_problem_parse(SMALL, &problem, NULL), ATTN_OK);
    struct attn_select_options options;
    ATTN_INIT(&options);
    options.ask_all = 1;
    struct attn_decision *decision;
    cr_assert_eq(attn_select(world.context, &problem, 1, &options, &decision, &world.err), ATTN_OK);
    cr_assert_str_eq(world_list(decision), "gpu/flash-attn cuda:0 ok; gpu/flashinfer cuda:0 ok; "
                                           "host/flash-attn cpu:0 ok; host/flashinfer cpu:0 ok");
    cr_assert_str_eq(attn_decision_get_info(decision)->effective, "gpu/flash-attn");
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(select, one_backend_serves_all_problems)
{
    struct world world;
    world_open(&world, "host gpu", NULL);
    struct attn_problem problems[2];
    cr_assert_eq(attn_problem_parse(SMALL, &problems[0], NULL), ATTN_OK);
    cr_assert_eq(attn_problem_parse(LARGE, &problems[1], NULL), ATTN_OK);
    struct attn_decision *decision;
    cr_assert_eq(attn_select(world.context, problems, 2, NULL, &decision, &world.err), ATTN_OK);
    cr_assert_str_eq(attn_decision_get_info(decision)->effective, "host/flash-attn");
    cr_assert_eq(attn_decision_get_info(decision)->fallback, 1);
    const struct attn_candidate *host = world_candidate(decision, "host/flash-attn", "cpu:0");
    cr_assert_eq(host->kernel_count, 2);
    cr_assert_str_eq(host->kernels[0].name, "mock_64");
    cr_assert_str_eq(host->kernels[1].name, "mock_256");
    cr_assert_eq(host->cost_rank, 7);
    cr_assert_eq(host->graph_level, ATTN_GRAPH_ALWAYS);
    cr_assert_eq(host->device_class, ATTN_CLASS_CPU);
    const struct attn_candidate *gpu = world_candidate(decision, "gpu/flash-attn", "cuda:0");
    cr_assert_eq(gpu->reason_count, 1);
    cr_assert_str_eq(gpu->reasons[0].got, "256");
    attn_decision_destroy(decision);
    world_close(&world);
}
