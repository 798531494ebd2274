"""Serves a model file with llama.cpp behind an OpenAI-compatible endpoint, for nights with a small real model.

    python serve_model.py MODEL.gguf PORT

Runs in an environment with `xllamacpp` (`make model-night-local` makes it); prints the address once it answers.
"""

from __future__ import annotations

import signal
import sys

CONTEXT_TOKENS = 8192


def main() -> None:
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path, settings.port = sys.argv[1], int(sys.argv[2])
    settings.n_ctx, settings.n_parallel, settings.cpuparams.n_threads = CONTEXT_TOKENS, 1, 1
    settings.use_jinja, settings.warmup = True, False
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
