/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Plugins that were built with one fault each. */
#include "cases.h"

#include <unistd.h>

static void add(const struct malformed *malformed, const char *kind)
{
    malformed_add(malformed, kind, CASE_FILE);
}

/* Its run path says $ORIGIN, but it may also be asked for by the name alone. */
static void add_with_dependency(const struct malformed *malformed, const char *kind)
{
    malformed_add(malformed, kind, CASE_FILE);
    malformed_add_dependency(malformed);
    if (chdir(malformed->path) != 0)
        _exit(99);
}

/* Two files of one name, of which the first is broken. */
static void add_before_good(const struct malformed *malformed, const char *kind)
{
    malformed_add(malformed, kind, "libattn-0.so");
    malformed_add(malformed, "good", CASE_FILE);
}

static void add_twice(const struct malformed *malformed, const char *kind)
{
    malformed_add(malformed, kind, "libattn-0.so");
    if (link(malformed_path(malformed, "libattn-0.so"), malformed_path(malformed, CASE_FILE)) != 0)
        _exit(99);
}

static void add_link(const struct malformed *malformed, const char *kind)
{
    malformed_add(malformed, kind, "libattn-0.so");
    if (symlink("libattn-0.so", malformed_path(malformed, CASE_FILE)) != 0)
        _exit(99);
}

#if defined(__x86_64__)
#define REGISTER      "rbx"
#define LAST_REGISTER "r15"
#else
#define REGISTER      "x19"
#define LAST_REGISTER "d15"
#endif

#define READY ATTN_STAGE_READY
#define LOAD  ATTN_STAGE_LOADED
#define NOTE  ATTN_STAGE_NOTE
#define TRUST ATTN_STAGE_TRUSTED
#define R(x)  ATTN_REASON_##x

const struct malformed_case mock_cases[] = {
    {"a good plugin", add, "good", 0, READY, "", 0},
    {"a table longer than the host's", add, "long-table", 0, READY, "", 0},
    {"more devices than there can be", add, "liar", 0, READY, "", 0},
    {"no driver", add, "no-driver", 0, READY, "", 0},
    {"no note", add, "no-note", R(NO_NOTE), TRUST, "no note of libattn", 0},
    {"a name that is none", add, "bad-note", R(BAD_NOTE), TRUST, "\"Mock!\"; a-z, 0-9, _ and - are accepted",
     0},
    {"a newer interface", add, "too-new", R(ABI_TOO_NEW), TRUST, "plugin mock was built for interface 0.99",
     0},
    {"an older interface", add, "too-old", R(ABI_TOO_OLD), TRUST, "plugin mock was built for interface 0.0",
     0},
    {"a CPU level that is not there", add, "v4", R(CPU_LEVEL), TRUST, "needs x86-64-v4", 0},
    {"a symbol that nobody has", add, "needs-symbol", R(UNDEFINED_SYMBOL), NOTE,
     "mock_symbol_that_nobody_has", 0},
    {"a library that is not there", add, "needs-library", R(MISSING_LIBRARY), NOTE, "libmock-dependency.so",
     0},
    {"the entry of a dependency", add_with_dependency, "needs-library", R(ENTRY_NOT_OWN), LOAD,
     "libmock-dependency.so", 0},
    {"static TLS without end", add, "static-tls", R(STATIC_TLS), NOTE, "plugin mock", 0},
    {"no entry", add, "no-entry", R(NO_ENTRY), LOAD, "attn_plugin_entry_v1", 0},
    {"an entry that fails", add, "entry-fails", R(ENTRY_FAILED), LOAD, "does not want to", 0},
    {"an entry with the table of another", add, "foreign-table", R(ENTRY_FAILED), LOAD, "no part of its file",
     0},
    {"an entry without a table", add, "no-table", R(ENTRY_FAILED), LOAD, "no table", 0},
    {"a short table", add, "short-table", R(STRUCT_TOO_SHORT), LOAD, "struct_size", 0},
    {"a short inner table", add, "short-plan", R(STRUCT_TOO_SHORT), LOAD, "mock/flash-attn: its plan table",
     0},
    {"no function of the plugin", add, "no-function", R(MISSING_FUNCTION), LOAD, "mock: get_devices", 0},
    {"no function of the plan", add, "no-run", R(MISSING_FUNCTION), LOAD, "mock/flash-attn: plan.run", 0},
    {"another class than the note's", add, "class", R(NOTE_MISMATCH), LOAD, "device class 1", 0},
    {"other backends than the note's", add, "mismatch", R(NOTE_MISMATCH), LOAD, "offers 1 backends", 0},
    {"another version than the note's", add, "other-version", R(NOTE_MISMATCH), LOAD, "\"1.1\" in the table",
     0},
    {"crash in a constructor", add, "trouble-segfault", R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"crash in the entry", add, "crash-entry", R(CRASHED), NOTE, "step load", 0},
    {"crash in get_backends", add, "crash-backends", R(CRASHED), NOTE, "step load", 0},
    {"crash in axes", add, "crash-axes", R(CRASHED), NOTE, "step axes", 0},
    {"crash in query", add, "crash-query", R(CRASHED), NOTE, "step query", 0},
    {"crash in get_devices", add, "crash-devices", R(CRASHED), NOTE, "step get_devices", 0},
    {"crash in the memory table", add, "crash-alloc", R(CRASHED), NOTE, "step memory", 0},
    {"crash in finish", add, "crash-finish", R(CRASHED), NOTE, "step finish", 0},
    {"an entry that loses a register", add, "clobber-entry", R(CRASHED), NOTE,
     "harmed its caller in step load: the entry does not preserve the register " REGISTER, 0},
    {"a query that loses a register", add, "clobber-query", R(CRASHED), NOTE,
     "query does not preserve the register " REGISTER, 0},
    {"an open that loses a register", add, "clobber-open", R(CRASHED), NOTE,
     "open does not preserve the register " REGISTER, 0},
    {"a finish that loses a register", add, "clobber-finish", R(CRASHED), NOTE,
     "finish does not preserve the register " LAST_REGISTER, 0},
    {"a close that shifts the stack", add, "shift-stack", R(CRASHED), NOTE,
     "close moves the stack pointer by 16 bytes", 0},
    {"a query that writes beside its result", add, "beside-query", R(CRASHED), NOTE,
     "query writes beside what it has to fill in", 0},
    {"abort", add, "trouble-abort", R(CRASHED), NOTE, "SIGABRT", 0},
    {"exit", add, "trouble-exit", R(EXITED), NOTE, "ended its process", 0},
    {"another program in its place", add, "trouble-execute", R(EXITED), NOTE, "status 0", 0},
    {"no descriptor left", add, "trouble-close", R(EXITED), NOTE, "status 1 in step load", 0},
    {"a kill of its parent", add, "trouble-parent", R(EXITED), NOTE, "step load", 0},
    {"a kill of its process group", add, "trouble-group", R(CRASHED), NOTE, "SIGKILL", 0},
    {"memory without end", add, "trouble-hungry", R(CRASHED), NOTE, "SIGABRT", CASE_DATA},
    {"text without end", add, "trouble-flood", R(CRASHED), NOTE, "SIGXFSZ", CASE_ALONE},
    {"a constructor that sleeps", add, "trouble-hang", R(TIMED_OUT), NOTE, "2 seconds", CASE_SLOW},
    {"a constructor that stops", add, "trouble-stop", R(TIMED_OUT), NOTE, "2 seconds", CASE_ALONE},
    {"a constructor that spins", add, "trouble-spin", R(TIMED_OUT), NOTE, "2 seconds", CASE_ALONE},
    {"a child", add, "trouble-fork", R(SIDE_EFFECTS), READY, "child process", 0},
    {"a child of another session", add, "trouble-session", R(SIDE_EFFECTS), READY, "child process", 0},
    {"a grandchild of another session", add, "trouble-daemon", R(SIDE_EFFECTS), READY, "child process", 0},
    {"a slow disk", add, "trouble-vfork", 0, READY, "", CASE_ALONE | CASE_VFORK},
    {"a word on stdout", add, "trouble-print", R(SIDE_EFFECTS), READY, "prints", 0},
    {"a thread", add, "trouble-thread", R(SIDE_EFFECTS), READY, "thread", 0},
    {"a descriptor", add, "trouble-descriptor", R(SIDE_EFFECTS), READY, "descriptor", 0},
    {"a variable", add, "trouble-environment", R(SIDE_EFFECTS), READY, "environment", 0},
    {"a blocked signal", add, "trouble-signals", R(SIDE_EFFECTS), READY, "signal mask", 0},
    {"a signal handler", add, "trouble-handler", R(SIDE_EFFECTS), READY, "handlers", 0},
    {"another umask", add, "trouble-umask", R(SIDE_EFFECTS), READY, "umask", 0},
    {"good after a newer one of its name", add_before_good, "too-new", 0, READY, "", 0},
    {"good after one that fails", add_before_good, "entry-fails", 0, READY, "", 0},
    {"good after one that crashes", add_before_good, "trouble-abort", 0, READY, "", 0},
    {"good after one that lies about its backends", add_before_good, "mismatch", 0, READY, "", 0},
    {"the second of a name", add_before_good, "second", R(DUPLICATE), NOTE, "libattn-0.so", 0},
    {"a second name of a file", add_twice, "good", R(DUPLICATE), NOTE, "libattn-0.so", 0},
    {"a link to a file beside it", add_link, "good", R(DUPLICATE), NOTE, "libattn-0.so", 0},
    {NULL, NULL, NULL, 0, 0, NULL, 0},
};
