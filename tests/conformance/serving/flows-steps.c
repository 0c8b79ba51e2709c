/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Flows whose steps the builder is not told one by one: advanced in place, or with arrays on the device. */
#include "flows.h"

/* One token of each of three sequences. */
static bool decode(struct scene *scene, enum step_way way, uint32_t trimmed)
{
    scene_begin(scene);
    scene->step.way = way;
    for (uint32_t n = 0; n < 3; n++)
        scene_add(scene, n, 0, 1)->trimmed = trimmed;
    return scene_run(scene);
}

/* The blocks of later steps are in the rows of the first. */
bool flow_advanced(struct model *model)
{
    struct scene scene = scene_of(model);
    bool good = scene_prompts(&scene);

    for (uint32_t n = 0; n < 3; n++)
        sequence_grow(model, &scene.all[n], scene.all[n].len + 8);
    for (uint32_t i = 0; i < 5 && good; i++)
        good = decode(&scene, i == 0 ? STEP_BUILT : STEP_ADVANCED, 0);
    return good && decode(&scene, STEP_BUILT, 0);
}

/* The last block of each row has room for the steps. */
bool flow_advanced_trimmed(struct model *model)
{
    struct scene scene = scene_of(model);

    return scene_prompts(&scene) && decode(&scene, STEP_BUILT, 2) && decode(&scene, STEP_ADVANCED, 2) &&
           decode(&scene, STEP_ADVANCED, 2);
}

bool flow_device_decodes(struct model *model)
{
    struct scene scene = scene_of(model);
    bool good = scene_prompts(&scene);

    for (uint32_t i = 0; i < 5 && good; i++)
        good = decode(&scene, STEP_DEVICE, 0);
    for (uint32_t n = 0; n < 3; n++)
        sequence_grow(model, &scene.all[n], scene.all[n].len + 2);
    return good && decode(&scene, STEP_DEVICE, 0) && decode(&scene, STEP_ADVANCED, 0) &&
           decode(&scene, STEP_BUILT, 0);
}

/* Prompts alone, a chunk and a prompt beside decodes; none is longer than a window. */
bool flow_device_prompts(struct model *model)
{
    struct scene scene = scene_of(model);

    scene_begin(&scene);
    scene.step.way = STEP_DEVICE;
    scene_add(&scene, 0, 1, 6);
    scene_add(&scene, 1, 1, 4);
    scene_add(&scene, 2, 1, 1);
    if (!scene_run(&scene))
        return false;
    scene_begin(&scene);
    scene.step.way = STEP_DEVICE;
    scene_add(&scene, 1, 1, 2);
    scene_add(&scene, 3, 1, 5);
    scene_add(&scene, 0, 0, 1);
    scene_add(&scene, 2, 0, 1);
    return scene_run(&scene) && decode(&scene, STEP_DEVICE, 0);
}
