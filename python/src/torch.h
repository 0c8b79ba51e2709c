// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a call needs of torch's Python interface, so that plain tensors take no Python code of ours.
#pragma once

#include <initializer_list>

#include "array.h"

// Types and functions of the torch that the process has imported. Nothing is linked to torch.
class Torch
{
  public:
    // Null without torch, and with one that has not all of it: callers have a slower way, in Python.
    static const Torch *find();

    // Of torch's own type: neither a fake tensor nor another subclass, whose data are not what they seem.
    bool is_plain(nb::handle object) const;
    // Whether somebody records or changes what is called: dispatch modes, torch.jit.trace, torch.autocast.
    bool is_watched() const;
    // Whether a gradient of a result of these would be wanted; they are tensors or None.
    bool wants_gradient(std::initializer_list<nb::handle> tensors) const;
    // A new tensor of the type and device of `like`, which `view` is a view of.
    template <int N>
    nb::object empty(nb::handle like, const Array &view, const int64_t (&sizes)[N],
                     const int64_t (&strides)[N]) const
    {
        return empty(like, view, N, sizes, strides);
    }

  private:
    bool fill();
    nb::object empty(nb::handle like, const Array &view, int rank, const int64_t *sizes,
                     const int64_t *strides) const;

    PyObject *tensor_ = nullptr, *parameter_ = nullptr;
    PyObject *count_modes_ = nullptr, *tracing_state_ = nullptr, *has_autocast_ = nullptr,
             *has_gradients_ = nullptr, *empty_like_ = nullptr;
    PyObject *requires_grad_ = nullptr, *new_empty_strided_ = nullptr; // names
};
