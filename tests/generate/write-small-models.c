/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes whisper.gguf and a silent clip.wav into a directory. Usage: write-small-models DIRECTORY */
#include "small-whisper.h"

#include <stdio.h>
#include <stdlib.h>

static int write_file(const char *directory, const char *name, const void *data, size_t size)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    int good = file && data && fwrite(data, 1, size, file) == size;
    if (file && fclose(file) != 0)
        good = 0;
    if (!good)
        fprintf(stderr, "%s cannot be written\n", path);
    return good;
}

int main(int argc, char **argv)
{
    size_t whisper_size = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: write-small-models DIRECTORY\n");
        return 2;
    }
    uint8_t *whisper = small_whisper_build(&(struct small_whisper){0}, &whisper_size);
    int good = write_file(argv[1], "whisper.gguf", whisper, whisper_size) &&
               write_file(argv[1], "clip.wav", small_clip, sizeof small_clip);
    free(whisper);
    return good ? 0 : 1;
}
