/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Generic kernels in a selection: who is warned of them, and that ATTN_STRICT=2 refuses them. */
#include <criterion/criterion.h>

#include "world.h"

#define SMALL  "heads=8 head_dim=64 q=bf16"
#define MEDIUM "heads=8 head_dim=128 q=bf16"
#define LARGE  "heads=8 head_dim=256 q=bf16"

/* A selection that `winner` on its first device wins. */
static struct attn_decision *expect(struct world *world, const char *problem, const char *backend,
                                    const char *winner)
{
    struct attn_decision *decision;
    cr_assert_eq(world_select(world, problem, backend, NULL, &decision), ATTN_OK, "%s", world->err.message);
    cr_assert_str_eq(attn_decision_get_info(decision)->effective, winner);
    return decision;
}

/* One selection in a world of its own, which `winner` wins, or with NULL is refused as a fallback. */
static void check(const char *mocks, const char *variables, const char *problem, const char *backend,
                  const char *winner)
{
    struct world world;
    struct attn_decision *decision;
    world_open(&world, mocks, variables);
    const int32_t status = world_select(&world, problem, backend, NULL, &decision);
    const struct attn_decision_info *info = attn_decision_get_info(decision);
    cr_assert_eq(status, winner != NULL ? ATTN_OK : ATTN_E_NO_BACKEND, "%s", world.err.message);
    cr_assert_eq(info->fallback, winner == NULL, "%s", info->text);
    if (winner != NULL)
        cr_assert_str_eq(info->effective, winner);
    else
        cr_assert_eq(world.err.reason, ATTN_REASON_GENERIC_KERNEL);
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(generic, a_generic_kernel_is_warned_of_once_a_class)
{
    static const char warned[] =
        "2 select: slow/flash-attn on cuda:0 serves 'heads=8 head_dim=128 q=bf16' by the generic "
        "kernel mock_128, for all of a batch, many times slower than an optimised one: mock_fast "
        "does not take head_dim=128 (wanted: up to 64)\n";
    struct world world;
    world_open(&world, "host slow", NULL);
    attn_decision_destroy(expect(&world, SMALL, NULL, "slow/flash-attn"));
    cr_assert_eq(world_said(&world, "generic"), 0, "%s", world.log);
    for (int i = 0; i < 3; i++) {
        /* Other maxima make no other class. */
        const char *problem = i < 2 ? MEDIUM : MEDIUM " max_seqs=4 max_q=9 max_kv=99 max_rows=36";
        struct attn_decision *decision = expect(&world, problem, NULL, "slow/flash-attn");
        cr_assert_not_null(strstr(attn_decision_get_info(decision)->text, "kernels mock_128 (generic)"));
        const struct attn_candidate *winner = world_candidate(decision, "slow/flash-attn", "cuda:0");
        cr_assert_eq(winner->kernels[0].speed, ATTN_SPEED_GENERIC);
        attn_decision_destroy(decision);
    }
    cr_assert_eq(world_said(&world, warned), 1, "%s", world.log);
    cr_assert_eq(world_said(&world, "2 select: "), 1, "%s", world.log);
    attn_decision_destroy(expect(&world, LARGE, NULL, "slow/flash-attn"));
    cr_assert_eq(world_said(&world, "2 select: "), 2, "%s", world.log);
    world_close(&world);
}

Test(generic, each_class_with_a_generic_kernel_is_warned_of)
{
    struct world world;
    world_open(&world, "slow", NULL);
    static const char *const classes[] = {LARGE, SMALL, MEDIUM};
    struct attn_problem problems[3];
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(attn_problem_parse(classes[i], &problems[i], NULL), ATTN_OK);
    struct attn_decision *decision;
    cr_assert_eq(attn_select(world.context, problems, 3, NULL, &decision, &world.err), ATTN_OK);
    attn_decision_destroy(decision);
    cr_assert_eq(world_said(&world, "serves 'heads=8 head_dim=256 q=bf16'"), 1, "%s", world.log);
    cr_assert_eq(world_said(&world, "serves 'heads=8 head_dim=128 q=bf16'"), 1, "%s", world.log);
    cr_assert_eq(world_said(&world, "2 select: "), 2, "%s", world.log);
    world_close(&world);
}

Test(generic, a_generic_winner_names_the_optimised_one_behind_it)
{
    struct world world;
    world_open(&world, "gpu host slow", NULL);
    attn_decision_destroy(expect(&world, MEDIUM, NULL, "slow/flash-attn"));
    cr_assert_eq(
        world_said(&world, "(wanted: up to 64); gpu/flash-attn on cuda:0 has optimised kernels for it\n"), 1,
        "%s", world.log);
    world_close(&world);
    /* It would have to serve all problems. */
    world_open(&world, "gpu slow", NULL);
    static const char *const classes[] = {MEDIUM, LARGE};
    struct attn_problem problems[2];
    for (size_t i = 0; i < 2; i++)
        cr_assert_eq(attn_problem_parse(classes[i], &problems[i], NULL), ATTN_OK);
    struct attn_decision *decision;
    cr_assert_eq(attn_select(world.context, problems, 2, NULL, &decision, &world.err), ATTN_OK);
    attn_decision_destroy(decision);
    cr_assert_eq(world_said(&world, "generic kernel"), 2, "%s", world.log);
    cr_assert_eq(world_said(&world, "has optimised kernels"), 0, "%s", world.log);
    world_close(&world);
    /* One that does not say how fast it is promises nothing, and one of another class is no choice. */
    world_open(&world, "host slow unsaid", "ATTN_DISABLE=unsaid/flash-attn");
    attn_decision_destroy(expect(&world, MEDIUM, "slow,unsaid,host", "slow/flash-attn"));
    cr_assert_eq(world_said(&world, "generic kernel"), 1, "%s", world.log);
    cr_assert_eq(world_said(&world, "has optimised kernels"), 0, "%s", world.log);
    world_close(&world);
}

Test(generic, strict_2_passes_over_generic_kernels)
{
    struct world world;
    world_open(&world, "gpu host slow", "ATTN_STRICT=2");
    struct attn_decision *decision = expect(&world, MEDIUM, NULL, "gpu/flash-attn");
    cr_assert_str_eq(world_list(decision),
                     "slow/flash-attn cuda:0 GENERIC_KERNEL,HEAD_DIM,HEAD_DIM; slow/flashinfer cuda:0 "
                     "GENERIC_KERNEL,HEAD_DIM,HEAD_DIM; gpu/flash-attn cuda:0 ok; gpu/flashinfer cuda:0 ok; "
                     "host/flash-attn - NOT_ASKED; host/flashinfer - NOT_ASKED");
    cr_assert_not_null(
        strstr(attn_decision_get_info(decision)->text,
               "gpu/flash-attn on cuda:0, kernels mock_128; passed over (strict): slow/flash-attn "
               "on cuda:0: GENERIC_KERNEL: the generic kernel mock_128 would serve all of a batch"));
    attn_decision_destroy(decision);
    cr_assert_eq(world_said(&world, "2 select: "), 0, "%s", world.log);
    world_close(&world);
    check("slow", "ATTN_STRICT=2", SMALL, NULL, "slow/flash-attn");
    check("unsaid", "ATTN_STRICT=2", SMALL, NULL, "unsaid/flash-attn");
    check("slow", "ATTN_STRICT=1", MEDIUM, NULL, "slow/flash-attn");
    /* It includes 1: a worse class or a later item may serve by optimised kernels, but as a fallback. */
    check("host slow", "ATTN_STRICT=2", MEDIUM, NULL, NULL);
    check("host slow", "ATTN_STRICT=2", MEDIUM, "slow,host", NULL);
}

/* What a selection with the option says of a problem that only a generic kernel serves. */
static void check_refused(const char *variables, uint32_t strict)
{
    struct world world;
    world_open(&world, "slow", variables);
    struct attn_problem one;
    cr_assert_eq(attn_problem_parse(MEDIUM, &one, NULL), ATTN_OK);
    struct attn_select_options options;
    ATTN_INIT(&options);
    options.strict = strict;
    struct attn_decision *decision;
    cr_assert_eq(attn_select(world.context, &one, 1, &options, &decision, &world.err), ATTN_E_NO_BACKEND);
    cr_assert_eq(world.err.reason, ATTN_REASON_GENERIC_KERNEL, "%s", world.err.message);
    cr_assert_str_eq(world.err.field, "head_dim");
    cr_assert_str_eq(
        world.err.message,
        "'auto' (automatic): no backend serves, closest is slow/flash-attn on cuda:0: GENERIC_KERNEL: "
        "the generic kernel mock_128 would serve all of a batch: mock_fast does not take head_dim=128 "
        "(wanted: "
        "up to 64); use values that the optimised kernel takes, or allow generic kernels with "
        "ATTN_STRICT=1");
    const struct attn_candidate *slow = world_candidate(decision, "slow/flash-attn", "cuda:0");
    cr_assert_str_eq(slow->reasons[0].got, "128");
    cr_assert_str_eq(slow->reasons[0].wanted, "up to 64");
    cr_assert_eq(slow->reasons[1].code, ATTN_REASON_HEAD_DIM);
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(generic, strict_2_refuses_what_only_generic_kernels_serve)
{
    check_refused("ATTN_STRICT=2", 0);
    check_refused("ATTN_STRICT=2", 1);
    check_refused("ATTN_STRICT=1", 2);
    check_refused(NULL, 2);
    struct world world;
    world_open(&world, "slow", NULL);
    struct attn_problem problem;
    cr_assert_eq(attn_problem_parse(SMALL, &problem, NULL), ATTN_OK);
    struct attn_select_options options;
    ATTN_INIT(&options);
    options.strict = 3;
    struct attn_decision *decision;
    cr_assert_eq(attn_select(world.context, &problem, 1, &options, &decision, &world.err), ATTN_E_INVALID);
    cr_assert_str_eq(world.err.field, "strict");
    world_close(&world);
}

Test(generic, the_closest_is_who_would_serve_by_one)
{
    struct world world;
    world_open(&world, "gpub slow", "ATTN_STRICT=2");
    struct attn_decision *decision;
    cr_assert_eq(world_select(&world, MEDIUM, "gpub,slow", NULL, &decision), ATTN_E_NO_BACKEND);
    cr_assert_not_null(strstr(world.err.message, "closest is slow/flash-attn on cuda:0: GENERIC_KERNEL"),
                       "%s", world.err.message);
    attn_decision_destroy(decision);
    /* One that also refuses another problem has that as its reason. */
    struct attn_problem problems[2];
    cr_assert_eq(attn_problem_parse(MEDIUM, &problems[0], NULL), ATTN_OK);
    cr_assert_eq(attn_problem_parse("heads=8 head_dim=512 q=bf16", &problems[1], NULL), ATTN_OK);
    cr_assert_eq(attn_select(world.context, problems, 2, NULL, &decision, &world.err), ATTN_E_NO_BACKEND);
    cr_assert_eq(world.err.reason, ATTN_REASON_HEAD_DIM, "%s", world.err.message);
    cr_assert_null(strstr(world_list(decision), "GENERIC_KERNEL"));
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(generic, who_stands_behind_the_winner_is_not_passed_over)
{
    struct world world;
    world_open(&world, "gpu slow", "ATTN_STRICT=2");
    struct attn_problem problem;
    cr_assert_eq(attn_problem_parse(MEDIUM, &problem, NULL), ATTN_OK);
    struct attn_select_options options;
    ATTN_INIT(&options);
    options.backend = "gpu,slow";
    options.ask_all = 1;
    struct attn_decision *decision;
    cr_assert_eq(attn_select(world.context, &problem, 1, &options, &decision, &world.err), ATTN_OK);
    cr_assert_not_null(strstr(world_list(decision), "slow/flash-attn cuda:0 GENERIC_KERNEL"));
    cr_assert_null(strstr(attn_decision_get_info(decision)->text, "passed over"));
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(generic, a_reason_in_words_alone_is_passed_on)
{
    struct world world;
    world_open(&world, "slow", NULL);
    attn_decision_destroy(expect(&world, SMALL " sinks=1", NULL, "slow/flash-attn"));
    cr_assert_eq(world_said(&world, "an optimised one: mock_fast does not serve: it has no sinks\n"), 1, "%s",
                 world.log);
    world_close(&world);
}
