/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Fuzz target for the environment: every line of the input is a variable, of the call if it begins with '>',
 * else of the process. Read, judged against the notes of two plugins, turned into a search path and applied
 * to the names of backends, as a context does. A first byte '!' makes the process an elevated one.
 */
#define _GNU_SOURCE
#include "base/env.h"
#include "fuzz.h"
#include "plugin/loader.h"
#include "show.h"

enum { VARIABLES_MOST = 64 };

static const struct attn_note notes[] = {
    {.note_version = ATTN_NOTE_VERSION,
     .name = "cpu",
     .backends = "cpu/flash-attn,cpu/flashinfer,cpu/rocm-flash"},
    {.note_version = ATTN_NOTE_VERSION, .name = "a-b", .backends = "a-b/rocm-flash"},
};

struct lines {
    char *environment[VARIABLES_MOST + 1];
    const char *call[VARIABLES_MOST];
    size_t environment_count;
    uint32_t call_count;
};

static void cut(char *text, struct lines *out)
{
    memset(out, 0, sizeof *out);
    for (char *line; (line = strsep(&text, "\n")) != NULL;) {
        for (char *p = line; *p != '\0'; p++)
            *p = *p == '\1' ? '\n' : *p; /* lines inside of values */
        if (line[0] == '>' && out->call_count < VARIABLES_MOST)
            out->call[out->call_count++] = line + 1;
        else if (line[0] != '>' && out->environment_count < VARIABLES_MOST)
            out->environment[out->environment_count++] = line;
    }
}

/* A line of the log is one line, and none is empty. */
static void listen(void *user, uint32_t level, const char *subsystem, const char *text)
{
    FUZZ_CHECK(user != NULL && level >= ATTN_LOG_ERROR && level <= ATTN_LOG_DEBUG);
    FUZZ_CHECK(subsystem[0] != '\0' && text[0] != '\0');
    FUZZ_CHECK(attn__is_printable(text));
}

static void check_records(const struct attn__env *env)
{
    FUZZ_CHECK(env->count >= ATTN__VARIABLES);
    for (uint32_t i = 0; i < env->count; i++) {
        const struct attn_variable_record *record = &env->records[i];
        char problem[600];
        FUZZ_CHECK(record->name && record->value && record->origin && record->type && record->fallback);
        FUZZ_CHECK(record->help != NULL && record->help[0] != '\0');
        FUZZ_CHECK(record->problem == NULL || attn__is_printable(record->problem));
        /* Names of backends are kept whatever is wrong with them, and that is told. */
        bool names = strcmp(record->type, "list") == 0 || strcmp(record->type, "globs") == 0;
        if (i < ATTN__VARIABLES && attn__env_is_given(env, (enum attn__variable)i))
            FUZZ_CHECK(attn__env_check(record->name, record->type, record->value, problem, sizeof problem) ||
                       (names && record->problem != NULL));
        const char *option = attn__env_option(env, record->name);
        FUZZ_CHECK(option == NULL ? i >= ATTN__VARIABLES : strcmp(option, record->value) == 0);
    }
    FUZZ_CHECK(attn__env_option(env, "PATH") == NULL);
}

static void use(const struct attn__env *env)
{
    struct attn__scan scan;
    uint32_t reason;
    struct attn_context context = {.env = *env};
    attn__scan_path(&scan, env, NULL);
    FUZZ_CHECK(!scan.failed && (!env->elevated || scan.directory_count <= 1));
    for (uint32_t i = 0; i < scan.directory_count; i++)
        FUZZ_CHECK(scan.directories[i].path != NULL && scan.directories[i].origin != NULL);
    attn__scan_finish(&scan);
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        struct attn__plugin plugin = {.note = notes[i]};
        const char *wanted = attn__env_get(env, ATTN__VAR_ATTN_BACKEND);
        bool admitted = attn__wanted_plugin(&context, wanted, &plugin, &reason);
        FUZZ_CHECK(admitted == (reason == 0));
        FUZZ_CHECK(admitted || reason == ATTN_REASON_NOT_REQUESTED || reason == ATTN_REASON_DISABLED_BY_USER);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct attn_note *seen[] = {&notes[0], &notes[1]};
    struct attn_context_options options;
    struct attn_error err;
    struct attn__env env;
    struct attn__log log;
    struct lines lines;
    bool elevated = size > 0 && data[0] == '!';
    char *text = fuzz_text(data + elevated, size - elevated);
    ATTN_INIT(&options);
    ATTN_INIT(&err);
    cut(text, &lines);
    options.variables = lines.call;
    options.variable_count = lines.call_count;
    options.log = listen;
    options.log_user = &lines;
    if (attn__env_init_from(&env, &options, lines.environment, elevated, &err) == ATTN_OK) {
        FUZZ_CHECK(attn__log_init(&log, &options, &env, &err) == ATTN_OK);
        FUZZ_CHECK(attn__env_resolve(&env, &log, seen, 2, &err) == ATTN_OK);
        check_records(&env);
        use(&env);
        attn__log_finish(&log);
        attn__env_finish(&env);
    } else {
        FUZZ_CHECK(lines.call_count > 0 && fuzz_ends(err.message, sizeof err.message) &&
                   err.message[0] != '\0');
    }
    free(text);
    return 0;
}

#ifdef ATTN_FUZZ_REPLAY
#include "replay.h"
#endif
