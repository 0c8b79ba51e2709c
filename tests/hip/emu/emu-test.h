/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What tests of the emulator share: TAP, images from files, memory with known ends. */
#ifndef EMU_TEST_H
#define EMU_TEST_H

#include "emu.h"

__attribute__((format(printf, 2, 3))) bool check(bool good, const char *format, ...);
int checks_end(void);

/* Ends the test where the file is no image. */
struct emu_image *image_of(const char *file);

/* Memory whose range a launch may touch; zeroed, never freed before the end. */
#define TEST_RANGES 8
struct memory {
    struct emu_range ranges[TEST_RANGES];
    size_t count;
};
void *memory_take(struct memory *m, size_t bytes, bool writable);
void memory_drop(struct memory *m);

#endif
