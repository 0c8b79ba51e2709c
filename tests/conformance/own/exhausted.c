/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory that is not there: a status, nothing lost, and all goes on. */
#include <stdio.h>
#include <stdlib.h>

#include "mirror.h"
#include "need.h"
#include "own.h"
#include "tap.h"

enum { MOST_PIECES = 4096 };

/* No machine has so much. */
static bool refuses(struct own *own, char *why, size_t size)
{
    static const uint64_t sizes[] = {UINT64_C(1) << 60, UINT64_C(1) << 62, INT64_MAX};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct attn_buffer buffer = {&buffer, 1};
        struct attn_error err;
        ATTN_INIT(&err);
        int32_t status = attn_memory_alloc(own->backend, sizes[i], &buffer, &err);
        if (status == ATTN_E_MEMORY && buffer.data == NULL && err.message[0] != '\0')
            continue;
        snprintf(why, size, "an allocation of %llu bytes answers %s with data %s and the text '%.200s'",
                 (unsigned long long)sizes[i], attn_status_name(status),
                 buffer.data != NULL ? "given" : "NULL", err.message);
        return false;
    }
    return true;
}

/* All that there is, in ever smaller pieces. */
static uint32_t take_all(struct own *own, struct attn_buffer *pieces)
{
    uint32_t count = 0;

    for (uint64_t size = UINT64_C(1) << 36; size > 0 && count < MOST_PIECES;) {
        if (attn_memory_alloc(own->backend, size, &pieces[count], NULL) == ATTN_OK)
            count++;
        else
            size /= 2;
        tap->beats++;
    }
    return count;
}

static void give_back(struct own *own, const struct attn_buffer *pieces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        attn_memory_free(own->backend, &pieces[i]);
}

static bool runs(struct own *own, const struct own_step *step, const char *when, char *why, size_t size)
{
    struct attn_error err;
    uint64_t at;

    ATTN_INIT(&err);
    int32_t status = own_send(own, step, &err);
    if (status == ATTN_OK)
        status = own_run(own, &err);
    if (status == ATTN_OK)
        status = own_take(own, &err);
    if (status == ATTN_OK && own_is_right(own, step, &at))
        return true;
    snprintf(why, size, "a run %s: %s: %.300s", when, attn_status_name(status),
             status == ATTN_OK ? "other bits than before" : err.message);
    return false;
}

/* Without memory something new begins, or says why not. */
static bool begins(const struct target *target, const char *problem, bool must, char *why, size_t size)
{
    struct own fresh;
    char text[512] = "";
    int made = own_init(&fresh, target, problem, ATTN_GRAPH_NEVER, NULL, text, sizeof text);

    own_finish(&fresh);
    if (made == 1 || (!must && strstr(text, attn_status_name(ATTN_E_MEMORY)) != NULL))
        return true;
    snprintf(why, size, "something new %s: %.300s", must ? "after all was given back" : "without memory",
             text);
    return false;
}

/* Three times: what an attempt loses is missing the next time. */
static bool exhaust(struct own *own, const struct own_step *step, const struct target *target,
                    const char *problem, char *why, size_t size)
{
    struct attn_buffer *pieces = need(calloc(MOST_PIECES, sizeof *pieces));
    bool good = true;

    for (int i = 0; i < 3 && good; i++) {
        uint32_t count = take_all(own, pieces);
        good = runs(own, step, "without memory", why, size) && begins(target, problem, false, why, size);
        give_back(own, pieces, count);
        good = good && runs(own, step, "after all was given back", why, size) &&
               begins(target, problem, true, why, size);
    }
    free(pieces);
    return good;
}

static void check_problem(const struct target *target, const char *problem, uint64_t seed)
{
    struct rng rng = {mix(seed, 94)};
    struct own_step step = {.q = NULL};
    struct own own;
    struct attn_error err;
    char why[512] = "";

    ATTN_INIT(&err);
    tap_begin(target, "exhausted", problem, seed);
    int made = own_init(&own, target, problem, ATTN_GRAPH_NEVER, NULL, why, sizeof why);
    if (made == 1) {
        own_step_init(&own, &step, &rng, OWN_SEQS, OWN_ROWS);
        if (own_expect(&own, &step, &err) != ATTN_OK)
            snprintf(why, sizeof why, "before: %s", err.message);
        else if (refuses(&own, why, sizeof why) && runs(&own, &step, "after a refusal", why, sizeof why) &&
                 target->device.type != ATTN_DEVICE_CPU) /* whose memory is everybody's */
            exhaust(&own, &step, target, problem, why, sizeof why);
    }
    own_step_finish(&step);
    own_finish(&own);
    if (made == 0)
        tap_skip(why);
    else if (why[0] != '\0')
        tap_fail("%s", why);
    else
        tap_pass();
}

void check_exhausted(struct target_list *list, const struct run_options *options)
{
    mirror_suspend(true);
    for (uint32_t t = 0; t < list->count; t++)
        if (options_wants(options, own_problems[0]))
            check_problem(&list->targets[t], own_problems[0], options->seed);
    mirror_suspend(false);
}
