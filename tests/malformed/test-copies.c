/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Hundreds of copies of a good plugin in one directory: cut at every boundary, or with one bit changed. Each
 * has its reason or is usable, the plugin beside them serves, and the host lives until its end.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attn/plugin.h"
#include "elf-file.h"
#include "place.h"

enum { FLIPS = 200, CUTS_MOST = 400, SECONDS_MOST = 100, THREADS = 16 };

static const char *name_of(unsigned number)
{
    static char name[16];

    snprintf(name, sizeof name, "try%03u", number);
    return name;
}

static const char *file_of(unsigned number)
{
    static char file[32];

    snprintf(file, sizeof file, "libattn-a%03u.so", number);
    return file;
}

static struct attn_report *report_of(struct attn_context *context)
{
    struct attn_report *report = NULL;

    if (attn_context_load_all(context, NULL) != ATTN_OK ||
        attn_context_get_report(context, &report, NULL) != ATTN_OK)
        exit(99);
    return report;
}

/* ---------------------------------------------------------------- cuts */

struct cuts {
    size_t sizes[CUTS_MOST];
    unsigned count;
    size_t loaded; /* less than that is too short */
};

static void add_cut(struct cuts *cuts, const struct elf_file *file, uint64_t at)
{
    for (uint64_t size = at > 0 ? at - 1 : 0; size <= at + 1 && size < file->size; size++) {
        bool known = false;
        for (unsigned i = 0; i < cuts->count; i++)
            known = known || cuts->sizes[i] == size;
        if (!known && cuts->count < CUTS_MOST)
            cuts->sizes[cuts->count++] = size;
    }
}

/* Where headers, segments and sections begin and end. */
static void find_cuts(struct cuts *cuts, const struct elf_file *file)
{
    const Elf64_Ehdr *header = elf_header(file);
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(void *)(file->bytes + header->e_shoff);
    const Elf64_Phdr *segments = (const Elf64_Phdr *)(void *)(file->bytes + header->e_phoff);

    add_cut(cuts, file, 0);
    add_cut(cuts, file, SELFMAG);
    add_cut(cuts, file, sizeof *header);
    add_cut(cuts, file, header->e_phoff + header->e_phnum * sizeof *segments);
    for (unsigned i = 0; i < header->e_phnum; i++) {
        add_cut(cuts, file, segments[i].p_offset);
        add_cut(cuts, file, segments[i].p_offset + segments[i].p_filesz);
    }
    for (unsigned i = 0; i < header->e_shnum; i++) {
        add_cut(cuts, file, sections[i].sh_offset);
        if (sections[i].sh_type != SHT_NOBITS)
            add_cut(cuts, file, sections[i].sh_offset + sections[i].sh_size);
    }
    cuts->loaded = elf_loaded_size(file);
}

static void check_cuts(const void *arg)
{
    const struct place *place = arg;
    struct cuts cuts = {.count = 0};
    struct elf_file file;
    unsigned wrong = 0;

    elf_read(&file, "named");
    find_cuts(&cuts, &file);
    elf_free(&file);
    for (unsigned i = 0; i < cuts.count; i++) {
        elf_read(&file, "named");
        elf_rename(&file, name_of(i));
        elf_resize(&file, cuts.sizes[i]);
        elf_write(&file, &place->malformed, file_of(i));
        elf_free(&file);
    }
    struct attn_context *context = malformed_context(&place->malformed, place->variables);
    struct attn_report *report = report_of(context);
    for (unsigned i = 0; i < cuts.count; i++) {
        const struct attn_file_record *record = malformed_file(report, file_of(i));
        const size_t size = cuts.sizes[i];
        const uint32_t expected = size < SELFMAG       ? ATTN_REASON_NOT_ELF
                                  : size < cuts.loaded ? ATTN_REASON_TRUNCATED
                                                       : 0;
        if (record == NULL || record->reason != expected || (record->advice[0] == '\0') != (expected == 0)) {
            wrong++;
            tap_note("%zu bytes: %s, %s", size, record != NULL ? attn_reason_name(record->reason) : "none",
                     record != NULL ? record->text : "");
        }
    }
    tap_check(wrong == 0 && cuts.count > 60, "%u copies that end early have the right reason", cuts.count);
    attn_report_destroy(report);
    tap_check(place_serves(context), "the plugin beside them serves");
    attn_context_destroy(context);
}

/* ---------------------------------------------------------------- changed bits */

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

static uint32_t first_seed = 20240229;

/* Half of them in what is loaded, whatever debug information the compiler adds. */
static size_t flip(struct elf_file *file, uint32_t *seed)
{
    size_t most = next(seed) % 2 == 0 ? elf_loaded_size(file) : file->size;
    size_t at = (next(seed) << 8 ^ next(seed)) % most;

    file->bytes[at] ^= (unsigned char)(1U << next(seed) % 8);
    return at;
}

struct flips {
    const struct place *place;
    uint32_t seed;
    struct attn_context *shared;
    _Atomic unsigned wrong;
};

static void *crowd(void *arg)
{
    struct flips *flips = arg;
    struct attn_context *own = malformed_context(&flips->place->malformed, flips->place->variables);

    flips->wrong += !place_serves(own);
    flips->wrong += !place_serves(flips->shared);
    flips->wrong += attn_context_rescan(flips->shared, NULL) != ATTN_OK;
    flips->wrong += !place_serves(flips->shared);
    attn_context_destroy(own);
    return NULL;
}

static void check_crowd(struct flips *flips)
{
    pthread_t threads[THREADS];
    double start = seconds_now();

    flips->shared = malformed_context(&flips->place->malformed, flips->place->variables);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, crowd, flips) != 0)
            exit(99);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    attn_context_destroy(flips->shared);
    tap_check(flips->wrong == 0, "%d threads at once among them (%.3f s)", THREADS, seconds_now() - start);
}

static void check_flips(const void *arg)
{
    struct flips flips = {.place = arg, .seed = first_seed};
    unsigned counts[64] = {0}, wrong = 0;

    for (unsigned i = 0; i < FLIPS; i++) {
        struct elf_file file;
        elf_read(&file, "named");
        elf_rename(&file, name_of(i));
        (void)flip(&file, &flips.seed);
        elf_write(&file, &flips.place->malformed, file_of(i));
        elf_free(&file);
    }
    struct attn_context *context = malformed_context(&flips.place->malformed, flips.place->variables);
    double start = seconds_now();
    struct attn_report *report = report_of(context);
    double seconds = seconds_now() - start;
    for (unsigned i = 0; i < FLIPS; i++) {
        const struct attn_file_record *record = malformed_file(report, file_of(i));
        uint32_t reason = record != NULL ? record->reason : 0;
        bool ready = record != NULL && record->stage == ATTN_STAGE_READY;
        counts[reason % 64]++;
        if (record == NULL || ready != (reason == 0 || reason == ATTN_REASON_SIDE_EFFECTS) ||
            (reason != 0 && (record->text[0] == '\0' || record->advice[0] == '\0'))) {
            wrong++;
            tap_note("%s: %s, stage %u", file_of(i), attn_reason_name(reason),
                     record != NULL ? record->stage : 0);
        }
    }
    tap_check(wrong == 0, "%d copies with one bit changed are usable or say why not (%.3f s)", FLIPS,
              seconds);
    for (unsigned i = 0; i < 64; i++)
        if (counts[i] > 0)
            tap_note("%u %s", counts[i], attn_reason_name(i));
    attn_report_destroy(report);
    tap_check(place_serves(context), "the plugin beside them serves");
    attn_context_destroy(context);
    check_crowd(&flips);
}

/* ---------------------------------------------------------------- one name */

/* True if a backend is chosen when `wanted` is asked for. */
static bool gives(struct attn_context *context, const char *wanted)
{
    struct attn_decision *decision = NULL;
    struct attn_select_options options;
    struct attn_problem problem;

    ATTN_INIT(&options);
    options.backend = wanted;
    if (attn_problem_parse("heads=8 head_dim=64 q=bf16", &problem, NULL) != ATTN_OK)
        exit(99);
    bool found = attn_select(context, &problem, 1, &options, &decision, NULL) == ATTN_OK;
    attn_decision_destroy(decision);
    return found;
}

static void copy_named(const struct place *place, const char *file_name, const char *flavour)
{
    struct elf_file file;

    elf_read(&file, "named");
    struct attn_note *note = elf_note(&file);
    if (flavour != NULL)
        snprintf(note->backends, sizeof note->backends, "try000/%s", flavour);
    elf_write(&file, &place->malformed, file_name);
    elf_free(&file);
}

/* A file that offers something else under the name of a good one, and is not asked for. */
static void check_same_name(const void *arg)
{
    const struct place *place = arg;

    copy_named(place, "libattn-a.so", "flash-autn");
    copy_named(place, "libattn-b.so", NULL);
    struct attn_context *context = malformed_context(&place->malformed, place->variables);
    tap_check(gives(context, "try000/flash-attn"),
              "a damaged list of backends does not hide the good file of that name");
    attn_context_destroy(context);
    context = malformed_context(&place->malformed, place->variables);
    tap_check(gives(context, "try000"), "nor if the plugin is asked for");
    attn_context_destroy(context);
    context = malformed_context(&place->malformed, place->variables);
    tap_check(gives(context, "auto") && gives(context, "try000/flash-attn"), "nor after automatic selection");
    struct attn_report *report = report_of(context);
    tap_check(malformed_file(report, "libattn-a.so")->reason == ATTN_REASON_NOTE_MISMATCH &&
                  malformed_file(report, "libattn-b.so")->stage == ATTN_STAGE_READY,
              "each of the two says what it is");
    attn_report_destroy(report);
    attn_context_destroy(context);
}

static void run(const char *name, void (*work)(const void *arg))
{
    struct place place;

    place_create(&place, NULL);
    malformed_add(&place.malformed, "sane", SANE_FILE);
    tap_in_child(name, SECONDS_MOST, work, &place);
    place_remove(&place);
}

/* Without arguments one seed; "SEED COUNT" are that many seeds from SEED on, and their flips alone. */
int main(int argc, char **argv)
{
    unsigned seeds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;

    if (argc > 1)
        first_seed = (uint32_t)strtoul(argv[1], NULL, 10);
    tap_begin();
    if (argc < 2)
        run("cut copies", check_cuts);
    if (SANITIZED)
        tap_skip("changed copies", "a sanitizer believes what an instrumented plugin says of itself");
    for (unsigned i = 0; i < seeds && !SANITIZED; i++, first_seed++)
        run("changed copies", check_flips);
    if (argc < 2)
        run("two of one name", check_same_name);
    return tap_end();
}
