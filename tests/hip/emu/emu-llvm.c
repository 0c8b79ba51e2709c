/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* LLVM's disassembler through its C interface, found at run time: no header of it is needed to build. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "emu-image.h"

typedef void (*init_fn)(void);
typedef void *(*create_fn)(const char *triple, const char *cpu, const char *features, void *info, int tag,
                           void *operand_info, void *symbol_lookup);
typedef size_t (*read_fn)(void *context, uint8_t *bytes, uint64_t size, uint64_t pc, char *text,
                          size_t text_size);
typedef void (*dispose_fn)(void *context);

static struct {
    create_fn create;
    read_fn read;
    dispose_fn dispose;
    char why[256];
} llvm;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL)
        snprintf(llvm.why, sizeof llvm.why, "the LLVM library has no %s", name);
    return found;
}

/* The library stays loaded: it registers itself with the C++ run time. */
static void load(void)
{
    static const char *const inits[] = {"LLVMInitializeAMDGPUTargetInfo", "LLVMInitializeAMDGPUTargetMC",
                                        "LLVMInitializeAMDGPUDisassembler"};
    const char *path = getenv("EMU_LLVM");
    void *library = dlopen(path != NULL ? path : EMU_LLVM_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *error = dlerror();
        snprintf(llvm.why, sizeof llvm.why, "no LLVM library to disassemble with (EMU_LLVM): %s", error);
        return;
    }
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) {
        init_fn init = (init_fn)(uintptr_t)symbol(library, inits[i]);
        if (init == NULL)
            return;
        init();
    }
    llvm.create = (create_fn)(uintptr_t)symbol(library, "LLVMCreateDisasmCPUFeatures");
    llvm.read = (read_fn)(uintptr_t)symbol(library, "LLVMDisasmInstruction");
    llvm.dispose = (dispose_fn)(uintptr_t)symbol(library, "LLVMDisasmDispose");
}

struct disassembler *disassembler_open(const char *arch, bool wave64, char *why, size_t why_size)
{
    pthread_once(&once, load);
    if (llvm.why[0] != '\0') {
        snprintf(why, why_size, "%s", llvm.why);
        return NULL;
    }
    void *d = llvm.create("amdgcn-amd-amdhsa", arch, wave64 ? "+wavefrontsize64" : "", NULL, 0, NULL, NULL);
    if (d == NULL)
        snprintf(why, why_size, "the LLVM library does not know %s", arch);
    return d;
}

void disassembler_close(struct disassembler *d)
{
    llvm.dispose(d);
}

size_t disassembler_read(struct disassembler *d, const uint8_t *code, size_t size, uint64_t pc, char *text,
                         size_t text_size)
{
    return llvm.read(d, (uint8_t *)(uintptr_t)code, size, pc, text, text_size);
}
