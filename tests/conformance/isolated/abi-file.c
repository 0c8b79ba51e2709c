/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the file exports, needs, and asks of the dynamic linker. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "abi.h"
#include "image.h"

/* The entry, also of another major; and what linkers and sanitizers export by themselves. */
static bool may_export(const char *name)
{
    static const char *const linker[] = {"_init", "_fini", "_edata", "_end", "__bss_start"};
    static const char prefix[] = "attn_plugin_entry_v";

    for (size_t i = 0; i < sizeof linker / sizeof linker[0]; i++)
        if (strcmp(name, linker[i]) == 0)
            return true;
    if (strncmp(name, prefix, strlen(prefix)) == 0)
        return isdigit((unsigned char)name[strlen(prefix)]) != 0;
    return name[0] == '\0' || strncmp(name, "__odr_asan", strlen("__odr_asan")) == 0;
}

static void judge_exports(struct isolated *isolated, const struct image *image)
{
    struct image_symbol symbol;
    bool found = false;

    for (uint32_t i = 0; image_get_symbol(image, i, &symbol); i++) {
        found |= symbol.defined && strcmp(symbol.name, ATTN_PLUGIN_ENTRY_SYMBOL) == 0;
        if (symbol.defined && symbol.unique)
            isolated_fail(isolated, "unique symbols",
                          "ATTN_P19: %s is STB_GNU_UNIQUE: build with -fno-gnu-unique", symbol.name);
        if (symbol.defined && !may_export(symbol.name))
            isolated_fail(isolated, "exports", "ATTN_P3: exports %s; only %s is wanted", symbol.name,
                          ATTN_PLUGIN_ENTRY_SYMBOL);
    }
    isolated_judge(isolated, "exports", found ? "" : "ATTN_P3: does not export " ATTN_PLUGIN_ENTRY_SYMBOL);
    isolated_pass(isolated, "unique symbols");
}

/* Drivers are opened by name where devices are asked for: elsewhere they may be absent. */
static void judge_libraries(struct isolated *isolated, const struct image *image)
{
    static const char *const unwanted[] = {"libattn.so",          "libcuda.so",   "libamdhip64.so",
                                           "libhsa-runtime64.so", "libOpenCL.so", "libze_loader.so"};

    for (uint32_t i = 0; i < image->needed_count; i++) {
        for (size_t n = 0; n < sizeof unwanted / sizeof unwanted[0]; n++)
            if (strncmp(image->needed[i], unwanted[n], strlen(unwanted[n])) == 0)
                isolated_fail(isolated, "libraries", "ATTN_P20: needs %s", image->needed[i]);
    }
    if (strncmp(image->soname, unwanted[0], strlen(unwanted[0])) == 0)
        isolated_fail(isolated, "libraries", "ATTN_P20: its SONAME is %s", image->soname);
    isolated_pass(isolated, "libraries");
}

void judge_file(struct isolated *isolated, const char *plugin)
{
    struct image image;
    char why[512];

    isolated_stage(isolated, "reading the file");
    if (!image_open(&image, plugin, why, sizeof why)) {
        isolated_fail(isolated, "file", "%s", why);
        return;
    }
    judge_exports(isolated, &image);
    judge_libraries(isolated, &image);
    isolated_judge(isolated, "static TLS",
                   image.static_tls ? "ATTN_P19: static thread-local storage (DF_STATIC_TLS) may run out"
                                    : "");
    isolated_judge(isolated, "text relocations",
                   image.text_relocations ? "ATTN_P19: code is relocated (DT_TEXTREL): build with -fPIC"
                                          : "");
    isolated_judge(isolated, "stack",
                   image.executable_stack ? "ATTN_P19: PT_GNU_STACK is missing or executable" : "");
    const char *open = image_find_open_binding(&image);
    if (open != NULL)
        isolated_fail(
            isolated, "own symbols",
            "ATTN_P19: %s is looked up by name and may be another library's: link with -Bsymbolic or "
            "hide it",
            open);
    isolated_pass(isolated, "own symbols");
    image_close(&image);
}
