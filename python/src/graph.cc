// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Graphs as context managers, which hold the arrays and handles of the calls that they have captured.
#include "graph.h"

#include <algorithm>

#include <nanobind/stl/shared_ptr.h>

namespace
{

std::vector<Graph *> capturing; // guarded by Python's lock

void end_capture(Graph *graph)
{
    capturing.erase(std::remove(capturing.begin(), capturing.end(), graph), capturing.end());
}

std::shared_ptr<Graph> make_graph(std::shared_ptr<Backend> backend, uintptr_t stream)
{
    auto graph = std::make_shared<Graph>();
    Error error;
    graph->backend = std::move(backend);
    if (stream == 0)
        check(attn_stream_create(graph->backend->get(), &graph->own, error.get()), error);
    graph->stream = stream != 0 ? stream : (uintptr_t)graph->own;
    return graph;
}

std::shared_ptr<Graph> enter(std::shared_ptr<Graph> graph)
{
    attn_graph *made = nullptr;
    Error error;
    if (graph->handle)
        refuse("graph", "graph was captured before, and its contents are fixed; Backend.graph makes another");
    check(attn_graph_begin(graph->backend->get(), (void *)graph->stream, &made, error.get()), error);
    graph->handle.reset(made);
    capturing.push_back(graph.get());
    return graph;
}

// What an exception leaves is no step: the graph is empty again.
void leave(Graph &graph, nb::handle type, nb::handle, nb::handle)
{
    Error error;
    end_capture(&graph);
    const int32_t status = attn_graph_end(graph.handle.get(), error.get());
    if (status != ATTN_OK || !type.is_none()) {
        graph.handle.reset();
        graph.arrays.clear();
        graph.handles.clear();
    }
    if (type.is_none())
        check(status, error);
}

void launch(const Graph &graph, uintptr_t stream)
{
    Error error;
    int32_t status;
    if (!graph.handle)
        refuse("graph", "graph holds no step; calls on its stream in `with graph:` are what it holds");
    {
        nb::gil_scoped_release release;
        status = attn_graph_launch(graph.handle.get(), (void *)stream, error.get());
    }
    check(status, error);
}

} // namespace

Graph::~Graph()
{
    end_capture(this);
    handle.reset(); // before its stream
    if (own != nullptr)
        attn_stream_destroy(backend->get(), own);
}

bool hold_captured(uintptr_t stream, std::initializer_list<nb::handle> arrays,
                   std::initializer_list<std::shared_ptr<const void>> handles)
{
    for (Graph *graph : capturing) {
        if (graph->stream != stream)
            continue;
        for (nb::handle array : arrays)
            graph->arrays.push_back(nb::borrow(array));
        graph->handles.insert(graph->handles.end(), handles);
        return true;
    }
    return false;
}

void bind_graph(nb::module_ &module)
{
    using nb::arg;
    nb::class_<Graph>(
        module, "Graph",
        "Work of a stream that is captured once and launched as a whole; made by Backend.graph. Inside "
        "`with graph:` State.begin_forward, Layer.forward, Step.prepare, Plan.run and Backend.kv_write on "
        "its stream are kept instead of done. A launch makes them again with what their arrays hold by "
        "then, but for masks of bools, which stay as they were. The graph holds these arrays; an exception "
        "inside leaves it empty. One thread at a time, while its plans and states run nowhere else.")
        .def_ro("stream", &Graph::stream, "The stream that it captures, for `stream` of other calls.")
        .def("__enter__", enter, "Begins the capture.")
        .def("__exit__", leave, arg("type").none(), arg("value").none(), arg("traceback").none(),
             "Ends the capture. Raises Error if a call could not be kept.")
        .def("launch", launch, arg("stream") = 0,
             "Does everything in order, on any stream that is not captured. Plans and allocates nothing.");
    nb::object backend = module.attr("Backend");
    nb::cpp_function_def(make_graph, nb::scope(backend), nb::name("graph"), nb::is_method(),
                         arg("stream") = 0,
                         "A graph that captures `stream`; without it a stream of its own, where the "
                         "backend has streams. Raises Error (ATTN_E_UNSUPPORTED) if it has none.");
}
