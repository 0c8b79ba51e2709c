/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Keys on several ranks: what the layer classes of a model exchange parts with, and which steps that fits. */
#include <stdlib.h>

#include "fail.h"
#include "state.h"

static int32_t make_class(struct attn__state_core *core, uint32_t i, const struct attn_state_params *params,
                          struct attn_error *err)
{
    struct attn_cp_params own;
    struct attn_error inner;

    ATTN_INIT(&own);
    attn__error_open(&inner);
    own.queries = params->cp_heads;
    own.problem = &core->problems[i];
    own.collectives = params->collectives;
    const int32_t status = core->host.cp_create(core->host.backend, &own, &core->ranks[i], &inner);
    return status == ATTN_OK ? ATTN_OK : attn__fail_class(i, status, &inner, err);
}

static int32_t check_unset(const char *name, uint32_t value, struct attn_error *err)
{
    return value == 0
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, name,
                            "%s is %u, but collectives is NULL; 0 is accepted without them", name, value);
}

int32_t attn__ranks_create(struct attn__state_core *core, const struct attn_state_params *params,
                           struct attn_error *err)
{
    int32_t status = ATTN_OK;

    if (params->collectives == NULL) {
        status = check_unset("cp_heads", params->cp_heads, err);
        return status == ATTN_OK ? check_unset("cp_interleave", params->cp_interleave, err) : status;
    }
    if (params->cp_heads != ATTN_CP_HEADS_SPLIT && params->cp_heads != ATTN_CP_HEADS_ALL)
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_heads",
                          "cp_heads is %u; accepted: ATTN_CP_HEADS_SPLIT or ATTN_CP_HEADS_ALL",
                          params->cp_heads);
    if (core->flavour->pages)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "collectives",
                          "collectives are given to a state of flavour %s; with ranks flavours whose kernels "
                          "read block tables are accepted: flash-attn, rocm-flash, xformers",
                          core->flavour->name);
    core->ranks = calloc(core->count, sizeof(struct attn_cp *));
    if (core->ranks == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "collectives", "no memory for the ranks of %u classes",
                          core->count);
    for (uint32_t i = 0; i < core->count && status == ATTN_OK; i++)
        status = make_class(core, i, params, err);
    if (status != ATTN_OK)
        return status;
    core->cp_rank = params->collectives->rank;
    core->cp_world = params->collectives->size;
    core->cp_interleave = params->cp_interleave;
    core->cp_on_host = params->collectives->device == 0;
    core->params.collectives = NULL; /* it is the caller's, who may free it */
    return ATTN_OK;
}

void attn__ranks_destroy(struct attn__state_core *core)
{
    for (uint32_t i = 0; core->ranks != NULL && i < core->count; i++)
        core->host.cp_destroy(core->ranks[i]);
    free(core->ranks);
}

int32_t attn__ranks_check_step(const struct attn__state_core *core, const struct attn_step *step,
                               struct attn_error *err)
{
    if (step->cp_rank != core->cp_rank || step->cp_world != core->cp_world)
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_world",
                          "the step was built with cp_rank=%u cp_world=%u; the state %s: cp_rank=%u "
                          "cp_world=%u are accepted",
                          step->cp_rank, step->cp_world,
                          core->cp_world != 0 ? "has collectives" : "has no collectives", core->cp_rank,
                          core->cp_world);
    return core->cp_interleave == 0 || step->cp_interleave == core->cp_interleave
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "cp_interleave",
                            "the step was built with cp_interleave=%u; %u, the state's, is accepted",
                            step->cp_interleave, core->cp_interleave);
}

int32_t attn__ranks_check_capture(const struct attn__state_core *core, struct attn_error *err)
{
    if (core->ranks == NULL)
        return ATTN_OK;
    if (core->cp_on_host)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "collectives",
                          "attn_state_begin_capture: the collectives of %u ranks are work of the host, which "
                          "is not captured; those with device=1 are accepted",
                          core->cp_world);
    return core->cp_interleave != 0
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "cp_interleave",
                            "attn_state_begin_capture: cp_interleave of the state is 0; that of the builders "
                            "is accepted");
}

int32_t attn__ranks_check_stream(const struct attn__state_core *core, void *stream, struct attn_error *err)
{
    struct attn_error inner;

    if (!core->cp_on_host)
        return ATTN_OK;
    attn__error_open(&inner);
    const int32_t status = core->host.stream_synchronize(core->host.backend, stream, &inner);
    return status != ATTN_E_STATE
               ? status
               : attn__fail(err, ATTN_E_UNSUPPORTED, 0, "stream",
                            "layers over the keys of several ranks are not captured: %s", inner.message);
}

int32_t attn__state_wait(struct attn_state_impl *state, void *stream, struct attn_error *err)
{
    const struct attn__state_core *core = state->core;
    int32_t status = ATTN_OK;

    if (core->ranks == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "state",
                          "attn_state_wait: the state has no collectives; attn_stream_synchronize waits for "
                          "one rank");
    for (uint32_t i = 0; i < core->count && status == ATTN_OK; i++)
        status = core->host.cp_wait(core->ranks[i], stream, err);
    return status;
}
