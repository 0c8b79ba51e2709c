/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Compares what a GPU's plugin declares by hand of its driver with the vendor's own declarations, in TAP. */
#ifndef ATTN_TESTS_DECLARATIONS_H
#define ATTN_TESTS_DECLARATIONS_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

#include "driver.h"

/*
 * driver.def once more, with types that no other is mistaken for: what they stand for is said by `fits`,
 * below for every vendor and beside the vendor's header for one.
 */
namespace ours
{
enum class gpu_result : int;
enum class gpu_ordinal : int;
enum class gpu_pointer : uint64_t;
typedef struct any_handle *gpu_handle;

struct functions {
#define GPU_ENTRY(name, call, symbol, optional, parameters) gpu_result(*name) parameters;
#include "driver.def"
};
} // namespace ours

/* Declared in place of a function that an older header lacks. */
struct absent;

/* Whether a value of our type can be passed for one of the vendor's. */
template <class Ours, class Theirs, class = void> struct fits : std::is_same<Ours, Theirs> {
};
/* We pass numbers of enumerations as int. */
template <class Theirs>
struct fits<int, Theirs, std::enable_if_t<std::is_enum_v<Theirs>>>
    : std::bool_constant<sizeof(Theirs) == sizeof(int)> {
};
/* Handles are pointers to structs that nobody sees inside of. */
template <class Theirs>
struct fits<ours::gpu_handle, Theirs *> : std::bool_constant<std::is_class_v<std::remove_cv_t<Theirs>>> {
};
/* What is pointed to fits too; ours may be const where an older header forgot it. */
template <class Ours, class Theirs>
struct fits<
    Ours *, Theirs *,
    std::enable_if_t<!std::is_same_v<Ours *, ours::gpu_handle> && !std::is_function_v<Ours> &&
                     !std::is_same_v<Ours, Theirs> && (std::is_const_v<Ours> || !std::is_const_v<Theirs>)>>
    : fits<std::remove_const_t<Ours>, std::remove_const_t<Theirs>> {
};

template <class Ours, class Theirs> struct fits_call : std::false_type {
};
template <class R, class... A, class S, class... B> struct fits_call<R (*)(A...), S (*)(B...)> {
    static constexpr bool all()
    {
        if constexpr (sizeof...(A) == sizeof...(B))
            return fits<R, S>::value && (fits<A, B>::value && ...);
        else
            return false;
    }
    static constexpr bool value = all();
};

/* A function of the header by its type. */
template <class F> F vendors(F function);

static int lines, failures;

static inline void judge(bool good, const std::string &what, const std::string &why)
{
    lines++;
    failures += good ? 0 : 1;
    std::printf("%sok %d - %s%s%s\n", good ? "" : "not ", lines, what.c_str(), good ? "" : ": ",
                good ? "" : why.c_str());
}

/* A line of driver.def: `resolved` is the symbol that the header makes of the call's name. */
template <class Ours, class Theirs>
void judge_entry(const char *call, const char *symbol, const char *resolved, bool optional)
{
    if constexpr (std::is_same_v<Theirs, const absent *>) {
        if (optional)
            std::printf("ok %d - %s # SKIP the header is older than the function\n", ++lines, call);
        else
            judge(false, call, "the header has no such function, and the plugin needs it");
    } else {
        judge(fits_call<Ours, Theirs>::value, std::string(call) + ": its parameters and result",
              std::string("driver.def and the header differ: ") + __PRETTY_FUNCTION__);
        judge(std::strcmp(symbol, resolved) == 0, std::string(call) + ": the symbol " + symbol,
              std::string("the header calls ") + resolved);
    }
}

static inline void judge_number(const char *what, uint64_t mine, uint64_t theirs)
{
    judge(mine == theirs, what, std::to_string(mine) + ", the header says " + std::to_string(theirs));
}

/* Where a member of ours lies, and how large it is, against the vendor's. */
#define JUDGE_MEMBER(type, member, their_type, their_member)                                                 \
    do {                                                                                                     \
        judge_number("offset of " #type "." #member, offsetof(type, member),                                 \
                     offsetof(their_type, their_member));                                                    \
        judge_number("size of " #type "." #member, sizeof(static_cast<type *>(nullptr)->member),             \
                     sizeof(static_cast<their_type *>(nullptr)->their_member));                              \
    } while (0)

/* A macro's text after its names are resolved. */
#define RESOLVED_TEXT(x) #x
#define RESOLVED(x)      RESOLVED_TEXT(x)

/*
 * Every code of enum gpu_result_code, in one list that the file of a vendor gives as CODES(X): X(ours,
 * theirs). The switch makes a code without a row an error of the compiler.
 */
#pragma GCC diagnostic error "-Wswitch"
#define CODE_CASE(mine, theirs)                                                                              \
    case mine:                                                                                               \
        break;
#define CODE_LINE(mine, theirs) judge_number(#mine, mine, static_cast<uint64_t>(theirs));
#define JUDGE_CODES(CODES)                                                                                   \
    do {                                                                                                     \
        switch (GPU_SUCCESS) {                                                                               \
            CODES(CODE_CASE)                                                                                 \
        }                                                                                                    \
        CODES(CODE_LINE)                                                                                     \
    } while (0)

/* The plan of the test, and its exit status. */
static inline int judged()
{
    std::printf("1..%d\n", lines);
    return failures == 0 ? 0 : 1;
}

#endif
