// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arrays of Python, viewed through DLPack: address, element type, shape and strides, without a copy.
#pragma once

#include <nanobind/ndarray.h>

#include "handle.h"

// An element type that libattn has no use for but masks have.
constexpr uint32_t BOOL = ATTN_DTYPE(6, 8), UINT8 = ATTN_DTYPE(1, 8);

// A view of an array. It holds the array while it lives.
class Array
{
  public:
    static constexpr int MOST = 4; // dimensions

    Array() = default;
    // `name` is that of the argument, for errors. Writable memory is asked for if the array is written.
    Array(nb::handle object, const char *name, bool written = false);

    explicit operator bool() const
    {
        return name_ != nullptr;
    }
    const char *name() const
    {
        return name_;
    }
    void *data() const
    {
        return data_;
    }
    uint32_t dtype() const
    {
        return dtype_;
    }
    int rank() const
    {
        return rank_;
    }
    int64_t size(int dim) const
    {
        return shape_[dim];
    }
    // In elements, as the array has it.
    int64_t step(int dim) const
    {
        return strides_[dim];
    }
    // In bytes; 0 for a dimension of size 1, which is never stepped over.
    int64_t stride(int dim) const
    {
        return shape_[dim] == 1 ? 0 : strides_[dim] * element();
    }
    int64_t element() const
    {
        return (dtype_ >> 8 & 0xff) / 8;
    }
    // Whether it was viewed by the exchange table of its type, as tensors of torch are.
    bool has_table() const
    {
        return object_.is_valid();
    }
    // Elements one behind the other in all dimensions.
    bool is_contiguous() const;
    attn_buffer buffer() const
    {
        return {data_, 0};
    }
    int32_t device_type() const
    {
        return device_type_;
    }
    int32_t device_id() const
    {
        return device_id_;
    }
    bool is_on(const attn_device &device) const;
    // The stream that the array's library works on now, in host memory torch's threads; 0 for libraries that
    // do not say.
    uintptr_t stream() const;

    // Raise libattn.Error that names the argument.
    const Array &need_rank(int rank) const;
    const Array &need_dtype(uint32_t dtype) const;
    const Array &need_element() const; // a type that q, k, v and out can have
    const Array &need_on(const attn_device &device) const;
    const Array &need_size(int dim, int64_t size) const;
    // Elements one behind the other in the last dimension.
    const Array &need_inner() const;
    // One dimension without gaps.
    const Array &need_list(int64_t least) const;

    // [token, head, dim] of three dimensions.
    attn_tensor tensor() const;

  private:
    bool view_fast(PyObject *object);
    void take(const nb::dlpack::dltensor &tensor);

    const char *name_ = nullptr;
    int (*current_stream_)(int32_t, int32_t, void **) = nullptr; // of its library
    void *data_ = nullptr;
    uint32_t dtype_ = 0;
    int rank_ = 0;
    int32_t device_type_ = 0, device_id_ = 0;
    int64_t shape_[MOST]{}, strides_[MOST]{}; // strides in elements
    nb::object object_;                       // with the table
    nb::ndarray<nb::ro> keep_;                // without
};

// What `stream` is for work on a CPU by the threads that torch computes with; 0 if there are none.
uintptr_t torch_threads();
// The array of an argument that may be None.
Array optional(nb::handle object, const char *name, bool written = false);
// "float32" and the like, for errors.
std::string dtype_text(uint32_t dtype);
