/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A GPU plugin's host code on the fake driver: machines, contexts, losses, and a failure of every call. */
#include <stdio.h>

#include "world.h"

static const struct fake_machine good = {.devices = 2, .major = 9, .minor = 0, .version = 13000};

static uint32_t query(struct world *world, const struct attn_device *device, struct attn_reason *reason)
{
    struct attn_query out = {.struct_size = sizeof out, .reasons = reason, .reason_capacity = 1};
    struct attn_problem problem = world_problem(ATTN_BF16, 8, 2, 128);

    memset(reason, 0, sizeof *reason);
    problem.graph = ATTN_GRAPH_ALWAYS;
    world->table->query(world->instance, device, &problem, &out);
    return out.accepted;
}

/* How many devices there are, and with what status. */
static int32_t count_devices(struct world *world, uint32_t *out_count)
{
    struct attn_device_info infos[4];

    return world->plugin->get_devices(world->instance, infos, 4, out_count, &world->err);
}

/* ---------------------------------------------------------------- machines */

static void test_absent(struct world *world)
{
    const char *fake = world->library;
    struct attn_reason reason;
    uint32_t count = 7;

    world->library = "/nonexistent/libdriver.so.1";
    world_begin(world, &good);
    int32_t first = count_devices(world, &count);
    check(world,
          first == ATTN_E_DEVICE && count == 0 && world->err.reason == ATTN_REASON_NO_DRIVER &&
              strstr(world->err.message, "/nonexistent/libdriver.so.1") != NULL,
          "without a driver: NO_DRIVER, with the file");
    check(world, count_devices(world, &count) == first && world->err.reason == ATTN_REASON_NO_DRIVER,
          "the same answer again");
    check(world, query(world, NULL, &reason) == 1, "a query without a device needs no driver");
    world_end(world);
    world->library = fake;
}

static void test_machines(struct world *world)
{
    static const struct {
        struct fake_machine machine;
        int32_t status;
        uint32_t reason, count;
        const char *what;
    } machines[] = {
        {{.devices = 2, .major = 9, .version = 13000}, ATTN_OK, 0, 2, "two devices"},
        {{.devices = 2, .major = 9, .version = 13000, .no_lookup = true},
         ATTN_OK,
         0,
         2,
         "a driver without cuGetProcAddress"},
        {{.devices = 0, .version = 13000}, ATTN_OK, 0, 0, "no device"},
        {{.version = 13000, .init = GPU_NO_DEVICE}, ATTN_OK, 0, 0, "a driver that says NO_DEVICE"},
        {{.devices = 1, .major = 9, .version = 11040},
         ATTN_E_DEVICE,
         ATTN_REASON_NO_DRIVER,
         0,
         "a driver that is too old"},
        {{.devices = 1, .version = 13000, .init = 803},
         ATTN_E_DEVICE,
         ATTN_REASON_NO_DRIVER,
         0,
         "a driver that does not start"},
    };

    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        uint32_t count = 7;
        if (machines[i].machine.version < 12000 && !world->vendor->contexts)
            continue; /* the driver's version is CUDA's affair */
        world->err.reason = 0;
        world_begin(world, &machines[i].machine);
        int32_t status = count_devices(world, &count);
        check(world,
              status == machines[i].status && count == machines[i].count &&
                  world->err.reason == machines[i].reason,
              machines[i].what);
        world_end(world);
        check_clean(world, "and nothing is left");
    }
}

static void test_devices(struct world *world)
{
    const struct fake_machine old = {.devices = 1, .major = 7, .minor = 5, .version = 13000};
    const struct attn_device first = device_of(world, 0), second = device_of(world, 1),
                             none = device_of(world, 2);
    struct attn_device_info infos[2];
    struct attn_reason reason;
    struct job job;
    uint32_t count;

    world_begin(world, &good);
    world->plugin->get_devices(world->instance, infos, 2, &count, &world->err);
    check(world,
          infos[1].device.ordinal == 1 && strcmp(infos[1].arch, world->vendor->arch) == 0 &&
              strcmp(infos[1].name, "Fake GPU 1") == 0 && infos[1].units == 4 &&
              infos[1].memory_bytes == (uint64_t)1 << 30,
          "a device is described");
    check(world, query(world, &first, &reason) == 1 && query(world, &second, &reason) == 1, "both serve");
    check(world, query(world, &none, &reason) == 0 && reason.code == ATTN_REASON_DEVICE,
          "a third one is refused: DEVICE");
    world_end(world);
    world_pose(world, true);
    world_begin(world, &old);
    check(world, count_devices(world, &count) == ATTN_OK && count == 1, "an old device is listed");
    check(world, query(world, &first, &reason) == 0 && reason.code == ATTN_REASON_DEVICE_ARCH,
          "and refused: DEVICE_ARCH");
    check(world, job_init(&job, world, 0, NULL) == ATTN_E_UNSUPPORTED, "nor can it be opened");
    world_end(world);
    world_pose(world, false);
    check_clean(world, "nothing is left");
}

/* ---------------------------------------------------------------- contexts */

static void test_whole(struct world *world)
{
    bool wrong;
    uint32_t depth;

    world_begin(world, &good);
    check(world, use_all(world, NULL, &wrong) == ATTN_OK && !wrong, "a whole use gives the right result");
    world_end(world);
    check_clean(world, "and leaves nothing");
    world_begin(world, &good);
    gpu_handle own = world->fake->context_push(1);
    check(world, use_all(world, NULL, &wrong) == ATTN_OK && !wrong,
          "the same under the caller's context or device");
    check(world, world->fake->current(&depth) == own && depth == 1, "which stays the current one");
    world->fake->context_pop();
    world_end(world);
    check_clean(world, "and leaves nothing");
}

static void test_native(struct world *world)
{
    bool wrong;

    world_begin(world, &good);
    gpu_handle own = world->fake->context_push(0);
    world->fake->context_pop();
    if (!world->vendor->contexts) {
        check(world,
              use_all(world, &own, &wrong) == ATTN_E_UNSUPPORTED &&
                  strcmp(world->err.field, "native_context") == 0,
              "a context of the caller is refused where there are none");
        world_end(world);
        check_clean(world, "and nothing is left");
        return;
    }
    check(world, use_all(world, own, &wrong) == ATTN_OK && !wrong, "the caller's context is used");
    check(world, world->fake->calls_of("cuDevicePrimaryCtxRetain") == 0, "and not the device's own");
    own = world->fake->context_push(1);
    world->fake->context_pop();
    check(world,
          use_all(world, own, &wrong) == ATTN_E_INVALID && strcmp(world->err.field, "native_context") == 0,
          "one of another device is refused");
    world_end(world);
    check_clean(world, "and nothing is left");
}

/* ---------------------------------------------------------------- what is refused */

static bool refuses(const struct world *world, int32_t status, int32_t wanted, uint32_t reason,
                    const char *field)
{
    return status == wanted && world->err.reason == reason && strcmp(world->err.field, field) == 0;
}

static void test_plan_info(struct world *world, struct job *job)
{
    struct attn_plan_info info;

    world->table->plan->describe(job->plan, &info);
    /* 2 sequences of 4 keys and values, and 4 rows of queries and results, of 2 heads with 8 columns of f32,
     * e4m3 for queries. */
    check(world,
          info.alignment == 4 && info.stride_multiple == 4 &&
              info.bytes_per_run == 2 * 2 * 4 * (2 * 8 * 4) + 4 * (2 * 8 * (1 + 4)),
          "a plan tells alignment and the bytes of a run");
}

static void test_calls_refused(struct world *world, struct job *job)
{
    const struct attn_kv_table *kv = world->table->kv;
    struct attn_merge_part part = {job->tensors.q, job->tensors.q};
    struct attn_kv_advance_step_args advance;
    struct attn_kv_write_args write;
    struct attn_merge_args merge;

    ATTN_INIT(&write);
    write.num_tokens = 1;
    write.k_dtype = write.v_dtype = ATTN_F32;
    write.k_new = write.v_new = job->tensors.q;
    write.slot_mapping = job->block;
    write.v_new.buffer.byte_offset++;
    int32_t status = kv->write(job->backend, &write, job->kv, NULL, job->stream, &world->err);
    check(world, refuses(world, status, ATTN_E_INVALID, 0, "v_new"), "new rows between two numbers");
    ATTN_INIT(&advance);
    advance.tokens = (struct attn_buffer){job->block.data, 4};
    status = kv->advance_step(job->backend, &advance, job->stream, &world->err);
    check(world, refuses(world, status, ATTN_E_INVALID, 0, "tokens"), "a step whose array is not aligned");
    ATTN_INIT(&merge);
    merge.count = 1;
    merge.dtype = ATTN_F32;
    merge.lse_base = ATTN_LSE_NATURAL;
    merge.num_tokens = merge.heads = 1;
    merge.head_dim = 8;
    merge.out = job->tensors.out;
    merge.parts = &part;
    merge.out.buffer.byte_offset += 2;
    status = world->table->merge->merge(job->backend, &merge, job->stream, &world->err);
    check(world, refuses(world, status, ATTN_E_INVALID, 0, "out"), "one between two numbers");
}

/* What libattn cannot see is checked by the plugin, before the device is asked. */
static void test_refused(struct world *world)
{
    struct job job;

    world_begin(world, &good);
    check(world, job_init(&job, world, 0, NULL) == ATTN_OK, "a device is open");
    test_plan_info(world, &job);
    test_calls_refused(world, &job);
    check(world, world->fake->calls_of("cuLaunchKernel") == 0, "nothing was launched");
    job_finish(&job, world);
    world_end(world);
    check_clean(world, "nothing is left");
}

/* ---------------------------------------------------------------- failures */

static void test_lost(struct world *world)
{
    const struct attn_device first = device_of(world, 0), second = device_of(world, 1);
    struct attn_reason reason;
    struct job job, other;

    world_begin(world, &good);
    check(world,
          job_init(&job, world, 0, NULL) == ATTN_OK && job_init(&other, world, 1, NULL) == ATTN_OK &&
              job_run(&job, world) == ATTN_OK,
          "two devices at work");
    world->fake->fail(world->fake->calls() + world->vendor->enter + 1, GPU_ILLEGAL_ADDRESS);
    int32_t status = world->table->memory->stream_synchronize(job.backend, job.stream, &world->err);
    check(world, status == ATTN_E_DEVICE_LOST && strstr(world->err.message, world->vendor->fault) != NULL,
          "a sticky error is told in the driver's words");
    check(world, job_run(&job, world) == ATTN_E_DEVICE_LOST, "from then on the device is lost");
    check(world, query(world, &first, &reason) == 0 && reason.code == ATTN_REASON_DEVICE_LOST,
          "and refused: DEVICE_LOST");
    check(world, query(world, &second, &reason) == 1, "another device is not");
    const uint64_t before = world->fake->calls();
    job_finish(&job, world);
    check(world, world->fake->calls() == before, "what is lost is released without the driver");
    world->fake->fail(0, GPU_SUCCESS);
    job_finish(&other, world);
    world_end(world);
}

/* HIP counts the threads of a launch in 32 bits: more are refused before it is asked. */
static void test_too_many(struct world *world)
{
    const struct attn_plan_table *table = world->table->plan;
    struct attn_plan_impl *plan = NULL;
    struct job job;

    if (world->vendor->contexts)
        return;
    world_begin(world, &good);
    int32_t status = job_init(&job, world, 0, NULL);
    struct attn_problem problem = job.problem;
    problem.max_rows = problem.max_q = 1 << 24;
    if (status == ATTN_OK)
        status = table->create(job.backend, &problem, &plan, &world->err);
    struct attn_batch batch = job.batch;
    batch.given = 0;
    batch.host = NULL;
    batch.num_tokens = batch.max_q = 1 << 24;
    const uint64_t before = world->fake->calls_of("cuLaunchKernel");
    if (status == ATTN_OK)
        status = table->run(plan, &batch, &job.tensors, job.kv, NULL, &job.schedule, &job.scratch, job.stream,
                            &world->err);
    check(world,
          status == ATTN_E_UNSUPPORTED && strcmp(world->err.field, "batch.num_tokens") == 0 &&
              strstr(world->err.message, "takes 4294967295") != NULL,
          "a launch of more than 2^32 threads is refused in words");
    check(world, world->fake->calls_of("cuLaunchKernel") == before, "and not tried");
    if (plan != NULL)
        table->destroy(plan);
    job_finish(&job, world);
    world_end(world);
    check_clean(world, "nothing of it is left");
}

int main(int argc, char **argv)
{
    struct world world;

    if (argc != 3)
        return 2;
    world_init(&world, argv[1], argv[2]);
    test_absent(&world);
    test_machines(&world);
    test_devices(&world);
    test_whole(&world);
    test_native(&world);
    test_refused(&world);
    test_too_many(&world);
    use_failing(&world, &good, GPU_INVALID_VALUE, ATTN_E_DEVICE, "INVALID_VALUE");
    use_failing(&world, &good, GPU_OUT_OF_MEMORY, ATTN_E_MEMORY, "OUT_OF_MEMORY");
    use_failing(&world, &good, GPU_ILLEGAL_ADDRESS, ATTN_E_DEVICE_LOST, "ILLEGAL_ADDRESS");
    test_lost(&world);
    return check_end();
}
