/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Collectives of ranks that are threads of one process: all meet, each copies what it receives from where the
 * others send it, all meet again, and only then are sent blocks their owners' again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn/parallel.h"
#include "dispatch/call.h"

#define MOST_RANKS 1024u
#define SECOND     UINT64_C(1000000000)

enum call { ALL_GATHER = 1, ALL_TO_ALL, SHIFT };

static const char *const call_names[] = {
    [ALL_GATHER] = "all_gather", [ALL_TO_ALL] = "all_to_all", [SHIFT] = "shift"};

struct member {
    struct attn_local_ranks *ranks;
    uint32_t rank;
    bool here; /* waits in the meeting at hand */
    enum call call;
    uint64_t bytes;
    const char *send;
};

struct attn_local_ranks {
    pthread_mutex_t lock;
    pthread_cond_t met;
    uint64_t timeout_ns;
    uint64_t meeting; /* number of the one at hand */
    uint32_t size, arrived;
    bool alike; /* all made the same call in the last meeting that had a limit */
    bool ended;
    char why[256]; /* it was */
    struct member members[];
};

/* ---------------------------------------------------------------- meetings; the lock is held */

static void end(struct attn_local_ranks *ranks, const char *why)
{
    if (ranks->ended)
        return;
    ranks->ended = true;
    snprintf(ranks->why, sizeof ranks->why, "%s", why);
    pthread_cond_broadcast(&ranks->met);
}

/* Names those who are not here. */
static void end_late(struct attn_local_ranks *ranks, enum call call)
{
    char late[96] = "", why[256];
    size_t used = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < ranks->size; i++) {
        if (ranks->members[i].here)
            continue;
        if (count++ < 8)
            used += (size_t)snprintf(late + used, sizeof late - used, "%s%u", used > 0 ? ", " : "", i);
    }
    snprintf(why, sizeof why, "rank%s %s%s of %u did not come to %s within %.3g s", count > 1 ? "s" : "",
             late, count > 8 ? ", ..." : "", ranks->size, call_names[call], (double)ranks->timeout_ns * 1e-9);
    end(ranks, why);
}

/* Whether all make the same call, of whom the last has just come. */
static bool compare(struct attn_local_ranks *ranks)
{
    const struct member *first = ranks->members;
    char why[256];

    for (uint32_t i = 1; i < ranks->size; i++) {
        const struct member *other = &ranks->members[i];
        if (other->call == first->call && other->bytes == first->bytes)
            continue;
        snprintf(why, sizeof why,
                 "rank 0 calls %s of %llu bytes and rank %u %s of %llu; all ranks make the same calls",
                 call_names[first->call], (unsigned long long)first->bytes, i, call_names[other->call],
                 (unsigned long long)other->bytes);
        end(ranks, why);
        return false;
    }
    return true;
}

static struct timespec deadline(uint64_t timeout_ns)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    const uint64_t ns = timeout_ns % SECOND + (uint64_t)at.tv_nsec;
    at.tv_sec += (time_t)(timeout_ns / SECOND + ns / SECOND);
    at.tv_nsec = (long)(ns % SECOND);
    return at;
}

/*
 * Waits until all are here; false if they did not come within the limit, or somebody ended the connection.
 * Those who have met do nothing but copy before they meet again, without a limit: a rank that left early
 * would take away what others still read.
 */
static bool meet(struct attn_local_ranks *ranks, struct member *own, bool limited)
{
    const struct timespec until = deadline(ranks->timeout_ns);
    const uint64_t meeting = ranks->meeting;

    own->here = true;
    if (++ranks->arrived == ranks->size) {
        if (limited)
            ranks->alike = compare(ranks);
        ranks->arrived = 0;
        ranks->meeting++;
        for (uint32_t i = 0; i < ranks->size; i++)
            ranks->members[i].here = false;
        pthread_cond_broadcast(&ranks->met);
        return true;
    }
    while (ranks->meeting == meeting && !(limited && ranks->ended))
        if (!limited)
            pthread_cond_wait(&ranks->met, &ranks->lock);
        else if (pthread_cond_timedwait(&ranks->met, &ranks->lock, &until) == ETIMEDOUT &&
                 ranks->meeting == meeting)
            end_late(ranks, own->call);
    return ranks->meeting != meeting;
}

/* ---------------------------------------------------------------- calls */

static void copy(const struct member *own, char *receive)
{
    const struct attn_local_ranks *ranks = own->ranks;
    const size_t bytes = (size_t)own->bytes, skipped = own->call == ALL_TO_ALL ? own->rank * bytes : 0;

    if (own->call == SHIFT && bytes > 0)
        memcpy(receive, ranks->members[(own->rank + ranks->size - 1) % ranks->size].send, bytes);
    for (uint32_t i = 0; i < ranks->size && bytes > 0 && own->call != SHIFT; i++)
        memcpy(receive + i * bytes, ranks->members[i].send + skipped, bytes);
}

static int32_t exchange(struct member *own, enum call call, const struct attn_buffer *send,
                        const struct attn_buffer *receive, uint64_t bytes, struct attn_error *err)
{
    struct attn_local_ranks *ranks = own->ranks;
    int32_t status = ATTN_OK;

    pthread_mutex_lock(&ranks->lock);
    own->call = call;
    own->bytes = bytes;
    own->send = attn__address(send);
    if (ranks->ended || !meet(ranks, own, true) || !ranks->alike)
        status = attn__fail(err, ATTN_E_PEER, 0, "collectives", "%s", ranks->why);
    pthread_mutex_unlock(&ranks->lock);
    if (status != ATTN_OK)
        return status;
    copy(own, attn__address(receive));
    pthread_mutex_lock(&ranks->lock);
    meet(ranks, own, false);
    pthread_mutex_unlock(&ranks->lock);
    return ATTN_OK;
}

static int32_t all_gather(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                          uint64_t bytes, void *stream, struct attn_error *err)
{
    (void)stream;
    return exchange(arg, ALL_GATHER, send, receive, bytes, err);
}

static int32_t all_to_all(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                          uint64_t bytes, void *stream, struct attn_error *err)
{
    (void)stream;
    return exchange(arg, ALL_TO_ALL, send, receive, bytes, err);
}

static int32_t shift(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                     uint64_t bytes, void *stream, struct attn_error *err)
{
    (void)stream;
    return exchange(arg, SHIFT, send, receive, bytes, err);
}

static void abort_all(void *arg, const char *why)
{
    const struct member *own = arg;
    char text[256];

    snprintf(text, sizeof text, "rank %u of %u ended the connection: %s", own->rank, own->ranks->size, why);
    pthread_mutex_lock(&own->ranks->lock);
    end(own->ranks, text);
    pthread_mutex_unlock(&own->ranks->lock);
}

/* ---------------------------------------------------------------- the connection */

static bool init_lock(struct attn_local_ranks *ranks)
{
    pthread_condattr_t attributes;

    if (pthread_condattr_init(&attributes) != 0)
        return false;
    bool good = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(&ranks->met, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    if (good && pthread_mutex_init(&ranks->lock, NULL) != 0) {
        pthread_cond_destroy(&ranks->met);
        good = false;
    }
    return good;
}

int32_t attn_local_ranks_create(uint32_t size, uint64_t timeout_ns, struct attn_local_ranks **out,
                                struct attn_error *err)
{
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out",
                          "out is NULL; a place for the connection is accepted");
    *out = NULL;
    if (size == 0 || size > MOST_RANKS)
        return attn__fail(err, ATTN_E_INVALID, 0, "size", "size is %u; accepted: 1 to %u ranks", size,
                          MOST_RANKS);
    if (timeout_ns == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "timeout_ns",
                          "timeout_ns is 0; accepted: nanoseconds, 1 at least");
    struct attn_local_ranks *ranks = calloc(1, sizeof *ranks + size * sizeof *ranks->members);
    if (ranks == NULL || !init_lock(ranks)) {
        free(ranks);
        return attn__fail(err, ATTN_E_MEMORY, 0, "ranks", "no memory for the connection of %u ranks", size);
    }
    ranks->size = size;
    ranks->timeout_ns = timeout_ns;
    for (uint32_t i = 0; i < size; i++)
        ranks->members[i] = (struct member){.ranks = ranks, .rank = i};
    *out = ranks;
    return ATTN_OK;
}

void attn_local_ranks_destroy(struct attn_local_ranks *ranks)
{
    if (ranks == NULL)
        return;
    pthread_mutex_destroy(&ranks->lock);
    pthread_cond_destroy(&ranks->met);
    free(ranks);
}

int32_t attn_local_ranks_get(struct attn_local_ranks *ranks, uint32_t rank, struct attn_collectives *out,
                             struct attn_error *err)
{
    struct attn_collectives own;

    if (ranks == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "ranks", "attn_local_ranks_get: the handle is NULL");
    if (rank >= ranks->size)
        return attn__fail(err, ATTN_E_INVALID, 0, "rank", "rank is %u; accepted: below size, %u", rank,
                          ranks->size);
    ATTN_INIT(&own);
    own.rank = rank;
    own.size = ranks->size;
    own.timeout_ns = ranks->timeout_ns;
    own.arg = &ranks->members[rank];
    own.all_gather = all_gather;
    own.all_to_all = all_to_all;
    own.shift = shift;
    own.abort = abort_all;
    return attn__answer(out, &own, sizeof own, "out", err);
}
