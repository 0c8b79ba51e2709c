/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the file itself tells: functions that run on loading, and functions that no plugin may call. */
#include <stdio.h>
#include <string.h>

#include "image.h"
#include "side-effects.h"

/* What the toolchain adds by itself: tables of clones, and the runtimes of sanitizers and coverage. */
static const char *const toolchain[] = {
    "frame_dummy",
    "__do_global_dtors_aux",
    "_init",
    "_fini",
    "register_tm_clones",
    "deregister_tm_clones",
    "asan.module_ctor",
    "asan.module_dtor",
    "tsan.module_ctor",
    "msan.module_ctor",
    "__gcov_init",
    "init_have_lse_atomics",
    "__cpu_indicator_init",
};

static bool is_toolchain(const char *name)
{
    for (size_t i = 0; i < sizeof toolchain / sizeof toolchain[0]; i++)
        if (strcmp(toolchain[i], name) == 0)
            return true;
    return strncmp(name, "_sub_I_", strlen("_sub_I_")) == 0; /* of gcc's sanitizers */
}

typedef bool (*get_fn)(const struct image *image, uint32_t index, const char **out_name);

/* In a stripped file so many functions without a name are the toolchain's. */
static void judge_functions(struct isolated *isolated, const struct image *image, const char *name,
                            get_fn get, uint32_t nameless_at_most)
{
    uint32_t nameless = 0;
    const char *function;

    for (uint32_t i = 0; get(image, i, &function); i++) {
        if (is_toolchain(function) || (function[0] == '\0' && ++nameless <= nameless_at_most))
            continue;
        if (image->fat) /* the runtime registers the device code */
            continue;
        isolated_fail(isolated, name, "ATTN_P5: function number %u, %s, runs by itself", i,
                      function[0] != '\0' ? function : "without a name");
        return;
    }
    isolated_pass(isolated, name);
}

/* Functions and variables of the C library, with the rule that forbids them. */
static const struct forbidden {
    const char *line; /* as reported */
    const char *rule;
    const char *names; /* each between spaces */
} forbidden[] = {
    {"imports: environment", "ATTN_P16: options come from get_option",
     " getenv secure_getenv __secure_getenv setenv unsetenv putenv clearenv environ __environ _environ "},
    {"imports: ends", "ATTN_P18: a plugin never ends the process",
     " exit _exit _Exit quick_exit abort raise "},
    {"imports: prints", "ATTN_P13: nothing is printed",
     " printf vprintf __printf_chk __vprintf_chk puts putchar putchar_unlocked perror psignal psiginfo "
     "stdout stderr stdin scanf getchar gets syslog vsyslog __syslog_chk openlog error warn warnx err errx "},
    {"imports: exit handlers", "ATTN_P13: no exit, fork or unload handlers",
     " __cxa_atexit atexit on_exit at_quick_exit __cxa_at_quick_exit __register_atfork pthread_atfork "},
    {"imports: process state", "ATTN_P13: the process is not the plugin's",
     " setlocale umask chdir fchdir chroot signal bsd_signal sysv_signal __sysv_signal sigset setrlimit "
     "setrlimit64 prlimit prlimit64 alarm setitimer personality daemon setsid setpgid setuid setgid srand "
     "srandom mallopt __malloc_hook __free_hook __realloc_hook __memalign_hook vfork fork execve execvp "
     "execv system popen "},
};

static bool is_forbidden(const struct forbidden *entry, const char *name)
{
    char word[80];

    if (name[0] == '\0' || snprintf(word, sizeof word, " %s ", name) >= (int)sizeof word)
        return false;
    return strstr(entry->names, word) != NULL;
}

/* A GPU runtime that is linked statically brings imports of its own. */
static void judge_imports(struct isolated *isolated, const struct image *image)
{
    struct image_symbol symbol;

    for (size_t f = 0; f < sizeof forbidden / sizeof forbidden[0]; f++) {
        for (uint32_t i = 0; !image->fat && image_get_symbol(image, i, &symbol); i++) {
            if (!symbol.defined && is_forbidden(&forbidden[f], symbol.name))
                isolated_fail(isolated, forbidden[f].line, "%s; the file imports %s", forbidden[f].rule,
                              symbol.name);
        }
        isolated_pass(isolated, forbidden[f].line);
    }
}

void read_file(struct isolated *isolated, const char *plugin)
{
    struct image image;
    char why[512];

    isolated_stage(isolated, "reading the file");
    if (!image_open(&image, plugin, why, sizeof why)) {
        isolated_fail(isolated, "file", "%s", why);
        return;
    }
    /* frame_dummy, and libgcc's look at the processor where __builtin_cpu_supports is used. */
    judge_functions(isolated, &image, "constructors", image_get_constructor, 2);
    judge_functions(isolated, &image, "destructors", image_get_destructor, 1);
    judge_imports(isolated, &image);
    image_close(&image);
}
