// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Views of arrays by DLPack: by its exchange table where the type has one, which takes no call of Python,
// else by nanobind.
#include "array.h"

namespace
{

// DLPack 1.3, "C exchange API": what a type's attribute __dlpack_c_exchange_api__ points to.
struct ExchangeTable {
    struct {
        uint32_t major, minor;
    } version;
    const void *previous;
    int (*allocate)(nb::dlpack::dltensor *, void **, void *, void (*)(void *, const char *, const char *));
    int (*managed_from_object)(void *, void **);
    int (*managed_to_object)(void *, void **);
    int (*view_from_object)(void *, nb::dlpack::dltensor *); // may be null
    int (*current_stream)(int32_t, int32_t, void **);
};

// The table of a type, or null. Looking it up costs more than the view, so the last answers are kept; a kept
// type is held.
const ExchangeTable *table_of(PyTypeObject *type)
{
    static struct {
        PyTypeObject *type;
        const ExchangeTable *table;
    } known[8];
    static unsigned next;

    for (const auto &one : known)
        if (one.type == type)
            return one.table;
    const ExchangeTable *table = nullptr;
    nb::object capsule = nb::steal(PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__"));
    if (capsule.is_valid())
        table = (const ExchangeTable *)PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
    PyErr_Clear();
    if (table != nullptr && (table->version.major != 1 || table->view_from_object == nullptr))
        table = nullptr;
    auto &slot = known[next++ % (sizeof known / sizeof *known)];
    Py_INCREF((PyObject *)type);
    Py_XDECREF((PyObject *)slot.type);
    slot = {type, table};
    return table;
}

} // namespace

std::string dtype_text(uint32_t dtype)
{
    if (const char *name = attn_dtype_name(dtype))
        return name;
    if (dtype == BOOL)
        return "bool";
    static const char *const kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
    const unsigned code = dtype & 0xff;
    return (code < 7 ? kinds[code] : "type of code " + std::to_string(code) + " and bits ") +
           std::to_string(dtype >> 8 & 0xff);
}

void Array::take(const nb::dlpack::dltensor &tensor)
{
    if (tensor.ndim > MOST)
        refuse(name_, std::string(name_) + " has " + std::to_string(tensor.ndim) + " dimensions; at most " +
                          std::to_string(MOST) + " are accepted");
    data_ = (char *)tensor.data + tensor.byte_offset;
    dtype_ =
        (uint32_t)tensor.dtype.code | (uint32_t)tensor.dtype.bits << 8 | (uint32_t)tensor.dtype.lanes << 16;
    rank_ = tensor.ndim;
    device_type_ = tensor.device.device_type;
    device_id_ = tensor.device.device_id;
    int64_t compact = 1;
    for (int i = rank_ - 1; i >= 0; i--) {
        shape_[i] = tensor.shape[i];
        strides_[i] = tensor.strides != nullptr ? tensor.strides[i] : compact;
        compact *= shape_[i];
    }
}

bool Array::view_fast(PyObject *object)
{
    const ExchangeTable *table = table_of(Py_TYPE(object));
    nb::dlpack::dltensor tensor;
    if (table == nullptr)
        return false;
    if (table->view_from_object(object, &tensor) != 0)
        throw nb::python_error(); // says why the array cannot be viewed, as of one that requires grad
    take(tensor);
    object_ = nb::borrow(object);
    current_stream_ = table->current_stream;
    return true;
}

Array::Array(nb::handle object, const char *name, bool written) : name_(name)
{
    if (view_fast(object.ptr()))
        return;
    nb::ndarray<nb::ro> array;
    if (!nb::try_cast(object, array))
        refuse(name, std::string(name) + " is a " + nb::inst_name(object).c_str() +
                         "; arrays with __dlpack__ or the buffer protocol are accepted");
    if (written && nb::hasattr(object, "flags") && nb::hasattr(object.attr("flags"), "writeable") &&
        !nb::cast<bool>(object.attr("flags").attr("writeable")))
        refuse(name, std::string(name) + " is read-only, and is written");
    nb::dlpack::dltensor tensor;
    tensor.data = const_cast<void *>(array.data());
    tensor.device = {array.device_type(), array.device_id()};
    tensor.ndim = (int32_t)array.ndim();
    tensor.dtype = array.dtype();
    tensor.shape = const_cast<int64_t *>(array.shape_ptr());
    tensor.strides = const_cast<int64_t *>(array.stride_ptr());
    take(tensor);
    keep_ = std::move(array);
}

bool Array::is_contiguous() const
{
    int64_t compact = 1;
    bool same = true, empty = false;
    for (int i = rank_ - 1; i >= 0; i--) {
        same = same && (shape_[i] == 1 || strides_[i] == compact);
        empty = empty || shape_[i] == 0;
        compact *= shape_[i];
    }
    return same || empty;
}

uintptr_t Array::stream() const
{
    void *stream = nullptr;
    if (current_stream_ == nullptr)
        return 0;
    if (device_type_ == ATTN_DEVICE_CPU)
        return torch_threads();
    if (device_type_ != ATTN_DEVICE_CUDA && device_type_ != ATTN_DEVICE_ROCM)
        return 0;
    if (current_stream_(device_type_, device_id_, &stream) != 0)
        throw nb::python_error();
    return (uintptr_t)stream;
}

bool Array::is_on(const attn_device &device) const
{
    const bool host =
        device_type_ == 1 || device_type_ == 3 || device_type_ == 11; // with that pinned for CUDA or ROCm
    return host ? device.type == ATTN_DEVICE_CPU
                : (uint32_t)device_type_ == device.type && device_id_ == device.ordinal;
}

const Array &Array::need_rank(int rank) const
{
    if (rank_ != rank)
        refuse(name_, std::string(name_) + " has " + std::to_string(rank_) + " dimensions; " +
                          std::to_string(rank) + " are accepted");
    return *this;
}

const Array &Array::need_dtype(uint32_t dtype) const
{
    if (dtype_ != dtype)
        refuse(name_,
               std::string(name_) + " is " + dtype_text(dtype_) + "; " + dtype_text(dtype) + " is accepted");
    return *this;
}

const Array &Array::need_element() const
{
    if (attn_dtype_name(dtype_) == nullptr || dtype_ == ATTN_INT32 || dtype_ == ATTN_INT64)
        refuse(name_, std::string(name_) + " is " + dtype_text(dtype_) +
                          "; f32, f16, bf16 and the 8-bit types are accepted");
    return *this;
}

const Array &Array::need_on(const attn_device &device) const
{
    if (!is_on(device))
        refuse(name_, std::string(name_) + " is in memory of another device (DLPack's type " +
                          std::to_string(device_type_) + ", number " + std::to_string(device_id_) +
                          "); the backend reads type " + std::to_string(device.type) + ", number " +
                          std::to_string(device.ordinal));
    return *this;
}

const Array &Array::need_size(int dim, int64_t size) const
{
    if (shape_[dim] != size)
        refuse(name_, std::string(name_) + " has " + std::to_string(shape_[dim]) + " in dimension " +
                          std::to_string(dim) + "; " + std::to_string(size) + " is accepted");
    return *this;
}

const Array &Array::need_inner() const
{
    bool empty = false; // of such an array strides say nothing
    for (int i = 0; i < rank_; i++)
        empty |= shape_[i] == 0;
    if (!empty && rank_ > 0 && shape_[rank_ - 1] > 1 && strides_[rank_ - 1] != 1)
        refuse(name_, std::string(name_) +
                          " has gaps between the elements of its last dimension; a contiguous one " +
                          "is accepted");
    return *this;
}

const Array &Array::need_list(int64_t least) const
{
    need_rank(1).need_inner();
    if (shape_[0] < least)
        refuse(name_, std::string(name_) + " has " + std::to_string(shape_[0]) + " elements; at least " +
                          std::to_string(least) + " are accepted");
    return *this;
}

attn_tensor Array::tensor() const
{
    need_rank(3).need_inner();
    attn_tensor tensor{};
    tensor.buffer = buffer();
    tensor.token_stride = stride(0);
    tensor.head_stride = stride(1);
    tensor.dtype = dtype_;
    return tensor;
}

Array optional(nb::handle object, const char *name, bool written)
{
    return object.is_none() ? Array() : Array(object, name, written);
}
