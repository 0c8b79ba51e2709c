/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Names as people write them. */
#include <criterion/criterion.h>

#include "core.h"

Test(suggest, case_and_dashes_do_not_count)
{
    cr_assert(attn__same_name("FLASH_ATTN", "flash-attn"));
    cr_assert(attn__same_name("cpu/flash-attn", "CPU/flashattn"));
    cr_assert(attn__same_name("rocm-flash", "ROCM_FLASH_"));
    cr_assert(attn__same_name("", "-_"));
    cr_assert_not(attn__same_name("cpu", "cpu2"));
    cr_assert_not(attn__same_name("cpu2", "cpu"));
    cr_assert_not(attn__same_name("cpu/flash", "cpuflash"));
}

Test(suggest, finds_the_nearest_name)
{
    static const char *const names[] = {"head_dim", "heads", "kv_heads", "block", "window", "q"};
    const size_t n = sizeof names / sizeof names[0];
    cr_assert_str_eq(attn__nearest("head_din", names, n), "head_dim");
    cr_assert_str_eq(attn__nearest("HEADDIM", names, n), "head_dim");
    cr_assert_str_eq(attn__nearest("haeds", names, n), "heads");
    cr_assert_str_eq(attn__nearest("blok", names, n), "block");
    cr_assert_str_eq(attn__nearest("kvheads", names, n), "kv_heads");
}

Test(suggest, says_nothing_if_nothing_is_near)
{
    static const char *const names[] = {"head_dim", "block", "q", "kv"};
    cr_assert_null(attn__nearest("temperature", names, 4));
    cr_assert_null(attn__nearest("x", names, 4));
    cr_assert_null(attn__nearest("", names, 4));
    cr_assert_null(attn__nearest("block", names, 0));
    char longer[300];
    memset(longer, 'b', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    cr_assert_null(attn__nearest(longer, names, 4));
}

Test(suggest, globs_follow_the_same_rule)
{
    cr_assert(attn__name_matches("CPU/*", "cpu/flash-attn"));
    cr_assert(attn__name_matches("*/FLASH_ATTN", "cuda/flash-attn"));
    cr_assert(attn__name_matches("[a-c]pu/*", "cpu/flashinfer"));
    cr_assert(attn__name_matches("c?u/flash[-i]*", "cpu/flashinfer"));
    cr_assert(attn__name_matches("c*attn", "cpu/flash-attn"), "a star is any characters, a slash too");
    cr_assert_not(attn__name_matches("cuda/*", "cpu/flash-attn"));
    cr_assert_not(attn__name_matches("flash", "flash-attn"));
    cr_assert(attn__name_matches("[", "["));
}

Test(suggest, names_are_listed_once_and_as_many_as_fit)
{
    char list[16] = "";
    attn__add_name(list, sizeof list, "cpu");
    attn__add_name(list, sizeof list, "cpu");
    attn__add_name(list, sizeof list, "cp");
    attn__add_name(list, sizeof list, "cpu");
    attn__add_name(list, sizeof list, "cuda");
    attn__add_name(list, sizeof list, "opencl");
    cr_assert_str_eq(list, "cpu, cp, cuda");
}

Test(suggest, kinds_of_devices_are_hints)
{
    cr_assert_not_null(strstr(attn__kind_hint("GPU"), "cuda"));
    cr_assert_not_null(strstr(attn__kind_hint("rocm"), "hip"));
    cr_assert_null(attn__kind_hint("cuda"));
}
