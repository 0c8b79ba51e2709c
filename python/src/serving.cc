// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Builders, states and layers: the metadata of a step from sequences and their blocks, and the layers that
// run on it.
#include "plan.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <attn/layer.h>

namespace
{

using Groups = std::vector<attn_builder_group>;

// Cache groups as tuples (tokens per block, most blocks of a sequence[, sliding window in tokens]).
Groups groups_of(const std::vector<nb::object> &given)
{
    Groups groups;
    for (const nb::object &one : given) {
        attn_builder_group group{};
        const size_t size = nb::len(one);
        if (size != 2 && size != 3)
            refuse("groups", "groups has an entry of " + std::to_string(size) +
                                 " numbers; (block, max_blocks) and (block, "
                                 "max_blocks, window) are accepted");
        group.block = nb::cast<uint32_t>(one[0]);
        group.max_blocks = nb::cast<uint32_t>(one[1]);
        if (size == 3) {
            group.given = ATTN_GIVEN_WINDOW;
            group.window = nb::cast<uint32_t>(one[2]);
        }
        groups.push_back(group);
    }
    return groups;
}

struct Builder : std::enable_shared_from_this<Builder> {
    std::shared_ptr<Backend> backend;
    Groups groups;
    Handle<attn_builder, attn_builder_destroy> handle;
    std::vector<std::vector<int64_t>> lists; // blocks of the step, which the build reads
    uint64_t builds = 0;
};

// The metadata of a builder's last build.
struct Metadata {
    std::shared_ptr<Builder> builder;
    attn_metadata *handle;
    uint64_t build;

    attn_metadata *get() const
    {
        if (build != builder->builds)
            refuse("metadata",
                   "metadata is that of an earlier step; it ended with the builder's next reset or build");
        return handle;
    }
};

struct State {
    std::shared_ptr<Backend> backend;
    std::vector<attn_problem> problems;
    Groups groups;
    Handle<attn_state, attn_state_destroy> handle;
    std::shared_ptr<Metadata> step; // holds what was begun
};

struct Layer {
    std::shared_ptr<Backend> backend;
    attn_problem problem{};
    Handle<attn_layer, attn_layer_destroy> handle;
    std::vector<Array> keep; // slopes and sinks
};

std::shared_ptr<Builder> make_builder(std::shared_ptr<Backend> backend, const std::vector<nb::object> &groups,
                                      uint32_t max_seqs, uint32_t max_tokens, bool chunked, uint32_t steps,
                                      const attn_problem *problem)
{
    auto builder = std::make_shared<Builder>();
    attn_builder_params params;
    attn_builder *made = nullptr;
    Error error;
    builder->backend = backend;
    builder->groups = groups_of(groups);
    ATTN_INIT(&params);
    params.groups = (uint32_t)builder->groups.size();
    params.group = builder->groups.data();
    params.chunked = chunked;
    params.max_seqs = max_seqs;
    params.max_tokens = max_tokens;
    params.steps = steps;
    if (problem != nullptr) {
        params.heads = problem->heads;
        params.kv_heads = problem->kv_heads;
        params.head_dim = problem->head_dim;
        params.q_dtype = problem->q_dtype;
        params.kv_dtype = problem->k_dtype;
    }
    check(attn_builder_create(backend->get(), &params, &made, error.get()), error);
    builder->handle.reset(made);
    return builder;
}

void reset(Builder &builder)
{
    Error error;
    builder.builds++;
    check(attn_builder_reset(builder.handle.get(), error.get()), error);
    builder.lists.clear();
}

void add(Builder &builder, uint32_t context_len, uint32_t query_len, const nb::object &blocks_, bool prompt,
         nb::handle row, uint32_t unchanged, uint32_t computed)
{
    std::vector<attn_blocks> blocks(builder.groups.size());
    // One list for the only group, or a list of lists.
    const bool single = nb::len(blocks_) == 0 || !nb::hasattr(blocks_[0], "__len__");
    if (single ? builder.groups.size() != 1 : nb::len(blocks_) != builder.groups.size())
        refuse("blocks", "blocks has lists for " + std::to_string(single ? 1 : nb::len(blocks_)) +
                             " cache groups; the builder has " + std::to_string(builder.groups.size()));
    for (size_t i = 0; i < blocks.size(); i++) {
        builder.lists.push_back(nb::cast<std::vector<int64_t>>(single ? blocks_ : nb::object(blocks_[i])));
        blocks[i].kind = ATTN_BLOCKS_LIST;
        blocks[i].count = (uint32_t)builder.lists.back().size();
        blocks[i].blocks = builder.lists.back().data();
        blocks[i].unchanged = unchanged;
        blocks[i].computed = computed;
    }
    attn_builder_add_args args;
    Error error;
    ATTN_INIT(&args);
    args.context_len = context_len;
    args.query_len = query_len;
    args.prompt = prompt;
    args.prefix_hit = computed > 0;
    args.blocks = blocks.data();
    if (!row.is_none()) {
        args.given = ATTN_GIVEN_ROW;
        args.row = nb::cast<uint32_t>(row);
    }
    check(attn_builder_add(builder.handle.get(), &args, error.get()), error);
}

std::shared_ptr<Metadata> build(std::shared_ptr<Builder> builder, uintptr_t stream)
{
    attn_metadata *made = nullptr;
    Error error;
    check(attn_builder_build(builder->handle.get(), nullptr, (void *)stream, &made, error.get()), error);
    builder->builds++;
    const uint64_t number = builder->builds;
    return std::make_shared<Metadata>(Metadata{std::move(builder), made, number});
}

uint32_t field_of(const std::string &name)
{
    for (uint32_t field = 1; field < ATTN_FIELDS; field++)
        if (const char *known = attn_field_name(field); known != nullptr && name == known)
            return field;
    refuse("field", "'" + name + "' is no field of the metadata; libattn.fields() has them");
}

// A field as a number, None, or a copy of its values on the host.
nb::object field(const Metadata &metadata, const std::string &name, uint32_t index)
{
    attn_view view;
    Error error;
    ATTN_INIT(&view);
    check(attn_metadata_get(metadata.get(), field_of(name), index, &view, error.get()), error);
    if (view.kind == ATTN_VIEW_NUMBER)
        return nb::int_(view.value);
    if (view.kind == ATTN_VIEW_NULL || view.host == nullptr)
        return nb::none();
    const bool wide = view.dtype == ATTN_INT64;
    const auto row = [&](uint64_t r) {
        nb::list list;
        const char *from = (const char *)view.host + (int64_t)r * view.stride;
        for (uint64_t i = 0; i < view.shape[view.rank - 1]; i++)
            list.append(wide ? ((const int64_t *)from)[i] : ((const int32_t *)from)[i]);
        return list;
    };
    if (view.rank == 1)
        return row(0);
    nb::list rows;
    for (uint64_t r = 0; r < view.shape[0]; r++)
        rows.append(row(r));
    return rows;
}

nb::list fields()
{
    nb::list list;
    for (uint32_t field = 1; field < ATTN_FIELDS; field++)
        if (const char *name = attn_field_name(field))
            list.append(name);
    return list;
}

std::shared_ptr<State> make_state(std::shared_ptr<Backend> backend, const std::vector<std::string> &problems,
                                  const std::vector<nb::object> &groups,
                                  const std::vector<uint32_t> &group_of_class)
{
    auto state = std::make_shared<State>();
    std::vector<attn_layer_class> classes;
    attn_state_params params;
    attn_state *made = nullptr;
    Error error;
    state->backend = backend;
    state->groups = groups_of(groups);
    for (const std::string &text : problems)
        state->problems.push_back(parse(text));
    if (!group_of_class.empty() && group_of_class.size() != problems.size())
        refuse("class_groups", "class_groups has " + std::to_string(group_of_class.size()) +
                                   " numbers; one for each of the " + std::to_string(problems.size()) +
                                   " problems is accepted");
    for (size_t i = 0; i < problems.size(); i++) {
        attn_layer_class one{};
        one.problem = &state->problems[i];
        one.group = group_of_class.empty() ? 0 : group_of_class[i];
        classes.push_back(one);
    }
    ATTN_INIT(&params);
    params.group = state->groups.data();
    params.groups = (uint32_t)state->groups.size();
    check(attn_state_create(backend->get(), classes.data(), (uint32_t)classes.size(), &params, &made,
                            error.get()),
          error);
    state->handle.reset(made);
    return state;
}

void begin_forward(State &state, std::shared_ptr<Metadata> metadata, uintptr_t stream)
{
    Error error;
    int32_t status;
    attn_metadata *handle = metadata->get();
    {
        nb::gil_scoped_release release;
        status = attn_state_begin_forward(state.handle.get(), handle, (void *)stream, error.get());
    }
    check(status, error);
    state.step = std::move(metadata);
}

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

void forward(const Layer &layer, State &state, nb::handle q_, nb::handle out_, const KV *kv, nb::handle k_,
             nb::handle v_, uintptr_t stream)
{
    const attn_device &device = layer.backend->device;
    const Array q(q_, "q"), out(out_, "out", true), k = optional(k_, "k"), v = optional(v_, "v");
    if (!state.step)
        refuse("state", "state has begun no step; begin_forward begins one");
    attn_layer_tensors tensors;
    attn_view tokens[2];
    Error error;
    int64_t rows = 0;
    for (int i = 0; i < 2; i++) {
        ATTN_INIT(&tokens[i]);
        check(attn_metadata_get(state.step->get(),
                                i == 0 ? ATTN_FIELD_NUM_PREFILL_TOKENS : ATTN_FIELD_NUM_DECODE_TOKENS, 0,
                                &tokens[i], error.get()),
              error);
        rows += tokens[i].value;
    }
    const attn_problem &problem = layer.problem;
    ATTN_INIT(&tensors);
    need_tokens(q.need_on(device), rows, problem.heads, problem.head_dim);
    need_tokens(out.need_on(device), rows, problem.heads, problem.head_dim_vo);
    tensors.q = q.tensor();
    tensors.out = out.tensor();
    if (k) {
        need_tokens(k.need_on(device), rows, problem.kv_heads, problem.head_dim);
        tensors.k_new = k.tensor();
    }
    if (v) {
        need_tokens(v.need_on(device), rows, problem.kv_heads, problem.head_dim_vo);
        tensors.v_new = v.tensor();
    }
    int32_t status;
    attn_metadata *metadata = state.step->get();
    {
        nb::gil_scoped_release release;
        status = attn_layer_forward(layer.handle.get(), state.handle.get(), metadata,
                                    kv != nullptr ? kv->handle.get() : nullptr, &tensors, (void *)stream,
                                    error.get());
    }
    check(status, error);
}

} // namespace

void bind_serving(nb::module_ &module)
{
    using nb::arg;
    module.def("fields", fields, "Names of the fields of a step's metadata; those of vLLM 0.6.4.");

    nb::class_<Metadata>(module, "Metadata",
                         "What a step is, for kernels; lives until its builder's next reset or build.")
        .def(
            "__getitem__", [](const Metadata &self, const std::string &name) { return field(self, name, 0); },
            arg("field"))
        .def("get", field, arg("field"), arg("group") = 0,
             "A field by name: a number, the host's copy of an array as a list, or None where it has no "
             "value there. `group` "
             "is the cache group of fields that exist once for each.");

    nb::class_<Builder>(module, "Builder",
                        "Makes the metadata of steps from sequences and their blocks. One thread at a time.")
        .def("reset", reset, "Begins a step without sequences; the metadata of the step before ends.")
        .def("add", add, arg("context_len"), arg("query_len"), arg("blocks"), nb::kw_only(), arg("prompt"),
             arg("row") = nb::none(), arg("unchanged") = 0, arg("computed") = 0,
             "Adds a sequence, prompts before decodes: tokens whose keys are in the cache, new tokens, and "
             "the blocks of "
             "both, as a list for each cache group or one list for the only group. unchanged: leading blocks "
             "that are the "
             "same as at the row's last add; computed: leading blocks that a prefix cache had. Raises Error "
             "that names what cannot be, and then adds nothing.")
        .def("build", build, arg("stream") = 0, "Ends the step and gives its metadata.");

    nb::class_<State>(module, "State",
                      "Plans and memory of a model: one plan for each layer class. Made by Backend.state.")
        .def("begin_forward", begin_forward, arg("metadata"), arg("stream") = 0,
             "Plans the step for all classes.");

    nb::class_<Layer>(module, "Layer", "One attention layer of a model; made by Backend.layer.")
        .def("forward", forward, arg("state"), arg("q"), arg("out"), nb::kw_only(),
             arg("kv").none() = nb::none(), arg("k") = nb::none(), arg("v") = nb::none(), arg("stream") = 0,
             "One layer of the step that `state` has begun: writes k and v [tokens, kv_heads, dim] to the "
             "step's slots of "
             "`kv`, and attends with q [tokens, heads, head_dim] to out [tokens, heads, head_dim_vo], which "
             "is written. "
             "Tokens are in the order of the step: prompts, then decodes.");

    nb::object backend = module.attr("Backend");
    nb::cpp_function_def(
        [](std::shared_ptr<Backend> self, const std::vector<nb::object> &groups, uint32_t max_seqs,
           uint32_t max_tokens, bool chunked, uint32_t steps, const std::string &problem) {
            if (problem.empty())
                return make_builder(std::move(self), groups, max_seqs, max_tokens, chunked, steps, nullptr);
            const attn_problem parsed = parse(problem);
            return make_builder(std::move(self), groups, max_seqs, max_tokens, chunked, steps, &parsed);
        },
        nb::scope(backend), nb::name("builder"), nb::is_method(), arg("groups"), nb::kw_only(),
        arg("max_seqs"), arg("max_tokens"), arg("chunked") = true, arg("steps") = 1, arg("problem") = "",
        "A builder for steps of at most max_seqs sequences and max_tokens new tokens. groups: (tokens per "
        "block, most blocks "
        "of a sequence) or with a third number, a sliding window in tokens, for each cache group. A builder "
        "of the FlashInfer "
        "flavour is told a problem.");
    nb::cpp_function_def(
        make_state, nb::scope(backend), nb::name("state"), nb::is_method(), arg("problems"), arg("groups"),
        arg("class_groups") = std::vector<uint32_t>(),
        "The state of a model: a problem with all maxima for each layer class, and the cache groups of its "
        "builder. class_groups: the cache group of each class; without it all use the first.");
    nb::cpp_function_def(
        make_layer, nb::scope(backend), nb::name("layer"), nb::is_method(), arg("problem"), nb::kw_only(),
        arg("scale"), arg("class_index") = 0, arg("group") = 0, arg("alibi_slopes") = nb::none(),
        arg("sinks") = nb::none(),
        "A layer of class number class_index of the states that it runs with. It holds alibi_slopes and "
        "sinks.");
}
