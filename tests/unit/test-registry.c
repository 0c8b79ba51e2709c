/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Files of every kind in one directory: each is listed with its reason, and none takes the good one down. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* Whether the bytes of a file are part of this process. */
static bool is_mapped(const char *name)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    cr_assert_not_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        found = found || strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

static struct attn_report *report_of(struct attn_context *context)
{
    struct attn_report *report;
    cr_assert_eq(attn_context_get_report(context, &report, NULL), ATTN_OK);
    return report;
}

/* Reason and stage of one file as of now. */
static void expect(struct attn_context *context, const char *name, uint32_t reason, uint32_t stage)
{
    struct attn_report *report = report_of(context);
    const struct attn_file_record *record = malformed_file(report, name);
    cr_assert_not_null(record, "%s is not in the report", name);
    cr_assert_eq(record->reason, reason, "%s: %s (%s) instead of %s", name, attn_reason_name(record->reason),
                 record->text, attn_reason_name(reason));
    cr_assert_eq(record->stage, stage, "%s: %s instead of %s", name, attn_stage_name(record->stage),
                 attn_stage_name(stage));
    if (reason != 0)
        cr_assert(record->text[0] != '\0' && record->advice[0] != '\0');
    else
        cr_assert(record->text[0] == '\0' && record->advice[0] == '\0');
    attn_report_destroy(report);
}

TestSuite(registry, .init = set_up, .fini = tear_down);

struct kind {
    char mock[24];
    char says[64];
    uint32_t reason, stage;
};

ParameterizedTestParameters(registry, each_fault_has_its_reason)
{
    static struct kind kinds[] = {
        {"good", "", 0, ATTN_STAGE_READY},
        {"many", "", 0, ATTN_STAGE_READY},
        {"no-note", "no note", ATTN_REASON_NO_NOTE, ATTN_STAGE_TRUSTED},
        {"bad-note", "Mock!", ATTN_REASON_BAD_NOTE, ATTN_STAGE_TRUSTED},
        {"too-new", "0.99", ATTN_REASON_ABI_TOO_NEW, ATTN_STAGE_TRUSTED},
        {"too-old", "0.0", ATTN_REASON_ABI_TOO_OLD, ATTN_STAGE_TRUSTED},
        {"class", "device class 1", ATTN_REASON_NOTE_MISMATCH, ATTN_STAGE_LOADED},
        {"no-entry", "attn_plugin_entry_v1", ATTN_REASON_NO_ENTRY, ATTN_STAGE_LOADED},
        {"entry-fails", "does not want to", ATTN_REASON_ENTRY_FAILED, ATTN_STAGE_LOADED},
        {"short-table", "struct_size", ATTN_REASON_STRUCT_TOO_SHORT, ATTN_STAGE_LOADED},
        {"no-run", "mock/flash-attn: plan.run", ATTN_REASON_MISSING_FUNCTION, ATTN_STAGE_LOADED},
        {"no-graphs", "", 0, ATTN_STAGE_READY},
        {"lone-builder", "mock/flash-attn: state is NULL", ATTN_REASON_MISSING_FUNCTION, ATTN_STAGE_LOADED},
        {"half-of-graphs", "2 of the 6 functions for graphs", ATTN_REASON_MISSING_FUNCTION,
         ATTN_STAGE_LOADED},
        {"no-layer-destroy", "mock/flash-attn: layer.destroy", ATTN_REASON_MISSING_FUNCTION,
         ATTN_STAGE_LOADED},
        {"no-sizes", "ATTN_STATE_SIZES", ATTN_REASON_STRUCT_TOO_SHORT, ATTN_STAGE_LOADED},
        {"device-name", "calls its devices \"My GPU\"", ATTN_REASON_NOTE_MISMATCH, ATTN_STAGE_LOADED},
        {"mismatch", "2 (mock/flash-attn,mock/flashinfer)", ATTN_REASON_NOTE_MISMATCH, ATTN_STAGE_LOADED},
        {"needs-symbol", "mock_symbol_that_nobody_has", ATTN_REASON_UNDEFINED_SYMBOL, ATTN_STAGE_NOTE},
        {"needs-library", "libmock-dependency.so", ATTN_REASON_MISSING_LIBRARY, ATTN_STAGE_NOTE},
        {"no-driver", "", 0, ATTN_STAGE_READY},
    };
    return cr_make_param_array(struct kind, kinds, sizeof kinds / sizeof kinds[0]);
}

ParameterizedTest(struct kind *kind, registry, each_fault_has_its_reason)
{
    malformed_add(&malformed, kind->mock, "libattn-it.so");
    malformed_add(&malformed, "other", "libattn-sane.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_not(is_mapped("libattn-it.so"), "nothing is loaded by attn_context_create");
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    expect(context, "libattn-it.so", kind->reason, kind->stage);
    expect(context, "libattn-sane.so", 0, ATTN_STAGE_READY);
    struct attn_report *report = report_of(context);
    const struct attn_file_record *record = malformed_file(report, "libattn-it.so");
    cr_assert(strstr(record->text, kind->says) != NULL, "%s", record->text);
    if (kind->reason == ATTN_REASON_MISSING_LIBRARY)
        cr_assert_str_eq(record->library, "libmock-dependency.so");
    cr_assert_eq(record->linker[0] != '\0', kind->stage == ATTN_STAGE_NOTE, "%s", record->linker);
    attn_report_destroy(report);
    attn_context_destroy(context);
}

Test(registry, the_entry_of_a_dependency_does_not_count)
{
    malformed_add(&malformed, "needs-library", "libattn-it.so");
    malformed_add_dependency(&malformed);
    cr_assert_eq(chdir(malformed.path), 0);
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    expect(context, "libattn-it.so", ATTN_REASON_ENTRY_NOT_OWN, ATTN_STAGE_LOADED);
    struct attn_report *report = report_of(context);
    cr_assert(strstr(attn_report_get_file(report, 0)->text, "libmock-dependency.so") != NULL);
    attn_report_destroy(report);
    attn_context_destroy(context);
}

Test(registry, what_is_no_plugin_file)
{
    malformed_write(&malformed, "libattn-empty.so", "", 0);
    malformed_write(&malformed, "libattn-text.so", "hello\n", 6);
    malformed_write(&malformed, "attn-cpu.so", "x", 1);
    malformed_write(&malformed, "libattn-cpu.so.1", "x", 1);
    cr_assert_eq(mkdir(malformed_path(&malformed, "libattn-directory.so"), 0755), 0);
    cr_assert_eq(mkfifo(malformed_path(&malformed, "libattn-fifo.so"), 0644), 0);
    cr_assert_eq(symlink("nowhere", malformed_path(&malformed, "libattn-dangling.so")), 0);
    malformed_write(&malformed, "libattn-open.so", "x", 1);
    cr_assert_eq(chmod(malformed_path(&malformed, "libattn-open.so"), 0646), 0);
    malformed_add(&malformed, "good", "libattn-zz.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    struct attn_report *report = report_of(context);
    /* In byte order, and nothing of another name. */
    static const char *const names[] = {"libattn-dangling.so", "libattn-directory.so", "libattn-empty.so",
                                        "libattn-fifo.so",     "libattn-open.so",      "libattn-text.so",
                                        "libattn-zz.so"};
    for (uint32_t i = 0; i < 7; i++)
        cr_assert_str_eq(strrchr(attn_report_get_file(report, i)->path, '/') + 1, names[i]);
    cr_assert_null(attn_report_get_file(report, 7));
    attn_report_destroy(report);
    expect(context, "libattn-dangling.so", ATTN_REASON_UNREADABLE, ATTN_STAGE_FOUND);
    expect(context, "libattn-directory.so", ATTN_REASON_NOT_A_FILE, ATTN_STAGE_FOUND);
    expect(context, "libattn-empty.so", ATTN_REASON_NOT_ELF, ATTN_STAGE_TRUSTED);
    expect(context, "libattn-fifo.so", ATTN_REASON_NOT_A_FILE, ATTN_STAGE_FOUND);
    expect(context, "libattn-open.so", ATTN_REASON_UNTRUSTED_MODE, ATTN_STAGE_FOUND);
    expect(context, "libattn-text.so", ATTN_REASON_NOT_ELF, ATTN_STAGE_TRUSTED);
    expect(context, "libattn-zz.so", 0, ATTN_STAGE_READY);
    attn_context_destroy(context);
}

Test(registry, short_copies_beside_a_good_one)
{
    size_t size;
    unsigned char *bytes = malformed_read("good", &size);
    for (size_t i = 0; i < 40; i++) {
        char name[64];
        snprintf(name, sizeof name, "libattn-cut-%02zu.so", i);
        malformed_write(&malformed, name, bytes, size * i / 40);
    }
    free(bytes);
    malformed_add(&malformed, "other", "libattn-other.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    expect(context, "libattn-other.so", 0, ATTN_STAGE_READY);
    struct attn_report *report = report_of(context);
    const struct attn_file_record *record;
    for (uint32_t i = 0; i < 40; i++) {
        record = attn_report_get_file(report, i);
        /* Without its section headers alone the file is still whole for the loader. */
        cr_assert(record->reason == ATTN_REASON_NOT_ELF || record->reason == ATTN_REASON_TRUNCATED ||
                      record->stage == ATTN_STAGE_READY || record->reason == ATTN_REASON_DUPLICATE,
                  "%s: %s", record->path, record->text);
    }
    cr_assert_eq(attn_report_get_file(report, 1)->reason, ATTN_REASON_TRUNCATED);
    attn_report_destroy(report);
    attn_context_destroy(context);
}

Test(registry, the_second_of_a_name_is_a_duplicate)
{
    malformed_add(&malformed, "good", "libattn-a.so");
    malformed_add(&malformed, "second", "libattn-b.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    expect(context, "libattn-a.so", 0, ATTN_STAGE_READY);
    expect(context, "libattn-b.so", ATTN_REASON_DUPLICATE, ATTN_STAGE_NOTE);
    cr_assert_not(is_mapped("libattn-b.so"));
    attn_context_destroy(context);
}

Test(registry, an_open_file_keeps_its_name_when_an_earlier_one_comes)
{
    malformed_add(&malformed, "good", "libattn-b.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    malformed_add(&malformed, "second", "libattn-a.so");
    cr_assert_eq(attn_context_rescan(context, NULL), ATTN_OK);
    expect(context, "libattn-a.so", ATTN_REASON_DUPLICATE, ATTN_STAGE_NOTE);
    expect(context, "libattn-b.so", 0, ATTN_STAGE_READY);
    attn_context_destroy(context);
}

Test(registry, while_the_first_of_a_name_fails_the_next_is_opened)
{
    malformed_add(&malformed, "too-new", "libattn-a.so");
    malformed_add(&malformed, "entry-fails", "libattn-b.so");
    malformed_add(&malformed, "no-run", "libattn-c.so");
    malformed_add(&malformed, "second", "libattn-d.so");
    malformed_add(&malformed, "good", "libattn-e.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    expect(context, "libattn-a.so", ATTN_REASON_ABI_TOO_NEW, ATTN_STAGE_TRUSTED);
    expect(context, "libattn-b.so", ATTN_REASON_ENTRY_FAILED, ATTN_STAGE_LOADED);
    expect(context, "libattn-c.so", ATTN_REASON_MISSING_FUNCTION, ATTN_STAGE_LOADED);
    expect(context, "libattn-d.so", 0, ATTN_STAGE_READY);
    expect(context, "libattn-e.so", ATTN_REASON_DUPLICATE, ATTN_STAGE_NOTE);
    /* Nor does a rescan make duplicates of those before the one that is used. */
    cr_assert_eq(attn_context_rescan(context, NULL), ATTN_OK);
    expect(context, "libattn-b.so", ATTN_REASON_ENTRY_FAILED, ATTN_STAGE_LOADED);
    expect(context, "libattn-d.so", 0, ATTN_STAGE_READY);
    attn_context_destroy(context);
}

Test(registry, a_question_to_a_backend_says_why_its_file_is_refused)
{
    const struct attn_axis *axes;
    uint32_t count;
    struct attn_error err;
    ATTN_INIT(&err);
    malformed_add(&malformed, "too-new", "libattn-a.so");
    malformed_add(&malformed, "too-old", "libattn-b.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_get_axes(context, "mock/flash-attn", &axes, &count, &err), ATTN_E_PLUGIN);
    cr_assert_eq(err.reason, ATTN_REASON_ABI_TOO_NEW, "%s", err.message);
    attn_context_destroy(context);
}

Test(registry, a_second_name_of_a_file_is_a_duplicate)
{
    malformed_add(&malformed, "good", "libattn-a.so");
    cr_assert_eq(link(malformed_path(&malformed, "libattn-a.so"), malformed_path(&malformed, "libattn-b.so")),
                 0);
    cr_assert_eq(symlink("libattn-a.so", malformed_path(&malformed, "libattn-c.so")), 0);
    struct attn_context *context = malformed_context(&malformed, NULL);
    expect(context, "libattn-b.so", ATTN_REASON_DUPLICATE, ATTN_STAGE_NOTE);
    expect(context, "libattn-c.so", ATTN_REASON_DUPLICATE, ATTN_STAGE_NOTE);
    attn_context_destroy(context);
}

Test(registry, the_same_number_on_another_device_is_another_file)
{
    malformed_add(&malformed, "good", "libattn-a.so");
    malformed_add(&malformed, "other", "libattn-b.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(context->plugin_count, 2);
    context->plugins[1]->identity.inode = context->plugins[0]->identity.inode;
    pthread_mutex_lock(&context->lock);
    attn__registry_resolve_duplicates(context);
    pthread_mutex_unlock(&context->lock);
    cr_assert_eq(context->plugins[1]->reason, ATTN_REASON_DUPLICATE);
    context->plugins[1]->identity.device++;
    pthread_mutex_lock(&context->lock);
    attn__registry_resolve_duplicates(context);
    pthread_mutex_unlock(&context->lock);
    cr_assert_eq(context->plugins[1]->reason, 0);
    attn_context_destroy(context);
}

Test(registry, links_to_plugins_are_followed)
{
    cr_assert_eq(mkdir(malformed_path(&malformed, "lib"), 0755), 0);
    malformed_add(&malformed, "good", "lib/plugin");
    cr_assert_eq(symlink("lib/plugin", malformed_path(&malformed, "libattn-a.so")), 0);
    struct attn_context *context = malformed_context(&malformed, NULL);
    expect(context, "libattn-a.so", 0, ATTN_STAGE_NOTE);
    cr_assert_eq(chmod(malformed_path(&malformed, "lib"), 0777), 0);
    cr_assert_eq(attn_context_rescan(context, NULL), ATTN_OK);
    expect(context, "libattn-a.so", ATTN_REASON_UNTRUSTED_MODE, ATTN_STAGE_FOUND);
    attn_context_destroy(context);
}

Test(registry, rescan_sees_new_and_vanished_files)
{
    malformed_add(&malformed, "good", "libattn-a.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    malformed_add(&malformed, "other", "libattn-b.so");
    cr_assert_eq(unlink(malformed_path(&malformed, "libattn-a.so")), 0);
    cr_assert_eq(attn_context_rescan(context, NULL), ATTN_OK);
    struct attn_report *report = report_of(context);
    cr_assert_null(malformed_file(report, "libattn-a.so"));
    cr_assert_not_null(malformed_file(report, "libattn-b.so"));
    attn_report_destroy(report);

    /* A file that comes back as it was has its old record again, at the same address. */
    cr_assert_eq(chmod(malformed.path, 0777), 0);
    const struct attn__plugin *record = context->plugins[0];
    cr_assert_eq(attn_context_rescan(context, NULL), ATTN_OK);
    cr_assert(record->vanished);
    cr_assert_not(attn__plugin_is_usable(record));
    cr_assert_eq(chmod(malformed.path, 0755), 0);
    cr_assert_eq(attn_context_rescan(context, NULL), ATTN_OK);
    cr_assert_not(record->vanished);
    cr_assert_eq(context->plugins[0], record);
    expect(context, "libattn-b.so", 0, ATTN_STAGE_NOTE);
    attn_context_destroy(context);
}

Test(registry, a_loaded_file_stays_when_it_vanishes)
{
    malformed_add(&malformed, "good", "libattn-a.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    cr_assert_eq(unlink(malformed_path(&malformed, "libattn-a.so")), 0);
    cr_assert_eq(attn_context_rescan(context, NULL), ATTN_OK);
    expect(context, "libattn-a.so", 0, ATTN_STAGE_READY);
    attn_context_destroy(context);
}

Test(registry, a_failed_file_is_opened_again_after_a_rescan)
{
    malformed_add(&malformed, "needs-symbol", "libattn-a.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    expect(context, "libattn-a.so", ATTN_REASON_UNDEFINED_SYMBOL, ATTN_STAGE_NOTE);
    malformed_add(&malformed, "good", "libattn-a.so");
    cr_assert_eq(attn_context_rescan(context, NULL), ATTN_OK);
    expect(context, "libattn-a.so", 0, ATTN_STAGE_NOTE);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    expect(context, "libattn-a.so", 0, ATTN_STAGE_READY);
    attn_context_destroy(context);
}

Test(registry, a_file_that_changed_since_its_note_was_read_is_not_loaded)
{
    malformed_add(&malformed, "good", "libattn-a.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    malformed_add(&malformed, "second", "libattn-a.so");
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    expect(context, "libattn-a.so", ATTN_REASON_CHANGED_WHILE_LOADING, ATTN_STAGE_NOTE);
    cr_assert_not(is_mapped("libattn-a.so"));
    attn_context_destroy(context);
}

Test(registry, a_new_version_of_a_loaded_file_waits_for_the_next_process)
{
    malformed_add(&malformed, "good", "libattn-a.so");
    struct attn_context *first = malformed_context(&malformed, NULL), *later;
    cr_assert_eq(attn_context_load_all(first, NULL), ATTN_OK);
    malformed_add(&malformed, "second", "libattn-a.so");

    /* In the same context: the loaded one stays, the new one says why it is not used. */
    cr_assert_eq(attn_context_rescan(first, NULL), ATTN_OK);
    struct attn_report *report = report_of(first);
    cr_assert_eq(attn_report_get_file(report, 0)->reason, ATTN_REASON_REPLACED_AFTER_LOADING);
    cr_assert_str_eq(attn_report_get_file(report, 0)->version, "2.0");
    cr_assert_eq(attn_report_get_file(report, 1)->stage, ATTN_STAGE_READY);
    cr_assert_str_eq(attn_report_get_file(report, 1)->version, "1.0");
    attn_report_destroy(report);
    uint32_t count = first->plugin_count;
    cr_assert_eq(attn_context_rescan(first, NULL), ATTN_OK);
    cr_assert_eq(first->plugin_count, count, "a rescan that finds nothing new keeps the records");
    attn_context_destroy(first);

    /* In a later one: the linker would give the old image again. */
    later = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_load_all(later, NULL), ATTN_OK);
    expect(later, "libattn-a.so", ATTN_REASON_REPLACED_AFTER_LOADING, ATTN_STAGE_NOTE);
    attn_context_destroy(later);
}

Test(registry, contexts_load_the_same_file_independently)
{
    malformed_add(&malformed, "good", "libattn-a.so");
    struct attn_context *a = malformed_context(&malformed, NULL), *b = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_load_all(a, NULL), ATTN_OK);
    cr_assert_eq(attn_context_load_all(b, NULL), ATTN_OK);
    attn_context_destroy(a);
    expect(b, "libattn-a.so", 0, ATTN_STAGE_READY);
    attn_context_destroy(b);
}

Test(registry, a_child_after_fork_may_only_destroy)
{
    malformed_add(&malformed, "good", "libattn-a.so");
    struct attn_context *context = malformed_context(&malformed, NULL);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    pid_t child = fork();
    if (child == 0) {
        struct attn_error err;
        struct attn_report *report;
        ATTN_INIT(&err);
        int wrong = attn_context_rescan(context, &err) != ATTN_E_STATE || strstr(err.message, "fork") == NULL;
        wrong |= (attn_context_load_all(context, NULL) != ATTN_E_STATE) << 1;
        wrong |= (attn_context_get_report(context, &report, NULL) != ATTN_E_STATE) << 2;
        attn_context_destroy(context);
        context = malformed_context(&malformed, NULL);
        wrong |= (attn_context_load_all(context, NULL) != ATTN_OK) << 3;
        attn_context_destroy(context);
        _exit(wrong);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0, "status %#x", (unsigned)status);
    attn_context_destroy(context);
}

Test(registry, options_are_checked)
{
    struct attn_context *context;
    struct attn_error err;
    struct attn_context_options options;
    ATTN_INIT(&err);
    cr_assert_eq(attn_context_create(NULL, NULL, &err), ATTN_E_INVALID);
    memset(&options, 0, sizeof options);
    cr_assert_eq(attn_context_create(&options, &context, &err), ATTN_E_INVALID);
    cr_assert(strstr(err.message, "struct_size 0") != NULL, "%s", err.message);
    ATTN_INIT(&options);
    options.given = 8;
    cr_assert_eq(attn_context_create(&options, &context, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, "given");
    struct {
        struct attn_context_options options;
        uint64_t newer;
    } larger;
    memset(&larger, 0, sizeof larger);
    larger.options.struct_size = sizeof larger;
    larger.options.given = ATTN_GIVEN_LOG;
    cr_assert_eq(attn_context_create(&larger.options, &context, &err), ATTN_OK, "%s", err.message);
    attn_context_destroy(context);
    larger.newer = 1;
    cr_assert_eq(attn_context_create(&larger.options, &context, &err), ATTN_E_INVALID);
    attn_context_destroy(NULL);
}
