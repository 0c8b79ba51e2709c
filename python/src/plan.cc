// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Plans, steps and caches for programs that keep their own pages: nothing is allocated while a step runs.
#include "plan.h"
#include "graph.h"

#include <cstring>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

// ---------------------------------------------------------------- plans

static attn_plan *create(const Backend &backend, const attn_problem &problem)
{
    attn_plan *made = nullptr;
    Error error;
    check(attn_plan_create(backend.get(), &problem, &made, error.get()), error);
    return made;
}

Plan::Plan(std::shared_ptr<Backend> owner, const attn_problem &needed)
    : Plan(owner, needed, create(*owner, needed))
{
}

Plan::Plan(std::shared_ptr<Backend> owner, const attn_problem &needed, attn_plan *made)
    : backend(std::move(owner)), problem(needed), handle(made)
{
    Error error;
    ATTN_INIT(&sizes);
    check(attn_plan_get_sizes(made, &sizes, error.get()), error);
    scratch = Memory(backend, sizes.scratch);
    counters = Memory(backend, sizes.counters);
}

std::shared_ptr<Step> Plan::make_step()
{
    auto step = std::make_shared<Step>();
    step->plan = shared_from_this();
    step->schedule = Memory(backend, sizes.schedule);
    step->staging = Staging(backend, sizes.staging);
    return step;
}

void Plan::run(const attn_batch &batch, const attn_tensors &tensors, const Memory &schedule, uintptr_t stream)
{
    Error error;
    int32_t status;
    {
        nb::gil_scoped_release release;
        std::lock_guard<std::mutex> lock(mutex);
        attn_scratch memory;
        ATTN_INIT(&memory);
        memory.scratch = scratch.span();
        memory.counters = counters.span();
        memory.counters_dirty = counters_dirty;
        const attn_span plan_of_step = schedule.span();
        status = attn_plan_run(handle.get(), &batch, &tensors, &plan_of_step, &memory, (void *)stream,
                               error.get());
        counters_dirty = status != ATTN_OK;
    }
    check(status, error);
}

static attn_plan_info describe(const Plan &plan)
{
    attn_plan_info info;
    Error error;
    ATTN_INIT(&info);
    check(attn_plan_describe(plan.handle.get(), &info, error.get()), error);
    return info;
}

nb::object Plan::kernels() const
{
    const attn_plan_info info = describe(*this);
    return nb::str(info.kernels).attr("split")(",");
}

uint32_t Plan::graph_level() const
{
    return describe(*this).graph_level;
}

// ---------------------------------------------------------------- steps

attn_buffer Step::take(nb::handle object, const char *name, uint32_t dtype, int64_t least,
                       const void **on_host)
{
    if (object.is_none())
        return {};
    Array array(object, name);
    array.need_dtype(dtype).need_on(plan->backend->device).need_list(least);
    if (plan->backend->is_host())
        *on_host = array.data();
    const attn_buffer buffer = array.buffer();
    keep->push_back(std::move(array));
    return buffer;
}

void Step::take_table(nb::handle object)
{
    Array table(object, "table");
    table.need_dtype(ATTN_INT32).need_on(plan->backend->device).need_rank(2).need_inner();
    if (table.size(0) < batch.seqs)
        refuse("table", "table has " + std::to_string(table.size(0)) + " rows; at least " +
                            std::to_string(batch.seqs) + " are accepted, one for each sequence");
    batch.table = table.buffer();
    batch.table_width = (uint32_t)table.size(1);
    // A single row has no stride of its own.
    batch.table_stride = table.size(0) == 1 ? table.size(1) * table.element() : table.stride(0);
    if (plan->backend->is_host())
        host.table = (const int32_t *)table.data();
    keep->push_back(std::move(table));
}

void Step::prepare(nb::handle q_offsets, nb::handle kv_lens, uint32_t num_tokens, uint32_t max_q,
                   uint32_t max_kv, nb::handle table, uint32_t pages, nb::handle kv_offsets,
                   nb::handle csr_indptr, nb::handle csr_indices, nb::handle q_positions,
                   nb::handle seq_causal, bool cascade, uintptr_t stream)
{
    const Array offsets(q_offsets, "q_offsets");
    offsets.need_list(2);
    const int64_t seqs = offsets.size(0) - 1;
    prepared = false;
    keep = std::make_shared<std::vector<Array>>();
    ATTN_INIT(&batch);
    ATTN_INIT(&host);
    batch.seqs = (uint32_t)seqs;
    batch.num_tokens = num_tokens;
    batch.max_q = max_q;
    batch.max_kv = max_kv;
    batch.pages = pages;
    batch.cascade = cascade;
    batch.q_offsets = take(q_offsets, "q_offsets", ATTN_INT32, seqs + 1, (const void **)&host.q_offsets);
    batch.kv_lens = take(kv_lens, "kv_lens", ATTN_INT32, seqs, (const void **)&host.kv_lens);
    batch.kv_offsets = take(kv_offsets, "kv_offsets", ATTN_INT32, seqs + 1, (const void **)&host.kv_offsets);
    batch.csr_indptr = take(csr_indptr, "csr_indptr", ATTN_INT32, seqs + 1, (const void **)&host.csr_indptr);
    batch.csr_indices = take(csr_indices, "csr_indices", plan->problem.index_dtype, 0, &host.csr_indices);
    batch.seq_causal = take(seq_causal, "seq_causal", UINT8, seqs, (const void **)&host.seq_causal);
    if (!q_positions.is_none()) {
        batch.position_dtype =
            Array(q_positions, "q_positions").dtype() == ATTN_INT64 ? ATTN_INT64 : ATTN_INT32;
        batch.q_positions =
            take(q_positions, "q_positions", batch.position_dtype, num_tokens, &host.q_positions);
    }
    if (!table.is_none())
        take_table(table);
    // What a graph prepares is read at its launches alone.
    in_graph = hold_captured(stream, {}, {shared_from_this(), keep});
    if (plan->backend->is_host() && !in_graph) {
        batch.given |= ATTN_GIVEN_HOST_COPIES;
        batch.host = &host;
    }
    Error error;
    const attn_span to = schedule.span(), pinned = staging.span();
    int32_t status;
    {
        nb::gil_scoped_release release;
        status = attn_plan_prepare(plan->handle.get(), &batch, &to, &pinned, (void *)stream, error.get());
    }
    check(status, error);
    prepared = true;
}

// ---------------------------------------------------------------- a run

// Tokens of keys beside the cache, or in its place: as many as the offsets of the step say where the host has
// them.
static int64_t keys_of(const Step &step)
{
    const int32_t *offsets = step.host.kv_offsets;
    return offsets != nullptr                      ? offsets[step.batch.seqs]
           : step.batch.kv_offsets.data != nullptr ? 0
                                                   : step.batch.num_tokens;
}

static void run_plan(std::shared_ptr<Plan> plan, std::shared_ptr<Step> step, nb::handle q_, nb::handle out_,
                     float scale, std::shared_ptr<KV> kv, nb::handle k_, nb::handle v_, nb::handle lse_,
                     nb::handle mask_, nb::handle slopes_, nb::handle sinks_, nb::handle rope_,
                     nb::handle q_scale, nb::handle k_scale, nb::handle v_scale, nb::handle out_scale,
                     uintptr_t stream)
{
    const attn_problem &problem = plan->problem;
    const attn_device &device = plan->backend->device;
    const Array q(q_, "q"), out(out_, "out", true),
        k = optional(k_, "k"), v = optional(v_, "v"), lse = optional(lse_, "lse", true),
        mask = optional(mask_, "mask"), slopes = optional(slopes_, "alibi_slopes"),
        sinks = optional(sinks_, "sinks"), rope = optional(rope_, "q_rope");
    if (!step->prepared)
        refuse("step", "step is not prepared; prepare it for the lengths of the step first");
    const int64_t tokens = step->batch.num_tokens, keys = keys_of(*step);
    need_tokens(out.need_on(device), tokens, problem.heads, problem.head_dim_vo);
    attn_tensors tensors;
    ATTN_INIT(&tensors);
    tensors.softmax_scale = scale;
    need_key(rope, problem.mla != 0, "mla=1");
    const Columns queries =
        columns_of(q, rope, tokens, problem.heads, problem.head_dim, problem.head_dim_vo, device);
    tensors.q = queries.first;
    tensors.q_rope = queries.rope;
    tensors.out = out.tensor();
    need_key(k, problem.kv_source != ATTN_KV_CACHE, "kv_source=new");
    need_key(v, problem.kv_source != ATTN_KV_CACHE, "kv_source=new");
    need_key(mask, problem.mask != ATTN_MASK_NONE, "mask");
    if (k) {
        need_tokens(k.need_on(device), keys, problem.kv_heads, problem.head_dim);
        tensors.k_new = k.tensor();
    }
    if (v) {
        need_tokens(v.need_on(device), keys, problem.kv_heads, problem.head_dim_vo);
        tensors.v_new = v.tensor();
    }
    if (lse)
        tensors.lse = lse_tensor(lse, tokens, problem.heads, device);
    if (kv)
        tensors.kv = kv->handle.get();
    std::shared_ptr<Mask> given;
    if (mask) {
        given = std::make_shared<Mask>(mask_of(mask, problem, step->batch, device));
        given->give(tensors);
    }
    give_sinks(tensors, sinks, problem.heads, device);
    give_slopes(tensors, slopes, problem.heads, device);
    const Scales scales(q_scale, k_scale, v_scale, out_scale, problem, tokens, keys, device);
    scales.give(tensors);
    attn_batch batch = step->batch;
    if (hold_captured(
            stream,
            {q_, out_, k_, v_, lse_, mask_, slopes_, sinks_, rope_, q_scale, k_scale, v_scale, out_scale},
            {plan, step, step->keep, kv, given})) {
        batch.given &= ~ATTN_GIVEN_HOST_COPIES;
        batch.host = nullptr;
    } else if (step->in_graph) {
        refuse(
            "step",
            "step is prepared by the launches of a graph; runs in that graph are accepted, and others when "
            "it is prepared without one");
    }
    plan->run(batch, tensors, step->schedule, stream);
}

// ---------------------------------------------------------------- caches

static std::shared_ptr<KV> make_kv(std::shared_ptr<Backend> backend, nb::object k_, nb::object v_,
                                   nb::handle k_scale, nb::handle v_scale, uint32_t head_dim_vo)
{
    auto kv = std::make_shared<KV>();
    kv->backend = backend;
    const Array k(k_, "k", true), v = optional(v_, "v", true);
    k.need_rank(4).need_inner().need_on(backend->device);
    attn_kv_desc &desc = kv->desc;
    ATTN_INIT(&desc);
    desc.k_dtype = k.dtype();
    desc.pages = (uint32_t)k.size(0);
    desc.block = (uint32_t)k.size(1);
    desc.kv_heads = (uint32_t)k.size(2);
    desc.head_dim = (uint32_t)k.size(3);
    desc.head_dim_vo = head_dim_vo;
    desc.k = k.buffer();
    desc.k_page_stride = k.stride(0);
    desc.k_token_stride = k.stride(1);
    desc.k_head_stride = k.stride(2);
    kv->k_scale = cache_scale_of(k_scale, "k_scale", desc, backend->device);
    kv->v_scale = cache_scale_of(v_scale, "v_scale", desc, backend->device);
    desc.k_scale = kv->k_scale.get();
    desc.v_scale = kv->v_scale.get();
    if (v) {
        if (head_dim_vo != 0 && head_dim_vo != v.size(3))
            refuse("head_dim_vo", "head_dim_vo is " + std::to_string(head_dim_vo) + "; the " +
                                      std::to_string(v.size(3)) +
                                      " of v is accepted, or 0, which stands for it");
        v.need_rank(4).need_inner().need_on(backend->device);
        for (int dim = 0; dim < 3; dim++)
            v.need_size(dim, k.size(dim));
        desc.v_dtype = v.dtype();
        desc.head_dim_vo = (uint32_t)v.size(3);
        desc.v = v.buffer();
        desc.v_page_stride = v.stride(0);
        desc.v_token_stride = v.stride(1);
        desc.v_head_stride = v.stride(2);
    }
    attn_kv *handle = nullptr;
    Error error;
    check(attn_kv_create(backend->get(), &desc, &handle, error.get()), error);
    kv->handle.reset(handle);
    kv->keep = {k_, v_};
    return kv;
}

static void kv_write(const Backend &backend, std::shared_ptr<KV> kv, nb::handle k_, nb::handle v_,
                     nb::handle slots_, nb::handle rope_, uintptr_t stream)
{
    const Array k(k_, "k"), v = optional(v_, "v"), slots(slots_, "slot_mapping"),
                            rope = optional(rope_, "k_rope");
    slots.need_dtype(ATTN_INT64).need_on(backend.device).need_list(0);
    const int64_t tokens = slots.size(0);
    const attn_kv_desc &desc = kv->desc;
    const Columns keys =
        columns_of(k, rope, tokens, desc.kv_heads, desc.head_dim, desc.head_dim_vo, backend.device);
    attn_kv_write_args args;
    ATTN_INIT(&args);
    args.k_dtype = k.dtype();
    args.num_tokens = (uint32_t)tokens;
    args.k_new = keys.first;
    args.k_rope = keys.rope;
    if (v) {
        need_tokens(v.need_on(backend.device), tokens, desc.kv_heads, desc.head_dim_vo);
        args.v_dtype = v.dtype();
        args.v_new = v.tensor();
    }
    args.kv = kv->handle.get();
    args.slot_mapping = slots.buffer();
    Error error;
    int32_t status;
    hold_captured(stream, {k_, v_, slots_, rope_}, {kv});
    {
        nb::gil_scoped_release release;
        status = attn_kv_write(backend.get(), &args, (void *)stream, error.get());
    }
    check(status, error);
}

static void synchronize(const Backend &backend, uintptr_t stream)
{
    Error error;
    int32_t status;
    {
        nb::gil_scoped_release release;
        status = attn_stream_synchronize(backend.get(), (void *)stream, error.get());
    }
    check(status, error);
}

void bind_plan(nb::module_ &module)
{
    using nb::arg;
    nb::class_<Backend>(module, "Backend", "A backend that is open on its device.")
        .def_prop_ro(
            "name", [](const Backend &self) { return attn_backend_get_name(self.get()); },
            "\"cpu/flash-attn\"")
        .def_prop_ro(
            "device", [](const Backend &self) { return attn_backend_get_device(self.get()); }, "\"cpu:0\"")
        .def(
            "plan",
            [](std::shared_ptr<Backend> self, const std::string &problem) {
                return std::make_shared<Plan>(std::move(self), parse(problem));
            },
            arg("problem"),
            "Fixes kernels for a problem that gives max_seqs, max_q, max_kv and max_rows. Raises Error "
            "(ATTN_E_UNSUPPORTED) if the backend does not serve it.")
        .def("kv", make_kv, arg("k"), arg("v").none() = nb::none(), nb::kw_only(),
             arg("k_scale") = nb::none(), arg("v_scale") = nb::none(), arg("head_dim_vo") = 0,
             "The cache of one layer over the caller's arrays, which it holds: k [pages, block, kv_heads, "
             "head_dim], v the same with head_dim_vo, any strides but for the last dimension; without v an "
             "MLA cache, whose values are the first head_dim_vo columns of k. Scales, of 8-bit types alone, "
             "are numbers, 'unit', f32 [kv_heads], or f32 [pages, block, kv_heads], which are written with "
             "the keys.")
        .def("kv_write", kv_write, arg("kv"), arg("k"), arg("v").none(), arg("slot_mapping"), nb::kw_only(),
             arg("k_rope") = nb::none(), arg("stream") = 0,
             "Writes token i of k and v [tokens, kv_heads, dim] to slot slot_mapping[i] = page * block + "
             "place; a negative "
             "slot is skipped. slot_mapping is i64. An MLA cache takes k alone, with v None, or in two "
             "parts: its first "
             "head_dim_vo columns as k, the others as k_rope.")
        .def("synchronize", synchronize, arg("stream") = 0, "Waits until everything on the stream is done.");
    module.def(
        "torch_threads", torch_threads,
        "What `stream` is for work on a CPU by the threads that torch computes with (those of OpenMP), so "
        "that the two do not compete for processors; 0 if torch is not loaded or has no such threads.");

    nb::class_<KV>(module, "KV", "The cache of one layer; made by Backend.kv.")
        .def_prop_ro(
            "pages", [](const KV &self) { return self.desc.pages; }, "Pages that the arrays hold.")
        .def_prop_ro(
            "block", [](const KV &self) { return self.desc.block; }, "Tokens of a page.");

    nb::class_<Step>(
        module, "Step",
        "The schedule of one step, prepared once and read by the run of every layer; made by Plan.step.")
        .def("prepare", &Step::prepare, arg("q_offsets"), arg("kv_lens").none() = nb::none(), nb::kw_only(),
             arg("num_tokens"), arg("max_q"), arg("max_kv"), arg("table") = nb::none(), arg("pages") = 0,
             arg("kv_offsets") = nb::none(), arg("csr_indptr") = nb::none(), arg("csr_indices") = nb::none(),
             arg("q_positions") = nb::none(), arg("seq_causal") = nb::none(), arg("cascade") = false,
             arg("stream") = 0,
             "Plans a step of n sequences. Arrays are i32 in the backend's memory and are held until the "
             "next prepare: "
             "q_offsets [n + 1], kv_lens [n] (keys of each, those of this step included), table [n, width] "
             "of pages with "
             "any row stride, kv_offsets and csr_indptr [n + 1]; seq_causal is u8 [n]. max_q and max_kv are "
             "upper bounds. In a graph they hold for all launches, each of which reads the arrays as they "
             "are by then. "
             "Raises Error that names array, index and value.");

    nb::class_<Plan>(module, "Plan", "The kernels of one layer class; made by Backend.plan.")
        .def("step", &Plan::make_step, "A schedule of its own, for steps that overlap those of another.")
        .def("run", run_plan, arg("step"), arg("q"), arg("out"), nb::kw_only(), arg("scale"),
             arg("kv").none() = nb::none(), arg("k") = nb::none(), arg("v") = nb::none(),
             arg("lse") = nb::none(), arg("mask") = nb::none(), arg("alibi_slopes") = nb::none(),
             arg("sinks") = nb::none(), arg("q_rope") = nb::none(), arg("q_scale") = nb::none(),
             arg("k_scale") = nb::none(), arg("v_scale") = nb::none(), arg("out_scale") = nb::none(),
             arg("stream") = 0,
             "Runs one layer of a prepared step: q [tokens, heads, head_dim] to out [tokens, heads, "
             "head_dim_vo], over `kv`, or k and v [tokens, kv_heads, dim], or both, as the problem's "
             "kv_source says. lse is f32 [tokens, heads]; mask [1 or n, 1 or heads, rows, columns]; "
             "alibi_slopes f32 [heads]; sinks f32 or bf16 [heads]; of MLA q may have its first head_dim_vo "
             "columns, and q_rope [tokens, heads, the others]. q_scale and out_scale of 8-bit q and out, and"
             " k_scale and v_scale of k and v, are numbers, or f32 [heads] or [tokens, heads] where the "
             "problem says so. Other threads of Python run meanwhile. On a GPU the call does not wait for "
             "the result.")
        .def_prop_ro(
            "problem", [](const Plan &self) { return format(self.problem); }, "Its canonical problem string.")
        .def_prop_ro("kernels", &Plan::kernels, "Names of the kernels.")
        .def_prop_ro("graph_level", &Plan::graph_level,
                     "What of a capture it supports: enum attn_graph_level.");
}
