/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The context of the process, which backend serves its CPU, and what that serves. */
#include "client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct library library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* By a problem that every backend serves: what it makes of others, its query says. */
static int32_t select_backend(struct attn_error *err)
{
    struct attn_select_options options;
    struct attn_problem problem;
    ATTN_INIT(&options);
    options.device = "cpu";
    int32_t status = attn_problem_parse("heads=1 head_dim=64 q=f32 addr=dense", &problem, err);
    if (status == ATTN_OK)
        status = attn_select(library.context, &problem, 1, &options, &library.decision, err);
    return status;
}

static void start(void)
{
    struct attn_error err;
    ATTN_INIT(&err);
    int32_t status = attn_context_create(NULL, &library.context, &err);
    if (status == ATTN_OK)
        status = select_backend(&err);
    if (status != ATTN_OK) {
        snprintf(library.failure, sizeof library.failure, "%s", err.message);
        return;
    }
    const char *name = attn_decision_get_info(library.decision)->effective;
    if (name == NULL) { /* ATTN_BACKEND=none */
        snprintf(library.failure, sizeof library.failure, "%s",
                 attn_decision_get_info(library.decision)->text);
        return;
    }
    snprintf(library.name, sizeof library.name, "%s", name);
    snprintf(library.description, sizeof library.description, "libattn %s, %s", attn_version(), name);
}

const struct library *library_get(void)
{
    pthread_once(&once, start);
    return &library;
}

/* ---------------------------------------------------------------- answers, once for each problem */

struct answer {
    struct attn_problem problem;
    bool served;
    struct answer *next;
};

static struct answer *answers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool reports(void)
{
    const char *value = getenv("LIBATTN_GGML_REFUSALS");
    return value != NULL && strcmp(value, "0") != 0;
}

/* Each kind of refusal once. */
static void report(const char *reason)
{
    static char seen[64][256];
    static size_t count;
    char text[sizeof seen[0]];
    if (!reports() || count == sizeof seen / sizeof seen[0])
        return;
    snprintf(text, sizeof text, "%s", reason);
    for (size_t i = 0; i < count; i++)
        if (strcmp(seen[i], text) == 0)
            return;
    memcpy(seen[count++], text, sizeof text);
    fprintf(stderr, "libattn: left to ggml: %s\n", text);
}

/* Why selection does not take the backend for the problem, into `text`; false: it takes it. */
static bool refused(const struct attn_problem *problem, char *text, size_t size)
{
    struct attn_select_options options;
    struct attn_decision *decision = NULL;
    struct attn_error err;
    ATTN_INIT(&err);
    ATTN_INIT(&options);
    options.device = "cpu";
    options.backend = library.name;
    options.strict = 2; /* ggml's own kernels are faster than generic ones */
    const int32_t status = attn_select(library.context, problem, 1, &options, &decision, &err);
    attn_decision_destroy(decision);
    if (status == ATTN_OK)
        return false;
    snprintf(text, size, "%s", err.message);
    return true;
}

/* With the lock held. */
static bool answer(const struct node *node)
{
    for (const struct answer *known = answers; known != NULL; known = known->next)
        if (memcmp(&known->problem, &node->problem, sizeof node->problem) == 0)
            return known->served;
    char text[512];
    const bool served = !refused(&node->problem, text, sizeof text);
    if (!served)
        report(text);
    struct answer *fresh = malloc(sizeof *fresh);
    if (fresh == NULL)
        return served;
    *fresh = (struct answer){.problem = node->problem, .served = served, .next = answers};
    answers = fresh;
    return served;
}

bool library_serves(const struct ggml_tensor *op)
{
    char text[128];
    struct node node;
    const char *refusal = node_read(op, &node, text, sizeof text);
    pthread_mutex_lock(&lock);
    if (refusal != NULL)
        report(refusal);
    const bool served = refusal == NULL && answer(&node);
    pthread_mutex_unlock(&lock);
    return served;
}
