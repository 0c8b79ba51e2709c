/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The life of a context in which one allocation after the other is refused, once or from then on. Every call
 * says so or succeeds, nothing stays allocated, and where memory is back the context answers again. Linked
 * with the library's own files, whose calls of the allocator come here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "malformed.h"
#include "plugin/probe/probe.h"

#define PROBLEM "heads=8 kv_heads=2 head_dim=64 q=bf16 max_seqs=4 max_q=8 max_kv=64 max_rows=16"

/* ---------------------------------------------------------------- the allocator */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *block);

enum { BLOCKS_MOST = 16384 };

static void *blocks[BLOCKS_MOST];
static unsigned block_count, asked, refused;
static unsigned refuse_at; /* which call, from 1; 0: none */
static int refuse_after;   /* and all after it */

static int is_refused(void)
{
    asked++;
    int no = refuse_at != 0 && (refuse_after ? asked >= refuse_at : asked == refuse_at);
    refused += (unsigned)no;
    return no;
}

static void *keep(void *block)
{
    if (block != NULL && block_count < BLOCKS_MOST)
        blocks[block_count++] = block;
    return block;
}

static void forget(const void *block)
{
    for (unsigned i = block_count; block != NULL && i-- > 0;)
        if (blocks[i] == block) {
            blocks[i] = blocks[--block_count];
            return;
        }
}

void *__wrap_malloc(size_t size)
{
    return is_refused() ? NULL : keep(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return is_refused() ? NULL : keep(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (is_refused())
        return NULL;
    forget(old);
    return keep(__real_realloc(old, size));
}

char *__wrap_strdup(const char *text)
{
    return is_refused() ? NULL : keep(__real_strdup(text));
}

void __wrap_free(void *block)
{
    forget(block);
    __real_free(block);
}

/* ---------------------------------------------------------------- what is said */

static struct malformed malformed;
static struct attn_error err;
static unsigned failures, told;
static bool emulated; /* then what a child could not execute is not told to its parent */

static void expect(int good, const char *what)
{
    if (good)
        return;
    failures++;
    fprintf(stderr, "allocation %u refused%s: %s (%s)\n", refuse_at, refuse_after ? ", and all after it" : "",
            what, err.message);
}

/* A call without shortage succeeds; another may fail for memory, or for a plugin that could not be loaded. */
static int judge(int32_t status, const char *call)
{
    if (status == ATTN_OK)
        return 1;
    told++;
    expect(refused > 0, call);
    expect(status == ATTN_E_MEMORY || status == ATTN_E_PLUGIN || status == ATTN_E_NO_BACKEND, call);
    expect(err.status == status && err.message[0] != '\0', call);
    return 0;
}

static void use_handles(struct attn_backend *backend, const struct attn_problem *problem)
{
    static char memory[4096];
    struct attn_buffer buffer = {memory, 0};
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;
    struct attn_plan *plan = NULL;
    struct attn_kv *kv = NULL;
    judge(attn_plan_create(backend, problem, &plan, &err), "attn_plan_create");
    ATTN_INIT(&shape);
    if (judge(attn_kv_get_shape(backend, problem, 4, &shape, &err), "attn_kv_get_shape")) {
        attn_kv_desc_init(&desc, &shape, &buffer);
        judge(attn_kv_create(backend, &desc, &kv, &err), "attn_kv_create");
    }
    attn_plan_destroy(plan);
    attn_kv_destroy(kv);
}

static void choose(struct attn_context *context, const char *wanted)
{
    struct attn_select_options options;
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_problem problem;
    ATTN_INIT(&options);
    ATTN_INIT(&problem);
    options.backend = wanted;
    expect(attn_problem_parse(PROBLEM, &problem, &err) == ATTN_OK, "attn_problem_parse");
    if (judge(attn_select(context, &problem, 1, &options, &decision, &err), "attn_select") &&
        judge(attn_backend_open(context, decision, NULL, &backend, &err), "attn_backend_open"))
        use_handles(backend, &problem);
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
}

static void ask(struct attn_context *context)
{
    struct attn_report *report = NULL;
    const struct attn_axis *axes = NULL;
    struct attn_problem problem;
    struct attn_query query;
    uint32_t count = 0;
    if (judge(attn_context_get_report(context, &report, &err), "attn_context_get_report"))
        expect(attn_report_get_file(report, 0) != NULL, "a file in the report");
    attn_report_destroy(report);
    report = NULL;
    judge(attn_context_inspect(context, malformed_path(&malformed, "other"), &report, &err),
          "attn_context_inspect");
    attn_report_destroy(report);
    ATTN_INIT(&problem);
    ATTN_INIT(&query);
    expect(attn_problem_parse(PROBLEM, &problem, &err) == ATTN_OK, "attn_problem_parse");
    judge(attn_context_get_axes(context, "gpu/flash-attn", &axes, &count, &err), "attn_context_get_axes");
    judge(attn_context_query(context, "gpu/flash-attn", NULL, &problem, &query, &err), "attn_context_query");
    judge(attn_context_rescan(context, &err), "attn_context_rescan");
}

/* Results are kept without memory. */
static void keep_results(void)
{
    static const char key[] = "0123456789abcdef0123456789abcdef";
    struct attn__result result = {.outcome = ATTN__CRASHED, .since = 1000, .step = "load"}, other;
    char *none[] = {NULL};
    const char *directory = malformed_path(&malformed, "cache");
    attn__cache_store(directory, key, &result);
    expect(attn__cache_load(directory, key, 1000, &other), "a result that was kept");
    attn__cache_reset(directory);
    expect(!attn__cache_load(directory, key, 1000, &other), "a reset");
    if (emulated)
        return;
    /* No helper can be started: that is told, with or without memory. */
    attn__probe_run("/nowhere/attn-probe", none, malformed_path(&malformed, "libattn-gpu.so"), &result);
    expect(result.outcome == ATTN__UNAVAILABLE && result.text[0] != '\0', "why no helper started");
}

static void live(void)
{
    const char *variables[] = {"ATTN_BACKEND=host,gpu", "ATTN_ODD=1", "ATTN_THREADS=x", "ATTN_GPU_KEY=2",
                               "ATTN_LOG=debug"};
    struct attn_context_options options;
    struct attn_context *context = NULL;
    ATTN_INIT(&err);
    ATTN_INIT(&options);
    options.given = ATTN_GIVEN_LOG;
    options.plugin_path = malformed_path(&malformed, "plugins");
    options.variables = variables;
    options.variable_count = sizeof variables / sizeof variables[0];
    if (judge(attn_context_create(&options, &context, &err), "attn_context_create")) {
        choose(context, NULL);
        choose(context, "nodrv,gpu,auto");
        judge(attn_context_load_all(context, &err), "attn_context_load_all");
        ask(context);
        refuse_at = 0;
        struct attn_report *report = NULL;
        expect(attn_context_rescan(context, &err) == ATTN_OK, "rescan with memory");
        expect(attn_context_get_report(context, &report, &err) == ATTN_OK &&
                   attn_report_get_file(report, 2) != NULL,
               "all files in a report with memory");
        attn_report_destroy(report);
    }
    keep_results();
    attn_context_destroy(context);
}

static unsigned run(unsigned at, int after)
{
    unsigned before = block_count;
    asked = refused = 0;
    refuse_at = at;
    refuse_after = after;
    live();
    refuse_at = at;
    expect(block_count == before, "blocks that nobody freed");
    return refused;
}

int main(int count, char **arguments)
{
    unsigned last = 0;
    emulated = count > 1 && strcmp(arguments[1], "emulated") == 0;
    malformed_create(&malformed);
    chmod(malformed.path, 0755);
    mkdir(malformed_path(&malformed, "plugins"), 0755);
    mkdir(malformed_path(&malformed, "cache"), 0700);
    malformed_add(&malformed, "gpu", "plugins/libattn-gpu.so");
    malformed_add(&malformed, "host", "plugins/libattn-host.so");
    malformed_add(&malformed, "nodrv", "plugins/libattn-nodrv.so");
    malformed_add(&malformed, "gpub", "other");
    malformed_write(&malformed, "plugins/libattn-empty.so", "", 0);
    live(); /* what a process keeps of each plugin file that it ever loaded is there from here on */
    run(0, 0);
    expect(told == 0, "a life without shortage");
    for (int after = 0; after < 2; after++)
        for (last = 1; run(last, after) > 0; last++)
            continue;
    refuse_at = 0;
    malformed_remove(&malformed);
    printf("%u allocations, each refused; %u calls said so, %u failures\n", last - 1, told, failures);
    return failures != 0 || told == 0;
}
