/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the parts of a model share: metadata where one builder serves both, caches where both backends accept
 * one description of them. Each part is compared with those before it that share with none themselves.
 */
#include <stdio.h>
#include <stdlib.h>

#include "attn/device.h"
#include "select/parts.h"
#include "select/problem.h"

struct sharing {
    struct attn_parts *parts;
    struct attn_backend **opened; /* [count]: to be asked for the shapes of caches */
    uint32_t opened_count;
};

static const struct attn__candidate *winner_of(const struct attn__part *part)
{
    return part->info.decision->winner;
}

/* ---------------------------------------------------------------- differences */

static void differ(struct attn__line *line, const char *what, const char *a, const char *b)
{
    attn__line_append(line, "%s%s: %.80s and %.80s", line->used > 0 ? ", " : "", what, a, b);
}

/* Notes a key of the problem string whose values differ. */
static void differ_by_key(struct attn__line *line, const char *name, const struct attn_problem *a,
                          const struct attn_problem *b)
{
    const struct attn__key *key = attn__keys;
    while (strcmp(key->name, name) != 0)
        key++;
    char left[64];
    char right[64];
    key->format(key, a, left, sizeof left);
    key->format(key, b, right, sizeof right);
    if (strcmp(left, right) != 0)
        differ(line, name, left, right);
}

static void differ_by_device(struct attn__line *line, const struct attn__candidate *a,
                             const struct attn__candidate *b)
{
    if (strcmp(a->device_name, b->device_name) != 0 || a->device.type != b->device.type)
        differ(line, "device", a->device_name, b->device_name);
}

/* ---------------------------------------------------------------- metadata */

/* Whether the key addr decides how the class finds its keys; cross-attention always has a block table. */
static bool finds_keys(const struct attn_problem *problem)
{
    return problem->kv_source != ATTN_KV_NEW && problem->type != ATTN_ENCODER_DECODER;
}

static void compare_builders(struct attn__line *line, const struct attn__backend *a,
                             const struct attn__backend *b)
{
    if (a->table.builder->get != b->table.builder->get)
        differ(line, "builder", a->table.name, b->table.name);
    else if (!attn__same_name(a->flavour, b->flavour))
        differ(line, "flavour", a->flavour, b->flavour);
}

/* The part of the same class before this one, or NULL. */
static const struct attn__part *other_phase(const struct attn_parts *parts, const struct attn__part *part)
{
    for (const struct attn__part *before = parts->parts; before < part; before++)
        if (before->info.layer_class == part->info.layer_class)
            return before;
    return NULL;
}

static void compare_metadata(struct sharing *sharing, const struct attn__part *first,
                             const struct attn__part *part, struct attn__line *line)
{
    const struct attn__part *other = other_phase(sharing->parts, part);
    const struct attn_problem *a = &first->problem;
    const struct attn_problem *b = &part->problem;
    differ_by_device(line, winner_of(first), winner_of(part));
    compare_builders(line, winner_of(first)->entry, winner_of(part)->entry);
    if (finds_keys(a) && finds_keys(b)) {
        differ_by_key(line, "addr", a, b);
        if (a->addressing == ATTN_CSR && b->addressing == ATTN_CSR)
            differ_by_key(line, "index", a, b);
    }
    /* Phases of a class have one cache group, and so one block; other classes may have other groups. */
    if (other != NULL && &sharing->parts->parts[other->info.metadata_part] == first)
        differ_by_key(line, "block", &other->problem, b);
}

/* ---------------------------------------------------------------- shapes of caches */

static struct attn_backend *find_opened(struct sharing *sharing, const struct attn__candidate *winner)
{
    for (uint32_t i = 0; i < sharing->opened_count; i++)
        if (sharing->opened[i]->entry == winner->entry &&
            strcmp(sharing->opened[i]->device_name, winner->device_name) == 0)
            return sharing->opened[i];
    return NULL;
}

/* The backend of a part, opened as long as parts are compared: only an open one tells shapes. */
static struct attn_backend *open_backend(struct sharing *sharing, const struct attn__part *part,
                                         struct attn_error *err)
{
    struct attn_backend *backend = find_opened(sharing, winner_of(part));
    struct attn_open_config config;
    ATTN_INIT(&config);
    config.threads = 1;
    if (backend == NULL && attn_backend_open(part->info.decision->context, part->info.decision, &config,
                                             &backend, err) == ATTN_OK)
        sharing->opened[sharing->opened_count++] = backend;
    return backend;
}

/* "[2, n, 16, 8, 128]": n is the dimension that changes with the number of pages. */
static void append_shape(struct attn__line *line, struct attn_backend *backend,
                         const struct attn_problem *problem)
{
    struct attn_kv_shape two;
    struct attn_kv_shape three;
    ATTN_INIT(&two);
    ATTN_INIT(&three);
    (void)attn_kv_get_shape(backend, problem, 2, &two, NULL);
    (void)attn_kv_get_shape(backend, problem, 3, &three, NULL);
    for (uint32_t i = 0; i < two.rank && i < 6; i++) {
        attn__line_append(line, i == 0 ? "[" : ", ");
        if (two.dims[i] != three.dims[i])
            attn__line_append(line, "n");
        else
            attn__line_append(line, "%llu", (unsigned long long)two.dims[i]);
    }
    attn__line_append(line, two.rank > 0 ? "]" : "no shape");
}

/* A scale of the given granularity for a description that is only checked: its values are never read. */
static struct attn_scale scale_of(const struct attn_problem *problem, uint32_t granularity,
                                  const struct attn_buffer *memory)
{
    const bool by_head = granularity == ATTN_SCALES_HEAD || granularity == ATTN_SCALES_TOKEN_HEAD;
    const int64_t token = granularity == ATTN_SCALES_TOKEN_HEAD ? 4 * (int64_t)problem->kv_heads : 0;
    if (granularity == ATTN_SCALES_NONE)
        return (struct attn_scale){.kind = 0};
    if (granularity == ATTN_SCALES_UNIT)
        return (struct attn_scale){.kind = ATTN_SCALE_UNIT};
    return (struct attn_scale){.kind = ATTN_SCALE_DEVICE,
                               .granularity = granularity,
                               .buffer = *memory,
                               .outer_stride = token * problem->block,
                               .token_stride = token,
                               .head_stride = by_head ? 4 : 0};
}

/* Whether the backend `in` accepts a cache of the shape that `of` gives it: two pages in memory of `of`. */
static int32_t try_cache(struct attn_backend *of, struct attn_backend *in, const struct attn_problem *problem,
                         struct attn_error *err)
{
    struct attn_kv_shape shape;
    struct attn_buffer memory;
    struct attn_kv_desc desc;
    struct attn_kv *kv;
    ATTN_INIT(&shape);
    int32_t status = attn_kv_get_shape(of, problem, 2, &shape, err);
    if (status == ATTN_OK)
        status = attn_memory_alloc(of, shape.bytes, &memory, err);
    if (status != ATTN_OK)
        return status;
    memset(&desc, 0, sizeof desc);
    attn_kv_desc_init(&desc, &shape, &memory);
    desc.k_scale = scale_of(problem, problem->k_scale, &memory);
    desc.v_scale = scale_of(problem, problem->v_scale, &memory);
    status = attn_kv_create(in, &desc, &kv, err);
    if (status == ATTN_OK)
        attn_kv_destroy(kv);
    attn_memory_free(of, &memory);
    return status;
}

static void compare_shapes(struct sharing *sharing, const struct attn__part *first,
                           const struct attn__part *part, const struct attn_problem *problem,
                           struct attn__line *line)
{
    struct attn_error err;
    attn__error_open(&err);
    struct attn_backend *a = open_backend(sharing, first, &err);
    struct attn_backend *b = a != NULL ? open_backend(sharing, part, &err) : NULL;
    if (b == NULL) {
        attn__line_append(line, "cache: its shape is not known: %.200s", err.message);
    } else if (try_cache(a, b, problem, &err) != ATTN_OK) {
        attn__line_append(line, "cache: ");
        append_shape(line, a, problem);
        attn__line_append(line, " and ");
        append_shape(line, b, problem);
        attn__line_append(line, " (%.160s)", err.message);
    }
}

/* ---------------------------------------------------------------- caches */

static bool reads_cache(const struct attn_problem *problem)
{
    return problem->kv_source != ATTN_KV_NEW;
}

static void compare_caches(struct sharing *sharing, const struct attn__part *first,
                           const struct attn__part *part, struct attn__line *line)
{
    static const char *const vectors[] = {"kv_heads", "head_dim", "mla", "block"};
    static const char *const types[] = {"k", "v", "layout", "k_scale", "v_scale"};
    const struct attn_problem *a = &sharing->parts->parts[first->reader].problem;
    const struct attn_problem *b = &part->problem;
    differ_by_device(line, winner_of(first), winner_of(part));
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        differ_by_key(line, vectors[i], a, b);
    /* The problem of a part that reads new keys alone does not say how a cache stores them. */
    for (size_t i = 0; reads_cache(a) && reads_cache(b) && i < sizeof types / sizeof types[0]; i++)
        differ_by_key(line, types[i], a, b);
    if (reads_cache(a) && reads_cache(b) &&
        (a->addressing == ATTN_DENSE) != (b->addressing == ATTN_DENSE)) /* without pages, with pages */
        differ_by_key(line, "addr", a, b);
    if (line->used == 0 && winner_of(first)->entry != winner_of(part)->entry)
        compare_shapes(sharing, first, part, reads_cache(a) ? a : b, line);
}

/* ---------------------------------------------------------------- all parts */

/* Why a part has nothing that it could share, or NULL. */
static const char *nothing_to_share(const struct attn__part *part, bool of_caches)
{
    if (winner_of(part) == NULL)
        return part->info.status == ATTN_OK ? "no backend is wanted" : "no backend serves it";
    const uint32_t type = part->problem.type;
    return of_caches && (type == ATTN_ENCODER || type == ATTN_ENCODER_ONLY) ? "an encoder keeps no cache"
                                                                            : NULL;
}

static uint32_t shared_with(const struct attn__part *part, bool of_caches)
{
    return of_caches ? part->info.cache_part : part->info.metadata_part;
}

/* Whether part `number` shares with `first`, which shares with none. If not, the text says what differs. */
static bool shares_with(struct sharing *sharing, uint32_t first, uint32_t number, bool of_caches,
                        struct attn__line *text)
{
    const struct attn__part *parts = sharing->parts->parts;
    if (first == number || shared_with(&parts[first], of_caches) != first ||
        nothing_to_share(&parts[first], of_caches) != NULL)
        return false;
    char differences[256] = "";
    struct attn__line line = {differences, sizeof differences, 0};
    (of_caches ? compare_caches : compare_metadata)(sharing, &parts[first], &parts[number], &line);
    if (line.used > 0)
        attn__line_append(text, "%sparts[%u]: %s", text->used > 0 ? "; " : "", first, differences);
    return line.used == 0;
}

/* The part that part `number` shares with, or itself. That of its other phase is tried first. */
static uint32_t find_first(struct sharing *sharing, uint32_t number, bool of_caches, struct attn__line *text)
{
    const struct attn__part *part = &sharing->parts->parts[number];
    const struct attn__part *other = other_phase(sharing->parts, part);
    const char *nothing = nothing_to_share(part, of_caches);
    const uint32_t home = other != NULL ? shared_with(other, of_caches) : number;
    if (nothing != NULL) {
        attn__line_append(text, "%s", nothing);
        return number;
    }
    uint32_t found = shares_with(sharing, home, number, of_caches, text) ? home : number;
    for (uint32_t i = 0; i < number; i++)
        if (i != home && shares_with(sharing, i, number, of_caches, text) && found == number)
            found = i;
    return found;
}

static void share_part(struct sharing *sharing, uint32_t number)
{
    struct attn__part *parts = sharing->parts->parts;
    struct attn__part *part = &parts[number];
    struct attn__line metadata = {part->metadata_text, sizeof part->metadata_text, 0};
    struct attn__line cache = {part->cache_text, sizeof part->cache_text, 0};
    part->reader = number;
    part->info.metadata_text = part->metadata_text;
    part->info.cache_text = part->cache_text;
    part->info.metadata_part = find_first(sharing, number, false, &metadata);
    part->info.cache_part = find_first(sharing, number, true, &cache);
    struct attn__part *first = &parts[part->info.cache_part];
    if (!reads_cache(&parts[first->reader].problem) && reads_cache(&part->problem))
        first->reader = number;
}

int32_t attn__parts_share(struct attn_parts *parts, struct attn_error *err)
{
    struct sharing sharing = {.parts = parts};
    sharing.opened = calloc(parts->count, sizeof(struct attn_backend *));
    if (sharing.opened == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "parts", "no memory to compare %u parts", parts->count);
    for (uint32_t i = 0; i < parts->count; i++)
        share_part(&sharing, i);
    for (uint32_t i = 0; i < sharing.opened_count; i++)
        attn_backend_destroy(sharing.opened[i]);
    free(sharing.opened);
    return ATTN_OK;
}
