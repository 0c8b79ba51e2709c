/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the plugin serves: its own predicates for the capability engine. */
#include <stdio.h>

#include "host.h"

static void check_rows(const struct attn_problem *problem, struct attn_reason *why)
{
    if ((uint64_t)problem->max_rows * problem->heads > INT32_MAX)
        attn__caps_refuse(why, ATTN_REASON_MAX_ROWS, "max_rows", "times heads more", "at most 2147483647");
}

static void refuse_arch(struct attn_reason *why, uint32_t arch, const char *wanted)
{
    char got[16];

    snprintf(got, sizeof got, GPU_VENDOR_ARCH, arch);
    attn__caps_refuse(why, ATTN_REASON_DEVICE_ARCH, "device", got, wanted);
}

/* With arch 0, the row is not checked against a device. */
static void check_arch(const void *row, uint32_t arch, struct attn_reason *why)
{
    const struct gpu_kernel *kernel = row;
    char wanted[32];

    if (arch == 0 || (arch >= kernel->arch && (kernel->last_arch == 0 || arch <= kernel->last_arch)))
        return;
    snprintf(wanted, sizeof wanted, kernel->last_arch == 0 ? GPU_VENDOR_ARCH " or newer" : GPU_VENDOR_ARCH,
             kernel->arch);
    refuse_arch(why, arch, wanted);
}

static void check_family(const void *row, uint32_t arch, const struct attn_problem *problem,
                         struct attn_reason *why)
{
    const struct gpu_kernel *kernel = row;
    char wanted[32];

    if (kernel->family->check != NULL && !kernel->family->check(problem, why))
        return;
    if (arch == 0 || kernel->family->shared_of == NULL)
        return;
    const uint32_t needed = kernel->family->shared_of(problem, kernel->caps.phases);
    if (gpu_vendor_shared(arch) >= needed)
        return;
    snprintf(wanted, sizeof wanted, "%u KiB of shared memory", (needed + 1023) >> 10);
    refuse_arch(why, arch, wanted);
}

static const struct attn__caps_feature features[] = {
    {ATTN__HAS_ALIBI, "none"},
    {ATTN__HAS_MASK, "none"},
    {ATTN__HAS_NEW, "cache"},
    {ATTN__HAS_CACHE_NEW, "cache"},
    {ATTN__HAS_PAGED_X, "strided"},
    {ATTN__HAS_WINDOW, "-1"},
    {ATTN__HAS_SOFTCAP, "0"},
    {ATTN__HAS_SINKS, "0"},
    {ATTN__HAS_POSITIONS, "0"},
    {ATTN__HAS_SEQ_CAUSAL, "0"},
    {ATTN__HAS_ALIGN_START, "end"},
    {ATTN__HAS_MLA, "0"},
    {ATTN__HAS_CP, "0"},
    {ATTN__HAS_DENSE, "table, csr"},
    {ATTN__HAS_CSR, "table"},
    {ATTN__HAS_TOKEN_HEAD, "unit, tensor, head"},
    {ATTN__HAS_DET, "0"},
};

static struct attn__caps_table get_table(enum gpu_tensor_cores choice)
{
    return (struct attn__caps_table){.rows = gpu_kernels,
                                     .row_size = sizeof gpu_kernels[0],
                                     .row_count = gpu_kernel_count,
                                     .decode_rows = GPU_DECODE_MAX_ROWS,
                                     .features = features,
                                     .feature_count = sizeof features / sizeof features[0],
                                     .separator = ", ",
                                     .check_limit = check_rows,
                                     .check_device = check_arch,
                                     .check_option = gpu_tensor_cores_check(choice),
                                     .check_resources = check_family};
}

const struct gpu_kernel *gpu_dispatch(const struct attn_problem *problem, uint32_t phase, uint32_t arch,
                                      enum gpu_tensor_cores choice)
{
    const struct attn__caps_table table = get_table(choice);

    return attn__caps_find(&table, problem, arch, phase);
}

/* Whether an earlier error made the device unusable for this instance. */
static bool is_lost(struct attn_instance *instance, const struct gpu_device_record *record)
{
    bool lost = false;

    pthread_mutex_lock(&instance->lock);
    for (const struct gpu_context *context = instance->contexts; context != NULL; context = context->next)
        lost = lost || (context->record == record && context->primary && gpu_is_lost(context));
    pthread_mutex_unlock(&instance->lock);
    return lost;
}

/* Reasons that come from the device. *out_arch stays 0 if the device is not this plugin's. */
static void judge_device(struct attn_instance *instance, const struct attn_device *device,
                         struct attn_query *out, uint32_t *out_arch)
{
    struct attn_reason why = {0};
    const char *served = NULL;
    const struct gpu_device_record *record =
        gpu_instance_open(instance, NULL) == ATTN_OK ? gpu_device_find(instance, device) : NULL;

    *out_arch = record != NULL ? record->arch : 0;
    if (record == NULL) {
        attn__caps_refuse(&why, ATTN_REASON_DEVICE, "device", "another one",
                          GPU_VENDOR_DEVICE ":N of attn-info devices");
    } else if (!gpu_vendor_serves(record, &served)) {
        attn__caps_refuse(&why, ATTN_REASON_DEVICE_ARCH, "device", record->info.arch, served);
    } else if (is_lost(instance, record)) {
        attn__caps_refuse(&why, ATTN_REASON_DEVICE_LOST, "device", "lost after an error",
                          "a device that works");
    }
    if (why.code != 0)
        attn__caps_add(out, &why);
}

int32_t gpu_query(struct attn_instance *instance, const struct attn_device *device,
                  const struct attn_problem *problem, uint32_t cost_rank, enum gpu_tensor_cores choice,
                  struct attn_query *out)
{
    const struct attn__caps_table table = get_table(choice);
    uint32_t arch = 0;

    attn__caps_begin(out, cost_rank);
    if (device != NULL)
        judge_device(instance, device, out, &arch);
    attn__caps_answer(&table, problem, arch, out);
    return ATTN_OK;
}
