/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Gives the process a copy of a loaded image, so that nothing of it depends on its file any more. */
#define _GNU_SOURCE
#include "own-image.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "quiet.h"

/* Sanitizers watch the functions of the C library: for them the memory would begin a new life. */
#define MAP(...) ((void *)syscall(SYS_mmap, __VA_ARGS__))

/* Addresses of an image. */
struct span {
    const struct link_map *map;
    uintptr_t start, end;
};

static int find_span(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct span *span = arg;
    (void)size;
    if (info->dlpi_addr != span->map->l_addr || strcmp(info->dlpi_name, span->map->l_name) != 0)
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || p->p_memsz == 0)
            continue;
        uintptr_t start = info->dlpi_addr + p->p_vaddr, end = start + p->p_memsz;
        span->start = span->end == 0 || start < span->start ? start : span->start;
        span->end = end > span->end ? end : span->end;
    }
    return 1;
}

/* A line of /proc/self/maps. */
struct piece {
    uintptr_t start, end;
    int protection;
    struct piece *next;
};

/* The pieces of an image that are mapped from a file; first read, then changed. */
static struct piece *list_pieces(const struct span *span)
{
    char line[4352], rights[5];
    struct piece *list = NULL;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        uintptr_t start, end, page = (uintptr_t)sysconf(_SC_PAGESIZE);
        unsigned long inode;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %*x:%*x %lu", &start, &end, rights, &inode) !=
                4 ||
            start < span->start / page * page || end > (span->end + page - 1) / page * page || inode == 0 ||
            rights[0] != 'r')
            continue;
        if (strstr(line, " /memfd:") != NULL) /* another copy of this library did it before */
            break;
        struct piece *piece = malloc(sizeof *piece);
        if (piece == NULL)
            break;
        *piece = (struct piece){start, end, PROT_READ, list};
        piece->protection |= (rights[1] == 'w' ? PROT_WRITE : 0) | (rights[2] == 'x' ? PROT_EXEC : 0);
        list = piece;
    }
    if (maps != NULL)
        fclose(maps);
    return list;
}

/* The system reads the memory, and says so if there is none behind it any more. */
static bool copy_piece(const struct piece *piece, int copy)
{
    for (uintptr_t at = piece->start; at < piece->end;) {
        long count = syscall(SYS_write, copy, at, piece->end - at);
        if (count <= 0 && errno != EINTR)
            return false;
        at += count > 0 ? (uintptr_t)count : 0;
    }
    return true;
}

void attn__image_own(const struct link_map *map, int fd, const char *name)
{
    struct span span = {.map = map};
    struct attn__quiet quiet;
    off_t at = 0;
    bool good = true;
    dl_iterate_phdr(find_span, &span);
    struct piece *list = list_pieces(&span);
    int copy = list != NULL ? memfd_create(name, MFD_CLOEXEC) : -1;
    /* While a mapping of the file is left, no new file gets its number, and the linker takes none for it. */
    bool pinned = copy >= 0 && mmap(NULL, 1, PROT_NONE, MAP_PRIVATE, fd, 0) != MAP_FAILED;
    attn__quiet_begin(&quiet);
    while (list != NULL) {
        struct piece *piece = list;
        const size_t size = piece->end - piece->start;
        good = good && pinned && copy_piece(piece, copy) &&
               MAP(piece->start, size, piece->protection, MAP_PRIVATE | MAP_FIXED, copy, at) != MAP_FAILED;
        at += (off_t)size;
        list = piece->next;
        free(piece);
    }
    attn__quiet_end(&quiet);
    if (copy >= 0)
        close(copy);
}
