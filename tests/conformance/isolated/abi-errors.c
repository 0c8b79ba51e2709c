/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Hosts of other sizes than this one, and what a failing function says, or does not get the chance to say. */
#include <stdio.h>
#include <stdlib.h>

#include "abi.h"
#include "need.h"

/* ---------------------------------------------------------------- hosts */

/* One entry with a host table of `size` bytes before a forbidden page; what is new is not zero. */
static void try_host(struct isolated *isolated, struct life *life, size_t size, bool must_work)
{
    struct attn_instance *instance = NULL;
    const struct attn_plugin *table = NULL;
    const struct attn_backend_table *const *backends = NULL;
    struct attn_error *err = life_error(life);
    struct life_host *services = life_host_create();
    struct attn_host host = *life_host_table(services);
    struct arena arena;
    uint32_t count = 0;
    char stage[64];

    arena_init(&arena, false);
    unsigned char *bytes = arena_add(&arena, "host", size, 8, 0xff)->data;
    host.struct_size = (uint32_t)size;
    host.out_instance = &instance;
    memcpy(bytes, &host, size < sizeof host ? size : sizeof host);
    snprintf(stage, sizeof stage, "entry with a host of %zu bytes", size);
    life_enter(life, stage);
    int32_t status = life->entry((const struct attn_host *)(const void *)bytes, &table, err);
    if (status != ATTN_OK && must_work)
        isolated_fail(isolated, "host table", "ATTN_P4: refuses a host that is larger than its own: %s",
                      err->message);
    else if (status != ATTN_OK && status != ATTN_E_ABI)
        isolated_fail(isolated, "host table", "ATTN_P4: refuses a smaller host with %s instead of ATTN_E_ABI",
                      attn_status_name(status));
    else if (status == ATTN_OK && table == NULL)
        isolated_fail(isolated, "host table", "the entry succeeds without a table");
    if (status == ATTN_OK && table != NULL) {
        table->get_backends(instance, &backends, &count, err);
        table->finish(instance);
    }
    arena_finish(&arena);
    life_host_destroy(services);
}

void judge_hosts(struct isolated *isolated, const char *plugin)
{
    struct life life = {0};

    if (!life_load(&life, isolated, plugin)) {
        isolated_fail(isolated, "host table", "%s", life.why);
        return;
    }
    try_host(isolated, &life, sizeof(struct attn_host), true);
    try_host(isolated, &life, sizeof(struct attn_host) + 64, true);
    try_host(isolated, &life, offsetof(struct attn_host, get_option), false);
    try_host(isolated, &life, offsetof(struct attn_host, log), false);
}

/* ---------------------------------------------------------------- failures */

/* Calls that cannot succeed; each says whether it failed in the right way. */
struct failure {
    struct isolated *isolated;
    struct life *life;
    bool must; /* fail */
};

static void judge_words(const struct failure *failure, int32_t status)
{
    static const char name[] = "words of errors";
    const struct attn_error *err = &failure->life->err;
    const char *stage = failure->life->stage;

    if (failure->life->without_errors)
        return;
    if (status == ATTN_OK && failure->must)
        isolated_fail(failure->isolated, name, "%s succeeds", stage);
    else if (status == ATTN_OK)
        return;
    else if (status > 0 || strcmp(attn_status_name(status), "ATTN_E_UNKNOWN") == 0)
        isolated_fail(failure->isolated, name, "ATTN_P24: %s returns %d, which is no status", stage, status);
    else if (memchr(err->field, '\0', sizeof err->field) == NULL || err->field[0] == '\0' ||
             memchr(err->message, '\0', sizeof err->message) == NULL || err->message[0] == '\0')
        isolated_fail(failure->isolated, name, "ATTN_P24: %s fails with field '%.47s' and message '%.300s'",
                      stage, err->field, err->message);
    else if (err->status != status)
        isolated_fail(failure->isolated, name, "ATTN_P24: %s returns %s, but err says %s", stage,
                      attn_status_name(status), attn_status_name(err->status));
}

static void fail_open(struct failure *failure, const struct attn_backend_table *backend)
{
    struct attn_device device = {.type = 0x7777, .ordinal = 12345};
    struct attn_backend_impl *impl = NULL;
    struct attn_open_config config;

    ATTN_INIT(&config);
    failure->must = false;
    life_enter(failure->life, "open on a device of unknown type");
    int32_t status =
        backend->open(failure->life->instance, &device, &config, &impl, life_error(failure->life));
    judge_words(failure, status);
    if (status == ATTN_OK)
        backend->close(impl);
}

/* More bytes than there are addresses, and a shape of more bytes than 64 bits count. */
static void fail_sizes(struct failure *failure, const struct life_backend *backend)
{
    struct attn_problem problem = backend->problem;
    struct attn_kv_shape shape;
    struct attn_buffer buffer = {NULL, 0};

    ATTN_INIT(&shape);
    failure->must = true;
    life_enter(failure->life, "alloc of 2^62 bytes");
    judge_words(failure, backend->table->memory->alloc(backend->impl, UINT64_C(1) << 62, &buffer,
                                                       life_error(failure->life)));
    problem.heads = problem.kv_heads = INT32_MAX;
    problem.head_dim = problem.head_dim_vo = 65536;
    problem.block = 1048576;
    life_enter(failure->life, "shape of more than 2^64 bytes");
    judge_words(failure, backend->table->kv->shape(backend->impl, &problem, INT32_MAX, &shape,
                                                   life_error(failure->life)));
}

/* A cache in blocks, by a backend that does not read such. */
static void fail_blocks(struct failure *failure, const struct life_backend *backend)
{
    static unsigned char memory[4096];
    struct attn_problem problem = backend->problem;
    struct attn_query query = {.struct_size = sizeof query};
    struct attn_kv_impl *kv = NULL;
    struct attn_kv_desc desc;

    problem.k_dtype = problem.v_dtype = ATTN_Q4_0;
    problem.k_scale = problem.v_scale = ATTN_SCALES_NONE;
    problem.head_dim = problem.head_dim_vo = 64;
    problem.layout = ATTN_STRIDED;
    problem.kv_source = ATTN_KV_CACHE;
    if (backend->table->query(failure->life->instance, NULL, &problem, &query) != ATTN_OK || query.accepted)
        return;
    ATTN_INIT(&desc);
    desc.k_dtype = desc.v_dtype = ATTN_Q4_0;
    desc.layout = ATTN_STRIDED;
    desc.pages = desc.block = desc.kv_heads = 1;
    desc.head_dim = desc.head_dim_vo = 32;
    desc.k.data = desc.v.data = memory;
    failure->must = true;
    life_enter(failure->life, "create of a cache in blocks, which it refuses to read");
    const int32_t status = backend->table->kv->create(backend->impl, &desc, &kv, life_error(failure->life));
    judge_words(failure, status);
    if (status == ATTN_OK)
        backend->table->kv->destroy(kv);
}

static void fail_everything(struct isolated *isolated, struct life *life)
{
    struct failure failure = {.isolated = isolated, .life = life};

    for (uint32_t i = 0; i < life->backend_count; i++) {
        struct life_backend backend;
        fail_open(&failure, life->backends[i]);
        if (!life_open(life, i, &backend))
            continue;
        fail_sizes(&failure, &backend);
        fail_blocks(&failure, &backend);
        life_close(&backend);
    }
}

static void judge_failures(struct isolated *isolated, const char *plugin, const char *name, bool without)
{
    struct life life = {.without_errors = without};

    if (!life_load(&life, isolated, plugin) || (without && !life_live(&life)) || !life_begin(&life) ||
        !life_ask(&life)) {
        isolated_fail(isolated, name, "%s", life.why);
        return;
    }
    fail_everything(isolated, &life);
    life_end(&life);
}

void judge_errors(struct isolated *isolated, const char *plugin)
{
    judge_failures(isolated, plugin, "words of errors", false);
}

/* NULL is legal everywhere: a whole life and every failure again. */
void judge_missing_errors(struct isolated *isolated, const char *plugin)
{
    judge_failures(isolated, plugin, "without err", true);
}
