/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The gate where no child can be tried, and where verdicts are kept. Trials themselves: tests/probe. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "probe.h"
#include "world.h"

/* This program has the library inside and no attn-probe beside it. */
static struct attn__plugin *open_world(struct world *world)
{
    world_open(world, "good", "ATTN_PROBE=auto");
    cr_assert_eq(world->context->plugin_count, 1);
    return world->context->plugins[0];
}

Test(gate, without_a_helper_files_from_elsewhere_are_refused)
{
    struct world world;
    struct attn__plugin *plugin = open_world(&world);
    cr_assert_neq(attn__plugin_open(plugin), ATTN_OK);
    cr_assert_eq(plugin->reason, ATTN_REASON_PROBE_UNAVAILABLE);
    cr_assert_eq(plugin->stage, ATTN_STAGE_NOTE);
    cr_assert_not_null(strstr(plugin->text, "attn-probe"), "%s", plugin->text);
    cr_assert_null(plugin->handle);
    world_close(&world);
}

Test(gate, without_a_helper_files_that_came_with_the_library_load)
{
    struct world world;
    struct attn__plugin *plugin = open_world(&world);
    world.context->directories[0].origin = "libattn";
    cr_assert_eq(attn__plugin_open(plugin), ATTN_OK, "%s", plugin->text);
    cr_assert_eq(world_said(&world, "is loaded without a trial, for it came with libattn"), 1);
    world_close(&world);
}

Test(gate, another_directory_whose_name_begins_alike_is_not_the_librarys)
{
    struct world world;
    struct attn__plugin *plugin = open_world(&world);
    struct attn__directory *directory = &world.context->directories[0];
    directory->origin = "compiled-in";
    directory->path[strlen(directory->path) - 1] = '\0';
    cr_assert_neq(attn__plugin_open(plugin), ATTN_OK);
    cr_assert_eq(plugin->reason, ATTN_REASON_PROBE_UNAVAILABLE);
    world_close(&world);
}

Test(gate, a_helper_that_cannot_be_started_is_told)
{
    struct attn__verdict verdicts[2];
    const char *paths[] = {"/tmp/a", "/tmp/b"};
    char *environment[] = {NULL};
    attn__probe_run("/dev/null", paths, environment, verdicts, 2);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(verdicts[i].outcome, ATTN__UNAVAILABLE);
        cr_assert_not_null(strstr(verdicts[i].text, "/dev/null: "), "%s", verdicts[i].text);
    }
}

/* ---------------------------------------------------------------- the directory of verdicts */

static bool find_directory(const char *variable, const char *value, bool elevated, char *path, size_t size)
{
    struct attn__env env;
    char text[256];
    snprintf(text, sizeof text, "%s=%s", variable, value);
    char *environment[] = {text, NULL};
    cr_assert_eq(attn__env_init_from(&env, NULL, environment, elevated, NULL), ATTN_OK);
    const bool found = attn__verdict_directory(&env, path, size);
    attn__env_finish(&env);
    return found;
}

static mode_t mode_of(const char *path)
{
    struct stat status;
    cr_assert_eq(stat(path, &status), 0, "%s", path);
    return status.st_mode & 07777;
}

Test(gate, the_directory_of_verdicts_is_made_for_its_owner_alone)
{
    struct zoo zoo;
    char path[512];
    zoo_create(&zoo);
    cr_assert(find_directory("HOME", zoo.path, false, path, sizeof path));
    cr_assert_str_eq(path, zoo_path(&zoo, ".cache/attn"));
    cr_assert_eq(mode_of(path), 0700);
    cr_assert_eq(mode_of(zoo_path(&zoo, ".cache")), 0700);
    cr_assert(find_directory("XDG_CACHE_HOME", zoo_path(&zoo, "xdg"), false, path, sizeof path));
    cr_assert_str_eq(path, zoo_path(&zoo, "xdg/attn"));
    cr_assert(find_directory("ATTN_CACHE_DIR", zoo_path(&zoo, "own"), false, path, sizeof path));
    cr_assert_str_eq(path, zoo_path(&zoo, "own"));
    zoo_remove(&zoo);
}

Test(gate, a_directory_that_cannot_be_trusted_or_made_is_none)
{
    struct zoo zoo;
    char path[512], far[600];
    zoo_create(&zoo);
    /* Nobody's privileges are raised to write into a home. */
    cr_assert_not(find_directory("HOME", zoo.path, true, path, sizeof path));
    cr_assert_not(find_directory("HOME", "relative", false, path, sizeof path));
    cr_assert_not(find_directory("OTHER", "x", false, path, sizeof path));
    cr_assert_not(find_directory("ATTN_CACHE_DIR", "/proc/attn", false, path, sizeof path));
    cr_assert_not(find_directory("ATTN_CACHE_DIR", zoo_path(&zoo, "a/b/c"), false, path, sizeof path));
    cr_assert_not(find_directory("HOME", zoo.path, false, path, 10));
    cr_assert_eq(mkdir(zoo_path(&zoo, "open"), 0777), 0);
    cr_assert_eq(chmod(zoo_path(&zoo, "open"), 0777), 0);
    cr_assert_not(find_directory("ATTN_CACHE_DIR", zoo_path(&zoo, "open"), false, path, sizeof path));
    zoo_write(&zoo, "file", "x", 1);
    cr_assert_not(find_directory("ATTN_CACHE_DIR", zoo_path(&zoo, "file"), false, path, sizeof path));
    snprintf(far, sizeof far, "%s/none/attn", zoo.path);
    cr_assert_eq(access(far, F_OK), -1);
    zoo_remove(&zoo);
}

Test(gate, verdicts_that_cannot_be_written_are_no_error)
{
    static const char keys[1][ATTN__KEY_SIZE] = {"0123456789abcdef0123456789abcdef"};
    const struct attn__verdict verdict = {.outcome = ATTN__EXITED, .number = 3, .since = 50, .step = "load"};
    struct attn__verdict other;
    struct zoo zoo;
    zoo_create(&zoo);
    attn__verdict_store("/proc", keys, &verdict, 1, 60);
    attn__verdict_store(zoo_path(&zoo, "absent"), keys, &verdict, 1, 60);
    cr_assert_not(attn__verdict_load("/proc", keys[0], 60, &other));
    /* A directory stands where the file would go: the temporary one does not stay. */
    cr_assert_eq(mkdir(zoo_path(&zoo, "verdicts"), 0700), 0);
    attn__verdict_store(zoo.path, keys, &verdict, 1, 60);
    cr_assert_eq(rmdir(zoo_path(&zoo, "verdicts")), 0);
    cr_assert_eq(rmdir(zoo.path), 0, "something was left");
    /* A number that would overflow an age. */
    const struct attn__verdict old = {.outcome = ATTN__CRASHED, .since = INT64_MIN};
    const struct attn__verdict to_come = {.outcome = ATTN__CRASHED, .since = INT64_MAX};
    cr_assert_not(attn__verdict_counts(&old, 60));
    cr_assert_not(attn__verdict_counts(&to_come, 60));
    cr_assert(attn__verdict_counts(&verdict, 60));
}
