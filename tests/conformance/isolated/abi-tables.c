/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tables: as the note says, of sane sizes, complete, constant, and the same for every instance. */
#include <stdio.h>

#include "abi.h"
#include "image.h"

/* A table, its own size, the least one, that of this interface; and its required pointers. */
struct table {
    const char *name;
    const void *at;
    size_t least, most;
    const size_t *required;
    size_t required_count;
};

#define UP_TO(type, member) (offsetof(struct type, member) + sizeof(((struct type *)NULL)->member))
#define COUNT(list)         (sizeof(list) / sizeof *(list))

static const size_t plugin_required[] = {
    offsetof(struct attn_plugin, name),         offsetof(struct attn_plugin, vendor),
    offsetof(struct attn_plugin, version),      offsetof(struct attn_plugin, get_devices),
    offsetof(struct attn_plugin, get_backends), offsetof(struct attn_plugin, finish)};
static const size_t backend_required[] = {
    offsetof(struct attn_backend_table, name),  offsetof(struct attn_backend_table, plan),
    offsetof(struct attn_backend_table, kv),    offsetof(struct attn_backend_table, memory),
    offsetof(struct attn_backend_table, query), offsetof(struct attn_backend_table, axes),
    offsetof(struct attn_backend_table, open),  offsetof(struct attn_backend_table, close)};
static const size_t plan_required[] = {
    offsetof(struct attn_plan_table, create), offsetof(struct attn_plan_table, sizes),
    offsetof(struct attn_plan_table, prepare), offsetof(struct attn_plan_table, run),
    offsetof(struct attn_plan_table, destroy)};
static const size_t kv_required[] = {
    offsetof(struct attn_kv_table, shape), offsetof(struct attn_kv_table, create),
    offsetof(struct attn_kv_table, destroy), offsetof(struct attn_kv_table, write)};
static const size_t memory_required[] = {offsetof(struct attn_memory_table, alloc),
                                         offsetof(struct attn_memory_table, free),
                                         offsetof(struct attn_memory_table, copy)};

static void judge_table(struct isolated *isolated, const char *owner, const struct table *table)
{
    static const unsigned char none[sizeof(void *)];
    uint32_t size;

    if (table->at == NULL)
        return;
    memcpy(&size, table->at, sizeof size);
    if (size < table->least || size > table->most || size % 8 != 0) {
        isolated_fail(isolated, "sizes",
                      "ATTN_P4: the %s table of %s has struct_size %u; %zu to %zu is right", table->name,
                      owner, size, table->least, table->most);
        return;
    }
    for (size_t i = 0; i < table->required_count; i++) {
        if (memcmp((const char *)table->at + table->required[i], none, sizeof none) == 0)
            isolated_fail(isolated, "required entries", "ATTN_P4: the %s table of %s has NULL at byte %zu",
                          table->name, owner, table->required[i]);
    }
}

static void judge_backend(struct isolated *isolated, const struct attn_backend_table *backend)
{
    const struct table tables[] = {
        {"backend", backend, UP_TO(attn_backend_table, close), sizeof *backend, backend_required,
         COUNT(backend_required)},
        {"plan", backend->plan, UP_TO(attn_plan_table, destroy), sizeof *backend->plan, plan_required,
         COUNT(plan_required)},
        {"kv", backend->kv, UP_TO(attn_kv_table, write), sizeof *backend->kv, kv_required,
         COUNT(kv_required)},
        {"merge", backend->merge, UP_TO(attn_merge_table, reserved), sizeof *backend->merge, NULL, 0},
        {"memory", backend->memory, UP_TO(attn_memory_table, copy), sizeof *backend->memory, memory_required,
         COUNT(memory_required)},
    };

    for (size_t i = 0; i < COUNT(tables); i++)
        judge_table(isolated, backend->name != NULL ? backend->name : "a backend", &tables[i]);
}

/* While the major is 0 both sides know the same structs. */
static void judge_sizes(struct isolated *isolated, const struct attn_plugin *table)
{
    const struct {
        const char *name;
        size_t stated, right;
    } sizes[] = {{"problem_size", table->problem_size, sizeof(struct attn_problem)},
                 {"batch_size", table->batch_size, sizeof(struct attn_batch)},
                 {"tensors_size", table->tensors_size, sizeof(struct attn_tensors)},
                 {"kv_desc_size", table->kv_desc_size, sizeof(struct attn_kv_desc)},
                 {"kv_write_size", table->kv_write_size, sizeof(struct attn_kv_write_args)},
                 {"merge_size", table->merge_size, sizeof(struct attn_merge_args)},
                 {"rescale_size", table->rescale_size, sizeof(struct attn_rescale_args)},
                 {"scratch_size", table->scratch_size, sizeof(struct attn_scratch)},
                 {"open_config_size", table->open_config_size, sizeof(struct attn_open_config)}};

    for (size_t i = 0; i < COUNT(sizes); i++) {
        if (sizes[i].stated != sizes[i].right)
            isolated_fail(isolated, "sizes", "ATTN_P4: %s is %zu; in ABI %d.%d it is %zu", sizes[i].name,
                          sizes[i].stated, ATTN_ABI_MAJOR, ATTN_ABI_MINOR, sizes[i].right);
    }
    isolated_pass(isolated, "sizes");
}

/* Backends that the note names and the tables have; the best class of the tables. */
static uint32_t count_listed(const struct life *life, const struct attn_note *note, uint32_t *out_class)
{
    char list[sizeof note->backends + 3], word[256];
    uint32_t count = 0;

    snprintf(list, sizeof list, ",%.159s,", note->backends);
    *out_class = ATTN_CLASS_PORTABLE_CPU;
    for (uint32_t i = 0; i < life->backend_count; i++) {
        const struct attn_backend_table *backend = life->backends[i];
        snprintf(word, sizeof word, ",%.200s,", backend->name);
        count += strstr(list, word) != NULL;
        if (backend->device_class < *out_class)
            *out_class = backend->device_class;
    }
    return count;
}

static uint32_t count_items(const char *list)
{
    uint32_t count = 1;

    for (; *list != '\0'; list++)
        count += *list == ',';
    return count;
}

static void judge_note(struct isolated *isolated, const struct life *life, const char *plugin)
{
    const struct attn_plugin *table = life->table;
    struct image image;
    char why[512];
    uint32_t best;

    if (!image_open(&image, plugin, why, sizeof why)) {
        isolated_fail(isolated, "note", "%s", why);
        return;
    }
    const struct attn_note *note = &image.note;
    uint32_t listed = count_listed(life, note, &best);
    if (image.note_count != 1)
        isolated_fail(isolated, "note", "ATTN_P1: %u notes", image.note_count);
    else if (note->abi_major != ATTN_ABI_MAJOR || note->abi_minor != ATTN_ABI_MINOR ||
             table->abi_major != note->abi_major || table->abi_minor != note->abi_minor)
        isolated_fail(isolated, "note", "ATTN_P2: ABI %u.%u in the note, %u.%u in the table, %d.%d here",
                      note->abi_major, note->abi_minor, table->abi_major, table->abi_minor, ATTN_ABI_MAJOR,
                      ATTN_ABI_MINOR);
    else if (strcmp(note->name, table->name) != 0 || strcmp(note->vendor, table->vendor) != 0 ||
             strcmp(note->version, table->version) != 0)
        isolated_fail(isolated, "note",
                      "ATTN_P1: '%.31s' of '%.63s' %.31s in the note, '%.31s' of '%.63s' %.31s in "
                      "the table",
                      note->name, note->vendor, note->version, table->name, table->vendor, table->version);
    else if (listed != life->backend_count || listed != count_items(note->backends))
        isolated_fail(isolated, "note", "ATTN_P1: of %u backends in the tables the note names %u: '%.159s'",
                      life->backend_count, listed, note->backends);
    else if (note->device_class != best)
        isolated_fail(isolated, "note", "ATTN_P1: device class %u in the note, at best %u in the tables",
                      note->device_class, best);
    isolated_pass(isolated, "note");
    image_close(&image);
}

void judge_tables(struct isolated *isolated, const char *plugin)
{
    struct life life = {0};

    if (!life_load(&life, isolated, plugin) || !life_begin(&life)) {
        isolated_fail(isolated, "tables", "%s", life.why);
        return;
    }
    isolated_stage(isolated, "reading the tables");
    const struct table own = {"plugin",           life.table,      UP_TO(attn_plugin, finish),
                              sizeof *life.table, plugin_required, COUNT(plugin_required)};
    judge_table(isolated, "the plugin", &own);
    for (uint32_t i = 0; i < life.backend_count; i++)
        judge_backend(isolated, life.backends[i]);
    judge_sizes(isolated, life.table);
    isolated_pass(isolated, "required entries");
    judge_note(isolated, &life, plugin);
}
