/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Names of wanted and disabled backends, before anything is loaded. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "select/select.h"
#include "world.h"

static uint32_t reason_of(const char *variables, const char *wanted, const char *name)
{
    struct world world;
    world_open(&world, "", variables);
    uint32_t reason = 99;
    const bool admitted = attn__wanted_backend(world.context, wanted, name, &reason);
    cr_assert_eq(admitted, reason == 0);
    world_close(&world);
    return reason;
}

Test(wanted, lists)
{
    static const char *const admit[] = {"auto",
                                        "cuda",
                                        "flash-attn",
                                        "cuda/flash-attn",
                                        "FLASH_ATTN",
                                        "CUDA/Flash_Attn",
                                        " hip , cuda ",
                                        ",,cuda,",
                                        "hip/rocm-flash,auto",
                                        "",
                                        " , "};
    static const char *const refuse[] = {"none", "hip",   "flashinfer",  "cuda/flashinfer",
                                         "cud",  "cuda/", "/flash-attn", "hip,FLASHINFER"};
    for (size_t i = 0; i < sizeof admit / sizeof admit[0]; i++)
        cr_assert_eq(reason_of(NULL, admit[i], "cuda/flash-attn"), 0, "'%s'", admit[i]);
    for (size_t i = 0; i < sizeof refuse / sizeof refuse[0]; i++) {
        cr_assert_eq(reason_of(NULL, refuse[i], "cuda/flash-attn"), ATTN_REASON_NOT_REQUESTED, "'%s'",
                     refuse[i]);
    }
}

Test(wanted, disabled)
{
    static const char *const globs[] = {
        "cuda/*", "*", "cuda", "flash-attn", "CUDA/FLASH_ATTN", "x,cuda/flash-a*", "c?da/flash-attn"};
    static const char *const others[] = {"hip/*", "cuda/flashinfer", "flash", "cuda/", "cudaa*"};
    char text[128];
    for (size_t i = 0; i < sizeof globs / sizeof globs[0]; i++) {
        snprintf(text, sizeof text, "ATTN_DISABLE=%s", globs[i]);
        cr_assert_eq(reason_of(text, "auto", "cuda/flash-attn"), ATTN_REASON_DISABLED_BY_USER, "%s", text);
        cr_assert_eq(reason_of(text, "hip", "cuda/flash-attn"), ATTN_REASON_NOT_REQUESTED, "%s", text);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(text, sizeof text, "ATTN_DISABLE=%s", others[i]);
        cr_assert_eq(reason_of(text, "auto", "cuda/flash-attn"), 0, "%s", text);
    }
}

Test(wanted, plugins)
{
    struct world world;
    world_open(&world, "gpu", "ATTN_DISABLE=gpu/flash-attn");
    const struct attn__plugin *plugin = world.context->plugins[0];
    uint32_t reason;
    cr_assert(attn__wanted_plugin(world.context, "auto", plugin, &reason), "its other backend is wanted");
    cr_assert_not(attn__wanted_plugin(world.context, "cpu", plugin, &reason));
    cr_assert_eq(reason, ATTN_REASON_NOT_REQUESTED);
    cr_assert_not(attn__wanted_plugin(world.context, "gpu/flash-attn", plugin, &reason));
    cr_assert_eq(reason, ATTN_REASON_DISABLED_BY_USER);
    world_close(&world);
}

Test(wanted, copied_texts_end_within_their_size)
{
    char text[9];
    memset(text, '#', sizeof text);
    attn__copy_text(text, 8, "0123456789");
    cr_assert_str_eq(text, "0123456");
    cr_assert_eq(text[8], '#');
    attn__copy_text(text, 8, "0123");
    cr_assert_str_eq(text, "0123");
}

Test(wanted, long_items_match_nothing)
{
    char text[1000];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 0;
    cr_assert_eq(reason_of(NULL, text, "cuda/flash-attn"), ATTN_REASON_NOT_REQUESTED);
}

static void check_missing(const char *mocks, const char *item, bool from_environment, const char *piece)
{
    struct world world;
    world_open(&world, mocks, NULL);
    char text[160];
    attn__item_explain(item, world.context->plugins, world.context->plugin_count, from_environment, text,
                       sizeof text);
    cr_assert_not_null(strstr(text, piece), "%s: %s", item, text);
    cr_assert_eq(strstr(text, "other software reads ATTN_BACKEND too") != NULL, from_environment, "%s", text);
    world_close(&world);
}

Test(wanted, texts_about_names_that_nobody_has)
{
    check_missing("host", "hots", false, "nearest name is 'host'");
    check_missing("host", "host/flashinfre", false, "nearest name is 'host/flashinfer'");
    check_missing("host", "FLASHATN", true, "nearest name is 'flash-attn'");
    check_missing("host", "cuda", false, "no plugin of vendor or flavour 'cuda' is installed");
    check_missing("host", "cuda/flash-attn", true, "no plugin of vendor 'cuda' is installed");
    check_missing("host", "xformers", true, "no plugin of vendor or flavour 'xformers' is installed");
    check_missing("host", "gpu", false,
                  "there is no backend 'gpu'; NVIDIA GPUs are cuda, AMD GPUs are hip; installed: host");
    check_missing("", "Nvidia", false, "there is no backend 'Nvidia'; NVIDIA GPUs are cuda; installed: none");
    check_missing("", "sdpa", true, "no plugin of vendor or flavour 'sdpa' is installed");
    check_missing("host", "host/something-else", false,
                  "the plugin of vendor 'host' offers no 'host/something-else'");
}

Test(wanted, a_refused_file_of_the_name_is_named)
{
    struct world world;
    world_open(&world, "host", NULL);
    malformed_write(&world.malformed, "libattn-cuda.so", "no elf", 6);
    cr_assert_eq(attn_context_rescan(world.context, &world.err), ATTN_OK);
    char text[160];
    attn__item_explain("cuda/flash-attn", world.context->plugins, world.context->plugin_count, false, text,
                       sizeof text);
    cr_assert_not_null(strstr(text, "libattn-cuda.so was refused"), "%s", text);
    cr_assert_eq(strncmp(text, "no usable plugin of vendor 'cuda': ", 35), 0, "%s", text);
    world_close(&world);
}

Test(wanted, device_names)
{
    struct attn__plugin plugin = {.table = {.name = "own"}};
    struct attn_device device = {.type = ATTN_DEVICE_OTHER, .ordinal = 3};
    char text[32];
    attn__device_name(&plugin, &device, text, sizeof text);
    cr_assert_str_eq(text, "own:3");
    device.type = ATTN_DEVICE_CPU;
    attn__device_name(&plugin, &device, text, sizeof text);
    cr_assert_str_eq(text, "cpu:3");
    plugin.table.device_type = "npu";
    attn__device_name(&plugin, &device, text, sizeof text);
    cr_assert_str_eq(text, "npu:3");
}
