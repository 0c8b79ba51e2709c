/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The list of rude plugins and of the checks that find them. */
#include "expected.h"

#define HANDLERS "|imports: exit handlers|heap over many lives|"
#define STATE    "|imports: process state|"
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
    {"rude-leave-descriptor", "manners", "descriptors over many lives", "20 more after 20 lives", LEFT},
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
};
const size_t expected_count = sizeof expected_failures / sizeof expected_failures[0];
