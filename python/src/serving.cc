// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// States and layers: the plans of a model, and the layers that run on a step.
#include "serving.h"
#include "graph.h"

#include <algorithm>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace
{

struct State : std::enable_shared_from_this<State> {
    std::shared_ptr<Backend> backend;
    std::vector<attn_problem> problems;
    Groups groups;
    Handle<attn_state, attn_state_destroy> handle;
    std::shared_ptr<Metadata> step;      // holds what was begun
    std::shared_ptr<Metadata> capturing; // of the size that a clone may be made of
    uint64_t captures = 0;
};

struct Layer {
    std::shared_ptr<Backend> backend;
    attn_problem problem{};
    uint32_t class_index;
    Handle<attn_layer, attn_layer_destroy> handle;
    std::vector<Array> keep; // slopes and sinks
};

// Lists of classes have an entry for each, or are left out.
void need_classes(size_t entries, size_t classes, const char *name)
{
    if (entries != 0 && entries != classes)
        refuse(name, std::string(name) + " has " + std::to_string(entries) +
                         " entries; one for each of the " + std::to_string(classes) +
                         " problems is accepted");
}

// The element type of new keys by its name; "" for the queries' own.
uint32_t new_dtype_of(const std::string &name)
{
    for (const uint32_t dtype : {ATTN_F32, ATTN_F16, ATTN_BF16})
        if (name == attn_dtype_name(dtype))
            return dtype;
    if (!name.empty())
        refuse("new_dtypes",
               "new_dtypes has '" + name + "'; f32, f16, bf16 and '', which is q's, are accepted");
    return 0;
}

std::shared_ptr<State> make_state(std::shared_ptr<Backend> backend, const std::vector<std::string> &problems,
                                  const std::vector<nb::object> &groups,
                                  const std::vector<uint32_t> &group_of_class, const nb::object &cross_,
                                  const std::vector<std::string> &new_dtypes, uint32_t max_capture_len,
                                  uint32_t steps, uint32_t capture_tokens, uint32_t capture_num_tokens)
{
    auto state = std::make_shared<State>();
    std::vector<attn_layer_class> classes;
    attn_state_params params;
    attn_state *made = nullptr;
    Error error;
    state->backend = backend;
    state->groups = groups_of(groups);
    const Groups cross = cross_of(cross_);
    for (const std::string &text : problems)
        state->problems.push_back(parse(text));
    need_classes(group_of_class.size(), problems.size(), "class_groups");
    need_classes(new_dtypes.size(), problems.size(), "new_dtypes");
    for (size_t i = 0; i < problems.size(); i++) {
        attn_layer_class one{};
        one.problem = &state->problems[i];
        one.group = group_of_class.empty() ? 0 : group_of_class[i];
        one.new_dtype = new_dtypes.empty() ? 0 : new_dtype_of(new_dtypes[i]);
        classes.push_back(one);
    }
    ATTN_INIT(&params);
    params.group = state->groups.data();
    params.groups = (uint32_t)state->groups.size();
    params.cross = cross.empty() ? nullptr : cross.data();
    params.max_capture_len = max_capture_len;
    params.steps = steps;
    params.capture_tokens = capture_tokens;
    params.capture_num_tokens = capture_num_tokens;
    check(attn_state_create(backend->get(), classes.data(), (uint32_t)classes.size(), &params, &made,
                            error.get()),
          error);
    state->handle.reset(made);
    return state;
}

void begin_forward(std::shared_ptr<State> state, std::shared_ptr<Metadata> metadata, uintptr_t stream)
{
    Error error;
    int32_t status;
    attn_metadata *handle = metadata->get();
    hold_captured(stream, {}, {state, metadata});
    {
        nb::gil_scoped_release release;
        status = attn_state_begin_forward(state->handle.get(), handle, (void *)stream, error.get());
    }
    check(status, error);
    state->step = std::move(metadata);
}

// ---------------------------------------------------------------- captures

void begin_capture(State &state, uint32_t max_batch, uintptr_t stream)
{
    Error error;
    check(attn_state_begin_capture(state.handle.get(), max_batch, (void *)stream, error.get()), error);
}

void end_capture(State &state)
{
    Error error;
    check(attn_state_end_capture(state.handle.get(), error.get()), error);
    state.captures++;
    state.capturing.reset();
}

std::shared_ptr<Metadata> get_capture_metadata(std::shared_ptr<State> state, uint32_t batch,
                                               bool encoder_decoder, uint32_t tokens, uint32_t num_tokens,
                                               uintptr_t stream)
{
    attn_state_capture_args args;
    attn_metadata *made = nullptr;
    Error error;
    ATTN_INIT(&args);
    args.batch = batch;
    args.encoder_decoder = encoder_decoder;
    args.tokens = tokens;
    args.num_tokens = num_tokens;
    state->captures++;
    state->capturing.reset();
    check(attn_state_get_capture_metadata(state->handle.get(), &args, (void *)stream, &made, error.get()),
          error);
    const std::shared_ptr<const uint64_t> last(state, &state->captures);
    state->capturing = std::make_shared<Metadata>(Metadata{made, state->captures, last, nullptr});
    return state->capturing;
}

std::shared_ptr<State> make_clone(State &state, uint32_t batch)
{
    auto clone = std::make_shared<State>();
    attn_state *made = nullptr;
    Error error;
    if (!state.capturing)
        refuse("batch",
               "batch is " + std::to_string(batch) +
                   "; there is no capture metadata without a clone; get_capture_metadata takes it first");
    check(attn_state_clone(state.handle.get(), batch, &made, error.get()), error);
    clone->backend = state.backend;
    clone->handle.reset(made);
    // From here on the metadata lives as long as the clone.
    state.capturing->number = clone->captures;
    state.capturing->last = std::shared_ptr<const uint64_t>(clone, &clone->captures);
    state.capturing.reset();
    return clone;
}

void prepare(State &state, const Metadata &metadata, uintptr_t stream)
{
    Error error;
    int32_t status;
    attn_metadata *handle = metadata.get();
    {
        nb::gil_scoped_release release;
        status = attn_state_prepare(state.handle.get(), handle, (void *)stream, error.get());
    }
    check(status, error);
}

// ---------------------------------------------------------------- layers

std::shared_ptr<Layer> make_layer(std::shared_ptr<Backend> backend, const std::string &problem, float scale,
                                  uint32_t class_index, uint32_t group, nb::handle slopes_, nb::handle sinks_)
{
    auto layer = std::make_shared<Layer>();
    attn_layer_class layer_class{};
    attn_layer_desc desc;
    attn_tensors per_head;
    attn_layer *made = nullptr;
    Error error;
    layer->backend = backend;
    layer->problem = parse(problem);
    layer->class_index = class_index;
    layer_class.problem = &layer->problem;
    layer_class.group = group;
    ATTN_INIT(&desc);
    ATTN_INIT(&per_head);
    Array slopes = optional(slopes_, "alibi_slopes"), sinks = optional(sinks_, "sinks");
    give_slopes(per_head, slopes, layer->problem.heads, backend->device);
    give_sinks(per_head, sinks, layer->problem.heads, backend->device);
    desc.layer_class = &layer_class;
    desc.class_index = class_index;
    desc.softmax_scale = scale;
    desc.alibi_slopes = per_head.alibi_slopes;
    desc.sinks = per_head.sinks;
    desc.sinks_dtype = per_head.sinks_dtype;
    check(attn_layer_create(backend->get(), &desc, &made, error.get()), error);
    layer->handle.reset(made);
    layer->keep.push_back(std::move(slopes));
    layer->keep.push_back(std::move(sinks));
    return layer;
}

attn_view view_of(const Metadata &metadata, uint32_t field)
{
    attn_view view;
    Error error;
    ATTN_INIT(&view);
    check(attn_metadata_get(metadata.get(), field, 0, &view, error.get()), error);
    return view;
}

// Tokens that a layer's tensors have at least, and the batch of its run; null where the step has two runs.
struct Sizes {
    int64_t queries, keys;
    const attn_batch *batch;
};

Sizes sizes_of(const State &state, const Layer &layer)
{
    const Metadata &metadata = *state.step;
    const attn_problem &problem = layer.problem;
    attn_state_step run;
    int64_t tokens = view_of(metadata, ATTN_FIELD_NUM_PREFILL_TOKENS).value +
                     view_of(metadata, ATTN_FIELD_NUM_DECODE_TOKENS).value;
    ATTN_INIT(&run);
    // A graph may have more than the step that is in it.
    if (attn_state_get_step(state.handle.get(), layer.class_index, &run, nullptr) == ATTN_OK)
        tokens = std::max(tokens, (int64_t)run.batch->num_tokens);
    if (problem.type != ATTN_ENCODER && problem.type != ATTN_ENCODER_DECODER)
        return {tokens, tokens, run.batch};
    // The encoder's tokens of prompts; new keys that decodes read too are those of all sequences.
    const attn_view starts = view_of(metadata, ATTN_FIELD_ENCODER_SEQ_START_LOC);
    const bool all = problem.type == ATTN_ENCODER_DECODER && problem.kv_source != ATTN_KV_CACHE;
    const uint64_t seqs = all && starts.kind == ATTN_VIEW_ARRAY
                              ? starts.shape[0] - 1
                              : (uint64_t)view_of(metadata, ATTN_FIELD_NUM_PREFILLS).value;
    const int64_t encoder = starts.host != nullptr ? ((const int32_t *)starts.host)[seqs] : 0;
    return {problem.type == ATTN_ENCODER ? encoder : tokens, encoder, run.batch};
}

void give_queries(attn_layer_tensors &tensors, const Array &q, const Array &rope, const Layer &layer,
                  int64_t tokens)
{
    const attn_problem &problem = layer.problem;
    need_key(rope, problem.mla != 0, "mla=1");
    const Columns queries = columns_of(q, rope, tokens, problem.heads, problem.head_dim, problem.head_dim_vo,
                                       layer.backend->device);
    tensors.q = queries.first;
    tensors.q_rope = queries.rope;
}

void give_keys(attn_layer_tensors &tensors, const Array &k, const Array &v, const Array &rope,
               const Layer &layer, int64_t tokens)
{
    const attn_problem &problem = layer.problem;
    const attn_device &device = layer.backend->device;
    need_key(rope, problem.mla != 0, "mla=1");
    if (rope && !k)
        refuse("k_rope", "k_rope is given without k; k is its first " + std::to_string(problem.head_dim_vo) +
                             " columns");
    if (k) {
        const Columns keys =
            columns_of(k, rope, tokens, problem.kv_heads, problem.head_dim, problem.head_dim_vo, device);
        tensors.k_new = keys.first;
        tensors.k_rope = keys.rope;
    }
    if (v) {
        need_tokens(v.need_on(device), tokens, problem.kv_heads, problem.head_dim_vo);
        tensors.v_new = v.tensor();
    }
}

void forward(std::shared_ptr<Layer> layer, std::shared_ptr<State> state, nb::handle q_, nb::handle out_,
             std::shared_ptr<KV> kv, nb::handle k_, nb::handle v_, nb::handle lse_, nb::handle mask_,
             nb::handle q_rope_, nb::handle k_rope_, nb::handle q_scale, nb::handle k_scale,
             nb::handle v_scale, nb::handle out_scale, uintptr_t stream)
{
    const attn_device &device = layer->backend->device;
    const attn_problem &problem = layer->problem;
    const Array q(q_, "q"), out(out_, "out", true),
        k = optional(k_, "k"), v = optional(v_, "v"), lse = optional(lse_, "lse", true),
        mask = optional(mask_, "mask"), q_rope = optional(q_rope_, "q_rope"),
        k_rope = optional(k_rope_, "k_rope");
    if (!state->step)
        refuse("state", "state has begun no step; begin_forward begins one");
    const Sizes sizes = sizes_of(*state, *layer);
    attn_layer_tensors tensors;
    Error error;
    ATTN_INIT(&tensors);
    give_queries(tensors, q, q_rope, *layer, sizes.queries);
    need_tokens(out.need_on(device), sizes.queries, problem.heads, problem.head_dim_vo);
    tensors.out = out.tensor();
    give_keys(tensors, k, v, k_rope, *layer, sizes.keys);
    if (lse)
        tensors.lse = lse_tensor(lse, sizes.queries, problem.heads, device);
    std::shared_ptr<Mask> given;
    need_key(mask, problem.mask != ATTN_MASK_NONE, "mask");
    // Of a step with two runs, or none, libattn refuses masks itself.
    if (mask && sizes.batch != nullptr && sizes.batch->seqs > 0) {
        given = std::make_shared<Mask>(mask_of(mask, problem, *sizes.batch, device));
        given->give(tensors);
    }
    const Scales scales(q_scale, k_scale, v_scale, out_scale, problem, sizes.queries, sizes.keys, device);
    scales.give(tensors);
    int32_t status;
    attn_metadata *metadata = state->step->get();
    hold_captured(stream,
                  {q_, out_, k_, v_, lse_, mask_, q_rope_, k_rope_, q_scale, k_scale, v_scale, out_scale},
                  {layer, state, state->step, kv, given});
    {
        nb::gil_scoped_release release;
        status = attn_layer_forward(layer->handle.get(), state->handle.get(), metadata,
                                    kv ? kv->handle.get() : nullptr, &tensors, (void *)stream, error.get());
    }
    check(status, error);
}

} // namespace

void bind_serving(nb::module_ &module)
{
    using nb::arg;
    nb::class_<State>(module, "State",
                      "Plans and memory of a model: one plan for each layer class, and what graphs are "
                      "captured with. Made by Backend.state.")
        .def("begin_forward", begin_forward, arg("metadata"), arg("stream") = 0,
             "Plans the step for all classes. Of a capture's metadata the device plans for what the "
             "buffers hold, and the call can be captured.")
        .def("begin_capture", begin_capture, arg("max_batch"), arg("stream") = 0,
             "Begins to capture graphs of at most max_batch sequences: allocates their buffers. Then, for "
             "sizes from large to small: get_capture_metadata, clone, and with the clone begin_forward and "
             "the layers, once to warm up and once inside `with Backend.graph()`; and end_capture at the "
             "end. Each step is then built with graph=True, put into the buffers by prepare, and done by "
             "Graph.launch.")
        .def("get_capture_metadata", get_capture_metadata, arg("batch"), nb::kw_only(),
             arg("encoder_decoder") = false, arg("tokens") = 1, arg("num_tokens") = 0, arg("stream") = 0,
             "Metadata of a graph of one size, over the buffers: decodes of `batch` sequences of `tokens` "
             "query tokens each, with encoder_decoder those of cross-attention; or with num_tokens, query "
             "tokens of all sequences, any mix of prompts and decodes. It lives until the next one or "
             "end_capture, and with a clone as long as that.")
        .def("clone", make_clone, arg("batch"),
             "The state of the size whose metadata was taken last, with which its layers are captured.")
        .def("end_capture", end_capture, "Ends the capture; clones stay.")
        .def(
            "prepare", prepare, arg("metadata"), arg("stream") = 0,
            "Puts a graph's step into the buffers of the clone of its size, for the launch of its graph. A "
            "clone or its graph has to live. Raises Error that names what the graph cannot be launched for.");

    nb::class_<Layer>(module, "Layer", "One attention layer of a model; made by Backend.layer.")
        .def("forward", forward, arg("state"), arg("q"), arg("out"), nb::kw_only(),
             arg("kv").none() = nb::none(), arg("k") = nb::none(), arg("v") = nb::none(),
             arg("lse") = nb::none(), arg("mask") = nb::none(), arg("q_rope") = nb::none(),
             arg("k_rope") = nb::none(), arg("q_scale") = nb::none(), arg("k_scale") = nb::none(),
             arg("v_scale") = nb::none(), arg("out_scale") = nb::none(), arg("stream") = 0,
             "One layer of the step that `state` has begun: writes k and v [tokens, kv_heads, dim] to the "
             "step's slots of `kv`, and attends with q [tokens, heads, head_dim] to out [tokens, heads, "
             "head_dim_vo], which is written. Tokens are in the order of the step: prompts, then decodes. "
             "All four of an encoder's layer, and k and v of cross-attention, have the encoder's tokens of "
             "the step's prompts; an encoder's writes no cache, and decodes of cross-attention, whose keys "
             "are in `kv`, take no k and v. lse is f32 [tokens, heads], written if the problem has lse=1. "
             "mask is [1 or sequences, 1 or heads, 1 or query tokens, columns] as the longest sequence of "
             "the step or its graph needs it: a column for each key with span=full, else for each of its "
             "query tokens. An MLA cache takes k without v; q and k may then have their first head_dim_vo "
             "columns, and q_rope and k_rope the others. q_scale and out_scale of 8-bit q and out, and "
             "k_scale and v_scale of 8-bit k and v that kv_source=new reads, are numbers, or f32 [heads] or "
             "[tokens, heads] where the problem says so; caches have their own.");

    nb::object backend = module.attr("Backend");
    nb::cpp_function_def(
        make_state, nb::scope(backend), nb::name("state"), nb::is_method(), arg("problems"), arg("groups"),
        arg("class_groups") = std::vector<uint32_t>(), nb::kw_only(), arg("cross") = nb::none(),
        arg("new_dtypes") = std::vector<std::string>(), arg("max_capture_len") = 0, arg("steps") = 1,
        arg("capture_tokens") = 1, arg("capture_num_tokens") = 0,
        "The state of a model: a problem with all maxima for each layer class, and the cache groups and the "
        "cross group of its builder. class_groups: the cache group of each class; without it all use the "
        "first. Layers of encoders and of cross-attention have none: 0. new_dtypes: of each class that reads"
        " a cache, the type of k and v, 'f32', 'f16' or 'bf16'; without it, or as '', that of q, or bf16 if "
        "q has 8 bits. Of graphs: max_capture_len, most tokens of a sequence, 0 for the least max_kv; "
        "capture_tokens, most query tokens of a sequence in decodes; capture_num_tokens, those of all in any"
        " mix. steps: whose copies may be under way at once.");
    nb::cpp_function_def(
        make_layer, nb::scope(backend), nb::name("layer"), nb::is_method(), arg("problem"), nb::kw_only(),
        arg("scale"), arg("class_index") = 0, arg("group") = 0, arg("alibi_slopes") = nb::none(),
        arg("sinks") = nb::none(),
        "A layer of class number class_index of the states that it runs with. It holds alibi_slopes and "
        "sinks.");
}
