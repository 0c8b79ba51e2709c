/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reading the note of a file that may be anything. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "malformed.h"
#include "plugin/loader.h"

static unsigned char *good;
static size_t good_size;
static char text[512];
static struct attn__elf elf;

static void set_up(void)
{
    good = malformed_read("good", &good_size);
}

static void tear_down(void)
{
    free(good);
}

/* Reads the bytes as a file. */
static uint32_t read_bytes(const void *bytes, size_t size)
{
    int fd = memfd_create("elf", MFD_CLOEXEC);
    cr_assert(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    const struct attn__words words = {text, sizeof text};
    uint32_t reason = attn__elf_read(fd, size, &elf, &words);
    close(fd);
    if (reason != 0)
        cr_assert_neq(text[0], '\0', "%s has no text", attn_reason_name(reason));
    return reason;
}

static Elf64_Ehdr *header(void)
{
    return (Elf64_Ehdr *)(void *)good;
}

static Elf64_Phdr *segment(uint32_t type)
{
    Elf64_Phdr *headers = (Elf64_Phdr *)(void *)(good + header()->e_phoff);
    for (unsigned i = 0; i < header()->e_phnum; i++)
        if (headers[i].p_type == type)
            return &headers[i];
    cr_assert_fail("no segment of type %u", type);
    return NULL;
}

/* The note inside of the bytes. */
static struct attn_note *note(void)
{
    unsigned char *owner = memmem(good, good_size, "\1\0\0\0libattn", 12);
    cr_assert_not_null(owner);
    return (struct attn_note *)(void *)(owner + 12);
}

TestSuite(elfnote, .init = set_up, .fini = tear_down);

Test(elfnote, reads_a_good_one)
{
    cr_assert_eq(read_bytes(good, good_size), 0, "%s", text);
    cr_assert_eq(elf.notes, 1);
    cr_assert_str_eq(elf.note.name, "mock");
    cr_assert_str_eq(elf.note.vendor, "Mock Makers");
    cr_assert_str_eq(elf.note.version, "1.0");
    cr_assert_str_eq(elf.note.backends, "mock/flash-attn");
    cr_assert_eq(elf.note.device_class, ATTN_CLASS_CPU);
}

Test(elfnote, what_is_no_elf_file)
{
    cr_assert_eq(read_bytes("", 0), ATTN_REASON_NOT_ELF);
    cr_assert_eq(read_bytes("\177EL", 3), ATTN_REASON_NOT_ELF);
    cr_assert_eq(read_bytes("INPUT(libm.so)\n", 15), ATTN_REASON_NOT_ELF);
    cr_assert_eq(read_bytes("\177ELF", 4), ATTN_REASON_TRUNCATED);
}

Test(elfnote, every_short_copy_is_refused)
{
    size_t end = 0;
    const Elf64_Phdr *headers = (const Elf64_Phdr *)(void *)(good + header()->e_phoff);
    for (unsigned i = 0; i < header()->e_phnum; i++)
        if (headers[i].p_type == PT_LOAD && headers[i].p_offset + headers[i].p_filesz > end)
            end = headers[i].p_offset + headers[i].p_filesz;
    for (size_t i = 0; i < 40; i++) {
        size_t size = (end - 1) * i / 39;
        uint32_t reason = read_bytes(good, size);
        cr_assert_eq(reason, size < 4 ? ATTN_REASON_NOT_ELF : ATTN_REASON_TRUNCATED, "%zu bytes of %zu: %s",
                     size, end, text);
    }
    cr_assert_eq(read_bytes(good, end), 0, "section headers are not needed: %s", text);
}

Test(elfnote, other_machines)
{
    header()->e_machine ^= 1;
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_WRONG_ARCH);
    header()->e_machine ^= 1;
    good[EI_CLASS] = ELFCLASS32;
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_WRONG_ARCH);
    good[EI_CLASS] = ELFCLASS64;
    good[EI_DATA] = ELFDATA2MSB;
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_WRONG_ARCH);
}

Test(elfnote, damaged_headers)
{
    header()->e_type = ET_REL;
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_BAD_ELF);
    header()->e_type = ET_DYN;
    uint16_t count = header()->e_phnum;
    header()->e_phnum = 0;
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_BAD_ELF);
    header()->e_phnum = 0xffff;
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_BAD_ELF);
    header()->e_phnum = count;
    header()->e_phoff = UINT64_MAX - 8;
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_TRUNCATED);
}

Test(elfnote, damaged_segments)
{
    Elf64_Phdr kept = *segment(PT_NOTE);
    segment(PT_NOTE)->p_offset = UINT64_MAX - 3;
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_TRUNCATED);
    *segment(PT_NOTE) = kept;
    kept = *segment(PT_LOAD);
    segment(PT_LOAD)->p_filesz = segment(PT_LOAD)->p_memsz + 1;
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_BAD_ELF);
    *segment(PT_LOAD) = kept;
    kept = *segment(PT_DYNAMIC);
    segment(PT_DYNAMIC)->p_offset = good_size;
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_TRUNCATED);
    *segment(PT_DYNAMIC) = kept;
    kept = *segment(PT_GNU_RELRO);
    segment(PT_GNU_RELRO)->p_memsz += 1U << 20;
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_BAD_ELF);
    *segment(PT_GNU_RELRO) = kept;
    cr_assert_eq(read_bytes(good, good_size), 0, "%s", text);
    cr_assert(elf.memory >= segment(PT_DYNAMIC)->p_vaddr + segment(PT_DYNAMIC)->p_memsz);
}

Test(elfnote, fields_of_the_note)
{
    static const struct {
        size_t offset;
        uint32_t value, reason;
    } numbers[] = {
        {offsetof(struct attn_note, note_version), 0, ATTN_REASON_BAD_NOTE},
        {offsetof(struct attn_note, note_version), 2, ATTN_REASON_ABI_TOO_NEW},
        {offsetof(struct attn_note, abi_major), ATTN_ABI_MAJOR + 1, ATTN_REASON_ABI_TOO_NEW},
        {offsetof(struct attn_note, abi_minor), ATTN_ABI_MINOR + 1, ATTN_REASON_ABI_TOO_NEW},
        {offsetof(struct attn_note, abi_minor), ATTN_ABI_MINOR - 1, ATTN_REASON_ABI_TOO_OLD},
        {offsetof(struct attn_note, device_class), 0, ATTN_REASON_BAD_NOTE},
        {offsetof(struct attn_note, device_class), 5, ATTN_REASON_BAD_NOTE},
        {offsetof(struct attn_note, cpu_level), 0, ATTN_REASON_BAD_NOTE},
        {offsetof(struct attn_note, cpu_level), 5, ATTN_REASON_BAD_NOTE},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct attn_note kept = *note();
        memcpy((char *)note() + numbers[i].offset, &numbers[i].value, sizeof numbers[i].value);
        cr_assert_eq(read_bytes(good, good_size), numbers[i].reason, "field at %zu = %u: %s",
                     numbers[i].offset, numbers[i].value, text);
        *note() = kept;
    }
}

Test(elfnote, texts_of_the_note)
{
    static const struct {
        size_t offset;
        const char *value;
    } texts[] = {
        {offsetof(struct attn_note, name), "Mock"},
        {offsetof(struct attn_note, name), "mo/ck"},
        {offsetof(struct attn_note, name), ""},
        {offsetof(struct attn_note, vendor), "Mock\033[31m"},
        {offsetof(struct attn_note, version), ""},
        {offsetof(struct attn_note, backends), "other/flash-attn"},
        {offsetof(struct attn_note, backends), "mock"},
        {offsetof(struct attn_note, backends), "mock/"},
        {offsetof(struct attn_note, backends), "mock/Flash"},
        {offsetof(struct attn_note, backends), "mock/a,"},
        {offsetof(struct attn_note, backends), "mock/a,,mock/b"},
        {offsetof(struct attn_note, backends), "mock/a b"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct attn_note kept = *note();
        strcpy((char *)note() + texts[i].offset, texts[i].value);
        cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_BAD_NOTE, "\"%s\"", texts[i].value);
        cr_assert_eq(elf.note.name[0], '\0', "nothing of a bad note is kept");
        *note() = kept;
    }
    memset(note()->vendor, 'v', sizeof note()->vendor);
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_BAD_NOTE, "a text without end");
}

Test(elfnote, a_note_for_another_version_keeps_its_name)
{
    note()->abi_minor = 77;
    cr_assert_eq(read_bytes(good, good_size), ATTN_REASON_ABI_TOO_NEW);
    cr_assert_str_eq(elf.note.name, "mock");
    cr_assert(strstr(text, "0.77") != NULL, "%s", text);
    note()->abi_minor = ATTN_ABI_MINOR;
    note()->cpu_level = ATTN_CPU_X86_64_V4;
    const uint32_t reason = read_bytes(good, good_size);
    cr_assert(reason == 0 || reason == ATTN_REASON_CPU_LEVEL, "%s", text);
    cr_assert_str_eq(elf.note.name, "mock");
}

/* ---------------------------------------------------------------- lists of notes */

/* Appends a note to bytes. */
static size_t put(unsigned char *bytes, size_t at, const char *owner, uint32_t type, const void *data,
                  uint32_t size)
{
    Elf64_Nhdr head = {(uint32_t)strlen(owner) + 1, size, type};
    memcpy(bytes + at, &head, sizeof head);
    at += sizeof head;
    memcpy(bytes + at, owner, strlen(owner) + 1);
    at += (strlen(owner) + 4) / 4 * 4;
    if (size != 0)
        memcpy(bytes + at, data, size);
    return at + (size + 3) / 4 * 4;
}

Test(elfnote, finds_the_note_among_others)
{
    unsigned char bytes[1024] = {0};
    struct attn_note in = {.note_version = 1, .name = "x"}, out;
    uint32_t count = 0;
    size_t n = put(bytes, 0, "GNU", 3, "abcde", 5);
    n = put(bytes, n, "libattn", 2, "other type", 10);
    n = put(bytes, n, "libattn", 1, &in, sizeof in);
    n = put(bytes, n, "GNU", 1, "", 0);
    cr_assert(attn__note_find(bytes, n, 4, &out, &count));
    cr_assert_eq(count, 1);
    cr_assert_arr_eq(&in, &out, sizeof in);
    n = put(bytes, n, "libattn", 1, &in, sizeof in);
    count = 0;
    cr_assert(attn__note_find(bytes, n, 4, &out, &count));
    cr_assert_eq(count, 2);
}

Test(elfnote, a_note_of_another_size_is_none)
{
    unsigned char bytes[1024] = {0};
    struct attn_note in = {.note_version = 1}, out;
    uint32_t count = 0;
    size_t n = put(bytes, 0, "libattn", 1, &in, sizeof in - 4);
    cr_assert_not(attn__note_find(bytes, n, 4, &out, &count));
    in.note_version = 2;
    n = put(bytes, 0, "libattn", 1, &in, sizeof in - 4);
    cr_assert_not(attn__note_find(bytes, n, 4, &out, &count), "nor is a shorter one of another version");
}

Test(elfnote, random_notes_stay_in_bounds)
{
    /* The bytes end where the allocation ends: a sanitizer or the heap sees every step beyond. */
    uint32_t seed = 12345;
    struct attn_note in = {.note_version = 1, .name = "x"}, out;
    unsigned accepted = 0;
    for (int round = 0; round < 20000; round++) {
        unsigned char whole[512] = {0};
        size_t n = put(whole, 0, "GNU", 3, "abcdefgh", 8);
        n = put(whole, n, "libattn", 1, &in, sizeof in);
        for (int i = 0; i < 3; i++) {
            seed = seed * 1664525 + 1013904223;
            whole[(seed >> 8) % 48] = (unsigned char)(seed >> 24);
        }
        seed = seed * 1664525 + 1013904223;
        size_t size = (seed >> 8) % (n + 1);
        unsigned char *bytes = malloc(size > 0 ? size : 1);
        cr_assert_not_null(bytes);
        memcpy(bytes, whole, size);
        uint32_t count = 0;
        accepted += attn__note_find(bytes, size, round % 2 ? 4 : 8, &out, &count);
        free(bytes);
    }
    cr_assert(accepted > 0 && accepted < 20000, "%u", accepted);
}

Test(elfnote, random_headers_never_crash)
{
    uint32_t seed = 99;
    unsigned counts[64] = {0};
    unsigned char *kept = malloc(good_size);
    cr_assert_not_null(kept);
    memcpy(kept, good, good_size);
    for (int round = 0; round < 3000; round++) {
        memcpy(good, kept, good_size);
        for (int i = 0; i < 4; i++) {
            seed = seed * 1664525 + 1013904223;
            good[4 + (seed >> 8) % 1200] = (unsigned char)(seed >> 24);
        }
        uint32_t reason = read_bytes(good, good_size);
        cr_assert(reason < 64);
        counts[reason]++;
    }
    free(kept);
    cr_assert(counts[ATTN_REASON_TRUNCATED] > 0 && counts[ATTN_REASON_BAD_ELF] > 0);
}

Test(elfnote, the_cpu_level_of_this_machine)
{
    uint32_t level = attn__cpu_level();
    cr_assert(level >= ATTN_CPU_BASELINE && level <= ATTN_CPU_X86_64_V4);
#if defined(__x86_64__)
    cr_assert_eq(level >= ATTN_CPU_X86_64_V3,
                 __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    cr_assert_eq(level == ATTN_CPU_X86_64_V4, level >= ATTN_CPU_X86_64_V3 &&
                                                  __builtin_cpu_supports("avx512bw") &&
                                                  __builtin_cpu_supports("avx512vl"));
#endif
}
