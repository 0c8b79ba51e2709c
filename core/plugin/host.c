/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The services that a plugin gets: log, the caller's threads, a clock, options. */
#include "plugin/loader.h"

static void log_text(void *ctx, uint32_t level, const char *subsystem, const char *text)
{
    struct attn__plugin *plugin = ctx;
    if (subsystem == NULL || subsystem[0] == '\0')
        subsystem = plugin->note.name;
    if (text != NULL)
        attn__log_line(&plugin->context->log, level, subsystem, "%s", text);
}

static int32_t parallel_for(void *ctx, attn_task_fn fn, void *task_arg, uint32_t n)
{
    struct attn__plugin *plugin = ctx;
    return plugin->context->parallel_for(plugin->context->parallel_for_arg, fn, task_arg, n);
}

static uint64_t now(void *ctx)
{
    (void)ctx;
    return attn__now();
}

static const char *get_option(void *ctx, const char *key)
{
    struct attn__plugin *plugin = ctx;
    return key != NULL ? attn__env_option(&plugin->context->env, key) : NULL;
}

void attn__host_init(struct attn__plugin *plugin)
{
    ATTN_INIT(&plugin->host);
    plugin->host.abi_minor = ATTN_ABI_MINOR;
    plugin->host.ctx = plugin;
    plugin->host.out_instance = &plugin->instance;
    plugin->host.log = log_text;
    plugin->host.parallel_for = plugin->context->parallel_for != NULL ? parallel_for : NULL;
    plugin->host.clock = now;
    plugin->host.get_option = get_option;
}
