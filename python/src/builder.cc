// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Builders: the metadata of a step from sequences and their blocks.
#include "serving.h"

#include <optional>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

static attn_builder_group group_of(const nb::object &given, const char *name)
{
    attn_builder_group group{};
    const size_t size = nb::len(given);
    if (size != 2 && size != 3)
        refuse(name, std::string(name) + " has an entry of " + std::to_string(size) +
                         " numbers; (block, max_blocks) and (block, max_blocks, window) are accepted");
    group.block = nb::cast<uint32_t>(given[0]);
    group.max_blocks = nb::cast<uint32_t>(given[1]);
    if (size == 3) {
        group.given = ATTN_GIVEN_WINDOW;
        group.window = nb::cast<uint32_t>(given[2]);
    }
    return group;
}

Groups groups_of(const std::vector<nb::object> &given)
{
    Groups groups;
    for (const nb::object &one : given)
        groups.push_back(group_of(one, "groups"));
    return groups;
}

Groups cross_of(const nb::object &given)
{
    return given.is_none() ? Groups() : Groups{group_of(given, "cross")};
}

namespace
{

std::shared_ptr<Builder> make_builder(std::shared_ptr<Backend> backend, const std::vector<nb::object> &groups,
                                      uint32_t max_seqs, uint32_t max_tokens, bool chunked, uint32_t steps,
                                      const attn_problem *problem, uint32_t max_encoder_tokens,
                                      const Groups &cross)
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
    params.max_encoder_tokens = max_encoder_tokens;
    params.cross = cross.empty() ? nullptr : cross.data();
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

// The list of a sequence's blocks in one cache group, which stays until the build.
attn_blocks list_of(Builder &builder, const nb::object &given, uint32_t unchanged, uint32_t computed)
{
    attn_blocks blocks{};
    builder.lists.push_back(nb::cast<std::vector<int64_t>>(given));
    blocks.kind = ATTN_BLOCKS_LIST;
    blocks.count = (uint32_t)builder.lists.back().size();
    blocks.blocks = builder.lists.back().data();
    blocks.unchanged = unchanged;
    blocks.computed = computed;
    return blocks;
}

// Of each cache group: one list for the only group, or a list of lists, or no table where None is given.
std::vector<attn_blocks> blocks_of(Builder &builder, const nb::object &given, uint32_t unchanged,
                                   uint32_t computed)
{
    std::vector<attn_blocks> blocks(builder.groups.size());
    if (given.is_none())
        return blocks;
    const bool single = nb::len(given) == 0 || !nb::hasattr(given[0], "__len__");
    if (single ? blocks.size() != 1 : nb::len(given) != blocks.size())
        refuse("blocks", "blocks has lists for " + std::to_string(single ? 1 : nb::len(given)) +
                             " cache groups; the builder has " + std::to_string(blocks.size()));
    for (size_t i = 0; i < blocks.size(); i++)
        blocks[i] = list_of(builder, single ? given : nb::object(given[i]), unchanged, computed);
    return blocks;
}

void add(Builder &builder, uint32_t context_len, uint32_t query_len, const nb::object &blocks_, bool prompt,
         nb::handle row, uint32_t unchanged, uint32_t computed, uint32_t encoder_len,
         const nb::object &cross_, uint32_t cross_unchanged)
{
    const std::vector<attn_blocks> blocks = blocks_of(builder, blocks_, unchanged, computed);
    attn_blocks cross;
    attn_builder_add_args args;
    Error error;
    ATTN_INIT(&args);
    args.context_len = context_len;
    args.query_len = query_len;
    args.prompt = prompt;
    args.prefix_hit = computed > 0;
    args.blocks = blocks.data();
    args.encoder_len = encoder_len;
    if (!cross_.is_none()) {
        cross = list_of(builder, cross_, cross_unchanged, 0);
        args.cross = &cross;
    }
    if (!row.is_none()) {
        args.given = ATTN_GIVEN_ROW;
        args.row = nb::cast<uint32_t>(row);
    }
    check(attn_builder_add(builder.handle.get(), &args, error.get()), error);
}

std::shared_ptr<Metadata> build(std::shared_ptr<Builder> builder, uintptr_t stream, bool graph, uint32_t pad,
                                bool host_only)
{
    attn_builder_build_args args;
    attn_metadata *made = nullptr;
    Error error;
    ATTN_INIT(&args);
    args.graph = graph;
    args.pad = pad;
    args.host_only = host_only;
    check(attn_builder_build(builder->handle.get(), &args, (void *)stream, &made, error.get()), error);
    const uint64_t number = ++builder->builds;
    const std::shared_ptr<const uint64_t> last(builder, &builder->builds);
    return std::make_shared<Metadata>(Metadata{made, number, last, std::move(builder)});
}

void set_row(Builder &builder, uint32_t row, uint32_t first, const std::vector<int64_t> &blocks,
             uint32_t group)
{
    attn_builder_row_args args;
    Error error;
    ATTN_INIT(&args);
    args.group = group;
    args.row = row;
    args.first = first;
    args.count = (uint32_t)blocks.size();
    args.blocks = blocks.data();
    check(attn_builder_set_row(builder.handle.get(), &args, error.get()), error);
}

// One number for each token, or nothing.
attn_buffer token_list(nb::handle given, const char *name, const attn_device &device, bool written)
{
    const Array list = optional(given, name, written);
    return list ? list.need_dtype(ATTN_INT64).need_on(device).need_list(1).buffer() : attn_buffer{};
}

void advance(const Metadata &metadata, uint32_t queries, const nb::object &accepted_, uint32_t pad,
             bool prefill_to_decode, nb::handle sampled, nb::handle tokens, nb::handle positions,
             uintptr_t stream)
{
    attn_metadata *handle = metadata.get();
    std::vector<int32_t> accepted;
    attn_advance_args args;
    Error error;
    if (!metadata.builder)
        refuse("metadata", "metadata is that of a capture; a step that a builder made advances");
    if (!accepted_.is_none())
        accepted = nb::cast<std::vector<int32_t>>(accepted_);
    if (!accepted_.is_none() && accepted.size() != queries)
        refuse("accepted", "accepted has " + std::to_string(accepted.size()) + " counts; one for each of " +
                               std::to_string(queries) + " sequences is accepted");
    const attn_device &device = metadata.builder->backend->device;
    ATTN_INIT(&args);
    args.seqs = queries + pad;
    args.queries = queries;
    args.prefill_to_decode = prefill_to_decode;
    args.accepted = accepted_.is_none() ? nullptr : accepted.data();
    args.sampled = token_list(sampled, "sampled", device, false);
    args.tokens = token_list(tokens, "tokens", device, true);
    args.positions = token_list(positions, "positions", device, true);
    check(attn_metadata_advance_step(handle, &args, (void *)stream, error.get()), error);
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

} // namespace

void bind_builder(nb::module_ &module)
{
    using nb::arg;
    module.def("fields", fields, "Names of the fields of a step's metadata; those of vLLM 0.6.4.");

    nb::class_<Metadata>(
        module, "Metadata",
        "What a step is, for kernels; lives until its builder's next reset or build. That of a captured "
        "size is State.get_capture_metadata's.")
        .def(
            "__getitem__", [](const Metadata &self, const std::string &name) { return field(self, name, 0); },
            arg("field"))
        .def("get", field, arg("field"), arg("group") = 0,
             "A field by name: a number, the host's copy of an array as a list, or None where it has no "
             "value there. `group` is the cache group of fields that exist once for each.")
        .def("advance", advance, arg("queries"), nb::kw_only(), arg("accepted") = nb::none(), arg("pad") = 0,
             arg("prefill_to_decode") = false, arg("sampled") = nb::none(), arg("tokens") = nb::none(),
             arg("positions") = nb::none(), arg("stream") = 0,
             "Makes a step of decodes the next one in place, without a builder: each of its `queries` "
             "sequences keeps its number of query tokens, and grows by one token or by its count of "
             "`accepted` ones. The blocks of new tokens are in the lists already, or Builder.set_row adds "
             "them. pad: sequences of a graph's padding; prefill_to_decode: prompts become decodes of one "
             "token. sampled: the next tokens, int64, which FlashInfer wants and `tokens` gets; positions: "
             "gets those of the tokens. Then State.begin_forward takes the metadata again. Raises Error "
             "that names what is not as it has to be, and then changes nothing.");

    nb::class_<Builder>(module, "Builder",
                        "Makes the metadata of steps from sequences and their blocks. One thread at a time.")
        .def("reset", reset, "Begins a step without sequences; the metadata of the step before ends.")
        .def("add", add, arg("context_len"), arg("query_len"), arg("blocks").none(), nb::kw_only(),
             arg("prompt"), arg("row") = nb::none(), arg("unchanged") = 0, arg("computed") = 0,
             arg("encoder_len") = 0, arg("cross") = nb::none(), arg("cross_unchanged") = 0,
             "Adds a sequence, prompts before decodes: tokens whose keys are in the cache, new tokens, and "
             "the blocks of both, as a list for each cache group or one list for the only group; None "
             "where nothing is cached, as in steps of encoder_only layers. unchanged: leading blocks that "
             "are the same as at the row's last add; computed: leading blocks that a prefix cache had. "
             "encoder_len: tokens of the encoder's sequence, of decodes too; cross: the blocks of their "
             "keys for cross-attention, of which the first cross_unchanged are the same as at the row's "
             "last add. Raises Error that names what cannot be, and then adds nothing.")
        .def(
            "set_row", set_row, arg("row"), arg("first"), arg("blocks"), arg("group") = 0,
            "Changes blocks of a row of the block tables, from number `first` of its list on, which they may "
            "lengthen: of a sequence of a step that was built, too, as for the tokens of the steps it "
            "advances to. group: the cache group; behind the last one, cross-attention's.")
        .def("build", build, arg("stream") = 0, nb::kw_only(), arg("graph") = false, arg("pad") = 0,
             arg("host_only") = false,
             "Ends the step and gives its metadata. graph: for a captured graph, padded by `pad` "
             "sequences; host_only: it is copied by State.prepare alone.");

    nb::object backend = module.attr("Backend");
    nb::cpp_function_def(
        [](std::shared_ptr<Backend> self, const std::vector<nb::object> &groups, uint32_t max_seqs,
           uint32_t max_tokens, bool chunked, uint32_t steps, const std::string &problem,
           uint32_t max_encoder_tokens, const nb::object &cross) {
            const std::optional<attn_problem> parsed =
                problem.empty() ? std::nullopt : std::optional(parse(problem));
            return make_builder(std::move(self), groups, max_seqs, max_tokens, chunked, steps,
                                parsed ? &*parsed : nullptr, max_encoder_tokens, cross_of(cross));
        },
        nb::scope(backend), nb::name("builder"), nb::is_method(), arg("groups"), nb::kw_only(),
        arg("max_seqs"), arg("max_tokens"), arg("chunked") = true, arg("steps") = 1, arg("problem") = "",
        arg("max_encoder_tokens") = 0, arg("cross") = nb::none(),
        "A builder for steps of at most max_seqs sequences and max_tokens new tokens. groups: (tokens per "
        "block, most blocks of a sequence) or with a third number, a sliding window in tokens, for each "
        "cache group. A builder of the FlashInfer flavour is told a problem. max_encoder_tokens: most "
        "tokens of encoders in a step, for layers of type encoder and encoder_decoder; cross: the same "
        "pair as in groups for the cache of cross-attention.");
}
