/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Plans: a kernel that is compiled when the plan is created, and launched once a run. */
#include "opencl.h"

struct attn_plan_impl {
    struct attn_backend_impl *backend;
    struct attn_problem problem;
    cl_kernel kernel;
};

static int32_t create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                      struct attn_plan_impl **out, struct attn_error *err)
{
    const struct attn_problem *p = problem;
    struct attn_plan_impl *plan = calloc(1, sizeof *plan);
    char options[200];

    *out = NULL;
    if (plan == NULL)
        return opencl_fail(err, ATTN_E_MEMORY, 0, "plan", "no memory for the plan");
    plan->backend = backend;
    plan->problem = *problem;
    snprintf(options, sizeof options,
             "-DQ_DTYPE=%uu -DK_DTYPE=%uu -DV_DTYPE=%uu -DOUT_DTYPE=%uu -DQUERY_SIZE=%u -DCOLUMNS=%u",
             p->q_dtype, p->k_dtype, p->mla != 0 ? p->k_dtype : p->v_dtype, p->out_dtype,
             (p->head_dim + 63) / 64 * 64, (p->head_dim_vo + OPENCL_ITEMS - 1) / OPENCL_ITEMS);
    const int32_t status = opencl_kernel_create(backend, options, "attn_attention", &plan->kernel, err);
    if (status != ATTN_OK) {
        free(plan);
        return status;
    }
    *out = plan;
    return ATTN_OK;
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

    (void)schedule, (void)scratch;
    if (status == ATTN_OK && batch->seqs > 0)
        status = opencl_launch_enqueue(plan->backend, plan->kernel, &launch, &grid, stream, err);
    opencl_launch_release(plan->backend, &launch);
    return status;
}

static void destroy(struct attn_plan_impl *plan)
{
    if (plan == NULL)
        return;
    plan->backend->cl->clReleaseKernel(plan->kernel);
    free(plan);
}

const struct attn_plan_table opencl_plan_table = {
    .struct_size = sizeof opencl_plan_table,
    .create = create,
    .sizes = attn_util_plan_sizes,
    .prepare = attn_util_plan_prepare,
    .run = run,
    .destroy = destroy,
};
