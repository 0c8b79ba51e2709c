# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's HTTP server, with its options, and with the backend of counted.py as CUSTOM: that one may have a fault."""
import runpy

import counted
from vllm.plugins import load_general_plugins

# Not below: the process of the engine imports this file as well before it loads a model. A process loads plugins once,
# so that libattn's own does not take the name back.
load_general_plugins()
counted.register()

if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
