/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* States and the clones that graphs are captured with: handles, lifetimes, and which calls may follow which.
 */
#include <stdlib.h>

#include "fail.h"
#include "flavour.h"
#include "state.h"

struct attn_state_impl *attn__state_new(struct attn__state_core *core)
{
    struct attn_state_impl *state = calloc(1, sizeof *state);

    if (state == NULL)
        return NULL;
    state->core = core;
    state->set = core->set;
    core->refs++;
    return state;
}

/* Clones outlive their state, but are not found by size any more. */
static void unlink_state(struct attn_state_impl *state)
{
    for (struct attn_state_impl *clone = state->clones; clone != NULL; clone = clone->next)
        clone->parent = NULL;
    if (state->parent == NULL)
        return;
    for (struct attn_state_impl **at = &state->parent->clones; *at != NULL; at = &(*at)->next) {
        if (*at != state)
            continue;
        *at = state->next;
        return;
    }
}

void attn__state_destroy(struct attn_state_impl *state)
{
    if (state == NULL)
        return;
    attn__state_destroy(state->pending);
    unlink_state(state);
    if (state->core->owner == state)
        state->core->owner = NULL;
    if (state->batch != 0 && state->set != state->core->set)
        attn__set_destroy(state->core, state->set);
    attn__capture_drop(state->capture);
    free(state->fields.step.group);
    attn__core_drop(state->core);
    free(state);
}

/* ---------------------------------------------------------------- create */

int32_t attn__state_create(const struct attn_serving_host *host, const struct attn_layer_class *classes,
                           uint32_t count, const struct attn_state_params *params,
                           struct attn_state_impl **out, struct attn_error *err)
{
    const struct attn__flavour *flavour = NULL;
    struct attn__state_core *core = NULL;
    int32_t status = attn__flavour_choose(host, params->flavour, &flavour, err);

    *out = NULL;
    if (status != ATTN_OK)
        return status;
    if (params->index_dtype != 0 && params->index_dtype != ATTN_INT32 && params->index_dtype != ATTN_INT64)
        return attn__fail(err, ATTN_E_INVALID, 0, "index_dtype",
                          "index_dtype is 0x%x; ATTN_INT32 and ATTN_INT64 are accepted", params->index_dtype);
    status = attn__core_create(host, classes, count, params, flavour, &core, err);
    if (status != ATTN_OK)
        return status;
    *out = attn__state_new(core);
    attn__core_drop(core);
    return *out != NULL ? ATTN_OK : attn__fail(err, ATTN_E_MEMORY, 0, "state", "no memory for a state");
}
