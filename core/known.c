/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What this process knows of trials: verdicts, which hold where there is no cache directory and spare reading
 * the file, and the trials that are under way, so that many threads that want one plugin cause one of them.
 */
#include <stdlib.h>

#include "probe.h"

/* ---------------------------------------------------------------- verdicts */

enum { KNOWN_MOST = 256 };

static struct known {
    char key[ATTN__KEY_SIZE];
    struct attn__verdict verdict;
} known[KNOWN_MOST];
static uint32_t known_count;

static struct known *find_known(const char *key)
{
    for (uint32_t i = 0; i < known_count; i++)
        if (strcmp(known[i].key, key) == 0)
            return &known[i];
    return NULL;
}

bool attn__known_recall(const char *key, int64_t now, struct attn__verdict *out)
{
    attn__shared_lock();
    const struct known *found = find_known(key);
    bool counts = found != NULL && attn__verdict_counts(&found->verdict, now);
    if (counts)
        *out = found->verdict;
    attn__shared_unlock();
    return counts;
}

/* Under the shared lock. */
static void remember(const char *key, const struct attn__verdict *verdict)
{
    static uint32_t oldest;
    struct known *place = find_known(key);
    if (place == NULL) {
        place = &known[known_count < KNOWN_MOST ? known_count : oldest++ % KNOWN_MOST];
        known_count += known_count < KNOWN_MOST;
    }
    memcpy(place->key, key, ATTN__KEY_SIZE);
    place->verdict = *verdict;
}

void attn__known_pardon(void)
{
    uint32_t kept = 0;

    attn__shared_lock();
    for (uint32_t i = 0; i < known_count; i++)
        if (known[i].verdict.outcome == ATTN__GOOD)
            known[kept++] = known[i];
    known_count = kept;
    attn__shared_unlock();
}

/* ---------------------------------------------------------------- trials under way */

struct attn__trial {
    struct attn__trial *next;
    char key[ATTN__KEY_SIZE];
    uint32_t born; /* a child after fork has nobody who would end it */
    uint32_t users;
    bool done; /* no longer in the list */
    pthread_cond_t ended;
    struct attn__verdict verdict;
};

static struct attn__trial *trials;

struct attn__trial *attn__trial_begin(const char *key, bool *out_first)
{
    struct attn__trial *trial;

    *out_first = false;
    attn__shared_lock();
    for (trial = trials; trial != NULL; trial = trial->next)
        if (strcmp(trial->key, key) == 0 && trial->born == attn__fork_generation())
            break;
    if (trial == NULL && (trial = calloc(1, sizeof *trial)) != NULL) {
        memcpy(trial->key, key, ATTN__KEY_SIZE);
        trial->born = attn__fork_generation();
        pthread_cond_init(&trial->ended, NULL);
        trial->next = trials;
        trials = trial;
        *out_first = true;
    }
    if (trial != NULL)
        trial->users++;
    attn__shared_unlock();
    return trial;
}

void attn__trial_end(struct attn__trial *trial, const char *key, const struct attn__verdict *verdict)
{
    attn__shared_lock();
    if (verdict->outcome != ATTN__NO_VERDICT && verdict->outcome != ATTN__UNAVAILABLE)
        remember(key, verdict);
    for (struct attn__trial **p = &trials; *p != NULL; p = &(*p)->next) {
        if (*p == trial) {
            *p = trial->next;
            break;
        }
    }
    trial->verdict = *verdict;
    trial->done = true;
    pthread_cond_broadcast(&trial->ended);
    attn__shared_unlock();
}

void attn__trial_take(struct attn__trial *trial, struct attn__verdict *out)
{
    attn__shared_lock();
    while (!trial->done)
        attn__shared_wait(&trial->ended);
    *out = trial->verdict;
    bool last = --trial->users == 0;
    attn__shared_unlock();
    if (last) {
        pthread_cond_destroy(&trial->ended);
        free(trial);
    }
}
