/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Looks at general.architecture before anything else of a model file is looked at. */
#include "architecture.h"

static const char *const names[ARCHITECTURES] = {
    [ARCHITECTURE_LLAMA] = "llama", [ARCHITECTURE_WHISPER] = "whisper"};

int architecture_read(const struct gguf *file, enum architecture *out, struct failure *err)
{
    struct gguf_string name;
    if (gguf_get_string(file, "general.architecture", true, &name, err) < 0)
        return -1;
    for (int i = 0; i < ARCHITECTURES; i++)
        if (gguf_string_equals(name, names[i])) {
            *out = (enum architecture)i;
            return 0;
        }
    return failure_set(
        err, "%s: general.architecture is '%.*s'; accepted are %s and %s; " ARCHITECTURE_ELSEWHERE,
        file->path, gguf_width(name), name.data, names[ARCHITECTURE_LLAMA], names[ARCHITECTURE_WHISPER]);
}

int architecture_expect(const struct gguf *file, enum architecture wanted, struct failure *err)
{
    enum architecture found = wanted;
    if (architecture_read(file, &found, err) < 0)
        return -1;
    if (found != wanted)
        return failure_set(err, "%s: general.architecture is '%s'; accepted is %s here", file->path,
                           names[found], names[wanted]);
    return 0;
}
