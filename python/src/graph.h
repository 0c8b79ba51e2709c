// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Graphs: work of a stream that is captured once and launched as a whole.
#pragma once

#include <initializer_list>

#include "handle.h"

// A graph, and all that its launches read and write.
struct Graph {
    std::shared_ptr<Backend> backend;
    uintptr_t stream = 0; // that is captured
    void *own = nullptr;  // the same, if it was made for this graph
    std::vector<nb::object> arrays;
    std::vector<std::shared_ptr<const void>> handles;
    Handle<attn_graph, attn_graph_destroy> handle;

    ~Graph();
};

// Lets the graph that is captured on a stream hold what a call there works on, as long as it may be launched;
// false if none is captured there. Before the call: one that fails may have been kept in part.
bool hold_captured(uintptr_t stream, std::initializer_list<nb::handle> arrays,
                   std::initializer_list<std::shared_ptr<const void>> handles);

void bind_graph(nb::module_ &module);
