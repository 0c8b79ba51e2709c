/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a selection that fails says, candidates with unusual plugins, and questions to one backend. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "world.h"

#define SMALL "heads=8 head_dim=64 q=bf16"
#define HUGE  "heads=8 head_dim=512 q=bf16"

/* Nobody serves; the error names field and reason, and its text holds the pieces (NULL ends them). */
static void check_error(const char *mocks, const char *variables, const char *problem, uint32_t reason,
                        const char *field, const char *const *pieces)
{
    struct world world;
    world_open(&world, mocks, variables);
    struct attn_decision *decision;
    cr_assert_eq(world_select(&world, problem, NULL, NULL, &decision), ATTN_E_NO_BACKEND, "%s",
                 world.err.message);
    cr_assert_not_null(decision, "the decision holds the reasons");
    cr_assert_eq(world.err.reason, reason, "%s: %s", attn_reason_name(world.err.reason), world.err.message);
    cr_assert_str_eq(world.err.field, field);
    for (; *pieces != NULL; pieces++) {
        cr_assert_not_null(strstr(world.err.message, *pieces), "'%s' is not in: %s", *pieces,
                           world.err.message);
    }
    attn_decision_destroy(decision);
    world_close(&world);
}

#define PIECES(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(explain, the_closest_candidate_its_reason_and_advice)
{
    check_error("gpu nodrv host", NULL, HUGE, ATTN_REASON_HEAD_DIM, "head_dim",
                PIECES("gpu/flash-attn on cuda:0: HEAD_DIM: head_dim 512 is above 128",
                       "use a backend that serves it"));
}

Test(explain, a_reason_about_the_problem_leads_before_a_missing_driver)
{
    check_error("nodrv", NULL, HUGE, ATTN_REASON_HEAD_DIM, "head_dim",
                PIECES("nodrv/flash-attn: HEAD_DIM: head_dim 512 is above 64"));
    check_error("nodrv", NULL, SMALL, ATTN_REASON_NO_DRIVER, "device",
                PIECES("NO_DRIVER: libmock.so.1 is not there", "install the vendor's driver"));
}

Test(explain, an_explicit_refusal_leads_before_others)
{
    check_error("hip", NULL, HUGE " type=encoder", ATTN_REASON_ENC_DEC_ROCM_HIP, "type",
                PIECES("ROCm/HIP is not currently supported with encoder/decoder models."));
}

Test(explain, names_that_nobody_has)
{
    check_error("host", "ATTN_BACKEND=xformers", SMALL, ATTN_REASON_NO_SUCH_BACKEND, "backend",
                PIECES("xformers: NO_SUCH_BACKEND", "other software reads ATTN_BACKEND too"));
    check_error("host", "ATTN_BACKEND=cuda", SMALL, ATTN_REASON_NO_SUCH_BACKEND, "backend",
                PIECES("no plugin of vendor or flavour 'cuda' is installed"));
}

/* What the user ruled out is further away than what only lacks a driver, wherever it stands. */
Test(explain, a_disabled_backend_is_not_the_closest)
{
    check_error("gpu nodrv", "ATTN_DISABLE=gpu/*;ATTN_BACKEND=gpu,nodrv", SMALL, ATTN_REASON_NO_DRIVER,
                "device", PIECES("NO_DRIVER: libmock.so.1 is not there"));
}

Test(explain, everything_disabled)
{
    check_error("host", "ATTN_DISABLE=*", SMALL, ATTN_REASON_DISABLED_BY_USER, "backend",
                PIECES("matched by ATTN_DISABLE", "remove the pattern"));
}

Test(explain, no_files_and_bad_files)
{
    check_error("", NULL, SMALL, 0, "backend",
                PIECES("no plugin file (libattn-*.so) is on the search path", "ATTN_PLUGIN_PATH"));
    struct world world;
    world_open(&world, "", NULL);
    malformed_write(&world.malformed, "libattn-a.so", "nothing", 7);
    malformed_write(&world.malformed, "libattn-b.so", "nothing", 7);
    cr_assert_eq(attn_context_rescan(world.context, &world.err), ATTN_OK);
    struct attn_decision *decision;
    cr_assert_eq(world_select(&world, SMALL, NULL, NULL, &decision), ATTN_E_NO_BACKEND);
    cr_assert_null(attn_decision_get_candidate(decision, 0), "a file without a note is no candidate");
    cr_assert_not_null(strstr(world.err.message, "2 of 2 plugin files were refused, first "), "%s",
                       world.err.message);
    cr_assert_not_null(strstr(world.err.message, "/libattn-a.so: NOT_ELF"), "%s", world.err.message);
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(explain, a_file_that_fails_frees_the_next_of_its_name)
{
    struct world world;
    world_open(&world, "", NULL);
    malformed_add(&world.malformed, "host-broken", "libattn-a.so");
    malformed_add(&world.malformed, "host", "libattn-b.so");
    malformed_add(&world.malformed, "host", "libattn-c.so");
    cr_assert_eq(attn_context_rescan(world.context, &world.err), ATTN_OK);
    struct attn_decision *decision;
    cr_assert_eq(world_select(&world, SMALL, NULL, NULL, &decision), ATTN_OK, "%s", world.err.message);
    cr_assert_str_eq(
        world_list(decision),
        "host/flash-attn - ENTRY_FAILED; host/flashinfer - ENTRY_FAILED; host/flash-attn cpu:0 ok; "
        "host/flashinfer cpu:0 ok",
        "the third file of the name is no candidate: %s", world_list(decision));
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(explain, all_reasons_of_a_plugin_that_has_many)
{
    struct world world;
    world_open(&world, "many", NULL);
    struct attn_decision *decision;
    cr_assert_eq(world_select(&world, SMALL, NULL, NULL, &decision), ATTN_E_NO_BACKEND);
    const struct attn_candidate *candidate = world_candidate(decision, "many/flash-attn", "cuda:0");
    cr_assert_eq(candidate->reason_count, 40);
    cr_assert_str_eq(candidate->reasons[39].kernel, "row_39");
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(explain, plugins_that_refuse_badly)
{
    static const char *const mocks[] = {"mute", "broken"};
    static const char *const pieces[] = {"refused the problem without a reason",
                                         "query failed with ATTN_E_DEVICE"};
    for (int i = 0; i < 2; i++) {
        struct world world;
        world_open(&world, mocks[i], NULL);
        struct attn_decision *decision;
        cr_assert_eq(world_select(&world, SMALL, NULL, NULL, &decision), ATTN_E_NO_BACKEND);
        cr_assert_not_null(strstr(world.err.message, pieces[i]), "%s", world.err.message);
        attn_decision_destroy(decision);
        world_close(&world);
    }
}

Test(explain, what_a_plugin_is_too_old_to_know)
{
    struct world world;
    world_open(&world, "old", NULL);
    struct attn_decision *decision;
    /* graph stands beyond what this plugin knows, and has a default that is not zero. */
    cr_assert_eq(world_select(&world, SMALL, NULL, NULL, &decision), ATTN_E_NO_BACKEND);
    cr_assert_eq(world.err.reason, ATTN_REASON_UNKNOWN_TO_PLUGIN);
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(explain, det_for_everybody)
{
    struct world world;
    world_open(&world, "gpu", "ATTN_DETERMINISTIC=1");
    struct attn_decision *decision;
    cr_assert_eq(world_select(&world, SMALL, NULL, NULL, &decision), ATTN_OK);
    cr_assert_eq(world_said(&world, "query det"), 1);
    attn_decision_destroy(decision);
    world_close(&world);
    world_open(&world, "gpu", NULL);
    cr_assert_eq(world_select(&world, SMALL, NULL, NULL, &decision), ATTN_OK);
    cr_assert_eq(world_said(&world, "query det"), 0);
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(explain, bad_calls)
{
    struct world world;
    world_open(&world, "host", NULL);
    struct attn_problem problem;
    cr_assert_eq(attn_problem_parse(SMALL, &problem, NULL), ATTN_OK);
    struct attn_decision *decision = NULL;
    struct attn_select_options options;
    ATTN_INIT(&options);
    cr_assert_eq(attn_select(NULL, &problem, 1, NULL, &decision, &world.err), ATTN_E_INVALID);
    cr_assert_eq(attn_select(world.context, NULL, 1, NULL, &decision, &world.err), ATTN_E_INVALID);
    cr_assert_eq(attn_select(world.context, &problem, 0, NULL, &decision, &world.err), ATTN_E_INVALID);
    cr_assert_eq(attn_select(world.context, &problem, 1, NULL, NULL, &world.err), ATTN_E_INVALID);
    options.backend = " , ";
    cr_assert_eq(attn_select(world.context, &problem, 1, &options, &decision, &world.err), ATTN_E_INVALID);
    cr_assert_str_eq(world.err.field, "backend");
    problem.heads = 0;
    cr_assert_eq(attn_select(world.context, &problem, 1, NULL, &decision, &world.err), ATTN_E_INVALID);
    cr_assert_str_eq(world.err.field, "heads");
    cr_assert_null(decision);
    cr_assert_null(attn_decision_get_info(NULL));
    cr_assert_null(attn_decision_get_candidate(NULL, 0));
    attn_decision_destroy(NULL);
    world_close(&world);
}

/* ---------------------------------------------------------------- one backend by name */

Test(explain, query_by_name)
{
    struct world world;
    world_open(&world, "many gpu", "ATTN_DISABLE=gpu/flashinfer");
    struct attn_problem problem;
    cr_assert_eq(attn_problem_parse(SMALL, &problem, NULL), ATTN_OK);
    struct attn_reason reasons[2];
    struct attn_query query;
    ATTN_INIT(&query);
    query.reasons = reasons;
    query.reason_capacity = 2;
    cr_assert_eq(attn_context_query(world.context, "MANY/Flash_Attn", NULL, &problem, &query, &world.err),
                 ATTN_OK, "%s", world.err.message);
    cr_assert_eq(query.accepted, 0);
    cr_assert_eq(query.reason_count, 40, "the true number comes back");
    cr_assert_str_eq(reasons[1].kernel, "row_1");
    cr_assert_eq(world_said(&world, "devices of"), 0, "no driver is opened");
    query.reason_count = 5;
    cr_assert_eq(attn_context_query(world.context, "gpu/flash-attn", NULL, &problem, &query, &world.err),
                 ATTN_OK);
    cr_assert_eq(query.accepted, 1);
    cr_assert_eq(query.reason_count, 0);
    cr_assert_eq(query.cost_rank, 5);
    cr_assert_eq(attn_context_query(world.context, "gpu/flashinfer", NULL, &problem, &query, &world.err),
                 ATTN_E_UNSUPPORTED);
    cr_assert_eq(world.err.reason, ATTN_REASON_DISABLED_BY_USER);
    cr_assert_eq(attn_context_query(world.context, "gpu", NULL, &problem, &query, &world.err),
                 ATTN_E_INVALID);
    cr_assert_eq(world.err.reason, ATTN_REASON_NO_SUCH_BACKEND);
    query.kernel_capacity = 1;
    cr_assert_eq(attn_context_query(world.context, "gpu/flash-attn", NULL, &problem, &query, &world.err),
                 ATTN_E_INVALID, "a capacity without an array");
    world_close(&world);
}

Test(explain, a_query_asks_the_file_that_serves)
{
    struct world world;
    struct attn_problem problem;
    struct attn_query query;
    ATTN_INIT(&query);
    world_open(&world, "gpu", NULL);
    malformed_add(&world.malformed, "host-broken", "libattn-a.so");
    malformed_add(&world.malformed, "host", "libattn-b.so");
    cr_assert_eq(attn_problem_parse(SMALL, &problem, NULL), ATTN_OK);
    cr_assert_eq(unlink(malformed_path(&world.malformed, "libattn-gpu.so")), 0);
    cr_assert_eq(attn_context_rescan(world.context, &world.err), ATTN_OK);
    for (int i = 0; i < 2; i++) /* the second time it is known that the first file fails */
        cr_assert_eq(attn_context_query(world.context, "host/flash-attn", NULL, &problem, &query, &world.err),
                     ATTN_OK, "%s", world.err.message);
    cr_assert_eq(attn_context_query(world.context, "gpu/flash-attn", NULL, &problem, &query, &world.err),
                 ATTN_E_INVALID, "a file that has vanished offers nothing: %s", world.err.message);
    cr_assert_eq(world.err.reason, ATTN_REASON_NO_SUCH_BACKEND);
    cr_assert_not_null(strstr(world.err.message, "there is: host"), "%s", world.err.message);
    world_close(&world);
}

Test(explain, axes_by_name)
{
    struct world world;
    world_open(&world, "gpu noentry", NULL);
    const struct attn_axis *axes;
    uint32_t count;
    cr_assert_eq(attn_context_get_axes(world.context, "gpu/flash-attn", &axes, &count, &world.err), ATTN_OK);
    cr_assert_eq(count, 1);
    cr_assert_str_eq(axes[0].key, "head_dim");
    cr_assert_eq(axes[0].last, 128);
    for (int i = 0; i < 2; i++) { /* the second time the plugin is known to be of no use */
        cr_assert_eq(attn_context_get_axes(world.context, "noentry/flash-attn", &axes, &count, &world.err),
                     ATTN_E_PLUGIN);
        cr_assert_eq(world.err.reason, ATTN_REASON_ENTRY_FAILED);
        cr_assert_null(axes);
    }
    cr_assert_eq(attn_context_get_axes(world.context, NULL, &axes, &count, &world.err), ATTN_E_INVALID);
    world_close(&world);
}
