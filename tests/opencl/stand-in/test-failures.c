/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The OpenCL plugin with each of its calls failing in turn, on the loader that stands in: no crash, nothing
 * left, a text that names the call and the error, and a use after it that is right.
 *
 * test-failures PLUGIN DIRECTORY [--few]: the directory is for programs that are kept, and is emptied. --few:
 * while programs are compiled, which takes long before each failure, only calls of programs fail.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "stand-in.h"
#include "world.h"

static const struct world_vendor vendor = {.device_type = ATTN_DEVICE_OPENCL};
static const struct stand_in *stand_in;
static __typeof__(attn_plugin_entry_v1) *entry;
static const char *directory;
static unsigned lines, failures;

static void report(bool good, const char *what)
{
    printf("%sok %u - %s\n", good ? "" : "not ", ++lines, what);
    failures += !good;
}

static const char *get_option(void *ctx, const char *key)
{
    (void)ctx;
    return strcmp(key, "ATTN_CACHE_DIR") == 0 ? directory : NULL;
}

static void begin(struct world *world)
{
    struct attn_host host = {.struct_size = sizeof host,
                             .abi_minor = ATTN_ABI_MINOR,
                             .out_instance = &world->instance,
                             .get_option = get_option};
    const struct attn_backend_table *const *tables;
    uint32_t count;

    if (entry(&host, &world->plugin, &world->err) != ATTN_OK ||
        world->plugin->get_backends(world->instance, &tables, &count, &world->err) != ATTN_OK) {
        printf("Bail out! the plugin does not start: %s\n", world->err.message);
        exit(1);
    }
    world->table = tables[0];
}

static void end(struct world *world)
{
    world->plugin->finish(world->instance);
    world->instance = NULL;
}

/* Devices, a backend and a plan. */
static int32_t use_open(struct world *world, struct job *job)
{
    struct attn_device_info infos[4];
    uint32_t count;
    int32_t status = world->plugin->get_devices(world->instance, infos, 4, &count, &world->err);

    memset(job, 0, sizeof *job);
    return status == ATTN_OK ? job_init(job, world, 0, NULL) : status;
}

/* Events and pinned memory. */
static int32_t use_memory(struct world *world, struct job *job)
{
    const struct attn_memory_table *memory = world->table->memory;
    void *event = NULL, *pinned = NULL;
    int32_t status = memory->alloc_pinned(job->backend, 100, &pinned, &world->err);

    if (status == ATTN_OK)
        status = memory->event_create(job->backend, &event, &world->err);
    for (int i = 0; i < 2 && status == ATTN_OK; i++)
        status = memory->event_record(job->backend, event, job->stream, &world->err);
    if (status == ATTN_OK)
        status = memory->event_query(job->backend, event, &world->err);
    if (status == ATTN_E_BUSY)
        status = ATTN_OK;
    if (status == ATTN_OK)
        status = memory->event_synchronize(job->backend, event, &world->err);
    memory->event_destroy(job->backend, event);
    memory->free_pinned(job->backend, pinned);
    return status;
}

/* A run whose scales are an array of the host's. */
static int32_t use_run(struct world *world, struct job *job)
{
    static float ones[] = {1, 1};

    job->tensors.q_scale = (struct attn_scale){.kind = ATTN_SCALE_HOST,
                                               .granularity = ATTN_SCALES_HEAD,
                                               .buffer = {ones, 0},
                                               .head_stride = sizeof *ones};
    const int32_t status = job_run(job, world);
    return status == ATTN_OK ? job_judge(job, world) : status;
}

/* The keys that are there, once more. */
static int32_t use_cache(struct world *world, struct job *job)
{
    struct attn_kv_write_args args = {.struct_size = sizeof args,
                                      .addressing = ATTN_TABLE,
                                      .index_dtype = ATTN_INT32,
                                      .k_dtype = ATTN_F32,
                                      .v_dtype = ATTN_F32,
                                      .batch = &job->batch,
                                      .num_tokens = job->batch.num_tokens,
                                      .k_new = job->tensors.q,
                                      .v_new = job->tensors.q};
    struct attn_kv_slot_mapping_args mapping = {.struct_size = sizeof mapping,
                                                .addressing = ATTN_TABLE,
                                                .index_dtype = ATTN_INT32,
                                                .block = job->problem.block,
                                                .batch = &job->batch,
                                                .slots = job->tensors.out.buffer};
    int32_t status = world->table->kv->write(job->backend, &args, job->kv, NULL, job->stream, &world->err);

    if (status == ATTN_OK)
        status = world->table->kv->slot_mapping(job->backend, &mapping, job->stream, &world->err);
    if (status == ATTN_OK)
        status = world->table->memory->copy(job->backend, &job->batch.q_offsets, &job->batch.kv_lens, 4,
                                            ATTN_COPY_ON_DEVICE, job->stream, &world->err);
    if (status == ATTN_OK)
        status = world->table->memory->stream_synchronize(job->backend, job->stream, &world->err);
    return status;
}

/* From opening to closing; `brief` leaves out what is between. */
static int32_t use_once(struct world *world, bool brief, bool *out_wrong)
{
    struct job job;
    int32_t status = use_open(world, &job);

    if (status == ATTN_OK && !brief)
        status = use_memory(world, &job);
    if (status == ATTN_OK && !brief)
        status = use_run(world, &job);
    if (status == ATTN_OK && !brief)
        status = use_cache(world, &job);
    *out_wrong = job.wrong;
    job_finish(&job, world);
    return status;
}

/* Whether a use may be right though this call failed. */
static bool may_fail(const char *name)
{
    static const char *const names[] = {"clRelease",
                                        "clGetDeviceInfo",
                                        "clGetPlatformInfo",
                                        "clGetProgram",
                                        "clCreateProgramWithBinary",
                                        "clBuildProgram",
                                        "clEnqueueUnmapMemObject"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

struct fault {
    int32_t result;
    const char *name;
    int32_t status; /* of a use */
};

/* Whether a use with a failing call ended as it has to; *waits counts waits that failed unnoticed. */
static bool judge(const struct world *world, const struct fault *fault, int32_t status, bool wrong,
                  unsigned *waits)
{
    const char *failed = stand_in->failed();

    if (status == ATTN_OK &&
        (strcmp(failed, "clFinish") == 0 || strcmp(failed, "clEnqueueMarkerWithWaitList") == 0))
        return ++*waits <= 2 && !wrong; /* the one before pinned memory is freed, of two calls */
    if (status == ATTN_OK)
        return !wrong && (*failed == '\0' || may_fail(failed));
    if (strcmp(failed, "clGetDeviceInfo") == 0)
        return status == ATTN_E_UNSUPPORTED && strstr(world->err.message, failed) != NULL;
    return (status == fault->status || status == ATTN_E_DEVICE) &&
           strstr(world->err.message, failed) != NULL && strstr(world->err.message, fault->name) != NULL;
}

static void empty_directory(void)
{
    DIR *files = opendir(directory);
    char path[600];

    for (const struct dirent *file; files != NULL && (file = readdir(files)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", directory, file->d_name);
        if (file->d_name[0] != '.')
            unlink(path);
    }
    if (files != NULL)
        closedir(files);
}

/* Every call of a use fails: of opening a new instance each time, or of all with one that lasts. */
static void fail_each(struct world *world, const struct fault *fault, bool fresh, bool keep, const char *part,
                      const char *what)
{
    unsigned waits = 0, bad = 0, call = 0;
    bool last = false, wrong;
    char text[256], line[128];

    if (!fresh) {
        begin(world);
        (void)use_once(world, false, &wrong); /* makes what lasts */
    }
    while (!last && call < 3000) {
        if (!keep)
            empty_directory();
        if (fresh)
            begin(world);
        world->err.message[0] = '\0';
        stand_in->fail(part, ++call, fault->result);
        int32_t status = use_once(world, fresh, &wrong);
        last = *stand_in->failed() == '\0';
        bool good = judge(world, fault, status, wrong, &waits);
        if (!good)
            printf("# call %u, %s: status %d%s: %s\n", call, stand_in->failed(), status,
                   wrong ? ", wrong" : "", world->err.message);
        stand_in->fail("", 0, 0);
        if (!fresh && (use_once(world, fresh, &wrong) != ATTN_OK || wrong)) {
            printf("# call %u: the use after it: %s\n", call, world->err.message);
            good = false;
        }
        if (fresh) {
            end(world);
            good = good && stand_in->leaks(text, sizeof text) == 0;
        }
        bad += !good;
    }
    if (!fresh)
        end(world);
    const uint32_t left = stand_in->leaks(text, sizeof text);
    if (left != 0 || *stand_in->offence() != '\0')
        printf("# left: %s; %s\n", text, stand_in->offence());
    snprintf(line, sizeof line, "%s: %s of each of %u calls", what, fault->name, call - 1);
    report(bad == 0 && left == 0 && *stand_in->offence() == '\0' && call > (*part == '\0' ? 40 : 6), line);
}

int main(int argc, char **argv)
{
    static const struct fault faults[] = {{-5, "CL_OUT_OF_RESOURCES", ATTN_E_MEMORY},
                                          {-59, "CL_INVALID_OPERATION", ATTN_E_DEVICE}};
    struct world world = {.vendor = &vendor};
    stand_in_get_fn get;

    if (argc < 3)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was said before a crash is there */
    ATTN_INIT(&world.err);
    directory = argv[2];
    void *symbol = world_find("libOpenCL.so.1", "stand_in_get");
    memcpy(&get, &symbol, sizeof get);
    stand_in = get();
    symbol = world_find(argv[1], "attn_plugin_entry_v1");
    memcpy(&entry, &symbol, sizeof entry);
    fail_each(&world, &faults[0], true, false, argc > 3 ? "Program" : "", "programs that are compiled");
    fail_each(&world, &faults[1], true, true, "", "programs from disk");
    for (int i = 0; i < 2; i++)
        fail_each(&world, &faults[i], false, true, "", "one instance");
    printf("1..%u\n", lines);
    return failures != 0;
}
