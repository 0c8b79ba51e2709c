/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The devices of the HIP runtime that stands in: what they say they are, and the one that a thread is on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stand-in-entries.h"
#include "stand-in.h"

enum { ATTRIBUTE_UNITS = 16 }; /* CUDA's */
enum { RUNTIME_VERSION = 60240000, NAME_BYTES = 256 };

_Thread_local int stand_device;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *contexts[STAND_DEVICES];
static int devices;

int stand_count(void)
{
    pthread_mutex_lock(&lock);
    const int count = devices;
    pthread_mutex_unlock(&lock);
    return count;
}

int stand_context(int device, void **out)
{
    int cuda = 0;

    pthread_mutex_lock(&lock);
    if (contexts[device] == NULL)
        cuda = stand_driver.cuDevicePrimaryCtxRetain(&contexts[device], device);
    if (cuda != 0)
        contexts[device] = NULL;
    *out = contexts[device];
    pthread_mutex_unlock(&lock);
    return cuda;
}

void stand_release_contexts(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < STAND_DEVICES; i++) {
        if (contexts[i] != NULL)
            (void)stand_driver.cuDevicePrimaryCtxRelease(i);
        contexts[i] = NULL;
    }
    pthread_mutex_unlock(&lock);
}

void stand_arch(int device, char *out, size_t size)
{
    const char *at = stand_word("arch=");

    for (int i = 0; at != NULL && i < device; i++) {
        const char *next = at + strcspn(at, ";,");
        if (*next != ';')
            break; /* the last one is that of all that follow */
        at = next + 1;
    }
    snprintf(out, size, "%.*s", at != NULL ? (int)strcspn(at, ";,") : 6, at != NULL ? at : "gfx90a");
}

/* ---------------------------------------------------------------- the runtime */

hip_result hipInit(unsigned flags)
{
    const char *said = stand_word("init=");
    int count = 0;

    (void)flags;
    hip_result result = said != NULL ? atoi(said) : HIP_SUCCESS;
    if (result == HIP_SUCCESS)
        result = stand_open() ? stand_count_call("hipInit") : HIP_NO_DEVICE;
    if (result == HIP_SUCCESS)
        result = stand_result(stand_driver.cuInit(0));
    if (result == HIP_SUCCESS)
        result = stand_result(stand_driver.cuDeviceGetCount(&count));
    if (result != HIP_SUCCESS)
        count = 0;
    pthread_mutex_lock(&lock);
    devices = count < STAND_DEVICES ? count : STAND_DEVICES;
    pthread_mutex_unlock(&lock);
    return result == HIP_SUCCESS && count == 0 ? HIP_NO_DEVICE : result;
}

static hip_result version(const char *name, int *out)
{
    const char *said = stand_word("version=");
    hip_result result = stand_count_call(name);

    *out = said != NULL ? atoi(said) : RUNTIME_VERSION;
    return result;
}

hip_result hipRuntimeGetVersion(int *out)
{
    return version("hipRuntimeGetVersion", out);
}

hip_result hipDriverGetVersion(int *out)
{
    return version("hipDriverGetVersion", out);
}

hip_result hipGetDeviceCount(int *count)
{
    *count = 0;
    hip_result result = stand_enter_bare("hipGetDeviceCount");
    if (result == HIP_SUCCESS)
        *count = stand_count();
    return result;
}

static hip_result check_device(const char *name, int device)
{
    const hip_result result = stand_enter_bare(name);

    if (result != HIP_SUCCESS)
        return result;
    return device < 0 || device >= stand_count() ? HIP_INVALID_DEVICE : HIP_SUCCESS;
}

hip_result hipDeviceGet(int *device, int ordinal)
{
    const hip_result result = check_device("hipDeviceGet", ordinal);

    if (result == HIP_SUCCESS)
        *device = ordinal;
    return result;
}

hip_result hipSetDevice(int device)
{
    const hip_result result = check_device("hipSetDevice", device);

    if (result == HIP_SUCCESS)
        stand_device = device;
    return result;
}

hip_result hipGetDevice(int *device)
{
    const hip_result result = stand_enter_bare("hipGetDevice");

    if (result == HIP_SUCCESS)
        *device = stand_device;
    return result;
}

/* ---------------------------------------------------------------- what a device is like */

struct facts {
    char arch[NAME_BYTES], name[NAME_BYTES];
    size_t bytes;
    int units, wave, major, minor;
};

static hip_result read_facts(int device, struct facts *out)
{
    unsigned number = 0;

    memset(out, 0, sizeof *out);
    stand_arch(device, out->arch, sizeof out->arch);
    if (sscanf(out->arch, "gfx%x", &number) == 1) {
        const int family = (int)(number >> 8); /* digits that are decimal ones beyond 9 */
        out->major = family < 16 ? family : family - 6;
        out->minor = (int)(number >> 4 & 15);
    }
    out->wave = out->major < 10 ? 64 : 32;
    int cuda = stand_driver.cuDeviceGetName(out->name, sizeof out->name, device);
    if (cuda == 0)
        cuda = stand_driver.cuDeviceTotalMem(&out->bytes, device);
    if (cuda == 0)
        cuda = stand_driver.cuDeviceGetAttribute(&out->units, ATTRIBUTE_UNITS, device);
    return stand_result(cuda);
}

static int shared_bytes(const struct facts *facts)
{
    return strncmp(facts->arch, "gfx950", 6) == 0 ? 160 << 10 : 64 << 10;
}

hip_result hipDeviceGetName(char *name, int size, int device)
{
    struct facts facts;
    hip_result result = check_device("hipDeviceGetName", device);

    if (result == HIP_SUCCESS)
        result = read_facts(device, &facts);
    if (result == HIP_SUCCESS)
        snprintf(name, (size_t)size, "%s", facts.name);
    return result;
}

hip_result hipDeviceTotalMem(size_t *bytes, int device)
{
    struct facts facts;
    hip_result result = check_device("hipDeviceTotalMem", device);

    if (result == HIP_SUCCESS)
        result = read_facts(device, &facts);
    if (result == HIP_SUCCESS)
        *bytes = facts.bytes;
    return result;
}

hip_result hipDeviceGetAttribute(int *value, int attribute, int device)
{
    struct facts facts;
    hip_result result = check_device("hipDeviceGetAttribute", device);

    if (result == HIP_SUCCESS)
        result = read_facts(device, &facts);
    if (result != HIP_SUCCESS)
        return result;
    switch (attribute) {
    case 23:
        *value = facts.major;
        return HIP_SUCCESS;
    case 61:
        *value = facts.minor;
        return HIP_SUCCESS;
    case 63:
        *value = facts.units;
        return HIP_SUCCESS;
    case 74:
        *value = shared_bytes(&facts);
        return HIP_SUCCESS;
    case 87:
        *value = facts.wave;
        return HIP_SUCCESS;
    default:
        return HIP_INVALID_VALUE;
    }
}

/* Where the fields of hipDeviceProp_t are, in its two layouts. */
struct layout {
    size_t size, bytes, shared, wave, major, minor, units, arch;
};

static hip_result properties(const char *name, void *out, int device, const struct layout *layout)
{
    struct facts facts;
    unsigned char *to = out;
    hip_result result = check_device(name, device);

    if (result == HIP_SUCCESS)
        result = read_facts(device, &facts);
    if (result != HIP_SUCCESS)
        return result;
    const size_t shared = (size_t)shared_bytes(&facts);
    memset(to, 0, layout->size);
    memcpy(to, facts.name, NAME_BYTES);
    memcpy(to + layout->bytes, &facts.bytes, sizeof facts.bytes);
    memcpy(to + layout->shared, &shared, sizeof shared);
    memcpy(to + layout->wave, &facts.wave, sizeof facts.wave);
    memcpy(to + layout->major, &facts.major, sizeof facts.major);
    memcpy(to + layout->minor, &facts.minor, sizeof facts.minor);
    memcpy(to + layout->units, &facts.units, sizeof facts.units);
    memcpy(to + layout->arch, facts.arch, NAME_BYTES);
    return HIP_SUCCESS;
}

static const struct layout old_layout = {792, 256, 264, 276, 328, 332, 336, 396};
static const struct layout new_layout = {1472, 288, 296, 308, 360, 364, 388, 1160};

hip_result hipGetDevicePropertiesR0600(void *out, int device)
{
    return properties("hipGetDevicePropertiesR0600", out, device, &new_layout);
}

hip_result hipGetDevicePropertiesR0000(void *out, int device)
{
    return properties("hipGetDevicePropertiesR0000", out, device, &old_layout);
}

/* By its plain name a runtime of any age has the old one. */
hip_result hipGetDeviceProperties(void *out, int device)
{
    return properties("hipGetDeviceProperties", out, device, &old_layout);
}
