/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The fake driver's modules: code of AMD's GPUs goes to an emulator, and any other image holds all kernels,
 * which are host code on fibers.
 */
#include <elf.h>
#include <stdatomic.h>
#include <string.h>

#include "driver-values.h"
#include "fake-state.h"
#include "fiber-names.h"
#include "run.h"

enum { MACHINE_AMDGPU = 224 };

/* Other images may be a single byte. */
static bool is_emulated(const unsigned char *image)
{
    Elf64_Ehdr header;

    for (int i = 0; i < SELFMAG; i++)
        if (image[i] != (unsigned char)ELFMAG[i])
            return false;
    memcpy(&header, image, sizeof header);
    return header.e_machine == MACHINE_AMDGPU;
}

gpu_result fake_kernel_run(const struct fake_work *work)
{
    static atomic_uint launches;
    const struct driver_kernel *kernel = work->kernel;
    struct fiber_grid grid = work->grid;

    if (work->code != NULL)
        return fake_emulator_run(work);
    grid.order = launches++;
    fiber_launch(kernel->call, work->argument, &grid);
    return GPU_SUCCESS;
}

gpu_result cuModuleLoadData(gpu_handle *module, const void *image)
{
    gpu_result result = fake_enter("cuModuleLoadData", true);

    void *emulated = NULL;

    if (result == GPU_SUCCESS &&
        (image == NULL || (is_emulated(image) && !fake_emulator_open(image, &emulated))))
        return GPU_INVALID_IMAGE;
    if (result == GPU_SUCCESS) {
        struct fake_object *object = fake_new(FAKE_MODULE, NULL, 0);
        object->image = emulated;
        *module = object;
    }
    return result;
}

gpu_result cuModuleUnload(gpu_handle module)
{
    gpu_result result = fake_enter("cuModuleUnload", true);
    struct fake_object *object = fake_take(module, FAKE_MODULE, "cuModuleUnload");

    if (object != NULL) {
        fake_drop_functions(object);
        fake_drop(object);
    }
    return result;
}

gpu_result cuModuleGetFunction(gpu_handle *function, gpu_handle module, const char *name)
{
    gpu_result result = fake_enter("cuModuleGetFunction", true);

    if (result != GPU_SUCCESS)
        return result;
    struct fake_object *object = fake_take(module, FAKE_MODULE, "cuModuleGetFunction");
    if (object == NULL)
        return 500;
    const struct driver_kernel *kernel = object->image == NULL ? driver_find(name) : NULL;
    const void *code = object->image != NULL ? fake_emulator_find(object->image, name) : NULL;
    if (kernel == NULL && code == NULL)
        return 500;
    *function = fake_new_function(kernel, code, object);
    return GPU_SUCCESS;
}

gpu_result cuFuncGetAttribute(int *value, int attribute, gpu_handle function)
{
    const gpu_result result = fake_enter("cuFuncGetAttribute", true);

    if (result != GPU_SUCCESS)
        return result;
    const struct fake_object *object = fake_take(function, FAKE_FUNCTION, "cuFuncGetAttribute");
    if (object == NULL)
        return GPU_INVALID_VALUE;
    const struct driver_kernel *kernel = object->kernel;
    *value = attribute == FUNCTION_MAX_THREADS && kernel != NULL ? (int)kernel->threads : 0;
    return GPU_SUCCESS;
}

gpu_result cuFuncSetAttribute(gpu_handle function, int attribute, int value)
{
    (void)attribute, (void)value, (void)function;
    return fake_enter("cuFuncSetAttribute", true);
}

/* What the driver accepts of a map of 16-bit elements, as far as this plugin asks for it. */
static bool is_map(unsigned rank, const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                   const uint32_t *steps, const void *base)
{
    bool good = rank == 4 && (uintptr_t)base % 16 == 0 && box[0] * 2 <= 128 && box[0] * 2 % 16 == 0;

    for (uint32_t i = 0; good && i < 4; i++) {
        good = dims[i] > 0 && dims[i] <= UINT64_C(1) << 32 && box[i] > 0 && box[i] <= 256 && steps[i] == 1;
        if (i > 0)
            good =
                good && strides[i - 1] % 16 == 0 && strides[i - 1] > 0 && strides[i - 1] < UINT64_C(1) << 40;
    }
    return good;
}

gpu_result cuTensorMapEncodeTiled(struct gpu_tensor_map *map, int type, unsigned rank, void *base,
                                  const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                                  const uint32_t *element_strides, int interleave, int swizzle, int promotion,
                                  int fill)
{
    const gpu_result result = fake_enter("cuTensorMapEncodeTiled", false);
    struct fiber_map own = {.base = (uintptr_t)base};

    if (result != GPU_SUCCESS)
        return result;
    if (type != MAP_UINT16 || interleave != MAP_NO_INTERLEAVE || swizzle != MAP_SWIZZLE_128 ||
        promotion != MAP_PROMOTE_256 || fill != MAP_FILL_ZEROS || (uintptr_t)map % 64 != 0 ||
        !is_map(rank, dims, strides, box, element_strides, base)) {
        fake_offend("a tensor map is asked for that the driver does not make");
        return GPU_INVALID_VALUE;
    }
    for (uint32_t i = 0; i < 4; i++) {
        own.dims[i] = (uint32_t)dims[i];
        own.box[i] = box[i];
        if (i > 0)
            own.strides[i - 1] = strides[i - 1];
    }
    memset(map, 0, sizeof *map);
    memcpy(map, &own, sizeof own);
    return GPU_SUCCESS;
}

gpu_result cuFuncLoad(gpu_handle function)
{
    (void)function;
    return fake_enter("cuFuncLoad", true);
}

gpu_result cuLaunchKernel(gpu_handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                          gpu_handle stream, void **arguments, void **extra)
{
    gpu_result result = fake_enter("cuLaunchKernel", true);
    struct fake_work work = {.what = FAKE_LAUNCH, .grid = {grid_x, grid_y, grid_z, block_x, shared_bytes, 0}};

    (void)extra;
    if (result != GPU_SUCCESS)
        return result;
    const struct fake_object *object = fake_take(function, FAKE_FUNCTION, "cuLaunchKernel");
    if (object == NULL)
        return GPU_INVALID_VALUE;
    const struct driver_kernel *kernel = object->kernel;
    const size_t size = kernel != NULL ? kernel->size : fake_emulator_argument(object->code);
    if (grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x == 0 || block_y * block_z != 1 ||
        size > sizeof work.argument)
        fake_offend("%s is launched with a shape that is none", kernel != NULL ? kernel->name : "a kernel");
    work.kernel = kernel;
    work.code = object->code;
    memcpy(work.argument, arguments[0], size);
    return fake_submit("cuLaunchKernel", stream, &work);
}
