/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Directory entries that are no plugin files, or that may not be read or trusted. */
#define _GNU_SOURCE
#include "cases.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

static void must(int result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(99);
    }
}

static void make_text(const struct malformed *malformed, const char *text)
{
    malformed_write(malformed, CASE_FILE, text, strlen(text));
}

static void make_random(const struct malformed *malformed, const char *start)
{
    unsigned char bytes[20000];
    uint32_t seed = 4711;

    for (size_t i = 0; i < sizeof bytes; i++) {
        seed = seed * 1664525 + 1013904223;
        bytes[i] = (unsigned char)(seed >> 24);
    }
    memcpy(bytes, start, strlen(start));
    malformed_write(malformed, CASE_FILE, bytes, sizeof bytes);
}

/* A terabyte that takes no place. */
static void make_sparse(const struct malformed *malformed, const char *kind)
{
    if (kind != NULL)
        malformed_add(malformed, kind, CASE_FILE);
    else
        malformed_write(malformed, CASE_FILE, "", 0);
    must(truncate(malformed_path(malformed, CASE_FILE), (off_t)1 << 40), "truncate");
}

static void make_directory(const struct malformed *malformed, const char *unused)
{
    (void)unused;
    must(mkdir(malformed_path(malformed, CASE_FILE), 0755), "mkdir");
}

static void make_fifo(const struct malformed *malformed, const char *unused)
{
    (void)unused;
    must(mkfifo(malformed_path(malformed, CASE_FILE), 0644), "mkfifo");
}

static void make_device(const struct malformed *malformed, const char *unused)
{
    (void)unused;
    must(mknod(malformed_path(malformed, CASE_FILE), S_IFCHR | 0644, makedev(1, 5)), "mknod"); /* zero */
}

static void make_block_device(const struct malformed *malformed, const char *unused)
{
    (void)unused;
    must(mknod(malformed_path(malformed, CASE_FILE), S_IFBLK | 0644, makedev(7, 0)), "mknod");
}

static void make_socket(const struct malformed *malformed, const char *unused)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)unused;
    snprintf(address.sun_path, sizeof address.sun_path, "%.90s", malformed_path(malformed, CASE_FILE));
    must(fd, "socket");
    must(bind(fd, (const struct sockaddr *)(const void *)&address, sizeof address), "bind");
    close(fd);
}

static void make_link(const struct malformed *malformed, const char *target)
{
    must(symlink(target, malformed_path(malformed, CASE_FILE)), "symlink");
}

static void make_loop(const struct malformed *malformed, const char *unused)
{
    (void)unused;
    must(symlink("loop", malformed_path(malformed, CASE_FILE)), "symlink");
    must(symlink(CASE_FILE, malformed_path(malformed, "loop")), "symlink");
}

/* A link to an open file: its target can only be reached through the link itself. */
static void make_link_to_descriptor(const struct malformed *malformed, const char *unused)
{
    char target[64];
    int fd = memfd_create("plugin", 0);

    (void)unused;
    must(fd, "memfd_create");
    snprintf(target, sizeof target, "/proc/self/fd/%d", fd);
    make_link(malformed, target);
}

static void make_with_mode(const struct malformed *malformed, const char *mode)
{
    malformed_add(malformed, "good", CASE_FILE);
    must(chmod(malformed_path(malformed, CASE_FILE), (mode_t)strtoul(mode, NULL, 8)), "chmod");
}

static void make_foreign(const struct malformed *malformed, const char *user)
{
    malformed_add(malformed, "good", CASE_FILE);
    must(chown(malformed_path(malformed, CASE_FILE), (uid_t)atoi(user), 0), "chown");
}

/* The file is fine, the directory that a link leads into is not. */
static void make_under_mode(const struct malformed *malformed, const char *mode)
{
    must(mkdir(malformed_path(malformed, "other"), 0755), "mkdir");
    malformed_add(malformed, "good", "other/plugin");
    must(symlink("other/plugin", malformed_path(malformed, CASE_FILE)), "symlink");
    must(chmod(malformed_path(malformed, "other"), (mode_t)strtoul(mode, NULL, 8)), "chmod");
}

static void make_under_foreign(const struct malformed *malformed, const char *user)
{
    make_under_mode(malformed, "0755");
    must(chown(malformed_path(malformed, "other"), (uid_t)atoi(user), 0), "chown");
}

/* Nobody may read it; for that root must become somebody else, and the sane plugin stays root's. */
static void make_unreadable(const struct malformed *malformed, const char *user)
{
    make_with_mode(malformed, "0200");
    if (geteuid() == 0)
        must(setresuid((uid_t)atoi(user), (uid_t)atoi(user), (uid_t)atoi(user)), "setresuid");
    /* That user may have no way to the helper, which lies in a build directory. */
    must(setenv("ATTN_PROBE", "never", 1), "setenv");
}

#define FOUND ATTN_STAGE_FOUND
#define TRUST ATTN_STAGE_TRUSTED
#define READY ATTN_STAGE_READY
#define R(x)  ATTN_REASON_##x

const struct malformed_case file_cases[] = {
    {"an empty file", make_text, "", R(NOT_ELF), TRUST, "0 bytes", 0},
    {"random bytes", make_random, "", R(NOT_ELF), TRUST, "20000 bytes", 0},
    {"random bytes that begin as ELF", make_random, "\177ELF\2\1\1", R(WRONG_ARCH), TRUST, "", 0},
    {"a text", make_text, "hello\n", R(NOT_ELF), TRUST, "6 bytes", 0},
    {"a script", make_text, "#!/bin/sh\nexit 1\n", R(NOT_ELF), TRUST, "begin as an ELF file", 0},
    {"a linker script", make_text, "INPUT(libm.so.6)\n", R(NOT_ELF), TRUST, "", 0},
    {"an archive", make_text, "!<arch>\nx.o/            0           0     0     644     4         `\nxxxx",
     R(NOT_ELF), TRUST, "begin as an ELF file", 0},
    {"a compressed file", make_text, "\x1f\x8b\x08\x01\x01\x01\x01", R(NOT_ELF), TRUST,
     "begin as an ELF file", 0},
    {"a pointer of git-lfs", make_text, "version https://git-lfs.github.com/spec/v1\n", R(NOT_ELF), TRUST,
     "begin as an ELF file", 0},
    {"a program of another system", make_text, "MZ\x90\x03", R(NOT_ELF), TRUST, "begin as an ELF file", 0},
    {"a terabyte of nothing", make_sparse, NULL, R(NOT_ELF), TRUST, "1099511627776 bytes", 0},
    {"a good plugin with a terabyte behind it", make_sparse, "good", 0, READY, "", 0},
    {"a directory", make_directory, NULL, R(NOT_A_FILE), FOUND, "directory", 0},
    {"a fifo", make_fifo, NULL, R(NOT_A_FILE), FOUND, "fifo", 0},
    {"a socket", make_socket, NULL, R(NOT_A_FILE), FOUND, "socket", 0},
    {"a character device", make_device, NULL, R(NOT_A_FILE), FOUND, "device", CASE_ROOT},
    {"a block device", make_block_device, NULL, R(NOT_A_FILE), FOUND, "device", CASE_ROOT},
    {"a link to /dev/zero", make_link, "/dev/zero", R(NOT_A_FILE), FOUND, "device", 0},
    {"a link to a directory", make_link, "/usr", R(NOT_A_FILE), FOUND, "directory", 0},
    {"a link to nothing", make_link, "nothing", R(UNREADABLE), FOUND, "does not exist", 0},
    {"a link behind a file", make_link, SANE_FILE "/x", R(NOT_A_FILE), FOUND, SANE_FILE, 0},
    {"a loop of links", make_loop, NULL, R(UNREADABLE), FOUND, "symbolic links", 0},
    {"a link to the memory of the process", make_link, "/proc/self/mem", R(NOT_ELF), TRUST, "0 bytes", 0},
    {"a link to the maps of the process", make_link, "/proc/self/maps", R(NOT_ELF), TRUST, "0 bytes", 0},
    {"a link to the program of the process", make_link, "/proc/self/exe", R(NO_NOTE), TRUST, "program", 0},
    {"a link to a directory of the kernel", make_link, "/proc/self", R(NOT_A_FILE), FOUND, "directory", 0},
    {"a link to a descriptor", make_link_to_descriptor, NULL, R(UNREADABLE), FOUND, "does not exist", 0},
    {"a file that others may write", make_with_mode, "0646", R(UNTRUSTED_MODE), FOUND, "mode 0646", 0},
    {"a file that its group may write", make_with_mode, "0664", 0, READY, "", 0},
    {"a file that may not be executed", make_with_mode, "0444", 0, READY, "", 0},
    {"a file in a directory that others may write", make_under_mode, "0777", R(UNTRUSTED_MODE), FOUND,
     "/other is", 0},
    {"a file in a sticky directory", make_under_mode, "01777", 0, READY, "", 0},
    {"a file of another user", make_foreign, "4242", R(UNTRUSTED_OWNER), FOUND, "user 4242", CASE_ROOT},
    {"a file in a directory of another user", make_under_foreign, "4242", R(UNTRUSTED_OWNER), FOUND,
     "user 4242", CASE_ROOT},
    {"a file that nobody may read", make_unreadable, "65534", R(UNREADABLE), FOUND, "Permission denied", 0},
    {NULL, NULL, NULL, 0, 0, NULL, 0},
};
