/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The list of hostile plugins and of the checks that find them. */
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
    {"hostile", "side-effects", NULL, "", NULL},
    {"hostile-print", "side-effects", "standard output", "stage 'plan run'", NULL},
    {"hostile-complain", "side-effects", "standard error", "printed: \"opening", NULL},
    {"hostile-read-input", "side-effects", "standard input", "position 1", NULL},
    {"hostile-set-environment", "side-effects", "environment", "stage 'get_devices': HOSTILE=1",
     "|imports: environment|"},
    {"hostile-set-locale", "side-effects", "locale", "thread's locale own", "|heap over many lives|"},
    {"hostile-round-down", "side-effects", "floating-point control", "stage 'plan run'", NULL},
    {"hostile-set-umask", "side-effects", "umask", "umask 000", STATE},
    {"hostile-change-directory", "side-effects", "working directory", "directory /proc", STATE},
    {"hostile-handle-signals", "side-effects", "signal handlers", "stage 'open'", NULL},
    {"hostile-handle-within", "side-effects", "signal handlers", "stage 'within a run'", NULL},
    {"hostile-block-signals", "side-effects", "signal mask", "is blocked", NULL},
    {"hostile-set-signal-stack", "side-effects", "signal stack", "65536 bytes", NULL},
    {"hostile-set-timer", "side-effects", "timers", "running", STATE},
    {"hostile-set-limit", "side-effects", "limits", "stage 'entry'", STATE},
    {"hostile-set-priority", "side-effects", "priority", "nice value", NULL},
    {"hostile-set-name", "side-effects", "process attributes", "name hostile", NULL},
    {"hostile-leave-child", "side-effects", "child processes", "stage 'get_devices'", NULL},
    {"hostile-leave-descriptor", "side-effects", "descriptors", "ATTN_P15", LEFT},
    {"hostile-leave-descriptor", "side-effects", "descriptors over many lives", "8 more after 8 lives", LEFT},
    {"hostile-leave-thread", "side-effects", "threads", "2 threads", LEFT},
    {"hostile-leave-thread", "side-effects", "threads over many lives", "50 threads are left of 50 lives",
     LEFT},
    {"hostile-leave-thread", "side-effects", "orders of destruction", "order 0 leaves 4 threads", LEFT},
    {"hostile-leave-memory", "side-effects", "heap over many lives", "bytes more after each life", NULL},
    {"hostile-leave-mapping", "side-effects", "mappings over many lives",
     "65536 bytes more are mapped after each life", NULL},
    {"hostile-keep-host", "side-effects", "host after finish", "died of signal",
     "|many lives|orders of destruction|"},
    {"hostile-copy-host", "side-effects", "host after finish", "'log' of the host",
     "|many lives|orders of destruction|"},
    {"hostile-log-after-finish", "side-effects", "host after finish", "'log' of the host",
     LEFT "many lives|"},
    {"hostile-handle-exit", "side-effects", "exit handlers", "atexit was called", HANDLERS},
    {"hostile-handle-fork", "side-effects", "exit handlers", "pthread_atfork was called", HANDLERS},
    {"hostile-constructor", "side-effects", "constructors", "begin, runs by itself", NULL},
    {"hostile-destructor", "side-effects", "destructors", "end, runs by itself", NULL},
    {"hostile-ask-environment", "side-effects", "imports: environment", "imports getenv", NULL},
    {"hostile-may-abort", "side-effects", "imports: ends", "imports abort", NULL},
    {"hostile-end-process", "side-effects", "life", "ended with status 0 in stage 'close'",
     LEFT "imports: ends|host after finish|many lives|"},
    {"hostile-crash", "side-effects", "life", "in stage 'finish'", LEFT "host after finish|many lives|"},
    {"hostile-need-output", "side-effects", "closed standard files", "this is hostile", NULL},
    {"hostile-share-state", "side-effects", "orders of destruction", "plan run answers ATTN_E_STATE",
     "|host after finish|"},
    {"hostile", "abi", NULL, "", NULL},
    {"hostile-export", "abi", "exports", "exports hostile_export", NULL},
    {"hostile-open-symbol", "abi", "own symbols", "attn_plugin_entry_v99", NULL},
#ifdef __x86_64__ /* linkers for other machines do not say so in the file */
    {"hostile-static-tls", "abi", "static TLS", "DF_STATIC_TLS", NULL},
#endif
    {"hostile-relocated-code", "abi", "text relocations", "DT_TEXTREL", NULL},
    {"hostile-unique", "abi", "unique symbols", "attn_plugin_entry_v98", NULL},
    {"hostile-need", "abi", "libraries", "needs libattn.so", NULL},
    /* Where the system forbids such stacks, nothing of the file runs. */
    {"hostile-stack", "abi", "stack", "PT_GNU_STACK", ANY},
    {"hostile-other-version", "abi", "note", "'libattn' 1 in the note", NULL},
    {"hostile-old-size", "abi", "sizes", "problem_size is", NULL},
    {"hostile-no-close", "abi", "required entries", "the backend table of hostile/flash-attn", ANY},
    {"hostile-moving-axes", "abi", "constant tables", "the list of axes is another one when", NULL},
    {"hostile-heap-table", "abi", "constant tables", HEAP_TABLE, NULL},
    {"hostile-one-instance", "abi", "instances", "instance 2 beside 1 others", "|constant tables|"},
    {"hostile-whole-host", "abi", "host table", "stage 'entry with a host of", NULL},
    {"hostile-few-devices", "abi", "devices", "with room for 0", NULL},
    {"hostile-device-beyond", "abi", "devices", "died of signal", NULL},
    {"hostile-few-kernels", "abi", "capacities of a query", "0 kernels with room for 0", NULL},
    {"hostile-odd-speed", "abi", "capacities of a query", "kernel 'nothing' states speed 3", NULL},
    {"hostile-reason-beyond", "abi", "capacities of a query", "died of signal", ANY},
    {"hostile-any-value", "abi", "unknown values", "type = 0x77", NULL},
    {"hostile-wordless", "abi", "words of errors", "alloc of 2^62 bytes fails with field ''", NULL},
    {"hostile-always-words", "abi", "without err", CRASHES, NULL},
};
const size_t expected_count = sizeof expected_failures / sizeof expected_failures[0];
