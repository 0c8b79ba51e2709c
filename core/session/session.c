/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens and closes sessions: context, selection and backend in one call. */
#include <stdlib.h>

#include "session/session.h"

/* What attn_forward has no arguments for. */
static int32_t check_problem(const struct attn_problem *problem, struct attn_error *err)
{
    const struct {
        bool refused;
        const char *field, *text;
    } rules[] = {
        {problem->addressing == ATTN_CSR, "addr", "addr=csr; addr=table or addr=dense is accepted"},
        {problem->positions != 0, "positions", "positions=1; positions=0 is accepted"},
        {problem->seq_causal != 0, "seq_causal", "seq_causal=1; seq_causal=0 is accepted"},
        {problem->cp != 0, "cp", "cp=1; cp=0 is accepted"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].refused)
            return attn__fail(err, ATTN_E_UNSUPPORTED, 0, rules[i].field,
                              "attn_forward does not serve %s here, and attn_plan_run serves all",
                              rules[i].text);
    return ATTN_OK;
}

static int32_t choose(struct attn_session *session, const char *device, struct attn_error *err)
{
    struct attn_select_options options;
    struct attn_decision *decision = NULL;
    ATTN_INIT(&options);
    options.device = device;
    int32_t status = attn_context_create(NULL, &session->context, err);
    if (status == ATTN_OK)
        status = attn_select(session->context, &session->problem, 1, &options, &decision, err);
    if (status == ATTN_OK)
        status = attn_backend_open(session->context, decision, NULL, &session->backend, err);
    attn_decision_destroy(decision);
    return status;
}

int32_t attn_open(const char *problem, const char *device, struct attn_session **out, struct attn_error *err)
{
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL; a place for the session is accepted");
    *out = NULL;
    struct attn_problem parsed;
    int32_t status = attn_problem_parse(problem, &parsed, err);
    if (status == ATTN_OK)
        status = check_problem(&parsed, err);
    if (status != ATTN_OK)
        return status;
    struct attn_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "session", "no memory for a session");
    session->problem = session->maxima = parsed;
    status = choose(session, device, err);
    if (status != ATTN_OK) {
        attn_close(session);
        return status;
    }
    *out = session;
    return ATTN_OK;
}

void attn_close(struct attn_session *session)
{
    if (session == NULL)
        return;
    if (session->backend != NULL)
        attn__session_free(session);
    attn_backend_destroy(session->backend);
    attn_context_destroy(session->context);
    free(session);
}

struct attn_backend *attn_session_get_backend(const struct attn_session *session)
{
    return session != NULL ? session->backend : NULL;
}
