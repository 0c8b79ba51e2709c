/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The log sink. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/env.h"
#include "malformed.h"

static struct attn__env env;
static struct attn__log logger;
static char last[2048];
static unsigned lines;

static void listen(void *user, uint32_t level, const char *subsystem, const char *text)
{
    cr_assert_eq(user, &lines);
    lines++;
    snprintf(last, sizeof last, "%u %s %s", level, subsystem, text);
}

/* A log with ATTN_LOG=levels; with a callback if `given`. */
static void start(const char *levels, const char *file, attn_log_fn fn, uint32_t given)
{
    char level_text[256], file_text[4096];
    struct attn_context_options options;
    snprintf(level_text, sizeof level_text, "ATTN_LOG=%s", levels);
    snprintf(file_text, sizeof file_text, "ATTN_LOG_FILE=%s", file);
    char *environment[] = {level_text, file_text, NULL};
    ATTN_INIT(&options);
    options.log = fn;
    options.log_user = &lines;
    options.given = given;
    cr_assert_eq(attn__env_init_from(&env, NULL, environment, false, NULL), ATTN_OK);
    cr_assert_eq(attn__log_init(&logger, &options, &env, NULL), ATTN_OK);
}

static void stop(void)
{
    attn__log_finish(&logger);
    attn__env_finish(&env);
}

Test(log, levels_by_subsystem)
{
    start("info,debug:loader,error:select,warn:loader", "", listen, 0);
    cr_assert(attn__log_wants(&logger, ATTN_LOG_INFO, "path"));
    cr_assert_not(attn__log_wants(&logger, ATTN_LOG_DISPATCH, "path"));
    cr_assert(attn__log_wants(&logger, ATTN_LOG_ERROR, "select"));
    cr_assert_not(attn__log_wants(&logger, ATTN_LOG_WARN, "select"));
    cr_assert_not(attn__log_wants(&logger, ATTN_LOG_INFO, "loader"), "the last word holds");
    cr_assert_not(attn__log_wants(&logger, 0, "path"));
    cr_assert_not(attn__log_wants(&logger, ATTN_LOG_TRACE, "path"));
    stop();
}

Test(log, trace_is_the_last_level)
{
    start("trace:call", "", listen, 0);
    cr_assert(attn__log_wants(&logger, ATTN_LOG_TRACE, "call"));
    cr_assert_not(attn__log_wants(&logger, ATTN_LOG_TRACE + 1, "call"));
    cr_assert_not(attn__log_wants(&logger, ATTN_LOG_INFO, "loader"));
    stop();
    start("trace", "", listen, 0);
    cr_assert(attn__log_wants(&logger, ATTN_LOG_DEBUG, "loader"));
    stop();
}

Test(log, warn_is_the_default)
{
    start("", "", listen, 0);
    cr_assert(attn__log_wants(&logger, ATTN_LOG_WARN, "x"));
    cr_assert_not(attn__log_wants(&logger, ATTN_LOG_INFO, "x"));
    stop();
}

Test(log, the_callback_gets_level_subsystem_and_clean_text)
{
    start("debug", "", listen, 0);
    attn__log_line(&logger, ATTN_LOG_INFO, "loader", "a\nb\033[31m %d \x7f \xc3\xa9", 7);
    cr_assert_str_eq(last, "3 loader a\\nb\\x1b[31m 7 \\x7f \xc3\xa9");
    stop();
}

Test(log, a_null_callback_is_silence)
{
    start("debug", "", NULL, ATTN_GIVEN_LOG);
    cr_assert_not(attn__log_wants(&logger, ATTN_LOG_ERROR, "loader"));
    attn__log_line(&logger, ATTN_LOG_ERROR, "loader", "nobody hears this");
    stop();
}

Test(log, once_means_once_per_text)
{
    start("debug", "", listen, 0);
    for (int i = 0; i < 100; i++)
        for (int j = 0; j < 3; j++)
            attn__log_once(&logger, ATTN_LOG_WARN, "env", "text %d", i);
    cr_assert_eq(lines, 100);
    attn__log_once(&logger, ATTN_LOG_WARN, "path", "text 1");
    cr_assert_eq(lines, 101);
    stop();
}

static size_t read_all(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    cr_assert_not_null(file, "%s", path);
    size_t n = fread(text, 1, size - 1, file);
    text[n] = '\0';
    fclose(file);
    return n;
}

/* The lines without their times, which are of now and have milliseconds. */
static const char *untimed(const char *text)
{
    static char kept[4096];
    size_t used = 0;
    for (const char *line = text; *line != '\0';) {
        struct tm when = {.tm_isdst = -1};
        const char *rest = strptime(line, "%Y-%m-%dT%H:%M:%S", &when);
        cr_assert(rest != NULL && rest[0] == '.' && strspn(rest + 1, "0123456789") == 3 && rest[4] == ' ',
                  "%s", line);
        cr_assert_leq(llabs((long long)(time(NULL) - mktime(&when))), 60, "%s", line);
        const size_t length = strcspn(rest + 5, "\n") + 1;
        used += (size_t)snprintf(kept + used, sizeof kept - used, "%.*s", (int)length, rest + 5);
        line = rest + 5 + length;
    }
    return kept;
}

Test(log, a_line_that_is_too_long_loses_its_end_and_keeps_its_line_end)
{
    static char text[3000], line[4096];
    char path[] = "/tmp/attn-log-XXXXXX";
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    memset(text, 'x', sizeof text - 1);
    start("warn", path, NULL, 0);
    attn__log_line(&logger, ATTN_LOG_WARN, "a-subsystem", "%s", text);
    stop();
    const size_t length = read_all(path, line, sizeof line);
    const char *first = strstr(line, ": x");
    cr_assert(first != NULL && strspn(first + 2, "x") > 1190, "%s", line);
    cr_assert(line[length - 1] == '\n' && strchr(line, '\n') == line + length - 1, "one whole line");
    unlink(path);
}

Test(log, dates_are_those_of_the_calendar)
{
    char text[32], wanted[32];
    /* Every day of 200 years, at times that differ. */
    for (int64_t day = 0; day < 73050; day++) {
        const time_t seconds = (time_t)(day * 86400 + day * 7919 % 86400);
        struct tm parts;
        gmtime_r(&seconds, &parts);
        strftime(wanted, sizeof wanted, "%Y-%m-%dT%H:%M:%S.042", &parts);
        attn__time_format(seconds, 42999999, text, sizeof text);
        cr_assert_str_eq(text, wanted);
    }
}

Test(log, follows_the_time_zone)
{
    struct malformed malformed;
    char text[4096];
    setenv("TZ", "ABC-13:45", 1);
    tzset();
    malformed_create(&malformed);
    start("warn", malformed_path(&malformed, "log"), NULL, 0);
    attn__log_line(&logger, ATTN_LOG_WARN, "loader", "first");
    stop();
    read_all(malformed_path(&malformed, "log"), text, sizeof text);
    cr_assert_str_eq(untimed(text), "libattn warn     loader: first\n");
    malformed_remove(&malformed);
}

Test(log, goes_to_a_file_with_the_process_id)
{
    struct malformed malformed;
    char text[4096], name[64];
    malformed_create(&malformed);
    start("warn", malformed_path(&malformed, "log-%p-%p.txt"), NULL, 0);
    cr_assert(logger.own_fd);
    cr_assert(fcntl(logger.fd, F_GETFD) & FD_CLOEXEC);
    cr_assert(fcntl(logger.fd, F_GETFL) & O_APPEND);
    attn__log_line(&logger, ATTN_LOG_WARN, "loader", "first");
    attn__log_line(&logger, ATTN_LOG_INFO, "loader", "not wanted");
    attn__log_line(&logger, ATTN_LOG_ERROR, "path", "second");
    stop();
    snprintf(name, sizeof name, "log-%ld-%ld.txt", (long)getpid(), (long)getpid());
    read_all(malformed_path(&malformed, name), text, sizeof text);
    cr_assert_str_eq(untimed(text), "libattn warn     loader: first\nlibattn error    path: second\n");
    malformed_remove(&malformed);
}

Test(log, long_lines_are_cut_and_end)
{
    struct malformed malformed;
    char text[8192], word[4000];
    malformed_create(&malformed);
    memset(word, 'w', sizeof word);
    word[sizeof word - 1] = '\0';
    start("warn", malformed_path(&malformed, "log"), NULL, 0);
    attn__log_line(&logger, ATTN_LOG_WARN, "loader", "%s", word);
    stop();
    size_t n = read_all(malformed_path(&malformed, "log"), text, sizeof text);
    cr_assert(n > 1000 && n < 1300, "%zu", n);
    cr_assert_eq(text[n - 1], '\n');
    cr_assert_eq(strchr(text, '\n'), text + n - 1);
    malformed_remove(&malformed);
}

Test(log, a_file_that_cannot_be_opened_is_a_problem_of_the_variable)
{
    start("warn", "/does/not/exist/log", NULL, 0);
    cr_assert_eq(logger.fd, STDERR_FILENO);
    cr_assert_not(logger.own_fd);
    const char *problem = env.records[ATTN__VAR_ATTN_LOG_FILE].problem;
    cr_assert(problem != NULL && strstr(problem, "/does/not/exist/log") != NULL &&
              strstr(problem, "No such file") != NULL);
    stop();
}

/* Other code takes the lowest descriptors for the standard streams, or makes them that. */
Test(log, a_file_is_no_standard_stream)
{
    struct malformed malformed;
    struct rlimit limit;
    malformed_create(&malformed);
    const char *path = malformed_path(&malformed, "log");
    const int saved[] = {dup(0), dup(1)};
    close(0);
    close(1);
    start("warn", path, NULL, 0);
    const int fd = logger.fd;
    stop();
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit three = {STDERR_FILENO + 1, limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &three);
    start("warn", path, NULL, 0);
    setrlimit(RLIMIT_NOFILE, &limit);
    dup2(saved[0], 0);
    dup2(saved[1], 1);
    cr_expect_gt(fd, STDERR_FILENO, "the log is descriptor %d", fd);
    const char *problem = env.records[ATTN__VAR_ATTN_LOG_FILE].problem;
    cr_expect(problem != NULL && strstr(problem, "Too many open files") != NULL, "%s",
              problem != NULL ? problem : "no problem");
    stop();
    malformed_remove(&malformed);
}

Test(log, by_default_lines_go_to_stderr)
{
    struct malformed malformed;
    char text[512];
    malformed_create(&malformed);
    int saved = dup(STDERR_FILENO);
    int fd = open(malformed_path(&malformed, "err"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    dup2(fd, STDERR_FILENO);
    start("", "", NULL, 0);
    attn__log_line(&logger, ATTN_LOG_WARN, "loader", "heard");
    attn__log_line(&logger, ATTN_LOG_INFO, "loader", "not heard");
    stop();
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(fd);
    read_all(malformed_path(&malformed, "err"), text, sizeof text);
    cr_assert_str_eq(untimed(text), "libattn warn     loader: heard\n");
    malformed_remove(&malformed);
}

Test(log, a_name_that_grows_too_long_is_a_problem_of_the_variable)
{
    char name[4000] = "/tmp/";
    for (size_t at = 5; at + 3 < sizeof name; at += 2)
        memcpy(name + at, "%p", 3); /* each becomes the process id, of three digits and more */
    cr_assert_gt(getpid(), 99);
    start("warn", name, NULL, 0);
    const char *problem = env.records[ATTN__VAR_ATTN_LOG_FILE].problem;
    cr_assert_not(logger.own_fd);
    cr_assert(problem != NULL && strstr(problem, "File name too long") != NULL, "%s",
              problem != NULL ? problem : "no problem");
    stop();
}
