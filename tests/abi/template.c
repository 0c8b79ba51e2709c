/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plugins/template as it is: Meson takes no file from there, the room of projects of their own. */
#include "../../plugins/template/template.c"
