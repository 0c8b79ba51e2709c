/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Fuzz target for the readers of plugin files: the input is a file, and a list of notes too. Versions in the
 * note are brought up to date, so that the corpus does not age with the interface.
 */
#define _GNU_SOURCE
#include "fuzz.h"
#include "plugin/loader.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

static int plugin_file = -1;

/* The corpus is written for one machine and runs on all. */
static void set_machine(const uint8_t *data, size_t size)
{
#if defined(__aarch64__)
    static const uint8_t own[] = {EM_AARCH64, 0};
#else
    static const uint8_t own[] = {EM_X86_64, 0};
#endif
    if (size >= 20 && data[18] == EM_X86_64 && data[19] == 0)
        FUZZ_CHECK(pwrite(plugin_file, own, sizeof own, 18) == (ssize_t)sizeof own);
}

static void fill(const uint8_t *data, size_t size)
{
    if (plugin_file < 0)
        plugin_file = memfd_create("plugin", MFD_CLOEXEC);
    FUZZ_CHECK(plugin_file >= 0 && ftruncate(plugin_file, 0) == 0 &&
               pwrite(plugin_file, data, size, 0) == (ssize_t)size);
    set_machine(data, size);
}

/* Whatever the record of a file shows must be a text. */
static void check_texts(const struct attn_note *note)
{
    FUZZ_CHECK(fuzz_ends(note->name, sizeof note->name) && note->name[0] != '\0');
    FUZZ_CHECK(fuzz_ends(note->vendor, sizeof note->vendor) &&
               fuzz_ends(note->version, sizeof note->version));
    FUZZ_CHECK(fuzz_ends(note->backends, sizeof note->backends));
}

static void check_again(struct attn_note note)
{
    char text[320] = "";
    note.note_version = ATTN_NOTE_VERSION;
    note.abi_major = ATTN_ABI_MAJOR;
    note.abi_minor = ATTN_ABI_MINOR;
    const struct attn__words words = {text, sizeof text};
    uint32_t reason = attn__note_check(&note, &words);
    FUZZ_CHECK(fuzz_ends(text, sizeof text) && (reason == 0) == (text[0] == '\0'));
    if (reason == 0)
        check_texts(&note);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct attn__elf elf;
    struct attn_note note;
    char text[320];
    uint32_t count = 0;
    fill(data, size);
    const struct attn__words words = {text, sizeof text};
    uint32_t reason = attn__elf_read(plugin_file, size, &elf, &words);
    FUZZ_CHECK(fuzz_ends(text, sizeof text) && (reason == 0) == (text[0] == '\0'));
    FUZZ_CHECK(reason == 0 || strcmp(attn_reason_name(reason), "UNKNOWN") != 0);
    if (elf.note.name[0] != '\0') {
        check_texts(&elf.note);
        check_again(elf.note);
    }
    FUZZ_CHECK(reason != 0 || elf.notes == 1);
    for (size_t align = 4; align <= 8; align += 4)
        if (attn__note_find(data, size, align, &note, &count) && count > 0)
            check_again(note);
    return 0;
}

#ifdef ATTN_FUZZ_REPLAY
#include "replay.h"
#endif
