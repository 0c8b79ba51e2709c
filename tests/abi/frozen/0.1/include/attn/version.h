/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Versions: of the library, of the binary interface to plugins, and of the entry symbol. */
#ifndef ATTN_VERSION_H
#define ATTN_VERSION_H

/* Version of the library. The build system reads these lines. */
#define LIBATTN_VERSION_MAJOR 0
/* Raised by every release that adds something. */
#define LIBATTN_VERSION_MINOR 1
/* Raised by every release that only mends. */
#define LIBATTN_VERSION_PATCH 0

/*
 * Version of the plugin interface (plugin.h and what it includes).
 * While the major is 0, host and plugin must agree on the minor exactly. From 1.0 on members are only
 * appended, and a plugin with a smaller minor keeps working.
 */
#define ATTN_ABI_MAJOR 0
/* Raised by every change of the interface. */
#define ATTN_ABI_MINOR 8

/* The one symbol that a plugin exports. Its number counts entry signatures, not ABI versions. */
#define ATTN_PLUGIN_ENTRY_SYMBOL "attn_plugin_entry_v1"

#endif
