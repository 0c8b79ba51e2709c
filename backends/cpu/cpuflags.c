/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* CPU features: those that levels need, and those of the machine, masked by ATTN_CPU_FLAGS. */
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif
#include <stdio.h>

#include "cpu.h"

enum {
    FEATURES = 3,
    WORDS = 8
}; /* array sizes, with a NULL behind the features of a level and the words of a feature */

static const struct {
    const char *features[FEATURES][WORDS];
} levels[CPU_LEVEL_COUNT] = {
    {{{NULL}}}, /* CPU_LEVEL_NONE */
#define CPU_LEVEL(architecture_, name_, arguments_, products_, detected_, ...) {{__VA_ARGS__}},
#include CPU_LEVELS
};

_Static_assert(CPU_LEVEL_COUNT *FEATURES <= 32, "every feature is a bit of a word");

static uint32_t flag_of(uint32_t level, uint32_t feature)
{
    return UINT32_C(1) << (level * FEATURES + feature);
}

uint32_t cpu_level_flags(uint32_t level)
{
    uint32_t flags = 0;

    for (uint32_t f = 0; levels[level].features[f][0] != NULL; f++)
        flags |= flag_of(level, f);
    return flags;
}

void cpu_flags_text(uint32_t flags, char *out, size_t size)
{
    size_t length = 0;

    out[0] = '\0';
    for (uint32_t level = 0; level < CPU_LEVEL_COUNT; level++) {
        for (uint32_t f = 0; levels[level].features[f][0] != NULL; f++) {
            const char *const *words = levels[level].features[f];
            if ((flags & flag_of(level, f)) == 0 ||
                strstr(out, words[0]) != NULL) /* listed already for another level */
                continue;
            for (; *words != NULL && length < size; words++)
                length +=
                    (size_t)snprintf(out + length, size - length, "%s%s", length > 0 ? " " : "", *words);
        }
    }
}

/* The features of all levels that a word of ATTN_CPU_FLAGS names. */
static uint32_t find_flags(const char *word, size_t length)
{
    uint32_t flags = 0;

    for (uint32_t level = 0; level < CPU_LEVEL_COUNT; level++) {
        for (uint32_t f = 0; levels[level].features[f][0] != NULL; f++) {
            for (const char *const *known = levels[level].features[f]; *known != NULL; known++)
                if (strlen(*known) == length && memcmp(*known, word, length) == 0)
                    flags |= flag_of(level, f);
        }
    }
    return flags;
}

#if defined(__x86_64__)
/* For levels.def: the compilers need the name as a literal. */
#define has(feature) __builtin_cpu_supports(feature)

/* Older compilers do not know "f16c" by name. It also needs the registers of AVX. */
__attribute__((unused)) static bool has_f16c(void)
{
    unsigned a, b, c = 0, d;

    return has("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

__attribute__((unused)) static bool has_avx512(void)
{
    return has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl") && has("avx2") &&
           has("fma") && has_f16c();
}

__attribute__((unused)) static bool has_avx512_bf16(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 1u << 5) != 0;
}

/*
 * Tiles and their products of bf16 and int8, and AVX-512 BF16 and VNNI. Linux gives a process the room for
 * tiles when it asks; that the system saves them is part of the answer.
 */
__attribute__((unused)) static bool has_amx(void)
{
    const unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25, avx512_vnni = 1u << 11;
    const long request_permission = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA */
    unsigned a, b, c, d;

    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (c & avx512_vnni) == 0 || (d & bf16) == 0 ||
        (d & tile) == 0 || (d & int8) == 0)
        return false;
    return has_avx512_bf16() && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#elif defined(__aarch64__)
__attribute__((unused)) static bool has_dotprod(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

/*
 * Bits of a vector of SVE; 0 without SVE. Linux may give a process less than the machine has; threads inherit
 * what the thread has that starts them.
 */
__attribute__((unused)) static int sve_bits(void)
{
    const int vector_length = (getauxval(AT_HWCAP) & HWCAP_SVE) != 0 ? prctl(PR_SVE_GET_VL) : 0;

    return vector_length > 0 ? (vector_length & PR_SVE_VL_LEN_MASK) * 8 : 0;
}
#endif

static uint32_t detect(void)
{
    uint32_t flags = 0;

#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
#define CPU_LEVEL(architecture_, name_, arguments_, products_, detected_, ...)                               \
    CPU_ON_##architecture_(if (detected_) flags |= cpu_level_flags(CPU_LEVEL_##name_);)
#include CPU_LEVELS
    return flags;
}

/*
 * The L1 cache of AMD's processors waits for so few lines that random pages come at a third of the bandwidth;
 * their L2 cache waits for more. Intel's is slower when lines take that way. Tests have both.
 */
bool cpu_prefetches_far(void)
{
#if defined(CPU_PREFETCHES_FAR)
    return CPU_PREFETCHES_FAR;
#elif defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") != 0;
#else
    return false;
#endif
}

/* Says that ATTN_CPU_FLAGS allows features and yet no level that the machine has, and which words would. */
static void warn_of_no_level(const struct attn_instance *instance, const char *text, uint32_t detected)
{
    char words[256] = "";
    size_t length = 0;

    for (uint32_t level = 1; level < CPU_LEVEL_COUNT; level++) {
        const uint32_t needed = cpu_level_flags(level);
        char one[64];
        if (needed == 0 || (detected & needed) != needed || length >= sizeof words)
            continue;
        cpu_flags_text(needed, one, sizeof one);
        length +=
            (size_t)snprintf(words + length, sizeof words - length, "%s\"%s\"", length > 0 ? ", " : "", one);
    }
    cpu_log(
        instance, ATTN_LOG_WARN,
        "ATTN_CPU_FLAGS: \"%.64s\" leaves the generic kernels alone; vector kernels of this machine need %s",
        text, words);
}

static bool has_level(uint32_t flags)
{
    for (uint32_t level = 1; level < CPU_LEVEL_COUNT; level++) {
        const uint32_t needed = cpu_level_flags(level);
        if (needed != 0 && (flags & needed) == needed)
            return true;
    }
    return false;
}

uint32_t cpu_flags_detect(const struct attn_instance *instance)
{
    const char *text = NULL, *all;
    uint32_t named = 0, removed = 0, any_named = 0;

    if (instance->host.get_option != NULL)
        text = instance->host.get_option(instance->host.ctx, "ATTN_CPU_FLAGS");
    all = text;
    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, ", ");
        bool minus = length > 0 && *text == '-';
        uint32_t flags = find_flags(text + minus, length - minus);
        if (minus && flags != 0) {
            removed |= flags;
        } else if (flags != 0 || (length == 4 && memcmp(text, "none", 4) == 0)) {
            named |= flags;
            any_named = 1;
        } else if (length > 0) {
            char known[128];
            cpu_flags_text(UINT32_MAX, known, sizeof known);
            cpu_log(instance, ATTN_LOG_WARN,
                    "ATTN_CPU_FLAGS: \"%.*s\" is not known; \"none\" and %s are, and these behind a minus",
                    (int)(length < 64 ? length : 64), text, known);
        }
        text += length + (text[length] != '\0');
    }
    uint32_t allowed = any_named != 0 ? named : UINT32_MAX;
    const uint32_t detected = detect(), left = detected & allowed & ~removed;
    if (named != 0 && has_level(detected) && !has_level(left))
        warn_of_no_level(instance, all, detected);
    return left;
}
