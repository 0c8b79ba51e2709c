// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Errors as exceptions, the context of the process, backends and their memory.
#include "handle.h"

#include <cstdlib>

namespace
{

[[noreturn]] void raise(int32_t status, uint32_t reason, const char *field, const char *message)
{
    nb::object type = nb::module_::import_("libattn._error").attr("Error");
    nb::object error = type(message, attn_status_name(status), reason != 0 ? attn_reason_name(reason) : "",
                            field, reason != 0 ? attn_reason_advice(reason) : attn_status_advice(status));
    PyErr_SetObject(type.ptr(), error.ptr());
    throw nb::python_error();
}

} // namespace

void check(int32_t status, const attn_error &error)
{
    if (status != ATTN_OK)
        raise(status, error.reason, error.field, error.message);
}

void refuse(const char *field, const std::string &message)
{
    raise(ATTN_E_INVALID, 0, field, message.c_str());
}

// ---------------------------------------------------------------- memory

Memory::Memory(std::shared_ptr<Backend> owner, uint64_t size) : backend_(std::move(owner))
{
    Error error;
    if (size > 0)
        check(attn_memory_alloc(backend_->get(), size, &span_.buffer, error.get()), error);
    span_.size = size;
}

Memory &Memory::operator=(Memory &&other) noexcept
{
    std::swap(backend_, other.backend_);
    std::swap(span_, other.span_);
    return *this;
}

Memory::~Memory()
{
    if (span_.buffer.data != nullptr)
        attn_memory_free(backend_->get(), &span_.buffer);
}

Staging::Staging(std::shared_ptr<Backend> owner, uint64_t size) : backend_(std::move(owner)), size_(size)
{
    if (size == 0)
        return;
    pinned_ = attn_memory_alloc_pinned(backend_->get(), size, &data_, nullptr) == ATTN_OK;
    if (!pinned_)
        data_ = std::aligned_alloc(64, (size + 63) / 64 * 64);
    if (data_ == nullptr)
        throw std::bad_alloc();
}

Staging &Staging::operator=(Staging &&other) noexcept
{
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(pinned_, other.pinned_);
    return *this;
}

Staging::~Staging()
{
    if (pinned_)
        attn_memory_free_pinned(backend_->get(), data_);
    else
        std::free(data_);
}

Mark::Mark(std::shared_ptr<Backend> owner) : backend_(std::move(owner))
{
    Error error;
    const int32_t status = attn_event_create(backend_->get(), &event_, error.get());
    if (status != ATTN_E_UNSUPPORTED)
        check(status, error);
}

Mark &Mark::operator=(Mark &&other) noexcept
{
    std::swap(backend_, other.backend_);
    std::swap(event_, other.event_);
    return *this;
}

Mark::~Mark()
{
    if (event_ != nullptr)
        attn_event_destroy(backend_->get(), event_);
}

void Mark::set(uintptr_t stream)
{
    Error error;
    if (event_ != nullptr)
        check(attn_event_record(backend_->get(), event_, (void *)stream, error.get()), error);
}

void Mark::wait(uintptr_t stream) const
{
    Error error;
    check(event_ != nullptr ? attn_event_synchronize(backend_->get(), event_, error.get())
                            : attn_stream_synchronize(backend_->get(), (void *)stream, error.get()),
          error);
}

// ---------------------------------------------------------------- problems

attn_problem parse(const std::string &text)
{
    attn_problem problem;
    Error error;
    check(attn_problem_parse(text.c_str(), &problem, error.get()), error);
    return problem;
}

std::string format(const attn_problem &problem)
{
    std::string text(512, '\0');
    size_t needed = 0;
    Error error;
    while (attn_problem_format(&problem, text.data(), text.size(), &needed, error.get()) == ATTN_E_SIZE)
        text.resize(needed);
    text.resize(needed - 1);
    return text;
}

// ---------------------------------------------------------------- context and backend

static std::shared_ptr<Context> the_context;

std::shared_ptr<Context> process_context()
{
    if (the_context)
        return the_context;
    auto context = std::make_shared<Context>();
    attn_context *handle = nullptr;
    Error error;
    check(attn_context_create(nullptr, &handle, error.get()), error);
    context->handle.reset(handle);
    return the_context = context;
}

void forget_context()
{
    the_context.reset();
}

attn_device device_of(const std::string &name)
{
    attn_device device{};
    const size_t colon = name.find(':');
    const std::string type = name.substr(0, colon);
    device.ordinal = colon == std::string::npos ? 0 : std::atoi(name.c_str() + colon + 1);
    device.type = type == "cpu"      ? ATTN_DEVICE_CPU
                  : type == "cuda"   ? ATTN_DEVICE_CUDA
                  : type == "rocm"   ? ATTN_DEVICE_ROCM
                  : type == "opencl" ? ATTN_DEVICE_OPENCL
                                     : ATTN_DEVICE_OTHER;
    return device;
}

std::shared_ptr<Decision> decide(std::shared_ptr<Context> context, const std::vector<attn_problem> &problems,
                                 const char *backend, const char *device, uint32_t strict, bool ask_all)
{
    auto decision = std::make_shared<Decision>();
    attn_select_options options;
    attn_decision *made = nullptr;
    ATTN_INIT(&options);
    options.backend = backend;
    options.device = device;
    options.strict = strict;
    options.ask_all = ask_all;
    decision->status = attn_select(context->handle.get(), problems.data(), (uint32_t)problems.size(),
                                   &options, &made, decision->error.get());
    decision->handle.reset(made);
    if (decision->status != ATTN_E_NO_BACKEND)
        check(decision->status, decision->error);
    decision->context = std::move(context);
    return decision;
}

std::shared_ptr<Backend> open(const Decision &decision, uint32_t threads)
{
    auto backend = std::make_shared<Backend>();
    attn_open_config config;
    attn_backend *made = nullptr;
    Error error;
    check(decision.status, decision.error);
    ATTN_INIT(&config);
    config.threads = threads;
    check(
        attn_backend_open(decision.context->handle.get(), decision.handle.get(), &config, &made, error.get()),
        error);
    backend->handle.reset(made);
    backend->context = decision.context;
    backend->device = device_of(attn_backend_get_device(made));
    return backend;
}
