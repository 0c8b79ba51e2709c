/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Handles: of another backend or context, none at all, and destroyed in every order. */
#include <stdio.h>

#include "attn/device.h"
#include "faults.h"

/* Everything that hangs together, in one array. */
enum { CONTEXT, DECISION, BACKEND, PLAN, KV, HANDLES };

struct family {
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_backend *backend;
    struct attn_plan *plan;
    struct attn_kv *kv;
};

static bool family_init(struct family *family, struct bench *bench, char *why, size_t size)
{
    struct attn_select_options choice;
    struct attn_error err;

    memset(family, 0, sizeof *family);
    ATTN_INIT(&err);
    ATTN_INIT(&choice);
    choice.backend = bench->target->name;
    if (bench_create_context(bench, &family->context, &err) == ATTN_OK &&
        attn_select(family->context, &bench->fixture.step.problem, 1, &choice, &family->decision, &err) ==
            ATTN_OK &&
        attn_backend_open(family->context, family->decision, NULL, &family->backend, &err) == ATTN_OK &&
        attn_plan_create(family->backend, &bench->fixture.step.problem, &family->plan, &err) == ATTN_OK &&
        attn_kv_create(family->backend, &bench->fixture.step.kv, &family->kv, &err) == ATTN_OK)
        return true;
    snprintf(why, size, "%s", err.message);
    return false;
}

static void family_destroy(struct family *family, int which)
{
    if (which == CONTEXT)
        attn_context_destroy(family->context);
    else if (which == DECISION)
        attn_decision_destroy(family->decision);
    else if (which == BACKEND)
        attn_backend_destroy(family->backend);
    else if (which == PLAN)
        attn_plan_destroy(family->plan);
    else
        attn_kv_destroy(family->kv);
}

/* What a plan needs of its parents it holds: the run is right without their handles. */
static bool family_runs(const struct family *family, struct bench *bench, char *why, size_t size)
{
    struct fixture *fixture = &bench->fixture;
    struct attn_tensors tensors = fixture->step.tensors;
    struct attn_plan_sizes sizes;
    struct attn_scratch scratch;
    struct attn_buffer blocks[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    struct attn_error err;
    int32_t status;

    ATTN_INIT(&err);
    ATTN_INIT(&sizes);
    ATTN_INIT(&scratch);
    tensors.kv = family->kv;
    status = attn_plan_get_sizes(family->plan, &sizes, &err);
    const uint64_t bytes[3] = {sizes.schedule, sizes.scratch, sizes.counters};
    for (uint32_t i = 0; i < 3 && status == ATTN_OK; i++) {
        if (bytes[i] > 0)
            status = attn_memory_alloc(bench->target->backend, bytes[i], &blocks[i], &err);
        if (status == ATTN_OK && bytes[i] > 0)
            memset((char *)blocks[i].data + blocks[i].byte_offset, 0, bytes[i]);
    }
    const struct attn_span schedule = {blocks[0], bytes[0]};
    scratch.scratch = (struct attn_span){blocks[1], bytes[1]};
    scratch.counters = (struct attn_span){blocks[2], bytes[2]};
    if (status == ATTN_OK)
        status =
            attn_plan_prepare(family->plan, &fixture->step.batch, &schedule, &fixture->staging, NULL, &err);
    if (status == ATTN_OK)
        status = attn_plan_run(family->plan, &fixture->step.batch, &tensors, &schedule, &scratch, NULL, &err);
    bool good = status == ATTN_OK && fixture_judge(fixture, why, size);
    if (status != ATTN_OK)
        snprintf(why, size, "%s", err.message);
    for (uint32_t i = 0; i < 3; i++)
        attn_memory_free(bench->target->backend, &blocks[i]);
    fixture_clear(fixture);
    return good;
}

/* Order number `n` of the five handles. */
static void make_order(uint32_t n, int order[HANDLES])
{
    bool used[HANDLES] = {false};

    for (uint32_t left = HANDLES; left > 0; left--) {
        uint32_t skip = n % left;
        n /= left;
        int which = 0;
        while (used[which] || skip > 0) {
            skip -= !used[which];
            which++;
        }
        used[which] = true;
        order[HANDLES - left] = which;
    }
}

static void check_orders(struct bench *bench, const char *text, uint64_t seed)
{
    static const char *const names[HANDLES] = {"context", "decision", "backend", "plan", "kv"};
    char why[512] = "";
    bool good = true;

    tap_begin(bench->target, "faults", text, seed);
    for (uint32_t n = 0; n < 120 && good; n++) {
        struct family family;
        int order[HANDLES];
        make_order(n, order);
        bool whole = good = family_init(&family, bench, why, sizeof why);
        for (uint32_t i = 0; i < HANDLES; i++) {
            whole = whole && order[i] != PLAN && order[i] != KV;
            family_destroy(&family, order[i]);
            if (whole && good)
                good = family_runs(&family, bench, why, sizeof why);
        }
        if (!good)
            tap_fail("destroyed in the order %s, %s, %s, %s, %s: %s", names[order[0]], names[order[1]],
                     names[order[2]], names[order[3]], names[order[4]], why);
    }
    if (good)
        tap_pass();
}

/* A call that must be refused with a field of this name. */
static void expect(const struct bench *bench, const char *what, int32_t status, struct attn_error *err,
                   const char *field, const char *text, uint64_t seed)
{
    tap_begin(bench->target, bench->kind, text, seed);
    if (status == ATTN_OK)
        tap_fail("%s is accepted", what);
    else if (strcmp(attn_status_name(status), "ATTN_E_UNKNOWN") == 0 || err->status != status)
        tap_fail("%s answers %d; the error says %d", what, status, err->status);
    else if (strstr(err->field, field) == NULL || err->message[0] == '\0')
        tap_fail("%s: the error's field is \"%s\", not %s: %s", what, err->field, field, err->message);
    else
        tap_pass();
    ATTN_INIT(err);
}

static void check_foreign(struct bench *bench, const char *text, uint64_t seed)
{
    struct fixture *fixture = &bench->fixture;
    struct attn_tensors tensors = fixture->step.tensors;
    struct attn_kv_write_args write = fixture->write;
    struct attn_backend *backend = NULL;
    struct family other;
    struct attn_error err;
    char why[512] = "";
    int32_t status;

    tap_begin(bench->target, "faults", text, seed);
    if (!family_init(&other, bench, why, sizeof why)) {
        tap_fail("%s", why);
        return;
    }
    tap_pass();
    ATTN_INIT(&err);
    tensors.kv = other.kv;
    attn_plan_prepare(bench->plan, &fixture->step.batch, &fixture->schedule, &fixture->staging, NULL, NULL);
    status = attn_plan_run(bench->plan, &fixture->step.batch, &tensors, &fixture->schedule, &fixture->scratch,
                           NULL, &err);
    expect(bench, "a run with the cache of another context", status, &err, "kv", text, seed);
    ATTN_INIT(&err);
    write.kv = other.kv;
    write.kv_desc = NULL;
    status = attn_kv_write(bench->target->backend, &write, NULL, &err);
    expect(bench, "a write into the cache of another context", status, &err, "kv", text, seed);
    ATTN_INIT(&err);
    status = attn_backend_open(bench->context, other.decision, NULL, &backend, &err);
    expect(bench, "opening the decision of another context", status, &err, "decision", text, seed);
    ATTN_INIT(&err);
    const struct attn_plan *plans[2] = {bench->plan, other.plan};
    const struct attn_batch *batches[2] = {&fixture->step.batch, &fixture->step.batch};
    const struct attn_span schedules[2] = {fixture->schedule, fixture->schedule};
    status = attn_plan_prepare_many(plans, batches, schedules, 2, &fixture->staging, NULL, &err);
    expect(bench, "preparing plans of two backends", status, &err, "plans", text, seed);
    for (int i = 0; i < HANDLES; i++)
        family_destroy(&other, i);
    tap_begin(bench->target, "faults", text, seed);
    if (fixture_untouched(fixture))
        tap_pass();
    else
        tap_fail("a refused call with a foreign handle wrote into out or lse");
}

/* No handle at all: an answer, and no crash. */
static void check_none(struct bench *bench, const char *text, uint64_t seed)
{
    const struct attn_backend_table *table = bench->direct.table;
    const struct fixture *fixture = &bench->fixture;
    const struct attn_buffer nothing = {NULL, 0};
    struct attn_plan_sizes sizes;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&sizes);
    expect(bench, "a run without a plan",
           attn_plan_run(NULL, &fixture->step.batch, &bench->tensors, &fixture->schedule, &fixture->scratch,
                         NULL, &err),
           &err, "plan", text, seed);
    expect(bench, "a prepare without a plan",
           attn_plan_prepare(NULL, &fixture->step.batch, &fixture->schedule, NULL, NULL, &err), &err, "plan",
           text, seed);
    expect(bench, "sizes without a plan", attn_plan_get_sizes(NULL, &sizes, &err), &err, "plan", text, seed);
    expect(bench, "a write without a backend", attn_kv_write(NULL, &fixture->write, NULL, &err), &err,
           "backend", text, seed);
    expect(bench, "a merge without a backend", attn_merge(NULL, &bench->merge, NULL, &err), &err, "backend",
           text, seed);
    expect(bench, "a plan without out",
           attn_plan_create(bench->target->backend, &fixture->step.problem, NULL, &err), &err, "out", text,
           seed);
    expect(bench, "a cache without out",
           attn_kv_create(bench->target->backend, &fixture->step.kv, NULL, &err), &err, "out", text, seed);
    attn_plan_destroy(NULL);
    attn_kv_destroy(NULL);
    attn_backend_destroy(NULL);
    attn_decision_destroy(NULL);
    attn_report_destroy(NULL);
    attn_context_destroy(NULL);
    attn_memory_free(bench->target->backend, &nothing);
    table->plan->destroy(NULL);
    table->kv->destroy(NULL);
    table->memory->free(bench->impl, &nothing);
}

/* Entry and open, which the library never calls like this. */
void faults_entry(struct bench *bench, const char *text, uint64_t seed)
{
    struct direct *direct = &bench->direct;
    struct attn_device foreign = {.type = 77, .ordinal = 0}, distant = bench->target->device;
    const struct attn_plugin *plugin = NULL;
    struct attn_backend_impl *impl = NULL;
    struct attn_instance *instance = NULL;
    struct attn_host host = direct->host;
    struct attn_error err;

    ATTN_INIT(&err);
    host.out_instance = &instance;
    distant.ordinal = 1000000;
    expect(bench, "an entry without a host", direct->entry(NULL, &plugin, &err), &err, "host", text, seed);
    expect(bench, "an entry without out", direct->entry(&host, NULL, &err), &err, "", text, seed);
    host.struct_size = 16;
    expect(bench, "an entry with a short host", direct->entry(&host, &plugin, &err), &err, "host", text,
           seed);
    expect(bench, "opening a foreign device",
           direct->table->open(direct->instance, &foreign, NULL, &impl, &err), &err, "device", text, seed);
    expect(bench, "opening a device that is not there",
           direct->table->open(direct->instance, &distant, NULL, &impl, &err), &err, "device", text, seed);
    tap_begin(bench->target, bench->kind, text, seed);
    if (impl == NULL && instance == NULL)
        tap_pass();
    else
        tap_fail("a refused call left an object behind");
}

void faults_handles(struct bench *bench, const char *text, uint64_t seed)
{
    check_orders(bench, text, seed);
    check_foreign(bench, text, seed);
    check_none(bench, text, seed);
}
