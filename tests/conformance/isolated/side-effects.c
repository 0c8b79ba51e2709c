/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Side effects: what a plugin leaves behind in the process, each in a process that has loaded nothing before.
 */
#define _GNU_SOURCE
#include "side-effects.h"

#include <time.h>
#include <unistd.h>

#include "life.h"

/* Long enough for a thread that was left behind to touch something. */
static void wait_a_while(void)
{
    const struct timespec pause = {0, 20000000};

    nanosleep(&pause, NULL);
}

static void judge_host(struct life *life)
{
    const char *late = life_host_late(life->host);

    if (late != NULL)
        isolated_fail(life->isolated, "host after finish",
                      "ATTN_P15: '%s' of the host was called after finish", late);
}

/* One life, looked at after every stage. */
static void watch_life(struct isolated *isolated, const char *plugin)
{
    struct life life = {.watch = trace_stage};

    isolated_stage(isolated, "before dlopen");
    trace_begin();
    bool good = life_load(&life, isolated, plugin) && life_live(&life);
    isolated_stage(isolated, "after finish");
    wait_a_while();
    trace_stage(&life, "after finish", false);
    if (good && life_has_driver(&life)) {
        struct life again = {.isolated = isolated, .entry = life.entry};
        trace_restart();
        good = life_live(&again);
        wait_a_while();
        life_forget(&again);
        memcpy(life.why, again.why, sizeof life.why);
    }
    trace_end(isolated);
    if (!good)
        isolated_fail(isolated, "life", "%s", life.why);
    else if (!life.ran && life.device_count == 0)
        isolated_skip(isolated, "life beyond the devices", "no device of this plugin");
    else if (!life.ran)
        isolated_skip(isolated, "life beyond the query", "no problem of the list is accepted");
    if (good)
        judge_host(&life);
}

/*
 * The table of a host is a page that is gone after finish. First one life after the other, then two at once
 * of which the younger ends first: a table that is kept in a variable is found either way.
 */
static void revoke_hosts(struct isolated *isolated, const char *plugin)
{
    struct life first = {0}, second = {0}, again = {0};
    bool good = life_load(&first, isolated, plugin) && life_live(&first);

    second.isolated = again.isolated = isolated;
    second.entry = again.entry = first.entry;
    good = good && life_live(&second);
    wait_a_while();
    if (!good) {
        isolated_fail(isolated, "host after finish", "a second life: %s%s", first.why, second.why);
        return;
    }
    judge_host(&first);
    life_forget(&second);
    if (!life_begin(&again) || !life_begin(&second)) {
        isolated_fail(isolated, "host after finish", "two instances: %s%s", again.why, second.why);
        return;
    }
    life_end(&second);
    for (uint32_t i = 0; good && i < again.backend_count; i++) {
        struct life_backend backend;
        good = life_ask(&again);
        if (good && life_open(&again, i, &backend)) {
            good = life_work(&backend);
            life_close(&backend);
        }
    }
    life_end(&again);
    judge_host(&second);
    judge_host(&first);
    if (!good)
        isolated_fail(isolated, "host after finish", "after another instance was finished: %s", again.why);
}

/* A daemon has no standard files, and the next file that is opened has number 0. */
static void close_files(struct isolated *isolated, const char *plugin)
{
    struct life life = {0};
    char text[512] = "";

    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        close(fd);
    uint32_t before = trace_count_descriptors();
    bool good = life_load(&life, isolated, plugin) && life_live(&life);
    if (good && life_has_driver(&life)) {
        before = trace_count_descriptors();
        life_forget(&life);
        good = life_live(&life);
    }
    trace_list_descriptors(text, sizeof text);
    if (!good)
        isolated_fail(isolated, "closed standard files", "ATTN_P13: without descriptors 0, 1, 2: %s",
                      life.why);
    else if (trace_count_descriptors() != before)
        isolated_fail(isolated, "closed standard files", "ATTN_P15: open after finish: %s", text);
}

void check_side_effects(const struct run_options *options)
{
    isolated_run(options, "life", watch_life);
    isolated_run(options, "host after finish", revoke_hosts);
    isolated_run(options, "closed standard files", close_files);
    isolated_run(options, "many lives", live_often);
    isolated_run(options, "orders of destruction", destroy_in_every_order);
    isolated_run(options, "file", read_file);
}
