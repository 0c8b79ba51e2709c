/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of plugin/ share, from the search path to an open plugin. */
#ifndef ATTN_PLUGIN_LOADER_H
#define ATTN_PLUGIN_LOADER_H

#include <sys/stat.h>

#include "core.h"

/* ---------------------------------------------------------------- note.c */

/* Where a refusal puts its sentence. */
struct attn__words {
    char *text;
    size_t size;
};

/* Writes the sentence and gives the reason. */
uint32_t attn__refuse(const struct attn__words *words, uint32_t reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---------------------------------------------------------------- trust.c */

/* File that holds this library's code: its path, or an empty string. */
void attn__library_path(char *path, size_t size);

/* Owners that are trusted; found out once per scan. */
struct attn__trust {
    bool elevated;
    uid_t user, library; /* root if it is not known who owns the library */
};

void attn__trust_init(struct attn__trust *trust, bool elevated);

/* A walk from the root to a file. */
struct attn__walk {
    const struct attn__trust *trust;
    const struct attn__words *words;
    struct stat status;      /* of the component that was judged last */
    uint32_t group_writable; /* whether a group may write any of them */
};

/* Judges a component by the status in the walk. 0 or a reason with words. */
uint32_t attn__trust_judge(struct attn__walk *walk, const char *path);
/*
 * Judges every component of a path from the root on, and every component of the links among them. Afterwards
 * walk->status is that of the file that the path leads to.
 */
uint32_t attn__trust_walk(struct attn__walk *walk, const char *path);

/* ---------------------------------------------------------------- note.c */

/*
 * Counts the notes of libattn among `size` bytes of notes and copies the last one's description. False if the
 * bytes are no list of notes, or if the description has another size.
 */
bool attn__note_find(const unsigned char *bytes, size_t size, size_t align, struct attn_note *out,
                     uint32_t *count);
/* 0, or BAD_NOTE, ABI_TOO_NEW, ABI_TOO_OLD, CPU_LEVEL with words. */
uint32_t attn__note_check(const struct attn_note *note, const struct attn__words *words);
/* The best enum attn_cpu_level of this machine that the operating system lets programs use. */
uint32_t attn__cpu_level(void);

/* ---------------------------------------------------------------- elfnote.c */

/* What was read of a file by pread alone. */
struct attn__elf {
    struct attn_note note;
    uint32_t notes;  /* how many of ours there were */
    uint64_t memory; /* where the last loaded segment ends */
};

/*
 * Reads headers and note of an open file. 0, or NOT_ELF, BAD_ELF, TRUNCATED, WRONG_ARCH, NO_NOTE, BAD_NOTE,
 * ABI_TOO_NEW, ABI_TOO_OLD, CPU_LEVEL with words.
 */
uint32_t attn__elf_read(int fd, uint64_t file_size, struct attn__elf *out, const struct attn__words *words);

/* ---------------------------------------------------------------- scan.c */

/* Whether both are of one file, in whatever state; zeroes are of none. */
bool attn__is_same_inode(const struct attn__identity *a, const struct attn__identity *b);

/* What a scan finds, in search order. */
struct attn__scan {
    struct attn__trust trust;
    struct attn__directory *directories; /* a missing or unreadable one has a reason */
    uint32_t directory_count;
    struct attn__plugin **plugins;
    uint32_t plugin_count;
    bool failed; /* no memory */
};

/* Begins a scan with the directories; order as in docs/operator.md. */
void attn__scan_path(struct attn__scan *scan, const struct attn__env *env, const char *option);
/* Reads every plugin file in them. */
void attn__scan_files(struct attn__scan *scan, struct attn_context *context);
void attn__scan_finish(struct attn__scan *scan);
/* True if the file behind the record is still the one that was read. */
bool attn__plugin_is_same(const struct attn__plugin *plugin, const struct stat *status);

/* ---------------------------------------------------------------- registry.c, open.c */

uint64_t attn__now(void);
/* Finds out anew which files are duplicates of others; the caller holds the lock. */
void attn__registry_resolve_duplicates(struct attn_context *context);
/* Resets the record of a file that failed, as if it was never opened; its address stays. Under the lock. */
void attn__plugin_reset(struct attn__plugin *plugin);
/* Writes stage, reason and text under the lock. */
void attn__plugin_tell(struct attn__plugin *plugin, uint32_t stage, uint32_t reason, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
