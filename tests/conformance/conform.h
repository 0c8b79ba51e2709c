/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the files of the conformance checker share.
 *
 * A case is a problem and a seed; it says what the sequences are and what every logical key holds, but not
 * where anything lies. A step is a case laid out in guarded memory: order of sequences, page numbers,
 * strides. A target is a backend at one kernel level. The same step runs on every target and is judged by the
 * oracle.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn/attn.h"
#include "oracle.h"

/* ---------------------------------------------------------------- random.c */

struct rng {
    uint64_t state;
};

uint64_t mix(uint64_t a, uint64_t b);
uint64_t rng_next(struct rng *rng);
/* 0 .. n - 1 */
uint32_t rng_below(struct rng *rng, uint32_t n);
bool rng_chance(struct rng *rng, uint32_t percent);
#define rng_pick(rng, list) ((list)[rng_below((rng), (uint32_t)(sizeof(list) / sizeof *(list)))])
/* Random order of 0 .. n - 1. */
void rng_shuffle(struct rng *rng, uint32_t *list, uint32_t n);
/* `count` elements of spread `factor`, a function of `key` alone. Positive ones lie around 1. */
void fill_vector(uint32_t dtype, void *to, uint32_t count, uint64_t key, double factor, bool positive);

/* ---------------------------------------------------------------- buffers.c: memory between guard pages */

enum { ARENA_BUFFERS = 32 };

struct guarded {
    const char *name;
    unsigned char *map; /* first guard page */
    size_t map_size;
    unsigned char *data;
    size_t size;
    bool constant; /* protected: nothing may change it */
    bool spoiled;  /* its twin in device memory was written to where it must not be */
    struct twin *twins;
    void (*drop_twins)(struct guarded *buffer);
};

struct arena {
    struct guarded buffers[ARENA_BUFFERS];
    uint32_t count;
    bool before; /* data begin at a guard page instead of ending at one */
};

void arena_init(struct arena *arena, bool before);
/* Ends the program if there is no memory. All bytes are `fill`; the rest of the mapping is a red zone. */
struct guarded *arena_add(struct arena *arena, const char *name, size_t size, size_t alignment, uint8_t fill);
/* Makes a buffer readable only, so that a write into an input is caught where it happens. */
void guarded_protect(struct guarded *buffer);
/* Makes the whole pages between two offsets of a buffer's data neither readable nor writable. */
void guarded_forbid(const struct guarded *buffer, size_t from, size_t to);
/* Bytes from row to row, so that a page between any two of them can be forbidden. */
size_t guarded_gap(size_t row);
/* False if a red zone of any buffer was written to; *out_name is the buffer. */
bool arena_check(const struct arena *arena, const char **out_name);
void arena_finish(struct arena *arena);
/* The buffer whose mapping holds the address, or NULL. */
struct guarded *arena_buffer(const void *address);
/* From now on guarded_forbid does nothing: memory of devices has no such pages. */
void arena_forbid_nothing(void);
/* Name of the buffer whose mapping holds the address, or NULL. For the signal handler. */
const char *arena_find(const void *address);

/* The bytes that an output holds before a run. */
void pattern_fill(const struct guarded *buffer);
/* Puts the pattern back over what was expected to be written. */
void pattern_restore(const struct guarded *buffer, const void *from, size_t size);
/* Offset of the first byte that is not the pattern, or -1. */
int64_t pattern_check(const struct guarded *buffer);

/* ---------------------------------------------------------------- cases.c, batches.c */

enum { MAX_SEQS = 12, MAX_INJECTIONS = 3, PROBLEM_TEXT = 512, MAX_HEADS = 256 };

struct sequence {
    uint32_t q_len;
    uint32_t kv_len;
    uint32_t all_keys;   /* those of other ranks included */
    uint32_t first_page; /* paged: its pages in conform_case.pages */
    uint32_t pages;
    uint32_t first_slot;  /* dense, or from new rows alone: logical slot of key 0 */
    uint32_t fresh_slot;  /* cache+new: logical slot of the first new key */
    uint32_t first_query; /* of its positions in conform_case.positions */
    uint8_t causal;       /* where each sequence has its own */
    bool masked;          /* where there are masks */
};

/* NaN; or an infinite value; or the NaN of a key whose weight underflows. */
enum injection_kind { INJECT_Q = 1, INJECT_K, INJECT_V, INJECT_INFINITE, INJECT_BURIED };

/* Something not finite that a row is meant to see. */
struct injection {
    uint32_t kind;
    uint32_t sequence; /* q */
    uint32_t token;    /* q */
    uint32_t slot;     /* k, v: logical */
    uint32_t head;
    uint32_t dim;
};

/* Bits of conform_case.slots. */
#define SLOT_SEEN UINT8_C(1) /* some row sees it: holds numbers; all others hold poison */
#define SLOT_EDGE UINT8_C(2) /* first or last visible key of a chosen row: values are 32 times the rest */

/* What has a scale if its type has 8 bits. */
enum scaled { SCALED_Q, SCALED_K, SCALED_V, SCALED_OUT, SCALED_K_NEW, SCALED_V_NEW, SCALED };

/* Over which of sequence or page, token and head the values of a scale vary; the rest is broadcast. */
struct case_scale {
    uint32_t granularity; /* enum attn_granularity */
    bool outer;
    bool token;
    bool head;
    bool edges; /* scales of edges are 32 times the rest, not the codes */
    bool raw;   /* codes are any of the type */
    double base;
};

struct conform_case {
    struct attn_problem problem;
    char text[PROBLEM_TEXT];
    uint64_t seed;
    uint32_t count;
    struct sequence sequences[MAX_SEQS];
    int32_t *pages; /* logical page numbers, -1 = hole */
    uint32_t page_entries;
    uint32_t logical_pages;
    uint8_t *slots;
    uint32_t slot_count;
    bool equal;         /* from new rows alone: as many keys as queries everywhere */
    int32_t *positions; /* of query tokens, NULL if they are not given */
    float softmax_scale;
    double amplitude; /* of q */
    double shift;     /* added to every score, by the last column of q and k; 0 = none */
    uint8_t poison;   /* byte that fills what must not be read: NaN, or huge numbers */
    struct injection injections[MAX_INJECTIONS];
    uint32_t injection_count;
    float slopes[MAX_HEADS];
    double sinks[MAX_HEADS];
    uint32_t sinks_dtype;
    bool mask_heads; /* every head has a mask of its own, every row a row */
    bool mask_rows;
    bool infinite; /* one of them: what is not finite in the reference is not specified */
    struct case_scale scales[SCALED];
    uint32_t cp_rank; /* keys spread over ranks */
    uint32_t cp_world;
    uint32_t cp_interleave;
    bool long_tail; /* contents are those of long.c */
};

/* shapes.c: latent caches, ranks, caches in pieces, on top of a generated problem. */
void shapes_generate(struct attn_problem *problem, uint64_t seed);
bool shapes_covered(const struct attn_problem *problem, const char **out_key);
void case_make_latent(struct conform_case *the_case);
/* ranks.c: the rank, and all keys of every sequence; `most_products` bounds the work of a run. */
void case_spread(struct conform_case *the_case, double most_products);

/* mask.c: which sequences have a mask, and by what it varies. */
void case_pick_mask(struct conform_case *the_case);
/* Heads that have different masks. */
uint32_t case_mask_heads(const struct conform_case *the_case);
/* Whether query token i sees key j of sequence n, holes aside. `sequence` tells the rules without masks. */
bool case_sees(const struct conform_case *the_case, const struct oracle_sequence *sequence, uint32_t n,
               uint32_t head, uint32_t i, uint32_t j);

/* scales.c. Where a value belongs in the numbering of the case. */
struct scale_place {
    int64_t outer; /* logical page; sequence of the case */
    int64_t token; /* in the page; slot of a key; token of a sequence */
    int64_t head;
    int64_t slot; /* of keys and values */
};

/* Makes some problems of 8 bits. */
void problem_pick_eight(struct attn_problem *problem, uint64_t seed);
void case_pick_scales(struct conform_case *the_case, bool write);
/* The value of a scale: an f32; 1 without one. */
double case_scale_value(const struct conform_case *the_case, uint32_t what, const struct scale_place *place);

/* codes.c. A vector of queries, keys or values and the scale that it is stored with. */
struct scaled_vector {
    uint32_t what; /* enum scaled */
    uint32_t dtype;
    uint32_t count;
    void *to;
    double scale;
};

/* long.c: contents of its cases. */
void long_fill_key(const struct conform_case *the_case, const struct scaled_vector *k,
                   const struct scaled_vector *v, int64_t slot);
void long_fill_query(const struct conform_case *the_case, const struct scaled_vector *q, uint32_t row);
/* The byte that fills what must not be read: in 8 bits a NaN of the type, or a large number. */
uint8_t case_poison(const struct conform_case *the_case, uint32_t dtype);
void case_fill_vector(const struct conform_case *the_case, const struct scaled_vector *vector, uint64_t key,
                      double factor, bool positive);
/* Any NaN of the type; false if it has none. */
bool case_put_nan(const struct scaled_vector *vector, uint32_t dim);
/* The least number where the type has no infinity. */
void case_put_infinity(const struct scaled_vector *vector, uint32_t dim);
/* One row of an 8-bit out; `bound` is that of f32. *out_column is the one that is wrong. */
bool judge_codes(uint32_t dtype, const unsigned char *codes, const double *wanted, uint32_t dim, double scale,
                 double bound, bool lenient, uint32_t *out_column);

/*
 * shapes.c. Of a latent cache the first columns, times `factor`: 0 in every query, so that loud values of
 * keys at edges leave the scores alone.
 */
void case_make_loud(const struct conform_case *the_case, const struct scaled_vector *vector, double factor);
/* Lengths of sequences that are not left to chance; with them nothing is shifted or injected either. */
struct fixed_lengths {
    uint32_t count;
    uint32_t q_len[MAX_SEQS];
    uint32_t kv_len[MAX_SEQS];
    bool shared; /* all pages are the first sequence's */
};

/* What a generator may spend. */
struct effort {
    double products;       /* multiply-adds of one run */
    uint32_t elements;     /* of the cache */
    uint32_t long_percent; /* cases with thousands of keys */
};

/* lengths.c */
void case_set_lengths(struct conform_case *the_case, const struct fixed_lengths *lengths);
void case_pick_lengths(struct conform_case *the_case, struct rng *rng, const struct effort *effort,
                       bool write);

/* A random problem of the kind that can be laid out here. */
void problem_generate(struct attn_problem *problem, uint64_t seed);
/* Whether a resolved problem is of that kind. False: *out_key names what is not. */
bool problem_covered(const struct attn_problem *problem, const char **out_key);
/* Sequences and contents of a problem. `write` keeps to what a write by batch accepts. */
void case_init(struct conform_case *the_case, const struct attn_problem *problem, uint64_t seed,
               const struct effort *effort, bool write);
/* The same with given lengths. */
void case_init_fixed(struct conform_case *the_case, const struct attn_problem *problem, uint64_t seed,
                     const struct fixed_lengths *lengths);
void case_finish(struct conform_case *the_case);
/* Number of the first key that is read from new rows; the number of keys if none is. */
uint32_t case_first_fresh(const struct conform_case *the_case, uint32_t sequence);
/* Logical slot of a key, -1 for a hole. */
int64_t case_slot(const struct conform_case *the_case, uint32_t sequence, uint32_t j);

/* ---------------------------------------------------------------- layout.c, index.c, fill.c: a case in
 * memory */

/* Choices that must not change any result. */
struct layout {
    uint64_t seed;
    uint32_t order[MAX_SEQS]; /* sequences of the case */
    uint32_t count;
    uint32_t padding; /* sequences without tokens put between them */
    bool before;
    bool host;
    uint32_t alignment; /* demanded by the target */
    uint32_t stride_multiple;
};

enum { STEP_SEQS = MAX_SEQS + 4 };

struct step {
    const struct conform_case *the_case;
    struct layout layout;
    struct arena arena;
    int32_t source[STEP_SEQS]; /* sequence of the case, -1 = padding */
    uint32_t first_row[STEP_SEQS];
    uint32_t fresh_row[STEP_SEQS]; /* row of k_new and v_new of the first new key */
    uint32_t fresh_rows;
    uint32_t seqs;
    uint32_t *physical;          /* page of a logical page */
    uint32_t spare;              /* a page that nobody uses */
    struct attn_problem problem; /* with maxima */
    struct attn_batch batch;
    struct attn_batch_host host;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;
    bool use_handle;
    uint32_t numerics; /* enum attn_numerics of the target that ran last, 0 before */
    struct guarded *k_memory;
    struct guarded *v_memory;
    struct guarded *k_fresh; /* k_new and v_new, NULL without them */
    struct guarded *v_fresh;
    struct guarded *q_memory;
    struct guarded *rope_memory; /* NULL: queries lie in one piece */
    struct guarded *out_memory;
    struct guarded *lse_memory;     /* NULL without lse */
    struct guarded *scales[SCALED]; /* NULL without values */
};

/* The plain layout of a case: its own order. */
void layout_init(struct layout *layout, const struct conform_case *the_case, uint64_t seed);
/* Lays out and fills everything; `attention` is 0 for a cache without tensors. */
void step_init(struct step *step, const struct conform_case *the_case, const struct layout *layout,
               bool attention);
void step_finish(struct step *step);
/* A view [tokens, heads, dim] with random strides in a new buffer that ends with its last element. */
struct guarded *tensor_init(struct attn_tensor *tensor, struct arena *arena, const char *name,
                            const uint32_t shape[3], uint32_t element, const struct layout *layout,
                            struct rng *rng, uint8_t fill);
unsigned char *tensor_at(const struct attn_tensor *tensor, uint32_t token, uint32_t head);
/* Splits an address into data and byte offset at random. */
struct attn_buffer buffer_at(void *address, struct rng *rng);
void step_fill_keys(struct step *step);
void step_fill_queries(struct step *step);
/* scales.c: arrays without a number, those of the cache and those of the tensors. */
void step_place_cache_scales(struct step *step);
void step_place_scales(struct step *step);
struct attn_scale *step_scale(struct step *step, uint32_t what);
unsigned char *step_scale_at(struct step *step, uint32_t what, int64_t outer, int64_t token, int64_t head);
/* Nothing happens where there is no value to put. */
void step_put_scale(struct step *step, uint32_t what, int64_t outer, int64_t token, int64_t head,
                    double value);
/* mask.c */
void step_place_mask(struct step *step, struct rng *rng);
/* index.c: everything of the batch, and the pages and tokens of the cache. */
void step_place_batch(struct step *step, struct rng *rng);
/* Where key j of a sequence of the step lies. */
void step_place(const struct step *step, uint32_t index, uint32_t j, int64_t *out_page, int64_t *out_token);
unsigned char *key_at(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head);
unsigned char *value_at(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head);
/* A protected array of the batch. */
struct attn_buffer step_add_array(struct step *step, const char *name, const void *from, size_t count,
                                  uint32_t element, struct rng *rng);
/* ranks.c: this rank, and all keys of the sequences of a step. */
void step_place_ranks(struct step *step, struct rng *rng);

/* ---------------------------------------------------------------- pieces.c: layouts in pieces */

/* x: elements of a key that lie together in layout paged-x. */
uint32_t paged_x_elements(uint32_t dtype);
/* Memory for a vector before it is placed, kept until `which` (0 or 1) is asked for again. */
unsigned char *vector_room(uint32_t which, uint32_t count);
/* Elements of a cache of either layout. */
unsigned char *key_element(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head,
                           uint32_t d);
unsigned char *value_element(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head,
                             uint32_t d);
void put_key(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head,
             const unsigned char *vector);
void put_value(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head,
               const unsigned char *vector);
void get_key(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head, unsigned char *to);
void get_value(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head, unsigned char *to);
void put_query(const struct step *step, uint32_t row, uint32_t head, const unsigned char *vector);
/* q, in one piece or two. */
void step_place_queries(struct step *step, uint32_t rows, struct rng *rng);
/* Strides of a cache in pieces; returns the bytes of a page. */
uint64_t paged_x_strides(const struct step *step, struct rng *rng, bool values, int64_t *out_token,
                         int64_t *out_head);

/* ---------------------------------------------------------------- executor.c */

enum executor {
    EXECUTOR_POOL,
    EXECUTOR_SERIAL,
    EXECUTOR_PARALLEL,
    EXECUTOR_TEAM_2,
    EXECUTOR_TEAM_3,
    EXECUTORS
};

typedef int32_t (*call_fn)(void *arg, void *stream, struct attn_error *err);

const char *executor_name(enum executor executor);
/* From now on calls are made as if on the plugin's pool, whatever is asked for. */
void executors_lend_nothing(void);
/* Makes the same call on the plugin's pool, through parallel_for, or as a team. */
int32_t executor_call(enum executor executor, call_fn call, void *arg, struct attn_error *err);

/* ---------------------------------------------------------------- target.c */

enum { MAX_TARGETS = 32, POOLS = 3 };

struct target {
    char name[64];
    char level[64];
    struct attn_device device;
    struct attn_context *context;
    struct attn_backend *backend;
    struct attn_backend *pools[POOLS]; /* with 1, 2, 3 threads */
    uint32_t accepted;
};

struct target_list {
    struct target targets[MAX_TARGETS];
    uint32_t count; /* to be judged; the others behind them have a say in alignment and strides alone */
    uint32_t opened;
    struct attn_context *contexts[MAX_TARGETS];
    uint32_t context_count;
};

/*
 * Opens every backend of the plugin at every level; those that match come first. 0, or the exit status of the
 * program after a text on stderr. `file` is the plugin as the user called it.
 */
int targets_open(struct target_list *list, const char *plugin_path, const char *file, const char *backend,
                 const char *level);
void targets_close(struct target_list *list);
/* Whether the memory of the targets is out of the host's reach. */
bool targets_mirrored(const struct target_list *list);
/* Alignment and strides that a target demands for a problem. */
void target_demands(const struct target *target, const struct attn_problem *problem, struct layout *layout);
/* What all targets demand, the same whichever of them are judged. */
void targets_demand(const struct target_list *list, const struct attn_problem *problem,
                    struct layout *layout);

/* ---------------------------------------------------------------- plugin-path.c */

/*
 * Makes a private directory that holds nothing but a link to `file` under a name that libattn looks for, and
 * takes every variable of libattn out of the environment, so that a run depends on its arguments alone.
 * 0, or the exit status after a text on stderr.
 */
int plugin_path_make(const char *file);
const char *plugin_path(void);      /* the directory */
const char *plugin_path_file(void); /* absolute path of the file */
void plugin_path_remove(void);

/* ---------------------------------------------------------------- tap.c */

enum filter_kind { FILTER_PROBLEM = 1, FILTER_PATTERN, FILTER_NAME };

struct run_options {
    const char *plugin;          /* absolute path of the file, for kinds that open it themselves */
    const char *plugin_path;     /* directory that holds it alone, for attn_context_options */
    const char *running;         /* the kind that runs now */
    const char *kind;            /* NULL = all */
    const char *filter;          /* NULL = none */
    uint32_t filter_kind;        /* enum filter_kind, 0 = none */
    struct attn_problem problem; /* FILTER_PROBLEM */
    bool random;                 /* ... which the random cases cover */
    uint64_t seed;
    bool seed_given;
    uint32_t cases; /* 0 = as the mode says */
    bool full;
};

/*
 * Names what runs now: for the result line, the reproduction line, and the signal handler. `text` is the
 * problem string, or the name of a case that has none; "" where the seed alone tells cases apart.
 */
void tap_begin(const struct target *target, const char *kind, const char *text, uint64_t seed);
void tap_pass(void);
void tap_skip(const char *why);
void tap_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line for people, which is no result. */
void tap_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---------------------------------------------------------------- run.c, judge.c */

/* Bits of attempt.detours: legal ways to the same result. */
#define DETOUR_MANY  UINT32_C(1) /* prepare_many with a second plan of the same kind */
#define DETOUR_COPY  UINT32_C(2) /* the schedule is moved before the run */
#define DETOUR_DIRTY UINT32_C(4) /* counters hold rubbish, and the run is told so */

/* What may vary between runs of one step on one target. */
struct attempt {
    struct attn_backend *backend;
    enum executor executor;
    enum executor prepare_executor;
    uint32_t slack; /* added to the problem's maxima */
    uint32_t detours;
};

/* Asks, plans, prepares and runs. 1 = ran, 0 = refused by the query (why), -1 = failed (why). */
int step_run(struct step *step, const struct target *target, const struct attempt *attempt, char *why,
             size_t size);

/* The reference of a step. */
struct reference {
    struct oracle_result result;
    uint32_t pairs;
};

bool reference_init(struct reference *reference, const struct step *step, double budget);
void reference_finish(struct reference *reference);
/* True if the outputs are right. Afterwards they hold the pattern again. */
bool step_judge(const struct step *step, const struct reference *reference, char *why, size_t size);
/* Every byte that no row owns still holds the pattern. Outputs hold the pattern afterwards. */
bool step_check_outside(const struct step *step, char *why, size_t size);
/* Whether a target accepts a problem; `why` gets its first reason. */
/* out_numerics (or NULL): raised to the class of the roughest kernel row, enum attn_numerics. */
bool target_accepts(const struct target *target, const struct attn_problem *problem, uint32_t *out_numerics,
                    char *why, size_t size);
/* ---------------------------------------------------------------- the kinds of checks */

/* In processes of their own: the plugin is not loaded in this one. */
void check_manners(const struct run_options *options);
void check_abi(const struct run_options *options);

void check_attention(struct target_list *list, const struct run_options *options);
void check_deterministic(struct target_list *list, const struct run_options *options);
void check_write(struct target_list *list, const struct run_options *options);
void check_cache(struct target_list *list, const struct run_options *options);
void check_merge(struct target_list *list, const struct run_options *options);
void check_nan(struct target_list *list, const struct run_options *options);
void check_long(struct target_list *list, const struct run_options *options);
void check_query(struct target_list *list, const struct run_options *options);
void check_faults(struct target_list *list, const struct run_options *options);
void check_distrust(struct target_list *list, const struct run_options *options);
void check_huge(struct target_list *list, const struct run_options *options);
void check_axes(struct target_list *list, const struct run_options *options);
void check_concurrency(struct target_list *list, const struct run_options *options);

/* Whether --filter admits a case of the running kind that has this text (see tap_begin). */
bool options_wants(const struct run_options *options, const char *text);
/* Seed number `n` of a run, and its problem: the filter's, or a random one. False if the filter excludes it.
 */
bool options_problem(const struct run_options *options, uint32_t n, uint64_t salt,
                     struct attn_problem *out_problem, uint64_t *out_seed);
/*
 * The same for kinds that need a problem that is served: a random one that no target accepts is brought
 * closer to a plain one until one does.
 */
bool options_served(const struct run_options *options, const struct target_list *list, uint32_t n,
                    uint64_t salt, struct attn_problem *out_problem, uint64_t *out_seed);
/* Makes a problem what its text says, so that a reproduction line says what was run. */
void problem_through_text(struct attn_problem *problem);
uint32_t options_cases(const struct run_options *options, uint32_t quick, uint32_t full);

#endif
