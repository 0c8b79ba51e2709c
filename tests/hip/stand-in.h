/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A HIP runtime for tests: a library of the functions of libamdhip64 that the plugin uses, over the CUDA
 * driver interface of the library that the variable FAKE_HIP_DRIVER names (libcuda.so.1 without it): the
 * driver of an NVIDIA GPU, or that of tests/cuda, which runs AMD code by emulation.
 *
 * FAKE_HIP is a list of words: arch=NAME[;NAME...] is what the devices say they are, in turn (gfx90a, with
 * features as in gfx90a:sramecc+:xnack-); version=N is the runtime's; init=N is what hipInit answers;
 * any-image takes images that are no code for the device. FAKE_HIP_CUBINS is a folder of cubins that hold the
 * kernels, for a driver that cannot take AMD's images.
 *
 * Results of CUDA and HIP have the same numbers, but for those that HIP does not have.
 */
#ifndef STAND_IN_H
#define STAND_IN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HIP_API       __attribute__((visibility("default")))
#define STAND_DEVICES 8

typedef int hip_result;

enum {
    HIP_SUCCESS = 0,
    HIP_INVALID_VALUE = 1,
    HIP_OUT_OF_MEMORY = 2,
    HIP_NOT_INITIALIZED = 3,
    HIP_INVALID_CONFIGURATION = 9,
    HIP_NO_DEVICE = 100,
    HIP_INVALID_DEVICE = 101,
    HIP_INVALID_IMAGE = 200,
    HIP_NO_BINARY_FOR_GPU = 209,
    HIP_INVALID_HANDLE = 400,
    HIP_NOT_FOUND = 500,
    HIP_ILLEGAL_ADDRESS = 700,
    HIP_LAUNCH_FAILURE = 719,
    HIP_NOT_SUPPORTED = 801,
    HIP_UNKNOWN = 999
};

/* The driver beneath. */
struct stand_driver {
#define STAND_ENTRY(name, symbol, optional, parameters) int(*name) parameters;
#include "stand-in-driver.def"
#undef STAND_ENTRY
};
extern struct stand_driver stand_driver;

/* ---------------------------------------------------------------- stand-in-driver.c */

/* The library beneath, or NULL; and its functions, which one that stands before another has late. */
void *stand_library(void);
bool stand_open(void);
/* HIP's number of a result of CUDA. */
hip_result stand_result(int cuda);
/* What FAKE_HIP says: the text behind a word, or NULL. */
const char *stand_word(const char *word);

/*
 * A call of the runtime: counted, made to fail if that is its turn, and under the context of the thread's
 * current device. HIP_SUCCESS: it is to be done, and stand_leave ends it.
 */
hip_result stand_enter(const char *name);
hip_result stand_leave(int cuda);
/*
 * The same for a call that lets go of something: what is made to fail is done all the same, as by a driver
 * that tells of an earlier error. stand_leave_release answers the failure.
 */
hip_result stand_enter_release(const char *name, hip_result *out_failed);
hip_result stand_leave_release(int cuda, hip_result failed);
/* For calls that need no context. */
hip_result stand_enter_bare(const char *name);

/* ---------------------------------------------------------------- stand-in-device.c */

/* This thread's current device. */
extern _Thread_local int stand_device;
/* How many there are; 0 before hipInit. */
int stand_count(void);
/* What a device says it is. */
void stand_arch(int device, char *out, size_t size);
/* The device's primary context, retained when it is first asked for. */
int stand_context(int device, void **out);
/* Releases all of them: who asks what is left is not told of the runtime's own. */
void stand_release_contexts(void);

/* ---------------------------------------------------------------- stand-in-control.c */

/* Counts a call; what it is to return. */
hip_result stand_count_call(const char *name);
/* After a failure that is sticky a device answers nothing else, and whoever asks it commits an offence. */
void stand_lose(int device, hip_result result);
hip_result stand_lost(int device, const char *name);

/* ---------------------------------------------------------------- stand-in-work.c */

/* Waits for all streams that are not captured: who is told of a failure waits for nothing more. */
void stand_drain(void);
void stand_forget_streams(void);

/* ---------------------------------------------------------------- stand-in-image.c */

/* Whether an image is code for a device: HIP_SUCCESS, or what the runtime would say. */
hip_result stand_image_check(const void *image, int device);

#endif
