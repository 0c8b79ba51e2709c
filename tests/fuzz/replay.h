/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A main for fuzz targets that are built without a fuzzer: runs the files and directories given as arguments.
 */
#ifndef TESTS_FUZZ_REPLAY_H
#define TESTS_FUZZ_REPLAY_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The target gets an exact copy on the heap, so that address checkers see a read behind the end. */
static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat st;
    if (!file || fstat(fileno(file), &st) < 0) {
        fprintf(stderr, "%s: cannot be read\n", path);
        return -1;
    }
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1);
    int bad = !data || fread(data, 1, size, file) != size;
    if (!bad)
        LLVMFuzzerTestOneInput(data, size);
    free(data);
    fclose(file);
    return bad ? -1 : 1;
}

static int replay(const char *path)
{
    struct dirent *entry;
    int count = 0;
    DIR *directory = opendir(path);
    if (!directory)
        return replay_file(path);
    while ((entry = readdir(directory))) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (replay_file(name) < 0) {
            count = -1;
            break;
        }
        count++;
    }
    closedir(directory);
    return count;
}

/* Fails when there was nothing to run: a lost corpus must not look like a passed test. */
int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int count = replay(argv[i]);
        if (count < 0)
            return 1;
        total += count;
    }
    printf("%d inputs\n", total);
    return total ? 0 : 1;
}

#endif
