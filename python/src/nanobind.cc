// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// nanobind's own sources, from its package, compiled into the module.
#include <nb_combined.cpp>
