/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The search path, and who is trusted on it. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "malformed.h"
#include "plugin/loader.h"

static struct malformed malformed;
static struct attn__scan scan;
static struct attn__directory *directories;
static uint32_t count;

static void set_up(void)
{
    malformed_create(&malformed);
    chmod(malformed.path, 0755);
}

static void tear_down(void)
{
    malformed_remove(&malformed);
}

static void make(const char *name, mode_t mode)
{
    cr_assert_eq(mkdir(malformed_path(&malformed, name), 0700), 0);
    cr_assert_eq(chmod(malformed_path(&malformed, name), mode), 0);
}

/* The search path under "NAME=VALUE" strings and an option. */
static void search(char *const *environment, const char *option, bool elevated)
{
    struct attn__env env;
    cr_assert_eq(attn__env_init_from(&env, NULL, environment, elevated, NULL), ATTN_OK);
    attn__scan_path(&scan, &env, option);
    directories = scan.directories;
    count = scan.directory_count;
    attn__env_finish(&env);
}

static void search_option(const char *option)
{
    char *none[] = {NULL};
    search(none, option, false);
}

static void forget(void)
{
    attn__scan_finish(&scan);
    directories = NULL;
}

TestSuite(path, .init = set_up, .fini = tear_down);

Test(path, order_of_the_search)
{
    char replace[512], add[512];
    make("a", 0755);
    make("b", 0755);
    snprintf(add, sizeof add, "ATTN_PLUGIN_PATH_ADD=%s:%s", malformed_path(&malformed, "b"),
             malformed_path(&malformed, "a"));
    snprintf(replace, sizeof replace, "ATTN_PLUGIN_PATH=%s//", malformed_path(&malformed, "a"));

    char *only_add[] = {add, NULL};
    search(only_add, NULL, false);
    cr_assert(count >= 3 && count <= 4);
    cr_assert_str_eq(directories[0].path, malformed_path(&malformed, "b"));
    cr_assert_str_eq(directories[0].origin, "ATTN_PLUGIN_PATH_ADD");
    cr_assert_str_eq(directories[1].path, malformed_path(&malformed, "a"));
    cr_assert_str_eq(directories[2].origin, "libattn");
    cr_assert_str_eq(strrchr(directories[2].path, '/'), "/attn");
    cr_assert_eq(directories[0].reason, 0);
    forget();

    char *both[] = {add, replace, NULL};
    search(both, NULL, false);
    cr_assert_eq(count, 1);
    cr_assert_str_eq(directories[0].origin, "ATTN_PLUGIN_PATH");
    cr_assert_str_eq(directories[0].path, malformed_path(&malformed, "a"), "without slashes at its end");
    forget();

    search(both, malformed_path(&malformed, "b"), false);
    cr_assert_eq(count, 1);
    cr_assert_str_eq(directories[0].path, malformed_path(&malformed, "b"));
    cr_assert_str_eq(directories[0].origin, "option");
    forget();
}

Test(path, the_compiled_in_directory_is_the_last)
{
    char *none[] = {NULL};
    search(none, NULL, false);
    cr_assert_str_eq(directories[count - 1].path, ATTN_PLUGIN_DIR);
    cr_assert_str_eq(directories[count - 1].origin, "compiled-in");
    forget();
}

Test(path, elevated_processes_search_the_compiled_in_directory_alone)
{
    char *environment[] = {"ATTN_PLUGIN_PATH=/tmp", "ATTN_PLUGIN_PATH_ADD=/tmp", NULL};
    search(environment, "/tmp", true);
    cr_assert_eq(count, 1);
    cr_assert_str_eq(directories[0].origin, "compiled-in");
    forget();
}

Test(path, a_directory_is_listed_once)
{
    char list[1024];
    make("a", 0755);
    cr_assert_eq(symlink("a", malformed_path(&malformed, "link")), 0);
    snprintf(list, sizeof list, ":%s:%s/:%s/./../a::%s:", malformed_path(&malformed, "a"),
             malformed_path(&malformed, "a"), malformed_path(&malformed, "a"),
             malformed_path(&malformed, "link"));
    search_option(list);
    cr_assert_eq(count, 1);
    cr_assert_str_eq(directories[0].path, malformed_path(&malformed, "a"));
    forget();
}

Test(path, what_is_not_there_is_told)
{
    char list[1024];
    malformed_write(&malformed, "file", "x", 1);
    snprintf(list, sizeof list, "%s:%s:%s/below", malformed_path(&malformed, "absent"),
             malformed_path(&malformed, "file"), malformed_path(&malformed, "file"));
    search_option(list);
    cr_assert_eq(count, 3);
    cr_assert_eq(directories[0].reason, ATTN_REASON_UNREADABLE);
    cr_assert(strstr(directories[0].text, "does not exist") != NULL, "%s", directories[0].text);
    cr_assert_eq(directories[1].reason, ATTN_REASON_NOT_A_FILE);
    cr_assert_eq(directories[2].reason, ATTN_REASON_NOT_A_FILE);
    forget();
}

Test(path, relative_directories_become_absolute)
{
    make("a", 0755);
    cr_assert_eq(chdir(malformed.path), 0);
    search_option("a");
    cr_assert_eq(count, 1);
    cr_assert_str_eq(directories[0].path, malformed_path(&malformed, "a"));
    forget();
}

Test(path, directories_writable_by_others_are_refused)
{
    char text[512];
    make("open", 0757);
    make("open/below", 0755);
    search_option(malformed_path(&malformed, "open/below"));
    cr_assert_eq(directories[0].reason, ATTN_REASON_UNTRUSTED_MODE);
    snprintf(text, sizeof text, "%s is writable by others (mode 0757)", malformed_path(&malformed, "open"));
    cr_assert_str_eq(directories[0].text, text);
    forget();
}

Test(path, sticky_directories_are_accepted)
{
    make("sticky", 01777);
    make("sticky/below", 0755);
    search_option(malformed_path(&malformed, "sticky/below"));
    cr_assert_eq(directories[0].reason, 0, "%s", directories[0].text);
    cr_assert_eq(directories[0].group_writable, 0);
    forget();
}

Test(path, group_writable_is_accepted_and_shown)
{
    make("group", 0775);
    make("group/below", 0755);
    search_option(malformed_path(&malformed, "group/below"));
    cr_assert_eq(directories[0].reason, 0, "%s", directories[0].text);
    cr_assert_eq(directories[0].group_writable, 1);
    cr_assert(strstr(directories[0].text, "group") != NULL);
    forget();
}

Test(path, links_are_judged_by_both_sides)
{
    char target[256];
    make("open", 0757);
    make("open/below", 0755);
    make("good", 0755);
    /* A good name that leads to a bad place. */
    cr_assert_eq(symlink("open/below", malformed_path(&malformed, "to-bad")), 0);
    search_option(malformed_path(&malformed, "to-bad"));
    cr_assert_eq(directories[0].reason, ATTN_REASON_UNTRUSTED_MODE);
    forget();
    /* A good place under a name that others may change. */
    snprintf(target, sizeof target, "%s", malformed_path(&malformed, "good"));
    cr_assert_eq(symlink(target, malformed_path(&malformed, "open/to-good")), 0);
    search_option(malformed_path(&malformed, "open/to-good"));
    cr_assert_eq(directories[0].reason, ATTN_REASON_UNTRUSTED_MODE);
    forget();
    /* Good on both sides. */
    cr_assert_eq(symlink(target, malformed_path(&malformed, "to-good")), 0);
    search_option(malformed_path(&malformed, "to-good"));
    cr_assert_eq(directories[0].reason, 0, "%s", directories[0].text);
    forget();
}

Test(path, endless_links_end)
{
    cr_assert_eq(symlink("b", malformed_path(&malformed, "a")), 0);
    cr_assert_eq(symlink("a", malformed_path(&malformed, "b")), 0);
    search_option(malformed_path(&malformed, "a"));
    cr_assert_eq(directories[0].reason, ATTN_REASON_UNREADABLE);
    forget();
}

static char text[512];
static const struct attn__words words = {text, sizeof text};

Test(path, a_link_to_the_root_ends_at_the_root)
{
    struct attn__trust trust;
    struct attn__walk walk = {.trust = &trust, .words = &words};
    struct stat root;
    cr_assert_eq(symlink("/", malformed_path(&malformed, "root")), 0);
    attn__trust_init(&trust, false);
    cr_assert_eq(attn__trust_walk(&walk, malformed_path(&malformed, "root")), 0, "%s", text);
    cr_assert_eq(stat("/", &root), 0);
    cr_assert_eq(walk.status.st_ino, root.st_ino);
}

/* The tests have the library inside: its file is their program. */
Test(path, the_owner_of_the_library)
{
    struct attn__trust trust;
    struct stat program;
    char wanted[PATH_MAX], got[PATH_MAX];
    memset(got, '#', sizeof got);
    attn__library_path(got, sizeof got);
    cr_assert_not_null(realpath("/proc/self/exe", wanted));
    cr_assert_str_eq(got, wanted);
    attn__trust_init(&trust, false);
    cr_assert_eq(stat(wanted, &program), 0);
    cr_assert_eq(trust.library, program.st_uid);
}

Test(path, owners)
{
    struct attn__trust trust = {.user = 1000, .library = 2000};
    struct attn__walk walk = {.trust = &trust, .words = &words, .status.st_mode = S_IFDIR | 0755};
    static const struct {
        uid_t owner;
        uint32_t plain, elevated;
    } cases[] = {{0, 0, 0},
                 {1000, 0, ATTN_REASON_UNTRUSTED_OWNER},
                 {2000, 0, ATTN_REASON_UNTRUSTED_OWNER},
                 {3000, ATTN_REASON_UNTRUSTED_OWNER, ATTN_REASON_UNTRUSTED_OWNER}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        walk.status.st_uid = cases[i].owner;
        trust.elevated = false;
        cr_assert_eq(attn__trust_judge(&walk, "/p"), cases[i].plain);
        trust.elevated = true;
        cr_assert_eq(attn__trust_judge(&walk, "/p"), cases[i].elevated);
    }
    cr_assert(strstr(text, "/p belongs to user 3000") != NULL, "%s", text);
}

Test(path, owners_of_links)
{
    const struct attn__trust trust = {.user = 1000};
    struct attn__walk walk = {.trust = &trust, .words = &words, .status.st_mode = S_IFLNK | 0777};
    walk.status.st_uid = 1000;
    cr_assert_eq(attn__trust_judge(&walk, "/a"), 0);
    walk.status.st_uid = 0;
    cr_assert_eq(attn__trust_judge(&walk, "/a"), 0);
    walk.status.st_uid = 1001;
    cr_assert_eq(attn__trust_judge(&walk, "/a"), ATTN_REASON_UNTRUSTED_OWNER);
}

Test(path, elevated_processes_want_root_alone_to_write)
{
    const struct attn__trust trust = {.elevated = true};
    struct attn__walk walk = {.trust = &trust, .words = &words, .status.st_mode = S_IFDIR | 0775};
    cr_assert_eq(attn__trust_judge(&walk, "/p"), ATTN_REASON_UNTRUSTED_MODE);
    walk.status.st_mode = S_IFDIR | 01777;
    cr_assert_eq(attn__trust_judge(&walk, "/p"), ATTN_REASON_UNTRUSTED_MODE);
    walk.status.st_mode = S_IFDIR | 0755;
    cr_assert_eq(attn__trust_judge(&walk, "/p"), 0);
}

Test(path, a_path_that_is_too_long_is_a_reason)
{
    static char far[5001];
    char here[1024];
    memset(far, 'x', sizeof far - 1);
    cr_assert_not_null(getcwd(here, sizeof here));
    far[0] = '/';
    search_option(far);
    cr_assert_eq(count, 1);
    cr_assert_eq(directories[0].reason, ATTN_REASON_UNREADABLE);
    cr_assert_not_null(strstr(directories[0].text, "longer than 4096 bytes"), "%s", directories[0].text);
    forget();
    /* Alone it would do; below the working directory it does not. */
    far[0] = 'x';
    far[4095 - strlen(here)] = '\0';
    search_option(far);
    cr_assert_eq(directories[0].reason, ATTN_REASON_UNREADABLE);
    cr_assert_not_null(strstr(directories[0].text, "longer than 4096 bytes"), "%s", directories[0].text);
    forget();
    /* A single name of more than 255 bytes is no directory that could be there. */
    far[0] = '/';
    far[300] = '\0';
    search_option(far);
    cr_assert_eq(directories[0].reason, ATTN_REASON_UNREADABLE);
    forget();
}
