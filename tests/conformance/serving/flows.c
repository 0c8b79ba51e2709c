/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The flows of a layer: each is a few steps of a few sequences, and each step is judged. */
#include "flows.h"

struct scene scene_of(struct model *model)
{
    struct scene scene = {.model = model, .step = {.row = UINT32_MAX}};

    for (uint32_t i = 0; i < SEQUENCES; i++) {
        scene.all[i].id = i + 1;
        scene.all[i].encoder_len = model->def->cross == 1 ? 3 + 4 * i : 0;
    }
    return scene;
}

void scene_begin(struct scene *scene)
{
    memset(&scene->step, 0, sizeof scene->step);
    scene->step.row = UINT32_MAX;
}

struct entry *scene_add(struct scene *scene, uint32_t n, uint32_t prompt, uint32_t q_len)
{
    struct entry *entry = &scene->step.entries[scene->step.count++];

    *entry = (struct entry){.sequence = &scene->all[n], .prompt = prompt, .q_len = q_len};
    return entry;
}

bool scene_run(struct scene *scene)
{
    return model_step(scene->model, &scene->step);
}

/* Prompts of sequences 0 to 2, of which one is longer than any window. */
bool scene_prompts(struct scene *scene)
{
    scene_begin(scene);
    scene_add(scene, 0, 1, 29);
    scene_add(scene, 1, 1, 4);
    scene_add(scene, 2, 1, 1);
    return scene_run(scene);
}

bool scene_decodes(struct scene *scene, uint32_t steps)
{
    bool good = true;

    for (uint32_t i = 0; i < steps && good; i++) {
        scene_begin(scene);
        scene->step.row = i % 2 == 0 ? 2 : UINT32_MAX;
        for (uint32_t n = 0; n < 3; n++)
            scene_add(scene, n, 0, 1);
        good = scene_run(scene);
    }
    return good;
}

/* ---------------------------------------------------------------- decoders */

static bool flow_profile(struct model *model)
{
    struct scene scene = scene_of(model);

    scene_begin(&scene);
    scene.step.profile = true;
    scene_add(&scene, 0, 1, 13);
    scene_add(&scene, 1, 1, 1);
    return scene_run(&scene);
}

static bool flow_prompts(struct model *model)
{
    struct scene scene = scene_of(model);

    return scene_prompts(&scene) && scene_decodes(&scene, 5);
}

/* No cache is given to a step whose prompts read new keys; a cache stays as it is. */
static bool flow_no_cache(struct model *model)
{
    struct scene scene = scene_of(model);

    scene_begin(&scene);
    scene.step.no_kv = true;
    scene_add(&scene, 0, 1, 13);
    scene_add(&scene, 1, 1, 6);
    return scene_run(&scene);
}

/* Blocks that another sequence has computed. The first of the prompts has none. */
static bool run_hit(struct model *model, bool all)
{
    struct scene scene = scene_of(model);
    struct sequence_state *from = &scene.all[0];

    if (!scene_prompts(&scene))
        return false;
    scene_begin(&scene);
    if (!all)
        scene_add(&scene, 3, 1, 6);
    const uint32_t n = 4;
    struct sequence_state *to = &scene.all[n];
    to->parent = from->id;
    to->shared = to->len = 3 * BLOCK;
    for (uint32_t g = 0; g < GROUPS; g++) {
        to->counts[g] = 3;
        memcpy(to->blocks[g], from->blocks[g], sizeof to->blocks[g]);
    }
    scene_add(&scene, n, 1, 5)->hit = 3;
    if (!scene_run(&scene))
        return false;
    scene_begin(&scene);
    scene_add(&scene, 0, 0, 1);
    scene_add(&scene, n, 0, 1);
    return scene_run(&scene);
}

static bool flow_hit(struct model *model)
{
    return run_hit(model, true);
}

/* The common builder of ROCm gives rows to the hit alone. */
static bool flow_hit_beside(struct model *model)
{
    return run_hit(model, model->flavour == ATTN_ROCM_FLASH && model->def->chunked == 0);
}

static bool flow_chunks(struct model *model)
{
    static const uint32_t chunks[] = {5, 9, 1, 4};
    struct scene scene = scene_of(model);
    bool good = true;

    for (uint32_t i = 0; i < 4 && good; i++) {
        scene_begin(&scene);
        scene.step.row = 3;
        scene_add(&scene, 0, 1, chunks[i]);
        scene_add(&scene, 1, 1, chunks[3 - i]);
        good = scene_run(&scene);
    }
    return good && scene_prompts(&(struct scene){
                       .model = model, .all = {{.id = 11}, {.id = 12}, {.id = 13}}, .step = {.row = 0}});
}

static bool flow_mixed(struct model *model)
{
    struct scene scene = scene_of(model);

    if (!scene_prompts(&scene))
        return false;
    scene_begin(&scene);
    scene_add(&scene, 3, 1, 7);
    scene_add(&scene, 4, 1, 9);
    scene_add(&scene, 0, 0, 1);
    scene_add(&scene, 2, 0, 1);
    scene_add(&scene, 1, 0, 1);
    return scene_run(&scene) && scene_decodes(&scene, 2);
}

/* Several query tokens of a decode, as many or as few as there are. */
static bool run_speculative(struct model *model, bool mixed)
{
    struct scene scene = scene_of(model);

    if (!scene_prompts(&scene))
        return false;
    scene_begin(&scene);
    scene_add(&scene, 0, 0, 4);
    scene_add(&scene, 1, 0, 4);
    scene_add(&scene, 2, 0, 4);
    if (!scene_run(&scene))
        return false;
    scene_begin(&scene);
    if (mixed)
        scene_add(&scene, 3, 1, 6);
    scene_add(&scene, 0, 0, 1);
    scene_add(&scene, 1, 0, 3);
    scene_add(&scene, 2, 0, 2);
    return scene_run(&scene) && scene_decodes(&scene, 1);
}

static bool flow_speculative(struct model *model)
{
    return run_speculative(model, false);
}

static bool flow_speculative_mixed(struct model *model)
{
    return run_speculative(model, true);
}

/* The same decodes again, whose keys are in the cache already. */
static bool flow_not_written(struct model *model)
{
    struct scene scene = scene_of(model);

    if (!scene_prompts(&scene) || !scene_decodes(&scene, 1))
        return false;
    for (uint32_t n = 0; n < 3; n++)
        scene.all[n].len--;
    scene_begin(&scene);
    scene.step.no_new = true;
    for (uint32_t n = 0; n < 3; n++)
        scene_add(&scene, n, 0, 1);
    return scene_run(&scene) && scene_decodes(&scene, 1);
}

/* The same chunks again. */
static bool flow_chunks_not_written(struct model *model)
{
    struct scene scene = scene_of(model);

    scene_begin(&scene);
    scene_add(&scene, 0, 1, 9);
    scene_add(&scene, 1, 1, 6);
    if (!scene_run(&scene))
        return false;
    scene.all[0].len -= 3;
    scene.all[1].len -= 6;
    scene_begin(&scene);
    scene.step.no_new = true;
    scene_add(&scene, 0, 1, 3);
    scene_add(&scene, 1, 1, 6);
    return scene_run(&scene);
}

/* Rows that show the last blocks of a sequence alone, and lengths to match. */
static bool flow_trimmed(struct model *model)
{
    struct scene scene = scene_of(model);
    bool good = scene_prompts(&scene);

    for (uint32_t i = 0; i < 6 && good; i++) {
        scene_begin(&scene);
        for (uint32_t n = 0; n < 3; n++)
            scene_add(&scene, n, 0, 1)->trimmed = 2;
        good = scene_run(&scene);
    }
    return good;
}

/* Two blocks in turn: what is written takes the places of keys that the step still reads. */
static bool flow_ring(struct model *model)
{
    static const uint32_t chunks[] = {13, 9, 12, 10, 1, 1, 14};
    struct scene scene = scene_of(model);
    bool good = true;

    sequence_grow(model, &scene.all[0], 2 * BLOCK);
    for (uint32_t g = 0; g < GROUPS; g++)
        for (uint32_t i = 0; i < MOST_BLOCKS; i++)
            scene.all[0].blocks[g][i] = scene.all[0].blocks[g][i % 2];
    for (uint32_t g = 0; g < GROUPS; g++)
        scene.all[0].counts[g] = MOST_BLOCKS;
    for (uint32_t i = 0; i < sizeof chunks / sizeof chunks[0] && good; i++) {
        scene_begin(&scene);
        scene_add(&scene, 0, chunks[i] > 1, chunks[i]);
        good = scene_run(&scene);
    }
    return good;
}

/* ---------------------------------------------------------------- encoders */

static bool run_encoder_only(struct model *model, bool null_table, bool profile)
{
    struct scene scene = scene_of(model);
    bool good = true;

    for (uint32_t i = 0; i < 2 && good; i++) {
        scene_begin(&scene);
        scene.step.null_table = null_table;
        scene.step.profile = profile;
        for (uint32_t n = 0; n < 3; n++) {
            scene.all[n] = (struct sequence_state){.id = 10 * i + n + 1};
            scene_add(&scene, n, 1, 3 + 7 * n);
        }
        good = scene_run(&scene);
    }
    return good;
}

static bool flow_encoder_only(struct model *model)
{
    return run_encoder_only(model, false, false);
}

static bool flow_encoder_null(struct model *model)
{
    return run_encoder_only(model, true, false);
}

static bool flow_encoder_profile(struct model *model)
{
    return run_encoder_only(model, false, true);
}

/* Prompts alone, then decodes. */
static bool flow_cross(struct model *model)
{
    struct scene scene = scene_of(model);

    return scene_prompts(&scene) && scene_decodes(&scene, 3);
}

/* ... then both in one step, and decodes of all. */
static bool flow_cross_mixed(struct model *model)
{
    struct scene scene = scene_of(model);

    if (!scene_prompts(&scene) || !scene_decodes(&scene, 1))
        return false;
    scene_begin(&scene);
    scene_add(&scene, 3, 1, 2);
    scene_add(&scene, 4, 1, 5);
    scene_add(&scene, 2, 0, 1);
    scene_add(&scene, 0, 0, 1);
    if (!scene_run(&scene))
        return false;
    scene_begin(&scene);
    for (uint32_t n = SEQUENCES; n > 0; n--)
        scene_add(&scene, n - 1, 0, 1);
    return scene_run(&scene);
}

const struct flow flows[] = {
    {"profile run", FLOW_DECODER, 0, flow_profile},
    {"profile run, chunked", FLOW_DECODER, 1, flow_profile},
    {"prompts and decodes", FLOW_DECODER, 0, flow_prompts},
    {"prompts in rows, and decodes", FLOW_DECODER | FLOW_WHOLE, 1, flow_prompts},
    {"prompts without a cache", FLOW_DECODER | FLOW_NO_PAGES, 0, flow_no_cache},
    {"prefix hit", FLOW_DECODER | FLOW_WHOLE, 0, flow_hit},
    {"prefix hit beside a prompt", FLOW_DECODER | FLOW_WHOLE, 0, flow_hit_beside},
    {"prefix hit, chunked", FLOW_DECODER | FLOW_WHOLE, 1, flow_hit_beside},
    {"chunks", FLOW_DECODER | FLOW_WHOLE, 1, flow_chunks},
    {"mixed, one run", FLOW_DECODER | FLOW_WHOLE, 1, flow_mixed},
    {"mixed, two runs", FLOW_DECODER | FLOW_APART, 0, flow_mixed},
    {"several query tokens", FLOW_DECODER | FLOW_SEVERAL, 0, flow_speculative},
    {"several query tokens beside a chunk", FLOW_DECODER | FLOW_SEVERAL | FLOW_WHOLE, 1,
     flow_speculative_mixed},
    {"several query tokens beside a prompt", FLOW_DECODER | FLOW_APART | FLOW_SEVERAL, 0,
     flow_speculative_mixed},
    {"decodes not written", FLOW_DECODER | FLOW_REPEAT, 0, flow_not_written},
    {"chunks not written", FLOW_DECODER | FLOW_REPEAT | FLOW_WHOLE, 1, flow_chunks_not_written},
    {"padded", FLOW_GRAPH, 0, flow_padded},
    {"graph of a step", FLOW_GRAPH, 0, flow_replayed},
    {"graph of any mix", FLOW_MIX, 1, flow_replayed_mix},
    {"advanced", FLOW_STEPS, 0, flow_advanced},
    {"advanced, chunked", FLOW_STEPS | FLOW_WHOLE, 1, flow_advanced},
    {"advanced, trimmed rows", FLOW_STEPS | FLOW_WINDOW, 0, flow_advanced_trimmed},
    {"decodes on the device", FLOW_DEVICE, 0, flow_device_decodes},
    {"prompts and decodes on the device", FLOW_DEVICE, 1, flow_device_prompts},
    {"padding on the device", FLOW_DEVICE | FLOW_GRAPH, 0, flow_device_padded},
    {"trimmed rows", FLOW_DECODER | FLOW_WINDOW, 0, flow_trimmed},
    {"trimmed rows, chunked", FLOW_DECODER | FLOW_WINDOW | FLOW_WHOLE, 1, flow_trimmed},
    {"ring buffer", FLOW_RING, 1, flow_ring},
    {"encoder only", FLOW_ENCODER_ONLY, 0, flow_encoder_only},
    {"encoder only, no table", FLOW_ENCODER_ONLY, 0, flow_encoder_null},
    {"encoder only, profile run", FLOW_ENCODER_ONLY, 0, flow_encoder_profile},
    {"encoder, decoder and cross-attention, profile run", FLOW_CROSS, 0, flow_profile},
    {"encoder, decoder and cross-attention", FLOW_CROSS, 0, flow_cross},
    {"encoder, decoder and cross-attention, chunked", FLOW_CROSS, 1, flow_cross},
    {"encoder, decoder and cross-attention, mixed", FLOW_CROSS, 0, flow_cross_mixed},
    {"encoder, decoder and cross-attention, mixed, chunked", FLOW_CROSS, 1, flow_cross_mixed},
};

const uint32_t flow_count = sizeof flows / sizeof flows[0];
