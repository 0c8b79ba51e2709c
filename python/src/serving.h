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

// What a step is: a builder's last build, or the buffers of a captured size. Its owner counts what it hands
// out, so that it is known when this has ended.
struct Metadata {
    attn_metadata *handle;
    uint64_t number;
    std::weak_ptr<const uint64_t> last; // number of what the owner handed out last; gone with the owner
    std::shared_ptr<Builder> builder;   // held; a state holds what it has begun, so states are not

    attn_metadata *get() const
    {
        const std::shared_ptr<const uint64_t> now = last.lock();
        if (now && *now == number)
            return handle;
        refuse("metadata", builder ? "metadata is that of an earlier step; it ended with the builder's next "
                                     "reset or build"
                                   : "metadata is that of a capture; without a clone it ended with the next "
                                     "one's or with end_capture, and with a clone that is no more");
    }
};

void bind_builder(nb::module_ &module);
