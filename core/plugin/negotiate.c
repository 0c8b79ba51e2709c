/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Exchanges tables with a plugin: gives it the services of the host, and copies its tables into zeroed ones
 * of this library's size, after checking that nothing required is missing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "attn/serving.h"
#include "plugin/loader.h"
#include "select/select.h"

#define BACKENDS_MOST    32
#define DEVICE_TYPE_MOST 20

/* ---------------------------------------------------------------- services of the host */

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

/* ---------------------------------------------------------------- tables of the plugin */

/* The least size of a table: up to the end of its last required member. */
#define UP_TO(type, member) (offsetof(struct type, member) + sizeof(((struct type *)NULL)->member))

/* Members are handled as bytes: one list serves members of different types. */
struct required {
    const char *name;
    size_t offset;
    enum { FUNCTION, DATA, SIZE } kind; /* data: a text or a table; size: of a struct */
};
#define REQUIRED(type, member)      REQUIRED_AS(FUNCTION, type, member)
#define REQUIRED_DATA(type, member) REQUIRED_AS(DATA, type, member)
#define REQUIRED_SIZE(member)       REQUIRED_AS(SIZE, attn_plugin, member)
#define REQUIRED_AS(is, type, member)                                                                        \
    {                                                                                                        \
        .name = #member, .offset = offsetof(struct type, member), .kind = is                                 \
    }

static const struct required plugin_required[] = {
    REQUIRED_DATA(attn_plugin, name),    REQUIRED_DATA(attn_plugin, vendor),
    REQUIRED_DATA(attn_plugin, version), REQUIRED(attn_plugin, get_devices),
    REQUIRED(attn_plugin, get_backends), REQUIRED(attn_plugin, finish),
    REQUIRED_SIZE(problem_size),         REQUIRED_SIZE(batch_size),
    REQUIRED_SIZE(tensors_size),         REQUIRED_SIZE(kv_desc_size),
    REQUIRED_SIZE(kv_write_size),        REQUIRED_SIZE(merge_size),
    REQUIRED_SIZE(rescale_size),         REQUIRED_SIZE(scratch_size),
    REQUIRED_SIZE(open_config_size),     REQUIRED_SIZE(slot_mapping_size),
    REQUIRED_SIZE(copy_slots_size),      REQUIRED_SIZE(copy_blocks_size),
    REQUIRED_SIZE(swap_blocks_size),     REQUIRED_SIZE(gather_size),
    REQUIRED_SIZE(convert_size),         REQUIRED_SIZE(advance_step_size),
};
static const struct required backend_required[] = {
    REQUIRED_DATA(attn_backend_table, name), REQUIRED_DATA(attn_backend_table, plan),
    REQUIRED_DATA(attn_backend_table, kv),   REQUIRED_DATA(attn_backend_table, memory),
    REQUIRED(attn_backend_table, query),     REQUIRED(attn_backend_table, axes),
    REQUIRED(attn_backend_table, open),      REQUIRED(attn_backend_table, close),
};
static const struct required plan_required[] = {
    REQUIRED(attn_plan_table, create), REQUIRED(attn_plan_table, sizes),   REQUIRED(attn_plan_table, prepare),
    REQUIRED(attn_plan_table, run),    REQUIRED(attn_plan_table, destroy),
};
static const struct required kv_required[] = {
    REQUIRED(attn_kv_table, shape),
    REQUIRED(attn_kv_table, create),
    REQUIRED(attn_kv_table, destroy),
    REQUIRED(attn_kv_table, write),
};
static const struct required memory_required[] = {
    REQUIRED(attn_memory_table, alloc),
    REQUIRED(attn_memory_table, free),
    REQUIRED(attn_memory_table, copy),
};

static const struct required builder_required[] = {
    REQUIRED(attn_builder_table, create),  REQUIRED(attn_builder_table, destroy),
    REQUIRED(attn_builder_table, reset),   REQUIRED(attn_builder_table, add),
    REQUIRED(attn_builder_table, set_row), REQUIRED(attn_builder_table, build),
    REQUIRED(attn_builder_table, get),
};

static const struct required state_required[] = {
    REQUIRED(attn_state_table, create),
    REQUIRED(attn_state_table, destroy),
    REQUIRED(attn_state_table, begin_forward),
};

static const struct required layer_required[] = {
    REQUIRED(attn_layer_table, create),
    REQUIRED(attn_layer_table, destroy),
    REQUIRED(attn_layer_table, forward),
};

/* One kind of table. */
struct kind {
    const char *name; /* "" for the plugin and the backend themselves */
    size_t size, least;
    const struct required *required;
    size_t required_count;
};
#define KIND(name, type, last, list)                                                                         \
    {                                                                                                        \
        name, sizeof(struct type), UP_TO(type, last), list, sizeof list / sizeof list[0]                     \
    }

static const struct kind plugin_kind = KIND("", attn_plugin, finish, plugin_required);
static const struct kind backend_kind = KIND("", attn_backend_table, close, backend_required);
static const struct kind plan_kind = KIND("plan", attn_plan_table, destroy, plan_required);
static const struct kind kv_kind = KIND("kv", attn_kv_table, write, kv_required);
static const struct kind memory_kind = KIND("memory", attn_memory_table, copy, memory_required);
static const struct kind builder_kind = KIND("builder", attn_builder_table, get, builder_required);
static const struct kind state_kind = KIND("state", attn_state_table, begin_forward, state_required);
static const struct kind layer_kind = KIND("layer", attn_layer_table, forward, layer_required);
static const struct kind merge_kind = {"merge", sizeof(struct attn_merge_table),
                                       UP_TO(attn_merge_table, reserved), NULL, 0};

/* Writes the reason and leaves the stage as it is. */
#define REFUSE(plugin, reason, ...)                                                                          \
    (attn__plugin_tell((plugin), ATTN_STAGE_LOADED, ATTN_REASON_##reason, __VA_ARGS__), ATTN_E_PLUGIN)

/* Checks one required member of a copied table. In attn-probe it wraps functions to check their calls. */
static int32_t take_member(struct attn__plugin *plugin, const struct kind *kind,
                           const struct required *required, const char *owner, char *member)
{
    const attn__check_call_fn check_call = plugin->context->check_call;
    attn__function function = NULL;
    uint32_t size = 0;
    if (required->kind == SIZE)
        memcpy(&size, member, sizeof size);
    else
        memcpy(&function, member, sizeof function);
    if (required->kind == SIZE && size < sizeof(uint32_t))
        return REFUSE(plugin, STRUCT_TOO_SHORT,
                      "%s: its %s is %u; the size of the struct it was built with is accepted", owner,
                      required->name, size);
    if (required->kind != SIZE && function == NULL)
        return REFUSE(plugin, MISSING_FUNCTION, "%s: %s%s%s is NULL; the interface requires it", owner,
                      kind->name, kind->name[0] != '\0' ? "." : "", required->name);
    if (required->kind == FUNCTION && check_call != NULL) {
        function = check_call(function, kind->name, required->name);
        memcpy(member, &function, sizeof function);
    }
    return ATTN_OK;
}

/* Copies and checks one table; `owner` is the plugin or backend it belongs to. */
static int32_t take(struct attn__plugin *plugin, const struct kind *kind, const char *owner,
                    const void *source, void *target)
{
    int32_t status = ATTN_OK;
    uint32_t size;
    memcpy(&size, source, sizeof size);
    if (size < kind->least)
        return REFUSE(plugin, STRUCT_TOO_SHORT,
                      "%s: its %s table has struct_size %u; at least %zu is accepted", owner,
                      kind->name[0] != '\0' ? kind->name : "own", size, kind->least);
    memset(target, 0, kind->size);
    memcpy(target, source, size < kind->size ? size : kind->size);
    for (size_t i = 0; i < kind->required_count && status == ATTN_OK; i++)
        status =
            take_member(plugin, kind, &kind->required[i], owner, (char *)target + kind->required[i].offset);
    return status;
}

static int32_t compare_texts(struct attn__plugin *plugin, const struct attn_plugin *table)
{
    const struct attn_note *note = &plugin->note;
    const struct {
        const char *what, *note, *table;
    } texts[] = {{"name", note->name, table->name},
                 {"vendor", note->vendor, table->vendor},
                 {"version", note->version, table->version}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(texts[i].note, texts[i].table) != 0)
            return REFUSE(plugin, NOTE_MISMATCH, "its %s is \"%s\" in the note and \"%.64s\" in the table",
                          texts[i].what, texts[i].note, texts[i].table);
    if (table->abi_major != note->abi_major || table->abi_minor != note->abi_minor)
        return REFUSE(plugin, NOTE_MISMATCH, "its interface is %u.%u in the note and %u.%u in the table",
                      note->abi_major, note->abi_minor, table->abi_major, table->abi_minor);
    return ATTN_OK;
}

static int32_t check_device_type(struct attn__plugin *plugin, const char *name)
{
    const size_t length = name != NULL ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") : 1;
    if (length >= 1 && length <= DEVICE_TYPE_MOST && (name == NULL || name[length] == '\0'))
        return ATTN_OK;
    return REFUSE(plugin, NOTE_MISMATCH,
                  "it calls its devices \"%.64s\"; 1 to %d of a-z, 0-9, _ and - are accepted", name,
                  DEVICE_TYPE_MOST);
}

/* How often the note's list has a backend, or with NULL how many it has. */
static uint32_t count_listed(const struct attn_note *note, const char *name)
{
    char item[sizeof note->backends];
    const char *cursor = note->backends;
    uint32_t count = 0;
    while (attn__item_next(&cursor, item, sizeof item))
        count += name == NULL || strcmp(item, name) == 0;
    return count;
}

/* Builder, state and layer pass each other objects: all three are the plugin's, or none. */
static int32_t take_serving(struct attn__plugin *plugin, struct attn__backend *out)
{
    const bool builder = out->table.builder != NULL, state = out->table.state != NULL,
               layer = out->table.layer != NULL;
    if (builder != state || state != layer)
        return REFUSE(plugin, MISSING_FUNCTION,
                      "%s: %s is NULL; the interface requires builder, state and layer together, or none",
                      out->table.name,
                      !builder ? "builder"
                      : !state ? "state"
                               : "layer");
    const struct attn_state_table *t = &out->state;
    const int calls = (t->begin_capture != NULL) + (t->end_capture != NULL) +
                      (t->get_capture_metadata != NULL) + (t->clone != NULL) + (t->get_input != NULL) +
                      (t->prepare != NULL);
    if (state && calls > 0 && calls < 6)
        return REFUSE(plugin, MISSING_FUNCTION,
                      "%s: its state has %d of the 6 functions for graphs; all or none are accepted",
                      out->table.name, calls);
    if (state && (out->builder.params_size == 0 || t->params_size == 0 || out->layer.desc_size == 0))
        return REFUSE(plugin, STRUCT_TOO_SHORT,
                      "%s: a size of the arguments of its builder, state or layer is 0; ATTN_BUILDER_SIZES, "
                      "ATTN_STATE_SIZES and ATTN_LAYER_SIZES are accepted",
                      out->table.name);
    out->table.builder = builder ? &out->builder : &attn_serving_builder;
    out->table.state = state ? &out->state : &attn_serving_state;
    out->table.layer = layer ? &out->layer : &attn_serving_layer;
    return ATTN_OK;
}

static int32_t take_backend(struct attn__plugin *plugin, const struct attn_backend_table *given,
                            struct attn__backend *out)
{
    char owner[sizeof plugin->note.backends];
    out->plugin = plugin;
    snprintf(owner, sizeof owner, "a backend of %s", plugin->note.name);
    int32_t status = take(plugin, &backend_kind, owner, given, &out->table);
    if (status != ATTN_OK)
        return status;
    if (count_listed(&plugin->note, out->table.name) == 0)
        return REFUSE(plugin, NOTE_MISMATCH, "its backend \"%.64s\" is not in the note (%s)", out->table.name,
                      plugin->note.backends);
    if (out->table.device_class < plugin->note.device_class ||
        out->table.device_class > ATTN_CLASS_PORTABLE_CPU)
        return REFUSE(plugin, NOTE_MISMATCH,
                      "%s has device class %u; the note's %u, or a larger one up to %u, is accepted",
                      out->table.name, out->table.device_class, plugin->note.device_class,
                      ATTN_CLASS_PORTABLE_CPU);
    snprintf(owner, sizeof owner, "%s", out->table.name);
    out->flavour = strchr(out->table.name, '/') + 1;
    const struct {
        const struct kind *kind;
        const void *given;
        void *own;
    } tables[] = {
        {&plan_kind, out->table.plan, &out->plan},          {&kv_kind, out->table.kv, &out->kv},
        {&memory_kind, out->table.memory, &out->memory},    {&merge_kind, out->table.merge, &out->merge},
        {&builder_kind, out->table.builder, &out->builder}, {&state_kind, out->table.state, &out->state},
        {&layer_kind, out->table.layer, &out->layer}};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (tables[i].given != NULL &&
            (status = take(plugin, tables[i].kind, owner, tables[i].given, tables[i].own)) != ATTN_OK)
            return status;
    out->table.plan = &out->plan;
    out->table.kv = &out->kv;
    out->table.memory = &out->memory;
    out->table.merge = out->table.merge != NULL ? &out->merge : NULL;
    return take_serving(plugin, out);
}

static int32_t take_backends(struct attn__plugin *plugin)
{
    const struct attn_backend_table *const *given = NULL;
    struct attn_error err;
    uint32_t count = 0, expected = count_listed(&plugin->note, NULL);
    ATTN_INIT(&err);
    int32_t status = plugin->table.get_backends(plugin->instance, &given, &count, &err);
    err.message[sizeof err.message - 1] = '\0';
    if (status != ATTN_OK || given == NULL)
        return REFUSE(plugin, ENTRY_FAILED, "get_backends of %s answered %s: %s", plugin->note.name,
                      attn_status_name(status), err.message);
    if (count != expected || count > BACKENDS_MOST)
        return REFUSE(plugin, NOTE_MISMATCH, "it offers %u backends; its note names %u (%s)", count, expected,
                      plugin->note.backends);
    plugin->backends = calloc(count, sizeof *plugin->backends);
    if (plugin->backends == NULL)
        return REFUSE(plugin, DLOPEN_FAILED, "no memory for the tables of %u backends", count);
    for (uint32_t i = 0; i < count; i++) {
        if (given[i] == NULL)
            return REFUSE(plugin, MISSING_FUNCTION,
                          "%s: the table of backend %u is NULL; the interface requires it", plugin->note.name,
                          i);
        status = take_backend(plugin, given[i], &plugin->backends[i]);
        for (uint32_t j = 0; j < i && status == ATTN_OK; j++)
            if (strcmp(plugin->backends[j].table.name, plugin->backends[i].table.name) == 0)
                status = REFUSE(plugin, NOTE_MISMATCH, "it offers the backend %s twice",
                                plugin->backends[i].table.name);
        if (status != ATTN_OK)
            return status;
    }
    plugin->backend_count = count;
    return ATTN_OK;
}

int32_t attn__negotiate(struct attn__plugin *plugin, const struct attn_plugin *given)
{
    int32_t status = take(plugin, &plugin_kind, plugin->note.name, given, &plugin->table);
    if (status == ATTN_OK)
        status = compare_texts(plugin, &plugin->table);
    if (status == ATTN_OK)
        status = check_device_type(plugin, plugin->table.device_type);
    return status == ATTN_OK ? take_backends(plugin) : status;
}
