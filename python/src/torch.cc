// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls of torch through Python's C interface: what each costs is a tenth of a microsecond, but for new
// tensors.
#include "torch.h"

namespace
{

nb::object call(PyObject *function)
{
    nb::object result = nb::steal(PyObject_Vectorcall(function, nullptr, 0, nullptr));
    if (!result.is_valid())
        throw nb::python_error();
    return result;
}

nb::object tuple_of(const int64_t *numbers, int count)
{
    nb::object tuple = nb::steal(PyTuple_New(count));
    for (Py_ssize_t i = 0; tuple.is_valid() && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == nullptr || PyTuple_SetItem(tuple.ptr(), i, number) != 0)
            throw nb::python_error();
    }
    if (!tuple.is_valid())
        throw nb::python_error();
    return tuple;
}

// "a.b" of a module; null, without an error, where there is none. It is never let go of.
PyObject *attribute(nb::handle module, const char *outer, const char *inner)
{
    nb::object found = nb::borrow(module);
    for (const char *name : {outer, inner})
        if (name != nullptr && found.is_valid())
            found = nb::steal(PyObject_GetAttrString(found.ptr(), name));
    PyErr_Clear();
    return found.release().ptr();
}

} // namespace

bool Torch::fill()
{
    nb::object modules = nb::module_::import_("sys").attr("modules");
    nb::object torch = nb::borrow(PyDict_GetItemString(modules.ptr(), "torch"));
    if (!torch.is_valid())
        return false;
    tensor_ = attribute(torch, "Tensor", nullptr);
    parameter_ = attribute(torch, "nn", "Parameter");
    count_modes_ = attribute(torch, "_C", "_len_torch_dispatch_stack");
    tracing_state_ = attribute(torch, "_C", "_get_tracing_state");
    has_autocast_ = attribute(torch, "_C", "_is_any_autocast_enabled");
    has_gradients_ = attribute(torch, "is_grad_enabled", nullptr);
    empty_like_ = attribute(torch, "empty_like", nullptr);
    requires_grad_ = PyUnicode_InternFromString("requires_grad");
    new_empty_strided_ = PyUnicode_InternFromString("new_empty_strided");
    for (const PyObject *one : {tensor_, parameter_, count_modes_, tracing_state_, has_autocast_,
                                has_gradients_, empty_like_, requires_grad_, new_empty_strided_})
        if (one == nullptr)
            return false;
    return true;
}

const Torch *Torch::find()
{
    static Torch torch;
    static bool found;
    // Not for good: a thread may be here while another one imports torch.
    return found || (found = torch.fill()) ? &torch : nullptr;
}

bool Torch::is_plain(nb::handle object) const
{
    const PyObject *type = (const PyObject *)Py_TYPE(object.ptr());
    return type == tensor_ || type == parameter_;
}

bool Torch::is_watched() const
{
    return PyLong_AsLong(call(count_modes_).ptr()) != 0 || !call(tracing_state_).is_none() ||
           call(has_autocast_).ptr() != Py_False;
}

bool Torch::wants_gradient(std::initializer_list<nb::handle> tensors) const
{
    if (call(has_gradients_).ptr() == Py_False)
        return false;
    for (nb::handle tensor : tensors) {
        if (tensor.is_none())
            continue;
        nb::object wanted = nb::steal(PyObject_GetAttr(tensor.ptr(), requires_grad_));
        if (!wanted.is_valid())
            throw nb::python_error();
        if (wanted.ptr() != Py_False)
            return true;
    }
    return false;
}

nb::object Torch::empty(nb::handle like, const Array &view, int rank, const int64_t *sizes,
                        const int64_t *strides) const
{
    // empty_like takes three quarters of the time. It keeps strides of tensors without gaps, which these are;
    // of a dimension of size 1 they say nothing.
    bool same = view.rank() == rank;
    for (int i = 0; same && i < rank; i++)
        same = view.size(i) == sizes[i] && (sizes[i] == 1 || view.step(i) == strides[i]) && sizes[i] != 0;
    PyObject *made = nullptr;
    if (same) {
        PyObject *arguments[] = {like.ptr()};
        made = PyObject_Vectorcall(empty_like_, arguments, 1, nullptr);
    } else {
        const nb::object size = tuple_of(sizes, rank), stride = tuple_of(strides, rank);
        PyObject *arguments[] = {like.ptr(), size.ptr(), stride.ptr()};
        made = PyObject_VectorcallMethod(new_empty_strided_, arguments, 3, nullptr);
    }
    if (made == nullptr)
        throw nb::python_error();
    return nb::steal(made);
}
