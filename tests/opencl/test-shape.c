/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Caches of the OpenCL plugin have the shapes and strides of the CPU plugin's, in both flavours. */
#include <stdio.h>
#include <string.h>

#include "world.h"

static struct attn_kv_shape shape_of(const char *name, const char *problem)
{
    struct attn_kv_shape shape;
    struct attn_problem parsed;

    ATTN_INIT(&shape);
    if (!world_open(name))
        must(ATTN_E_NO_BACKEND);
    must(attn_problem_parse(problem, &parsed, &err));
    must(attn_kv_get_shape(backend, &parsed, 10, &shape, &err));
    world_close();
    return shape;
}

static void test_problem(const char *problem)
{
    static const char *const names[][2] = {{"opencl/flash-attn", "cpu/flash-attn"},
                                           {"opencl/flashinfer", "cpu/flashinfer"}};

    for (int i = 0; i < 2; i++) {
        const struct attn_kv_shape own = shape_of(names[i][0], problem), cpu = shape_of(names[i][1], problem);
        check(memcmp(&own, &cpu, sizeof own) == 0, names[i][0], problem);
    }
}

int main(void)
{
    if (!world_open("opencl")) {
        printf("1..0 # SKIP %s\n", err.message);
        world_close();
        return 0;
    }
    world_close();
    test_problem("heads=4 kv_heads=2 head_dim=64 q=f16");
    test_problem("heads=4 kv_heads=2 head_dim=64 q=f16 kv=e4m3 scales=token-head block=32");
    test_problem("heads=4 kv_heads=2 head_dim=64 q=f32 addr=dense max_kv=100");
    test_problem("heads=4 kv_heads=2 head_dim=64 q=bf16 layout=paged-x");
    test_problem("heads=4 kv_heads=1 head_dim=576/512 q=bf16 mla=1");
    return finish_checks();
}
