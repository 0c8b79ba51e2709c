/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What uncased vocabularies make of a character: without controls and accents, in small letters. */
#include "wordpiece-impl.h"

#include "wordpiece.h"

/* Index of the last of "count" rows whose first number is at most the code; count if there is none. */
static size_t find(const uint32_t *rows, size_t count, size_t width, uint32_t code)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (rows[middle * width] <= code)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? low - 1 : count;
}

/* Syllables of Hangul are letters by arithmetic. */
static uint32_t fold_hangul(uint32_t code, uint32_t *out)
{
    enum { FIRST = 0xac00, LEADS = 0x1100, VOWELS = 0x1161, TAILS = 0x11a7, V = 21, T = 28 };
    uint32_t index = code - FIRST;
    out[0] = LEADS + index / (V * T);
    out[1] = VOWELS + index % (V * T) / T;
    out[2] = TAILS + index % T;
    return index % T ? 3 : 2;
}

uint32_t wordpiece_fold(uint32_t code, uint32_t *out)
{
    if (code >= 0xac00 && code <= 0xd7a3)
        return fold_hangul(code, out);
    size_t at = find(&wordpiece_splits[0][0], wordpiece_split_count, 4, code);
    if (at < wordpiece_split_count && wordpiece_splits[at][0] == code) {
        for (uint32_t i = 0; i < 3; i++)
            out[i] = wordpiece_splits[at][i + 1];
        return out[2] ? 3 : 2;
    }
    out[0] = code;
    at = find(wordpiece_folds, wordpiece_fold_count, WORDPIECE_FOLD, code);
    if (at == wordpiece_fold_count)
        return 1;
    const uint32_t *fold = wordpiece_folds + at * WORDPIECE_FOLD;
    uint32_t past = code - fold[0];
    if (past % fold[2] == 0 && past / fold[2] < fold[1])
        out[0] = fold[3] ? fold[3] + past / fold[2] * fold[4] : 0;
    return out[0] ? 1 : 0;
}

bool wordpiece_alone(uint32_t code)
{
    static const uint32_t ideographs[][2] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                             {0x20000, 0x2a6df}, {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f},
                                             {0x2b820, 0x2ceaf}, {0x2f800, 0x2fa1f}};
    enum { IDEOGRAPHS = sizeof ideographs / sizeof ideographs[0] };
    size_t at = find(&wordpiece_marks[0][0], wordpiece_mark_count, 2, code);
    if (at < wordpiece_mark_count && code <= wordpiece_marks[at][1])
        return true;
    at = find(&ideographs[0][0], IDEOGRAPHS, 2, code);
    return at < IDEOGRAPHS && code <= ideographs[at][1];
}
