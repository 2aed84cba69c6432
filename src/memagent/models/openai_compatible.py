"""Servers with OpenAI's chat completions: vLLM, SGLang, llama.cpp, Ollama, TGI, transformers serve, hosted APIs.

Only standard fields are sent, because strict servers refuse the others. Every fault a server can show (also a malformed
body with status 200, also a reply that drips for ever) meets one policy of retries.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from memagent.core.types import Completion, Tokenizer, Turn
from memagent.errors import (
    ConfigError,
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    ModelReplyError,
    ModelUnavailableError,
)
from memagent.models.background import CLOSED
from memagent.models.concurrency import AtOnce, Gate, most_of
from memagent.models.discovery import ServerFacts, discover, speculation
from memagent.models.endpoint import Endpoint
from memagent.models.replies import GarbledReplyError, TransientError, completion, failure
from memagent.models.retrying import Backoff, retry_after
from memagent.models.server_tokenizer import ServerTokenizer, tokenizer_for_server
from memagent.models.side_channel import SideChannel
from memagent.models.tokenizers import FileTokenizer, fewest_tokens
from memagent.models.transport import DroppedError, Line, UnreachableError
from memagent.models.usage import Counts, check_usage

log = logging.getLogger("memagent.models")

# Most likely a wrong URL or a server that is not running: waiting half a minute would not help the user to see it.
FIRST_CONTACT_RETRIES = 2
_NOBODY = "Is the server running, and is this its address (--base-url, `base_url` in Python)?"
# Tokens around a message where the server does not tell: the longest common chat forms, with a default system prompt.
DEFAULT_OVERHEAD = 64
# Seconds of waiting before another attempt that people notice, and between two warnings of such.
_NOTICED, _SILENCE = 2.0, 10.0
# A chat template may trim the text, and tokens may merge across its edges.
_CUT_TOLERANCE = 8


class OpenAIEngine:
    """An engine over HTTP.

    concurrency  concurrent requests, over all callers; "auto": as many as still give more tokens a second
    timeout      seconds for one attempt, from sending to the last byte; a slow reply is aborted and retried
    retries      further attempts after 408, 409, 425, 429, 5xx, timeouts, dropped connections and malformed replies, with
                 exponential backoff or Retry-After (at most 60 s); at most 2 if the server has never replied
    window       the maximum prompt + reply in tokens; by default, as the server reports
    tokenizer    the model's tokenizer; by default, the server counts, or an estimate is used
    overhead     tokens that the chat template adds to a message; by default measured at the server, or 64
    extra_body   additional fields for every request
    predict      send the memory as it stands as `prediction`, as OpenAI's "predicted outputs" take it; left out from then
                 on if the server refuses it

    Raises ConfigError for invalid settings. agenerate raises, and generate puts in place: ModelRefusedError at
    once; ContextTooLongError, also when the server's own count shows that it cut the prompt; ModelUnavailableError or
    ModelReplyError after the last attempt.
    Retries are logged at INFO to "memagent.models". `close` (or `with`) leaves no thread or socket behind.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        concurrency: AtOnce = 8,
        timeout: float = 600.0,
        retries: int = 6,
        window: int | None = None,
        tokenizer: Tokenizer | None = None,
        overhead: int | None = None,
        extra_body: Mapping[str, Any] | None = None,
        backoff: Backoff | None = None,
        usage: str = "check",
        predict: bool = False,
    ) -> None:
        if timeout <= 0 or retries < 0:
            raise ConfigError(f"timeout must be more than 0 s ({timeout}) and retries at least 0 ({retries})")
        self.model = model
        self._endpoint = Endpoint.parse(base_url, api_key)
        self._timeout = timeout
        self._retries = retries
        self._window = window
        self._tokenizer = tokenizer
        self._overhead = overhead
        self._extra_body = dict(extra_body or {})
        self._backoff = backoff or Backoff()
        self._usage = check_usage(usage)
        self._predict = predict
        connections, connect = most_of(concurrency), min(timeout, 10.0)
        self._line = Line(self, self._endpoint, name="memagent-openai", connections=connections, connect_seconds=connect)
        self._gate = Gate(concurrency)
        self._channel = SideChannel(self._endpoint)
        self._facts: ServerFacts | None = None
        self._answered = False
        self._told = -_SILENCE
        self._closed = False
        self._limit_field = "max_tokens"
        self._refused_fields: set[str] = set()

    @property
    def identity(self) -> str:
        """Model and address, without credentials."""
        return f"openai:{self.model}@{self._endpoint.base_url}"

    @property
    def address(self) -> str:
        """The base URL, without credentials."""
        return self._endpoint.base_url

    @property
    def refused_fields(self) -> frozenset[str]:
        """Fields of requests that the server does not take, which go without them."""
        return frozenset(self._refused_fields)

    @property
    def window(self) -> int | None:
        """The given window, or the server's (requested once, within a few seconds); None if it does not report one."""
        if self._window is None:
            self._window = self.facts.window
        return self._window

    @property
    def overhead(self) -> int:
        """The tokens that the chat template adds to a message."""
        if self._overhead is None:
            tokenizer = self.tokenizer
            measured = tokenizer.overhead() if isinstance(tokenizer, ServerTokenizer) else None
            self._overhead = DEFAULT_OVERHEAD if measured is None else measured
        return self._overhead

    @property
    def concurrency(self) -> int:
        """Concurrent requests, over all callers, at this moment."""
        return self._gate.limit

    @property
    def lockstep(self) -> bool:
        """False: a server batches concurrent requests, so readings need not wait for each other."""
        return False

    @property
    def tokenizer(self) -> Tokenizer:
        """The given tokenizer, or one that asks the server, or an estimate (see `exact`)."""
        if self._tokenizer is None:
            found = tokenizer_for_server(self._channel, self.model)
            if not (found.exact or self._answered or self._facts):
                return found  # it may only be starting: ask again next time
            self._tokenizer = found
        return self._tokenizer

    @property
    def facts(self) -> ServerFacts:
        """What the server says of itself, requested once."""
        if self._facts is None:
            facts = discover(self._channel, self.model)
            if facts is None and not self._answered:
                return ServerFacts()  # it may only be starting: ask again next time
            facts = facts or ServerFacts()
            if facts.models and self.model not in facts.models:
                served = ", ".join(facts.models[:20])
                log.warning("%s lists no model %r, only: %s", self._endpoint.base_url, self.model, served)
            if self._window is not None and self._window > (facts.window or self._window):
                log.warning(
                    "%s has a window of %s tokens, as it says, and %s are given: prompts that it does not take are split",
                    *(self._endpoint.base_url, f"{facts.window:,}", f"{self._window:,}"),
                )
            self._facts = facts
        return self._facts

    def check_reachable(self) -> None:
        """Raises ModelUnavailableError if the server, which is to say its window and to count tokens, cannot be reached."""
        told = self._window is not None and self._tokenizer is not None
        if self.facts != ServerFacts() or told or self._answered or self._channel.unreachable is None:
            return
        where, why = self._endpoint.base_url, self._endpoint.redact(self._channel.unreachable)
        raise ModelUnavailableError(f"{where}: no connection ({why}). {_NOBODY}")

    def speculation(self) -> tuple[int, int] | None:
        """Tokens that the server guessed since it started and that were right; None where it shows no metrics."""
        return speculation(self._channel)

    def generate(self, turns: Sequence[Turn]) -> list[Completion | Exception]:
        """Answers the turns concurrently, in order, failures in place. Any thread may call it, even with a running loop."""
        if not turns:
            return []
        try:
            return self._line.run(self._all(turns))
        except concurrent.futures.CancelledError:  # by close, from another thread
            return [ModelError(CLOSED) for _ in turns]

    async def agenerate(self, turn: Turn) -> Completion:
        """Answers one turn, on any event loop. Cancelling the awaiting task cancels the request."""
        future: concurrent.futures.Future[Completion] = self._line.submit(self._complete(turn))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():
                raise ModelError(CLOSED) from None
            raise

    def close(self) -> None:
        """Cancels running requests and closes connections and thread. Repeated calls are allowed."""
        self._closed = True
        self._line.close()
        self._channel.close()

    def __enter__(self) -> OpenAIEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"OpenAIEngine({self.identity!r})"

    async def _all(self, turns: Sequence[Turn]) -> list[Completion | Exception]:
        results = await asyncio.gather(*map(self._complete, turns), return_exceptions=True)
        return [
            result if isinstance(result, (Completion, Exception)) else ModelError(CLOSED)  # cancelled by close
            for result in results
        ]

    async def _complete(self, turn: Turn) -> Completion:
        async with self._gate.through() as replied:
            try:
                reply = await self._persist(turn)
            except ModelRefusedError as error:
                refusal = ModelRefusedError(await self._explain(str(error)))
            else:
                replied(reply.prompt_tokens + reply.completion_tokens or 1)
                await self._check_whole(turn, reply)
                return reply
        raise refusal

    async def _persist(self, turn: Turn) -> Completion:
        """Attempts until a reply, a permanent failure, or the last attempt."""
        attempt = 0
        while True:
            attempt += 1
            sent = self._request(turn)
            try:
                return await self._attempt(sent)
            except ModelRefusedError as error:
                self._adapt(str(error))
                if self._request(turn) == sent:
                    raise
                attempt -= 1  # another request, not the same one again
                continue
            except TransientError as error:
                problem = error
                if error.status == 429:
                    await self._gate.overloaded()
            if attempt > self._allowed(problem):
                raise self._given_up(attempt, problem)
            wait = self._backoff.wait(attempt, problem.asked)
            self._tell(attempt, problem, wait)
            await asyncio.sleep(wait)

    def _tell(self, attempt: int, problem: TransientError, wait: float) -> None:
        """Logs a failed attempt: as a warning before a wait that people would notice, but not for each request. The problem
        is an argument of its own, since a service logs only its kind."""
        worth = wait >= _NOTICED and time.monotonic() - self._told > _SILENCE
        if worth:
            self._told = time.monotonic()
        level = logging.WARNING if worth else logging.INFO
        log.log(level, "%s: attempt %d failed (%s); next one in %.1f s", self.identity, attempt, problem, wait)

    def _allowed(self, problem: TransientError) -> int:
        first_contact = isinstance(problem, _NoServerError) and not self._answered
        return min(self._retries, FIRST_CONTACT_RETRIES) if first_contact else self._retries

    def _given_up(self, attempts: int, problem: TransientError) -> ModelError:
        what = f"{self._endpoint.base_url}: {attempts} attempt{'s' if attempts > 1 else ''} failed; the last one: {problem}"
        if isinstance(problem, GarbledReplyError):
            return ModelReplyError(what)
        if isinstance(problem, _NoServerError):
            what += f". {_NOBODY}"
        return ModelUnavailableError(what)

    async def _attempt(self, body: Mapping[str, Any]) -> Completion:
        started = time.perf_counter()
        problem: ModelError
        try:
            async with asyncio.timeout(self._timeout):
                url = f"{self._endpoint.base_url}/chat/completions"
                status, headers, text = await self._line.request(url, body)
            self._answered = True
            if 200 <= status < 300:
                return completion(text, time.perf_counter() - started)
            problem = failure(status, text, retry_after(headers))
        except TimeoutError:
            problem = TransientError(f"no complete reply within {self._timeout:g} s")
        except UnreachableError as error:
            problem = _NoServerError(f"no connection ({error})")
        except DroppedError as error:
            problem = TransientError(f"the connection was dropped ({error})")
        except ModelError as error:
            problem = error
        # Raised out here: what an error holds must not be chained to ours.
        problem.args = (self._endpoint.redact(str(problem)),)
        raise problem

    def _request(self, turn: Turn) -> dict[str, Any]:
        sampling = turn.sampling
        optional: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed}
        if self._predict and turn.draft:
            optional["prediction"] = {"type": "content", "content": turn.draft}
        kept = {name: value for name, value in optional.items() if value is not None and name not in self._refused_fields}
        return {
            "model": self.model,
            "messages": turn.messages,
            self._limit_field: turn.max_tokens,
            **kept,
            **self._extra_body,
        }

    def _adapt(self, refusal: str) -> None:
        """From now on, requests go without a field that this server has refused."""
        if self._limit_field == "max_tokens" and "max_completion_tokens" in refusal:
            self._limit_field = "max_completion_tokens"
            return
        if not _UNSUPPORTED.search(refusal):
            return
        named = {name for name in ("temperature", "top_p", "seed", "prediction") if re.search(rf"\b{name}\b", refusal)}
        new = named - self._refused_fields
        if new:
            names, effect = ", ".join(sorted(new)), "" if new == {"prediction"} else ", replies may vary"
            log.warning("%s does not take %s: requests go without%s", self.identity, names, effect)
            self._refused_fields |= new

    async def _explain(self, refusal: str) -> str:
        """A refusal, with the server's models if the model's name is the likely cause."""
        if "HTTP 404" in refusal and not self._endpoint.base_url.endswith("/v1"):
            refusal += ". Most servers want a base URL that ends in /v1"
        if not re.search(r"model|HTTP 404|pinned", refusal, re.I):
            return refusal
        served = (await asyncio.to_thread(lambda: self.facts)).models
        if served and self.model not in served:
            refusal = f"{refusal.rstrip('.')}. {self.model!r} is not served here; these are: {', '.join(served[:20])}"
        return refusal

    async def _check_whole(self, turn: Turn, reply: Completion) -> None:
        """Raises CutPromptError if the server's counts show that it cut the prompt silently."""
        counted = reply.prompt_tokens
        if self._usage == "ignore" or not counted:
            return
        known = turn.tokens - _CUT_TOLERANCE if isinstance(self._tokenizer, FileTokenizer) else 0
        if known > 0 and counted + reply.cached_tokens >= known:
            return  # without counting all of it again, which takes as long as the rest of the client's work
        if counted + reply.cached_tokens >= (least := self._fewest(turn.user)):
            return
        evidence = ""
        if self._usage == "check":
            size = len(turn.user)
            half, quarter = [await self._counted(turn, turn.user[: size // part]) for part in (2, 4)]
            if not Counts(whole=counted, half=half, quarter=quarter).cut:
                log.warning(
                    "%s counts %d tokens in a prompt of at least %d, and %d in its first half. It counts differently,"
                    " so its counts are no longer compared",
                    *(self.identity, counted, least, half),
                )
                self._usage = "ignore"
                return
            evidence = f" (and {half} in its first half)"
        raise CutPromptError(
            f"the server counted {counted} tokens in a prompt of at least {least}{evidence}: it silently cut the text to"
            " fit its window (Ollama does, at 4096 unless num_ctx is raised), or uses another tokenizer. If it only counts"
            " differently, use --ignore-usage (usage='ignore' of open_model in Python)"
        )

    async def _counted(self, turn: Turn, user: str) -> int:
        """The server's count of another prompt; 0 if it does not answer."""
        try:
            return (await self._attempt(self._request(replace(turn, user=user, max_tokens=1)))).prompt_tokens
        except ModelError:
            return 0

    def _fewest(self, text: str) -> int:
        """A lower bound for the tokens of a text."""
        if isinstance(self._tokenizer, FileTokenizer):
            return self._tokenizer.fewest(text.strip()) - _CUT_TOLERANCE
        return fewest_tokens(text)


_UNSUPPORTED = re.compile(r"unsupported|not support|unexpected|unrecogni[sz]ed|unknown|not permitted|forbidden", re.I)


class CutPromptError(ContextTooLongError):
    """The server cut the prompt without saying so."""


class _NoServerError(TransientError):
    """No connection at all: refused, unknown host, no route."""
