/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A plugin path that holds one file alone, whatever that file is called. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conform.h"
#include "output.h"

static char directory[PATH_MAX];
static char file_path[PATH_MAX];

const char *plugin_path(void)
{
    return directory;
}

const char *plugin_path_file(void)
{
    return file_path;
}

/* A variable of the library would change what is loaded and chosen; those of a plugin are its own business.
 */
static void clean_environment(void)
{
    static const char *const names[] = {
        "ATTN_BACKEND",   "ATTN_STRICT",  "ATTN_DISABLE",       "ATTN_PLUGIN_PATH", "ATTN_PLUGIN_PATH_ADD",
        "ATTN_CPU_FLAGS", "ATTN_THREADS", "ATTN_DETERMINISTIC", "ATTN_LOG",         "ATTN_LOG_FILE"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    /* The checks are the probe, and they run in a child process already. */
    setenv("ATTN_PROBE", "never", 1);
}

int plugin_path_make(const char *file)
{
    const char *base = getenv("TMPDIR"), *name;
    char link[PATH_MAX + 128];

    if (realpath(file, file_path) == NULL) {
        complain("%s: %s", file, strerror(errno));
        return EXIT_MISSING;
    }
    snprintf(directory, sizeof directory, "%s/attn-check-XXXXXX",
             base != NULL && *base == '/' && strlen(base) < PATH_MAX / 2 ? base : "/tmp");
    if (mkdtemp(directory) == NULL) {
        complain("%s: %s", directory, strerror(errno));
        directory[0] = '\0';
        return EXIT_NO;
    }
    clean_environment();
    name = strrchr(file_path, '/') + 1;
    if (fnmatch("libattn-*.so", name, FNM_PERIOD) != 0)
        name = "libattn-plugin.so";
    snprintf(link, sizeof link, "%s/%s", directory, name);
    if (symlink(file_path, link) == 0)
        return 0;
    complain("%s: %s", link, strerror(errno));
    plugin_path_remove();
    return EXIT_NO;
}

/* The link, and the library's cache of probe results. */
void plugin_path_remove(void)
{
    DIR *dir = directory[0] != '\0' ? opendir(directory) : NULL;

    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir != NULL)
        closedir(dir);
    if (directory[0] != '\0')
        rmdir(directory);
    directory[0] = '\0';
}
