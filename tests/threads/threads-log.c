/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Contexts of eight threads write to one log file, rescanning as they go: each line stays whole and none is
 * lost. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "malformed.h"

#define THREADS 8
#define ROUNDS  12

static struct malformed malformed;
static char log_variable[128];
static _Atomic unsigned failures;

static void expect(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "failed: %s\n", what);
        atomic_fetch_add(&failures, 1);
    }
}

static void *write_log(void *arg)
{
    for (int round = 0; round < ROUNDS; round++) {
        char own[64];
        const char *variables[] = {log_variable, "ATTN_LOG=debug", own};
        struct attn_context_options options;
        struct attn_context *context = NULL;
        /* An unknown variable of a name that nobody else has: one warning a context. */
        snprintf(own, sizeof own, "ATTN_ODD_%d_%d=1", *(const int *)arg, round);
        ATTN_INIT(&options);
        options.plugin_path = malformed.path;
        options.variables = variables;
        options.variable_count = 3;
        expect(attn_context_create(&options, &context, NULL) == ATTN_OK, "attn_context_create");
        expect(attn_context_load_all(context, NULL) == ATTN_OK, "attn_context_load_all");
        expect(attn_context_rescan(context, NULL) == ATTN_OK, "attn_context_rescan");
        attn_context_destroy(context);
    }
    return NULL;
}

/* Every line begins as one and holds no second; of each context there is the one warning about its variable.
 */
static void check(const char *path)
{
    char line[2048];
    unsigned lines = 0, warnings[THREADS][ROUNDS] = {{0}};
    FILE *file = fopen(path, "re");
    expect(file != NULL, "the log file is there");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        int thread, round;
        const char *name = strstr(line, "ATTN_ODD_");
        lines++;
        const char *own = line + strcspn(line, " ");
        expect(strncmp(own, " libattn ", 9) == 0 && strstr(own + 1, " libattn warn ") == NULL &&
                   strchr(line, '\n') != NULL,
               "a line is whole");
        if (name != NULL && sscanf(name, "ATTN_ODD_%d_%d:", &thread, &round) == 2 && thread >= 0 &&
            thread < THREADS && round >= 0 && round < ROUNDS)
            warnings[thread][round]++;
    }
    for (int thread = 0; thread < THREADS; thread++)
        for (int round = 0; round < ROUNDS; round++)
            expect(warnings[thread][round] == 1, "each context warns once");
    if (file != NULL)
        fclose(file);
    printf("%u lines\n", lines);
}

int main(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    malformed_create(&malformed);
    chmod(malformed.path, 0755);
    malformed_add(&malformed, "good", "libattn-good.so");
    malformed_add(&malformed, "entry-fails", "libattn-a.so");
    snprintf(log_variable, sizeof log_variable, "ATTN_LOG_FILE=%s/log", malformed.path);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, write_log, &numbers[i]) != 0)
            return 99;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check(malformed_path(&malformed, "log"));
    malformed_remove(&malformed);
    printf("%u failures\n", atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
