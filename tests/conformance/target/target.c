/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the backends of the plugin, each at every kernel level of the machine. */
#include "conform.h"

#include <stdio.h>

#include "mirror.h"
#include "output.h"

/* What the CPU plugin may use: all that the machine has, or plain C. */
static const char *const levels[] = {"all", "none"};

static bool is_level_wanted(const char *wanted, const char *level)
{
    return wanted == NULL || strcmp(wanted, level) == 0;
}

/* Shows what is wrong with the level. Refusals, and what else is logged, are part of the test: silence. */
static void log_level(void *user, uint32_t severity, const char *subsystem, const char *text)
{
    (void)user, (void)severity, (void)subsystem;
    if (strncmp(text, "ATTN_CPU_FLAGS", strlen("ATTN_CPU_FLAGS")) == 0)
        complain("%s", text);
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
    options.log = log_level;
    snprintf(variable, sizeof variable, "ATTN_CPU_FLAGS=%s", level);
    if (strcmp(level, "all") != 0) {
        options.variables = variables;
        options.variable_count = 1;
    }
    if (attn_context_create(&options, &context, &err) != ATTN_OK ||
        attn_context_load_all(context, &err) != ATTN_OK) {
        complain("%s", err.message);
        attn_context_destroy(context);
        return NULL;
    }
    return context;
}

/* Something to select the backend by. */
static bool find_problem(const struct target *target, struct attn_problem *problem)
{
    static const uint32_t dtypes[] = {ATTN_F32, ATTN_F16, ATTN_BF16}, dims[] = {64, 128, 256, 80};
    static const uint32_t addressings[] = {ATTN_TABLE, ATTN_DENSE, ATTN_CSR};
    char why[8];

    for (uint32_t i = 0; i < 36; i++) {
        ATTN_INIT(problem);
        problem->heads = 8;
        problem->kv_heads = 2;
        problem->q_dtype = dtypes[i % 3];
        problem->head_dim = dims[i / 3 % 4];
        problem->addressing = addressings[i / 12];
        if (attn_problem_resolve(problem, problem, NULL) == ATTN_OK &&
            target_accepts(target, problem, NULL, why, sizeof why))
            return true;
    }
    return false;
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
    options.device = target->device_name;
    config.threads = threads;
    if (!find_problem(target, &problem))
        complain("%s accepts none of the plain problems", target->name);
    else if (attn_select(target->context, &problem, 1, &options, &decision, &err) != ATTN_OK ||
             attn_backend_open(target->context, decision, &config, &backend, &err) != ATTN_OK)
        complain("%s at level %s: %s", target->name, target->level, err.message);
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
    snprintf(target->device_name, sizeof target->device_name, "%s", record->device_name);
    target->backend = open_backend(target, 2);
    for (uint32_t i = 0; i < POOLS && target->backend != NULL; i++) {
        target->pools[i] = open_backend(target, i + 1);
        if (target->pools[i] == NULL)
            return false;
    }
    return target->backend != NULL;
}

/* Says why the file is not usable, in the library's words but with the name that the user gave it. */
static int tell_refusal(const struct attn_report *report, const char *file)
{
    const struct attn_file_record *record = attn_report_get_file(report, 0);
    const char *link = record != NULL ? record->path : NULL;
    const char *text = record != NULL ? record->text : "no such file";
    size_t length = link != NULL ? strlen(link) : 0;

    if (record != NULL && record->stage == ATTN_STAGE_READY)
        return 0;
    const char *at = length > 0 ? strstr(text, link) : NULL;
    complain("%s is not usable: %s", file, record != NULL ? attn_reason_name(record->reason) : "NOT_A_FILE");
    if (at != NULL)
        complain("%.*s%s%s", (int)(at - text), text, file, at + length);
    else
        complain("%s", text);
    if (record != NULL && record->linker[0] != '\0')
        complain("the linker says: %s", record->linker);
    if (record != NULL && record->advice[0] != '\0')
        complain("advice: %s", record->advice);
    return EXIT_MISSING;
}

static int open_level(struct target_list *list, const char *path, const char *file, const char *level)
{
    struct attn_context *context = make_context(path, level);
    struct attn_report *report = NULL;
    const struct attn_backend_record *record;

    if (context == NULL)
        return EXIT_MISSING;
    list->contexts[list->context_count++] = context;
    if (attn_context_get_report(context, &report, NULL) != ATTN_OK)
        return EXIT_MISSING;
    int code = tell_refusal(report, file);
    for (uint32_t i = 0; code == 0 && (record = attn_report_get_backend(report, i)) != NULL; i++) {
        bool cpu = record->device.type == ATTN_DEVICE_CPU;
        if (record->has_device == 0 || list->opened == MAX_TARGETS || (!cpu && strcmp(level, "all") != 0))
            continue;
        if (mirror_wanted(cpu ? "cpu" : NULL)) { /* threads and forbidden pages are the host's */
            executors_lend_nothing();
            arena_forbid_nothing();
        }
        if (!open_target(&list->targets[list->opened++], context, level, record))
            code = EXIT_MISSING;
    }
    attn_report_destroy(report);
    return code;
}

/* Those that are to be judged come first, in the order in which they were opened. */
static void sort_targets(struct target_list *list, const char *backend, const char *level)
{
    for (uint32_t i = 0; i < list->opened; i++) {
        struct target target = list->targets[i];
        if ((backend != NULL && strcmp(backend, target.name) != 0) || !is_level_wanted(level, target.level))
            continue;
        memmove(&list->targets[list->count + 1], &list->targets[list->count],
                (i - list->count) * sizeof target);
        list->targets[list->count++] = target;
    }
}

int targets_open(struct target_list *list, const char *path, const char *file, const char *backend,
                 const char *level)
{
    bool known = level == NULL;
    int code = 0;

    memset(list, 0, sizeof *list);
    for (size_t i = 0; code == 0 && i < sizeof levels / sizeof levels[0]; i++) {
        known = known || strcmp(level, levels[i]) == 0;
        code = open_level(list, path, file, levels[i]);
    }
    if (code == 0 && !known)
        code = open_level(list, path, file, level);
    if (code != 0)
        return code;
    sort_targets(list, backend, level);
    if (list->count > 0)
        return 0;
    complain(backend != NULL ? "%s offers no backend %s on a device of this machine"
                             : "%s offers no backend on a device of this machine",
             file, backend);
    return EXIT_MISSING;
}

void target_demands(const struct target *target, const struct attn_problem *problem, struct layout *layout)
{
    struct attn_problem sized = *problem;
    struct attn_plan *plan = NULL;
    struct attn_plan_info info;

    sized.max_seqs = sized.max_q = sized.max_kv = sized.max_rows = 1;
    ATTN_INIT(&info);
    if (attn_plan_create(target->backend, &sized, &plan, NULL) == ATTN_OK &&
        attn_plan_describe(plan, &info, NULL) == ATTN_OK) {
        if (info.alignment > layout->alignment)
            layout->alignment = info.alignment;
        if (info.stride_multiple > layout->stride_multiple)
            layout->stride_multiple = info.stride_multiple;
    }
    attn_plan_destroy(plan);
}

void targets_demand(const struct target_list *list, const struct attn_problem *problem, struct layout *layout)
{
    for (uint32_t t = 0; t < list->opened; t++)
        target_demands(&list->targets[t], problem, layout);
}

bool targets_mirrored(const struct target_list *list)
{
    return list->opened > 0 && mirror_of(list->targets[0].backend) != NULL;
}

void targets_close(struct target_list *list)
{
    for (uint32_t i = 0; i < list->opened; i++) {
        attn_backend_destroy(list->targets[i].backend);
        for (uint32_t p = 0; p < POOLS; p++)
            attn_backend_destroy(list->targets[i].pools[p]);
    }
    for (uint32_t i = 0; i < list->context_count; i++)
        attn_context_destroy(list->contexts[i]);
}
