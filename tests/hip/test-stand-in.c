/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The HIP runtime that stands in, over the CUDA driver that does: what it says of devices in both layouts of
 * ROCm, whose code it takes, and that its streams and graphs are those beneath.
 *
 * test-stand-in STAND-IN
 */
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "stand-in-entries.h"

static const struct fake *fake;
static void *library;
static unsigned lines, failures;

/* The function of the library of that name. */
#define HIP(name) (*(__typeof__(&name) *)find(#name))

static void *find(const char *name)
{
    static void *symbol;

    symbol = dlsym(library, name);
    if (symbol == NULL) {
        printf("Bail out! %s\n", dlerror());
        exit(1);
    }
    return &symbol;
}

static void check(bool good, const char *what)
{
    printf("%sok %u - %s\n", good ? "" : "not ", ++lines, what);
    failures += !good;
    if (!good)
        printf("# offence: %s\n", fake->offence());
}

static void begin(int devices, const char *words)
{
    const struct fake_machine machine = {.devices = devices, .major = 9, .version = 13000};

    fake->reset(&machine);
    setenv("FAKE_HIP", words, 1);
}

/* ---------------------------------------------------------------- devices */

static int number(const unsigned char *at, size_t offset)
{
    int value;

    memcpy(&value, at + offset, sizeof value);
    return value;
}

static void test_devices(void)
{
    unsigned char now[1472 + 8], old[792 + 8], plain[792 + 8];
    int count = 7, value = 0;
    char name[32];

    begin(2, "arch=gfx90a:sramecc+:xnack-;gfx1100,version=60342133");
    check(HIP(hipInit)(0) == HIP_SUCCESS && HIP(hipGetDeviceCount)(&count) == HIP_SUCCESS && count == 2,
          "two devices");
    memset(now, 0x77, sizeof now);
    memset(old, 0x77, sizeof old);
    memset(plain, 0x77, sizeof plain);
    check(HIP(hipGetDevicePropertiesR0600)(now, 0) == 0 && HIP(hipGetDevicePropertiesR0000)(old, 0) == 0 &&
              HIP(hipGetDeviceProperties)(plain, 0) == 0 && memcmp(old, plain, sizeof old) == 0,
          "three functions describe one, and the plain one as the old one does");
    check(strcmp((char *)now + 1160, "gfx90a:sramecc+:xnack-") == 0 &&
              strcmp((char *)old + 396, "gfx90a:sramecc+:xnack-") == 0,
          "the architecture is at byte 1160, and at 396 of the old layout");
    check(number(now, 308) == 64 && number(old, 276) == 64 && number(now, 388) == 4 && number(old, 336) == 4,
          "so are the size of a wave and the number of units in places of their own");
    check(now[1472] == 0x77 && old[792] == 0x77 && now[1471] == 0 && old[791] == 0,
          "and no byte is written behind a structure");
    check(HIP(hipGetDevicePropertiesR0600)(now, 1) == 0 && strcmp((char *)now + 1160, "gfx1100") == 0 &&
              number(now, 308) == 32 && number(now, 360) == 11,
          "the second one is another");
    check(HIP(hipDeviceGetAttribute)(&value, 63, 0) == 0 && value == 4 &&
              HIP(hipDeviceGetAttribute)(&value, 87, 1) == 0 && value == 32 &&
              HIP(hipDeviceGetAttribute)(&value, 74, 0) == 0 && value == 65536,
          "attributes have HIP's numbers");
    check(HIP(hipDeviceGetName)(name, sizeof name, 1) == 0 && strcmp(name, "Fake GPU 1") == 0,
          "names are the driver's");
    check(HIP(hipSetDevice)(2) == HIP_INVALID_DEVICE && HIP(hipRuntimeGetVersion)(&value) == 0 &&
              value == 60342133,
          "there is no third one");
    begin(0, "");
    check(HIP(hipInit)(0) == HIP_NO_DEVICE && HIP(hipGetDeviceCount)(&count) == HIP_NO_DEVICE && count == 0,
          "no device is an error of both calls");
    begin(1, "init=101");
    check(HIP(hipInit)(0) == HIP_INVALID_DEVICE && HIP(hipGetDeviceCount)(&count) == HIP_NO_DEVICE,
          "as is that of ROCm 5");
    check(strcmp(HIP(hipGetErrorName)(HIP_NO_DEVICE), "hipErrorNoDevice") == 0 &&
              strcmp(HIP(hipGetErrorName)(12345), "hipErrorUnknown") == 0,
          "errors have names, also unknown ones");
}

static void *see_device(void *out)
{
    (void)HIP(hipGetDevice)(out);
    return NULL;
}

static void test_current(void)
{
    pthread_t thread;
    int own = 7, other = 7;
    void *first = NULL, *second = NULL;

    begin(2, "arch=gfx90a");
    check(HIP(hipInit)(0) == 0 && HIP(hipSetDevice)(1) == 0 && HIP(hipGetDevice)(&own) == 0 && own == 1,
          "a thread is on a device");
    if (pthread_create(&thread, NULL, see_device, &other) != 0)
        abort();
    pthread_join(thread, NULL);
    check(other == 0, "another one begins on the first");
    check(HIP(hipStreamCreateWithFlags)(&second, 1) == 0 && HIP(hipSetDevice)(0) == 0 &&
              HIP(hipMalloc)(&first, 64) == 0 && HIP(hipFree)(first) == 0 && *fake->offence() == '\0',
          "things are made on the current device");
    check(HIP(hipMalloc)(&first, 0) == 0 && first == NULL && HIP(hipFree)(NULL) == 0,
          "no bytes are no memory and no error");
    (void)HIP(hipStreamSynchronize)(second);
    check(*fake->offence() != '\0', "and one of another device is an offence");
}

/* ---------------------------------------------------------------- code */

static hip_result load(unsigned flags, unsigned char abi, const char *words)
{
    Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 64, abi},
                         .e_type = ET_DYN,
                         .e_machine = 224,
                         .e_flags = flags};
    const Elf64_Ehdr *image = &header;
    void *module = NULL;

    begin(1, words);
    setenv("FAKE_HIP_CUBINS", "/nonexistent", 1); /* the driver is not asked */
    (void)HIP(hipInit)(0);
    const hip_result result = HIP(hipModuleLoadData)(&module, image);
    if (result == HIP_SUCCESS)
        (void)HIP(hipModuleUnload)(module);
    unsetenv("FAKE_HIP_CUBINS");
    return result;
}

static void test_code(void)
{
    void *module = NULL;

    check(load(0x53f, 4, "arch=gfx90a:sramecc+:xnack-") == 0,
          "code for any features of gfx90a is for gfx90a");
    check(load(0x54c, 4, "arch=gfx90a:sramecc+:xnack-") == HIP_NO_BINARY_FOR_GPU, "that for gfx942 is not");
    check(load(0x63f, 4, "arch=gfx90a:sramecc+:xnack-") == 0 &&
              load(0x73f, 4, "arch=gfx90a:sramecc+:xnack-") == HIP_NO_BINARY_FOR_GPU &&
              load(0x73f, 4, "arch=gfx90a:sramecc+:xnack+") == 0,
          "code that wants xnack off or on is for devices that have it so");
    check(load(0x93f, 4, "arch=gfx90a:sramecc+:xnack-") == HIP_NO_BINARY_FOR_GPU, "and the same of sramecc");
    check(load(0x41, 4, "arch=gfx1100") == 0 && load(0x41, 4, "arch=gfx1101") == HIP_NO_BINARY_FOR_GPU &&
              load(0x41, 4, "arch=gfx803") == HIP_NO_BINARY_FOR_GPU,
          "gfx1100 is not gfx1101, nor gfx803");
    check(load(0x41, 1, "arch=gfx1100") == HIP_INVALID_IMAGE, "old code objects are no image");
    begin(1, "arch=gfx1100");
    check(HIP(hipInit)(0) == 0 &&
              HIP(hipModuleLoadData)(&module, "no image at all, of some length that is read") ==
                  HIP_INVALID_IMAGE,
          "nor is text");
}

/* ---------------------------------------------------------------- work */

static void add_one(void *arg)
{
    ++*(int *)arg;
}

static void test_work(void)
{
    void *stream = NULL, *memory = NULL, *graph = NULL, *exec = NULL, *event = NULL;
    int status = 7, called = 0;
    char text[64] = "text", back[64] = "";

    begin(1, "arch=gfx90a");
    check(HIP(hipInit)(0) == 0 && HIP(hipStreamCreateWithFlags)(&stream, 1) == 0 &&
              HIP(hipEventCreateWithFlags)(&event, 2) == 0 && HIP(hipMallocAsync)(&memory, 64, stream) == 0,
          "a stream, an event and memory");
    check(HIP(hipStreamBeginCapture)(stream, 2) == 0 && HIP(hipStreamIsCapturing)(stream, &status) == 0 &&
              status == 1 && HIP(hipMemcpyHtoDAsync)(memory, text, sizeof text, stream) == 0 &&
              HIP(hipLaunchHostFunc)(stream, add_one, &called) == 0 &&
              HIP(hipStreamEndCapture)(stream, &graph) == 0 && called == 0,
          "a capture keeps calls");
    check(HIP(hipGraphInstantiateWithFlags)(&exec, graph, 0) == 0 && HIP(hipGraphLaunch)(exec, stream) == 0 &&
              HIP(hipGraphLaunch)(exec, stream) == 0 && HIP(hipStreamSynchronize)(stream) == 0 && called == 2,
          "its launches do them");
    check(HIP(hipMemcpyDtoHAsync)(back, memory, sizeof back, stream) == 0 && strcmp(back, "text") == 0 &&
              HIP(hipEventRecord)(event, stream) == 0 && HIP(hipEventQuery)(event) == 0,
          "the bytes are there");
    check(HIP(hipModuleLaunchKernel)(stream, 1u << 25, 1, 1, 128, 1, 1, 0, stream, (void **)&exec, NULL) ==
              HIP_INVALID_CONFIGURATION,
          "2^32 threads are too many for a dimension");
    fake->fail(fake->calls() + 2, HIP_OUT_OF_MEMORY);
    check(HIP(hipStreamSynchronize)(stream) == 0 && HIP(hipEventDestroy)(event) == HIP_OUT_OF_MEMORY &&
              strcmp(fake->failed(), "hipEventDestroy") == 0,
          "a call is made to fail");
    check(HIP(hipGraphExecDestroy)(exec) == 0 && HIP(hipGraphDestroy)(graph) == 0 &&
              HIP(hipFreeAsync)(memory, stream) == 0 && HIP(hipStreamDestroy)(stream) == 0 &&
              fake->leaks(text, sizeof text) == 0 && *fake->offence() == '\0',
          "and nothing is left, for a release that fails is done all the same");
    check(fake->calls_of("hipGraphLaunch") == 2 && fake->calls_of("cuGraphLaunch") == 2,
          "calls are counted by either name");
    fake->fail(fake->calls() + 1, HIP_ILLEGAL_ADDRESS);
    check(HIP(hipMalloc)(&memory, 64) == HIP_ILLEGAL_ADDRESS &&
              HIP(hipMalloc)(&memory, 64) == HIP_ILLEGAL_ADDRESS && *fake->offence() != '\0',
          "who goes on with a device that is lost commits an offence");
}

int main(int argc, char **argv)
{
    fake_get_fn get;

    library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL)
        return 2;
    memcpy(&get, find("fake_get"), sizeof get);
    fake = get();
    test_devices();
    test_current();
    test_code();
    test_work();
    printf("1..%u\n", lines);
    return failures != 0;
}
