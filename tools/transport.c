/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the library of a transport where the loader finds it: a tool runs without MPI unless it is asked for.
 */
#include "transport.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/mpi.h"

struct transport {
    void *library;
    struct attn_mpi_ranks *ranks;
    void (*destroy)(struct attn_mpi_ranks *ranks);
};

static int32_t fail(struct attn_error *err, int32_t status, const char *text, const char *more)
{
    err->status = status;
    snprintf(err->field, sizeof err->field, "transport");
    snprintf(err->message, sizeof err->message, text, more);
    return status;
}

/* Functions of a library have no type of their own. */
static bool find(void *library, const char *name, void *out)
{
    void *address = dlsym(library, name);

    memcpy(out, &address, sizeof address);
    return address != NULL;
}

static int32_t open_mpi(struct transport *transport, uint64_t timeout_ns,
                        struct attn_collectives *out_collectives, struct attn_error *err)
{
    int32_t (*create)(const void *, uint64_t, struct attn_mpi_ranks **, struct attn_error *);
    int32_t (*get)(struct attn_mpi_ranks *, struct attn_collectives *, struct attn_error *);

    /* Components of an MPI look for its symbols among those of the program. */
    transport->library = dlopen("libattn-mpi.so.0", RTLD_NOW | RTLD_GLOBAL);
    if (transport->library == NULL)
        return fail(err, ATTN_E_UNSUPPORTED, "transport mpi is not here: %.200s", dlerror());
    if (!find(transport->library, "attn_mpi_ranks_create", &create) ||
        !find(transport->library, "attn_mpi_ranks_get", &get) ||
        !find(transport->library, "attn_mpi_ranks_destroy", &transport->destroy))
        return fail(err, ATTN_E_UNSUPPORTED, "libattn-mpi.so.0 is of another version: %.200s", dlerror());
    const int32_t status = create(NULL, timeout_ns, &transport->ranks, err);
    return status == ATTN_OK ? get(transport->ranks, out_collectives, err) : status;
}

int32_t transport_open(const char *name, uint64_t timeout_ns, struct transport **out,
                       struct attn_collectives *out_collectives, struct attn_error *err)
{
    *out = NULL;
    if (strcmp(name, "mpi") != 0)
        return fail(err, ATTN_E_INVALID, "transport is %.64s; accepted: " TRANSPORTS, name);
    struct transport *transport = calloc(1, sizeof *transport);
    if (transport == NULL)
        return fail(err, ATTN_E_MEMORY, "no memory for a %s", "transport");
    const int32_t status = open_mpi(transport, timeout_ns, out_collectives, err);
    if (status == ATTN_OK)
        *out = transport;
    else
        transport_close(transport);
    return status;
}

void transport_close(struct transport *transport)
{
    if (transport == NULL)
        return;
    if (transport->ranks != NULL)
        transport->destroy(transport->ranks);
    free(transport); /* an MPI that was loaded stays */
}
