/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The serving layer: everything between a scheduler's batch and a kernel.
 *
 *   1. attn_builder_create   once per model and thread of steps: buffers for the largest step.
 *   2. attn_builder_reset    a new step; rows of the block tables stay.
 *   3. attn_builder_add      once per sequence, prompts first.
 *   4. attn_builder_build    the metadata of the step.
 *   5. attn_metadata_get     any field of it, as a view.
 *
 * From step 2 on nothing is allocated. Errors, ownership and handles are as in attn.h. One thread at a time
 * uses a builder and its metadata; different builders are used in parallel.
 */
#ifndef ATTN_LAYER_H
#define ATTN_LAYER_H

#include "attn/attn.h"
#include "attn/layer-types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct attn_builder;
struct attn_metadata;

/* Name of a `flavour`: "flash-attn", static; NULL for a number that is no enum attn_flavour. */
ATTN_API const char *attn_flavour_name(uint32_t flavour);

/* ---------------------------------------------------------------- builder */

/*
 * Makes a builder. `backend` may be NULL: then everything lies in host memory, and params->flavour must be
 * given. ATTN_E_INVALID names the parameter; ATTN_E_MEMORY.
 */
ATTN_API int32_t attn_builder_create(struct attn_backend *backend, const struct attn_builder_params *params,
                                     struct attn_builder **out, struct attn_error *err);
/* Its metadata goes with it. */
ATTN_API void attn_builder_destroy(struct attn_builder *builder);

/*
 * Begins a step: no sequences. The metadata of the step before ends here. Rows of the block tables keep their
 * cells, so that an add says what of its row is unchanged.
 */
ATTN_API int32_t attn_builder_reset(struct attn_builder *builder, struct attn_error *err);

/*
 * Adds a sequence. What it points to must stay until attn_builder_build. A failing call adds nothing.
 * ATTN_E_INVALID: a length, list or row that cannot be, with the message of vLLM where it has one.
 * ATTN_E_SIZE: more than the builder was made for.
 */
ATTN_API int32_t attn_builder_add(struct attn_builder *builder, const struct attn_builder_add_args *args,
                                  struct attn_error *err);

/*
 * Changes blocks of a row: cells [first, first + count) of the sequence's list, which they may lengthen. Of a
 * sequence of the step, also a built one, slots, pages and table become what an add with the new list would
 * have made; what is on the device follows with the next attn_builder_build. Of another row only the table
 * changes, and its next add says ATTN_BLOCKS_ROW, or what of its list is unchanged. Only changed cells
 * are copied.
 */
ATTN_API int32_t attn_builder_set_row(struct attn_builder *builder, const struct attn_builder_row_args *args,
                                      struct attn_error *err);

/*
 * In place of adds: the arrays of the step are on the device. The build works out slots, positions, context
 * lengths, start locations and pages there, by one kernel per cache group, and what a build from host lists
 * would give is the same byte for byte, but for pages behind those in use. Values are then not known on the
 * host: seq_lens is null, and views have no `host` unless the device is the host. Padding of a graph is in
 * the arrays. ATTN_E_UNSUPPORTED: an encoder, ranks, or a backend without advance_step.
 */
ATTN_API int32_t attn_builder_set_device(struct attn_builder *builder,
                                         const struct attn_builder_device_args *args, struct attn_error *err);

/*
 * Ends a step and gives its metadata, which belongs to the builder and lives until reset, destroy, or the
 * next build. `args` may be NULL: no graph. Copies to the device are in order of `stream`. A failing call
 * leaves the step as it was.
 */
ATTN_API int32_t attn_builder_build(struct attn_builder *builder, const struct attn_builder_build_args *args,
                                    void *stream, struct attn_metadata **out, struct attn_error *err);

/* ---------------------------------------------------------------- metadata */

/* Name of a `field`: "seq_lens_tensor", static; NULL for a number that is no enum attn_field. */
ATTN_API const char *attn_field_name(uint32_t field);

/*
 * One field. `index` is the cache group or the modality of fields that exist once for each, else 0. A field
 * without a value has kind ATTN_VIEW_NULL and is no error. Views show what later calls change in place.
 */
ATTN_API int32_t attn_metadata_get(const struct attn_metadata *metadata, uint32_t field, uint32_t index,
                                   struct attn_view *out, struct attn_error *err);

/* ---------------------------------------------------------------- from step to step */

/*
 * The prompts or the decodes of a step alone (enum attn_part), as views of the same arrays; *out is NULL if
 * there are none. FlashInfer has no parts: the answer is the whole. A part lives until the next build, reset
 * or advance. ATTN_E_INVALID names a field that a part needs and that is not set.
 */
ATTN_API int32_t attn_metadata_get_part(struct attn_metadata *metadata, uint32_t part,
                                        struct attn_metadata **out, struct attn_error *err);

/*
 * Advances a step of decodes in place, without a builder: lengths, positions, slots, start locations, and
 * pages of the FlashInfer flavour, on the host and on the device. Blocks that the new tokens need must be in
 * the block tables already: attn_builder_set_row adds them, and from the first advance on changes nothing
 * else of the step. FlashInfer takes no more blocks than the step was built with. Parts end here.
 * ATTN_E_INVALID names the field that is not as required, and then nothing has changed;
 * ATTN_E_UNSUPPORTED: rows trimmed to a window, the xformers flavour, ranks on a device with memory of its
 * own, or a device whose backend has no advance_step.
 */
ATTN_API int32_t attn_metadata_advance_step(struct attn_metadata *metadata,
                                            const struct attn_advance_args *args, void *stream,
                                            struct attn_error *err);

/*
 * Writes a step into `capacity` bytes for builders of other processes: struct attn_serialised_header.
 * *out_size gets the size, of what is needed with ATTN_E_SIZE; `data` may be NULL with capacity 0.
 * ATTN_E_STATE: some values are on the device alone. ATTN_E_UNSUPPORTED: a builder with ranks, which neither
 * writes steps nor restores them, since each rank has slots and blocks of its own.
 */
ATTN_API int32_t attn_metadata_serialise(const struct attn_metadata *metadata, void *data, uint64_t capacity,
                                         uint64_t *out_size, struct attn_error *err);

/*
 * Makes the step that was written, `size` bytes, the step of this builder, as a build would; the one at hand
 * ends. Flavour, cache groups, their blocks and modalities are to be the same, the builder's maxima large
 * enough. Nothing in `data` is trusted: ATTN_E_INVALID or ATTN_E_SIZE names the field that cannot be, and
 * leaves no step.
 */
ATTN_API int32_t attn_builder_restore(struct attn_builder *builder, const void *data, uint64_t size,
                                      void *stream, struct attn_metadata **out, struct attn_error *err);

/* ---------------------------------------------------------------- state */

/*
 * The state of a model: one plan per layer class with schedules, staging, scratch and counters, and what
 * graphs are captured with.
 *
 *   once         attn_state_create
 *   once         attn_state_begin_capture, then for sizes from large to small
 *                    attn_state_get_capture_metadata, attn_state_clone,
 *                    warm up: attn_state_begin_forward of the clone with that metadata, and the layers,
 *                    capture: the same two again between attn_graph_begin and attn_graph_end,
 *                and attn_state_end_capture
 *   each step    attn_state_begin_forward and the layers
 *   or, replayed attn_state_prepare and attn_graph_launch
 *
 * A clone is the state of one captured size: layers are captured with it. States of one model share
 * schedules and scratch, so that steps of all of them are put on one stream, or one after the other is done.
 *
 * The begin_forward of a capture becomes part of the graph: with every launch the device plans for what the
 * buffers hold then. A replayed step is thus one copy, of attn_state_prepare, and one launch; the host plans
 * nothing and allocates nothing. On the CPU there is no copy, since the buffers are host memory, and the
 * launch makes the recorded calls, that of planning among them.
 *
 * A capture without begin_forward keeps the layers alone. Then each step is begun before its launch, with
 * attn_state_begin_forward, which plans on the host. So are layers captured one by one, and models on a
 * backend that plans on the host alone: there attn_state_begin_forward of capture metadata is
 * ATTN_E_UNSUPPORTED, and the clone is warmed up and captured in a step of that size, which was prepared and
 * begun with it.
 *
 * Rows of padding write no cache. FlashInfer's have no keys, so that `out` becomes zeros; others attend to
 * the first token of block 0, so that `out` is meaningless there. Rows behind the captured size stay,
 * and so do those of a graph of any mix behind the step's tokens.
 */
struct attn_state;

/*
 * Makes a state of `count` layer classes. ATTN_E_INVALID names a parameter, or as classes[I].KEY a key of a
 * problem: a FlashInfer state reads index lists (addr=csr), others block tables (addr=table).
 * ATTN_E_UNSUPPORTED if the backend does not serve a class, or stages copies but has no events. With
 * collectives each class gets buffers for parts of results; nothing is sent.
 */
ATTN_API int32_t attn_state_create(struct attn_backend *backend, const struct attn_layer_class *classes,
                                   uint32_t count, const struct attn_state_params *params,
                                   struct attn_state **out, struct attn_error *err);
/* Graphs captured with it or its clones must be destroyed before them, or not launched any more. */
ATTN_API void attn_state_destroy(struct attn_state *state);

/*
 * Begins to capture graphs of at most max_batch sequences: allocates the capture buffers, and unless the
 * device is the host as much staging for each of params.steps. They live as long as the capture or any clone.
 * With collectives these are work of the device, all ranks capture and launch the same sizes in the same
 * order, and cp_interleave of attn_state_params is that of the steps. ATTN_E_STATE if a capture was begun
 * already, or on a clone; ATTN_E_UNSUPPORTED without events, and with collectives of host memory.
 */
ATTN_API int32_t attn_state_begin_capture(struct attn_state *state, uint32_t max_batch, void *stream,
                                          struct attn_error *err);
/* Ends it; also after a failure in between. */
ATTN_API int32_t attn_state_end_capture(struct attn_state *state, struct attn_error *err);

/*
 * Metadata of a graph of one size, over the capture buffers, which again hold what a warm-up can read. It
 * lives until the next call of this function or the end of the capture, if no clone is made of it. A
 * FlashInfer state makes plans of this size. ATTN_E_INVALID outside of a capture, or names a size that the
 * state was not made for. A graph of any mix wants graph=always of all classes, and none with an encoder.
 */
ATTN_API int32_t attn_state_get_capture_metadata(struct attn_state *state,
                                                 const struct attn_state_capture_args *args, void *stream,
                                                 struct attn_metadata **out, struct attn_error *err);
/*
 * The state of the size whose capture metadata was taken last, of `batch` sequences; that metadata now lives
 * as long as the clone. attn_state_prepare and attn_state_begin_forward of `state` find the clone by its size
 * as long as both live. ATTN_E_INVALID outside of a capture.
 */
ATTN_API int32_t attn_state_clone(struct attn_state *state, uint32_t batch, struct attn_state **out,
                                  struct attn_error *err);

/*
 * A capture buffer of a clone that engines fill or capture with, by the field that it is the input for:
 * slot_mapping, and but for FlashInfer seq_lens_tensor and block_tables, of any mix query_start_loc, and with
 * encoder and decoder encoder_seq_lens_tensor, cross_slot_mapping and cross_block_tables. Others have kind
 * ATTN_VIEW_NULL.
 */
ATTN_API int32_t attn_state_get_input(const struct attn_state *state, uint32_t field, uint32_t index,
                                      struct attn_view *out, struct attn_error *err);

/*
 * Puts a graph's step into the capture buffers, in order of the stream: slots, lengths, block tables, pages
 * and the encoder's lengths of all cache groups, by one copy from the host, whose size follows from the
 * number of sequences. A step that only the device knows is moved there, field by field, but for
 * FlashInfer's, whose lists of pages the host packs: ATTN_E_UNSUPPORTED. The step that was begun ends.
 *
 * A clone takes metadata of its own size; a state looks its clone up. Steps whose sequences have several
 * query tokens each, all as many, are built without padding: they go to the smallest clone of so many tokens
 * that has room, and the state pads it. Steps that have no clone of their own size, with prompts or without,
 * go to that of any mix with the fewest query tokens, then sequences, that has room; they are built without
 * padding too. ATTN_E_STATE: no such size was captured. ATTN_E_BUSY, at once and
 * with nothing done, if the copies of params.steps earlier steps are still under way. ATTN_E_INVALID names a
 * field whose shape does not fit, ATTN_E_SIZE one with a sequence longer than max_capture_len or its row of
 * the block table, or with more query tokens than the graph's max_q; the buffers then hold the step before.
 * Any mix refuses what a run over the cache refuses: prompts without rows, ATTN_E_INVALID, and prompts longer
 * than the window of their cache group, ATTN_E_UNSUPPORTED, as is a step that the device alone knows.
 */
ATTN_API int32_t attn_state_prepare(struct attn_state *state, const struct attn_metadata *metadata,
                                    void *stream, struct attn_error *err);

/*
 * Plans the step for all classes, with one staging copy. Of a graph's metadata the clone of its size plans,
 * over the capture buffers, which are prepared if they do not hold this step. With the metadata of a capture
 * the device plans for what the buffers hold: nothing is copied, and the call can be captured.
 *
 * ATTN_E_BUSY, at once and with nothing done, if the copies of params.steps earlier steps are still under
 * way. After any other failure there is no step.
 */
ATTN_API int32_t attn_state_begin_forward(struct attn_state *state, const struct attn_metadata *metadata,
                                          void *stream, struct attn_error *err);

/*
 * The run of class number `layer_class`, for engines that write caches and run plans themselves. ATTN_E_STATE
 * if no step was begun, or another state of the model has begun one since; ATTN_E_UNSUPPORTED if the step has
 * two runs for the class.
 */
ATTN_API int32_t attn_state_get_step(const struct attn_state *state, uint32_t layer_class,
                                     struct attn_state_step *out, struct attn_error *err);

/* ---------------------------------------------------------------- layers */

/*
 * A layer of a model. It is immutable, and any thread and any state of its backend may use it, in parallel.
 */
struct attn_layer;

/*
 * Makes a layer. The backend is asked whether it serves the class: ATTN_E_UNSUPPORTED with its reason, and
 * ENC_DEC_ROCM_HIP of encoders and cross-attention for ROCm. ATTN_E_INVALID names a member.
 */
ATTN_API int32_t attn_layer_create(struct attn_backend *backend, const struct attn_layer_desc *desc,
                                   struct attn_layer **out, struct attn_error *err);
/* Gives a layer back. NULL is ignored. */
ATTN_API void attn_layer_destroy(struct attn_layer *layer);

/*
 * One layer in the step that attn_state_begin_forward has begun with `state` and `metadata`: writes keys and
 * values into `kv` and runs attention.
 *
 * It writes what k_new and v_new hold to the step's slots of the class' cache group: never for encoders,
 * and not without k_new or kv; after the run where the problem reads cache+new, else before it. The run reads
 * as the problem's kv_source says; in a profile run, whose sequences have no blocks, and of prompts without
 * rows in a block table, it reads k_new and v_new alone. `kv` may be NULL where nothing is read from a cache.
 *
 * In order of `stream`, and legal inside a capture with the clone of a size and its capture metadata. Nothing
 * is allocated. ATTN_E_STATE: no step, or of other metadata. ATTN_E_INVALID names what is missing or does not
 * fit. After a failure what was written to the cache and to `out` is undefined.
 *
 * With collectives new keys go to this rank's slots, and attention is over the keys of all ranks: all make
 * the same calls in the same order, and attn_cp_run (attn/parallel.h) says what a failure means for the
 * others. ATTN_E_PEER is passed on as it is.
 */
ATTN_API int32_t attn_layer_forward(const struct attn_layer *layer, struct attn_state *state,
                                    const struct attn_metadata *metadata, struct attn_kv *kv,
                                    const struct attn_layer_tensors *tensors, void *stream,
                                    struct attn_error *err);

#ifdef __cplusplus
}
#endif
#endif
