/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the backends of the plugin path, each at every kernel level of the machine. */
#include "conform.h"

#include <stdio.h>

/* What the CPU plugin may use: all that the machine has, or plain C. */
static const char *const levels[] = {"all", "none"};

static bool is_level_wanted(const char *wanted, const char *level)
{
    return wanted == NULL || strcmp(wanted, level) == 0;
}

static struct attn_context *make_context(const char *plugin_path, const char *level)
{
    struct attn_context_options options;
    struct attn_context *context = NULL;
    struct attn_error err;
    char variable[128];
    const char *variables[] = {variable};

    ATTN_INIT(&options);
    ATTN_INIT(&err);
    options.plugin_path = plugin_path;
    options.given = ATTN_GIVEN_LOG; /* refusals are part of the test: silence */
    snprintf(variable, sizeof variable, "ATTN_CPU_FLAGS=%s", level);
    if (strcmp(level, "all") != 0) {
        options.variables = variables;
        options.variable_count = 1;
    }
    if (attn_context_create(&options, &context, &err) != ATTN_OK ||
        attn_context_load_all(context, &err) != ATTN_OK) {
        fprintf(stderr, "check-kernels: %s\n", err.message);
        attn_context_destroy(context);
        return NULL;
    }
    return context;
}

static struct attn_backend *open_backend(const struct target *target, uint32_t threads)
{
    struct attn_select_options options;
    struct attn_open_config config;
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_problem problem;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&options);
    ATTN_INIT(&config);
    options.backend = target->name;
    options.device = attn_device_type_name(target->device.type);
    config.threads = threads;
    if (attn_problem_parse("heads=8 kv_heads=2 head_dim=64 q=f32", &problem, &err) != ATTN_OK ||
        attn_select(target->context, &problem, 1, &options, &decision, &err) != ATTN_OK ||
        attn_backend_open(target->context, decision, &config, &backend, &err) != ATTN_OK)
        fprintf(stderr, "check-kernels: %s at level %s: %s\n", target->name, target->level, err.message);
    attn_decision_destroy(decision);
    return backend;
}

static bool open_target(struct target *target, struct attn_context *context, const char *level,
                        const struct attn_backend_record *record)
{
    memset(target, 0, sizeof *target);
    snprintf(target->name, sizeof target->name, "%s", record->name);
    snprintf(target->level, sizeof target->level, "%s", level);
    target->context = context;
    target->device = record->device;
    target->backend = open_backend(target, 2);
    for (uint32_t i = 0; i < POOLS && target->backend != NULL; i++) {
        target->pools[i] = open_backend(target, i + 1);
        if (target->pools[i] == NULL)
            return false;
    }
    return target->backend != NULL;
}

/* Memory of the checker is host memory, so only backends that compute on the host are judged. */
static bool open_level(struct target_list *list, const char *plugin_path, const char *backend,
                       const char *level)
{
    struct attn_context *context = make_context(plugin_path, level);
    struct attn_report *report = NULL;
    const struct attn_backend_record *record;
    bool good = context != NULL;

    if (!good)
        return false;
    list->contexts[list->context_count++] = context;
    if (attn_context_get_report(context, &report, NULL) != ATTN_OK)
        return false;
    for (uint32_t i = 0; good && (record = attn_report_get_backend(report, i)) != NULL; i++) {
        if (backend != NULL && strcmp(backend, record->name) != 0)
            continue;
        if (record->has_device == 0 || record->device.type != ATTN_DEVICE_CPU || list->count == MAX_TARGETS)
            continue;
        good = open_target(&list->targets[list->count++], context, level, record);
    }
    attn_report_destroy(report);
    return good;
}

bool targets_open(struct target_list *list, const char *plugin_path, const char *backend, const char *level)
{
    bool known = level == NULL;

    memset(list, 0, sizeof *list);
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (!is_level_wanted(level, levels[i]))
            continue;
        known = true;
        if (!open_level(list, plugin_path, backend, levels[i]))
            return false;
    }
    if (!known && !open_level(list, plugin_path, backend, level))
        return false;
    if (list->count == 0)
        fprintf(stderr, "check-kernels: no backend %s on the plugin path\n",
                backend != NULL ? backend : "for the CPU");
    return list->count > 0;
}

void targets_close(struct target_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        attn_backend_destroy(list->targets[i].backend);
        for (uint32_t p = 0; p < POOLS; p++)
            attn_backend_destroy(list->targets[i].pools[p]);
    }
    for (uint32_t i = 0; i < list->context_count; i++)
        attn_context_destroy(list->contexts[i]);
}
