/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The context of the process, which backends serve its devices, and what those serve. */
#include "client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct library library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Selects the backend of a device by a problem that every backend serves: what it makes of others, its query
 * says. `gpu`: its ordinal, or -1. False: nothing serves the device, for the reason in `err`. */
static bool add_device(const char *label, const char *place, int gpu, struct attn_error *err)
{
    struct device *device = &library.devices[library.count];
    struct attn_select_options options;
    struct attn_problem problem;
    ATTN_INIT(&options);
    options.device = place;
    int32_t status = attn_problem_parse("heads=1 head_dim=64 q=f32 addr=dense", &problem, err);
    if (status == ATTN_OK)
        status = attn_select(library.context, &problem, 1, &options, &device->decision, err);
    const struct attn_decision_info *info = attn_decision_get_info(device->decision);
    if (status == ATTN_OK && info->effective == NULL) /* ATTN_BACKEND=none */
        snprintf(err->message, sizeof err->message, "%s", info->text);
    if (status != ATTN_OK || info->effective == NULL) {
        attn_decision_destroy(device->decision);
        device->decision = NULL;
        return false;
    }
    device->gpu = gpu >= 0;
    device->ordinal = gpu;
    snprintf(device->label, sizeof device->label, "%s", label);
    snprintf(device->place, sizeof device->place, "%s", place);
    snprintf(device->name, sizeof device->name, "%s", info->effective);
    snprintf(device->description, sizeof device->description, "libattn %s, %s", attn_version(),
             info->effective);
    library.count++;
    return true;
}

static void start(void)
{
    struct attn_error err, of_gpu;
    ATTN_INIT(&err);
    ATTN_INIT(&of_gpu);
    if (attn_context_create(NULL, &library.context, &err) == ATTN_OK) {
        char label[24] = "LIBATTN", place[24] = "cpu";
        add_device(label, place, -1, &err);
        for (int gpu = 0; library.count < MAX_DEVICES; gpu++) {
            snprintf(label, sizeof label, "LIBATTN%d", gpu + 1);
            snprintf(place, sizeof place, "cuda:%d", gpu);
            if (!add_device(label, place, gpu, &of_gpu))
                break;
        }
    }
    if (library.count == 0)
        snprintf(library.failure, sizeof library.failure, "%s", err.message);
}

struct library *library_get(void)
{
    pthread_once(&once, start);
    return &library;
}

/* ---------------------------------------------------------------- answers, once for each problem */

enum { MANY_ROWS = 257 }; /* of a KV head */

struct answer {
    struct attn_problem problem;
    bool many;           /* query rows: keys and values are converted once for all of them */
    uint32_t query_type; /* 0: not served */
    struct answer *next;
};

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

/* Why selection does not take the device's backend for the problem, into `text`; false: it takes it. */
static bool refused(const struct device *device, const struct attn_problem *problem, char *text, size_t size)
{
    struct attn_select_options options;
    struct attn_decision *decision = NULL;
    struct attn_error err;
    ATTN_INIT(&err);
    ATTN_INIT(&options);
    options.device = device->place;
    options.backend = device->name;
    options.strict = 2; /* ggml's own kernels are faster than generic ones */
    const int32_t status = attn_select(library.context, problem, 1, &options, &decision, &err);
    attn_decision_destroy(decision);
    if (status == ATTN_OK)
        return false;
    snprintf(text, size, "%s", err.message);
    return true;
}

/* Matrix instructions of GPUs multiply two numbers of 16 bits of one type: queries of f32 become what keys
 * and values are, where these have 16 bits, since else keys become f32 and take up to four times as long;
 * many of them f16, which keys and values in blocks are converted to then. ggml's own kernels round queries
 * too, on the CPU as on GPUs. */
static uint32_t ask(const struct device *device, const struct attn_problem *problem, bool many, char *text,
                    size_t size)
{
    const bool same = problem->k_dtype == problem->v_dtype &&
                      (problem->k_dtype == ATTN_F16 || problem->k_dtype == ATTN_BF16);
    const bool blocks =
        many && attn_block_bytes(problem->k_dtype) != 0 && attn_block_bytes(problem->v_dtype) != 0;
    const bool rounds = device->gpu && (same || blocks);
    const uint32_t types[] = {!rounds ? ATTN_F32 : same ? problem->k_dtype : ATTN_F16, ATTN_F32};
    char other[512];
    for (size_t i = 0; i < (rounds ? 2 : 1); i++) {
        struct attn_problem asked = *problem;
        asked.q_dtype = types[i];
        if (!refused(device, &asked, i == 0 ? text : other, i == 0 ? size : sizeof other))
            return types[i];
    }
    return 0;
}

/* The type of queries by which the device serves a problem, or 0: why, is in `text` the first time. With the
 * lock held. */
static uint32_t answer(struct device *device, const struct node *node, char *text, size_t size)
{
    const struct attn_problem *problem = &node->problem;
    const bool many = (uint64_t)node->tokens * (problem->heads / problem->kv_heads) >= MANY_ROWS;
    for (const struct answer *known = device->answers; known != NULL; known = known->next)
        if (known->many == many && memcmp(&known->problem, problem, sizeof *problem) == 0)
            return known->query_type;
    const uint32_t query_type = ask(device, problem, many, text, size);
    struct answer *fresh = malloc(sizeof *fresh);
    if (fresh == NULL)
        return query_type;
    *fresh =
        (struct answer){.problem = *problem, .many = many, .query_type = query_type, .next = device->answers};
    device->answers = fresh;
    return query_type;
}

bool device_adapt(struct device *device, struct node *node)
{
    char text[512] = "";
    pthread_mutex_lock(&lock);
    uint32_t query_type = answer(device, node, text, sizeof text);
    if (query_type == 0 && device->gpu && node_split(node))
        query_type = answer(device, node, text, sizeof text);
    if (query_type == 0 && text[0] != 0)
        report(text);
    pthread_mutex_unlock(&lock);
    if (query_type != 0 && query_type != ATTN_F32) { /* converted ones are contiguous */
        node->problem.q_dtype = query_type;
        node->runs = 1;
    }
    return query_type != 0;
}

bool device_serves(struct device *device, const struct ggml_tensor *op)
{
    char text[128];
    struct node node;
    const char *refusal = node_read(op, &node, text, sizeof text);
    if (refusal == NULL)
        return device_adapt(device, &node);
    pthread_mutex_lock(&lock);
    report(refusal);
    pthread_mutex_unlock(&lock);
    return false;
}
