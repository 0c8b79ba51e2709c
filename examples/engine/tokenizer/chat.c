/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Recognises ChatML in a chat template, together with the system turn that the template puts first by itself.
 */
#define _GNU_SOURCE /* memmem, asprintf */

#include "chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char turn_begin[] = "<|im_start|>";
static const char turn_end[] = "<|im_end|>";

static const char *find(struct gguf_string text, const char *what)
{
    return memmem(text.data, text.size, what, strlen(what));
}

/* What follows a line end, which a template may also write as the two characters \n; NULL without one. */
static const char *skip_line_end(const char *at, const char *end)
{
    if (at < end && *at == '\n')
        return at + 1;
    if (end - at >= 2 && at[0] == '\\' && at[1] == 'n')
        return at + 2;
    return NULL;
}

/*
 * The system text that the template contains literally, used when a conversation begins without one. Text
 * that contains quotes or braces is computed by the template and not literal.
 */
static struct gguf_string default_system(struct gguf_string template)
{
    const char *limit = template.data + template.size;
    struct gguf_string rest = template;
    for (const char *at; (at = find(rest, "<|im_start|>system"));) {
        at += strlen("<|im_start|>system");
        rest = (struct gguf_string){at, (size_t)(limit - at)};
        const char *text = skip_line_end(at, limit);
        if (!text)
            continue;
        const char *end = find((struct gguf_string){text, (size_t)(limit - text)}, turn_end);
        if (!end)
            continue;
        struct gguf_string system = {text, (size_t)(end - text)};
        if (!memchr(text, '\'', system.size) && !memchr(text, '{', system.size) &&
            !memchr(text, '"', system.size))
            return system;
    }
    return (struct gguf_string){0};
}

int chat_render(const struct gguf *file, const char *question, char **out, struct failure *err)
{
    struct gguf_string template = {0};
    int size;
    if (gguf_get_string(file, "tokenizer.chat_template", false, &template, err) < 0)
        return -1;
    if (template.size == 0) {
        size = asprintf(out, "%s", question);
    } else if (!find(template, turn_begin) || !find(template, turn_end)) {
        return failure_set(
            err,
            "%s: tokenizer.chat_template is none that is known; accepted is ChatML. Use --raw to give "
            "the prompt as it is",
            file->path);
    } else {
        struct gguf_string system = default_system(template);
        size = asprintf(out, "%s%.*s%s<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n",
                        system.size ? "<|im_start|>system\n" : "", (int)system.size,
                        system.size ? system.data : "", system.size ? "<|im_end|>\n" : "", question);
    }
    return size < 0 ? failure_set(err, "no memory for the prompt") : 0;
}
