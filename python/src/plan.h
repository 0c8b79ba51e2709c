// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Plans, the steps that they are prepared for, and caches.
#pragma once

#include <mutex>
#include <vector>

#include "tensors.h"

// The cache of one layer, over arrays that it holds.
struct KV {
    std::shared_ptr<Backend> backend;
    attn_kv_desc desc{};
    Handle<attn_kv, attn_kv_destroy> handle;
    Scale k_scale, v_scale;
    std::vector<nb::object> keep;
};

struct Step;

// The kernels of a layer class. One run at a time uses its scratch, so runs of several threads wait for each
// other.
struct Plan : std::enable_shared_from_this<Plan> {
    std::shared_ptr<Backend> backend;
    attn_problem problem{};
    attn_plan_sizes sizes{};
    Handle<attn_plan, attn_plan_destroy> handle;
    Memory scratch, counters;
    bool counters_dirty = true;
    std::mutex mutex;

    Plan(std::shared_ptr<Backend> owner, const attn_problem &needed);
    // Of what attn_plan_create made, which it owns from here on.
    Plan(std::shared_ptr<Backend> owner, const attn_problem &needed, attn_plan *made);
    std::shared_ptr<Step> make_step();
    // Runs one layer without the lock of Python.
    void run(const attn_batch &batch, const attn_tensors &tensors, const Memory &schedule, uintptr_t stream);
    nb::object kernels() const;
    uint32_t graph_level() const;
};

// The schedule of one step of a plan, and views of the arrays that describe it.
struct Step : std::enable_shared_from_this<Step> {
    std::shared_ptr<Plan> plan;
    Memory schedule;
    Staging staging;
    attn_batch batch{};
    attn_batch_host host{};
    bool prepared = false, in_graph = false;  // in_graph: by the launches of a graph
    std::shared_ptr<std::vector<Array>> keep; // of the batch, and of graphs that have it

    void prepare(nb::handle q_offsets, nb::handle kv_lens, uint32_t num_tokens, uint32_t max_q,
                 uint32_t max_kv, nb::handle table, uint32_t pages, nb::handle kv_offsets,
                 nb::handle csr_indptr, nb::handle csr_indices, nb::handle q_positions, nb::handle seq_causal,
                 bool cascade, uintptr_t stream);

  private:
    // Takes an array of the batch, on the device and, if that is the host, as the host copy too.
    attn_buffer take(nb::handle object, const char *name, uint32_t dtype, int64_t least,
                     const void **on_host);
    void take_table(nb::handle object);
};

void bind_plan(nb::module_ &module);
void bind_core(nb::module_ &module);
void bind_attention(nb::module_ &module);
void bind_packed(nb::module_ &module);
void bind_calls(nb::module_ &module);
void bind_serving(nb::module_ &module);
