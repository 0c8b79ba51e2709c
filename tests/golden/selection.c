/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The order in which the original chose a backend: platform first, then the flash kernels' limits. */
#include "selection.h"

#include <stdio.h>
#include <string.h>

#include "compat.h"

const char *const selection_names[] = {
    "FLASH_ATTN", "FLASH_ATTN_VLLM_V1", "XFORMERS", "ROCM_FLASH", "TORCH_SDPA",  "OPENVINO",
    "FLASHINFER", "HPU_ATTN",           "PALLAS",   "IPEX",       "NO_ATTENTION"};
const size_t selection_name_count = sizeof selection_names / sizeof *selection_names;

static const char *forced_now;

void selection_enter(struct selection_scope *scope, const char *forced)
{
    scope->before = forced_now;
    forced_now = forced;
}

void selection_leave(const struct selection_scope *scope)
{
    forced_now = scope->before;
}

const char *selection_forced(void)
{
    return forced_now;
}

static void say(struct selection *out, const char *format, const char *name)
{
    snprintf(out->log[out->log_count++], sizeof *out->log, format, name);
}

/* One platform's only backend. */
static const struct platform {
    const char *name;
    const char *backend;
    const char *label; /* NULL: it says nothing when another was asked for */
} platforms[] = {
    {"cpu", "TORCH_SDPA", "CPU"}, {"openvino", "OPENVINO", "OpenVINO"},
    {"xpu", "IPEX", "XPU"},       {"tpu", "PALLAS", "TPU"},
    {"hpu", "HPU_ATTN", NULL},
};

/* Names are case-sensitive. Returns false with the error's text. */
static bool is_name(const char *name, struct selection *out)
{
    size_t used = 0;

    for (size_t i = 0; i < selection_name_count; i++)
        if (strcmp(name, selection_names[i]) == 0)
            return true;
    used = (size_t)snprintf(out->error, sizeof out->error,
                            "Invalid attention backend '%.40s'. Available backends: ", name);
    for (size_t i = 0; i < selection_name_count; i++)
        used += (size_t)snprintf(out->error + used, sizeof out->error - used, "%s%s", i == 0 ? "" : ", ",
                                 selection_names[i]);
    snprintf(out->error + used, sizeof out->error - used, " (case-sensitive).");
    return false;
}

static const char *choose_rocm(const struct selection_request *request, const char *wanted,
                               struct selection *out)
{
    if (strcmp(wanted, "FLASH_ATTN") != 0 && strcmp(wanted, "ROCM_FLASH") != 0)
        say(out, "_Backend.%s is not supported in AMD GPUs.", wanted);
    else if (request->capability < 90)
        say(out, "%s is not supported on NAVI GPUs.", "flash_attn");
    return "ROCM_FLASH";
}

static bool flash_has_head_dim(int head_dim)
{
    uint32_t count;
    const uint32_t *dims = compat_head_dims("flash-attn", &count);

    for (uint32_t i = 0; i < count; i++)
        if (dims[i] == (uint32_t)head_dim)
            return true;
    return false;
}

/* The first limit of the flash kernels that the request crosses is logged. */
static const char *choose_flash(const struct selection_request *request, struct selection *out)
{
    char text[16];
    const char *cause = NULL;

    if (request->capability < 80)
        cause = "for Volta and Turing GPUs.";
    else if (strcmp(request->dtype, "float16") != 0 && strcmp(request->dtype, "bfloat16") != 0)
        cause = "for dtype other than torch.float16 or torch.bfloat16.";
    else if (request->kv_dtype != NULL && strncmp(request->kv_dtype, "fp8", 3) == 0)
        cause = "for FP8 KV cache.";
    else if (request->block % 16 != 0)
        cause = "for block size not divisible by 16.";
    else if (!request->has_package)
        cause = "because the vllm.vllm_flash_attn package is not found. Make sure that vllm_flash_attn was "
                "built and installed (on by default).";
    if (cause != NULL) {
        say(out, "Cannot use FlashAttention-2 backend %s", cause);
        if (strstr(cause, "FP8") != NULL)
            say(out,
                "Please use FlashInfer backend with FP8 KV Cache for better performance by setting "
                "environment variable  VLLM_ATTENTION_BACKEND=%s",
                "FLASHINFER");
        return "XFORMERS";
    }
    if (flash_has_head_dim(request->head_dim))
        return "FLASH_ATTN";
    snprintf(text, sizeof text, "%d", request->head_dim);
    say(out, "Cannot use FlashAttention-2 backend for head size %s.", text);
    return "XFORMERS";
}

void selection_choose(const struct selection_request *request, struct selection *out)
{
    const char *wanted = "FLASH_ATTN";

    memset(out, 0, sizeof *out);
    if (request->blocksparse) {
        out->backend = "BLOCKSPARSE_FLASH_ATTN";
        return;
    }
    if (request->attention_free) {
        out->backend = "NO_ATTENTION";
        return;
    }
    if (request->forced != NULL)
        wanted = request->forced;
    else if (request->env != NULL)
        wanted = request->env;
    if (!is_name(wanted, out))
        return;
    for (size_t i = 0; i < sizeof platforms / sizeof *platforms; i++) {
        const struct platform *platform = &platforms[i];
        if (strcmp(request->platform, platform->name) != 0)
            continue;
        if (platform->label != NULL && strcmp(wanted, platform->backend) != 0)
            snprintf(out->log[out->log_count++], sizeof *out->log, "Cannot use _Backend.%s backend on %s.",
                     wanted, platform->label);
        out->backend = platform->backend;
        return;
    }
    if (strcmp(request->platform, "rocm") == 0)
        out->backend = choose_rocm(request, wanted, out);
    else if (request->v1)
        out->backend = "FLASH_ATTN_VLLM_V1";
    else if (strcmp(wanted, "FLASH_ATTN") == 0)
        out->backend = choose_flash(request, out);
    else
        out->backend = wanted;
}
