/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes the classes: every combination of the axes that some flow can tell apart. */
#include "classes.h"

#include <stdio.h>

enum window { NO_WINDOW, WINDOW, BUILDER_WINDOW, WINDOWS };
enum source { SOURCE_CACHE, SOURCE_NEW, SOURCE_BOTH, SOURCES };

/* One value of each axis. */
struct point {
    uint32_t type; /* in types; the last is a model of three of them */
    uint32_t source;
    uint32_t latent;
    uint32_t window;
    uint32_t eight;
    uint32_t graph;
};

enum { DECODER, ENCODER, ENCODER_ONLY, CROSS_ATTENTION, ENCODER_DECODER, TYPES };

enum { MIXED = 3 }; /* in graphs */

static const char *const types[TYPES] = {"decoder", "encoder", "encoder_only", "encoder_decoder",
                                         "encoder, decoder, cross"};
static const char *const sources[SOURCES] = {"cache", "new", "cache+new"};
static const char *const graphs[] = {"never", "single", "uniform", "always"};
static const char *const windows[WINDOWS] = {"", ", window", ", window of the builder"};
static const char *const queries[] = {"f32", "bf16", "f16"};
/* Types of 8-bit caches with their scales; keys that are read from k_new take the first two alone. */
static const char *const eights[][2] = {
    {"e4m3", "tensor"}, {"int8", "tensor"}, {"e5m2", "head"}, {"e4m3", "token-head"}};

/* Takes one axis off a number. */
static uint32_t take(uint32_t *n, uint32_t values)
{
    const uint32_t value = *n % values;

    *n /= values;
    return value;
}

/* Whether flows can tell a combination from a smaller one: decodes are captured alike at every level, and so
 * is any mix with every type of cache. */
static bool is_wanted(const struct point *at)
{
    const bool encoder = at->type == ENCODER || at->type == ENCODER_ONLY;

    if (at->type == ENCODER_DECODER)
        return at->source == SOURCE_CACHE && at->latent == 0 && at->window == NO_WINDOW && at->graph == 0;
    if (at->window == BUILDER_WINDOW && (at->type != DECODER || at->graph != 0))
        return false;
    if (at->graph == MIXED && at->type == DECODER && at->eight == 0)
        return at->latent == 0 || at->window == NO_WINDOW;
    if (at->graph > 1 && (at->latent != 0 || at->window != NO_WINDOW))
        return false;
    return !encoder || at->graph == 0;
}

static bool point_init(struct point *at, uint32_t n)
{
    uint32_t left = n;

    at->eight = take(&left, 2);
    at->window = take(&left, WINDOWS);
    at->latent = take(&left, 2);
    at->source = take(&left, SOURCES);
    at->graph = take(&left, sizeof graphs / sizeof *graphs);
    at->type = take(&left, TYPES);
    return left == 0;
}

static uint32_t flows_of(const struct point *at, uint32_t flavour)
{
    uint32_t has = FLOW_STEPS | FLOW_DEVICE;

    if (at->graph != 0)
        return FLOW_GRAPH | FLOW_DEVICE | (at->graph == MIXED && at->type == DECODER ? FLOW_MIX : 0);
    if (at->type == ENCODER_ONLY)
        return FLOW_ENCODER_ONLY;
    if (at->type == ENCODER)
        return FLOW_CROSS;
    if (at->type != DECODER)
        return has | FLOW_CROSS;
    has |= FLOW_DECODER | FLOW_APART | FLOW_SEVERAL;
    has |= at->window != BUILDER_WINDOW ? FLOW_WHOLE : 0;
    has |= at->window != NO_WINDOW ? FLOW_WINDOW : 0;
    has |= at->source == SOURCE_CACHE ? FLOW_REPEAT : 0;
    has |= at->source == SOURCE_BOTH && at->window == WINDOW ? FLOW_RING : 0;
    return has | (flavour != ATTN_FLASHINFER ? FLOW_NO_PAGES : 0);
}

/* The problem of one type. Graphs over 8-bit caches look for pages that the sequences of a step share. */
static void write_text(const struct point *at, const char *type, const char *query,
                       const char *const eight[2], char *to, size_t size)
{
    char codes[64] = "", source[32] = "";

    if (at->eight != 0)
        snprintf(codes, sizeof codes, " kv=%s %s=%s", eight[0], at->latent != 0 ? "k_scale" : "scales",
                 eight[1]);
    if (at->type != ENCODER_DECODER)
        snprintf(source, sizeof source, " kv_source=%s", sources[at->source]);
    snprintf(to, size, "type=%s q=%s %s%s%s%s graph=%s%s", type, query,
             at->latent != 0 ? "mla=1 heads=4 kv_heads=1 head_dim=48/32" : "heads=4 kv_heads=2 head_dim=32",
             codes, source, at->window != NO_WINDOW ? " window=7" : "", graphs[at->graph],
             at->graph != 0 && at->eight != 0 ? " cascade=64" : "");
}

static void write_name(const struct point *at, const char *query, const char *const eight[2], char *to,
                       size_t size)
{
    char codes[64] = "", graph[32] = "";

    if (at->eight != 0)
        snprintf(codes, sizeof codes, ", kv %s %s", eight[0], eight[1]);
    if (at->graph != 0)
        snprintf(graph, sizeof graph, ", graph %s", graphs[at->graph]);
    snprintf(to, size, "%s %s%s%s %s%s%s", types[at->type], sources[at->source],
             at->latent != 0 ? ", mla" : "", windows[at->window], query, codes, graph);
}

/* Finds class number `wanted`; returns it, or how many there are. */
static uint32_t find(struct point *at, uint32_t wanted)
{
    uint32_t found = 0;

    for (uint32_t n = 0; point_init(at, n); n++)
        if (is_wanted(at) && found++ == wanted)
            return wanted;
    return found;
}

uint32_t class_count(void)
{
    struct point at;

    return find(&at, UINT32_MAX);
}

void class_init(struct served *served, uint32_t n, uint64_t seed, uint32_t flavour)
{
    struct point at;

    memset(served, 0, sizeof *served);
    find(&at, n);
    const char *query = queries[(n + seed) % 3];
    const char *const *eight = eights[(n / 3 + seed) % (at.source == SOURCE_CACHE ? 4 : 2)];
    for (uint32_t c = 0; c < (at.type == ENCODER_DECODER ? 3U : 1U); c++) {
        const char *const all[] = {"encoder", "decoder", "encoder_decoder"};
        write_text(&at, at.type == ENCODER_DECODER ? all[c] : types[at.type], query, eight, served->texts[c],
                   sizeof served->texts[c]);
        served->def.classes[c].problem = served->texts[c];
    }
    served->def.cross = at.type == ENCODER || at.type == CROSS_ATTENTION || at.type == ENCODER_DECODER;
    served->def.windows[0] = at.window == BUILDER_WINDOW ? BLOCK : 0;
    served->has = flows_of(&at, flavour);
    write_name(&at, query, eight, served->name, sizeof served->name);
}
