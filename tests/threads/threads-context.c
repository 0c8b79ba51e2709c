/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Eight threads make, load, report and destroy contexts at once, of their own and a shared one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "malformed.h"

#define THREADS 8
#define ROUNDS  20

static struct malformed malformed;
static pthread_barrier_t barrier;
static struct attn_context *shared; /* new in every round */
static _Atomic unsigned failures;

static void expect(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "failed: %s\n", what);
        atomic_fetch_add(&failures, 1);
    }
}

static void look(struct attn_context *context)
{
    struct attn_report *report = NULL;
    expect(attn_context_load_all(context, NULL) == ATTN_OK, "load_all");
    expect(attn_context_get_report(context, &report, NULL) == ATTN_OK, "get_report");
    const struct attn_file_record *bad = malformed_file(report, "libattn-a.so");
    const struct attn_file_record *good = malformed_file(report, "libattn-b.so");
    expect(good != NULL && good->stage == ATTN_STAGE_READY, "the good plugin is ready");
    expect(bad != NULL && bad->reason == ATTN_REASON_ENTRY_FAILED, "the one before it failed");
    attn_report_destroy(report);
}

/* Reads while others open. */
static void watch(struct attn_context *context)
{
    for (int i = 0; i < 50; i++) {
        struct attn_report *report = NULL;
        expect(attn_context_get_report(context, &report, NULL) == ATTN_OK, "get_report");
        attn_report_destroy(report);
    }
}

static void *work(void *arg)
{
    const int *number = arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct attn_report *report = NULL;
        if (*number == 0)
            shared = malformed_context(&malformed, NULL);
        pthread_barrier_wait(&barrier);
        if (*number % 2 == 1)
            watch(shared);
        look(shared);
        if (i % 4 == 0)
            expect(attn_context_rescan(shared, NULL) == ATTN_OK, "rescan");
        expect(attn_context_inspect(shared, malformed_path(&malformed, "libattn-c.so"), &report, NULL) ==
                   ATTN_OK,
               "inspect");
        attn_report_destroy(report);
        struct attn_context *own = malformed_context(&malformed, NULL);
        look(own);
        attn_context_destroy(own);
        pthread_barrier_wait(&barrier);
        if (*number == 0)
            attn_context_destroy(shared);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    malformed_create(&malformed);
    chmod(malformed.path, 0755);
    malformed_add(&malformed, "entry-fails", "libattn-a.so");
    malformed_add(&malformed, "good", "libattn-b.so");
    malformed_add(&malformed, "other", "libattn-c.so");
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, work, &numbers[i]) != 0)
            return 99;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    malformed_remove(&malformed);
    printf("%u failures\n", atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
