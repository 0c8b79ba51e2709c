// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Handles and memory of libattn as objects that free themselves, and statuses as exceptions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include <attn/attn.h>
#include <attn/device.h>

namespace nb = nanobind;

// Raises libattn.Error if a call failed.
void check(int32_t status, const attn_error &error);
// Raises libattn.Error of ATTN_E_INVALID for an argument that libattn itself would not see.
[[noreturn]] void refuse(const char *field, const std::string &message);

// An error to be filled by a call: check(attn_call(..., error.get()), error).
struct Error : attn_error {
    Error()
    {
        ATTN_INIT(static_cast<attn_error *>(this));
    }
    attn_error *get()
    {
        return this;
    }
};

template <class T, void (*Destroy)(T *)> struct Deleter {
    void operator()(T *handle) const
    {
        Destroy(handle);
    }
};
template <class T, void (*Destroy)(T *)> using Handle = std::unique_ptr<T, Deleter<T, Destroy>>;

struct Context {
    Handle<attn_context, attn_context_destroy> handle;
};

struct Backend {
    Handle<attn_backend, attn_backend_destroy> handle;
    attn_device device{}; // type and ordinal, numbered as in DLPack
    std::shared_ptr<Context> context;

    attn_backend *get() const
    {
        return handle.get();
    }
    bool is_host() const
    {
        return device.type == ATTN_DEVICE_CPU;
    }
};

// Memory of a backend's device. It may be made again larger, and never moves otherwise.
class Memory
{
  public:
    Memory() = default;
    Memory(std::shared_ptr<Backend> owner, uint64_t size);
    Memory(Memory &&other) noexcept
    {
        *this = std::move(other);
    }
    Memory &operator=(Memory &&other) noexcept;
    ~Memory();

    attn_span span() const
    {
        return span_;
    }

  private:
    std::shared_ptr<Backend> backend_;
    attn_span span_{};
};

// Pinned host memory where the backend has it, else memory of the host.
class Staging
{
  public:
    Staging() = default;
    Staging(std::shared_ptr<Backend> owner, uint64_t size);
    Staging(Staging &&other) noexcept
    {
        *this = std::move(other);
    }
    Staging &operator=(Staging &&other) noexcept;
    ~Staging();

    attn_span span() const
    {
        return {{data_, 0}, size_};
    }

  private:
    std::shared_ptr<Backend> backend_;
    void *data_ = nullptr;
    uint64_t size_ = 0;
    bool pinned_ = false;
};

// A place in a stream: that of copies out of memory of the host, which is written again only when they are
// done.
class Mark
{
  public:
    Mark() = default;
    explicit Mark(std::shared_ptr<Backend> owner);
    Mark(Mark &&other) noexcept
    {
        *this = std::move(other);
    }
    Mark &operator=(Mark &&other) noexcept;
    ~Mark();

    // Behind everything that is on the stream now.
    void set(uintptr_t stream);
    // Until it is reached; of a backend without events until the stream has nothing to do.
    void wait(uintptr_t stream) const;

  private:
    std::shared_ptr<Backend> backend_;
    void *event_ = nullptr;
};

// A problem string as a struct.
attn_problem parse(const std::string &text);
// Its canonical string.
std::string format(const attn_problem &problem);

// The context of the process, made on first use; it reads the environment then.
std::shared_ptr<Context> process_context();
// Lets go of it: in the child of a fork, which needs its own, and at exit.
void forget_context();
// The device that "cuda:1" names.
attn_device device_of(const std::string &name);

// What attn_select decided. That no backend serves is a decision too, whose error opening it raises.
struct Decision {
    std::shared_ptr<Context> context;
    Handle<attn_decision, attn_decision_destroy> handle;
    int32_t status = ATTN_OK;
    Error error;

    const attn_decision_info &info() const
    {
        return *attn_decision_get_info(handle.get());
    }
};

// Decides for problems together. `backend` is a wanted list over ATTN_BACKEND, or null; `device` may be null.
std::shared_ptr<Decision> decide(std::shared_ptr<Context> context, const std::vector<attn_problem> &problems,
                                 const char *backend, const char *device, uint32_t strict = 0,
                                 bool ask_all = false);
// Opens the winner.
std::shared_ptr<Backend> open(const Decision &decision, uint32_t threads);
