"""The model that inspect_ai asks: a conversation is read, and the answer comes back with what is known of it."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    Content,
    ContentDocument,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from memagent.conversation import Asked, Said, asked
from memagent.documents import Document, from_text, load
from memagent.errors import ConfigError
from memagent.inspect_provider.readings import Arguments, Readings
from memagent.result import Reading
from memagent.settings import ReadingOptions


class ReadingModel(ModelAPI):
    """A model that reads; `model_args` are those of `Arguments`. A reading that fails is an error of its sample."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - the signature of inspect_ai
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        self._readings = Readings(model_name, base_url, api_key, Arguments.of(model_args))

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Reads the long part of a conversation and answers its last question."""
        if tools:
            raise ConfigError(f"a reading calls no tools, such as {tools[0].name!r}: use a task without tools")
        options = reading_options(config)
        what = asked([said(message) for message in input])
        document = await asyncio.to_thread(document_of, what)
        return output(self.model_name, await self._readings.read(document, what.question, options))

    def close(self) -> None:
        """Releases the model."""
        self._readings.close()


def reading_options(config: GenerateConfig) -> ReadingOptions:
    """The options of a reading that a task has set. What a reading has no use for, such as stop sequences, is left out.

    Raises ConfigError for what the answer would have to come with.
    """
    refused = [name for name in ("logprobs", "prompt_logprobs", "modalities") if getattr(config, name)]
    if refused or (config.num_choices or 1) > 1:
        raise ConfigError(f"a reading has one answer, of text alone: leave out {(*refused, 'num_choices')[0]}")
    schema = config.response_schema and config.response_schema.json_schema.model_dump(exclude_none=True)
    chosen: dict[str, Any] = {
        "answer_tokens": config.max_tokens,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "seed": config.seed,
        "schema": schema,
    }
    options: ReadingOptions = {name: value for name, value in chosen.items() if value is not None}  # type: ignore[assignment]
    return options


def said(message: ChatMessage) -> Said[ContentDocument]:
    """The text and the files of a message. Raises ConfigError for pictures and sounds, which cannot be read."""
    parts: Sequence[Content] = [] if isinstance(message.content, str) else message.content
    for part in parts:
        if part.type in ("image", "audio", "video", "data"):
            raise ConfigError(f"a message has a part of type {part.type!r}: only text and documents can be read")
    files = [part for part in parts if isinstance(part, ContentDocument)]
    return Said(role=message.role, text=message.text, files=files)


def document_of(what: Asked[ContentDocument]) -> Document:
    """The document of a conversation. Raises DocumentError or ConfigError if it cannot be read."""
    if not what.files:
        return from_text(what.text)
    with TemporaryDirectory() as folder:
        names = {}
        for number, file in enumerate(what.files):
            path = Path(folder, str(number), Path(file.filename).name or "document")
            path.parent.mkdir()
            path.write_bytes(_content(file))
            names[str(path)] = path.name
        document = load(list(names))
    document.files = tuple(replace(file, name=names.get(file.name, file.name)) for file in document.files)
    return document


def _content(file: ContentDocument) -> bytes:
    head, _, data = file.document.partition("base64,")
    if not head.startswith("data:"):
        raise ConfigError(f"the document {file.filename!r} is no data URL in base64")
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ConfigError(f"the document {file.filename!r} is not base64: {error}") from None


def output(model: str, result: Reading) -> ModelOutput:
    """The answer; the memory as the reasoning before it; what was asked of the model in all turns as usage."""
    parts = (result.usage, result.verification)
    prompt, written, cached = (
        sum(getattr(part, name) for part in parts) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
    )
    memory = [ContentReasoning(reasoning=result.memory)] if result.memory else []
    message = ChatMessageAssistant(content=[*memory, ContentText(text=result.answer)], model=model, source="generate")
    return ModelOutput(
        model=model,
        choices=[ChatCompletionChoice(message=message, stop_reason="stop")],
        usage=ModelUsage(
            input_tokens=prompt - cached,
            output_tokens=written,
            total_tokens=prompt + written,
            input_tokens_cache_read=cached,
        ),
        time=result.seconds,
        metadata={
            "reading": result.id,
            "status": result.status,
            "quotes": [asdict(quote) for quote in result.quotes],
            "unsupported": list(result.unsupported),
            "turns": result.turns,
            "turns_resumed": result.turns_resumed,
            "share_read": result.share_read,
        },
    )
