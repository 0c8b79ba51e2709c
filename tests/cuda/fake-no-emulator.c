/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The fake driver in a build without an emulator: code of AMD's GPUs is no image that it takes. */
#include "fake-state.h"

bool fake_emulator_open(const void *image, void **out)
{
    (void)image, (void)out;
    fake_offend("this build has no emulator for code of AMD's GPUs");
    return false;
}

void fake_emulator_close(void *image)
{
    (void)image;
}

const void *fake_emulator_find(void *image, const char *name)
{
    (void)image, (void)name;
    return NULL;
}

size_t fake_emulator_argument(const void *code)
{
    (void)code;
    return 0;
}

gpu_result fake_emulator_run(const struct fake_work *work)
{
    (void)work;
    return GPU_LAUNCH_FAILED;
}
