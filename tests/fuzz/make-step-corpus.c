/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes the seeds of fuzz-step into a directory: steps of every kind of builder, and ones with one fault.
 * Prints their names.
 */
#include "../step/fixture.h"

#include <errno.h>
#include <sys/stat.h>

unsigned long checks_failed;

static void write_file(const char *directory, const char *name, uint8_t kind, const void *data, uint64_t size)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(&kind, 1, 1, file) != 1 || fwrite(data, 1, size, file) != size ||
        fclose(file) != 0) {
        perror(path);
        exit(1);
    }
    puts(name);
}

/* A step whose builder is what fuzz-step makes of `kind`. */
static uint64_t make(uint64_t seed, uint8_t kind, char *data, uint64_t room)
{
    struct dice dice = {seed};
    struct fixture_step step;
    struct attn_error err;
    uint64_t size = 0;

    ATTN_INIT(&err);
    fixture_roll(&dice, FIXTURE_ANY, &step);
    if (step.profile || step.flavour != 1u + (kind & 3u) || step.groups != 1u + (kind >> 2 & 1u) ||
        step.apart || (step.index_dtype == ATTN_INT64) != ((kind & 8) != 0) ||
        (step.modalities > 0) != ((kind & 16) != 0) || step.cross != (kind >> 5 & 1u) || !step.chunked ||
        step.seqs > 3)
        return 0;
    for (uint32_t g = 0; g <= FIXTURE_GROUPS; g++)
        if (step.block[g] != 8 && (g < step.groups || (step.cross && g == FIXTURE_GROUPS)))
            return 0;
    struct attn_builder_impl *builder = fixture_builder(&step);
    fixture_build(builder, &step);
    if (attn_serving_builder.serialise(builder, data, room, &size, &err) != ATTN_OK)
        size = 0;
    attn_serving_builder.destroy(builder);
    return size;
}

/* One word of the header or of a record changed at a time. */
static void damage(const char *directory, uint8_t kind, char *data, uint64_t size)
{
    static const struct {
        const char *name;
        uint64_t at;
        uint32_t value;
    } faults[] = {{"magic", 0, 1},
                  {"version", 8, 2},
                  {"records-many", 12, 0xffffffff},
                  {"bytes", 16, 7},
                  {"flavour", 24, 9},
                  {"groups", 28, 0x7fffffff},
                  {"modalities", 32, 5},
                  {"index-dtype", 36, 0},
                  {"seqs-many", 40, 0xffffffff},
                  {"queries-many", 44, 99},
                  {"first-row", 48, 12},
                  {"untabled", 52, 0xffff},
                  {"block", 56, 16},
                  {"field-none", 64, 36},
                  {"field-large", 64, 0xffffffff},
                  {"field-twice", 64, 2},
                  {"index-large", 68, 64},
                  {"kind-none", 72, 0},
                  {"kind-array", 72, 4},
                  {"number-large", 104, 0x7fffffff},
                  {"number-negative", 108, 0x80000000}};
    /* The fourth record is the slot mapping. */
    static const struct {
        const char *name;
        uint64_t at;
        uint32_t value;
    } array[] = {
        {"slots-dtype", 12, 0x00012000},      {"slots-rank", 16, 2}, {"slots-shape", 24, 0x10000000},
        {"slots-shape-high", 28, 1},          {"slots-few", 24, 0},  {"slots-offset", 48, 0xfffffff8},
        {"slots-offset-high", 52, 0xffffffff}};
    char name[64];
    uint32_t kept;

    for (size_t i = 0; i < sizeof faults / sizeof faults[0] + sizeof array / sizeof array[0]; i++) {
        const size_t n = sizeof faults / sizeof faults[0];
        const uint64_t at =
            i < n ? faults[i].at : 64 + 3 * sizeof(struct attn_serialised_record) + array[i - n].at;
        snprintf(name, sizeof name, "bad-%s", i < n ? faults[i].name : array[i - n].name);
        memcpy(&kept, data + at, sizeof kept);
        memcpy(data + at, i < n ? &faults[i].value : &array[i - n].value, sizeof kept);
        write_file(directory, name, kind, data, size);
        memcpy(data + at, &kept, sizeof kept);
    }
    write_file(directory, "bad-short", kind, data, size / 2);
    write_file(directory, "bad-header", kind, data, 40);
    write_file(directory, "bad-empty", kind, data, 0);
}

int main(int argc, char **argv)
{
    static const uint8_t kinds[] = {0, 1, 2, 3, 4, 5, 8, 16, 32, 35};
    static char data[1 << 20];

    if (argc != 2 || (mkdir(argv[1], 0777) != 0 && errno != EEXIST)) {
        fprintf(stderr, "Usage: make-step-corpus DIRECTORY\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof kinds; i++) {
        uint64_t size = 0;
        char name[64];
        for (uint64_t seed = 1; size == 0 && seed < 2000000; seed++)
            size = make(seed, kinds[i], data, sizeof data);
        if (size == 0) {
            fprintf(stderr, "no step for kind %u\n", kinds[i]);
            return 1;
        }
        snprintf(name, sizeof name, "good-%u", kinds[i]);
        write_file(argv[1], name, kinds[i], data, size);
        if (kinds[i] == 0)
            damage(argv[1], kinds[i], data, size);
    }
    return 0;
}
