/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Fuzz target for the file of results: the input is its content. Whatever it holds, a result that is stored
 * over it is found again, and after a reset no bad one is left.
 */
#define _GNU_SOURCE
#include "directory.h"
#include "plugin/probe/probe.h"

#include <fcntl.h>

static const char own_key[ATTN__KEY_SIZE] = "0123456789abcdef0123456789abcdef";
static const int64_t now = 1700000000;

static void fill(const uint8_t *data, size_t size)
{
    char name[80];
    snprintf(name, sizeof name, "%s/results", fuzz_directory());
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
}

static void check(const struct attn__result *result)
{
    FUZZ_CHECK(result->outcome >= ATTN__GOOD && result->outcome <= ATTN__EXITED);
    FUZZ_CHECK(fuzz_ends(result->step, sizeof result->step) && fuzz_ends(result->text, sizeof result->text));
    FUZZ_CHECK(attn__result_counts(result, now));
}

/* The key of the first line, if there is one. */
static bool first_key(const uint8_t *data, size_t size, char key[ATTN__KEY_SIZE])
{
    const uint8_t *end = size > 0 ? memchr(data, '\n', size) : NULL;
    if (end == NULL || (size_t)(data + size - end - 1) < ATTN__KEY_SIZE - 1)
        return false;
    memcpy(key, end + 1, ATTN__KEY_SIZE - 1);
    key[ATTN__KEY_SIZE - 1] = '\0';
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char key[ATTN__KEY_SIZE];
    struct attn__probe stored = {.result = {.since = now, .step = "finish"}};
    struct attn__result loaded;
    const char *directory = fuzz_directory();
    fill(data, size);
    bool keyed = first_key(data, size, key);
    bool there = keyed && attn__cache_load(directory, key, now, &loaded);
    if (there)
        check(&loaded);
    memcpy(stored.key, own_key, sizeof own_key);
    stored.result.outcome = ATTN__GOOD + (uint32_t)size % 4;
    stored.result.number = (uint32_t)size;
    attn__cache_store(directory, &stored, 1, now);
    FUZZ_CHECK(attn__cache_load(directory, own_key, now, &loaded));
    FUZZ_CHECK(memcmp(&loaded, &stored.result, sizeof loaded) == 0);
    /* What stood there before and still counts stays. */
    if (there && strcmp(key, own_key) != 0)
        FUZZ_CHECK(attn__cache_load(directory, key, now, &loaded));
    attn__cache_reset(directory);
    FUZZ_CHECK(attn__cache_load(directory, own_key, now, &loaded) == (stored.result.outcome == ATTN__GOOD));
    if (keyed && attn__cache_load(directory, key, now, &loaded))
        FUZZ_CHECK(loaded.outcome == ATTN__GOOD);
    return 0;
}

#ifdef ATTN_FUZZ_REPLAY
#include "replay.h"
#endif
