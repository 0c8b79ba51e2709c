/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A model of 12 layers and two layer classes decodes on graphs of a GPU's plugin, a ladder of batch sizes:
 * what a replayed step asks of the driver is one copy, one launch and no memory, and it gives what the same
 * step without graphs gives, bit for bit.
 *
 * The plugin is looked for as always, and so is the driver (ATTN_CUDA_LIBRARY, ATTN_HIP_LIBRARY), so that a
 * real one is as good. Calls are counted by a library that can say how many there were (fake.h): the fake
 * driver, or one that stands before a real one. With any other the results alone are judged.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "../graph/stack.h"
#include "../graph/tap.h"
#include "../graph/world.h"
#include "attn/device.h"
#include "shim.h"

enum { MOST_STEPS = 8, WAITS = 3 };

/* The driver's calls that a step may make beside entering a context and leaving it, and how many. */
static const struct {
    const char *cuda, *hip;
    uint64_t least, most;
} allowed[] = {
    {"cuMemcpyHtoDAsync", "hipMemcpyHtoDAsync", 1, 1},     /* the step's image */
    {"cuGraphLaunch", "hipGraphLaunch", 1, 1},             /* all layers */
    {"cuEventQuery", "hipEventQuery", 0, 1},               /* is the block of staging free? */
    {"cuEventRecord", "hipEventRecord", 1, 1},             /* it is in use until here */
    {"cuStreamIsCapturing", "hipStreamIsCapturing", 0, 2}, /* nothing waits, nor is launched, in a capture */
};
static const char *const entering[2][2] = {{"cuCtxPushCurrent", "cuCtxPopCurrent"},
                                           {"hipGetDevice", "hipSetDevice"}};
static bool hip; /* it is HIP's plugin */
enum { ALLOWED = sizeof allowed / sizeof allowed[0] };

struct run {
    struct stack stack;
    struct crowd crowd;
    struct stack_inputs inputs;
    struct stack_outputs eager, replay;
    const struct fake *driver; /* NULL: does not count */
    bool same, frugal, planned, at_once;
    uint32_t steps;
};

/* Counts of all that is allowed, then of contexts pushed, and of everything. */
struct counts {
    uint64_t of[ALLOWED];
    uint64_t contexts, all;
};

static struct counts count(const struct fake *driver)
{
    struct counts out = {.all = driver->calls()};

    for (uint32_t i = 0; i < ALLOWED; i++)
        out.of[i] = driver->calls_of(hip ? allowed[i].hip : allowed[i].cuda);
    out.contexts = driver->calls_of(entering[hip][0]) + driver->calls_of(entering[hip][1]);
    return out;
}

static bool is_frugal(const struct counts *before, const struct counts *after)
{
    uint64_t known = after->contexts - before->contexts;
    bool good = true;

    for (uint32_t i = 0; i < ALLOWED; i++) {
        const uint64_t made = after->of[i] - before->of[i];
        known += made;
        if (made < allowed[i].least || made > allowed[i].most)
            printf("# %s: %llu calls\n", allowed[i].cuda, (unsigned long long)made);
        good = good && made >= allowed[i].least && made <= allowed[i].most;
    }
    if (known != after->all - before->all)
        printf("# %llu calls of other functions\n", (unsigned long long)(after->all - before->all - known));
    return good && known == after->all - before->all;
}

/* `seqs` sequences of lengths of their own, the longest as long as a graph sees. */
static void gather_crowd(struct run *run, uint32_t seqs)
{
    crowd_init(&run->crowd, 7 + seqs, false, stack_tokens(&run->stack));
    run->crowd.seqs = seqs;
    for (uint32_t i = 0; i < seqs; i++)
        run->crowd.seq[i].len =
            i == 0 ? CROWD_LEN - MOST_STEPS : crowd_random(&run->crowd, CROWD_LEN - MOST_STEPS);
    crowd_reserve(&run->crowd);
}

/* Plans of all classes are one copy; FlashInfer's lengths are another. */
static void run_eager(struct run *run)
{
    const uint32_t infer = strstr(run->stack.config->name, "flashinfer") != NULL;
    struct stack *stack = &run->stack;
    struct attn_metadata *metadata = NULL;

    must(crowd_decodes(&run->crowd, &stack->eager, -1, &metadata, &err));
    must(stack_copy_in(stack, 0, &run->inputs, NULL, &err));
    const uint64_t before = run->driver != NULL ? run->driver->calls_of("cuMemcpyHtoDAsync") : 0;
    must(attn_state_begin_forward(stack->state, metadata, NULL, &err));
    if (run->driver != NULL && run->driver->calls_of("cuMemcpyHtoDAsync") - before > 1 + infer)
        run->planned = false;
    must(stack_forward(stack, stack->state, metadata, 0, &stack->way[0].outputs, NULL, &err));
    must(stack_copy_out(stack, 0, &run->eager, NULL, &err));
    must(attn_stream_synchronize(stack->backend, NULL, &err));
}

/* The device plans all classes of a captured size: one launch and no copy. HIP's f32 kernels want no plan. */
static void count_planning(struct run *run)
{
    struct stack *stack = &run->stack;
    const uint64_t wanted = hip && stack->element == 4 ? 0 : 1;

    for (uint32_t i = 0; i < stack->size_count && run->driver != NULL; i++) {
        const uint64_t launches = run->driver->calls_of("cuLaunchKernel");
        const uint64_t copies = run->driver->calls_of("cuMemcpyHtoDAsync");
        must(attn_state_begin_forward(stack->sizes[i].clone, stack->sizes[i].metadata, stack->stream, &err));
        const uint64_t made = run->driver->calls_of("cuLaunchKernel") - launches;
        if (made != wanted)
            printf("# size %u: planned by %llu launches\n", stack->sizes[i].seqs, (unsigned long long)made);
        run->at_once = run->at_once && made == wanted && run->driver->calls_of("cuMemcpyHtoDAsync") == copies;
    }
}

/* Staging may be in use still: then the step before is waited for. */
static int32_t prepare(struct run *run, const struct attn_metadata *metadata)
{
    int32_t status = ATTN_E_BUSY;

    for (uint32_t i = 0; i < WAITS && status == ATTN_E_BUSY; i++) {
        if (i > 0)
            must(attn_stream_synchronize(run->stack.backend, run->stack.stream, &err));
        status = attn_state_prepare(run->stack.state, metadata, run->stack.stream, &err);
    }
    return status;
}

static void run_replay(struct run *run, const struct stack_size *size)
{
    struct stack *stack = &run->stack;
    struct attn_metadata *metadata = NULL;
    struct counts before = {.all = 0}, after = before;

    must(stack_copy_in(stack, 1, &run->inputs, stack->stream, &err));
    must(attn_stream_synchronize(stack->backend, stack->stream, &err));
    if (run->driver != NULL)
        before = count(run->driver);
    must(
        crowd_decodes(&run->crowd, &stack->replay, (int32_t)(size->seqs - run->crowd.seqs), &metadata, &err));
    must(prepare(run, metadata));
    must(attn_graph_launch(size->graph, stack->stream, &err));
    if (run->driver != NULL)
        after = count(run->driver);
    run->frugal = run->frugal && (run->driver == NULL || is_frugal(&before, &after));
    must(stack_copy_out(stack, 1, &run->replay, stack->stream, &err));
    must(attn_stream_synchronize(stack->backend, stack->stream, &err));
}

static void step(struct run *run)
{
    const size_t row = (size_t)STACK_HEADS * STACK_DIM * run->stack.element;
    const struct stack_size *size = stack_find(&run->stack, &run->crowd);

    stack_draw(&run->stack, &run->crowd, &run->inputs);
    run_eager(run);
    run_replay(run, size);
    for (uint32_t i = 0; i < STACK_LAYERS && run->same; i++) {
        run->same = memcmp(run->eager.out[i], run->replay.out[i], crowd_rows(&run->crowd) * row) == 0;
        if (!run->same)
            printf("# %u sequences on a graph of %u: layer %u differs\n", run->crowd.seqs, size->seqs, i);
    }
    crowd_grow(&run->crowd);
    crowd_reserve(&run->crowd);
    run->steps++;
}

static void test_ladder(const struct stack_config *config, const struct fake *driver, uint32_t steps,
                        uint32_t most_seqs)
{
    struct attn_context *context = NULL;
    struct attn_backend *backend = NULL;
    struct run *run = calloc(1, sizeof *run);
    uint32_t sizes = 0;
    char text[96];

    if (run == NULL)
        exit(1);
    run->driver = driver;
    run->same = run->frugal = run->planned = run->at_once = true;
    backend_open(config->backend, &context, &backend);
    must(stack_init(&run->stack, backend, config, &err));
    must(stack_capture(&run->stack, true, &err));
    count_planning(run);
    for (uint32_t i = 0; i < run->stack.size_count && run->same && run->frugal; i++) {
        const uint32_t seqs = run->stack.sizes[i].seqs;
        if (seqs > most_seqs)
            continue;
        sizes++;
        gather_crowd(run, seqs > 2 ? seqs - 1 : seqs);
        for (uint32_t k = 0; k < steps; k++)
            step(run);
    }
    snprintf(text, sizeof text, "%u steps of %d layers on graphs of %u sizes equal those without", run->steps,
             STACK_LAYERS, sizes);
    check(run->same && sizes > 1, text, config->name);
    check(stack_same_caches(&run->stack), "so do all caches", config->name);
    if (driver != NULL)
        check(run->frugal, "a replayed step is one copy and one launch for the driver", config->name);
    if (driver != NULL)
        check(run->planned, "without graphs all classes are planned with one copy", config->name);
    if (driver != NULL)
        check(run->at_once, "where the device plans, all classes are one launch at most", config->name);
    stack_finish(&run->stack);
    attn_backend_destroy(backend);
    attn_context_destroy(context);
    free(run);
}

/* The driver's library, if it can count. One that stands before another begins with that. */
static const struct fake *find_driver(const char *behind)
{
    const char *path = getenv(hip ? "ATTN_HIP_LIBRARY" : "ATTN_CUDA_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library != NULL ? dlsym(library, "fake_get") : NULL;
    void *before = library != NULL ? dlsym(library, "shim_get") : NULL;
    shim_get_fn shim;
    fake_get_fn get;

    if (symbol == NULL)
        return NULL;
    if (before != NULL) {
        memcpy(&shim, &before, sizeof shim);
        if (shim() != NULL)
            printf("# a driver of %d devices is watched\n", shim()->use(behind));
    }
    memcpy(&get, &symbol, sizeof get);
    return get();
}

/*
 * Arguments: steps of each size; a type of queries and keys, f32 or bf16, or hip-f32 and so on for the
 * backend of HIP; sequences of the largest size that steps are made of, 0: all; the driver behind one that
 * stands before another (shim.h), else the machine's.
 */
int main(int argc, char **argv)
{
    static const struct stack_config configs[] = {
        {"flash-attn f32", "cuda/flash-attn", 0, ATTN_F32, "q=f32", 0, false, false, 0},
        {"flashinfer f32", "cuda/flashinfer", 0, ATTN_F32, "q=f32", 0, false, false, 0},
        {"flash-attn bf16", "cuda/flash-attn", 0, ATTN_BF16, "q=bf16", 0, false, false, 0},
        {"flashinfer bf16", "cuda/flashinfer", 0, ATTN_BF16, "q=bf16", 0, false, false, 0},
        {"rocm-flash f32", "hip/rocm-flash", 0, ATTN_F32, "q=f32", 0, false, false, 0},
        {"rocm-flash bf16", "hip/rocm-flash", 0, ATTN_BF16, "q=bf16", 0, false, false, 0},
        {"flash-attn f32, any mix", "cuda/flash-attn", 0, ATTN_F32, "q=f32", 0, false, false, STACK_MIX},
        {"flash-attn bf16, any mix", "cuda/flash-attn", 0, ATTN_BF16, "q=bf16", 0, false, false, STACK_MIX},
        {"flashinfer bf16, any mix", "cuda/flashinfer", 0, ATTN_BF16, "q=bf16", 0, false, false, STACK_MIX},
        {"rocm-flash f32, any mix", "hip/rocm-flash", 0, ATTN_F32, "q=f32", 0, false, false, STACK_MIX},
    };
    const uint32_t wanted = argc > 1 ? (uint32_t)atoi(argv[1]) : 2;
    const uint32_t steps = wanted < 1 ? 1 : wanted > MOST_STEPS ? MOST_STEPS : wanted;
    const char *type = argc > 2 ? argv[2] : "";
    const uint32_t limit = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
    const uint32_t most_seqs = limit != 0 ? limit : UINT32_MAX;

    hip = strncmp(type, "hip-", 4) == 0;
    type += hip ? strlen("hip-") : 0;
    const struct fake *driver = find_driver(argc > 4 ? argv[4] : NULL);

    ATTN_INIT(&err);
    if (driver == NULL)
        printf("# the driver's library does not count calls; results alone are judged\n");
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++)
        if (hip == (strncmp(configs[i].backend, "hip", 3) == 0) &&
            (*type == '\0' || strcmp(configs[i].types + strlen("q="), type) == 0))
            test_ladder(&configs[i], driver, steps, most_seqs);
    return finish_checks();
}
