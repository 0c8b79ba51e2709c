/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What this process knows of probes: results, and the probes that are running for one of its threads. */
#include <stdlib.h>

#include "plugin/probe/probe.h"

/* Everything here is under the shared lock. */
enum { RESULTS_MOST = 256 };

static struct known {
    char key[ATTN__KEY_SIZE];
    struct attn__result result;
} known[RESULTS_MOST];
static uint32_t known_count;

static struct known *find_known(const char *key)
{
    for (uint32_t i = 0; i < known_count; i++)
        if (strcmp(known[i].key, key) == 0)
            return &known[i];
    return NULL;
}

static bool recall(const char *key, int64_t now, struct attn__result *out)
{
    const struct known *found = find_known(key);
    if (found == NULL || !attn__result_counts(&found->result, now))
        return false;
    *out = found->result;
    return true;
}

bool attn__memory_recall(const char *key, int64_t now, struct attn__result *out)
{
    attn__shared_lock();
    bool counts = recall(key, now, out);
    attn__shared_unlock();
    return counts;
}

static void remember(const char *key, const struct attn__result *result)
{
    static uint32_t oldest;
    struct known *place = find_known(key);
    if (place == NULL) {
        place = &known[known_count < RESULTS_MOST ? known_count : oldest++ % RESULTS_MOST];
        known_count += known_count < RESULTS_MOST;
    }
    memcpy(place->key, key, ATTN__KEY_SIZE);
    place->result = *result;
}

void attn__memory_reset(void)
{
    uint32_t kept = 0;
    attn__shared_lock();
    for (uint32_t i = 0; i < known_count; i++)
        if (known[i].result.outcome == ATTN__GOOD)
            known[kept++] = known[i];
    known_count = kept;
    attn__shared_unlock();
}

/* ---------------------------------------------------------------- running probes */

struct attn__running {
    struct attn__running *next;
    char key[ATTN__KEY_SIZE];
    uint32_t born; /* in a child after fork nobody would end it */
    uint32_t users;
    bool done; /* no longer in the list */
    pthread_cond_t ended;
    struct attn__result result;
};

static struct attn__running *running;

static struct attn__running *add_running(const char *key)
{
    struct attn__running *probe = calloc(1, sizeof *probe);
    if (probe == NULL)
        return NULL;
    memcpy(probe->key, key, ATTN__KEY_SIZE);
    probe->born = attn__fork_generation();
    pthread_cond_init(&probe->ended, NULL);
    probe->next = running;
    running = probe;
    return probe;
}

struct attn__running *attn__probe_begin(const char *key, int64_t now, bool anew, bool *out_first,
                                        struct attn__result *out)
{
    *out = (struct attn__result){.outcome = ATTN__UNAVAILABLE, .text = "no memory"};
    *out_first = false;
    attn__shared_lock();
    struct attn__running *probe = running;
    while (probe != NULL && (strcmp(probe->key, key) != 0 || probe->born != attn__fork_generation()))
        probe = probe->next;
    if (probe == NULL && (anew || !recall(key, now, out))) {
        probe = add_running(key);
        *out_first = probe != NULL;
    }
    if (probe != NULL)
        probe->users++;
    attn__shared_unlock();
    return probe;
}

void attn__probe_end(struct attn__running *probe, const char *key, const struct attn__result *result)
{
    attn__shared_lock();
    if (result->outcome != ATTN__NO_RESULT && result->outcome != ATTN__UNAVAILABLE)
        remember(key, result);
    struct attn__running **link = &running;
    while (*link != probe)
        link = &(*link)->next;
    *link = probe->next;
    probe->result = *result;
    probe->done = true;
    pthread_cond_broadcast(&probe->ended);
    attn__shared_unlock();
}

void attn__probe_take(struct attn__running *probe, struct attn__result *out)
{
    attn__shared_lock();
    while (!probe->done)
        attn__shared_wait(&probe->ended);
    *out = probe->result;
    bool last = --probe->users == 0;
    attn__shared_unlock();
    if (last) {
        pthread_cond_destroy(&probe->ended);
        free(probe);
    }
}
