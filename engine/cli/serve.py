"""`python -m engine serve`: an OpenAI-compatible server."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import click

from engine.cli.engine_options import engine_options, read_config
from engine.errors import ConfigError
from engine.logs import log_to_stderr


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--served-model-name", metavar="NAME", help="What clients call the model; its folder's name otherwise.")
@click.option("--max-open-requests", type=click.IntRange(1), default=1024, show_default=True, help="More get 429.")
@click.option("--max-body-bytes", type=click.IntRange(1), default=16 * 2**20, show_default=True, help="More gets 413.")
@click.option(
    "--drain-seconds", type=click.IntRange(0), default=30, show_default=True, help="For open answers after SIGTERM."
)
@engine_options
def serve(
    host: str,
    port: int,
    served_model_name: str | None,
    max_open_requests: int,
    max_body_bytes: int,
    drain_seconds: int,
    **options: Any,
) -> None:
    """Serve the model over HTTP: /v1/completions, /v1/chat/completions, /v1/models, /metrics, /health."""
    config = read_config(options)
    try:
        import uvicorn  # noqa: PLC0415  help needs no server

        from engine.serving.app import ServerLimits, create_app  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"the server needs {error.name}: pip install 'inference-doctor[engine]'") from error
    from engine.assembly import build_core  # noqa: PLC0415  torch is not needed to read options

    log_to_stderr()
    # uvicorn drains on SIGTERM and then raises it again: having drained is success
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    name = served_model_name or Path(config.model).resolve().name
    app = create_app(build_core(config), name, ServerLimits(max_open_requests, max_body_bytes))
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="info",
        access_log=False,
        timeout_graceful_shutdown=drain_seconds,
    )
