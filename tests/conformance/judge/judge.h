/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs a step on a target, and compares what it wrote with what the oracle says. */
#ifndef JUDGE_H
#define JUDGE_H

#include "outputs.h"
#include "target.h"

/* ---------------------------------------------------------------- run.c, judge.c */

/* Bits of attempt.detours: legal ways to the same result. */
#define DETOUR_MANY  UINT32_C(1) /* prepare_many with a second plan of the same kind */
#define DETOUR_COPY  UINT32_C(2) /* the schedule is moved before the run */
#define DETOUR_DIRTY UINT32_C(4) /* counters hold rubbish, and the run is told so */
#define DETOUR_GRAPH                                                                                         \
    UINT32_C(8) /* prepare and run are captured, and the graph is launched; without the others */

/* What may vary between runs of one step on one target. */
struct attempt {
    struct attn_backend *backend;
    enum executor executor;
    enum executor prepare_executor;
    uint32_t slack; /* added to the problem's maxima */
    uint32_t detours;
};

/* Asks, plans, prepares and runs. 1 = ran, 0 = refused by the query (why), -1 = failed (why). */
int step_run(struct step *step, const struct target *target, const struct attempt *attempt, char *why,
             size_t size);

/* replay.c: captures both calls while the batch holds other numbers, and launches them with its own. */
int32_t replay(struct step *step, struct attn_backend *backend, call_fn prepare, call_fn run, void *arg,
               struct attn_error *err);

/* The reference of a step, for about `budget` products. */
bool step_reference(struct reference *reference, const struct step *step, double budget);
/* True if the outputs are right. Afterwards they hold the pattern again. */
bool step_judge(const struct step *step, const struct reference *reference, char *why, size_t size);
/* Ends the result line of a step: `ran` and `why` are of step_run. What ran is judged. */
void step_report(const struct step *step, const struct reference *reference, int ran, char *why, size_t size);
/* Every byte that no row owns still holds the pattern. Outputs hold the pattern afterwards. */
bool step_check_outside(const struct step *step, char *why, size_t size);
/* Whether a target accepts a problem; `why` gets its first reason. */
/* out_numerics (or NULL): raised to the class of the roughest kernel row, enum attn_numerics. */
bool target_accepts(const struct target *target, const struct attn_problem *problem, uint32_t *out_numerics,
                    char *why, size_t size);

#endif
