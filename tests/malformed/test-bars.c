/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a bad plugin may cost: one deadline once; and that nothing is mapped which nobody asked for. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "elf-file.h"
#include "place.h"

static double seconds_to_answer(const struct place *place)
{
    double start = seconds_now();
    struct attn_context *context = malformed_context(&place->malformed, place->variables);
    bool serves = place_serves(context);
    double seconds = seconds_now() - start;

    attn_context_destroy(context);
    return serves ? seconds : 1e9;
}

/* The deadline is 2 seconds; the margin is for a busy machine. */
static void check_first(const void *arg)
{
    double seconds = seconds_to_answer(arg);

    tap_check(seconds < 2.5, "the first answer beside a plugin that hangs");
    tap_note("%.3f seconds", seconds);
    seconds = seconds_to_answer(arg);
    tap_check(seconds < 0.5, "the next context does not wait");
    tap_note("%.6f seconds", seconds);
}

static void check_later(const void *arg)
{
    double seconds = seconds_to_answer(arg);

    tap_check(seconds < 0.5, "nor does the next process");
    tap_note("%.6f seconds", seconds);
}

static bool is_mapped(const char *name)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");

    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        found = found || strstr(line, name) != NULL;
    if (maps == NULL || fclose(maps) != 0)
        exit(99);
    return found;
}

static unsigned count_descriptors(void)
{
    unsigned count = 0;
    DIR *list = opendir("/proc/self/fd");

    while (list != NULL && readdir(list) != NULL)
        count++;
    if (list == NULL || closedir(list) != 0)
        exit(99);
    return count;
}

static void add_named(const struct place *place, const char *name, const char *file_name)
{
    struct elf_file file;

    elf_read(&file, "named");
    elf_rename(&file, name);
    elf_write(&file, &place->malformed, file_name);
    elf_free(&file);
}

/* Three vendors, of which one is asked for through the environment. */
static void check_maps(const void *arg)
{
    const struct place *place = arg;
    unsigned descriptors = count_descriptors();

    add_named(place, "try001", "libattn-one.so");
    add_named(place, "try002", "libattn-two.so");
    add_named(place, "sane00", "libattn-three.so");
    struct attn_context *context = malformed_context(&place->malformed, place->variables);
    tap_check(place_serves(context), "the vendor that is asked for serves");
    tap_check(attn_context_load_all(context, NULL) == ATTN_OK && is_mapped(SANE_FILE) &&
                  !is_mapped("libattn-one.so") && !is_mapped("libattn-two.so") &&
                  !is_mapped("libattn-three.so"),
              "no other vendor's library is mapped");
    attn_context_destroy(context);
    tap_check(count_descriptors() == descriptors, "no descriptor is left open");
}

static void run(const char *name, const char *variable, const char *other, void (*work)(const void *arg),
                void (*later)(const void *arg))
{
    struct place place;

    place_create(&place, variable);
    malformed_add(&place.malformed, "sane", SANE_FILE);
    if (other != NULL)
        malformed_add(&place.malformed, other, "libattn-a.so");
    tap_in_child(name, 60, work, &place);
    if (later != NULL)
        tap_in_child(name, 60, later, &place);
    place_remove(&place);
}

int main(void)
{
    tap_begin();
    run("a plugin that hangs", NULL, "trouble-hang", check_first, check_later);
    run("one vendor", "ATTN_BACKEND=sane", NULL, check_maps, NULL);
    return tap_end();
}
