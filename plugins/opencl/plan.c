/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Plans: kernels that are compiled when the plan is created, and which of them a run launches. */
#include "opencl.h"

struct attn_plan_impl {
    struct attn_backend_impl *backend;
    struct attn_problem problem;
    struct opencl_config config;
    uint64_t capacity; /* sequences times splits that the workspace has room for */
    cl_kernel generic;
    cl_kernel decode, combine, prefill; /* NULL where the config is the generic one */
};

static uint64_t partial_bytes(const struct attn_plan_impl *plan)
{
    const struct attn_problem *p = &plan->problem;

    return (uint64_t)plan->config.decode_tokens * p->heads * (p->head_dim_vo + PARTIAL_EXTRA) * sizeof(float);
}

/* Splits that a sequence of at most so many keys can have. */
static uint64_t most_splits(uint32_t max_kv)
{
    const uint64_t spans = ((uint64_t)max_kv + SPLIT_KEYS - 1) / SPLIT_KEYS;

    return spans < 1 ? 1 : spans > OPENCL_MAX_SPLITS ? OPENCL_MAX_SPLITS : spans;
}

/*
 * As many splits as keep the device busy with any number of sequences; with det=1 as many as a sequence has
 * spans, so that they do not depend on its companions.
 */
static void find_capacity(struct attn_plan_impl *plan)
{
    const struct attn_problem *p = &plan->problem;
    const uint64_t splits = most_splits(p->max_kv);
    const uint64_t busy = ((uint64_t)plan->config.busy_groups + p->kv_heads - 1) / p->kv_heads;

    if (splits == 1)
        plan->capacity = 0;
    else if (p->det != 0)
        plan->capacity = p->max_seqs * splits;
    else
        plan->capacity = busy > p->max_seqs ? busy : p->max_seqs;
}

static int32_t create_kernels(struct attn_plan_impl *plan, struct attn_error *err)
{
    const struct {
        const char *name;
        cl_kernel *out;
    } kernels[] = {{"attn_attention", &plan->generic},
                   {"attn_decode", &plan->decode},
                   {"attn_combine", &plan->combine},
                   {"attn_prefill", &plan->prefill}};
    const size_t count = plan->config.generic != NULL ? 1 : sizeof kernels / sizeof kernels[0];
    char options[OPENCL_OPTIONS_SIZE];
    int32_t status = ATTN_OK;

    opencl_config_options(&plan->config, &plan->problem, options, sizeof options);
    for (size_t i = 0; i < count && status == ATTN_OK; i++)
        status = opencl_kernel_create(plan->backend, options, kernels[i].name, kernels[i].out, err);
    return status;
}

static void destroy(struct attn_plan_impl *plan)
{
    if (plan == NULL)
        return;
    cl_kernel kernels[] = {plan->generic, plan->decode, plan->combine, plan->prefill};
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (kernels[i] != NULL)
            plan->backend->cl->clReleaseKernel(kernels[i]);
    free(plan);
}

static int32_t create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                      struct attn_plan_impl **out, struct attn_error *err)
{
    struct attn_plan_impl *plan = calloc(1, sizeof *plan);

    *out = NULL;
    if (plan == NULL)
        return opencl_fail(err, ATTN_E_MEMORY, 0, "plan", "no memory for the plan");
    plan->backend = backend;
    plan->problem = *problem;
    opencl_config_find(backend->device, problem, &plan->config);
    find_capacity(plan);
    const int32_t status = create_kernels(plan, err);
    if (status != ATTN_OK) {
        destroy(plan);
        return status;
    }
    *out = plan;
    return ATTN_OK;
}

static int32_t sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    out->alignment = 64;
    if (plan->config.generic == NULL)
        out->scratch = plan->capacity * partial_bytes(plan);
    return ATTN_OK;
}

/* Splits of a run, all of whose sequences have room for as many. */
static uint32_t splits_of(const struct attn_plan_impl *plan, const struct attn_batch *batch)
{
    const uint64_t most = most_splits(plan->problem.det != 0 ? plan->problem.max_kv : batch->max_kv);
    const uint64_t room = plan->capacity / batch->seqs;

    return (uint32_t)(room < 1 ? 1 : room < most ? room : most);
}

static int32_t run_decode(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                          const struct opencl_launch *launch, void *stream, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    const uint32_t tokens =
        batch->max_q < plan->config.decode_tokens ? batch->max_q : plan->config.decode_tokens;
    const uint32_t rows = tokens * (p->heads / p->kv_heads), splits = (uint32_t)launch->arguments.splits;
    const uint32_t blocks = (rows + plan->config.decode_rows - 1) / plan->config.decode_rows;
    const struct opencl_grid decode = {{(size_t)batch->seqs * p->kv_heads, splits, blocks},
                                       plan->config.decode_items};
    const struct opencl_grid combine = {{p->heads, tokens, batch->seqs}, OPENCL_ITEMS};
    int32_t status = opencl_launch_enqueue(plan->backend, plan->decode, launch, &decode, stream, err);

    if (status == ATTN_OK && splits > 1)
        status = opencl_launch_enqueue(plan->backend, plan->combine, launch, &combine, stream, err);
    return status;
}

static int32_t run_prefill(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                           const struct opencl_launch *launch, void *stream, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    const uint64_t rows = (uint64_t)batch->num_tokens * (p->heads / p->kv_heads);
    const uint64_t tiles = rows / opencl_config_prefill_rows(&plan->config) + batch->seqs;
    const struct opencl_grid grid = {{tiles * p->kv_heads, 1, 1}, OPENCL_PREFILL_ITEMS};

    return opencl_launch_enqueue(plan->backend, plan->prefill, launch, &grid, stream, err);
}

static int32_t run_fast(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                        const struct attn_scratch *scratch, struct opencl_launch *launch, void *stream,
                        struct attn_error *err)
{
    const uint32_t tokens = plan->config.decode_tokens;
    /* With graph=always there may be fewer tokens than the batch says. */
    const bool one_prefill =
        batch->seqs == 1 && batch->num_tokens > tokens && plan->problem.graph != ATTN_GRAPH_ALWAYS;
    int32_t status = ATTN_OK;

    launch->arguments.decode_tokens = (opencl_i32)tokens;
    launch->arguments.splits = (opencl_i32)splits_of(plan, batch);
    if (launch->arguments.splits > 1)
        status =
            opencl_launch_add(launch, OPENCL_BUFFER_workspace, &scratch->scratch.buffer, 16, "scratch", err);
    if (status == ATTN_OK && !one_prefill)
        status = run_decode(plan, batch, launch, stream, err);
    if (status == ATTN_OK && batch->max_q > tokens)
        status = run_prefill(plan, batch, launch, stream, err);
    return status;
}

static int32_t run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                   const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                   const struct attn_kv_desc *desc, const struct attn_span *schedule,
                   const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    struct opencl_launch launch;
    const struct opencl_grid grid = {{(size_t)batch->num_tokens * plan->problem.heads, 1, 1}, OPENCL_ITEMS};
    int32_t status = opencl_resolve_run(plan->backend, &launch, &plan->problem, batch, tensors,
                                        attn_util_kv(kv, desc), err);

    (void)schedule;
    if (status == ATTN_OK && batch->seqs > 0) {
        if (plan->config.generic == NULL && opencl_launch_is_aligned(&launch))
            status = run_fast(plan, batch, scratch, &launch, stream, err);
        else
            status = opencl_launch_enqueue(plan->backend, plan->generic, &launch, &grid, stream, err);
    }
    opencl_launch_release(plan->backend, &launch);
    return status;
}

static int32_t describe(const struct attn_plan_impl *plan, struct attn_plan_info *out)
{
    const struct attn_problem *p = &plan->problem;
    const bool fast = plan->config.generic == NULL;

    out->graph_level = ATTN_GRAPH_ALWAYS;
    out->splits = fast ? (uint32_t)most_splits(p->max_kv) : 1;
    out->split_keys = fast ? SPLIT_KEYS : 0;
    out->alignment = out->stride_multiple = fast ? 16 : 1;
    snprintf(out->kernels, sizeof out->kernels, "%s",
             fast ? "opencl_decode,opencl_prefill" : "opencl_generic");
    return ATTN_OK;
}

const struct attn_plan_table opencl_plan_table = {
    .struct_size = sizeof opencl_plan_table,
    .create = create,
    .sizes = sizes,
    .prepare = attn_util_plan_prepare,
    .run = run,
    .destroy = destroy,
    .describe = describe,
};
