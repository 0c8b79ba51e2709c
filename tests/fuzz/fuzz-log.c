/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzz target for the log: the first line of the input is ATTN_LOG, the rest a name of a file and a text. */
#define _GNU_SOURCE
#include "base/env.h"
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

static void check_spec(const char *spec)
{
    struct attn__log log, twice;
    char problem[256] = "", other[256] = "";
    memset(&log, 0, sizeof log);
    memset(&twice, 0, sizeof twice);
    bool good = attn__log_parse(spec, &log, problem, sizeof problem);
    FUZZ_CHECK(good == attn__log_parse(spec, NULL, other, sizeof other) && strcmp(problem, other) == 0);
    FUZZ_CHECK(fuzz_ends(problem, sizeof problem) && good == (problem[0] == '\0'));
    FUZZ_CHECK(log.subsystems <= sizeof log.subsystem / sizeof log.subsystem[0]);
    for (uint32_t i = 0; i < log.subsystems; i++) {
        FUZZ_CHECK(fuzz_ends(log.subsystem[i].name, sizeof log.subsystem[i].name));
        FUZZ_CHECK(log.subsystem[i].level >= ATTN_LOG_ERROR && log.subsystem[i].level <= ATTN_LOG_DEBUG);
    }
    if (!good)
        return;
    /* The last word about a subsystem holds, and every level below it. */
    for (uint32_t i = log.subsystems; i-- > 0;) {
        const char *name = log.subsystem[i].name;
        bool later = false;
        for (uint32_t j = i + 1; j < log.subsystems; j++)
            later = later || strcmp(log.subsystem[j].name, name) == 0;
        for (uint32_t level = 0; level <= ATTN_LOG_DEBUG + 1 && !later; level++)
            FUZZ_CHECK(attn__log_wants(&log, level, name) ==
                       (level >= ATTN_LOG_ERROR && level <= log.subsystem[i].level));
    }
}

/* A whole log whose file cannot be opened whatever the text is; it says so and writes to a pipe instead. */
static void check_lines(const char *spec, const char *text)
{
    char *level = NULL, *file = NULL;
    struct attn__env env;
    struct attn__log log;
    int ends[2];
    char seen[4096];
    FUZZ_CHECK(asprintf(&level, "ATTN_LOG=%s", spec) > 0);
    FUZZ_CHECK(asprintf(&file, "ATTN_LOG_FILE=/dev/null/%s", text) > 0);
    char *environment[] = {level, file, NULL};
    FUZZ_CHECK(attn__env_init_from(&env, NULL, environment, false, NULL) == ATTN_OK);
    FUZZ_CHECK(attn__log_init(&log, NULL, &env, NULL) == ATTN_OK);
    FUZZ_CHECK(!log.own_fd && env.records[ATTN__VAR_ATTN_LOG_FILE].problem != NULL);
    FUZZ_CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    log.fd = ends[1];
    attn__log_line(&log, ATTN_LOG_ERROR, "fuzz", "%s", text);
    attn__log_once(&log, ATTN_LOG_ERROR, "fuzz", "%s", text);
    attn__log_once(&log, ATTN_LOG_ERROR, "fuzz", "%s", text);
    close(ends[1]);
    ssize_t size = read(ends[0], seen, sizeof seen);
    close(ends[0]);
    /* Two lines, whatever the text holds. */
    unsigned lines = 0;
    for (ssize_t i = 0; i < size; i++)
        lines += seen[i] == '\n';
    FUZZ_CHECK(size > 0 && lines == 2 && seen[size - 1] == '\n');
    attn__log_finish(&log);
    attn__env_finish(&env);
    free(level);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *rest = text;
    const char *spec = strsep(&rest, "\n");
    check_spec(spec);
    check_lines(spec, rest != NULL ? rest : "");
    free(text);
    return 0;
}

#ifdef ATTN_FUZZ_REPLAY
#include "replay.h"
#endif
