"""What a request for a response may hold. Of what a reading has no use for, that which would change the answer is refused,
and the rest ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from memagent.errors import ConfigError
from memagent.server.schemas import FilePart, JsonSchema, Message, OpenAIRequest, Part

_Key = Annotated[str, Field(max_length=64)]
_Value = Annotated[str, Field(max_length=512)]


class InputPart(BaseModel):
    """A part of a message: text, or a file."""

    type: str
    text: str = ""
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = Field(default=None, max_length=300)

    def part(self) -> Part:
        """The same as a part of a chat message. Raises ConfigError if it is neither text nor a file that was sent."""
        if self.file_url is not None:
            raise ConfigError("file_url is not supported, for no URL is fetched: give a file_id or file_data")
        if self.type == "input_file":
            file = FilePart(file_id=self.file_id, file_data=self.file_data, filename=self.filename)
            return Part(type="file", file=file)
        if self.type not in ("input_text", "output_text"):
            raise ConfigError(f"a part of type {self.type!r} is not supported: give input_text or input_file")
        return Part(type="text", text=self.text)


def _parts(content: Any) -> Any:
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content or []


class InputItem(BaseModel):
    """A message, or what an earlier response had beside its message."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] = "user"
    content: Annotated[list[InputPart], BeforeValidator(_parts)] = []

    def message(self) -> Message:
        """The same as a chat message. Raises ConfigError if it is none."""
        if self.type != "message":
            raise ConfigError(f"an input item of type {self.type!r} is not supported: give messages")
        return Message(role=self.role, content=[part.part() for part in self.content])


def _items(given: Any) -> Any:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


class TextFormat(JsonSchema):
    type: Literal["text", "json_object", "json_schema"] = "text"


class TextOptions(BaseModel):
    format: TextFormat = TextFormat()


class ResponseRequest(OpenAIRequest):
    """OpenAI's request for a response, as far as a reading has use for it."""

    input: Annotated[list[InputItem], BeforeValidator(_items)] = Field(min_length=1, max_length=10_000)
    instructions: str | None = None
    previous_response_id: str | None = None
    text: TextOptions = TextOptions()
    max_output_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    metadata: dict[_Key, _Value] | None = Field(default=None, max_length=16)
    background: bool | None = None
    store: bool | None = None
    stream: bool | None = None
    conversation: Any = None
    prompt: Any = None
    tools: Any = None

    def check(self) -> None:
        """Raises ConfigError for what cannot be done."""
        for name in ("conversation", "prompt", "tools"):
            if getattr(self, name):
                raise ConfigError(f"{name} is not supported: a reading has a document and a question, and calls no tools")
        if self.background and self.store is False:
            raise ConfigError("background needs store: what is not stored cannot be asked for later")

    def messages(self) -> list[Message]:
        """The conversation, with the instructions as its first message. Raises ConfigError for other input."""
        first = [Message(role="system", content=self.instructions)] if self.instructions else []
        return [*first, *(item.message() for item in self.input if item.type != "reasoning")]

    def options(self) -> dict[str, Any]:
        """The options of the reading that this asks for."""
        schema = self.text.format.json_schema if self.text.format.type != "text" else None
        return self.reading_options(schema, self.max_output_tokens)

    def repeated(self) -> dict[str, Any]:
        """What the response repeats."""
        form = self.text.format
        return {
            "model": self.model,
            "instructions": self.instructions,
            "text": {"format": form.model_dump(by_alias=True, exclude_unset=True) | {"type": form.type}},
            "metadata": self.metadata or {},
            "background": bool(self.background),
            "store": self.store is not False,
        }
