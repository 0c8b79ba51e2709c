// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The extension module libattn._native.
#include "graph.h"
#include "serving.h"

NB_MODULE(_native, module)
{
    module.doc() = "libattn's C interface, as objects.";
    bind_core(module);
    bind_plan(module);
    bind_graph(module);
    bind_attention(module);
    bind_packed(module);
    bind_calls(module);
    bind_builder(module);
    bind_serving(module);
}
