/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Fuzz target for what the host reads from the child that probes a plugin: code of the plugin runs there and
 * may write anything into the result. Built with the file itself, whose reader is no function of the library.
 */
#include "../../core/plugin/probe/probe.c"

#include "directory.h"

static void check_texts(const struct attn__result *result)
{
    FUZZ_CHECK(fuzz_ends(result->step, sizeof result->step));
    FUZZ_CHECK(fuzz_ends(result->text, sizeof result->text));
    FUZZ_CHECK(result->outcome <= ATTN__UNAVAILABLE);
    for (const char *p = result->text; *p != '\0'; p++)
        FUZZ_CHECK((unsigned char)*p >= 0x20 && *p != 0x7f);
}

/* A result that is kept says the same when it is read again. */
static void check_kept(const struct attn__result *result)
{
    const char *directory = fuzz_directory();
    struct attn__result again;
    attn__cache_store(directory, fuzz_own_key, result);
    const bool keeps = result->outcome >= ATTN__GOOD && result->outcome <= ATTN__EXITED;
    const bool kept = attn__cache_load(directory, fuzz_own_key, result->since, &again);
    FUZZ_CHECK(!keeps || kept);
    if (keeps) {
        FUZZ_CHECK(again.outcome == result->outcome && again.number == result->number);
        FUZZ_CHECK(strcmp(again.step, result->step) == 0 && strcmp(again.text, result->text) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct attn__result result = {.since = 1700000000};
    int ends[2];
    FUZZ_CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    const size_t sent = size < 4096 ? size : 4096;
    FUZZ_CHECK(write(ends[1], data, sent) == (ssize_t)sent);
    close(ends[1]);
    FUZZ_CHECK(
        listen_to(ends[0], attn__now() + ATTN__PROBE_DEADLINE_NS, &result)); /* a closed pipe ends it */
    close(ends[0]);
    FUZZ_CHECK(result.since == 1700000000);
    check_texts(&result);
    check_kept(&result);
    return 0;
}

#ifdef ATTN_FUZZ_REPLAY
#include "replay.h"
#endif
