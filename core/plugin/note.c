/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a plugin's note must hold. */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#if defined(__x86_64__)
#include <sys/platform/x86.h>
#endif

#include "plugin/loader.h"

uint32_t attn__refuse(const struct attn__words *words, uint32_t reason, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(words->text, words->size, format, args);
    va_end(args);
    return reason;
}

/* Rounds up; `align` is 4 or 8. */
static size_t round_up(size_t size, size_t align)
{
    return (size + align - 1) / align * align;
}

/* Walks the list once, with notes aligned to 4 or 8 bytes. */
static bool walk(const unsigned char *bytes, size_t size, size_t align, struct attn_note *out,
                 uint32_t *count)
{
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
        Elf64_Nhdr header;
        memcpy(&header, bytes + at, sizeof header);
        /* Description and next note are aligned as seen from the start of the list. */
        const unsigned char *owner = bytes + at + sizeof header;
        size_t end = round_up(at + sizeof header + header.n_namesz, align);
        if (end > size)
            return false;
        at = end;
        if (header.n_descsz > size - at)
            return false;
        if (header.n_namesz == sizeof ATTN_NOTE_OWNER && header.n_type == ATTN_NOTE_TYPE &&
            memcmp(owner, ATTN_NOTE_OWNER, sizeof ATTN_NOTE_OWNER) == 0) {
            ++*count;
            if (header.n_descsz < sizeof *out)
                return false;
            memcpy(out, bytes + at, sizeof *out);
            if (out->note_version == ATTN_NOTE_VERSION && header.n_descsz != sizeof *out)
                return false;
        }
        /* The last one may lack its padding. */
        end = round_up(at + header.n_descsz, align);
        at = end < size ? end : size;
    }
    return true;
}

bool attn__note_find(const unsigned char *bytes, size_t size, size_t align, struct attn_note *out,
                     uint32_t *count)
{
    uint32_t before = *count;
    bool is_list = align == 8 && walk(bytes, size, 8, out, count);
    if (is_list && *count > before)
        return true;
    /* Some linkers put notes of both kinds into one segment, and call it aligned to 8. */
    *count = before;
    return walk(bytes, size, 4, out, count) || is_list;
}

static bool is_text(const char *text, size_t size)
{
    const char *end = memchr(text, '\0', size);
    if (end == NULL || end == text)
        return false;
    for (const char *p = text; p < end; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return false;
    return true;
}

/* [a-z0-9_-]+ */
static bool is_name(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((text[i] < 'a' || text[i] > 'z') && (text[i] < '0' || text[i] > '9') && text[i] != '_' &&
            text[i] != '-')
            return false;
    return length != 0;
}

/* "name/flavour,name/flavour" */
static bool is_backend_list(const char *list, const char *name)
{
    size_t vendor = strlen(name);
    for (const char *p = list;; p++) {
        size_t length = strcspn(p, ",");
        if (length <= vendor + 1 || strncmp(p, name, vendor) != 0 || p[vendor] != '/' ||
            !is_name(p + vendor + 1, length - vendor - 1))
            return false;
        p += length;
        if (*p == '\0')
            return true;
    }
}

#define REFUSE(words, reason, ...) attn__refuse((words), ATTN_REASON_##reason, __VA_ARGS__)

/* Texts first: the report shows them even of a plugin that is refused for its version. */
static uint32_t check_texts(const struct attn_note *note, const struct attn__words *words)
{
    const struct {
        const char *what, *text;
        size_t size;
    } texts[] = {{"name", note->name, sizeof note->name},
                 {"vendor", note->vendor, sizeof note->vendor},
                 {"version", note->version, sizeof note->version},
                 {"backends", note->backends, sizeof note->backends}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (!is_text(texts[i].text, texts[i].size))
            return REFUSE(words, BAD_NOTE, "the note's %s is no text of 1 to %zu printable characters",
                          texts[i].what, texts[i].size - 1);
    if (!is_name(note->name, strlen(note->name)))
        return REFUSE(words, BAD_NOTE, "the note's name is \"%s\"; a-z, 0-9, _ and - are accepted",
                      note->name);
    return 0;
}

static uint32_t check_abi(const struct attn_note *note, const struct attn__words *words)
{
    /* A variable, because compilers complain about comparing an unsigned number with a constant 0. */
    static const struct {
        uint32_t major, minor;
    } own = {ATTN_ABI_MAJOR, ATTN_ABI_MINOR};
    bool same_major = note->abi_major == own.major;
    bool newer = note->abi_major > own.major || (same_major && note->abi_minor > own.minor);
    bool older = note->abi_major < own.major || (same_major && own.major == 0 && note->abi_minor < own.minor);
    if (!newer && !older)
        return 0;
    return attn__refuse(words, newer ? ATTN_REASON_ABI_TOO_NEW : ATTN_REASON_ABI_TOO_OLD,
                        "plugin %s was built for interface %u.%u; this libattn speaks %u.%u", note->name,
                        note->abi_major, note->abi_minor, own.major, own.minor);
}

#if defined(__x86_64__)
static bool has_all(const unsigned *features, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!x86_cpu_active(features[i]))
            return false;
    return true;
}

uint32_t attn__cpu_level(void)
{
    static const unsigned v2[] = {x86_cpu_SSE3,   x86_cpu_SSSE3,      x86_cpu_SSE4_1,       x86_cpu_SSE4_2,
                                  x86_cpu_POPCNT, x86_cpu_CMPXCHG16B, x86_cpu_LAHF64_SAHF64};
    static const unsigned v3[] = {x86_cpu_AVX,  x86_cpu_AVX2, x86_cpu_BMI1,  x86_cpu_BMI2,
                                  x86_cpu_F16C, x86_cpu_FMA,  x86_cpu_LZCNT, x86_cpu_MOVBE};
    static const unsigned v4[] = {x86_cpu_AVX512F, x86_cpu_AVX512BW, x86_cpu_AVX512CD, x86_cpu_AVX512DQ};
    if (!has_all(v2, sizeof v2 / sizeof v2[0]))
        return ATTN_CPU_BASELINE;
    if (!has_all(v3, sizeof v3 / sizeof v3[0]))
        return ATTN_CPU_X86_64_V2;
    /* AVX512VL is bit 31, which the macros of the header cannot shift to without overflow. */
    if (!has_all(v4, sizeof v4 / sizeof v4[0]) || !__builtin_cpu_supports("avx512vl"))
        return ATTN_CPU_X86_64_V3;
    return ATTN_CPU_X86_64_V4;
}
#else
uint32_t attn__cpu_level(void)
{
    return ATTN_CPU_BASELINE;
}
#endif

uint32_t attn__note_check(const struct attn_note *note, const struct attn__words *words)
{
    if (note->note_version > ATTN_NOTE_VERSION)
        return REFUSE(words, ABI_TOO_NEW, "the note has version %u; this libattn reads %u",
                      note->note_version, ATTN_NOTE_VERSION);
    if (note->note_version != ATTN_NOTE_VERSION)
        return REFUSE(words, BAD_NOTE, "the note has version %u; %u is accepted", note->note_version,
                      ATTN_NOTE_VERSION);
    uint32_t reason = check_texts(note, words);
    if (reason == 0)
        reason = check_abi(note, words);
    if (reason != 0)
        return reason;
    if (!is_backend_list(note->backends, note->name))
        return REFUSE(words, BAD_NOTE,
                      "the note's backends are \"%s\"; %s/flavour, separated by commas, is accepted",
                      note->backends, note->name);
    if (note->device_class < ATTN_CLASS_ACCELERATOR || note->device_class > ATTN_CLASS_PORTABLE_CPU)
        return REFUSE(words, BAD_NOTE, "the note's device class is %u; %u to %u is accepted",
                      note->device_class, ATTN_CLASS_ACCELERATOR, ATTN_CLASS_PORTABLE_CPU);
    if (note->cpu_level < ATTN_CPU_BASELINE || note->cpu_level > ATTN_CPU_X86_64_V4)
        return REFUSE(words, BAD_NOTE, "the note's cpu level is %u; %u to %u is accepted", note->cpu_level,
                      ATTN_CPU_BASELINE, ATTN_CPU_X86_64_V4);
    if (note->cpu_level > attn__cpu_level())
        return REFUSE(words, CPU_LEVEL, "plugin %s needs x86-64-v%u; this CPU has level %u", note->name,
                      note->cpu_level, attn__cpu_level());
    return 0;
}
