/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The list of rude plugins and of the checks that find them. */
#include "expected.h"

/* A sanitizer ends the process before the check, or the system, sees the fault. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif
#ifdef SANITIZED
#define HEAP_TABLE "was ended with status 1 in stage 'reading the tables after finish'"
#define CRASHES    "was ended with status 1 in stage 'open'"
#else
#define HEAP_TABLE "the plugin table is another one for another instance"
#define CRASHES    "died of signal"
#endif
#define HANDLERS "|imports: exit handlers|heap over many lives|"
#define ANY                                                                                                  \
    "|file|tables|constant tables|instances|host table|devices|capacities of a query|unknown values"         \
    "|words of errors|without err|note|sizes|required entries|"
#define STATE "|imports: process state|"
/* What is left behind by one life shows everywhere that lives are counted. */
#define LEFT                                                                                                 \
    "|descriptors|threads|heap over many lives|mappings over many lives|descriptors over many lives"         \
    "|threads over many lives|orders of destruction|closed standard files|"

const struct expected expected_failures[] = {
    {"rude", "manners", NULL, "", NULL},
    {"rude-print", "manners", "standard output", "stage 'plan run'", NULL},
    {"rude-complain", "manners", "standard error", "printed: \"opening", NULL},
    {"rude-read-input", "manners", "standard input", "position 1", NULL},
    {"rude-set-environment", "manners", "environment", "stage 'get_devices': RUDE=1",
     "|imports: environment|"},
    {"rude-set-locale", "manners", "locale", "thread's locale own", "|heap over many lives|"},
    {"rude-round-down", "manners", "floating-point control", "stage 'plan run'", NULL},
    {"rude-set-umask", "manners", "umask", "umask 000", STATE},
    {"rude-change-directory", "manners", "working directory", "directory /proc", STATE},
    {"rude-handle-signals", "manners", "signal handlers", "stage 'open'", NULL},
    {"rude-handle-within", "manners", "signal handlers", "stage 'within a run'", NULL},
    {"rude-block-signals", "manners", "signal mask", "is blocked", NULL},
    {"rude-set-signal-stack", "manners", "signal stack", "65536 bytes", NULL},
    {"rude-set-timer", "manners", "timers", "running", STATE},
    {"rude-set-limit", "manners", "limits", "stage 'entry'", STATE},
    {"rude-set-priority", "manners", "priority", "nice value", NULL},
    {"rude-set-name", "manners", "process attributes", "name rude", NULL},
    {"rude-leave-child", "manners", "child processes", "stage 'get_devices'", NULL},
    {"rude-leave-descriptor", "manners", "descriptors", "ATTN_P15", LEFT},
    {"rude-leave-descriptor", "manners", "descriptors over many lives", "8 more after 8 lives", LEFT},
    {"rude-leave-thread", "manners", "threads", "2 threads", LEFT},
    {"rude-leave-thread", "manners", "threads over many lives", "50 threads are left of 50 lives", LEFT},
    {"rude-leave-thread", "manners", "orders of destruction", "order 0 leaves 4 threads", LEFT},
    {"rude-leave-memory", "manners", "heap over many lives", "bytes more after each life", NULL},
    {"rude-leave-mapping", "manners", "mappings over many lives",
     "65536 bytes more are mapped after each life", NULL},
    {"rude-keep-host", "manners", "host after finish", "died of signal",
     "|many lives|orders of destruction|"},
    {"rude-copy-host", "manners", "host after finish", "'log' of the host",
     "|many lives|orders of destruction|"},
    {"rude-log-after-finish", "manners", "host after finish", "'log' of the host", LEFT "many lives|"},
    {"rude-handle-exit", "manners", "exit handlers", "atexit was called", HANDLERS},
    {"rude-handle-fork", "manners", "exit handlers", "pthread_atfork was called", HANDLERS},
    {"rude-constructor", "manners", "constructors", "begin, runs by itself", NULL},
    {"rude-destructor", "manners", "destructors", "end, runs by itself", NULL},
    {"rude-ask-environment", "manners", "imports: environment", "imports getenv", NULL},
    {"rude-may-abort", "manners", "imports: ends", "imports abort", NULL},
    {"rude-end-process", "manners", "life", "ended with status 0 in stage 'close'",
     LEFT "imports: ends|host after finish|many lives|"},
    {"rude-crash", "manners", "life", "in stage 'finish'", LEFT "host after finish|many lives|"},
    {"rude-need-output", "manners", "closed standard files", "this is rude", NULL},
    {"rude-share-state", "manners", "orders of destruction", "plan run answers ATTN_E_STATE",
     "|host after finish|"},
    {"rude", "abi", NULL, "", NULL},
    {"rude-export", "abi", "exports", "exports rude_export", NULL},
    {"rude-open-symbol", "abi", "own symbols", "attn_plugin_entry_v99", NULL},
#ifdef __x86_64__ /* linkers for other machines do not say so in the file */
    {"rude-static-tls", "abi", "static TLS", "DF_STATIC_TLS", NULL},
#endif
    {"rude-relocated-code", "abi", "text relocations", "DT_TEXTREL", NULL},
    {"rude-unique", "abi", "unique symbols", "attn_plugin_entry_v98", NULL},
    {"rude-need", "abi", "libraries", "needs libattn.so", NULL},
    /* Where the system forbids such stacks, nothing of the file runs. */
    {"rude-stack", "abi", "stack", "PT_GNU_STACK", ANY},
    {"rude-other-version", "abi", "note", "'libattn' 1 in the note", NULL},
    {"rude-old-size", "abi", "sizes", "problem_size is", NULL},
    {"rude-no-close", "abi", "required entries", "the backend table of rude/flash-attn", ANY},
    {"rude-moving-axes", "abi", "constant tables", "the list of axes is another one when", NULL},
    {"rude-heap-table", "abi", "constant tables", HEAP_TABLE, NULL},
    {"rude-one-instance", "abi", "instances", "instance 2 beside 1 others", "|constant tables|"},
    {"rude-whole-host", "abi", "host table", "stage 'entry with a host of", NULL},
    {"rude-few-devices", "abi", "devices", "with room for 0", NULL},
    {"rude-device-beyond", "abi", "devices", "died of signal", NULL},
    {"rude-few-kernels", "abi", "capacities of a query", "0 kernels with room for 0", NULL},
    {"rude-reason-beyond", "abi", "capacities of a query", "died of signal", ANY},
    {"rude-any-value", "abi", "unknown values", "type = 0x77", NULL},
    {"rude-wordless", "abi", "words of errors", "alloc of 2^62 bytes fails with field ''", NULL},
    {"rude-always-words", "abi", "without err", CRASHES, NULL},
};
const size_t expected_count = sizeof expected_failures / sizeof expected_failures[0];
