/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Schedules of the CUDA plugin on the fake driver: all layer classes of a step are planned by one launch, and
 * the device writes the bytes that the host writes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "plan-fixture.h"

#define ALL UINT64_MAX

static unsigned char *room_for(const struct fixture *fixture)
{
    unsigned char *room = malloc(fixture_bytes(fixture) + 1);

    if (room == NULL)
        exit(1);
    return room;
}

/* Calls of the driver that planning a step takes. */
struct counts {
    uint64_t launches, copies;
};

static struct counts count(const struct fixture *fixture)
{
    const struct fake *fake = fixture->world->fake;

    return (struct counts){fake->calls_of("cuLaunchKernel"), fake->calls_of("cuMemcpyHtoDAsync")};
}

/* Plans a step; whether it took so many calls. */
static bool takes(struct fixture *fixture, uint64_t hosts, unsigned char *out, uint64_t launches,
                  uint64_t copies)
{
    const struct counts before = count(fixture);
    const int32_t status = fixture_plan(fixture, hosts, out);
    const struct counts after = count(fixture);
    const bool good = status == ATTN_OK && after.launches - before.launches == launches &&
                      after.copies - before.copies == copies;

    if (!good)
        printf("# status %d, %llu launches, %llu copies\n", status,
               (unsigned long long)(after.launches - before.launches),
               (unsigned long long)(after.copies - before.copies));
    return good;
}

/* ---------------------------------------------------------------- numbers */

/* The first sums of a schedule that begins at a byte. */
static bool starts(const unsigned char *schedule, uint64_t offset, const uint64_t *sums, uint32_t count)
{
    uint64_t found[16];
    bool good = true;

    memcpy(found, schedule + offset, count * sizeof *found);
    for (uint32_t i = 0; i < count; i++)
        good = good && found[i] == sums[i];
    for (uint32_t i = 0; i < count && !good; i++)
        printf("# [%u] %llu\n", i, (unsigned long long)found[i]);
    return good;
}

/* These are all. */
static bool holds(const unsigned char *schedule, uint64_t offset, const uint64_t *sums, uint32_t count)
{
    const uint64_t rubbish = UINT64_C(0x0101010101010101) * FIXTURE_RUBBISH;

    return starts(schedule, offset, sums, count) &&
           memcmp(schedule + offset + count * sizeof *sums, &rubbish, sizeof rubbish) == 0;
}

/* Four sequences, told; `q_len` of the third. */
static void tell(struct fixture *fixture, struct fixture_class *own, uint32_t q_len, uint32_t max_q)
{
    fixture_add_sequence(own, 1, 64, true);
    fixture_add_sequence(own, 2, 130, true);
    fixture_add_sequence(own, q_len, 300, true);
    fixture_add_sequence(own, 1, 0, true);
    fixture_set_batch(fixture, own, max_q);
}

/* Four sequences, of which one has no query and the others the same number of KV tiles. */
static void tell_same(struct fixture *fixture, struct fixture_class *own)
{
    fixture_add_sequence(own, 1, 130, true);
    fixture_add_sequence(own, 0, 300, true);
    fixture_add_sequence(own, 16, 190, true);
    fixture_add_sequence(own, 2, 140, true);
    fixture_set_batch(fixture, own, 16);
}

/* Tiles of 64 keys, tiles of 128 rows; rows of an MLA cache are cut by 64. */
static void test_numbers(struct world *world)
{
    static const uint64_t keys[] = {0, 1, 4, 4, 5}, rows[] = {0, 0, 0, 4, 4};
    static const uint64_t keys_few[] = {0, 1, 4, 9, 10}, no_rows[] = {0, 0, 0, 0, 0};
    /* The last number: KV tiles of each row tile, if these are the same for all. */
    static const uint64_t mla[] = {0, 1, 4, 9, 10, 0}, mla_same[] = {0, 3, 3, 6, 9, 3};
    const uint64_t second = ((FIXTURE_SEQS + 1) * 8 + 255) / 256 * 256;
    struct attn_problem p;
    unsigned char *out;
    struct fixture fixture;

    for (uint32_t host = 0; host < 2; host++) {
        const uint64_t hosts = host != 0 ? ALL : 0;
        const char *by = host != 0 ? "by the host" : "by the device";
        char text[96];
        fixture_begin(&fixture, world, 1);
        p = fixture_problem(FIXTURE_Q_LEN);
        tell(&fixture, fixture_add(&fixture, &p), 100, 100);
        out = room_for(&fixture);
        snprintf(text, sizeof text, "sums of key tiles and of row tiles, %s", by);
        check(world,
              fixture_plan(&fixture, hosts, out) == ATTN_OK && holds(out, 0, keys, 5) &&
                  holds(out, second, rows, 5),
              text);
        tell(&fixture, fixture_add(&fixture, &p), 16, 16);
        free(out);
        fixture.step[0] = fixture.step[1];
        fixture.count = 1;
        out = room_for(&fixture);
        snprintf(text, sizeof text, "a step without prefill has none of these, %s", by);
        check(world,
              fixture_plan(&fixture, hosts, out) == ATTN_OK && holds(out, 0, keys_few, 5) &&
                  holds(out, second, no_rows, 5),
              text);
        free(out);
        p.mla = p.kv_heads = 1;
        p.heads = 4;
        p.head_dim = 576;
        p.head_dim_vo = 512;
        tell(&fixture, fixture_add(&fixture, &p), 16, 16);
        fixture.step[0] = fixture.step[1];
        fixture.count = 1;
        out = room_for(&fixture);
        snprintf(text, sizeof text, "sums of tiles of an MLA cache, %s", by);
        check(world, fixture_plan(&fixture, hosts, out) == ATTN_OK && holds(out, 0, mla, 6), text);
        free(out);
        tell_same(&fixture, fixture_add(&fixture, &p));
        fixture.step[0] = fixture.step[1];
        fixture.count = 1;
        out = room_for(&fixture);
        snprintf(text, sizeof text, "row tiles of as many tiles each, %s", by);
        check(world, fixture_plan(&fixture, hosts, out) == ATTN_OK && holds(out, 0, mla_same, 6), text);
        free(out);
        fixture_end(&fixture);
        check_clean(world, "nothing is left");
    }
}

#ifndef FIBER_WITHOUT_WGMMA
/*
 * A step over 8-bit keys: a sequence of 400 rows has its keys converted, in pages of 64 tokens, and one of 80
 * rows has not. Where the workspace, of 8,190 such pages, does not hold all, none has; that of a device with
 * 64 GB has twice as many.
 */
static void test_converted(struct world *world)
{
    enum { MANY = 200, LONG = 2700 };
    static const uint64_t converted[] = {0, 0, 4, 4}, others[] = {0, 0, 0, 1}, none[] = {0, 0, 0, 0};
    static const uint64_t all[] = {0, 0, 4, 5};
    static const int32_t pages[] = {0, 0, 5, 5}, no_pages[] = {0, 0, 0, 0};
    const uint64_t sums = ((FIXTURE_SEQS + 1) * 8 + 255) / 256 * 256, first = 2 * sums,
                   last = first + ((FIXTURE_SEQS + 1) * 4 + 255) / 256 * 256;
    unsigned char *out;
    struct fixture fixture;

    for (uint32_t i = 0; i < 6; i++) {
        const bool host = i % 2 != 0, few = i < 2, large = i >= 4, fits = few || large;
        char text[128];
        fixture_begin_with(&fixture, world, 1, large ? UINT64_C(64) << 30 : 0);
        struct attn_problem p = fixture_problem(FIXTURE_Q_LEN);
        p.k_dtype = p.v_dtype = ATTN_E4M3;
        p.k_scale = p.v_scale = ATTN_SCALES_UNIT;
        struct fixture_class *own = fixture_add(&fixture, &p);
        fixture_add_sequence(own, 1, 64, true);
        fixture_add_sequence(own, 100, 300, true);
        fixture_add_sequence(own, 20, 300, true);
        for (uint32_t k = 0; k < MANY && !few; k++)
            fixture_add_sequence(own, 100, LONG, true);
        fixture_set_batch(&fixture, own, 100);
        out = room_for(&fixture);
        const bool planned = fixture_plan(&fixture, host ? ALL : 0, out) == ATTN_OK;
        snprintf(text, sizeof text, "keys of long prefills are converted if all fit: %s, by the %s",
                 few     ? "they do"
                 : large ? "they do on a larger device"
                         : "they do not",
                 host ? "host" : "device");
        check(world,
              planned && starts(out, sums, fits ? converted : none, 4) &&
                  memcmp(out + first, fits ? pages : no_pages, sizeof pages) == 0 &&
                  starts(out, last, fits ? others : all, 4),
              text);
        free(out);
        fixture_end(&fixture);
        check_clean(world, "nothing is left");
    }
}

#endif

/* ---------------------------------------------------------------- calls */

/* Steps of up to six classes with rules and lengths of their own. */
static void test_random(struct world *world)
{
    enum { STEPS = 60, MOST = 6 };
    uint32_t classes = 0, mla = 0, empty = 0;
    bool same = true, once = true;
    char text[96];

    for (uint32_t step = 0; step < STEPS && same && once; step++) {
        struct fixture fixture;
        fixture_begin(&fixture, world, step);
        for (uint32_t n = 1 + fixture_draw(&fixture, MOST); n > 0; n--) {
            const struct attn_problem p = fixture_draw_problem(&fixture);
            struct fixture_class *own = fixture_add(&fixture, &p);
            fixture_draw_batch(&fixture, own);
            classes++;
            mla += p.mla;
            empty += p.mla == 0 && own->batch.max_q * 4 <= 64;
        }
        unsigned char *host = room_for(&fixture), *device = room_for(&fixture);
        once = takes(&fixture, ALL, host, 0, 1) && takes(&fixture, 0, device, 1, 0);
        same = memcmp(host, device, fixture_bytes(&fixture)) == 0;
        if (!same || !once)
            printf("# step %u\n", step);
        free(host);
        free(device);
        fixture_end(&fixture);
    }
    snprintf(text, sizeof text, "%u classes of %u steps: one launch, or one copy, a step", classes, STEPS);
    check(world, once, text);
    snprintf(text, sizeof text, "the same bytes both ways; %u MLA, %u without prefill", mla, empty);
    check(world, same && mla > 0 && empty > 0, text);
    check_clean(world, "nothing is left");
}

/* ---------------------------------------------------------------- shared pages */

/* Sequences that begin with the same pages, but where one of them has another page, or an invalid one; what
 * they have in common. */
static uint32_t draw_prefix(struct fixture *fixture, struct fixture_class *own)
{
    const uint32_t seqs = fixture_draw(fixture, 4) == 0 ? FIXTURE_SEQS - 1 : 1 + fixture_draw(fixture, 60);
    const uint32_t width = FIXTURE_ENTRIES / seqs < 700 ? FIXTURE_ENTRIES / seqs : 700;
    const uint32_t common = fixture_draw(fixture, width), spoilt = fixture_draw(fixture, width);
    const uint32_t spoiler = fixture_draw(fixture, 2 * seqs), stride = width + fixture_draw(fixture, 2);
    uint32_t live = 0, least = common;

    for (uint32_t i = 0; i < seqs; i++) {
        const uint32_t q_len = fixture_draw(fixture, 6) == 0 ? 0 : 1 + fixture_draw(fixture, 3);
        const uint32_t keys = fixture_draw(fixture, 9) == 0 ? fixture_draw(fixture, common + 1) : width;
        const uint32_t before = keys > q_len ? keys - q_len : 0;
        fixture_add_sequence(own, q_len, keys, true);
        own->arrays.indptr[i] = (int32_t)(i * (stride <= FIXTURE_ENTRIES / seqs ? stride : width));
        for (uint32_t j = 0; j < width; j++) {
            const uint32_t at = (uint32_t)own->arrays.indptr[i] + j;
            own->arrays.entries[at] = (int32_t)(j < common ? j : 1000 + i * width + j);
            if (i == spoiler && j == spoilt)
                own->arrays.entries[at] = fixture_draw(fixture, 2) == 0 ? -1 : 999;
            own->arrays.wide[at] = own->arrays.entries[at];
        }
        if (q_len == 0)
            continue;
        live++;
        least = before < least ? before : least;
        least = i == spoiler && spoilt < least ? spoilt : least;
    }
    own->batch.table_stride = 4 * (int64_t)(own->arrays.indptr[seqs > 1]);
    own->batch.table_width = width;
    own->batch.cascade = 1;
    return live > 1 ? least : 0;
}

/* The prefix of a step, in pages of one token, is found by both sides alike, and schedules of both halves
 * too. */
static void test_cascade(struct world *world)
{
    enum { STEPS = 60 };
    uint32_t found = 0, none = 0;
    bool same = true, right = true;
    char text[96];

    for (uint32_t step = 0; step < STEPS && same && right; step++) {
        struct attn_problem p = fixture_problem(4);
        struct attn_plan_info info;
        struct fixture fixture;
        int32_t arrays[5];
        fixture_begin(&fixture, world, step);
        p.addressing = step % 3 == 0 ? ATTN_TABLE : ATTN_CSR;
        p.index_dtype = step % 3 == 1 ? ATTN_INT32 : ATTN_INT64;
        p.block = 1;
        p.cascade = FIXTURE_SEQS * FIXTURE_Q_LEN;
        struct fixture_class *own = fixture_add(&fixture, &p);
        const uint32_t wanted = draw_prefix(&fixture, own);
        fixture_set_batch(&fixture, own, 4);
        unsigned char *host = room_for(&fixture), *device = room_for(&fixture);
        ATTN_INIT(&info);
        same = takes(&fixture, ALL, host, 0, 1) && takes(&fixture, 0, device, 2, 0) &&
               memcmp(host, device, fixture_bytes(&fixture)) == 0;
        memcpy(arrays, device, sizeof arrays);
        right = arrays[0] == 0 && arrays[1] == (int32_t)own->batch.num_tokens &&
                arrays[2] == (int32_t)wanted && arrays[4] - arrays[3] == (int32_t)wanted &&
                world->table->plan->describe(own->plan, &info) == ATTN_OK && info.cascade == 1;
        if (!same || !right)
            printf("# step %u: %d keys, wanted %u\n", step, arrays[2], wanted);
        found += wanted > 0;
        none += wanted == 0;
        free(host);
        free(device);
        fixture_end(&fixture);
    }
    snprintf(text, sizeof text, "%u steps begin with the same pages, %u do not, the same bytes both ways",
             found, none);
    check(world, same && right && found > STEPS / 2 && none > 0, text);
    check_clean(world, "nothing is left");
}

/* What decides which keys a row sees by its place, or wants the same bits whoever is beside it, has no
 * cascade. */
static void test_no_cascade(struct world *world)
{
    struct attn_problem problems[9];
    struct attn_plan_info info;
    struct fixture fixture;
    bool none = true;

    fixture_begin(&fixture, world, 1);
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        problems[i] = fixture_problem(4);
        problems[i].addressing = ATTN_TABLE;
        problems[i].block = 16;
        problems[i].cascade = 4;
    }
    problems[0].cascade = 0;
    problems[1].addressing = ATTN_DENSE;
    problems[2].window_left = 100;
    problems[2].given |= ATTN_GIVEN_WINDOW_LEFT;
    problems[3].alibi = ATTN_ALIBI_KEY;
    problems[4].positions = 1;
    problems[5].det = 1;
    problems[6].mask = ATTN_MASK_BITS;
    problems[7].align = ATTN_ALIGN_START;
    problems[8].kv_source = ATTN_KV_NEW;
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        const struct fixture_class *own = fixture_add(&fixture, &problems[i]);
        ATTN_INIT(&info);
        if (world->table->plan->describe(own->plan, &info) != ATTN_OK || info.cascade != 0) {
            printf("# problem %zu\n", i);
            none = false;
        }
    }
    check(world, none, "problems without cascade");
    fixture_end(&fixture);
    check_clean(world, "nothing is left");
}

/* More schedules than a launch plans; those of problems that never prefill are one each. */
static void test_many(struct world *world)
{
    static const struct {
        uint32_t max_q, classes, launches;
    } cases[] = {{FIXTURE_Q_LEN, GPU_PLAN_JOBS / 2, 1},
                 {FIXTURE_Q_LEN, GPU_PLAN_JOBS / 2 + 1, 2},
                 {1, GPU_PLAN_JOBS, 1},
                 {1, GPU_PLAN_JOBS + 1, 2}};
    char text[96];

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const struct attn_problem p = fixture_problem(cases[k].max_q);
        struct fixture fixture;
        fixture_begin(&fixture, world, k);
        struct fixture_class *own = fixture_add(&fixture, &p);
        fixture_draw_batch(&fixture, own);
        while (fixture.count < cases[k].classes)
            fixture.step[fixture.count++] = own;
        unsigned char *host = room_for(&fixture), *device = room_for(&fixture);
        snprintf(text, sizeof text, "%u classes of up to %u queries: launches %u", cases[k].classes,
                 cases[k].max_q, cases[k].launches);
        check(world,
              takes(&fixture, ALL, host, 0, 1) && takes(&fixture, 0, device, cases[k].launches, 0) &&
                  memcmp(host, device, fixture_bytes(&fixture)) == 0,
              text);
        free(host);
        free(device);
        fixture_end(&fixture);
    }
    check_clean(world, "nothing is left");
}

/* Classes with host copies and others in one call; a launch that fails is told. */
static void test_mixed(struct world *world)
{
    const struct attn_problem p = fixture_problem(FIXTURE_Q_LEN);
    struct fixture fixture;

    fixture_begin(&fixture, world, 11);
    for (uint32_t i = 0; i < 5; i++)
        fixture_draw_batch(&fixture, fixture_add(&fixture, &p));
    unsigned char *host = room_for(&fixture), *mixed = room_for(&fixture);
    check(world,
          takes(&fixture, ALL, host, 0, 1) && takes(&fixture, 0x13, mixed, 1, 2) &&
              memcmp(host, mixed, fixture_bytes(&fixture)) == 0,
          "some by the host, some by the device: a copy for those that are neighbours, one launch");
    world->fake->fail(world->fake->calls() + 5, GPU_OUT_OF_MEMORY); /* room: 3, push, launch */
    check(world,
          fixture_plan(&fixture, 0, mixed) == ATTN_E_MEMORY &&
              strcmp(world->fake->failed(), "cuLaunchKernel") == 0 &&
              strstr(world->err.message, "gpu_plan") != NULL,
          "a launch that fails is told");
    free(host);
    free(mixed);
    fixture_end(&fixture);
    check_clean(world, "nothing is left");
}

static const struct attn_backend_table *find_table(struct world *world, const char *name)
{
    const struct attn_backend_table *const *tables;
    uint32_t count = 0;

    if (world->plugin->get_backends(world->instance, &tables, &count, &world->err) == ATTN_OK)
        for (uint32_t i = 0; i < count; i++)
            if (strcmp(tables[i]->name, name) == 0)
                return tables[i];
    printf("Bail out! no %s\n", name);
    exit(1);
}

/* Whether plans of a backend have these kernels, under the option's value. */
static bool has_kernels(struct world *world, const char *name, const char *value, const char *kernels)
{
    static const struct fake_machine machine = {.devices = 1, .major = 9, .minor = 0, .version = 12080};
    const struct attn_problem p = fixture_problem(FIXTURE_Q_LEN);
    const struct attn_device device = device_of(world, 0);
    struct attn_open_config config;
    struct attn_plan_info info;
    struct attn_backend_impl *backend = NULL;
    struct attn_plan_impl *plan = NULL;

    ATTN_INIT(&config);
    ATTN_INIT(&info);
    world->tensor_cores = value;
    world_begin(world, &machine);
    const struct attn_backend_table *table = find_table(world, name);
    int32_t status = table->open(world->instance, &device, &config, &backend, &world->err);
    if (status == ATTN_OK)
        status = table->plan->create(backend, &p, &plan, &world->err);
    const bool same = status == ATTN_OK && table->plan->describe(plan, &info) == ATTN_OK &&
                      strcmp(info.kernels, kernels) == 0;
    if (plan != NULL)
        table->plan->destroy(plan);
    table->close(backend);
    world_end(world);
    return same;
}

/* A plan takes the kernels that the query named, and only flavour flashinfer has a choice. */
static void test_tensor_cores(struct world *world)
{
    static const char best[] = "decode_mma_bf16,prefill_mma_bf16",
                      exact[] = "attn_reference,prefill_mma_bf16";

    check(world, has_kernels(world, "cuda/flashinfer", NULL, best),
          "decode is on tensor cores where nothing is said");
    check(world, has_kernels(world, "cuda/flashinfer", "auto", best), "and with auto");
    check(world, has_kernels(world, "cuda/flashinfer", "on", best), "and with on");
    check(world, has_kernels(world, "cuda/flashinfer", "off", exact), "not with off");
    check(world, has_kernels(world, "cuda/flash-attn", "off", best), "which is none of cuda/flash-attn's");
    check(world,
          !has_kernels(world, "cuda/flashinfer", "yes", best) && world->err.status == ATTN_E_INVALID &&
              world->err.reason == ATTN_REASON_OPTION && strstr(world->err.message, "\"yes\"") != NULL,
          "another value is an error");
    world->tensor_cores = NULL;
    check_clean(world, "nothing is left");
}

int main(int argc, char **argv)
{
    static void (*const parts[])(struct world *) = {test_numbers,
#ifndef FIBER_WITHOUT_WGMMA /* keys are converted where warp groups multiply them */
                                                    test_converted,
#endif
                                                    test_random,    test_cascade, test_no_cascade,
                                                    test_many,      test_mixed,   test_tensor_cores};

    return world_main(argc, argv, parts, sizeof parts / sizeof parts[0]);
}
