/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reports: what they say of files and backends, and that they live on their own. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/stat.h>

#include "malformed.h"
#include "plugin/loader.h"

static struct malformed malformed;

static void set_up(void)
{
    malformed_create(&malformed);
    chmod(malformed.path, 0755);
}

static void tear_down(void)
{
    malformed_remove(&malformed);
}

static struct attn_report *load(const char *const *variables, bool load_all)
{
    struct attn_report *report;
    struct attn_context *context = malformed_context(&malformed, variables);
    if (load_all)
        cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    cr_assert_eq(attn_context_get_report(context, &report, NULL), ATTN_OK);
    /* The report outlives everything it was made from. */
    attn_context_destroy(context);
    return report;
}

static const struct attn_backend_record *backend(const struct attn_report *report, const char *name)
{
    const struct attn_backend_record *record;
    for (uint32_t i = 0; (record = attn_report_get_backend(report, i)) != NULL; i++)
        if (strcmp(record->name, name) == 0)
            return record;
    return NULL;
}

TestSuite(report, .init = set_up, .fini = tear_down);

Test(report, tells_all_about_a_ready_plugin)
{
    malformed_add(&malformed, "good", "libattn-a.so");
    const uint64_t began = attn__now();
    struct attn_report *report = load(NULL, true);
    const uint64_t took = attn__now() - began;
    const struct attn_directory_record *directory = attn_report_get_directory(report, 0);
    cr_assert_str_eq(directory->path, malformed.path);
    cr_assert_str_eq(directory->origin, "option");
    cr_assert_eq(directory->reason, 0);
    cr_assert_null(attn_report_get_directory(report, 1));

    const struct attn_file_record *file = attn_report_get_file(report, 0);
    cr_assert_str_eq(file->path, malformed_path(&malformed, "libattn-a.so"));
    cr_assert_str_eq(file->name, "mock");
    cr_assert_str_eq(file->vendor, "Mock Makers");
    cr_assert_str_eq(file->version, "1.0");
    cr_assert_str_eq(file->backends, "mock/flash-attn");
    cr_assert_eq(file->abi_minor, ATTN_ABI_MINOR);
    cr_assert_eq(file->device_class, ATTN_CLASS_CPU);
    cr_assert_eq(file->cpu_level, ATTN_CPU_BASELINE);
    cr_assert(file->microseconds > 0 && file->microseconds <= took / 1000);
    cr_assert_str_empty(file->linker);

    const struct attn_backend_record *record = attn_report_get_backend(report, 0);
    cr_assert_str_eq(record->name, "mock/flash-attn");
    cr_assert_str_eq(record->flavour, "flash-attn");
    cr_assert_str_eq(record->vendor, "Mock Makers");
    cr_assert_str_eq(record->file, file->path);
    cr_assert_eq(record->state, ATTN_BACKEND_READY);
    cr_assert_eq(record->has_device, 1);
    cr_assert_str_eq(record->device_name, "cpu:0");
    cr_assert_str_eq(record->device_text, "Mock CPU");
    cr_assert_eq(record->units, 4);
    cr_assert_null(attn_report_get_backend(report, 1));
    attn_report_destroy(report);
}

Test(report, lists_every_device)
{
    malformed_add(&malformed, "many", "libattn-a.so");
    struct attn_report *report = load(NULL, true);
    for (uint32_t i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu:%u", i);
        cr_assert_str_eq(attn_report_get_backend(report, i)->device_name, name);
    }
    cr_assert_null(attn_report_get_backend(report, 20));
    attn_report_destroy(report);
}

Test(report, before_loading_nobody_was_asked)
{
    malformed_add(&malformed, "good", "libattn-a.so");
    struct attn_report *report = load(NULL, false);
    cr_assert_eq(attn_report_get_file(report, 0)->stage, ATTN_STAGE_NOTE);
    cr_assert_eq(attn_report_get_backend(report, 0)->state, ATTN_BACKEND_NOT_ASKED);
    cr_assert_eq(attn_report_get_backend(report, 0)->reason, 0);
    attn_report_destroy(report);
}

Test(report, a_missing_driver_is_an_absence)
{
    malformed_add(&malformed, "no-driver", "libattn-a.so");
    struct attn_report *report = load(NULL, true);
    const struct attn_backend_record *record = backend(report, "bare/flash-attn");
    cr_assert_eq(attn_report_get_file(report, 0)->stage, ATTN_STAGE_READY);
    cr_assert_eq(record->state, ATTN_BACKEND_NO_DEVICE);
    cr_assert_eq(record->reason, ATTN_REASON_NO_DRIVER);
    cr_assert_str_eq(record->text, "libmock.so.1 is not installed");
    cr_assert_eq(record->has_device, 0);
    attn_report_destroy(report);
}

Test(report, what_is_not_wanted_stays_closed)
{
    static const char *const variables[] = {"ATTN_BACKEND=mock", NULL};
    malformed_add(&malformed, "good", "libattn-a.so");
    malformed_add(&malformed, "other", "libattn-b.so");
    struct attn_report *report = load(variables, true);
    cr_assert_eq(malformed_file(report, "libattn-a.so")->stage, ATTN_STAGE_READY);
    cr_assert_eq(malformed_file(report, "libattn-b.so")->stage, ATTN_STAGE_NOTE);
    cr_assert_eq(malformed_file(report, "libattn-b.so")->reason, ATTN_REASON_NOT_REQUESTED);
    cr_assert_eq(backend(report, "other/flash-attn")->state, ATTN_BACKEND_NOT_ASKED);
    cr_assert_eq(backend(report, "other/flash-attn")->reason, ATTN_REASON_NOT_REQUESTED);
    attn_report_destroy(report);
}

Test(report, what_is_disabled_stays_closed)
{
    static const char *const variables[] = {"ATTN_DISABLE=MOCK/*", NULL};
    malformed_add(&malformed, "good", "libattn-a.so");
    malformed_add(&malformed, "other", "libattn-b.so");
    struct attn_report *report = load(variables, true);
    cr_assert_eq(malformed_file(report, "libattn-a.so")->reason, ATTN_REASON_DISABLED_BY_USER);
    cr_assert_eq(malformed_file(report, "libattn-a.so")->stage, ATTN_STAGE_NOTE);
    cr_assert_eq(backend(report, "other/flash-attn")->state, ATTN_BACKEND_READY);
    attn_report_destroy(report);
}

Test(report, backends_of_a_refused_file_are_refused)
{
    malformed_add(&malformed, "no-run", "libattn-a.so");
    struct attn_report *report = load(NULL, true);
    const struct attn_backend_record *record = backend(report, "mock/flash-attn");
    cr_assert_eq(record->state, ATTN_BACKEND_REFUSED);
    cr_assert_eq(record->reason, ATTN_REASON_MISSING_FUNCTION);
    cr_assert(strstr(record->text, "plan.run") != NULL);
    attn_report_destroy(report);
}

static struct attn_report *inspect(struct attn_context *context, const char *path)
{
    struct attn_report *report;
    struct attn_error err;
    ATTN_INIT(&err);
    cr_assert_eq(attn_context_inspect(context, path, &report, &err), ATTN_OK, "%s", err.message);
    cr_assert_not_null(attn_report_get_file(report, 0));
    cr_assert_null(attn_report_get_file(report, 1));
    return report;
}

Test(report, inspect_leaves_the_registry_alone)
{
    cr_assert_eq(mkdir(malformed_path(&malformed, "elsewhere"), 0755), 0);
    malformed_add(&malformed, "good", "elsewhere/any-name");
    malformed_add(&malformed, "no-note", "elsewhere/no-note");
    struct attn_context *context = malformed_context(&malformed, NULL);
    struct attn_report *report = inspect(context, malformed_path(&malformed, "elsewhere/any-name"));
    cr_assert_eq(attn_report_get_file(report, 0)->stage, ATTN_STAGE_READY);
    cr_assert_eq(attn_report_get_backend(report, 0)->state, ATTN_BACKEND_READY);
    attn_report_destroy(report);
    report = inspect(context, malformed_path(&malformed, "elsewhere/no-note"));
    cr_assert_eq(attn_report_get_file(report, 0)->reason, ATTN_REASON_NO_NOTE);
    attn_report_destroy(report);
    report = inspect(context, malformed_path(&malformed, "elsewhere/absent"));
    cr_assert_eq(attn_report_get_file(report, 0)->reason, ATTN_REASON_UNREADABLE);
    attn_report_destroy(report);
    cr_assert_eq(attn_context_get_report(context, &report, NULL), ATTN_OK);
    cr_assert_null(attn_report_get_file(report, 0));
    attn_report_destroy(report);
    attn_context_destroy(context);
}

Test(report, inspect_of_a_loaded_file_tells_what_is_known)
{
    malformed_add(&malformed, "good", "libattn-a.so");
    malformed_add(&malformed, "entry-fails", "libattn-b.so");
    malformed_add(&malformed, "second", "libattn-c.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    struct attn_report *report = inspect(context, malformed_path(&malformed, "libattn-a.so"));
    cr_assert_eq(attn_report_get_file(report, 0)->stage, ATTN_STAGE_READY);
    attn_report_destroy(report);
    /* The name is taken in the registry; the file on its own is good. */
    report = inspect(context, malformed_path(&malformed, "libattn-c.so"));
    cr_assert_eq(attn_report_get_file(report, 0)->stage, ATTN_STAGE_READY);
    attn_report_destroy(report);
    attn_context_destroy(context);
}

Test(report, inspect_judges_the_whole_path)
{
    cr_assert_eq(mkdir(malformed_path(&malformed, "open"), 0777), 0);
    cr_assert_eq(chmod(malformed_path(&malformed, "open"), 0777), 0);
    malformed_add(&malformed, "good", "open/libattn-a.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    struct attn_report *report = inspect(context, malformed_path(&malformed, "open/libattn-a.so"));
    cr_assert_eq(attn_report_get_file(report, 0)->reason, ATTN_REASON_UNTRUSTED_MODE);
    cr_assert_str_eq(attn_report_get_file(report, 0)->name, "");
    attn_report_destroy(report);
    attn_context_destroy(context);
}

Test(report, a_refused_file_does_not_hide_the_next_of_its_name)
{
    const struct attn_axis *axes;
    struct attn_error err;
    uint32_t count;
    ATTN_INIT(&err);
    malformed_add(&malformed, "too-new", "libattn-a.so");
    malformed_add(&malformed, "good", "libattn-b.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_get_axes(context, "mock/flash-attn", &axes, &count, &err), ATTN_OK, "%s",
                 err.message);
    attn_context_destroy(context);
}

/* Not in /tmp, which is refused anyway. */
Test(report, an_elevated_process_inspects_no_file_elsewhere)
{
    char path[4096];
    struct attn_context *context = malformed_context(&malformed, NULL);
    snprintf(path, sizeof path, "%s/libattn-good.so", getenv("MOCK_DIR"));
    context->env.elevated = true;
    struct attn_report *report = inspect(context, path);
    cr_assert_neq(attn_report_get_file(report, 0)->reason, 0);
    attn_report_destroy(report);
    attn_context_destroy(context);
}

Test(report, arguments_are_checked)
{
    struct attn_report *report;
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_get_report(NULL, &report, NULL), ATTN_E_INVALID);
    cr_assert_eq(attn_context_get_report(context, NULL, NULL), ATTN_E_INVALID);
    cr_assert_eq(attn_context_inspect(context, NULL, &report, NULL), ATTN_E_INVALID);
    cr_assert_eq(attn_context_inspect(context, "", &report, NULL), ATTN_E_INVALID);
    cr_assert_null(attn_report_get_file(NULL, 0));
    attn_report_destroy(NULL);
    attn_context_destroy(context);
}
