/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Fuzz target for the file of a result: the input is its content. Whatever it holds, a result that is stored
 * over it is found again, and after a reset no bad one is left.
 */
#define _GNU_SOURCE
#include "directory.h"
#include "plugin/probe/probe.h"

#include <fcntl.h>

static const int64_t now = 1700000000;

static void fill(const uint8_t *data, size_t size)
{
    char name[100];
    snprintf(name, sizeof name, "%s/%.16s", fuzz_directory(), fuzz_other_key);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
}

static void check(const struct attn__result *result)
{
    FUZZ_CHECK(result->outcome >= ATTN__GOOD && result->outcome <= ATTN__EXITED);
    FUZZ_CHECK(fuzz_ends(result->step, sizeof result->step) && fuzz_ends(result->text, sizeof result->text));
    FUZZ_CHECK(result->outcome == ATTN__GOOD || (result->since <= now && result->since >= now - 24 * 3600));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct attn__result loaded, stored = {.since = now, .step = "finish"};
    const char *directory = fuzz_directory();
    fill(data, size);
    const bool there = attn__cache_load(directory, fuzz_other_key, now, &loaded);
    if (there)
        check(&loaded);
    stored.outcome = ATTN__GOOD + (uint32_t)size % 4;
    stored.number = (uint32_t)size;
    attn__cache_store(directory, fuzz_own_key, &stored);
    FUZZ_CHECK(attn__cache_load(directory, fuzz_own_key, now, &loaded));
    FUZZ_CHECK(memcmp(&loaded, &stored, sizeof loaded) == 0);
    /* What another file holds and still counts stays. */
    FUZZ_CHECK(attn__cache_load(directory, fuzz_other_key, now, &loaded) == there);
    attn__cache_reset(directory);
    FUZZ_CHECK(attn__cache_load(directory, fuzz_own_key, now, &loaded) == (stored.outcome == ATTN__GOOD));
    if (attn__cache_load(directory, fuzz_other_key, now, &loaded))
        FUZZ_CHECK(loaded.outcome == ATTN__GOOD);
    attn__cache_store(directory, fuzz_other_key, &stored);
    FUZZ_CHECK(attn__cache_load(directory, fuzz_other_key, now, &loaded));
    return 0;
}

#ifdef ATTN_FUZZ_REPLAY
#include "replay.h"
#endif
