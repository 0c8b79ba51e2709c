/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes contexts over chosen mocks and keeps what they log. */
#define _GNU_SOURCE
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

static void keep(void *user, uint32_t level, const char *subsystem, const char *text)
{
    struct world *world = user;
    const size_t left = sizeof world->log - world->log_used;
    const int length = snprintf(world->log + world->log_used, left, "%u %s: %s\n", level, subsystem, text);
    if (length > 0 && (size_t)length < left)
        world->log_used += (size_t)length;
}

static void add_mocks(const struct malformed *malformed, const char *mocks)
{
    char *list = strdup(mocks);
    char *rest = NULL;
    for (char *name = strtok_r(list, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
        char file[64];
        snprintf(file, sizeof file, "libattn-%s.so", name);
        malformed_add(malformed, name, file);
    }
    free(list);
}

void world_open(struct world *world, const char *mocks, const char *variables)
{
    memset(world, 0, sizeof *world);
    ATTN_INIT(&world->err);
    malformed_create(&world->malformed);
    add_mocks(&world->malformed, mocks);
    const char *given[16];
    struct attn_context_options options;
    ATTN_INIT(&options);
    char *list = strdup(variables != NULL ? variables : "");
    char *rest = NULL;
    for (char *item = strtok_r(list, ";", &rest); item != NULL; item = strtok_r(NULL, ";", &rest))
        given[options.variable_count++] = item;
    given[options.variable_count++] =
        "ATTN_LOG=debug"; /* unless `variables` gave another: the first counts */
    options.given = ATTN_GIVEN_LOG;
    options.plugin_path = world->malformed.path;
    options.log = keep;
    options.log_user = world;
    options.variables = given;
    if (attn_context_create(&options, &world->context, &world->err) != ATTN_OK) {
        fprintf(stderr, "world: %s\n", world->err.message);
        exit(99);
    }
    free(list);
}

void world_close(struct world *world)
{
    attn_context_destroy(world->context);
    malformed_remove(&world->malformed);
}

int32_t world_select(struct world *world, const char *problem, const char *backend, const char *device,
                     struct attn_decision **out)
{
    struct attn_problem parsed;
    *out = NULL;
    const int32_t status = attn_problem_parse(problem, &parsed, &world->err);
    if (status != ATTN_OK)
        return status;
    struct attn_select_options options;
    ATTN_INIT(&options);
    options.backend = backend;
    options.device = device;
    return attn_select(world->context, &parsed, 1, &options, out, &world->err);
}

unsigned world_said(const struct world *world, const char *text)
{
    unsigned count = 0;
    for (const char *at = world->log; (at = strstr(at, text)) != NULL; at++)
        count++;
    return count;
}

const struct attn_candidate *world_candidate(const struct attn_decision *decision, const char *name,
                                             const char *device)
{
    const struct attn_candidate *candidate;
    for (uint32_t i = 0; (candidate = attn_decision_get_candidate(decision, i)) != NULL; i++)
        if (strcmp(candidate->name, name) == 0 &&
            (device == NULL ? candidate->device == NULL
                            : candidate->device != NULL && strcmp(candidate->device, device) == 0))
            return candidate;
    return NULL;
}

const char *world_list(const struct attn_decision *decision)
{
    static char text[4096];
    size_t used = 0;
    text[0] = 0;
    const struct attn_candidate *candidate;
    for (uint32_t i = 0; (candidate = attn_decision_get_candidate(decision, i)) != NULL; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s ", i > 0 ? "; " : "",
                                 candidate->name, candidate->device != NULL ? candidate->device : "-");
        if (candidate->accepted)
            used += (size_t)snprintf(text + used, sizeof text - used, "ok");
        for (uint32_t r = 0; r < candidate->reason_count && r < 4; r++) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", r > 0 ? "," : "",
                                     attn_reason_name(candidate->reasons[r].code));
        }
    }
    return text;
}
