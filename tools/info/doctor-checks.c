/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The checks of attn-info doctor. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"
#include "explain-print.h"

#define PLAIN_PROBLEM "heads=32 kv_heads=8 head_dim=128 q=bf16"

void check_path(struct doctor *doctor)
{
    const struct attn_directory_record *directory;
    unsigned usable = 0, wrong = 0;

    for (uint32_t i = 0; (directory = attn_report_get_directory(doctor->report, i)) != NULL; i++) {
        usable += directory->reason == 0;
        if (directory->reason == 0)
            continue;
        /* A directory that nobody asked for need not be there. */
        bool asked = strncmp(directory->origin, "ATTN_", strlen("ATTN_")) == 0;
        bool bad = asked || directory->reason != ATTN_REASON_UNREADABLE;
        wrong += bad;
        doctor_tell(doctor, bad ? MEND : NOTE, "search path",
                    bad ? attn_reason_advice(directory->reason) : NULL, "%s (%s): %s", directory->path,
                    directory->origin, directory->text);
    }
    if (usable == 0 && wrong == 0)
        doctor_tell(doctor, MEND, "search path",
                    "install a plugin there, or name its directory in ATTN_PLUGIN_PATH_ADD",
                    "no directory can be used");
    else if (usable > 0)
        doctor_tell(doctor, OK, "search path", NULL, "%u director%s, trusted", usable,
                    usable == 1 ? "y" : "ies");
}

void check_files(struct doctor *doctor)
{
    const struct attn_file_record *file;
    unsigned usable = 0, count = 0;

    for (; (file = attn_report_get_file(doctor->report, count)) != NULL; count++) {
        usable += file->stage == ATTN_STAGE_READY;
        if (file->reason == 0)
            continue;
        bool works = file->stage == ATTN_STAGE_READY || attn_reason_is_absence(file->reason) != 0;
        const char *text = stable_text(doctor->info, file->text);
        doctor_tell(doctor, works ? NOTE : MEND, "plugin file", file->advice, "%s: %s: %s%s%s", file->path,
                    attn_reason_name(file->reason),
                    text_or_null(text) != NULL ? text : attn_reason_text(file->reason),
                    text_or_null(file->linker) != NULL ? "; " : "", file->linker != NULL ? file->linker : "");
    }
    if (count == 0)
        doctor_tell(doctor, MEND, "plugin files",
                    "install a plugin into " ATTN_PLUGIN_DIR
                    ", or name its directory in ATTN_PLUGIN_PATH_ADD",
                    "none was found");
    else if (usable > 0)
        doctor_tell(doctor, OK, "plugin files", NULL, "%u of %u usable", usable, count);
}

/* True if an earlier backend of the same plugin file misses its device for the same reason. */
static bool is_told(const struct doctor *doctor, uint32_t index)
{
    const struct attn_backend_record *backend = attn_report_get_backend(doctor->report, index);

    for (uint32_t i = 0; i < index; i++) {
        const struct attn_backend_record *other = attn_report_get_backend(doctor->report, i);
        if (other->reason == backend->reason && strcmp(other->file, backend->file) == 0)
            return true;
    }
    return false;
}

void check_devices(struct doctor *doctor)
{
    const struct attn_backend_record *backend;
    unsigned ready = 0;

    for (uint32_t i = 0; (backend = attn_report_get_backend(doctor->report, i)) != NULL; i++) {
        ready += backend->state == ATTN_BACKEND_READY;
        if (backend->state != ATTN_BACKEND_NO_DEVICE || is_told(doctor, i))
            continue;
        char *vendor = vendor_of(backend->name);
        doctor_tell(doctor, NOTE, "device", backend->advice, "%s: %s: %s", vendor,
                    attn_reason_name(backend->reason), backend->text);
        free(vendor);
    }
    if (ready == 0)
        doctor_tell(doctor, MEND, "devices", "see the lines above, and attn-info list",
                    "no backend is ready on any device");
    else
        doctor_tell(doctor, OK, "devices", NULL, "%u backend%s ready", ready, ready == 1 ? " is" : "s are");
}

/* As the library finds it: beside itself, or where the installation puts helpers. */
void check_probe(struct doctor *doctor)
{
    static const char *const places[] = {"attn-probe", ATTN_PROBE_FROM_LIB};
    Dl_info library;
    bool found = false;

    if (dladdr((void *)(uintptr_t)attn_version, &library) == 0 || library.dli_fname == NULL)
        return;
    const char *slash = strrchr(library.dli_fname, '/');
    int length = slash != NULL ? (int)(slash - library.dli_fname) + 1 : 0;
    for (size_t i = 0; i < sizeof places / sizeof *places && !found; i++) {
        char *path = need_format("%.*s%s", places[i][0] == '/' ? 0 : length, library.dli_fname, places[i]);
        found = access(path, X_OK) == 0;
        free(path);
    }
    if (found)
        doctor_tell(doctor, OK, "attn-probe", NULL, "the helper is there");
    else
        doctor_tell(doctor, MEND, "attn-probe",
                    "install libattn again as a whole; ATTN_PROBE=never does without it, and without its "
                    "protection",
                    "the helper that tries new plugin files is missing beside %s", library.dli_fname);
}

/* The value of a variable of libattn; "" if it is not given. */
static const char *value_of(const struct doctor *doctor, const char *name)
{
    const struct attn_variable_record *variable;

    for (uint32_t i = 0; (variable = attn_context_get_variable(doctor->info->context, i)) != NULL; i++)
        if (strcmp(variable->name, name) == 0)
            return variable->value;
    return "";
}

/* Where results of probes are kept, as the library finds it; NULL if it has no place. Free it. */
static char *cache_directory(const struct doctor *doctor)
{
    const char *given = value_of(doctor, "ATTN_CACHE_DIR");
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (given[0] != '\0')
        return need_copy(given);
    if (cache != NULL && cache[0] == '/')
        return need_format("%s/attn", cache);
    return home != NULL && home[0] == '/' ? need_format("%s/.cache/attn", home) : NULL;
}

/* Whether a file can be made in the directory, or in the one in which it would be made. */
static bool can_write(const char *directory)
{
    char *path = need_copy(directory);

    while (access(path, F_OK) != 0 && strrchr(path, '/') > path)
        *strrchr(path, '/') = '\0';
    char *name = need_format("%s/attn-doctor-XXXXXX", path);
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0) {
        close(fd);
        unlink(name);
    }
    free(name);
    free(path);
    return fd >= 0;
}

void check_cache(struct doctor *doctor)
{
    static const char remedy[] = "set ATTN_CACHE_DIR to a directory that this user can write to";
    char *directory = cache_directory(doctor);

    if (directory == NULL)
        doctor_tell(doctor, MEND, "cache", remedy,
                    "there is no place for results of probes: HOME is not set");
    else if (can_write(directory))
        doctor_tell(doctor, OK, "cache", NULL, "%s can be written to", directory);
    else
        doctor_tell(doctor, MEND, "cache", remedy,
                    "%s cannot be written to: plugin files are probed again by every process", directory);
    free(directory);
}

void check_variables(struct doctor *doctor)
{
    const struct attn_variable_record *variable;
    unsigned wrong = 0;

    for (uint32_t i = 0; (variable = attn_context_get_variable(doctor->info->context, i)) != NULL; i++) {
        bool unknown = strcmp(variable->type, "unknown") == 0;
        if (!unknown && text_or_null(variable->problem) == NULL)
            continue;
        char *remedy = unknown ? need_copy("correct its name, or unset it")
                               : need_format("correct it, or unset it; see attn-info env %s", variable->name);
        doctor_tell(doctor, MEND, "variable", remedy, "%s%s%s", unknown ? variable->name : "",
                    unknown ? ": " : "", unknown ? variable->help : variable->problem);
        free(remedy);
        wrong++;
    }
    if (wrong == 0)
        doctor_tell(doctor, OK, "variables", NULL, "all ATTN_ variables are known and have good values");
}

static void check_winner(struct doctor *doctor, const struct attn_decision *decision)
{
    const struct attn_decision_info *info = attn_decision_get_info(decision);
    const struct attn_candidate *candidate;
    bool generic = false;

    for (uint32_t i = 0; (candidate = attn_decision_get_candidate(decision, i)) != NULL; i++) {
        if (strcmp(candidate->name, info->effective) != 0 || candidate->device == NULL ||
            strcmp(candidate->device, info->device) != 0)
            continue;
        generic = explain_has_generic(candidate);
    }
    doctor_tell(doctor, info->fallback ? MEND : OK, "selection",
                info->fallback ? "run attn-info explain " PLAIN_PROBLEM : NULL, "%s on %s serves %s%s",
                info->effective, info->device, PLAIN_PROBLEM, info->fallback ? ", as a fallback" : "");
    if (generic)
        doctor_tell(
            doctor, MEND, "kernels",
            "unset ATTN_CPU_FLAGS if it is set, or install a plugin that is optimised for this machine",
            "a generic kernel serves it, many times slower than an optimised one");
}

void check_selection(struct doctor *doctor)
{
    struct attn_problem problem;
    struct attn_decision *decision = NULL;
    struct attn_error err;

    ATTN_INIT(&problem);
    ATTN_INIT(&err);
    if (attn_problem_parse(PLAIN_PROBLEM, &problem, &err) == ATTN_OK)
        (void)attn_select(doctor->info->context, &problem, 1, NULL, &decision, &err);
    if (decision != NULL && attn_decision_get_info(decision)->effective != NULL)
        check_winner(doctor, decision);
    else
        doctor_tell(doctor, MEND, "selection", "run attn-info explain " PLAIN_PROBLEM, "%s",
                    err.message[0] != '\0' ? err.message : "ATTN_BACKEND=none: no backend is wanted");
    attn_decision_destroy(decision);
}
