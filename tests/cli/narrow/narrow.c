/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The template, included: Meson takes no file from the directory of subprojects. */
#include "../../../plugins/template/template.c"
