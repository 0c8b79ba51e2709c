/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The snapshot of the environment. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/env.h"

static struct attn__env read_env(char *const *environment, const char *const *call, bool elevated)
{
    struct attn__env env;
    struct attn_context_options options;
    struct attn_error err;
    ATTN_INIT(&options);
    ATTN_INIT(&err);
    options.variables = call;
    while (call != NULL && call[options.variable_count] != NULL)
        options.variable_count++;
    int32_t status = attn__env_init_from(&env, &options, environment, elevated, &err);
    cr_assert_eq(status, ATTN_OK, "%s", err.message);
    return env;
}

static const struct attn_variable_record *row(const struct attn__env *env, const char *name)
{
    for (uint32_t i = 0; i < env->count; i++)
        if (strcmp(env->records[i].name, name) == 0)
            return &env->records[i];
    return NULL;
}

Test(env, defaults_hold_in_an_empty_environment)
{
    char *none[] = {NULL};
    struct attn__env env = read_env(none, NULL, false);
    cr_assert_eq(env.count, ATTN__VARIABLES);
    cr_assert_str_eq(attn__env_get(&env, ATTN__VAR_ATTN_BACKEND), "auto");
    cr_assert_str_eq(row(&env, "ATTN_LOG")->value, "warn");
    for (uint32_t i = 0; i < env.count; i++) {
        cr_assert_str_eq(env.records[i].origin, "default");
        cr_assert_str_eq(env.records[i].value, env.records[i].fallback);
        cr_assert_null(env.records[i].problem);
        cr_assert_not(attn__env_is_given(&env, (enum attn__variable)i));
    }
    attn__env_finish(&env);
}

Test(env, the_call_stands_before_the_environment)
{
    char *environment[] = {"PATH=/bin", "ATTN_BACKEND=cuda", "ATTN_STRICT=1", "ATTN_BACKEND=late", NULL};
    const char *call[] = {"ATTN_BACKEND=cpu", "ATTN_STRICT=", NULL};
    struct attn__env env = read_env(environment, call, false);
    cr_assert_str_eq(row(&env, "ATTN_BACKEND")->value, "cpu");
    cr_assert_str_eq(row(&env, "ATTN_BACKEND")->origin, "call");
    cr_assert(attn__env_is_given(&env, ATTN__VAR_ATTN_BACKEND));
    /* An empty value of the call hides the environment. */
    cr_assert_str_eq(row(&env, "ATTN_STRICT")->value, "0");
    cr_assert_not(attn__env_is_given(&env, ATTN__VAR_ATTN_STRICT));
    attn__env_finish(&env);

    env = read_env(environment, NULL, false);
    cr_assert_str_eq(row(&env, "ATTN_BACKEND")->value, "cuda");
    cr_assert_str_eq(row(&env, "ATTN_BACKEND")->origin, "environment");
    attn__env_finish(&env);
}

Test(env, is_a_snapshot)
{
    char value[] = "ATTN_BACKEND=cuda";
    char *environment[] = {value, NULL};
    struct attn__env env = read_env(environment, NULL, false);
    memset(value + 13, 'x', 4);
    cr_assert_str_eq(attn__env_get(&env, ATTN__VAR_ATTN_BACKEND), "cuda");
    attn__env_finish(&env);
}

Test(env, bad_values_are_named_and_the_default_holds)
{
    static const struct {
        char *text;
        const char *name, *says;
    } bad[] = {
        {"ATTN_STRICT=yes", "ATTN_STRICT", "0, 1 or 2"},
        {"ATTN_STRICT=3", "ATTN_STRICT", "0, 1 or 2"},
        {"ATTN_STRICT=21", "ATTN_STRICT", "0, 1 or 2"},
        {"ATTN_DETERMINISTIC=2", "ATTN_DETERMINISTIC", "0 or 1"},
        {"ATTN_THREADS=-1", "ATTN_THREADS", "0 to 65535"},
        {"ATTN_THREADS=65536", "ATTN_THREADS", "0 to 65535"},
        {"ATTN_THREADS=99999999999999999999", "ATTN_THREADS", "0 to 65535"},
        {"ATTN_THREADS=4x", "ATTN_THREADS", "0 to 65535"},
        {"ATTN_LOG=loud", "ATTN_LOG", "\"loud\" is no log level"},
        {"ATTN_LOG=warn,debug:", "ATTN_LOG", "\"debug:\" has 0 letters; 1 to 15 are accepted"},
        {"ATTN_LOG=warn,", "ATTN_LOG", "is no log level"},
        {"ATTN_CPU_FLAGS=avx2,,fma", "ATTN_CPU_FLAGS", "comma-separated"},
        {"ATTN_LOG_FILE=a\nb", "ATTN_LOG_FILE", "control characters"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *environment[] = {bad[i].text, NULL};
        struct attn__env env = read_env(environment, NULL, false);
        const struct attn_variable_record *record = row(&env, bad[i].name);
        cr_assert_not_null(record->problem, "%s", bad[i].text);
        cr_assert(strstr(record->problem, bad[i].says) != NULL, "%s: %s", bad[i].text, record->problem);
        cr_assert(strstr(record->problem, bad[i].name) != NULL, "%s", record->problem);
        cr_assert_str_eq(record->value, record->fallback);
        attn__env_finish(&env);
    }
}

Test(env, good_values_are_taken)
{
    char *environment[] = {"ATTN_THREADS=65535",
                           "ATTN_STRICT=1",
                           "ATTN_LOG=info,debug:loader,error:select",
                           "ATTN_CPU_FLAGS=-avx512f, avx2",
                           "ATTN_BACKEND=cuda,,Cpu/FLASH_ATTN",
                           NULL};
    struct attn__env env = read_env(environment, NULL, false);
    for (char **p = environment; *p != NULL; p++) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*p, "="), *p);
        cr_assert_null(row(&env, name)->problem, "%s", *p);
        cr_assert_str_eq(row(&env, name)->value, strchr(*p, '=') + 1);
    }
    attn__env_finish(&env);
}

Test(env, elevated_processes_ignore_paths_and_unknown_names)
{
    char *environment[] = {
        "ATTN_BACKEND=cpu",          "ATTN_PLUGIN_PATH=/tmp",   "ATTN_PLUGIN_PATH_ADD=/tmp",
        "ATTN_LOG_FILE=/etc/passwd", "ATTN_LOG=debug",          "ATTN_THREADS=2",
        "ATTN_CPU_FLAGS=none",       "ATTN_HIP_LIBRARY=/tmp/x", NULL};
    const char *call[] = {"ATTN_PLUGIN_PATH=/opt", NULL};
    static const char *const refused[] = {"ATTN_PLUGIN_PATH", "ATTN_PLUGIN_PATH_ADD", "ATTN_LOG_FILE",
                                          "ATTN_CPU_FLAGS", "ATTN_HIP_LIBRARY"};
    struct attn__env env = read_env(environment, call, true);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        cr_assert_str_eq(row(&env, refused[i])->origin, "ignored: elevated process", "%s", refused[i]);
        cr_assert_str_eq(row(&env, refused[i])->value, "");
    }
    cr_assert_str_eq(row(&env, "ATTN_BACKEND")->value, "cpu");
    cr_assert_str_eq(row(&env, "ATTN_LOG")->value, "debug");
    cr_assert_str_eq(row(&env, "ATTN_THREADS")->value, "2");
    cr_assert_null(attn__env_option(&env, "ATTN_HIP_LIBRARY"));
    attn__env_finish(&env);
}

Test(env, the_call_is_checked)
{
    const char *const bad[] = {"ATTN_STRICT", "PATH=/bin", "=x"};
    char *none[] = {NULL};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct attn__env env;
        struct attn_context_options options;
        struct attn_error err;
        const char *variables[] = {"ATTN_STRICT=1", bad[i]};
        ATTN_INIT(&options);
        ATTN_INIT(&err);
        options.variables = variables;
        options.variable_count = 2;
        cr_assert_eq(attn__env_init_from(&env, &options, none, false, &err), ATTN_E_INVALID);
        cr_assert(strstr(err.message, "variables[1]") != NULL && strstr(err.message, bad[i]) != NULL, "%s",
                  err.message);
    }
}

/* ---------------------------------------------------------------- what only the notes can tell */

static char said[16][512];
static uint32_t levels[16];
static unsigned lines;

static void listen(void *user, uint32_t level, const char *subsystem, const char *text)
{
    (void)user;
    cr_assert_str_eq(subsystem, "env");
    levels[lines] = level;
    snprintf(said[lines++], sizeof said[0], "%s", text);
}

static struct attn__env settle(char *const *environment, const struct attn_note *const *notes, uint32_t count)
{
    struct attn__env env = read_env(environment, NULL, false);
    struct attn__log log;
    struct attn_context_options options;
    ATTN_INIT(&options);
    options.log = listen;
    lines = 0;
    cr_assert_eq(attn__log_init(&log, &options, &env, NULL), ATTN_OK);
    cr_assert_eq(attn__env_resolve(&env, &log, notes, count, NULL), ATTN_OK);
    attn__log_finish(&log);
    return env;
}

static const struct attn_note cpu_note = {.name = "cpu",
                                          .backends = "cpu/flash-attn,cpu/flashinfer,cpu/rocm-flash"};
static const struct attn_note my_note = {.name = "my-npu", .backends = "my-npu/flash-attn"};
static const struct attn_note *const notes[] = {&cpu_note, &my_note};

Test(env, unknown_names_are_said_once_with_the_nearest)
{
    char *environment[] = {"ATTN_BACKENDS=cpu",    "ATTN_WEATHER=fine",   "ATTN_CPU_HUGE=1",
                           "ATTN_MY_NPU_QUEUES=4", "ATTN_CPUX=1",         "ATTNX=1",
                           "ATTN_BACKENDS=hidden", "ATTN_FLASHINFER_X=1", NULL};
    struct attn__env env = settle(environment, notes, 2);
    cr_assert_eq(env.count, ATTN__VARIABLES + 6U);
    cr_assert_str_eq(row(&env, "ATTN_FLASHINFER_X")->help, "belongs to the flavour flashinfer");
    cr_assert(strstr(row(&env, "ATTN_BACKENDS")->help, "did you mean ATTN_BACKEND?") != NULL);
    cr_assert_null(strstr(row(&env, "ATTN_WEATHER")->help, "near"));
    cr_assert_str_eq(row(&env, "ATTN_CPU_HUGE")->help, "belongs to the plugin cpu");
    cr_assert_str_eq(row(&env, "ATTN_MY_NPU_QUEUES")->help, "belongs to the plugin my-npu");
    cr_assert_str_eq(attn__env_option(&env, "ATTN_MY_NPU_QUEUES"), "4");
    cr_assert_str_eq(attn__env_option(&env, "ATTN_THREADS"), "0");
    cr_assert_null(attn__env_option(&env, "ATTN_NOBODY"));
    cr_assert_eq(lines, 3);
    cr_assert(strncmp(said[0], "ATTN_BACKENDS: ", 15) == 0, "%s", said[0]);
    cr_assert(strncmp(said[1], "ATTN_WEATHER: ", 14) == 0, "%s", said[1]);
    cr_assert(strncmp(said[2], "ATTN_CPUX: ", 11) == 0, "%s", said[2]);
    attn__env_finish(&env);
}

Test(env, a_backend_of_other_software_is_explained)
{
    char *environment[] = {"ATTN_BACKEND=xformers", NULL};
    struct attn__env env = settle(environment, notes, 2);
    const struct attn_variable_record *record = row(&env, "ATTN_BACKEND");
    cr_assert_str_eq(record->value, "xformers"); /* a promise: selection fails rather than choose another */
    cr_assert(strstr(record->problem, "no backend 'xformers'") != NULL &&
              strstr(record->problem, "TRELLIS") != NULL);
    cr_assert(strstr(record->problem, "; accepted are vendor/flavour, vendor, flavour, auto and none ") !=
                  NULL &&
              strstr(record->problem, "; installed: ") != NULL);
    cr_assert_eq(lines, 1);
    cr_assert_eq(levels[0], ATTN_LOG_WARN);
    attn__env_finish(&env);
}

Test(env, known_backends_are_no_problem)
{
    char *good[] = {"ATTN_BACKEND=CPU, flashinfer,cpu/Flash_Attn,my_npu,auto", NULL};
    struct attn__env env = settle(good, notes, 2);
    cr_assert_null(row(&env, "ATTN_BACKEND")->problem);
    cr_assert_eq(lines, 0);
    attn__env_finish(&env);

    /* An absent one in front of one that is there is told, but is no warning. */
    char *mixed[] = {"ATTN_BACKEND=cuda,auto", NULL};
    env = settle(mixed, notes, 2);
    cr_assert(strstr(row(&env, "ATTN_BACKEND")->problem, "no backend 'cuda'") != NULL);
    cr_assert_eq(lines, 0);
    attn__env_finish(&env);
}

Test(env, bad_values_are_said_with_what_holds)
{
    char *environment[] = {"ATTN_THREADS=many", NULL};
    struct attn__env env = settle(environment, notes, 2);
    cr_assert_eq(lines, 1);
    cr_assert(strstr(said[0], "many") != NULL && strstr(said[0], "\"0\" is used instead") != NULL, "%s",
              said[0]);
    attn__env_finish(&env);
}
