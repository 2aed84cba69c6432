"""What requests may hold. Unknown fields of our own routes are refused; those of OpenAI's are ignored, as servers do."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from memagent.conversation import Said
from memagent.errors import ConfigError

QUESTION = 100_000  # characters at most
_Tokens = Field(default=None, ge=1, le=1_000_000)


class Options(BaseModel):
    """How to read; what is left out is as the service was started with."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    reader: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    chunk_tokens: int | None = _Tokens
    memory_tokens: int | None = _Tokens
    answer_tokens: int | None = _Tokens
    question_tokens: int | None = _Tokens
    temperature: float | None = Field(default=None, ge=0, le=10)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0, le=2**31 - 1)

    def chosen(self) -> dict[str, Any]:
        """Those that were given, by the names that readings know."""
        return self.model_dump(exclude_none=True, by_alias=True)


class ReadingRequest(BaseModel):
    """A question, and what to read for it: ids of uploaded files, paths below the root folder, or a text."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(min_length=1, max_length=QUESTION)
    documents: list[str] = Field(default=[], max_length=1000)
    text: str | None = Field(default=None, min_length=1)
    options: Options = Options()


class AskRequest(BaseModel):
    """Another question for the memory of a reading."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    question: str = Field(min_length=1, max_length=QUESTION)
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")


class FilePart(BaseModel):
    """A document in a message: an uploaded file, or its bytes as a data URL."""

    file_id: str | None = None
    file_data: str | None = None
    filename: str | None = Field(default=None, max_length=300)


class Part(BaseModel):
    """A part of a message: text, or a file."""

    type: Literal["text", "refusal", "file"]
    text: str = ""
    file: FilePart | None = None


class Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None

    def said(self) -> Said[FilePart]:
        """Its text and its files."""
        if not isinstance(self.content, list):
            return Said(role=self.role, text=self.content or "")
        text = "\n".join(part.text for part in self.content if part.text)
        return Said(role=self.role, text=text, files=[part.file for part in self.content if part.file is not None])


class JsonSchema(BaseModel):
    name: str = ""
    json_schema: dict[str, Any] = Field(default={"type": "object"}, alias="schema")


class ResponseFormat(BaseModel):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None


class StreamOptions(BaseModel):
    include_usage: bool = False


class OpenAIRequest(Options):
    """What OpenAI's requests share: the model, and beside their own fields the options of a reading."""

    model_config = ConfigDict(extra="ignore")

    model: str = "memagent"

    def reading_options(self, schema: dict[str, Any] | None, answer_tokens: int | None) -> dict[str, Any]:
        """The options that were given, of which OpenAI has other names for some."""
        values = {name: getattr(self, name) for name in Options.model_fields}
        named = {"reader": self.model.partition(":")[2] or None, "json_schema": schema, "answer_tokens": answer_tokens}
        return Options(**values | {name: value for name, value in named.items() if value is not None}).chosen()


class ChatRequest(OpenAIRequest):
    """OpenAI's request for a chat completion, as far as a reading has use for it. Of the rest, that which would change the
    answer is refused, and what is left ignored."""

    messages: list[Message] = Field(min_length=1, max_length=10_000)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = _Tokens
    max_completion_tokens: int | None = _Tokens
    n: int | None = Field(default=1, ge=1, le=1)
    response_format: ResponseFormat | None = None
    tools: Any = None
    functions: Any = None

    def check(self) -> None:
        """Raises ConfigError for what cannot be done."""
        for name in ("tools", "functions"):
            if getattr(self, name):
                raise ConfigError(f"{name} is not supported: a reading has a document and a question, and calls no tools")

    def options(self) -> dict[str, Any]:
        """The options of the reading that this asks for."""
        schema = None
        if self.response_format is not None and self.response_format.type != "text":
            schema = (self.response_format.json_schema or JsonSchema()).json_schema
        return self.reading_options(schema, self.max_completion_tokens or self.max_tokens)
