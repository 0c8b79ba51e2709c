/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads reference.json and checks its shape. */
#include "reference.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static int32_t *load_ids(const json_t *array, uint32_t *out_count)
{
    *out_count = (uint32_t)json_array_size(array);
    int32_t *ids = calloc(*out_count + 1, sizeof *ids);
    for (uint32_t i = 0; ids && i < *out_count; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

static int load_position(const json_t *json, struct reference_position *out)
{
    const json_t *top = json_object_get(json, "top");
    const json_t *sample = json_object_get(json, "sample");
    if (json_array_size(top) != REFERENCE_TOP || json_array_size(sample) != REFERENCE_SAMPLE)
        return -1;
    out->index = (uint32_t)json_integer_value(json_object_get(json, "p"));
    for (size_t i = 0; i < REFERENCE_TOP; i++) {
        const json_t *pair = json_array_get(top, i);
        out->top_ids[i] = (int32_t)json_integer_value(json_array_get(pair, 0));
        out->top[i] = json_number_value(json_array_get(pair, 1));
    }
    for (size_t i = 0; i < REFERENCE_SAMPLE; i++)
        out->sample[i] = json_number_value(json_array_get(sample, i));
    out->mean = json_number_value(json_object_get(json, "mean"));
    out->rms = json_number_value(json_object_get(json, "rms"));
    return 0;
}

static int load_prompt(const json_t *json, struct reference_prompt *out)
{
    const json_t *positions = json_object_get(json, "positions");
    out->name = json_string_value(json_object_get(json, "name"));
    out->text = json_string_value(json_object_get(json, "text"));
    out->tokens = load_ids(json_object_get(json, "tokens"), &out->token_count);
    out->greedy = load_ids(json_object_get(json, "greedy"), &out->greedy_count);
    out->position_count = (uint32_t)json_array_size(positions);
    out->positions = calloc(out->position_count + 1, sizeof *out->positions);
    if (!out->name || !out->text || !out->tokens || !out->greedy || !out->positions || !out->token_count ||
        !out->greedy_count || !out->position_count)
        return -1;
    for (uint32_t i = 0; i < out->position_count; i++)
        if (load_position(json_array_get(positions, i), &out->positions[i]) < 0 ||
            out->positions[i].index != out->positions[0].index + i ||
            out->positions[i].index >= out->token_count)
            return -1;
    return 0;
}

static int load(struct reference *r)
{
    const json_t *prompts = json_object_get(r->json, "prompts");
    const json_t *ids = json_object_get(r->json, "sample_ids");
    r->sha256 = json_string_value(json_object_get(r->json, "sha256"));
    r->prompt_count = (uint32_t)json_array_size(prompts);
    r->prompts = calloc(r->prompt_count + 1, sizeof *r->prompts);
    if (!r->sha256 || !r->prompts || !r->prompt_count || json_array_size(ids) != REFERENCE_SAMPLE)
        return -1;
    for (size_t i = 0; i < REFERENCE_SAMPLE; i++)
        r->sample_ids[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    for (uint32_t i = 0; i < r->prompt_count; i++)
        if (load_prompt(json_array_get(prompts, i), &r->prompts[i]) < 0)
            return -1;
    return 0;
}

int reference_load(const char *path, struct reference *out)
{
    json_error_t error;
    *out = (struct reference){.json = json_load_file(path, 0, &error)};
    if (!out->json) {
        fprintf(stderr, "%s:%d: %s\n", path, error.line, error.text);
        return -1;
    }
    if (load(out) == 0)
        return 0;
    fprintf(stderr, "%s: is not laid out as README.md says\n", path);
    reference_finish(out);
    return -1;
}

void reference_finish(struct reference *r)
{
    for (uint32_t i = 0; r->prompts && i < r->prompt_count; i++) {
        free(r->prompts[i].tokens);
        free(r->prompts[i].greedy);
        free(r->prompts[i].positions);
    }
    free(r->prompts);
    json_decref(r->json);
    *r = (struct reference){0};
}
