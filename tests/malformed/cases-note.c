/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A good plugin whose note was damaged, doubled, cut into pieces or filled with nonsense. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>

#include "attn/plugin.h"
#include "elf-file.h"

/* Every row edits a copy of the good mock. */
static void edit(const struct malformed *malformed, void (*change)(struct elf_file *file))
{
    struct elf_file file;

    elf_read(&file, "good");
    change(&file);
    elf_write(&file, malformed, CASE_FILE);
    elf_free(&file);
}

#define EDIT(name, ...)                                                                                      \
    static void change_##name(struct elf_file *file)                                                         \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }                                                                                                        \
    static void name(const struct malformed *malformed, const char *unused)                                  \
    {                                                                                                        \
        (void)unused;                                                                                        \
        edit(malformed, change_##name);                                                                      \
    }

EDIT(other_owner, memcpy(elf_note_header(file) + 1, "LIBATTN", 8);)
EDIT(other_type, elf_note_header(file)->n_type = 2;)
EDIT(huge_owner, elf_note_header(file)->n_namesz = UINT32_MAX;)
EDIT(huge_description, elf_note_header(file)->n_descsz = UINT32_MAX - 3;)
EDIT(short_description, elf_note_header(file)->n_descsz -= 4;)
EDIT(old_format, elf_note(file)->note_version = 0;)
EDIT(new_format, elf_note(file)->note_version = 2;)
EDIT(new_major, elf_note(file)->abi_major = ATTN_ABI_MAJOR + 1;)
EDIT(no_end, memset(elf_note(file)->version, 'v', sizeof elf_note(file)->version);)
EDIT(escape, memcpy(elf_note(file)->vendor, "\033[31m", 5);)
EDIT(no_name, elf_note(file)->name[0] = '\0';)
EDIT(foreign_backend, memcpy(elf_note(file)->backends, "cuda", 4);)
EDIT(no_class, elf_note(file)->device_class = 0;)
EDIT(any_class, elf_note(file)->device_class = 99;)
EDIT(any_level, elf_note(file)->cpu_level = 99;)
EDIT(better_class, elf_note(file)->device_class = ATTN_CLASS_PORTABLE_CPU;)
EDIT(other_version, elf_note(file)->version[0] = '7';)

/* Puts a copy of the note segment's notes at the end of the file, and makes `segment` hold that. */
static void append(struct elf_file *file, unsigned segment, const void *bytes, size_t size, size_t length)
{
    size_t at = (file->size + 7) / 8 * 8;

    elf_resize(file, at + length);
    memcpy(file->bytes + at, bytes, size);
    elf_segment(file, PT_NOTE, segment)->p_offset = at;
    elf_segment(file, PT_NOTE, segment)->p_filesz = length;
    elf_segment(file, PT_NOTE, segment)->p_memsz = length;
}

/* A note of another owner that takes a megabyte, in a segment of its own. */
static void change_huge_segment(struct elf_file *file)
{
    const struct {
        Elf64_Nhdr header;
        char owner[4];
    } note = {{4, (1 << 20) - 16, 1}, "XXX"};

    elf_grow_headers(file, 1);
    elf_segment(file, PT_NULL, 0)->p_type = PT_NOTE;
    for (unsigned i = 0;; i++) {
        Elf64_Phdr *p = elf_segment(file, PT_NOTE, i);
        if (p->p_filesz == 0) {
            append(file, i, &note, sizeof note, 1 << 20);
            return;
        }
    }
}

static void huge_segment(const struct malformed *malformed, const char *unused)
{
    (void)unused;
    edit(malformed, change_huge_segment);
}

/* The segment that holds the plugin's note. */
static Elf64_Phdr *holder(const struct elf_file *file)
{
    size_t at = (size_t)((unsigned char *)elf_note_header(file) - file->bytes);

    for (unsigned i = 0;; i++) {
        Elf64_Phdr *p = elf_segment(file, PT_NOTE, i);
        if (at >= p->p_offset && at - p->p_offset < p->p_filesz)
            return p;
    }
}

/* One segment per note, as patchelf leaves them. */
static void change_split(struct elf_file *file)
{
    const uint64_t size = sizeof(Elf64_Nhdr) + sizeof ATTN_NOTE_OWNER + sizeof(struct attn_note);

    elf_grow_headers(file, 2);
    Elf64_Phdr *whole = holder(file);
    const uint64_t start = whole->p_offset, end = start + whole->p_filesz;
    const uint64_t at = (uint64_t)((unsigned char *)elf_note_header(file) - file->bytes);
    const uint64_t parts[3][2] = {{at, size}, {start, at - start}, {at + size, end - at - size}};
    Elf64_Phdr copy = *whole;

    for (unsigned i = 0; i < 3; i++) {
        Elf64_Phdr *p = i == 0 ? whole : elf_segment(file, PT_NULL, 0);
        if (parts[i][1] == 0)
            continue;
        *p = copy;
        p->p_offset = parts[i][0];
        p->p_vaddr = p->p_paddr = copy.p_vaddr + (parts[i][0] - start);
        p->p_filesz = p->p_memsz = parts[i][1];
    }
}

static void split(const struct malformed *malformed, const char *unused)
{
    (void)unused;
    edit(malformed, change_split);
}

/* The same bytes behind two headers: still one note. */
static void change_seen_twice(struct elf_file *file)
{
    elf_grow_headers(file, 1);
    *elf_segment(file, PT_NULL, 0) = *holder(file);
}

static void seen_twice(const struct malformed *malformed, const char *unused)
{
    (void)unused;
    edit(malformed, change_seen_twice);
}

/* A second note elsewhere: nobody can say which one counts. */
static void change_two(struct elf_file *file)
{
    const size_t size = sizeof(Elf64_Nhdr) + sizeof ATTN_NOTE_OWNER + sizeof(struct attn_note);
    unsigned char copy[1024];
    unsigned i = 0;

    memcpy(copy, elf_note_header(file), size);
    elf_grow_headers(file, 1);
    Elf64_Phdr *more = elf_segment(file, PT_NULL, 0);
    *more = *holder(file);
    more->p_filesz = 0;
    while (elf_segment(file, PT_NOTE, i)->p_filesz != 0)
        i++;
    append(file, i, copy, size, size);
}

static void two(const struct malformed *malformed, const char *unused)
{
    (void)unused;
    edit(malformed, change_two);
}

#define READY ATTN_STAGE_READY
#define TRUST ATTN_STAGE_TRUSTED
#define LOAD  ATTN_STAGE_LOADED
#define R(x)  ATTN_REASON_##x

const struct malformed_case note_cases[] = {
    {"a note of another owner", other_owner, NULL, R(NO_NOTE), TRUST, "no note of libattn", 0},
    {"a note of another type", other_type, NULL, R(NO_NOTE), TRUST, "no note of libattn", 0},
    {"an owner of 4 GiB", huge_owner, NULL, R(BAD_NOTE), TRUST, "notes of the file", 0},
    {"a description of 4 GiB", huge_description, NULL, R(BAD_NOTE), TRUST, "notes of the file", 0},
    {"a short description", short_description, NULL, R(BAD_NOTE), TRUST, "notes of the file", 0},
    {"a megabyte of notes", huge_segment, NULL, R(BAD_NOTE), TRUST, "1048576 bytes of notes", 0},
    {"a note of no format", old_format, NULL, R(BAD_NOTE), TRUST, "version 0", 0},
    {"a note of a newer format", new_format, NULL, R(ABI_TOO_NEW), TRUST, "version 2", 0},
    {"an interface of another major", new_major, NULL, R(ABI_TOO_NEW), TRUST, "1.", 0},
    {"a text without end", no_end, NULL, R(BAD_NOTE), TRUST, "version", 0},
    {"a text that colours terminals", escape, NULL, R(BAD_NOTE), TRUST, "vendor", 0},
    {"no name", no_name, NULL, R(BAD_NOTE), TRUST, "name", 0},
    {"a backend of another vendor", foreign_backend, NULL, R(BAD_NOTE), TRUST, "cuda/flash-attn", 0},
    {"device class 0", no_class, NULL, R(BAD_NOTE), TRUST, "device class is 0", 0},
    {"device class 99", any_class, NULL, R(BAD_NOTE), TRUST, "device class is 99", 0},
    {"CPU level 99", any_level, NULL, R(BAD_NOTE), TRUST, "cpu level is 99", 0},
    {"a worse class than the table's", better_class, NULL, R(NOTE_MISMATCH), LOAD, "device class 3", 0},
    {"another version than the table's", other_version, NULL, R(NOTE_MISMATCH), LOAD, "\"7.0\" in the note",
     0},
    {"a note in a segment of its own", split, NULL, 0, READY, "", 0},
    {"a note behind two headers", seen_twice, NULL, 0, READY, "", 0},
    {"two notes", two, NULL, R(BAD_NOTE), TRUST, "2 notes", 0},
    {NULL, NULL, NULL, 0, 0, NULL, 0},
};
