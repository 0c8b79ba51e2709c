/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Modules of the HIP runtime that stands in. Over a driver that takes AMD's images each is one of its
 * modules; over a real one of CUDA a module is the cubins of a folder that have the kernels which it is asked
 * for.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stand-in-entries.h"

enum { CUBINS = 32, FUNCTION_SHARED = 1, FUNCTION_MAX_DYNAMIC_SHARED = 8, DEVICE_SHARED_OPTIN = 97 };

struct module {
    struct module *next;
    void *image; /* the driver's module of the image; NULL with a folder of cubins */
    void *cubins[CUBINS];
    int count;
    pthread_mutex_t lock; /* of the cubins */
};

/* Those that are loaded, which a runtime knows until its end, whoever forgets them on a device that is lost.
 */
static struct module *modules;
static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep(struct module *module)
{
    pthread_mutex_lock(&modules_lock);
    module->next = modules;
    modules = module;
    pthread_mutex_unlock(&modules_lock);
}

static void forget(struct module *module)
{
    pthread_mutex_lock(&modules_lock);
    for (struct module **link = &modules; *link != NULL; link = &(*link)->next) {
        if (*link == module) {
            *link = module->next;
            break;
        }
    }
    pthread_mutex_unlock(&modules_lock);
    free(module);
}

hip_result hipModuleLoadData(void **out, const void *image)
{
    hip_result result = stand_enter("hipModuleLoadData");
    int cuda = 0;

    *out = NULL;
    if (result != HIP_SUCCESS)
        return result;
    result = stand_image_check(image, stand_device);
    struct module *module = calloc(1, sizeof *module);
    if (module == NULL)
        result = HIP_OUT_OF_MEMORY;
    else
        pthread_mutex_init(&module->lock, NULL);
    if (result == HIP_SUCCESS && getenv("FAKE_HIP_CUBINS") == NULL)
        cuda = stand_driver.cuModuleLoadData(&module->image, image);
    if (result == HIP_SUCCESS && cuda == 0) {
        keep(module);
        *out = module;
    } else {
        free(module);
    }
    const hip_result left = stand_leave(cuda);
    return result != HIP_SUCCESS ? result : left;
}

hip_result hipModuleUnload(void *handle)
{
    struct module *module = handle;
    hip_result failed;
    const hip_result result = stand_enter_release("hipModuleUnload", &failed);

    if (result != HIP_SUCCESS)
        return result;
    int cuda = module->image != NULL ? stand_driver.cuModuleUnload(module->image) : 0;
    while (module->count > 0 && cuda == 0)
        cuda = stand_driver.cuModuleUnload(module->cubins[--module->count]);
    forget(module);
    return stand_leave_release(cuda, failed);
}

/* The whole of a file, or NULL. */
static char *read_file(const char *path, size_t *out_size)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long size = 0;

    if (file != NULL && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) > 0 &&
        (text = malloc((size_t)size)) != NULL) {
        rewind(file);
        if (fread(text, 1, (size_t)size, file) != (size_t)size) {
            free(text);
            text = NULL;
        }
    }
    if (file != NULL)
        (void)fclose(file);
    *out_size = (size_t)size;
    return text;
}

/* Loads a file if it has the kernel; whether it does. */
static bool try_cubin(struct module *module, const char *path, const char *name, void **out)
{
    size_t size;
    char *text = read_file(path, &size);
    bool found = text != NULL && module->count < CUBINS && memmem(text, size, name, strlen(name) + 1) != NULL;

    if (found && stand_driver.cuModuleLoadData(&module->cubins[module->count], text) == 0) {
        found = stand_driver.cuModuleGetFunction(out, module->cubins[module->count], name) == 0;
        if (found)
            module->count++;
        else
            (void)stand_driver.cuModuleUnload(module->cubins[module->count]);
    } else {
        found = false;
    }
    free(text);
    return found;
}

/* HIP has no limit below that of the device which has to be lifted first. */
static int allow_shared(void *function)
{
    int most = 0, own = 0;
    int cuda = stand_driver.cuDeviceGetAttribute(&most, DEVICE_SHARED_OPTIN, stand_device);

    if (cuda == 0)
        cuda = stand_driver.cuFuncGetAttribute(&own, FUNCTION_SHARED, function);
    if (cuda == 0 && most > own)
        cuda = stand_driver.cuFuncSetAttribute(function, FUNCTION_MAX_DYNAMIC_SHARED, most - own);
    return cuda;
}

/* CUDA's number for what was not found. */
static int find_cubin(struct module *module, const char *folder, const char *name, void **out)
{
    bool found = false;

    pthread_mutex_lock(&module->lock);
    for (int i = 0; i < module->count && !found; i++)
        found = stand_driver.cuModuleGetFunction(out, module->cubins[i], name) == 0;
    DIR *dir = found ? NULL : opendir(folder);
    for (struct dirent *entry; dir != NULL && !found && (entry = readdir(dir)) != NULL;) {
        char path[PATH_MAX];
        const char *end = strrchr(entry->d_name, '.');
        if (end == NULL || (strcmp(end, ".cubin") != 0 && strcmp(end, ".fatbin") != 0))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        found = try_cubin(module, path, name, out);
    }
    if (dir != NULL)
        (void)closedir(dir);
    pthread_mutex_unlock(&module->lock);
    return found ? allow_shared(*out) : HIP_NOT_FOUND;
}

hip_result hipModuleGetFunction(void **out, void *handle, const char *name)
{
    struct module *module = handle;
    const hip_result result = stand_enter("hipModuleGetFunction");

    *out = NULL;
    if (result != HIP_SUCCESS)
        return result;
    return stand_leave(module->image != NULL ? stand_driver.cuModuleGetFunction(out, module->image, name)
                                             : find_cubin(module, getenv("FAKE_HIP_CUBINS"), name, out));
}

hip_result hipFuncGetAttribute(int *value, int attribute, void *function)
{
    const hip_result result = stand_enter("hipFuncGetAttribute");

    return result != HIP_SUCCESS ? result
                                 : stand_leave(stand_driver.cuFuncGetAttribute(value, attribute, function));
}

/* Threads of a dimension are counted in 32 bits there. */
static bool is_too_large(unsigned grid, unsigned block)
{
    return (uint64_t)grid * block > UINT32_MAX;
}

hip_result hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                 void *stream, void **arguments, void **extra)
{
    if (is_too_large(grid_x, block_x) || is_too_large(grid_y, block_y) || is_too_large(grid_z, block_z))
        return HIP_INVALID_CONFIGURATION;
    if ((arguments == NULL) == (extra == NULL))
        return HIP_INVALID_VALUE;
    const hip_result result = stand_enter("hipModuleLaunchKernel");
    if (result != HIP_SUCCESS)
        return result;
    return stand_leave(stand_driver.cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y,
                                                   block_z, shared_bytes, stream, arguments, extra));
}
