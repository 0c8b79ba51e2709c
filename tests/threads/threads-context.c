/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Eight threads make, load, report and destroy contexts at once, of their own and a shared one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "zoo.h"

#define THREADS 8
#define ROUNDS  20

static struct zoo zoo;
static struct attn_context *shared;
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
    const struct attn_file_record *bad = zoo_file(report, "libattn-a.so");
    const struct attn_file_record *good = zoo_file(report, "libattn-b.so");
    expect(good != NULL && good->stage == ATTN_STAGE_READY, "the good plugin is ready");
    expect(bad != NULL && bad->reason == ATTN_REASON_ENTRY_FAILED, "the one before it failed");
    attn_report_destroy(report);
}

static void *work(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct attn_context *own = zoo_context(&zoo, NULL);
        struct attn_report *report = NULL;
        look(own);
        attn_context_destroy(own);
        look(shared);
        if (i % 4 == 0)
            expect(attn_context_rescan(shared, NULL) == ATTN_OK, "rescan");
        expect(attn_context_inspect(shared, zoo_path(&zoo, "libattn-c.so"), &report, NULL) == ATTN_OK,
               "inspect");
        attn_report_destroy(report);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    zoo_create(&zoo);
    chmod(zoo.path, 0755);
    zoo_add(&zoo, "entry-fails", "libattn-a.so");
    zoo_add(&zoo, "good", "libattn-b.so");
    zoo_add(&zoo, "other", "libattn-c.so");
    shared = zoo_context(&zoo, NULL);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0)
            return 99;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    attn_context_destroy(shared);
    zoo_remove(&zoo);
    printf("%u failures\n", atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
