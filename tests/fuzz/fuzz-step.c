/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Fuzz target for steps as bytes. The first byte says what kind of builder reads the rest. What is refused
 * names a field; what is accepted can be read, taken apart, advanced, and written as bytes that give
 * themselves again.
 */
#include "../step/fixture.h"
#include "fuzz.h"

unsigned long checks_failed;

/* The builder of a kind: flavour, groups, modalities, cross-attention. */
static struct fixture_step describe(uint8_t kind)
{
    struct fixture_step step;

    memset(&step, 0, sizeof step);
    step.flavour = 1 + (kind & 3u);
    step.groups = 1 + (kind >> 2 & 1u);
    step.index_dtype = (kind & 8) != 0 ? ATTN_INT64 : ATTN_INT32;
    step.modalities = (kind & 16) != 0 ? FIXTURE_MODALITY : 0;
    step.cross = (kind & 32) != 0 && (step.flavour == ATTN_FLASH_ATTN || step.flavour == ATTN_XFORMERS);
    step.chunked = 1;
    for (uint32_t g = 0; g <= FIXTURE_GROUPS; g++)
        step.block[g] = 8;
    return step;
}

static uint64_t write_step(struct attn_builder_impl *builder, char **out)
{
    struct attn_error err;
    uint64_t size = 0, again = 0;

    ATTN_INIT(&err);
    FUZZ_CHECK(attn_serving_builder.serialise(builder, NULL, 0, &size, &err) == ATTN_E_SIZE);
    *out = malloc(size);
    FUZZ_CHECK(*out != NULL);
    FUZZ_CHECK(attn_serving_builder.serialise(builder, *out, size, &again, &err) == ATTN_OK && again == size);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct attn_builder_impl *builders[64];
    char *first = NULL, *second = NULL;

    if (size == 0)
        return 0;
    const struct fixture_step step = describe(data[0]);
    struct attn_builder_impl **builder = &builders[data[0] & 63];
    if (*builder == NULL)
        *builder = fixture_builder(&step);
    struct attn_metadata_impl *whole = fixture_restore(*builder, data + 1, size - 1, 0);
    FUZZ_CHECK(checks_failed == 0);
    if (whole == NULL)
        return 0;
    const uint64_t bytes = write_step(*builder, &first);
    whole = fixture_restore(*builder, first, bytes, 0);
    FUZZ_CHECK(whole != NULL);
    FUZZ_CHECK(write_step(*builder, &second) == bytes && memcmp(first, second, bytes) == 0);
    fixture_use(&step, *builder, whole);
    free(first);
    free(second);
    return 0;
}

#ifdef ATTN_FUZZ_REPLAY
#include "replay.h"
#endif
