/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Moves tokens and pages between caches: checks what the host can see, then calls the plugin.
 */
#include <stdio.h>

#include "dispatch/call.h"
#include "dispatch/trace.h"
#include "select/problem.h"

/* The two caches of a call. */
struct cache_pair {
    struct attn_kv_desc copies[2];
    const struct attn_kv_desc *from;
    const struct attn_kv_desc *to;
    struct attn_kv_ref refs[2];
};

static int32_t choose(const struct attn_backend *backend, const struct attn_kv *kv,
                      const struct attn_kv_desc *bare, const char *name, struct attn_kv_desc *copy,
                      const struct attn_kv_desc **out, struct attn_kv_ref *out_ref, struct attn_error *err)
{
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    int32_t status = attn__kv_choose(backend, kv, bare, copy, out, &plugin_err);
    if (status == ATTN_OK)
        status = attn__kv_refuse_blocks(*out, "blocks cannot be moved", &plugin_err);
    if (status != ATTN_OK)
        return attn__fail(err, status, plugin_err.reason, plugin_err.field, "%s: %s", name,
                          plugin_err.message);
    out_ref->kv = kv != NULL ? kv->impl : NULL;
    out_ref->desc = kv != NULL ? NULL : *out;
    return ATTN_OK;
}

/* Checks `from` and `to` of an argument struct; a macro because several structs have these members. */
#define PAIR_INIT(pair, backend, args, err)                                                                  \
    pair_init((pair), (backend), (args)->from, (args)->from_desc, (args)->to, (args)->to_desc, (err))

static int32_t pair_init(struct cache_pair *pair, const struct attn_backend *backend,
                         const struct attn_kv *from, const struct attn_kv_desc *from_desc,
                         const struct attn_kv *to, const struct attn_kv_desc *to_desc, struct attn_error *err)
{
    const int32_t status =
        choose(backend, from, from_desc, "from", &pair->copies[0], &pair->from, &pair->refs[0], err);
    return status == ATTN_OK
               ? choose(backend, to, to_desc, "to", &pair->copies[1], &pair->to, &pair->refs[1], err)
               : status;
}

static int32_t check_pairs(uint32_t count, const void *pairs, struct attn_error *err)
{
    if (count > ATTN__COUNT_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, "count", "count is %u; accepted: up to %u", count,
                          ATTN__COUNT_MAX);
    }
    return count == 0 || pairs != NULL
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "pairs",
                            "pairs is not given, but count is %u; an array of as many is needed", count);
}

static int32_t check_offered(const struct attn_backend *backend, bool offered, const char *entry,
                             struct attn_error *err)
{
    return offered ? ATTN_OK
                   : attn__fail(err, ATTN_E_UNSUPPORTED, 0, entry, "%s offers no %s",
                                backend->entry->table.name, entry);
}

static int32_t check_block(const struct cache_pair *pair, struct attn_error *err)
{
    return pair->from->block == pair->to->block
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "block",
                            "block is %u in from and %u in to; accepted: equal", pair->from->block,
                            pair->to->block);
}

/* ---------------------------------------------------------------- slots */

int32_t attn_kv_copy_slots(struct attn_backend *backend, const struct attn_kv_copy_slots_args *args,
                           void *stream, struct attn_error *err)
{
    struct attn_kv_copy_slots_args copy;
    struct cache_pair pair;
    const void *known = NULL;
    int32_t status = attn__call_begin(backend, "attn_kv_copy_slots", err);
    if (status == ATTN_OK) {
        status = attn__argument(backend, args, &copy, sizeof copy,
                                backend->entry->plugin->table.copy_slots_size, "args", &known, err);
    }
    if (status != ATTN_OK)
        return status;
    const struct attn_kv_copy_slots_args *own = known;
    status = PAIR_INIT(&pair, backend, own, err);
    if (status == ATTN_OK)
        status = check_pairs(own->count, own->pairs.data, err);
    if (status == ATTN_OK)
        status = attn__kv_alike(pair.from, pair.to, err);
    if (status == ATTN_OK)
        status = check_offered(backend, backend->entry->kv.copy_slots != NULL, "copy_slots", err);
    if (status != ATTN_OK || own->count == 0)
        return status;
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const uint64_t began = attn__trace_begin(backend);
    status =
        backend->entry->kv.copy_slots(backend->impl, own, &pair.refs[0], &pair.refs[1], stream, &plugin_err);
    attn__trace(backend, began, status, "kv_copy_slots", pair.to, "pairs=%u", own->count);
    return attn__call_end(backend, status, &plugin_err, "kv copy_slots", err);
}

/* ---------------------------------------------------------------- blocks of all layers */

/* The caches of copy_blocks that one call of the plugin takes. */
struct group {
    struct attn_kv_desc copies[ATTN_KV_LAYERS_MAX];
    const struct attn_kv_desc *descs[ATTN_KV_LAYERS_MAX];
    struct attn_kv_ref refs[ATTN_KV_LAYERS_MAX];
    uint32_t count;
};

static int32_t group_init(struct group *group, const struct attn_backend *backend,
                          const struct attn_kv_copy_blocks_args *args, uint32_t first, struct attn_error *err)
{
    int32_t status = ATTN_OK;
    group->count = args->layers - first < ATTN_KV_LAYERS_MAX ? args->layers - first : ATTN_KV_LAYERS_MAX;
    for (uint32_t i = 0; i < group->count && status == ATTN_OK; i++) {
        char name[24];
        snprintf(name, sizeof name, "cache[%u]", first + i);
        status = choose(backend, args->kvs != NULL ? args->kvs[first + i] : NULL,
                        args->kv_descs != NULL ? args->kv_descs[first + i] : NULL, name, &group->copies[i],
                        &group->descs[i], &group->refs[i], err);
    }
    return status;
}

static int32_t check_layers(const struct attn_backend *backend, const struct attn_kv_copy_blocks_args *args,
                            struct group *group, struct attn_error *err)
{
    uint32_t pages = 0;
    if (args->layers > 0 && (args->kvs != NULL) == (args->kv_descs != NULL)) {
        return attn__fail(err, ATTN_E_INVALID, 0, "kvs", "kvs and kv_descs are %s given; give one of them",
                          args->kvs != NULL ? "both" : "not");
    }
    for (uint32_t first = 0; first < args->layers; first += group->count) {
        const int32_t status = group_init(group, backend, args, first, err);
        if (status != ATTN_OK)
            return status;
        for (uint32_t i = 0; i < group->count; i++) {
            pages = first + i == 0 ? group->descs[i]->pages : pages;
            if (group->descs[i]->pages != pages) {
                return attn__fail(err, ATTN_E_INVALID, 0, "pages",
                                  "cache[%u] has %u pages; accepted: as many as the first, %u", first + i,
                                  group->descs[i]->pages, pages);
            }
        }
    }
    return ATTN_OK;
}

int32_t attn_kv_copy_blocks(struct attn_backend *backend, const struct attn_kv_copy_blocks_args *args,
                            void *stream, struct attn_error *err)
{
    struct attn_kv_copy_blocks_args own;
    struct group group;
    const void *known = NULL;
    int32_t status = attn__call_begin(backend, "attn_kv_copy_blocks", err);
    if (status == ATTN_OK) {
        status = attn__argument(backend, args, &own, sizeof own,
                                backend->entry->plugin->table.copy_blocks_size, "args", &known, err);
    }
    if (status != ATTN_OK)
        return status;
    own = *(const struct attn_kv_copy_blocks_args *)known;
    const uint32_t layers = own.layers;
    status = check_layers(backend, &own, &group, err);
    if (status == ATTN_OK)
        status = check_pairs(own.count, own.pairs.data, err);
    if (status == ATTN_OK)
        status = check_offered(backend, backend->entry->kv.copy_blocks != NULL, "copy_blocks", err);
    for (uint32_t first = 0; first < layers && own.count > 0 && status == ATTN_OK; first += group.count) {
        struct attn_error plugin_err;
        own.layers = layers;
        status = group_init(&group, backend, &own, first, err);
        if (status != ATTN_OK)
            return status;
        own.layers = group.count;
        attn__error_open(&plugin_err);
        const uint64_t began = attn__trace_begin(backend);
        status = backend->entry->kv.copy_blocks(backend->impl, &own, group.refs, stream, &plugin_err);
        attn__trace(backend, began, status, "kv_copy_blocks", group.descs[0], "pairs=%u layers=%u", own.count,
                    own.layers);
        status = attn__call_end(backend, status, &plugin_err, "kv copy_blocks", err);
    }
    return status;
}

/* ---------------------------------------------------------------- blocks to the host and back */

static int32_t check_swap(const struct attn_kv_swap_blocks_args *args, const struct cache_pair *pair,
                          struct attn_error *err)
{
    int32_t status = check_pairs(args->count, args->pairs, err);
    if (status == ATTN_OK && (args->kind < ATTN_COPY_TO_DEVICE || args->kind > ATTN_COPY_ON_DEVICE)) {
        status = attn__fail(err, ATTN_E_INVALID, 0, "kind",
                            "kind is %u; accepted: ATTN_COPY_TO_DEVICE, TO_HOST or ON_DEVICE", args->kind);
    }
    if (status == ATTN_OK)
        status = attn__kv_alike(pair->from, pair->to, err);
    if (status == ATTN_OK)
        status = check_block(pair, err);
    for (uint32_t i = 0; i < args->count && status == ATTN_OK; i++) {
        const int64_t from = args->pairs[2 * (size_t)i], to = args->pairs[2 * (size_t)i + 1];
        if (from < 0 || to < 0)
            continue;
        const bool bad_from = from >= (int64_t)pair->from->pages;
        if (bad_from || to >= (int64_t)pair->to->pages) {
            status = attn__fail(err, ATTN_E_INVALID, 0, "pairs",
                                "pairs[%u] names page %lld of %s; pages below %u are accepted", i,
                                (long long)(bad_from ? from : to), bad_from ? "from" : "to",
                                bad_from ? pair->from->pages : pair->to->pages);
        }
    }
    return status;
}

int32_t attn_kv_swap_blocks(struct attn_backend *backend, const struct attn_kv_swap_blocks_args *args,
                            void *stream, struct attn_error *err)
{
    struct attn_kv_swap_blocks_args copy;
    struct cache_pair pair;
    const void *known = NULL;
    int32_t status = attn__call_begin(backend, "attn_kv_swap_blocks", err);
    if (status == ATTN_OK) {
        status = attn__argument(backend, args, &copy, sizeof copy,
                                backend->entry->plugin->table.swap_blocks_size, "args", &known, err);
    }
    if (status != ATTN_OK)
        return status;
    const struct attn_kv_swap_blocks_args *own = known;
    status = PAIR_INIT(&pair, backend, own, err);
    if (status == ATTN_OK)
        status = check_swap(own, &pair, err);
    if (status == ATTN_OK)
        status = check_offered(backend, backend->entry->kv.swap_blocks != NULL, "swap_blocks", err);
    if (status != ATTN_OK || own->count == 0)
        return status;
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const uint64_t began = attn__trace_begin(backend);
    status =
        backend->entry->kv.swap_blocks(backend->impl, own, &pair.refs[0], &pair.refs[1], stream, &plugin_err);
    attn__trace(backend, began, status, "kv_swap_blocks", pair.to, "pairs=%u", own->count);
    return attn__call_end(backend, status, &plugin_err, "kv swap_blocks", err);
}

/* ---------------------------------------------------------------- blocks to another type or layout */

static int32_t check_convert(const struct attn_kv_convert_args *args, const struct cache_pair *pair,
                             struct attn_error *err)
{
    int32_t status = check_pairs(args->count, args->pairs.data, err);
    if (status == ATTN_OK)
        status = attn__kv_same_vectors(pair->from, pair->to, err);
    if (status == ATTN_OK)
        status = check_block(pair, err);
    if (status == ATTN_OK && args->pairs.data == NULL && pair->from->pages > pair->to->pages) {
        status = attn__fail(err, ATTN_E_INVALID, 0, "pages",
                            "from has %u pages, to has %u; accepted without pairs: no more in from",
                            pair->from->pages, pair->to->pages);
    }
    return status;
}

int32_t attn_kv_convert(struct attn_backend *backend, const struct attn_kv_convert_args *args, void *stream,
                        struct attn_error *err)
{
    struct attn_kv_convert_args copy;
    struct cache_pair pair;
    const void *known = NULL;
    int32_t status = attn__call_begin(backend, "attn_kv_convert", err);
    if (status == ATTN_OK) {
        status = attn__argument(backend, args, &copy, sizeof copy, backend->entry->plugin->table.convert_size,
                                "args", &known, err);
    }
    if (status != ATTN_OK)
        return status;
    const struct attn_kv_convert_args *own = known;
    status = PAIR_INIT(&pair, backend, own, err);
    if (status == ATTN_OK)
        status = check_convert(own, &pair, err);
    if (status == ATTN_OK)
        status = check_offered(backend, backend->entry->kv.convert != NULL, "convert", err);
    if (status != ATTN_OK || (own->pairs.data != NULL && own->count == 0))
        return status;
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const uint64_t began = attn__trace_begin(backend);
    status =
        backend->entry->kv.convert(backend->impl, own, &pair.refs[0], &pair.refs[1], stream, &plugin_err);
    attn__trace(backend, began, status, "kv_convert", pair.to, "pairs=%u", own->count);
    return attn__call_end(backend, status, &plugin_err, "kv convert", err);
}
