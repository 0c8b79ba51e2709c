/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The team waits at a barrier between runs; each member keeps its own times. */
#define _GNU_SOURCE
#include "team.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "output.h"

struct member {
    struct team *team;
    pthread_t thread;
    uint32_t index;
    double begin;
    double end;
};

struct team {
    uint32_t count;
    pthread_barrier_t barrier; /* members and the caller */
    team_fn fn;                /* NULL: go home */
    void *arg;
    struct member *members;
};

static void *member_main(void *arg)
{
    struct member *member = arg;
    struct team *team = member->team;

    for (;;) {
        pthread_barrier_wait(&team->barrier);
        if (team->fn == NULL)
            return NULL;
        member->begin = machine_now();
        team->fn(team->arg, member->index, team->count);
        member->end = machine_now();
        pthread_barrier_wait(&team->barrier);
    }
}

struct team *team_create(uint32_t count)
{
    struct team *team = need_memory(NULL, 1, sizeof *team);

    *team = (struct team){.count = count, .members = need_memory(NULL, count, sizeof *team->members)};
    pthread_barrier_init(&team->barrier, NULL, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        team->members[i] = (struct member){.team = team, .index = i};
        int error = pthread_create(&team->members[i].thread, NULL, member_main, &team->members[i]);
        if (error != 0) {
            complain("thread %u of %u cannot be started: %s", i + 1, count, strerror(error));
            exit(EXIT_NO);
        }
    }
    return team;
}

void team_destroy(struct team *team)
{
    if (team == NULL)
        return;
    team->fn = NULL;
    pthread_barrier_wait(&team->barrier);
    for (uint32_t i = 0; i < team->count; i++)
        pthread_join(team->members[i].thread, NULL);
    pthread_barrier_destroy(&team->barrier);
    free(team->members);
    free(team);
}

double team_run(struct team *team, team_fn fn, void *arg)
{
    team->fn = fn;
    team->arg = arg;
    pthread_barrier_wait(&team->barrier);
    pthread_barrier_wait(&team->barrier);
    double begin = team->members[0].begin, end = team->members[0].end;
    for (uint32_t i = 1; i < team->count; i++) {
        begin = team->members[i].begin < begin ? team->members[i].begin : begin;
        end = team->members[i].end > end ? team->members[i].end : end;
    }
    return end - begin;
}
