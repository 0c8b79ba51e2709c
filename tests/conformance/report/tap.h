/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What was judged. The process that judges may be lost at any time, so the record lies in memory that its
 * parent sees too, and the parent reports.
 */
#ifndef TAP_H
#define TAP_H

#include "conform.h"

enum {
    PATH_SIZE = 4096 + 64,
    TEXT_SIZE = 1024,
    TITLE_SIZE = PROBLEM_TEXT + 256,
    COMMAND_SIZE = 2 * PATH_SIZE + PROBLEM_TEXT + 256,
    MOST_KINDS = 32,
    MOST_RECORDS = 1 << 17
};

enum record_state { STATE_RUNNING, STATE_PASSED, STATE_FAILED, STATE_SKIPPED, STATES };

/* A case, and what became of it. */
struct record {
    uint32_t state; /* enum record_state */
    char kind[32];
    char backend[64];
    char level[64];
    char problem[PROBLEM_TEXT];
    uint64_t seed;
    char text[TEXT_SIZE];
};

struct kind_count {
    char name[32];
    uint32_t count[STATES];
};

enum { MOST_MISSING = 64 };

/* Pairs of key values, see pairs.h. */
struct pair_counts {
    bool known;
    uint32_t covered;
    uint32_t possible;
    uint32_t listed;
    char missing[MOST_MISSING][64];
};

struct tap {
    char program[PATH_SIZE];
    char file[PATH_SIZE];
    bool full;
    bool device_memory;
    bool quiet;    /* no lines of TAP: one JSON object at the end */
    bool trying;   /* only an exit status counts */
    bool finished; /* the judging process came to its end, whatever it says */
    bool reported; /* ... or has said what it died of */
    int32_t judge; /* process that ends itself after a failure, 0 = none */
    int code;      /* 0, or the exit status after nothing could be judged */
    uint64_t beats;
    uint32_t kinds_wanted, kinds_begun; /* of this run */
    char clear[8];                      /* goes before a line where progress may be on it: see progress.c */
    uint32_t count[STATES];
    struct kind_count kinds[MOST_KINDS];
    uint32_t kind_count;
    struct pair_counts pairs;
    struct record now;
    uint32_t lost; /* records that found no room */
    uint32_t record_count;
    struct record records[MOST_RECORDS]; /* failed and skipped */
};

extern struct tap *tap;

/* `program` and `file` as the user called them, for the reproduction lines. */
void tap_init(const char *program, const char *file, bool full, bool quiet);
uint32_t tap_number(void);
void record_title(const struct record *record, char *to, size_t size);
/* The command line that makes the same case again. */
void record_command(const struct record *record, char *to, size_t size);

/* process.c: a process of its own for everything that touches the plugin. */

/*
 * Runs `work` in a child process, waits for it, and adds a failure if it was lost or stood still. `work`
 * returns 0, or an exit status if nothing could be judged. False if nothing else is to be run.
 */
bool process_run(int (*work)(void *arg), void *arg);
/* The same, but a process that is lost is no failure: whoever judges will say more about it. */
bool process_try(int (*work)(void *arg), void *arg);

/*
 * progress.c: one line on stderr that is written over and over while the child judges, if stderr is a
 * terminal. progress_init comes once, progress_show every second or so, progress_end before the report.
 */
void progress_init(void);
void progress_show(void);
void progress_end(void);

/*
 * report.c: the end of the output; the exit status of the program. `seconds` of the run are told in JSON
 * unless negative.
 */
int report_finish(bool json, double seconds);
/* report-json.c, only where jansson is there (HAVE_JSON). False if the object could not be made or printed.
 */
bool report_json(double seconds);

#endif
