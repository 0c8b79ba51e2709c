/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* CPU features: what the machine has, masked by ATTN_CPU_FLAGS. */
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "cpu.h"

/* AVX2 kernels use FMA too, so that masking either masks both. */
static const struct {
    const char *name;
    uint32_t flag;
} names[] = {{"avx2", CPU_AVX2}, {"fma", CPU_AVX2}, {"f16c", CPU_F16C}, {"neon", CPU_NEON}};

static uint32_t detect(void)
{
    uint32_t flags = 0;

#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        flags |= CPU_AVX2;
    /* Older compilers do not know "f16c" by name; its registers are those of AVX. */
    unsigned a, b, c = 0, d;
    if (__builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0)
        flags |= CPU_F16C;
#elif defined(__aarch64__)
    flags |= CPU_NEON; /* part of the architecture */
#endif
    return flags;
}

static uint32_t find_flag(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i].name) == length && memcmp(names[i].name, word, length) == 0)
            return names[i].flag;
    }
    return 0;
}

uint32_t cpu_flags_detect(const struct attn_instance *instance)
{
    const char *text = NULL;
    uint32_t named = 0, removed = 0, any_named = 0;

    if (instance->host.get_option != NULL)
        text = instance->host.get_option(instance->host.ctx, "ATTN_CPU_FLAGS");
    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, ", ");
        bool minus = length > 0 && *text == '-';
        uint32_t flag = find_flag(text + minus, length - minus);
        if (minus && flag != 0) {
            removed |= flag;
        } else if (flag != 0 || (length == 4 && memcmp(text, "none", 4) == 0)) {
            named |= flag;
            any_named = 1;
        } else if (length > 0) {
            cpu_log(
                instance, ATTN_LOG_WARN,
                "ATTN_CPU_FLAGS: \"%.*s\" is not known; none, avx2, fma, f16c, neon, or one of the last four "
                "behind a minus, are",
                (int)(length < 64 ? length : 64), text);
        }
        text += length + (text[length] != '\0');
    }
    uint32_t allowed = any_named != 0 ? named : UINT32_MAX;
    return detect() & allowed & ~removed;
}
