/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tables of the WordPiece tokenizer, each sorted by its first number. */
#ifndef ENGINE_WORDPIECE_IMPL_H
#define ENGINE_WORDPIECE_IMPL_H

#include <stddef.h>
#include <stdint.h>

/*
 * Five numbers each: first, count, step, to, to_step. Characters first, first + step, … become to,
 * to + to_step, …; 0 is nothing. All others stay.
 */
enum { WORDPIECE_FOLD = 5 };
extern const uint32_t wordpiece_folds[];
extern const size_t wordpiece_fold_count;

/* A character and the two or three that it becomes. */
extern const uint32_t wordpiece_splits[][4];
extern const size_t wordpiece_split_count;

/* First and last character of ranges of punctuation. */
extern const uint32_t wordpiece_marks[][2];
extern const size_t wordpiece_mark_count;

#endif
