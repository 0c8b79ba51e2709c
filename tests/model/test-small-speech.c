/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A small generated encoder-decoder model: the same tokens for a clip whatever runs beside it, and the
 * refusal of what does not fit and of backends that serve no such model. Usage: test-small-speech
 * ATTN-GENERATE DIRECTORY-OF-THE-HIP-MOCK
 */
#define _GNU_SOURCE /* mkdtemp */

#include "rng.h"
#include "serve/speech.h"
#include "small-whisper.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIPS = 6, TOKENS = 24 };
static const uint32_t rows[CLIPS] = {16, 5, 70, 33, 1, 48};
static const char *const backends[] = {"cpu/flash-attn", "cpu/flashinfer", "cpu/rocm-flash"};

struct set {
    struct speech speech;
    float mel[CLIPS][2 * SMALL_WHISPER_ROWS * SMALL_WHISPER_BANDS];
    struct tokens alone[CLIPS];
};

static struct clip fresh(const struct set *s, uint32_t index)
{
    return (struct clip){.mel = s->mel[index], .rows = rows[index], .most = TOKENS - 2 * index};
}

static int start(struct set *s, uint32_t batch_slots, uint32_t block, const char *backend, const char *kv,
                 struct failure *err)
{
    const struct encoding_options options = {.block = block,
                                             .max_seqs = batch_slots,
                                             .max_encoder = SMALL_WHISPER_ROWS,
                                             .backend = backend,
                                             .kv = kv,
                                             .seed = batch_slots};
    return speech_start(&s->speech, &options, err);
}

/* Each clip by itself; texts must differ, or nothing would be shown by comparing them. */
static void run_alone(struct set *s)
{
    struct failure err = {0};
    uint32_t different = 0;
    bool ran = start(s, 1, 16, backends[0], "f32", &err) == 0;
    for (uint32_t i = 0; ran && i < CLIPS; i++) {
        struct clip clip = fresh(s, i);
        ran = speech_run(&s->speech, &clip, 1, NULL, NULL, &err) == 0;
        s->alone[i] = clip.made;
        if (i > 0 && ran)
            different += clip.made.count >= 4 && s->alone[0].count >= 4 &&
                         memcmp(clip.made.ids, s->alone[0].ids, 4 * sizeof(int32_t)) != 0;
    }
    speech_stop(&s->speech);
    tap_result(ran && different == CLIPS - 1,
               "every clip by itself, each with a text of its own (%u of %d) %s", different + 1, CLIPS,
               err.text);
}

static void run_together(struct set *s, uint32_t batch_slots, uint32_t step, uint32_t block,
                         const char *backend, const char *kv)
{
    struct failure err = {0};
    struct clip clips[CLIPS];
    uint32_t others = 0;
    bool ran = start(s, batch_slots, block, backend, kv, &err) == 0;
    for (uint32_t i = 0; i < CLIPS; i++)
        clips[i] = fresh(s, i * step % CLIPS);
    ran = ran && speech_run(&s->speech, clips, CLIPS, NULL, NULL, &err) == 0;
    for (uint32_t i = 0; i < CLIPS; i++) {
        uint32_t from = i * step % CLIPS;
        const struct tokens *alone = &s->alone[from];
        others += !alone->count || clips[i].made.count != alone->count ||
                  memcmp(clips[i].made.ids, alone->ids, alone->count * sizeof(int32_t)) != 0;
        tokens_finish(&clips[i].made);
    }
    tap_result(ran && others == 0, "%s, %s cache, blocks of %u, %u at once: the same tokens (%u others) %s",
               backend, kv, block, batch_slots, others, err.text);
    speech_stop(&s->speech);
}

static void refuses(const struct small_whisper *variant, const char *part)
{
    struct speech speech;
    struct failure err = {0};
    size_t size;
    uint8_t *data = small_whisper_build(variant, &size);
    int status = speech_load_memory(&speech, "small", data, size, &err);
    tap_result(status < 0 && strstr(err.text, part), "refused: %s", err.text);
    speech_finish(&speech);
    free(data);
}

static void test_refusals(struct set *s)
{
    struct failure err = {0};
    struct clip clip = fresh(s, 0);
    refuses(&(struct small_whisper){.without = "dec.blk.1.cross_attn_k.weight"},
            "tensor dec.blk.1.cross_attn_k.weight is missing");
    refuses(&(struct small_whisper){.reshaped = "enc.conv1.weight"},
            "tensor enc.conv1.weight has shape [24, 65, 1, 1]; accepted is [24, 64, 1, 1]");
    refuses(&(struct small_whisper){.extra = "enc.blk.0.gate.weight"},
            "tensor enc.blk.0.gate.weight does not belong to a model of architecture Whisper");
    refuses(&(struct small_whisper){.without = "whisper.mel_bands"},
            "metadata key whisper.mel_bands is missing");
    refuses(&(struct small_whisper){.without = "tokenizer.ggml.eos_token_id"},
            "metadata key tokenizer.ggml.eos_token_id is missing");
    clip.rows = SMALL_WHISPER_ROWS + 1;
    tap_result(start(s, 1, 16, backends[0], "f32", &err) == 0 &&
                   speech_run(&s->speech, &clip, 1, NULL, NULL, &err) < 0 &&
                   strstr(err.text, "71 encoder tokens, 24 tokens; accepted are 1 to 70 encoder tokens"),
               "refused: %s", err.text);
    speech_stop(&s->speech);
    tap_result(start(s, 1, 16, backends[0], "f12", &err) < 0 &&
                   strstr(err.text, "cache type f12; accepted are"),
               "refused: %s", err.text);
    speech_stop(&s->speech);
}

/* ---------------------------------------------------------------- the command line */

static bool write_file(const char *directory, const char *name, const void *data, size_t size)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    bool good = file && data && fwrite(data, 1, size, file) == size;
    return file && fclose(file) == 0 && good;
}

/* Runs a command line; the exit code, and what it said on standard error. */
static int command(char *out, size_t size, const char *line)
{
    FILE *pipe = popen(line, "r");
    size_t got = pipe ? fread(out, 1, size - 1, pipe) : 0;
    out[got] = 0;
    int status = pipe ? pclose(pipe) : -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect(const char *generate, const char *hip, const char *directory, const char *arguments,
                   int code, const char *text)
{
    char line[1200];
    char out[4096];
    snprintf(line, sizeof line, "cd %s && %s%s %s %s 2>&1", directory,
             hip ? "ATTN_BACKEND=hip ATTN_PLUGIN_PATH=" : "", hip ? hip : "", generate, arguments);
    int got = command(out, sizeof out, line);
    tap_result(got == code && strstr(out, text), "%s%s: exit code %d and \"%s\"", hip ? "on HIP, " : "",
               arguments, code, text);
    if (got != code || !strstr(out, text))
        tap_note("%d: %.800s", got, out);
}

/* Sound files that are read, but are no clips. */
static const struct odd_clip {
    uint16_t kind, channels, rate, bits; /* as they are in the file */
    uint32_t bytes;
    uint8_t fill;
    const char *refusal;
} odd_clips[] = {
    {1, 1, 8000, 16, 640, 0, "odd.wav: 8000 Hz, 1 channels; accepted are 16000 Hz and one channel"},
    {1, 2, 16000, 16, 640, 0, "odd.wav: 16000 Hz, 2 channels; accepted are"},
    {3, 1, 16000, 32, 640, 0xff, "odd.wav: sample 0 is"},
    {1, 1, 16000, 16, 0, 0, "odd.wav: the clip has no samples; accepted are 1 to"},
    {1, 1, 16000, 16, 4 * SMALL_WHISPER_ROWS *WAVE_HOP + 2, 0,
     "odd.wav: the clip has more; accepted are 1 to"},
};

static bool write_odd_clip(const char *directory, const struct odd_clip *c)
{
    static uint8_t file[44 + 4 * SMALL_WHISPER_ROWS * WAVE_HOP + 2];
    const uint16_t align = (uint16_t)(c->channels * c->bits / 8);
    const struct {
        int at;
        uint32_t value;
    } fields[] = {{4, c->bytes + 36},
                  {20, c->kind | (uint32_t)c->channels << 16},
                  {24, c->rate},
                  {28, (uint32_t)c->rate * align},
                  {32, align | (uint32_t)c->bits << 16},
                  {40, c->bytes}};
    memcpy(file, small_clip, 44);
    memset(file + 44, c->fill, c->bytes);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        for (int byte = 0; byte < 4; byte++)
            file[fields[i].at + byte] = (uint8_t)(fields[i].value >> (8 * byte));
    return write_file(directory, "odd.wav", file, 44 + c->bytes);
}

/* A file of an architecture that does not run here, and with a tokenizer that is not known either. */
static uint8_t *build_other(size_t *out_size)
{
    struct gguf_writer w = {0};
    gguf_write_string(&w, "general.architecture", "bert");
    gguf_write_string(&w, "tokenizer.ggml.model", "bert");
    return gguf_write_finish(&w, out_size);
}

static void test_commands(const char *generate, const char *hip)
{
    static const char refusal[] =
        "b.gguf: general.architecture is 'bert'; accepted are llama and whisper; the "
        "clients for ggml, transformers, vLLM and SGLang run other models\n";
    char directory[] = "/tmp/small-speech-XXXXXX";
    char line[100];
    size_t size = 0;
    size_t other_size = 0;
    uint8_t *data = small_whisper_build(&(struct small_whisper){0}, &size);
    uint8_t *other = build_other(&other_size);
    bool made = mkdtemp(directory) && write_file(directory, "s.gguf", data, size) &&
                write_file(directory, "b.gguf", other, other_size) &&
                write_file(directory, "clip.wav", small_clip, sizeof small_clip) &&
                write_file(directory, "list", "clip.wav\nno.wav\n", 16);
    tap_result(made, "files in a temporary directory");
    if (made) {
        expect(generate, NULL, directory, "-m s.gguf --audio clip.wav -n 4", 0, "backend: cpu/flash-attn");
        expect(generate, NULL, directory, "-m b.gguf -p 'a b'", 1, refusal);
        expect(generate, NULL, directory, "-m b.gguf --audio clip.wav", 1, refusal);
        expect(generate, NULL, directory, "-m no.gguf --audio clip.wav", 3, "no.gguf: No such file");
        expect(generate, hip, directory, "-m s.gguf --audio clip.wav", 1,
               "ROCm/HIP is not currently supported with encoder/decoder models.");
        expect(generate, NULL, directory, "-m s.gguf -p text", 1,
               "s.gguf is a speech model; accepted are --audio");
        expect(generate, NULL, directory, "--toy --audio clip.wav", 1,
               "--audio is for speech models, which the toy model is not");
        expect(generate, NULL, directory, "-m s.gguf --audio no.wav", 3, "--audio no.wav: No such file");
        expect(generate, NULL, directory, "-m s.gguf --batch list", 3,
               "--batch list: line 2: no.wav: No such file");
        expect(generate, NULL, directory, "-m s.gguf --audio s.gguf", 1, "s.gguf is no sound file");
        for (size_t i = 0; i < sizeof odd_clips / sizeof odd_clips[0]; i++)
            if (write_odd_clip(directory, &odd_clips[i]))
                expect(generate, NULL, directory, "-m s.gguf --audio odd.wav", 1, odd_clips[i].refusal);
            else
                tap_result(false, "odd.wav is not written");
        expect(generate, NULL, directory, "-m s.gguf --audio clip.wav -p a", 2,
               "--audio excludes -p and --batch");
    }
    snprintf(line, sizeof line, "rm -rf %s", directory);
    if (made && system(line) != 0)
        tap_note("%s stays", directory);
    free(data);
    free(other);
}

int main(int argc, char **argv)
{
    static struct set s;
    struct failure err = {0};
    size_t size;
    uint64_t seed = 6;
    if (argc != 3) {
        fprintf(stderr, "usage: test-small-speech ATTN-GENERATE DIRECTORY-OF-THE-HIP-MOCK\n");
        return 2;
    }
    uint8_t *data = small_whisper_build(&(struct small_whisper){0}, &size);
    for (uint32_t i = 0; i < CLIPS; i++)
        for (size_t k = 0; k < sizeof s.mel[i] / sizeof s.mel[i][0]; k++)
            s.mel[i][k] = (float)(rng_next(&seed) >> 40) * 0x1p-22f - 2;
    bool loaded = data && speech_load_memory(&s.speech, "small", data, size, &err) == 0;
    tap_result(loaded, "the small model loads %s", err.text);
    if (loaded) {
        run_alone(&s);
        for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
            run_together(&s, 1, 1, 16, backends[i], "f32");
            run_together(&s, 2, 1, 16, backends[i], "f32");
            run_together(&s, 3, 5, 16, backends[i], "f32");
            run_together(&s, CLIPS, 5, 32, backends[i], "f32");
        }
        test_refusals(&s);
        test_commands(argv[1], argv[2]);
    }
    for (uint32_t i = 0; i < CLIPS; i++)
        tokens_finish(&s.alone[i]);
    speech_finish(&s.speech);
    free(data);
    return tap_finish();
}
