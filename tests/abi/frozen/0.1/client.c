/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A program as users of a release have it: the stable functions alone, from a problem's text to results,
 * which it judges itself. Every release keeps it, as source and as it was linked (tests/abi/frozen.py).
 *   client [unjudged]   runs on the backend of ATTN_BACKEND; `unjudged` is for one that computes nothing
 * Prints one line: the backend, how many numbers were judged, and which optional calls it serves.
 */
#include <attn/device.h>
#include <attn/input.h>
#include <attn/layer.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEQS = 2, HEADS = 4, KV_HEADS = 2, DIM = 16, BLOCK = 4, PAGES = 8, WIDTH = 2, ROWS = 8 };

#define MODEL   "heads=4 kv_heads=2 head_dim=16 q=f32 block=4"
#define PROBLEM MODEL " lse=1 max_seqs=2 max_q=8 max_kv=8 max_rows=8"
#define SCALE   0.25F /* 1 / sqrt(DIM) */

static const int32_t lens[SEQS] = {5, 3}, starts[SEQS + 1] = {0, 5, 8};
static const int32_t table[SEQS][WIDTH] = {{3, 1}, {6, -1}};
static float q[ROWS][HEADS][DIM], k[ROWS][KV_HEADS][DIM], v[ROWS][KV_HEADS][DIM];

static struct attn_error err;
static struct attn_backend *backend;
static struct attn_buffer blocks[40]; /* all that was allocated */
static int block_count, judged, unjudged;
static char served[200];

static void fail(const char *what, const char *text)
{
    fprintf(stderr, "client: %s: %s\n", what, text);
    exit(1);
}

static void check(const char *what, int32_t status)
{
    if (status != ATTN_OK)
        fail(what, err.message);
}

/* What a backend need not offer: whether it does. */
static int offers(const char *what, int32_t status)
{
    if (status == ATTN_E_UNSUPPORTED)
        return 0;
    check(what, status);
    snprintf(served + strlen(served), sizeof served - strlen(served), " %s", what);
    return 1;
}

static void want(const char *what, int good)
{
    if (!good)
        fail(what, "the answer is another one than in the release that this program is of");
}

/* ---------------------------------------------------------------- memory */

static struct attn_buffer allocate(const void *from, uint64_t size)
{
    struct attn_buffer *buffer = &blocks[block_count++];
    const struct attn_buffer host = {(void *)(uintptr_t)from, 0};

    check("attn_memory_alloc", attn_memory_alloc(backend, size > 0 ? size : 1, buffer, &err));
    if (from != NULL) {
        check("attn_memory_copy",
              attn_memory_copy(backend, buffer, &host, size, ATTN_COPY_TO_DEVICE, NULL, &err));
        check("attn_stream_synchronize", attn_stream_synchronize(backend, NULL, &err));
    }
    return *buffer;
}

static struct attn_tensor allocate_tensor(const void *from, uint32_t heads)
{
    struct attn_tensor tensor = attn_tensor_of(NULL, ATTN_F32, heads, DIM);

    tensor.buffer = allocate(from, ROWS * (uint64_t)tensor.token_stride);
    return tensor;
}

static struct attn_tensor allocate_lse(void)
{
    struct attn_tensor tensor = attn_tensor_of(NULL, ATTN_F32, HEADS, 1);

    tensor.buffer = allocate(NULL, ROWS * (uint64_t)tensor.token_stride);
    return tensor;
}

static struct attn_span allocate_span(uint64_t size)
{
    void *zeros = calloc(1, size > 0 ? size : 1);
    struct attn_span span = {{NULL, 0}, size};

    want("calloc", zeros != NULL);
    span.buffer = allocate(zeros, size);
    free(zeros);
    return span;
}

/* What a plan needs: its schedule, its scratch, and staging on the host. */
struct memory {
    struct attn_span schedule, staging;
    struct attn_scratch scratch;
};

static struct memory allocate_plan(const struct attn_plan *plan)
{
    struct attn_plan_sizes sizes = {.struct_size = sizeof sizes};
    struct memory memory = {.scratch.struct_size = sizeof memory.scratch};

    check("attn_plan_get_sizes", attn_plan_get_sizes(plan, &sizes, &err));
    memory.schedule = allocate_span(sizes.schedule);
    memory.staging = allocate_span(sizes.staging);
    memory.scratch.scratch = allocate_span(sizes.scratch);
    memory.scratch.counters = allocate_span(sizes.counters);
    return memory;
}

/* ---------------------------------------------------------------- results */

/* One query over the keys of `count` rows: the log-sum-exp. */
static double attend(const int *rows, int count, const float *query, int head, double *out)
{
    double sum = 0;

    for (int c = 0; c < DIM; c++)
        out[c] = 0;
    for (int j = 0; j < count; j++) {
        double dot = 0;
        for (int c = 0; c < DIM; c++)
            dot += (double)query[c] * (double)k[rows[j]][head][c];
        const double weight = exp(dot * (double)SCALE);
        sum += weight;
        for (int c = 0; c < DIM; c++)
            out[c] += weight * (double)v[rows[j]][head][c];
    }
    for (int c = 0; c < DIM; c++)
        out[c] /= sum;
    return log(sum);
}

static void compare(const char *what, double value, double wanted)
{
    judged++;
    if (!unjudged && !(fabs(value - wanted) < 1e-4)) {
        char text[100];
        snprintf(text, sizeof text, "number %d is %g; %g is right", judged, value, wanted);
        fail(what, text);
    }
}

/* Judges a step: the prompts, or the token behind them, whose query, key and value are those of the
 * sequence's number. */
static void judge(const char *what, const struct attn_tensor *out, const struct attn_tensor *lse, int decode,
                  double more)
{
    static float values[ROWS][HEADS][DIM], sums[ROWS][HEADS];
    const struct attn_buffer to = {values, 0}, to_sums = {sums, 0};

    check(what, attn_memory_copy(backend, &to, &out->buffer, sizeof values, ATTN_COPY_TO_HOST, NULL, &err));
    if (lse != NULL)
        check(what,
              attn_memory_copy(backend, &to_sums, &lse->buffer, sizeof sums, ATTN_COPY_TO_HOST, NULL, &err));
    check(what, attn_stream_synchronize(backend, NULL, &err));
    for (int s = 0; s < SEQS; s++) {
        int rows[ROWS];
        for (int i = 0; i < lens[s]; i++)
            rows[i] = starts[s] + i;
        rows[lens[s]] = s;
        for (int i = decode ? lens[s] : 0; i < lens[s] + decode; i++)
            for (int h = 0; h < HEADS; h++) {
                const int row = decode ? s : starts[s] + i;
                double wanted[DIM];
                const double sum = attend(rows, i + 1, q[row][h], h * KV_HEADS / HEADS, wanted);
                for (int c = 0; c < DIM; c++)
                    compare(what, (double)values[row][h][c], wanted[c]);
                if (lse != NULL)
                    compare(what, (double)sums[row][h], sum + more);
            }
    }
}

/* ---------------------------------------------------------------- what needs no backend */

static void ask_names(void)
{
    const struct attn_slot_args args = {.struct_size = sizeof args,
                                        .seq_len = 5,
                                        .context_len = 2,
                                        .block = BLOCK,
                                        .blocks = table[0],
                                        .block_count = WIDTH};
    const int32_t parents[3] = {-1, 0, 0};
    struct attn_problem problem;
    uint64_t count;
    int64_t slots[3], positions[3];
    unsigned char mask[3];
    char text[300];

    want("attn_version", attn_version() != NULL);
    want("attn_status_name", strcmp(attn_status_name(ATTN_E_SIZE), "ATTN_E_SIZE") == 0);
    want("attn_reason_name", strcmp(attn_reason_name(ATTN_REASON_HEAD_DIM), "HEAD_DIM") == 0);
    want("attn_dtype_name",
         strcmp(attn_dtype_name(ATTN_BF16), "bf16") == 0 && attn_dtype_size(ATTN_BF16) == 2);
    want("attn_flavour_name", strcmp(attn_flavour_name(ATTN_FLASH_ATTN), "flash-attn") == 0);
    want("attn_stage_name", strcmp(attn_stage_name(ATTN_STAGE_READY), "ready") == 0);
    check("attn_problem_parse", attn_problem_parse(PROBLEM, &problem, &err));
    want("attn_problem_parse", problem.heads == HEADS && problem.lse == 1 && problem.max_rows == ROWS);
    check("attn_problem_format", attn_problem_format(&problem, text, sizeof text, NULL, &err));
    want("attn_problem_format", strncmp(text, "heads=4 ", 8) == 0 && strstr(text, " lse=1") != NULL);
    want("attn_problem_parse",
         attn_problem_parse("heads=0 head_dim=16 q=f32", &problem, &err) == ATTN_E_INVALID);
    want("struct attn_error", err.status == ATTN_E_INVALID && strcmp(err.field, "heads") == 0);
    check("attn_slot_mapping", attn_slot_mapping(&args, slots, 3, &count, &err));
    want("attn_slot_mapping", count == 3 && slots[0] == 14 && slots[1] == 15 && slots[2] == 4);
    check("attn_tree_mask", attn_tree_mask(parents, 3, 7, mask, 1, positions, &err));
    want("attn_tree_mask", mask[1] == 3 && mask[2] == 5 && positions[2] == 8);
    want("attn_graph_padded", attn_graph_padded(9) == 16);
}

/* ---------------------------------------------------------------- selection */

static void log_nothing(void *user, uint32_t level, const char *subsystem, const char *text)
{
    (void)user, (void)level, (void)subsystem, (void)text;
}

/* Ends the program with what the library says of its files. */
static void no_backend(struct attn_context *context)
{
    struct attn_report *report;
    const struct attn_file_record *file;

    fprintf(stderr, "client: %s\n", err.message);
    if (attn_context_get_report(context, &report, NULL) == ATTN_OK)
        for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++)
            fprintf(stderr, "client: %s: %s: %s: %s\n", file->path, attn_stage_name(file->stage),
                    attn_reason_name(file->reason), file->text);
    exit(3);
}

static struct attn_context *open_backend(struct attn_problem *problem)
{
    const struct attn_context_options options = {
        .struct_size = sizeof options, .given = ATTN_GIVEN_LOG, .log = log_nothing};
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_query query = {.struct_size = sizeof query};

    check("attn_context_create", attn_context_create(&options, &context, &err));
    check("attn_problem_parse", attn_problem_parse(PROBLEM, problem, &err));
    if (attn_select(context, problem, 1, NULL, &decision, &err) != ATTN_OK)
        no_backend(context);
    const struct attn_decision_info *info = attn_decision_get_info(decision);
    const struct attn_candidate *candidate = attn_decision_get_candidate(decision, 0);
    want("attn_decision_get_info", info->decided_by == ATTN_DECIDED_BY_ENVIRONMENT);
    want("attn_decision_get_candidate", candidate->accepted == 1 && candidate->kernel_count > 0 &&
                                            strcmp(candidate->name, info->effective) == 0);
    check("attn_backend_open", attn_backend_open(context, decision, NULL, &backend, &err));
    want("attn_backend_get_name", strcmp(attn_backend_get_name(backend), info->effective) == 0);
    want("attn_backend_get_device", strcmp(attn_backend_get_device(backend), info->device) == 0);
    check("attn_backend_query", attn_backend_query(backend, problem, &query, &err));
    want("attn_backend_query", query.accepted == 1 && query.kernel_count > 0);
    attn_decision_destroy(decision);
    return context;
}

/* ---------------------------------------------------------------- cache and plan */

static struct attn_kv *make_cache(const struct attn_problem *problem)
{
    struct attn_kv_shape shape = {.struct_size = sizeof shape};
    struct attn_kv_desc desc;
    struct attn_kv *kv;

    check("attn_kv_get_shape", attn_kv_get_shape(backend, problem, PAGES, &shape, &err));
    const struct attn_span memory = allocate_span(shape.bytes);
    attn_kv_desc_init(&desc, &shape, &memory.buffer);
    check("attn_kv_create", attn_kv_create(backend, &desc, &kv, &err));
    return kv;
}

static struct attn_batch make_batch(void)
{
    static const struct attn_batch_host host = {
        .struct_size = sizeof host, .q_offsets = starts, .kv_lens = lens, .table = &table[0][0]};
    struct attn_batch batch = {.struct_size = sizeof batch, .seqs = SEQS, .num_tokens = ROWS};

    batch.given = ATTN_GIVEN_HOST_COPIES;
    batch.host = &host;
    batch.max_q = 5;
    batch.max_kv = 5;
    batch.q_offsets = allocate(starts, sizeof starts);
    batch.kv_lens = allocate(lens, sizeof lens);
    batch.table = allocate(table, sizeof table);
    batch.table_stride = sizeof table[0];
    batch.table_width = WIDTH;
    batch.pages = PAGES;
    return batch;
}

/* The run once more, kept in a graph. */
static void run_graph(const struct attn_problem *problem, const struct attn_batch *batch,
                      const struct attn_tensors *tensors)
{
    struct attn_problem kept = *problem;
    struct attn_plan *plan;
    struct attn_graph *graph = NULL;
    void *stream = NULL;

    kept.graph = ATTN_GRAPH_ALWAYS;
    if (!offers("streams", attn_stream_create(backend, &stream, &err)))
        return;
    if (offers("graphs", attn_plan_create(backend, &kept, &plan, &err))) {
        const struct memory memory = allocate_plan(plan);
        check("attn_plan_prepare",
              attn_plan_prepare(plan, batch, &memory.schedule, &memory.staging, stream, &err));
        check("attn_graph_begin", attn_graph_begin(backend, stream, &graph, &err));
        check("attn_plan_run",
              attn_plan_run(plan, batch, tensors, &memory.schedule, &memory.scratch, stream, &err));
        check("attn_graph_end", attn_graph_end(graph, &err));
        check("attn_graph_launch", attn_graph_launch(graph, stream, &err));
        check("attn_stream_synchronize", attn_stream_synchronize(backend, stream, &err));
        judge("attn_graph_launch", &tensors->out, &tensors->lse, 0, 0);
        attn_graph_destroy(graph);
        attn_plan_destroy(plan);
    }
    attn_stream_destroy(backend, stream);
}

/* A result merged with itself: the same, of twice the weight. */
static void run_merge(const struct attn_tensors *tensors)
{
    const struct attn_merge_part parts[2] = {{tensors->out, tensors->lse}, {tensors->out, tensors->lse}};
    const struct attn_merge_args args = {.struct_size = sizeof args,
                                         .count = 2,
                                         .parts = parts,
                                         .dtype = ATTN_F32,
                                         .lse_base = ATTN_LSE_NATURAL,
                                         .num_tokens = ROWS,
                                         .heads = HEADS,
                                         .head_dim = DIM,
                                         .out = allocate_tensor(NULL, HEADS),
                                         .lse = allocate_lse()};

    if (offers("merge", attn_merge(backend, &args, NULL, &err)))
        judge("attn_merge", &args.out, &args.lse, 0, log(2));
}

/* The other operations on caches: pages go to another place, and their keys come back as rows. */
static void run_cache(struct attn_kv *kv, const struct attn_batch *batch)
{
    static const int64_t pairs[2] = {3, 2};
    struct attn_kv *const kvs[1] = {kv};
    const struct attn_kv_copy_blocks_args copy = {.struct_size = sizeof copy,
                                                  .count = 1,
                                                  .layers = 1,
                                                  .kvs = kvs,
                                                  .pairs = allocate(pairs, sizeof pairs)};
    const struct attn_kv_gather_args gather = {.struct_size = sizeof gather,
                                               .tokens = ROWS,
                                               .k_dtype = ATTN_F32,
                                               .v_dtype = ATTN_F32,
                                               .addressing = ATTN_TABLE,
                                               .kv = kv,
                                               .batch = batch,
                                               .offsets = batch->q_offsets,
                                               .k = allocate_tensor(NULL, KV_HEADS)};
    struct attn_kv_slot_mapping_args slots = {
        .struct_size = sizeof slots, .addressing = ATTN_TABLE, .block = BLOCK, .batch = batch};
    static float keys[ROWS][KV_HEADS][DIM];
    const struct attn_buffer to = {keys, 0};
    void *event, *pinned;

    slots.slots = allocate(NULL, ROWS * sizeof(int64_t));
    offers("copy-blocks", attn_kv_copy_blocks(backend, &copy, NULL, &err));
    offers("slot-mapping", attn_kv_slot_mapping(backend, &slots, NULL, &err));
    if (offers("gather", attn_kv_gather(backend, &gather, NULL, &err))) {
        check("attn_memory_copy",
              attn_memory_copy(backend, &to, &gather.k.buffer, sizeof keys, ATTN_COPY_TO_HOST, NULL, &err));
        check("attn_stream_synchronize", attn_stream_synchronize(backend, NULL, &err));
        for (int i = 0; i < ROWS; i++)
            compare("attn_kv_gather", (double)keys[i][1][i], (double)k[i][1][i]);
    }
    if (offers("pinned-memory", attn_memory_alloc_pinned(backend, 64, &pinned, &err)))
        attn_memory_free_pinned(backend, pinned);
    if (offers("events", attn_event_create(backend, &event, &err))) {
        check("attn_event_record", attn_event_record(backend, event, NULL, &err));
        check("attn_event_synchronize", attn_event_synchronize(backend, event, &err));
        check("attn_event_query", attn_event_query(backend, event, &err));
        attn_event_destroy(backend, event);
    }
}

static void run_plan(const struct attn_problem *problem)
{
    struct attn_kv *kv = make_cache(problem);
    struct attn_batch batch = make_batch();
    struct attn_tensors tensors = {.struct_size = sizeof tensors, .softmax_scale = SCALE, .kv = kv};
    struct attn_kv_write_args write = {.struct_size = sizeof write, .k_dtype = ATTN_F32, .v_dtype = ATTN_F32};
    struct attn_plan_info info = {.struct_size = sizeof info};
    struct attn_plan *plan;

    check("attn_plan_create", attn_plan_create(backend, problem, &plan, &err));
    check("attn_plan_describe", attn_plan_describe(plan, &info, &err));
    want("attn_plan_describe", info.kernels[0] != '\0');
    const struct memory memory = allocate_plan(plan);
    check("attn_plan_prepare",
          attn_plan_prepare(plan, &batch, &memory.schedule, &memory.staging, NULL, &err));
    write.num_tokens = ROWS;
    write.k_new = allocate_tensor(k, KV_HEADS);
    write.v_new = allocate_tensor(v, KV_HEADS);
    write.kv = kv;
    write.addressing = ATTN_TABLE;
    write.batch = &batch;
    check("attn_kv_write", attn_kv_write(backend, &write, NULL, &err));
    tensors.q = allocate_tensor(q, HEADS);
    tensors.out = allocate_tensor(NULL, HEADS);
    tensors.lse = allocate_lse();
    check("attn_plan_run",
          attn_plan_run(plan, &batch, &tensors, &memory.schedule, &memory.scratch, NULL, &err));
    judge("attn_plan_run", &tensors.out, &tensors.lse, 0, 0);
    run_merge(&tensors);
    run_cache(kv, &batch);
    run_graph(problem, &batch, &tensors);
    attn_plan_destroy(plan);
    attn_kv_destroy(kv);
}

/* ---------------------------------------------------------------- layers */

static void add_sequences(struct attn_builder *builder, int decode)
{
    for (int s = 0; s < SEQS; s++) {
        const int64_t list[WIDTH] = {table[s][0], table[s][1]};
        const struct attn_blocks given = {.kind = ATTN_BLOCKS_LIST, .count = s == 0 ? 2 : 1, .blocks = list};
        struct attn_builder_add_args add = {.struct_size = sizeof add, .blocks = &given};
        add.prompt = !decode;
        add.context_len = decode ? (uint32_t)lens[s] : 0;
        add.query_len = decode ? 1 : (uint32_t)lens[s];
        check("attn_builder_add", attn_builder_add(builder, &add, &err));
    }
}

static void run_layers(const struct attn_problem *problem)
{
    const struct attn_builder_group group = {.block = BLOCK, .max_blocks = WIDTH};
    const struct attn_layer_class layer_class = {.problem = problem};
    const struct attn_builder_params sizes = {
        .struct_size = sizeof sizes, .chunked = 1, .group = &group, .max_seqs = SEQS, .max_tokens = ROWS};
    const struct attn_state_params params = {.struct_size = sizeof params, .group = &group};
    const struct attn_layer_desc desc = {
        .struct_size = sizeof desc, .layer_class = &layer_class, .softmax_scale = SCALE};
    struct attn_layer_tensors t = {.struct_size = sizeof t};
    struct attn_view view = {.struct_size = sizeof view};
    struct attn_kv *kv = make_cache(problem);
    struct attn_builder *builder;
    struct attn_state *state;
    struct attn_layer *layer;
    struct attn_metadata *metadata;

    check("attn_builder_create", attn_builder_create(backend, &sizes, &builder, &err));
    check("attn_state_create", attn_state_create(backend, &layer_class, 1, &params, &state, &err));
    check("attn_layer_create", attn_layer_create(backend, &desc, &layer, &err));
    t.q = allocate_tensor(q, HEADS);
    t.k_new = allocate_tensor(k, KV_HEADS);
    t.v_new = allocate_tensor(v, KV_HEADS);
    t.out = allocate_tensor(NULL, HEADS);
    t.lse = allocate_lse();
    for (int decode = 0; decode < 2; decode++) {
        check("attn_builder_reset", attn_builder_reset(builder, &err));
        add_sequences(builder, decode);
        check("attn_builder_build", attn_builder_build(builder, NULL, NULL, &metadata, &err));
        check("attn_metadata_get", attn_metadata_get(metadata, ATTN_FIELD_NUM_PREFILLS, 0, &view, &err));
        want("attn_metadata_get", view.kind == ATTN_VIEW_NUMBER && view.value == (decode ? 0 : SEQS));
        check("attn_state_begin_forward", attn_state_begin_forward(state, metadata, NULL, &err));
        check("attn_layer_forward", attn_layer_forward(layer, state, metadata, kv, &t, NULL, &err));
        judge("attn_layer_forward", &t.out, &t.lse, decode, 0);
    }
    attn_layer_destroy(layer);
    attn_state_destroy(state);
    attn_builder_destroy(builder);
    attn_kv_destroy(kv);
}

/* ---------------------------------------------------------------- the simple way */

static void run_session(void)
{
    struct attn_session *session;
    struct attn_forward_args args = {
        .struct_size = sizeof args, .seqs = SEQS, .q_lens = lens, .pages = PAGES};
    const uint64_t bytes = sizeof(float) * PAGES * BLOCK * KV_HEADS * DIM;

    check("attn_open", attn_open(MODEL " lse=1", attn_backend_get_device(backend), &session, &err));
    args.table = &table[0][0];
    args.table_width = WIDTH;
    args.q = allocate_tensor(q, HEADS);
    args.k = allocate_tensor(k, KV_HEADS);
    args.v = allocate_tensor(v, KV_HEADS);
    args.out = allocate_tensor(NULL, HEADS);
    args.lse = allocate_lse();
    args.k_cache = allocate_span(bytes).buffer;
    args.v_cache = allocate_span(bytes).buffer;
    check("attn_forward", attn_forward(session, &args, NULL, &err));
    /* Its backend was opened on its own, and has a default stream of its own. */
    check("attn_session_get_backend", attn_stream_synchronize(attn_session_get_backend(session), NULL, &err));
    judge("attn_forward", &args.out, &args.lse, 0, 0);
    attn_close(session);
}

int main(int count, char **words)
{
    struct attn_problem problem;
    float *const all[] = {&q[0][0][0], &k[0][0][0], &v[0][0][0]};
    const size_t sizes[] = {sizeof q / sizeof(float), sizeof k / sizeof(float), sizeof v / sizeof(float)};

    ATTN_INIT(&err);
    unjudged = count > 1 && strcmp(words[1], "unjudged") == 0;
    for (size_t array = 0; array < 3; array++)
        for (size_t i = 0; i < sizes[array]; i++)
            all[array][i] = (float)((i * (17 + array) + i / 16) % 29) / 14 - 1;
    ask_names();
    struct attn_context *context = open_backend(&problem);
    run_plan(&problem);
    run_layers(&problem);
    run_session();
    while (block_count > 0)
        attn_memory_free(backend, &blocks[--block_count]);
    printf("%s: %d numbers;%s\n", attn_backend_get_name(backend), judged, served);
    attn_backend_destroy(backend);
    attn_context_destroy(context);
    return 0;
}
