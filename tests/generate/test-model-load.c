/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Loading of a model: the shape, the tensors, and the refusal of what does not fit or is not known. */
#include "model/llama.h"
#include "model/quant.h"
#include "model/toy.h"
#include "small.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Joins the file, loads the model and returns the message. */
static const char *load(struct gguf_writer *w)
{
    static struct failure err;
    struct gguf file;
    struct model model;
    failure_set(&err, "was accepted");
    small_open(w, &file);
    if (model_load(&file, &model, &err) == 0)
        model_finish(&model);
    small_close(&file);
    return err.text;
}

static void expect(struct gguf_writer *w, const char *part)
{
    const char *text = load(w);
    cr_assert(strstr(text, part), "wanted '%s' in '%s'", part, text);
}

Test(model, loads_the_toy)
{
    uint8_t *data;
    size_t size;
    struct gguf file;
    struct model model;
    struct failure err;
    char name[64];
    cr_assert_eq(toy_build(1, &data, &size, &err), 0);
    cr_assert_eq(gguf_open_memory("toy", data, size, &file, &err), 0, "%s", err.text);
    cr_assert_eq(model_load(&file, &model, &err), 0, "%s", err.text);
    model_name(&file, name, sizeof name);
    cr_assert_str_eq(name, "toy");
    cr_assert_eq(model.shape.head_dim, 64);
    cr_assert_eq(model.shape.vocab, 257);
    cr_assert_neq(model.output, model.embedding);
    cr_assert_eq(model.final_norm[3], 1.0f);
    model_finish(&model);
    gguf_close(&file);
    free(data);
}

Test(model, ties_the_output_to_the_embedding)
{
    struct gguf_writer w = {0};
    struct gguf file;
    struct model model;
    small_metadata(&w, NULL);
    small_tensors(&w, NULL);
    small_open(&w, &file);
    cr_assert_eq(model_load(&file, &model, NULL), 0);
    cr_assert_eq(model.output, model.embedding);
    cr_assert_eq(model.shape.rope_base, 10000);
    model_finish(&model);
    small_close(&file);
}

Test(model, refuses_missing_keys_and_tensors)
{
    static const char *const keys[] = {"general.architecture",
                                       "llama.block_count",
                                       "llama.context_length",
                                       "llama.embedding_length",
                                       "llama.feed_forward_length",
                                       "llama.attention.head_count",
                                       "llama.attention.layer_norm_rms_epsilon"};
    static const char *const tensors[] = {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight",
                                          "blk.0.attn_v.weight", "blk.0.ffn_down.weight"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct gguf_writer w = {0};
        small_metadata(&w, keys[i]);
        small_tensors(&w, NULL);
        expect(&w, keys[i]);
    }
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        struct gguf_writer w = {0};
        small_metadata(&w, NULL);
        small_tensors(&w, tensors[i]);
        expect(&w, tensors[i]);
    }
}

static void expect_number(const char *key, uint32_t value, const char *part)
{
    struct gguf_writer w = {0};
    small_metadata(&w, key);
    gguf_write_u32(&w, key, value);
    small_tensors(&w, NULL);
    expect(&w, part);
}

Test(model, refuses_numbers_that_do_not_fit)
{
    expect_number("llama.attention.head_count", 0, "llama.attention.head_count is 0");
    expect_number("llama.attention.head_count", 3, "multiples of the 3 heads");
    expect_number("llama.attention.head_count_kv", 3, "llama.attention.head_count_kv is 3");
    expect_number("llama.attention.key_length", 3, "even numbers");
    expect_number("llama.attention.value_length", 2, "llama.attention.value_length is 2");
    expect_number("llama.rope.dimension_count", 2, "llama.rope.dimension_count is 2");
    expect_number("llama.block_count", 2, "tensor blk.1.attn_norm.weight is missing");
    expect_number("llama.feed_forward_length", 5, "tensor blk.0.ffn_gate.weight has shape [8, 6, 1, 1]");
    expect_number("llama.vocab_size", 7, "llama.vocab_size is 7");
    expect_number("llama.expert_count", 8, "llama.expert_count is 8");
    expect_number("llama.attention.sliding_window_pattern", 1025,
                  "llama.attention.sliding_window_pattern is 1025");
    expect_number("llama.attention.scale", 8, "llama.attention.scale is not supported");
}

Test(model, refuses_what_it_would_have_to_ignore)
{
    struct gguf_writer w = {0};
    small_metadata(&w, NULL);
    small_tensors(&w, NULL);
    gguf_write_tensor(&w, "blk.0.attn_q.bias", QUANT_F32, 8, 0, 32);
    expect(&w, "tensor blk.0.attn_q.bias does not belong to a Llama model");
    small_metadata(&w, "general.architecture");
    gguf_write_string(&w, "general.architecture", "gemma2");
    expect(&w, "general.architecture is 'gemma2'; accepted are llama and whisper; the clients for ggml, ");
    small_metadata(&w, "general.architecture");
    gguf_write_string(&w, "general.architecture", "whisper");
    expect(&w, "general.architecture is 'whisper'; accepted is llama here");
    small_metadata(&w, NULL);
    gguf_write_string(&w, "llama.rope.scaling.type", "yarn");
    expect(&w, "llama.rope.scaling.type is yarn; accepted is none");
}

Test(model, refuses_types_by_name)
{
    struct gguf_writer w = {0};
    small_metadata(&w, "llama.embedding_length");
    gguf_write_u32(&w, "llama.embedding_length", 256);
    gguf_write_tensor(&w, "token_embd.weight", 14, 256, 1, 210);
    expect(&w, "tensor token_embd.weight has type Q6_K; accepted are F32, F16, BF16, Q4_0, Q4_1 and Q8_0");
}

static void check_name(const char *path, const char *want)
{
    struct gguf_writer w = {0};
    struct gguf file;
    char name[300];
    gguf_write_string(&w, "general.name", "Some training run");
    gguf_write_string(&w, "general.basename", "smollm2");
    gguf_write_string(&w, "general.size_label", "135M");
    small_open(&w, &file);
    free(file.path);
    file.path = strdup(path);
    model_name(&file, name, sizeof name);
    cr_assert_str_eq(name, want);
    small_close(&file);
}

Test(model, is_named_by_its_file_only_where_metadata_agree)
{
    check_name("/models/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct");
    check_name("SmolLM2-135M-Instruct-f16.gguf", "SmolLM2-135M-Instruct");
    check_name("/models/other.gguf", "Some-training-run");
    check_name("/models/SmolLM2-1.7B-Instruct.gguf", "Some-training-run");
}
