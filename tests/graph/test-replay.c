/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Whole model steps on graphs: a thousand random steps with every flavour and type of cache, on the CPU and
 * on a device that the host cannot reach and whose stream is late, equal the same steps without graphs bit
 * for bit; and what a replay asks of the backend is one copy and one launch.
 */
#include <stdio.h>
#include <stdlib.h>

#include "allocations.h"
#include "queue.h"
#include "stack.h"
#include "tap.h"
#include "world.h"

enum { FLIGHT = 2 };

/* A step under way: its numbers stay on the host until the stream has passed. */
struct flight {
    struct stack_inputs inputs;
    struct stack_outputs eager;
    struct stack_outputs replay;
    uint32_t seqs;
    uint32_t rows; /* query tokens */
    const struct stack_size *size;
};

struct fuzz {
    struct stack stack;
    struct crowd crowd;
    struct flight flight[FLIGHT];
    uint32_t under_way;
    uint32_t step;
    struct stack_outputs last; /* of the replay before */
    uint64_t made;             /* allocations of replays */
    uint32_t odd;              /* replays that asked for something else than a copy and a launch */
    uint32_t busy;             /* times that staging was in use */
    uint32_t padded, moved;
    uint64_t most_bytes, least_bytes;
    bool same;
};

/* ---------------------------------------------------------------- comparing */

static bool is_zero(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

/*
 * Rows of padding: zeros, or all alike, where they see one token; rows behind the graph, or behind the step
 * where any mix is padded: as they were.
 */
static const char *compare_rest(const struct fuzz *fuzz, const struct flight *f, uint32_t layer)
{
    const size_t row = (size_t)STACK_HEADS * STACK_DIM * fuzz->stack.element;
    const unsigned char *out = f->replay.out[layer];
    const bool infer = strstr(fuzz->stack.config->name, "flashinfer") != NULL;
    const uint32_t tokens = stack_tokens(&fuzz->stack);

    for (uint32_t i = f->seqs; i < f->size->seqs && tokens == 1; i++)
        if (infer ? !is_zero(out + i * row, row) : memcmp(out + i * row, out + f->seqs * row, row) != 0)
            return "padding";
    const size_t from = (tokens == 0 ? f->rows : f->size->seqs * tokens) * row;
    return memcmp(out + from, fuzz->last.out[layer] + from, CROWD_ROWS * row - from) == 0
               ? NULL
               : "behind the graph";
}

static void compare(struct fuzz *fuzz, const struct flight *f, uint32_t step)
{
    const size_t row = (size_t)STACK_HEADS * STACK_DIM * fuzz->stack.element;
    const char *what = NULL;

    for (uint32_t i = 0; i < STACK_LAYERS && what == NULL && fuzz->same; i++) {
        what = memcmp(f->eager.out[i], f->replay.out[i], f->rows * row) != 0 ? "results"
                                                                             : compare_rest(fuzz, f, i);
        if (what != NULL)
            printf("# step %u, %u sequences, %u query tokens on a graph of %u and %u, layer %u: %s\n", step,
                   f->seqs, f->rows, f->size->seqs, f->size->num_tokens, i, what);
    }
    fuzz->same = fuzz->same && what == NULL;
    memcpy(&fuzz->last, &f->replay, sizeof fuzz->last);
}

/* Waits for what is under way, and holds it against the steps without graphs. */
static void land(struct fuzz *fuzz)
{
    const struct stack *stack = &fuzz->stack;

    must(attn_stream_synchronize(stack->backend, stack->stream, &err));
    if (queue_status() != ATTN_OK)
        fuzz->same = false;
    for (uint32_t i = fuzz->under_way; i-- > 0;)
        compare(fuzz, &fuzz->flight[(fuzz->step - 1 - i) % FLIGHT], fuzz->step - 1 - i);
    fuzz->under_way = 0;
}

/* ---------------------------------------------------------------- the two ways */

static void run_eager(struct fuzz *fuzz, struct flight *f)
{
    struct stack *stack = &fuzz->stack;
    struct attn_metadata *metadata = NULL;

    must(crowd_decodes(&fuzz->crowd, &stack->eager, -1, &metadata, &err));
    must(stack_copy_in(stack, 0, &f->inputs, NULL, &err));
    must(attn_state_begin_forward(stack->state, metadata, NULL, &err));
    must(stack_forward(stack, stack->state, metadata, 0, &stack->way[0].outputs, NULL, &err));
    must(stack_copy_out(stack, 0, &f->eager, NULL, &err));
}

/* What a replay may ask of the backend. */
static bool is_frugal(const struct fuzz *fuzz, const struct queue_counts *counts)
{
    const bool near = !fuzz->stack.config->late; /* the host writes the buffers themselves */

    return counts->to_device == (near ? 0 : 1) && counts->launches == 1 && counts->on_device == 0 &&
           counts->to_host == 0 && counts->prepares == 0 && counts->runs == 0 && counts->writes == 0;
}

static void note_bytes(struct fuzz *fuzz, const struct flight *f, uint64_t bytes)
{
    if (f->size->seqs == CROWD_SEQS && bytes > fuzz->most_bytes)
        fuzz->most_bytes = bytes;
    if (f->size->seqs == 1 && (fuzz->least_bytes == 0 || bytes < fuzz->least_bytes))
        fuzz->least_bytes = bytes;
}

static void run_replay(struct fuzz *fuzz, struct flight *f)
{
    struct stack *stack = &fuzz->stack;
    const struct stack_size *size = stack_find(stack, &fuzz->crowd);
    struct attn_metadata *metadata = NULL;

    f->size = size;
    must(stack_copy_in(stack, 1, &f->inputs, stack->stream, &err));
    const uint64_t before = allocations_made();
    queue_clear();
    must(crowd_decodes(&fuzz->crowd, &stack->replay, (int32_t)(size->seqs - f->seqs), &metadata, &err));
    must(attn_state_prepare(stack->state, metadata, stack->stream, &err));
    must(attn_graph_launch(size->graph, stack->stream, &err));
    const struct queue_counts counts = queue_counts();
    fuzz->made += allocations_made() - before;
    if (!is_frugal(fuzz, &counts) && fuzz->odd++ == 0)
        printf("# step %u: %u copies to, %u from and %u on the device, %u launches, %u plans, %u runs, %u "
               "writes\n",
               fuzz->step, counts.to_device, counts.to_host, counts.on_device, counts.launches,
               counts.prepares, counts.runs, counts.writes);
    note_bytes(fuzz, f, counts.bytes);
    must(stack_copy_out(stack, 1, &f->replay, stack->stream, &err));
    fuzz->padded += size->seqs > f->seqs || size->num_tokens > f->rows;
}

/* Prompts that have no graph: both ways at once, after what is under way. */
static void run_prompts(struct fuzz *fuzz, uint32_t came)
{
    struct stack *stack = &fuzz->stack;
    struct attn_metadata *metadata = NULL;
    uint32_t rows;

    land(fuzz);
    must(crowd_prompts(&fuzz->crowd, &stack->eager, fuzz->crowd.seqs - came, &metadata, &rows, &err));
    memset(stack->eager.rows, 0, sizeof stack->eager.rows);
    must(attn_state_begin_forward(stack->state, metadata, NULL, &err));
    for (uint32_t way = 0; way < STACK_WAYS; way++) {
        must(stack_copy_in(stack, way, &fuzz->flight[0].inputs, NULL, &err));
        must(stack_forward(stack, stack->state, metadata, way, &stack->way[way].spare, NULL, &err));
    }
}

/* A third step finds both blocks of staging in use, and changes nothing. */
static void try_busy(struct fuzz *fuzz, const struct stack_size *size)
{
    struct stack *stack = &fuzz->stack;
    struct attn_metadata *metadata = NULL;
    struct attn_error words;

    ATTN_INIT(&words);
    queue_clear();
    must(crowd_decodes(&fuzz->crowd, &stack->replay, (int32_t)(size->seqs - fuzz->crowd.seqs), &metadata,
                       &err));
    const int32_t status = attn_state_prepare(stack->state, metadata, stack->stream, &words);
    const struct queue_counts counts = queue_counts();
    if (status != ATTN_E_BUSY || strcmp(words.field, "steps") != 0 || counts.to_device != 0) {
        printf("# step %u: status %d, %u copies with %u steps under way\n", fuzz->step, status,
               counts.to_device, fuzz->under_way);
        fuzz->same = false;
    }
    fuzz->busy++;
}

static void one_step(struct fuzz *fuzz)
{
    struct stack *stack = &fuzz->stack;
    struct crowd *crowd = &fuzz->crowd;
    struct flight *f = &fuzz->flight[fuzz->step % FLIGHT];
    const uint32_t came = crowd_change(crowd);

    if (fuzz->under_way == FLIGHT)
        land(fuzz);
    if (came > 0 && !stack->config->cross && crowd->tokens != 0)
        run_prompts(fuzz, came);
    crowd_reserve(crowd);
    stack_draw(stack, crowd, &f->inputs);
    f->seqs = crowd->seqs;
    f->rows = crowd_rows(crowd);
    fuzz->moved += crowd->moved;
    run_eager(fuzz, f);
    run_replay(fuzz, f);
    crowd_grow(crowd);
    fuzz->step++;
    fuzz->under_way++;
    if (stack->config->late && fuzz->under_way == FLIGHT && crowd_random(crowd, 4) == 0 &&
        crowd_fits(crowd)) {
        crowd_reserve(crowd);
        try_busy(fuzz, stack_find(stack, crowd));
    }
    if (crowd_random(crowd, 3) == 0)
        land(fuzz);
    if (fuzz->step % 16 == 0) {
        land(fuzz);
        fuzz->same = fuzz->same && stack_same_caches(stack);
    }
}

static void test_fuzz(const struct stack_config *config, uint32_t steps)
{
    struct attn_context *context = NULL;
    struct attn_backend *backend = NULL;
    struct fuzz *fuzz = calloc(1, sizeof *fuzz);

    if (fuzz == NULL)
        exit(1);
    backend_open(config->backend, &context, &backend);
    queue_init(backend, config->late);
    must(stack_init(&fuzz->stack, backend, config, &err));
    crowd_init(&fuzz->crowd, 20261, config->cross, stack_tokens(&fuzz->stack));
    fuzz->crowd.drafts = strstr(config->name, "flash-attn") != NULL;
    must(stack_capture(&fuzz->stack, true, &err));
    check(stack_same_caches(&fuzz->stack), "warm-up and capture write no cache", config->name);
    must(stack_copy_out(&fuzz->stack, 1, &fuzz->last, NULL, &err));
    fuzz->same = true;
    while (fuzz->step < steps && fuzz->same)
        one_step(fuzz);
    land(fuzz);
    check(fuzz->same && fuzz->step == steps && stack_same_caches(&fuzz->stack),
          "random steps on graphs equal steps without", config->name);
    check(fuzz->padded > steps / 10 && fuzz->moved > steps / 10 && fuzz->crowd.left > steps / 10,
          "they were padded, and blocks moved", config->name);
    check(fuzz->odd == 0, config->late ? "a replay is one copy and one launch" : "a replay is one launch",
          config->name);
    if (config->late && steps >= 1000)
        check(fuzz->busy > 0 && fuzz->least_bytes > 0 && fuzz->least_bytes < fuzz->most_bytes / 2,
              "staging is told to be busy, and small steps copy less", config->name);
    if (allocations_counted())
        check(fuzz->made == 0, "a replay allocates nothing", config->name);
    stack_finish(&fuzz->stack);
    queue_finish(backend);
    attn_backend_destroy(backend);
    attn_context_destroy(context);
    free(fuzz);
}

/* The argument is the number of steps of each configuration. */
int main(int argc, char **argv)
{
    static const struct stack_config configs[] = {
        {"flash-attn f32", "cpu/flash-attn", 0, ATTN_F32, "q=f32", 0, false, false, 0},
        {"flashinfer bf16", "cpu/flashinfer", 0, ATTN_BF16, "q=bf16", 0, false, false, 0},
        {"rocm-flash bf16", "cpu/rocm-flash", 0, ATTN_BF16, "q=bf16", 0, false, false, 0},
        {"flash-attn e4m3", "cpu/flash-attn", 0, ATTN_BF16, "q=bf16 kv=e4m3 scales=tensor",
         ATTN_SCALES_TENSOR, false, false, 0},
        {"flashinfer int8", "cpu/flashinfer", 0, ATTN_F32, "q=f32 kv=int8 scales=token-head",
         ATTN_SCALES_TOKEN_HEAD, false, false, 0},
        {"flash-attn encoder-decoder", "cpu/flash-attn", 0, ATTN_F32, "q=f32", 0, true, false, 0},
        {"flash-attn f32, device", "device-memory/flash-attn", 0, ATTN_F32, "q=f32", 0, false, true, 0},
        {"flashinfer f32, device", "device-memory/flash-attn", ATTN_FLASHINFER, ATTN_F32, "q=f32", 0, false,
         true, 0},
        {"rocm-flash bf16, device", "device-memory/flash-attn", ATTN_ROCM_FLASH, ATTN_BF16, "q=bf16", 0,
         false, true, 0},
        {"flash-attn encoder-decoder, device", "device-memory/flash-attn", 0, ATTN_F32, "q=f32", 0, true,
         true, 0},
        {"flash-attn f32, 3 tokens each", "cpu/flash-attn", 0, ATTN_F32, "q=f32", 0, false, false, 3},
        {"flash-attn e4m3, 2 tokens each", "cpu/flash-attn", 0, ATTN_BF16, "q=bf16 kv=e4m3 scales=tensor",
         ATTN_SCALES_TENSOR, false, false, 2},
        {"flash-attn f32, 4 tokens each, device", "device-memory/flash-attn", 0, ATTN_F32, "q=f32", 0, false,
         true, 4},
        {"flash-attn f32, trees of 4", "cpu/flash-attn", 0, ATTN_F32, "q=f32 mask=bits span=square", 0, false,
         false, 4},
        {"flash-attn bf16, trees of 4, device", "device-memory/flash-attn", 0, ATTN_BF16,
         "q=bf16 mask=bits span=square", 0, false, true, 4},
        {"flash-attn f32, any mix", "cpu/flash-attn", 0, ATTN_F32, "q=f32", 0, false, false, STACK_MIX},
        {"flash-attn e4m3, any mix", "cpu/flash-attn", 0, ATTN_BF16, "q=bf16 kv=e4m3 scales=tensor",
         ATTN_SCALES_TENSOR, false, false, STACK_MIX},
        {"flashinfer bf16, any mix", "cpu/flashinfer", 0, ATTN_BF16, "q=bf16", 0, false, false, STACK_MIX},
        {"rocm-flash f32, any mix", "cpu/rocm-flash", 0, ATTN_F32, "q=f32 kv_source=cache+new", 0, false,
         false, STACK_MIX},
        {"flash-attn bf16, any mix, device", "device-memory/flash-attn", 0, ATTN_BF16, "q=bf16", 0, false,
         true, STACK_MIX},
        {"flashinfer f32, any mix, device", "device-memory/flash-attn", ATTN_FLASHINFER, ATTN_F32,
         "q=f32 kv_source=cache+new", 0, false, true, STACK_MIX},
        {"rocm-flash bf16, any mix, device", "device-memory/flash-attn", ATTN_ROCM_FLASH, ATTN_BF16, "q=bf16",
         0, false, true, STACK_MIX},
    };

    const uint32_t steps = argc > 1 ? (uint32_t)atoi(argv[1]) : 1000;

    ATTN_INIT(&err);
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++)
        test_fuzz(&configs[i], steps);
    return finish_checks();
}
