/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Protection against files that are written in place. Memory that the linker maps is the file: who cuts it
 * takes the code away under the host, which dies of SIGBUS. So writers are held off while a plugin is loaded,
 * and afterwards the process has a copy of its own.
 */
#ifndef ATTN_OWN_IMAGE_H
#define ATTN_OWN_IMAGE_H

#include <link.h>
#include <stdbool.h>

/* What is held of a file. */
struct attn__hold {
    int fd;
    bool leased;
    bool blocked, pending; /* the signal that tells of writers, before */
};

/*
 * Makes writers of an open file wait until the release, where the system lets this process do so: its own
 * files, on most local file systems. Everything between the two is done by one thread. False if somebody has
 * the file open for writing.
 */
bool attn__hold_file(struct attn__hold *hold, int fd);
void attn__release_file(struct attn__hold *hold);

/*
 * Replaces what an image has of its file by a copy, piece by piece and in place; `fd` is that file. What the
 * system does not allow stays as it is. `name` is what the memory is called in /proc/self/maps.
 */
void attn__image_own(const struct link_map *map, int fd, const char *name);

#endif
