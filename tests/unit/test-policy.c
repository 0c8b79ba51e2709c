/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The policy where no child can be started, and where results are kept. Probes themselves: tests/probe. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/hash.h"
#include "plugin/probe/probe.h"
#include "world.h"

/* This program has the library inside and no attn-probe beside it. */
static struct attn__plugin *open_world(struct world *world)
{
    world_open(world, "good", "ATTN_PROBE=auto");
    cr_assert_eq(world->context->plugin_count, 1);
    return world->context->plugins[0];
}

Test(policy, without_a_helper_files_from_elsewhere_are_refused)
{
    struct world world;
    struct attn__plugin *plugin = open_world(&world);
    cr_assert_neq(attn__plugin_open(plugin, false), ATTN_OK);
    cr_assert_eq(plugin->reason, ATTN_REASON_PROBE_UNAVAILABLE);
    cr_assert_eq(plugin->stage, ATTN_STAGE_NOTE);
    cr_assert_not_null(strstr(plugin->text, "attn-probe"), "%s", plugin->text);
    cr_assert_null(plugin->handle);
    world_close(&world);
}

Test(policy, without_a_helper_files_that_came_with_the_library_load)
{
    struct world world;
    struct attn__plugin *plugin = open_world(&world);
    plugin->own = true;
    cr_assert_eq(attn__plugin_open(plugin, false), ATTN_OK, "%s", plugin->text);
    cr_assert_eq(world_said(&world, "is loaded without a probe, for it came with libattn"), 1);
    world_close(&world);
}

Test(policy, a_helper_that_cannot_be_started_is_told)
{
    struct attn__result result;
    char *environment[] = {NULL};
    attn__probe_run("/dev/null", environment, "/tmp/a", &result);
    cr_assert_eq(result.outcome, ATTN__UNAVAILABLE);
    cr_assert_not_null(strstr(result.text, "/dev/null: "), "%s", result.text);
}

/* ---------------------------------------------------------------- the directory of results */

static bool find_directory(const char *variable, const char *value, bool elevated, char *path, size_t size)
{
    struct attn__env env;
    char text[256];
    snprintf(text, sizeof text, "%s=%s", variable, value);
    char *environment[] = {text, NULL};
    cr_assert_eq(attn__env_init_from(&env, NULL, environment, elevated, NULL), ATTN_OK);
    const bool found = attn__cache_directory(&env, path, size);
    attn__env_finish(&env);
    return found;
}

static mode_t mode_of(const char *path)
{
    struct stat status;
    cr_assert_eq(stat(path, &status), 0, "%s", path);
    return status.st_mode & 07777;
}

Test(policy, the_directory_of_results_is_made_for_its_owner_alone)
{
    struct malformed malformed;
    char path[512];
    malformed_create(&malformed);
    cr_assert(find_directory("HOME", malformed.path, false, path, sizeof path));
    cr_assert_str_eq(path, malformed_path(&malformed, ".cache/attn"));
    cr_assert_eq(mode_of(path), 0700);
    cr_assert_eq(mode_of(malformed_path(&malformed, ".cache")), 0700);
    cr_assert(find_directory("XDG_CACHE_HOME", malformed_path(&malformed, "xdg"), false, path, sizeof path));
    cr_assert_str_eq(path, malformed_path(&malformed, "xdg/attn"));
    cr_assert(find_directory("ATTN_CACHE_DIR", malformed_path(&malformed, "own"), false, path, sizeof path));
    cr_assert_str_eq(path, malformed_path(&malformed, "own"));
    malformed_remove(&malformed);
}

Test(policy, a_directory_that_cannot_be_trusted_or_made_is_none)
{
    struct malformed malformed;
    char path[512], far[600];
    malformed_create(&malformed);
    /* Nobody's privileges are raised to write into a home. */
    cr_assert_not(find_directory("HOME", malformed.path, true, path, sizeof path));
    cr_assert_not(find_directory("HOME", "relative", false, path, sizeof path));
    cr_assert_not(find_directory("OTHER", "x", false, path, sizeof path));
    cr_assert_not(find_directory("ATTN_CACHE_DIR", "/proc/attn", false, path, sizeof path));
    cr_assert_not(
        find_directory("ATTN_CACHE_DIR", malformed_path(&malformed, "a/b/c"), false, path, sizeof path));
    cr_assert_not(find_directory("HOME", malformed.path, false, path, 10));
    cr_assert_eq(mkdir(malformed_path(&malformed, "open"), 0777), 0);
    cr_assert_eq(chmod(malformed_path(&malformed, "open"), 0777), 0);
    cr_assert_not(
        find_directory("ATTN_CACHE_DIR", malformed_path(&malformed, "open"), false, path, sizeof path));
    malformed_write(&malformed, "file", "x", 1);
    cr_assert_not(
        find_directory("ATTN_CACHE_DIR", malformed_path(&malformed, "file"), false, path, sizeof path));
    snprintf(far, sizeof far, "%s/none/attn", malformed.path);
    cr_assert_eq(access(far, F_OK), -1);
    malformed_remove(&malformed);
}

static const char some_key[] = "0123456789abcdef0123456789abcdef";

/* The file that a result of that key has. */
static const char some_name[] = "0123456789abcdef";

Test(policy, results_that_cannot_be_written_are_no_error)
{
    const struct attn__result result = {.outcome = ATTN__EXITED, .number = 3, .since = 50, .step = "load"};
    struct attn__result other;
    struct malformed malformed;
    malformed_create(&malformed);
    attn__cache_store("/proc", some_key, &result);
    attn__cache_store(malformed_path(&malformed, "absent"), some_key, &result);
    cr_assert_not(attn__cache_load("/proc", some_key, 60, &other));
    /* A directory stands where the file would go: the temporary one does not stay. */
    cr_assert_eq(mkdir(malformed_path(&malformed, some_name), 0700), 0);
    attn__cache_store(malformed.path, some_key, &result);
    cr_assert_eq(rmdir(malformed_path(&malformed, some_name)), 0);
    cr_assert_eq(rmdir(malformed.path), 0, "something was left");
}

Test(policy, a_directory_of_another_user_is_not_used)
{
    struct malformed malformed;
    char path[512];
    if (geteuid() == 0) {
        malformed_create(&malformed);
        cr_assert_eq(chown(malformed.path, 54321, 0), 0);
        cr_assert_not(find_directory("ATTN_CACHE_DIR", malformed.path, false, path, sizeof path));
        cr_assert_eq(chown(malformed.path, 0, 0), 0);
        cr_assert(find_directory("ATTN_CACHE_DIR", malformed.path, false, path, sizeof path));
        malformed_remove(&malformed);
    } else {
        cr_assert_not(find_directory("ATTN_CACHE_DIR", "/usr", false, path, sizeof path));
    }
}

/* ---------------------------------------------------------------- results */

Test(policy, results_behind_a_link_are_not_read)
{
    const struct attn__result good = {.outcome = ATTN__GOOD, .since = 50, .step = "exit"};
    struct attn__result other;
    struct malformed malformed;
    char target[256];
    malformed_create(&malformed);
    cr_assert_eq(mkdir(malformed_path(&malformed, "a"), 0700), 0);
    cr_assert_eq(mkdir(malformed_path(&malformed, "b"), 0700), 0);
    attn__cache_store(malformed_path(&malformed, "a"), some_key, &good);
    cr_assert(attn__cache_load(malformed_path(&malformed, "a"), some_key, 60, &other));
    snprintf(target, sizeof target, "%s/a/%s", malformed.path, some_name);
    cr_assert_eq(chdir(malformed_path(&malformed, "b")), 0);
    cr_assert_eq(symlink(target, some_name), 0);
    cr_assert_not(attn__cache_load(malformed_path(&malformed, "b"), some_key, 60, &other));
    malformed_remove(&malformed);
}

Test(policy, the_key_is_of_everything_that_tells_a_file_from_another)
{
    struct world world;
    struct attn__plugin *plugin = open_world(&world);
    const struct attn__plugin kept = *plugin;
    char key[ATTN__KEY_SIZE], other[ATTN__KEY_SIZE];
    attn__cache_key(plugin, key);
    for (int field = 0; field < 5; field++) {
        plugin->identity.device += field == 0;
        plugin->identity.inode += field == 1;
        plugin->identity.size += field == 2;
        plugin->identity.mtime_ns += field == 3;
        plugin->identity.ctime_ns += field == 4;
        attn__cache_key(plugin, other);
        cr_assert_str_neq(key, other, "field %d", field);
        *plugin = kept;
    }
    attn__cache_key(plugin, other);
    cr_assert_str_eq(key, other);
    world_close(&world);
}

Test(policy, results_count_for_their_time)
{
    struct attn__result result = {.outcome = ATTN__CRASHED, .since = 1000, .step = "load"}, out;
    struct malformed malformed;
    malformed_create(&malformed);
    attn__cache_store(malformed.path, some_key, &result);
    cr_assert(attn__cache_load(malformed.path, some_key, 1000 + 24 * 3600, &out));
    cr_assert_not(attn__cache_load(malformed.path, some_key, 1001 + 24 * 3600, &out));
    result.outcome = ATTN__TIMED_OUT;
    attn__cache_store(malformed.path, some_key, &result);
    cr_assert(attn__cache_load(malformed.path, some_key, 1600, &out));
    cr_assert_not(attn__cache_load(malformed.path, some_key, 1601, &out));
    cr_assert_not(attn__cache_load(malformed.path, some_key, 999, &out), "a time to come");
    attn__cache_reset(malformed.path);
    cr_assert_not(attn__cache_load(malformed.path, some_key, 1000, &out));
    result.outcome = ATTN__GOOD;
    attn__cache_store(malformed.path, some_key, &result);
    attn__cache_reset(malformed.path);
    cr_assert(attn__cache_load(malformed.path, some_key, 1000 + 1000 * 24 * 3600, &out));
    malformed_remove(&malformed);
}

Test(policy, another_version_of_a_file_takes_the_place_of_the_first)
{
    static const char other_key[] = "0123456789abcdef0000000000000000";
    const struct attn__result good = {.outcome = ATTN__GOOD, .since = 50, .step = "exit", .text = "prints"};
    struct attn__result out;
    struct malformed malformed;
    malformed_create(&malformed);
    attn__cache_store(malformed.path, some_key, &good);
    cr_assert_not(attn__cache_load(malformed.path, other_key, 60, &out));
    attn__cache_store(malformed.path, other_key, &good);
    cr_assert(attn__cache_load(malformed.path, other_key, 60, &out));
    cr_assert_str_eq(out.text, "prints");
    cr_assert_not(attn__cache_load(malformed.path, some_key, 60, &out));
    malformed_remove(&malformed);
}

Test(policy, a_number_that_would_overflow_an_age_is_old)
{
    struct attn__result result = {.outcome = ATTN__CRASHED, .since = INT64_MIN}, out;
    struct malformed malformed;
    malformed_create(&malformed);
    attn__cache_store(malformed.path, some_key, &result);
    cr_assert_not(attn__cache_load(malformed.path, some_key, 60, &out));
    result.since = INT64_MAX;
    attn__cache_store(malformed.path, some_key, &result);
    cr_assert_not(attn__cache_load(malformed.path, some_key, 60, &out));
    malformed_remove(&malformed);
}

/* FNV-1a: results that are kept under another number are lost, and numbers that are alike are mixed up. */
Test(policy, hashes_are_those_of_fnv)
{
    cr_assert_eq(attn__hash(UINT64_C(0xcbf29ce484222325), "", 0), UINT64_C(0xcbf29ce484222325));
    cr_assert_eq(attn__hash(UINT64_C(0xcbf29ce484222325), "foobar", 6), UINT64_C(0x85944171f73967e8));
}
