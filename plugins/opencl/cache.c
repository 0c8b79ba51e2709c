/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Built programs on disk, one file each in ATTN_CACHE_DIR; without that option nothing is kept. A file's name
 * is the hash of all that its contents depend on; in the file the binary follows its size and hash, so that a
 * torn or damaged one is not given to a driver.
 */
#include <unistd.h>

#include "opencl.h"

struct header {
    uint64_t size, hash;
};

/* FNV-1a. */
static uint64_t add(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static const uint64_t start = UINT64_C(0xcbf29ce484222325);

static uint64_t add_info(const struct attn_instance *instance, const struct opencl_device *device,
                         cl_device_info what, uint64_t hash)
{
    char text[256] = "";

    instance->cl.clGetDeviceInfo(device->device, what, sizeof text - 1, text, NULL);
    return add(hash, text, sizeof text);
}

bool opencl_cache_name(const struct attn_instance *instance, const struct opencl_device *device,
                       const char *options, char *out, size_t size)
{
    const char *directory = NULL;
    uint64_t hash = add(start, options, strlen(options) + 1);
    char text[256] = "";

    if (instance->host.get_option != NULL)
        directory = instance->host.get_option(instance->host.ctx, "ATTN_CACHE_DIR");
    if (directory == NULL || *directory == '\0')
        return false;
    for (uint32_t i = 0; i < opencl_source_count; i++)
        hash = add(hash, opencl_sources[i], strlen(opencl_sources[i]));
    hash = add_info(instance, device, CL_DEVICE_NAME, hash);
    hash = add_info(instance, device, CL_DEVICE_VENDOR, hash);
    hash = add_info(instance, device, CL_DEVICE_VERSION, hash);
    hash = add_info(instance, device, CL_DRIVER_VERSION, hash);
    instance->cl.clGetPlatformInfo(device->platform, CL_PLATFORM_VERSION, sizeof text - 1, text, NULL);
    hash = add(hash, text, sizeof text);
    const int length = snprintf(out, size, "%s/opencl-%016llx.bin", directory, (unsigned long long)hash);
    return length > 0 && (size_t)length < size;
}

/* The binary in a file, or NULL. */
static unsigned char *read_file(const char *name, size_t *out_size)
{
    FILE *file = fopen(name, "rbe");
    unsigned char *bytes = NULL;
    struct header header;

    if (file == NULL)
        return NULL;
    if (fread(&header, sizeof header, 1, file) == 1 && header.size > 0 && header.size < (uint64_t)1 << 30)
        bytes = malloc((size_t)header.size);
    if (bytes != NULL && (fread(bytes, 1, (size_t)header.size, file) != header.size ||
                          add(start, bytes, (size_t)header.size) != header.hash)) {
        free(bytes);
        bytes = NULL;
    }
    fclose(file);
    *out_size = bytes != NULL ? (size_t)header.size : 0;
    return bytes;
}

cl_program opencl_cache_load(const struct attn_backend_impl *backend, const char *name)
{
    size_t size = 0;
    unsigned char *bytes = read_file(name, &size);
    const unsigned char *binary = bytes;
    cl_int state = CL_SUCCESS, result = CL_SUCCESS;
    cl_program program;

    if (bytes == NULL)
        return NULL;
    program = backend->cl->clCreateProgramWithBinary(backend->context, 1, &backend->device->device, &size,
                                                     &binary, &state, &result);
    free(bytes);
    return result == CL_SUCCESS && state == CL_SUCCESS ? program : NULL;
}

/* Writes under another name first: others never see a part of a file. */
static void write_file(const char *name, const unsigned char *bytes, size_t size)
{
    const struct header header = {size, add(start, bytes, size)};
    char other[600];
    FILE *file;

    snprintf(other, sizeof other, "%s.%ld", name, (long)getpid());
    file = fopen(other, "wbxe");
    if (file == NULL)
        return;
    const bool written = fwrite(&header, sizeof header, 1, file) == 1 && fwrite(bytes, 1, size, file) == size;
    if ((fclose(file) != 0) | !written || rename(other, name) != 0)
        unlink(other);
}

void opencl_cache_store(const struct attn_backend_impl *backend, const char *name, cl_program program)
{
    size_t size = 0;
    unsigned char *bytes;

    if (backend->cl->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) !=
            CL_SUCCESS ||
        size == 0 || (bytes = malloc(size)) == NULL)
        return;
    if (backend->cl->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL) == CL_SUCCESS)
        write_file(name, bytes, size);
    free(bytes);
}
