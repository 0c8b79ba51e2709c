/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Walks the axes of a backend. An axis promises that, other keys equal, one answer holds within each of its
 * ranges, so one question per range is enough.
 */
#include "capability.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "ranges.h"

enum { REASONS = 32, KERNELS = 8 };

static const char *const base_keys[BASE_KEYS] = {"heads", "kv_heads", "head_dim", "q", "block"};

/*
 * Keys that make sense only together with others: what is added, tried one after the other until one is
 * served. Rows with `value` NULL hold for all values. Where `needed` is set the key says nothing by itself.
 */
static const struct companion {
    const char *key;
    const char *value;
    const char *extra;
    bool needed;
} companions[] = {
    {"kv", NULL, "scales=unit", false},
    {"kv", NULL, "scales=tensor", false},
    {"kv", NULL, "scales=token-head", false},
    {"q", NULL, "q_scale=unit", false},
    {"q", NULL, "q_scale=unit scales=unit", false},
    {"out", NULL, "out_scale=unit", false},
    {"out", NULL, "out_scale=tensor", false},
    {"scales", NULL, "kv=e4m3", true},
    {"scales", NULL, "kv=int8", true},
    {"q_scale", NULL, "q=e4m3 scales=unit", true},
    {"q_scale", NULL, "q=e4m3 kv=f16", true},
    {"out_scale", NULL, "out=e4m3", true},
    {"alibi", "mask", "mask=f16", true},
    {"alibi", "mask", "mask=f32", true},
    {"span", NULL, "mask=bits", true},
    {"span", NULL, "mask=f32", true},
    {"index", NULL, "addr=csr", true},
    {"mla", "1", "kv_heads=1 head_dim=576/512", true},
};

/* True if a problem string gives the key. */
static bool mentions(const char *text, const char *key)
{
    size_t size = strlen(key);

    for (; *text != '\0'; text += strcspn(text, " "), text += strspn(text, " "))
        if (strncmp(text, key, size) == 0 && text[size] == '=')
            return true;
    return false;
}

/* The speed of the slowest kernel, 0 if one does not say. */
static uint32_t speed_of(const struct attn_query *query)
{
    uint32_t speed = ATTN_SPEED_OPTIMISED;

    for (uint32_t i = 0; i < query->kernel_count && i < query->kernel_capacity; i++) {
        if (query->kernels[i].speed == ATTN_SPEED_GENERIC)
            return ATTN_SPEED_GENERIC;
        if (query->kernels[i].speed != ATTN_SPEED_OPTIMISED)
            speed = 0;
    }
    return query->kernel_count > 0 ? speed : 0;
}

/* The reason about the key itself, or else the first one; one about the whole backend rather than a kernel.
 */
static void take_reason(const struct attn_query *query, const char *extra, struct answer *out)
{
    uint32_t count =
        query->reason_count < query->reason_capacity ? query->reason_count : query->reason_capacity;
    unsigned best = 0;

    *out = (struct answer){.served = query->accepted != 0};
    if (out->served) {
        out->graph_level = query->graph_level;
        out->speed = speed_of(query);
    }
    for (uint32_t i = 0; i < count && !out->served; i++) {
        const struct attn_reason *reason = &query->reasons[i];
        size_t size = strlen(reason->field);
        bool about = size > 0 && strncmp(extra, reason->field, size) == 0 && extra[size] == '=';
        unsigned rank = 1U + (about ? 2U : 0U) + (reason->kernel[0] == '\0' ? 1U : 0U);
        if (rank <= best)
            continue;
        best = rank;
        out->reason = reason->code;
        snprintf(out->text, sizeof out->text, "%s",
                 reason->text[0] != '\0' ? reason->text : attn_reason_text(reason->code));
    }
}

bool subject_serves(const struct subject *subject, const char *extra, struct answer *out)
{
    struct attn_problem problem;
    struct attn_reason reasons[REASONS];
    struct attn_kernel_info kernels[KERNELS];
    struct attn_error err;
    struct attn_query query;
    char *text = need_copy(extra);

    for (unsigned i = 0; i < BASE_KEYS; i++) {
        if (mentions(extra, base_keys[i]))
            continue;
        char *longer = need_format("%s %s=%s", text, base_keys[i], subject->base[i]);
        free(text);
        text = longer;
    }
    ATTN_INIT(&problem);
    ATTN_INIT(&query);
    ATTN_INIT(&err);
    memset(reasons, 0, sizeof reasons);
    query.reasons = reasons;
    query.reason_capacity = REASONS;
    memset(kernels, 0, sizeof kernels);
    query.kernels = kernels;
    query.kernel_capacity = KERNELS;
    *out = (struct answer){.served = false};
    if (attn_problem_parse(text, &problem, &err) != ATTN_OK ||
        attn_context_query(subject->context, subject->backend, subject->device, &problem, &query, &err) !=
            ATTN_OK) {
        out->reason = err.reason;
        snprintf(out->text, sizeof out->text, "%.*s", (int)sizeof out->text - 1, err.message);
    } else {
        take_reason(&query, extra, out);
    }
    free(text);
    return out->served;
}

/* Texts of a key to begin with: the usual ones, then the first of every axis. */
static void first_values(const struct subject *subject, const char *key, const char *usual, struct words *out)
{
    words_split(out, usual);
    for (uint32_t i = 0; i < subject->axis_count; i++) {
        const struct attn_axis *axis = &subject->axes[i];
        if (strcmp(axis->key, key) != 0)
            continue;
        for (uint32_t j = 0; j < axis->value_count && axis->values != NULL; j++)
            words_add(out, axis->values[j]);
        if (axis->values == NULL) {
            char *value = need_format("%" PRId64, axis->first);
            words_add(out, value);
            free(value);
        }
    }
}

/* The first problem of the usual ones that optimised kernels serve, else the first that is served. */
static bool base_find(struct subject *subject)
{
    struct words dims = {0}, types = {0}, blocks = {0};
    struct subject first = {0}; /* backend NULL: none was served yet */
    struct answer answer = {.served = false};

    first_values(subject, "head_dim", "128 64", &dims);
    first_values(subject, "q", "f16 bf16 f32", &types);
    first_values(subject, "block", "16", &blocks);
    for (unsigned i = 0; i < dims.count * types.count * blocks.count; i++) {
        snprintf(subject->base[2], sizeof subject->base[2], "%s", dims.items[i % dims.count]);
        snprintf(subject->base[3], sizeof subject->base[3], "%s", types.items[i / dims.count % types.count]);
        snprintf(subject->base[4], sizeof subject->base[4], "%s", blocks.items[i / dims.count / types.count]);
        if (subject_serves(subject, "", &answer) && first.backend == NULL)
            first = *subject;
        if (answer.served && answer.speed != ATTN_SPEED_GENERIC)
            break;
    }
    if (first.backend != NULL && (!answer.served || answer.speed == ATTN_SPEED_GENERIC))
        *subject = first;
    words_finish(&dims);
    words_finish(&types);
    words_finish(&blocks);
    return first.backend != NULL;
}

bool subject_init(struct subject *subject, struct attn_context *context, const char *backend,
                  const struct attn_device *device, struct attn_error *err)
{
    *subject = (struct subject){.context = context, .backend = backend, .device = device};
    if (attn_context_get_axes(context, backend, &subject->axes, &subject->axis_count, err) != ATTN_OK)
        return false;
    snprintf(subject->base[0], sizeof subject->base[0], "8");
    snprintf(subject->base[1], sizeof subject->base[1], "2");
    if (base_find(subject))
        return true;
    err->message[0] = '\0';
    return false;
}

/* Asks once more, and keeps the better answer. */
static void ask_better(const struct subject *subject, const char *extra, struct answer *out)
{
    struct answer other;

    subject_serves(subject, extra, &other);
    if (!out->served || (other.served && other.speed != ATTN_SPEED_GENERIC))
        *out = other;
}

void subject_judge(const struct subject *subject, const char *key, const char *value, struct answer *out)
{
    char *extra = need_format("%s=%s", key, value);
    bool alone = true;

    *out = (struct answer){.served = false, .speed = ATTN_SPEED_GENERIC};
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++) {
        if (out->served && out->speed != ATTN_SPEED_GENERIC)
            break;
        const struct companion *companion = &companions[i];
        if (strcmp(companion->key, key) != 0 ||
            (companion->value != NULL && strcmp(companion->value, value) != 0))
            continue;
        char *longer = need_format("%s %s", extra, companion->extra);
        ask_better(subject, longer, out);
        alone = alone && !companion->needed;
        free(longer);
    }
    if (alone && (!out->served || out->speed == ATTN_SPEED_GENERIC))
        ask_better(subject, extra, out);
    if (!out->served)
        out->speed = 0;
    free(extra);
}

/* Whether a value is served, and by a generic kernel. */
static bool serves_value(const struct subject *subject, const char *key, const char *value, bool *out_generic)
{
    struct answer answer;

    subject_judge(subject, key, value, &answer);
    *out_generic = answer.speed == ATTN_SPEED_GENERIC;
    return answer.served;
}

static bool serves_number(const struct subject *subject, const char *key, int64_t value, bool *out_generic)
{
    char *text = need_format("%" PRId64, value);
    const bool served = serves_value(subject, key, text, out_generic);

    free(text);
    return served;
}

/*
 * The first value of a served range from which on generic kernels serve, or one past the last. An axis tells
 * nothing about speed; but what a kernel does not reach, it does not reach further on either.
 */
static int64_t first_generic(const struct subject *subject, const struct attn_axis *axis, bool generic)
{
    const int64_t step = axis->step > 1 ? axis->step : 1;
    int64_t low = 0,
            high = (axis->last - axis->first) / step + 1; /* optimised below low, generic from high on */

    if (generic)
        return axis->first;
    (void)serves_number(subject, axis->key, axis->first + (high - 1) * step, &generic);
    if (!generic)
        return axis->last + step;
    for (high--; low + 1 < high;) {
        const int64_t middle = low + (high - low) / 2;
        (void)serves_number(subject, axis->key, axis->first + middle * step, &generic);
        *(generic ? &high : &low) = middle;
    }
    return axis->first + high * step;
}

/* Served ranges of a key, joined as far as they can be. */
static void range_values(const struct subject *subject, const char *key, struct words *out,
                         struct words *generic)
{
    struct ranges served = {0}, slow = {0};
    char *before = need_format("%s=", key);

    for (uint32_t i = 0; i < subject->axis_count; i++) {
        const struct attn_axis *axis = &subject->axes[i];
        bool is_generic;
        if (strcmp(axis->key, key) != 0 || axis->values != NULL ||
            !serves_number(subject, key, axis->first, &is_generic))
            continue;
        ranges_add(&served, axis->first, axis->last, axis->step);
        const int64_t first = generic != NULL ? first_generic(subject, axis, is_generic) : axis->last + 1;
        if (first <= axis->last)
            ranges_add(&slow, first, axis->last, axis->step);
    }
    ranges_finish(&served, "", out);
    ranges_finish(&slow, before, generic);
    free(before);
}

/* Usual values of keys that are ranges, for a backend whose axes do not have the key. */
static const struct usual {
    const char *key;
    const char *values;
} usuals[] = {{"head_dim", "32 64 80 96 128 192 256 512"}, {"block", "1 8 16 32 64 128 256"}};

static void usual_values(const struct subject *subject, const char *key, struct words *out)
{
    for (uint32_t i = 0; i < subject->axis_count; i++)
        if (strcmp(subject->axes[i].key, key) == 0)
            return;
    for (size_t i = 0; i < sizeof usuals / sizeof *usuals; i++)
        if (strcmp(usuals[i].key, key) == 0)
            words_split(out, usuals[i].values);
}

/* The values of a key that is no range: what the plugin lists, else what the library knows. */
static void candidate_values(const struct subject *subject, const char *key, struct words *out)
{
    for (uint32_t i = 0; i < subject->axis_count; i++) {
        const struct attn_axis *axis = &subject->axes[i];
        for (uint32_t j = 0; j < axis->value_count && axis->values != NULL; j++)
            if (strcmp(axis->key, key) == 0)
                words_add(out, axis->values[j]);
    }
    if (out->count == 0 && !key_list(key, out))
        usual_values(subject, key, out);
}

void subject_values(const struct subject *subject, const char *key, struct words *out, struct words *generic)
{
    struct words values = {0};

    candidate_values(subject, key, &values);
    for (unsigned i = 0; i < values.count; i++) {
        bool is_generic;
        if (!serves_value(subject, key, values.items[i], &is_generic))
            continue;
        words_add(out, values.items[i]);
        if (is_generic && generic != NULL) {
            char *text = need_format("%s=%s", key, values.items[i]);
            words_add(generic, text);
            free(text);
        }
    }
    words_finish(&values);
    range_values(subject, key, out, generic);
}

/* Keys that have a line of their own, or say nothing about what a backend can do. */
static bool is_feature(const char *key)
{
    static const char *const others[] = {"heads",  "kv_heads", "head_dim", "type",    "q",        "k",
                                         "v",      "kv",       "out",      "block",   "max_seqs", "max_q",
                                         "max_kv", "max_rows", "graph",    "k_scale", "v_scale"};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], key) == 0)
            return false;
    return true;
}

void subject_features(const struct subject *subject, struct words *out, struct words *generic)
{
    const char *key;

    for (uint32_t i = 0; (key = attn_problem_key(i, NULL, NULL)) != NULL; i++) {
        struct words values = {0};
        if (!is_feature(key))
            continue;
        key_values(key, &values);
        for (unsigned j = 0; j < values.count; j++) {
            bool is_generic;
            if (!serves_value(subject, key, values.items[j], &is_generic))
                continue;
            char *label = key_label(key, values.items[j]);
            words_add(out, label);
            if (is_generic)
                words_add(generic, label);
            free(label);
        }
        words_finish(&values);
    }
}
