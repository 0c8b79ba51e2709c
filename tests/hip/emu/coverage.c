/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Decodes code objects whole and lists the instructions that the emulator does not model; none may be left.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu.h"

struct tally {
    const char *file;
    unsigned long all, missing;
    bool verbose;
};

static void count(void *context, uint64_t pc, const char *text, bool modelled)
{
    struct tally *t = context;
    t->all++;
    t->missing += !modelled;
    if (!modelled && (t->verbose || t->missing <= 20))
        printf("# %s, pc %#llx: %s\n", t->file, (unsigned long long)pc, text);
}

static void *read_file(const char *name)
{
    char *bytes = NULL;
    size_t size = 0;
    FILE *file = fopen(name, "rb");
    FILE *to = open_memstream(&bytes, &size);
    char part[4096];
    size_t n;
    if (file == NULL || to == NULL) {
        perror(name);
        exit(2);
    }
    while ((n = fread(part, 1, sizeof part, file)) > 0)
        fwrite(part, 1, n, to);
    fclose(file);
    fclose(to);
    return bytes;
}

static bool cover(const char *name, bool verbose)
{
    char why[256] = "";
    struct emu_image *image;
    void *bytes = read_file(name);
    const char *slash = strrchr(name, '/');
    struct tally t = {.file = slash != NULL ? slash + 1 : name, .verbose = verbose};
    bool good = emu_image_open(bytes, &image, why, sizeof why);
    for (size_t i = 0; good && i < emu_kernel_count(image); i++)
        good = emu_kernel_list(emu_kernel_at(image, i), count, &t, why, sizeof why);
    if (!good)
        printf("# %s: %s\n", t.file, why);
    printf("# %s: %lu instructions, %lu not modelled\n", t.file, t.all, t.missing);
    emu_image_close(image);
    free(bytes);
    return good && t.missing == 0 && t.all > 0;
}

int main(int argc, char **argv)
{
    int failures = 0;
    bool verbose = getenv("EMU_ALL") != NULL;
    for (int i = 1; i < argc; i++) {
        bool good = cover(argv[i], verbose);
        printf("%s %d - every instruction of %s is modelled\n", good ? "ok" : "not ok", i, argv[i]);
        failures += !good;
    }
    printf("1..%d\n", argc - 1);
    return failures != 0;
}
