"""What the forms send: a question with files or a text becomes a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Request
from starlette.datastructures import UploadFile

from memagent.errors import ConfigError
from memagent.server.schemas import QUESTION
from memagent.server.state import Part, Service, text_part
from memagent.server.values import Job


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form, and the files that were chosen in it."""

    fields: Mapping[str, str]
    files: tuple[UploadFile, ...] = ()


async def key_sent(request: Request) -> Form:
    """Reads the form of the login, which anyone may send: it is small. Raises HTTPException if it is none."""
    form = await request.form(max_files=0, max_fields=10, max_part_size=10_000)
    return Form({name: value for name, value in form.multi_items() if isinstance(value, str)})


async def sent(request: Request, service: Service) -> Form:
    """Reads a form. Raises HTTPException if it is none."""
    form = await request.form(max_part_size=service.limits.upload_bytes)
    fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
    files = [value for _, value in form.multi_items() if isinstance(value, UploadFile) and value.filename]
    return Form(fields, tuple(files))


def usual_reader(service: Service) -> str:
    """The reader that the service was started with. A job leaves it unsaid, and so keeps the options it was given."""
    return service.jobs.desk.options.get("reader") or "memory"


def question_of(form: Form) -> str:
    """The question of a form. Raises ConfigError."""
    question = form.fields.get("question", "").replace("\r\n", "\n").strip()
    if not question:
        raise ConfigError("Ask a question: the field is empty")
    if len(question) > QUESTION:
        raise ConfigError(f"The question has {len(question):,} characters, the limit is {QUESTION:,}: shorten it")
    return question


async def submitted(service: Service, owner: str, form: Form) -> Job:
    """The job that a form asks for. Raises ConfigError, or what `Service.begin` does."""
    question, text, reader = question_of(form), form.fields.get("text", ""), form.fields.get("reader", "")
    if bool(form.files) == bool(text.strip()):
        both = "There are both a file and a text: leave one of them out"
        raise ConfigError(both if form.files else "Choose a file, or paste a text")
    if reader and reader not in service.readers:
        raise ConfigError(f"There is no reader {reader!r} here: choose one of {', '.join(service.readers)}")
    parts = [Part(file.filename or "document", file.file) for file in form.files]
    options = {} if reader in ("", usual_reader(service)) else {"reader": reader}
    job = Job(owner=owner, question=question, options=options)
    return await service.begin(job, parts or [text_part(text.replace("\r\n", "\n"))])
