/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench serve: a trace of requests through everything between a scheduler and the kernels. */
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "serve.h"

enum { DEFAULT_SEQS = 256, DEFAULT_LAYERS = 4, DEFAULT_CHUNK = 2048, DEFAULT_TOKENS = 2048 };

static const struct {
    const char *key, *text;
} defaults[] = {
    {"heads", "heads=4"}, {"kv_heads", "kv_heads=1"}, {"head_dim", "head_dim=64"}, {"q", "q=f16"}};

static uint32_t or_default(uint32_t given, uint32_t otherwise)
{
    return given != 0 ? given : otherwise;
}

/* ---------------------------------------------------------------- what is served */

/* Keys that would need data which this mode does not make, and the values that do not. */
static bool is_served(const struct attn_problem *p)
{
    const bool scales = (p->k_scale == ATTN_SCALES_NONE || p->k_scale == ATTN_SCALES_UNIT ||
                         p->k_scale == ATTN_SCALES_TOKEN_HEAD) &&
                        (p->v_scale == ATTN_SCALES_NONE || p->v_scale == ATTN_SCALES_UNIT ||
                         p->v_scale == ATTN_SCALES_TOKEN_HEAD);
    const struct {
        bool good;
        const char *key, *accepted;
    } rules[] = {
        {p->type == ATTN_DECODER, "type", "decoder"},
        {p->addressing == ATTN_TABLE, "addr", "table; a backend of the flashinfer flavour makes csr of it"},
        {p->index_dtype == ATTN_INT32, "index", "i32"},
        {p->kv_source == ATTN_KV_CACHE, "kv_source", "cache"},
        {attn_dtype_size(p->q_dtype) > 1 && attn_dtype_size(p->out_dtype) > 1, "q", "f32, f16 and bf16"},
        {p->k_dtype == p->v_dtype, "v", "the type of k"},
        {scales, "scales", "none, unit and token-head"},
        {p->alibi == ATTN_ALIBI_NONE, "alibi", "none"},
        {p->sinks == 0, "sinks", "0"},
        {p->mask == ATTN_MASK_NONE, "mask", "none"},
        {p->positions == 0, "positions", "0"},
        {p->seq_causal == 0, "seq_causal", "0"},
        {p->mla == 0, "mla", "0"},
        {p->cp == 0, "cp", "0"},
        {p->lse == 0, "lse", "0"},
        {(p->max_seqs | p->max_q | p->max_kv | p->max_rows) == 0, "max_...",
         "0; they follow from seqs, chunk and the trace"},
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].good)
            continue;
        complain("mode serve does not serve this value of key %s; accepted: %s", rules[i].key,
                 rules[i].accepted);
        return false;
    }
    return true;
}

/* The problem of the keys, with defaults for what is not given. */
static bool read_problem(const struct bench_keys *keys, struct attn_problem *out)
{
    char *text = need_copy(keys->problem);
    struct attn_error err;

    ATTN_INIT(&err);
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        if (keys_have(keys, defaults[i].key) ||
            (strcmp(defaults[i].key, "kv_heads") == 0 && keys_have(keys, "heads")))
            continue;
        char *longer = need_format("%s %s", defaults[i].text, text);
        free(text);
        text = longer;
    }
    bool good = attn_problem_parse(text, out, &err) == ATTN_OK;
    if (!good)
        complain("%s", err.message);
    free(text);
    return good && is_served(out);
}

/* Sizes that follow from one another. */
static bool set_sizes(const struct bench_keys *keys, const struct serve_trace *trace,
                      struct serve_options *out)
{
    struct attn_problem *problem = &out->shape.problem;
    const uint64_t longest = ((uint64_t)trace->longest - 1) / problem->block + 1;
    const uint64_t usual = ((uint64_t)DEFAULT_TOKENS - 1) / problem->block + 1;

    out->trace = trace;
    out->seqs = or_default(keys->seqs, DEFAULT_SEQS);
    out->chunk = or_default(keys->chunk, DEFAULT_CHUNK);
    out->reuse = !keys->reuse.given || keys->reuse.on;
    out->speed = keys->speed != NULL ? strtod(keys->speed, NULL) : 0;
    out->shape.layers = or_default(keys->layers, DEFAULT_LAYERS);
    out->shape.host_blocks = keys->host_blocks;
    out->shape.threads = keys->threads;
    uint64_t blocks = keys->blocks;
    if (blocks == 0)
        blocks = (longest < usual ? longest : usual) * out->seqs;
    if (keys->blocks == 0 && blocks < longest)
        blocks = longest;
    const uint64_t rows = (uint64_t)out->chunk + out->seqs;
    if (blocks * problem->block > INT32_MAX || out->seqs * longest > INT32_MAX ||
        rows * problem->heads * problem->head_dim > INT32_MAX) {
        complain("%" PRIu64 " blocks of %u tokens, %u seqs of up to %u tokens and %" PRIu64
                 " query tokens of %u heads are too many; lower seqs, chunk or blocks",
                 blocks, problem->block, out->seqs, trace->longest, rows, problem->heads);
        return false;
    }
    out->shape.blocks = (uint32_t)blocks;
    problem->max_seqs = out->seqs;
    problem->max_q = out->chunk;
    problem->max_rows = (uint32_t)rows;
    problem->max_kv = trace->longest;
    return true;
}

/* The last token of an answer is never computed. */
static bool all_fit(const struct bench_keys *keys, const struct serve_options *options)
{
    const uint32_t block = options->shape.problem.block;

    for (uint32_t i = 0; i < options->trace->count; i++) {
        const struct serve_request *request = &options->trace->requests[i];
        const uint32_t needed = (request->prompt + request->answer - 2) / block + 1;
        if (needed <= options->shape.blocks)
            continue;
        complain("%s:%" PRIu32 ": the request of %" PRIu32 " and %" PRIu32 " tokens needs %" PRIu32
                 " blocks of %" PRIu32 ", and blocks is %" PRIu32 "; give %" PRIu32 " or more",
                 keys->trace, request->line, request->prompt, request->answer, needed, block,
                 options->shape.blocks, needed);
        return false;
    }
    return true;
}

/* ---------------------------------------------------------------- results */

static void emit(struct bench *bench, struct serve *serve)
{
    const struct times *total = &serve->all->part[SERVE_TOTAL];
    struct attn_plan_info info;
    struct attn_state_step step;
    struct attn_error err;
    struct row row;

    ATTN_INIT(&info);
    ATTN_INIT(&step);
    ATTN_INIT(&err);
    row_init(&row, "serve", "serve");
    snprintf(row.backend, sizeof row.backend, "%s", attn_backend_get_name(serve->model.backend));
    if (attn_state_get_step(serve->model.state, 0, &step, &err) == ATTN_OK &&
        attn_plan_describe(step.plan, &info, &err) == ATTN_OK)
        snprintf(row.kernel, sizeof row.kernel, "%s", info.kernels);
    attn_problem_format(&serve->model.problem, row.problem, sizeof row.problem, NULL, NULL);
    row.threads = serve->options.shape.threads;
    row.us_min = 1e-3 * (double)total->least;
    row.us_median = times_quantile(total, 0.5);
    row.us_max = 1e-3 * (double)total->most;
    row.more = serve_say;
    row.arg = serve;
    bench_emit(bench, &row);
}

/* ---------------------------------------------------------------- the mode */

static int replay(struct bench *bench, const struct serve_options *options)
{
    struct failure err;
    struct serve serve;
    bool more = true;
    int status = serve_init(&serve, options, &err);

    while (status == 0 && more)
        status = serve_step(&serve, &more, &err);
    if (status == 0)
        status = serve_check(&serve, &err);
    if (status == 0)
        emit(bench, &serve);
    else
        complain("serve: %s", err.text);
    serve_finish(&serve);
    return status == 0 ? EXIT_YES : EXIT_NO;
}

static int read_trace(const struct bench_keys *keys, struct serve_trace *trace)
{
    struct failure err;

    if (keys->trace == NULL) {
        complain("mode serve needs a trace; give it as trace=FILE.csv");
        return EXIT_USAGE;
    }
    if (serve_trace_read(trace, keys->trace, keys->requests, &err) == 0)
        return EXIT_YES;
    complain("%s", err.text);
    return EXIT_USAGE;
}

int serve_mode(struct bench *bench)
{
    struct serve_options options = {.trace = NULL};
    struct serve_trace trace = {.count = 0};
    char *noop = NULL;
    int code = EXIT_YES;

    if (!read_problem(&bench->keys, &options.shape.problem))
        return EXIT_USAGE;
    if (bench->keys.noop.on) {
        noop = noop_path();
        if (noop == NULL)
            return EXIT_MISSING;
        options.shape.noop = dirname(noop);
    }
    code = read_trace(&bench->keys, &trace);
    if (code == EXIT_YES && (!set_sizes(&bench->keys, &trace, &options) || !all_fit(&bench->keys, &options)))
        code = EXIT_USAGE;
    if (code == EXIT_YES)
        code = replay(bench, &options);
    serve_trace_finish(&trace);
    free(noop);
    return code;
}
