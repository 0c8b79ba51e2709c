/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The chat template: ChatML with and without a system turn of its own, none, and one that is not known. */
#include "small.h"
#include "tokenizer/chat.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Renders "Hi" with a template (NULL: the file has none); the caller frees the text. */
static int render(const char *template, char **out, struct failure *err)
{
    struct gguf_writer w = {0};
    struct gguf file;
    small_metadata(&w, NULL);
    if (template)
        gguf_write_string(&w, "tokenizer.chat_template", template);
    small_open(&w, &file);
    int status = chat_render(&file, "Hi", out, err);
    small_close(&file);
    return status;
}

static void expect(const char *template, const char *want)
{
    char *text = NULL;
    struct failure err;
    cr_assert_eq(render(template, &text, &err), 0, "%s", err.text);
    cr_assert_str_eq(text, want);
    free(text);
}

static const char turn[] =
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}";
static const char plain[] = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";

Test(chat, adds_the_systems_turn_of_the_template)
{
    char template[512];
    snprintf(template, sizeof template,
             "{%% if x %%}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{%% endif %%}%s", turn);
    expect(template,
           "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    snprintf(template, sizeof template,
             "{%% if x %%}{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}{%% endif %%}%s", turn);
    expect(template,
           "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

Test(chat, adds_none_where_the_template_computes_it)
{
    char template[512];
    expect(turn, plain);
    snprintf(template, sizeof template, "{{ '<|im_start|>system\n' + system + '<|im_end|>\n' }}%s", turn);
    expect(template, plain);
}

Test(chat, leaves_a_prompt_alone_without_template)
{
    expect(NULL, "Hi");
}

Test(chat, refuses_other_templates_with_advice)
{
    char *text = NULL;
    struct failure err;
    cr_assert_lt(render("[INST] {{ message }} [/INST]", &text, &err), 0);
    cr_assert(strstr(err.text, "tokenizer.chat_template") && strstr(err.text, "--raw"), "%s", err.text);
    cr_assert_null(text);
}
