"""What inspect_ai finds by its entry point. All else is imported when a model is made."""

from __future__ import annotations

from memagent.errors import MissingExtraError

try:
    from inspect_ai.model import ModelAPI, modelapi
except ImportError as error:
    raise MissingExtraError("a model provider for inspect_ai", "inspect") from error


@modelapi(name="memagent")
def memagent() -> type[ModelAPI]:
    """Models that read: `memagent/embedded`, `memagent/FOLDER`, or `memagent/NAME` with the base URL of its server."""
    from memagent.inspect_provider.provider import ReadingModel

    return ReadingModel
