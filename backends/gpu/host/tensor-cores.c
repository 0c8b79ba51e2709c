/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ATTN_FLASHINFER_TENSOR_CORES: whether flavour flashinfer decodes on tensor cores. */
#include "host.h"

bool gpu_tensor_cores_read(const struct attn_instance *instance, enum gpu_tensor_cores *out,
                           const char **value)
{
    static const char *const names[] = {"auto", "on", "off"}; /* in the order of the enum */

    *value = NULL;
    *out = GPU_TENSOR_CORES_AUTO;
    if (instance->host.get_option != NULL)
        *value = instance->host.get_option(instance->host.ctx, GPU_TENSOR_CORES_OPTION);
    if (*value == NULL || **value == '\0')
        return true;
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(*value, names[i]) == 0) {
            *out = (enum gpu_tensor_cores)i;
            return true;
        }
    }
    return false;
}

void gpu_tensor_cores_refuse(struct attn_reason *why, const char *got, const char *wanted)
{
    attn__caps_refuse(why, ATTN_REASON_OPTION, GPU_TENSOR_CORES_OPTION, got, wanted);
}

static void check_on(const void *row, struct attn_reason *why)
{
    const struct gpu_kernel *kernel = row;

    if (!kernel->tensor_cores)
        gpu_tensor_cores_refuse(why, "on", "auto or off");
}

/* Refuses rows for decode alone: for prefill and MLA the option has no effect. */
static void check_off(const void *row, struct attn_reason *why)
{
    const struct gpu_kernel *kernel = row;

    if (kernel->tensor_cores && kernel->caps.phases == ATTN__DECODE)
        gpu_tensor_cores_refuse(why, "off", "auto or on");
}

gpu_option_check *gpu_tensor_cores_check(enum gpu_tensor_cores choice)
{
    return choice == GPU_TENSOR_CORES_ON ? check_on : choice == GPU_TENSOR_CORES_OFF ? check_off : NULL;
}
