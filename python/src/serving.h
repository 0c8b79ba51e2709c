// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What builders hand to states: cache groups, and the metadata of a step.
#pragma once

#include <attn/layer.h>

#include "plan.h"

using Groups = std::vector<attn_builder_group>;

// Cache groups as tuples (tokens per block, most blocks of a sequence[, sliding window in tokens]).
Groups groups_of(const std::vector<nb::object> &given);
// The group of cross-attention as the same tuple; no group if it is None.
Groups cross_of(const nb::object &given);

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

void bind_builder(nb::module_ &module);
