"""Hostile requests from a seed, as the bytes that go over the wire: no client of ours would send most of them."""

from __future__ import annotations

import base64
import gzip
import io
import json
import random
import string
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, islice
from typing import Any

INJECTED = "x-injected"  # a header that no answer may have
OWN = "canary-of-the-attacker"  # in every text of the attacker: answers may hold it, the log may not
LIMIT = 1 << 20  # bytes of a body


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the attacker knows: a key, ids of others' readings and files, and a path on the machine."""

    port: int
    key: str
    readings: Sequence[str]
    files: Sequence[str]
    secret: str

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str | None] | None = None, keyed: bool = True
    ) -> bytes:
        """A request as a client would send it, with the key of the attacker. A header that is None is left out."""
        own = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", "Content-Length": str(len(body))}
        own |= {"Authorization": f"Bearer {self.key}"} if keyed else {}
        given = {name: value for name, value in {**own, **(headers or {})}.items() if value is not None}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body

    def post(self, path: str, body: bytes | object, headers: Mapping[str, str | None] | None = None) -> bytes:
        """A request with a body of JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, data, {**_JSON, **(headers or {})})

    def upload(self, name: str, content: bytes) -> bytes:
        """A request that uploads a file."""
        said = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body = said.encode("utf-8", "surrogateescape") + content + b"\r\n--b--\r\n"
        return self.request("POST", "/v1/files", body, {"Content-Type": "multipart/form-data; boundary=b"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Bytes to send, with a pause of `pause` seconds after each part.

    `fair`: the request may be answered as any other, because a service cannot know that it means ill. `silent`: it may be
    left without an answer, because it is never whole.
    """

    parts: tuple[bytes, ...]
    kind: str = ""
    pause: float = 0.0
    fair: bool = False
    silent: bool = False


Maker = Callable[[random.Random, Target], Attack]
_MAKERS: dict[str, Maker] = {}


def attacks(target: Target, seed: int, count: int) -> Iterator[Attack]:
    """So many attacks, of all kinds in turn."""
    rng = random.Random(seed)
    return (replace(make(rng, target), kind=kind) for kind, make in islice(cycle(_MAKERS.items()), count))


def _kind(make: Maker) -> Maker:
    _MAKERS[make.__name__.strip("_").replace("_", " ")] = make
    return make


_JSON = {"Content-Type": "application/json"}


def _good(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A route and a body that it takes."""
    said = [{"role": "system", "content": OWN}, {"role": "user", "content": f"{OWN}\n\nWhat?"}]
    reading = {"question": f"What of {OWN}?", "text": OWN, "options": {"reader": "memory", "seed": 1, "top_p": 0.5}}
    return rng.choice([("/v1/readings", reading), ("/v1/chat/completions", {"model": "memagent", "messages": said})])


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value, as its container and the key or index in that."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    return [(value, key) for key, _ in items] + [place for _, inner in items for place in _places(inner)]


def _changed(rng: random.Random, values: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """A good request with one value in it replaced."""
    path, body = _good(rng)
    container, key = rng.choice(_places(body))
    container[key] = rng.choice(values)
    return path, body


@_kind
def _malformed_json(rng: random.Random, target: Target) -> Attack:
    path, good = _good(rng)
    data = json.dumps(good).encode()
    cut = rng.randrange(1, len(data) - 1)
    junk = bytes(rng.randrange(256) for _ in range(5))
    body = rng.choice([data[:cut], data + b"}", b"{" + data, b"\xff\xfe" + data, data[:cut] + b"\x00" + junk, b"'x'", b""])
    return Attack(parts=(target.post(path, body),))


@_kind
def _wrong_types(rng: random.Random, target: Target) -> Attack:
    path, body = _changed(rng, [None, True, 17, -1.5, [], {}, [[]], {"a": {"b": 1}}, [None] * 50])
    return Attack(parts=(target.post(path, body),), fair=True)


@_kind
def _absurd_numbers(rng: random.Random, target: Target) -> Attack:
    number = rng.choice(["1e999", "-1", "NaN", "Infinity", "1e-400", str(2**63), "9" * 5000, "-0", "0.1e1", "1_0"])
    names = ["chunk_tokens", "memory_tokens", "answer_tokens", "seed", "temperature", "top_p"]
    body = f'{{"question": "q", "text": "{OWN}", "options": {{"{rng.choice(names)}": {number}}}}}'.encode()
    length = {**_JSON, "Content-Length": rng.choice(["9" * 30, "-5", "+1", "²"])}
    choices = [
        Attack(parts=(target.post("/v1/readings", body),), fair=True),
        Attack(parts=(target.request("GET", f"/v1/readings?limit={number}"),), fair=True),
        Attack(parts=(target.request("GET", f"/?show={number}"),), fair=True),
        Attack(parts=(target.request("POST", "/v1/readings", headers=length),)),
    ]
    return rng.choice(choices)


@_kind
def _oversized(rng: random.Random, target: Target) -> Attack:
    path = rng.choice(["/v1/readings", "/v1/files", "/v1/chat/completions", "/readings", "/login"])
    said = target.request("POST", path, b"", {**_JSON, "Content-Length": str(rng.randrange(LIMIT + 1, 1 << 40))})
    head = target.request("POST", path, b"", {**_JSON, "Transfer-Encoding": "chunked", "Content-Length": None})
    chunk = b"%x\r\n%s\r\n" % (1 << 16, b" " * (1 << 16))
    return Attack(parts=rng.choice([(said,), (head, *[chunk] * (LIMIT // (1 << 16) + 4), b"0\r\n\r\n")]))


@_kind
def _slow(rng: random.Random, target: Target) -> Attack:
    whole = target.post(*_good(rng))
    cuts = sorted(rng.sample(range(1, len(whole)), rng.randrange(2, 8)))
    parts = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    last = rng.choice([None, -1])  # whole in the end, or never
    return Attack(parts=tuple(parts[:last]), pause=0.15, fair=last is None, silent=last is not None)


@_kind
def _traversal(rng: random.Random, target: Target) -> Attack:
    path = rng.choice(
        [f"../{target.secret}", target.secret, "/etc/passwd", "../" * 9 + "etc/passwd", "~/.ssh/id_rsa", "file:///etc/passwd",
         "http://127.0.0.1/", "\\\\host\\share", "a\0b", "x" * 5000, "-", "..\\..\\keys.txt", "/proc/self/environ"]
    )  # fmt: skip
    coded = "".join(f"%{byte:02x}" for byte in path.encode())
    return rng.choice(
        [
            Attack(parts=(target.post("/v1/readings", {"question": OWN, "documents": [path]}),)),
            Attack(parts=(target.request("GET", f"/static/{coded}"),)),
            Attack(parts=(target.request("GET", f"/v1/files/{coded}"),)),
            Attack(parts=(target.upload(path.replace("\0", ""), OWN.encode()),), fair=True),
        ]
    )


@_kind
def _keys(rng: random.Random, target: Target) -> Attack:
    wrong = "mem-" + "".join(rng.choices(string.ascii_letters, k=43))
    key = target.key
    values = ["", "Bearer", f"Bearer {wrong}", f"Bearer {key[:-1]}", f"Bearer {key}x", f"Basic {key}", key, f"Digest {key}"]
    values += [
        f"Bearer {key} {wrong}",
        "Bearer " + "x" * 20_000,
        "Bearer \x80",
        f"bearer {key.upper()}",
        "Bearer ' OR 1=1 --",
    ]
    cookies = [f"memagent_key={wrong}", "memagent_key=%00%ff", "memagent_key=" + "x" * 9000, "=;;="]
    headers = {"Authorization": rng.choice(values)} if rng.random() < 0.7 else {"Cookie": rng.choice(cookies)}
    path = rng.choice(["/v1/readings", "/v1/files", "/metrics", "/v1/models", f"/v1/readings/{target.readings[0]}"])
    return Attack(parts=(target.request("GET", path, headers=headers, keyed=False),))


@_kind
def _others_ids(rng: random.Random, target: Target) -> Attack:
    file = rng.choice(target.files)
    id = rng.choice([*target.readings, *target.readings, "' OR 1=1 --", "%25", "_" * 32, "\0", "reading-" + "0" * 24])
    coded = "".join(char if char.isalnum() or char == "-" else f"%{ord(char):02x}" for char in id)
    part = {"type": "file", "file": {"file_id": file}}
    said = {"messages": [{"role": "user", "content": [part, {"type": "text", "text": OWN}]}]}
    sent = [
        target.request("GET", f"/v1/readings/{coded}"),
        target.request("GET", f"/v1/readings/{coded}/events", headers={"Last-Event-ID": "0"}),
        target.request("GET", f"/readings/{coded}"),
        target.request("GET", f"/?reading={coded}"),
        target.post(f"/v1/readings/{coded}/cancel", {}),
        target.post(f"/v1/readings/{coded}/ask", {"question": OWN}),
        target.request("DELETE", f"/v1/readings/{coded}"),
        target.request("GET", f"/v1/files/{file}"),
        target.request("DELETE", f"/v1/files/{file}"),
        target.post("/v1/readings", {"question": OWN, "documents": [file]}),
        target.post("/v1/chat/completions", said),
    ]
    return Attack(parts=(rng.choice(sent),))


@_kind
def _header_injection(rng: random.Random, target: Target) -> Attack:
    evil = f"x%0d%0a{INJECTED}:%201"
    form = f"key={target.key}&wanted=%2F%2Fevil.example%0d%0a{INJECTED}:1".encode()
    own = {"Origin": f"http://127.0.0.1:{target.port}", "Content-Type": "application/x-www-form-urlencoded"}
    odd = rng.choice(["[", "[::1", "a@b:c", "x" * 300, "127.0.0.1:99999999", "http://[", "\x80", "null", "//["])
    return rng.choice(
        [
            Attack(parts=(target.request("GET", f"/v1/readings/{evil}"),)),
            Attack(parts=(target.request("GET", f"/static/{evil}"),)),
            Attack(parts=(target.request("POST", "/login", form, own),), fair=True),
            Attack(parts=(target.request("POST", "/login", form, {**own, "Origin": odd}),)),
            Attack(parts=(target.request("GET", "/v1/models", headers={"Host": odd}),), fair=True),
            Attack(parts=(target.request("GET", "/v1/models", headers={"X-A": f"1\r\n {INJECTED}: 1"}),), fair=True),
            Attack(parts=(target.request("GET", "/v1/models", headers={"X-A": "a\0b"}),)),
            Attack(parts=(target.upload(f'a"; {INJECTED}="1.txt', OWN.encode()),), fair=True),
        ]
    )


@_kind
def _invalid_multipart(rng: random.Random, target: Target) -> Attack:
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    bodies = [b"", b"--b", part, part + b"x", b"--b--", part + b"x\r\n--c--", b"x" * 999, b"--b\r\n\r\nx\r\n--b--\r\n"]
    bodies += [b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\n', b"--b\r\n" + b"a" * 70_000]
    bodies += [
        b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\nx\r\n' * 3000 + b"--b--\r\n",
        b"--b\r\nA\r\n\r\n--b--\r\n",
    ]
    types = ["multipart/form-data; boundary=b", "multipart/form-data", "multipart/form-data; boundary=" + "b" * 500, "a/b"]
    path = rng.choice(["/v1/files", "/readings", f"/readings/{target.readings[0]}/ask"])
    headers = {"Content-Type": rng.choice([types[0], types[0], *types]), "Origin": f"http://127.0.0.1:{target.port}"}
    return Attack(parts=(target.request("POST", path, rng.choice(bodies), headers),))


_ODD = ("\ud800", "\udfff x", "\0", "\u202e", "a" + "\u0301" * 500, "\ufeff", "\U0010ffff", "\u2028", "\x1b[2J", "<script>")


@_kind
def _odd_unicode(rng: random.Random, target: Target) -> Attack:
    odd = rng.choice(_ODD)
    path, body = _changed(rng, [odd, [odd], {odd: odd}, {"type": odd}])
    body = {**body, odd: odd} if rng.random() < 0.2 else body
    raw = json.dumps(body, ensure_ascii=rng.random() < 0.6).encode("utf-8", "surrogatepass")
    name = odd.replace("\0", "").encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    sent = rng.choice([target.post(path, raw), target.post(path, raw), target.upload(f"{name}.txt", OWN.encode())])
    return Attack(parts=(sent,), fair=True)


@_kind
def _wrong_methods(rng: random.Random, target: Target) -> Attack:
    method = rng.choice(
        ["PUT", "PATCH", "TRACE", "OPTIONS", "CONNECT", "PROPFIND", "get", "G" * 300, "", "GET GET", "\x00"]
    )
    path = rng.choice(["/v1/readings", "/v1/files", "/v1/models", "/", "/login", "*", "//", "http://evil.example/"])
    return Attack(parts=(target.request(method, path, OWN.encode()),))


@_kind
def _huge_headers(rng: random.Random, target: Target) -> Attack:
    many = {f"X-{number}": "y" * 40 for number in range(2000)}
    headers = rng.choice([{"X-Long": "x" * 200_000}, many, {"Cookie": "a=b; " * 30_000}])
    sent = rng.choice([target.request("GET", "/v1/models", headers=headers), target.request("GET", "/" + "x" * 200_000)])
    return Attack(parts=(sent,), fair=True)


@_kind
def _deep_nesting(rng: random.Random, target: Target) -> Attack:
    depth = rng.choice([100, 900, 5000, 100_000])
    nested = rng.choice(["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth])
    bodies = [nested, f'{{"question": "q", "text": "{OWN}", "options": {{"schema": {{"properties": {nested}}}}}}}']
    bodies += [f'{{"question": "q", "text": "{OWN}", "options": {{"schema": {{"type": "object", "x": {nested}}}}}}}']
    bodies += [f'{{"messages": [{{"role": "user", "content": "{OWN}", "x": {nested}}}]}}']
    path = rng.choice(["/v1/readings", "/v1/chat/completions"])
    return Attack(parts=(target.post(path, rng.choice(bodies).encode()),), fair=True)


@_kind
def _bombs(rng: random.Random, target: Target) -> Attack:
    name, content = rng.choice(bombs())
    data = f"data:text/plain;base64,{base64.b64encode(content).decode()}"
    said = [{"type": "file", "file": {"file_data": data, "filename": name}}, {"type": "text", "text": OWN}]
    chat = target.post("/v1/chat/completions", {"messages": [{"role": "user", "content": said}]})
    return Attack(parts=(chat,))


@cache
def bombs() -> Sequence[tuple[str, bytes]]:
    """Small files that are too large, or never end, once they are opened."""
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    entities = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 9))
    text = f'<w:document xmlns:w="{word}"><w:body><w:p><w:r><w:t>&a8;</w:t></w:r></w:p></w:body></w:document>'
    laughs = f'<!DOCTYPE x [<!ENTITY a0 "ha">{entities}]>{text}'
    return [
        ("zeros.txt.gz", gzip.compress(bytes(64 << 20))),
        ("laughs.docx", _zip({"word/document.xml": laughs.encode(), "[Content_Types].xml": b"<x/>"})),
        ("zeros.docx", _zip({"word/document.xml": bytes(64 << 20), "[Content_Types].xml": b"<x/>"})),
        ("zeros.epub", _zip({"META-INF/container.xml": bytes(80 << 20), "mimetype": b"application/epub+zip"})),
        ("members.zip", _zip({f"{number}.txt": b"x" for number in range(3000)})),
        ("half.docx", _zip({"word/document.xml": b"<x/>"})[:-30]),
        ("half.pdf", b"%PDF-1.4 half"),
    ]


def _zip(members: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


@_kind
def _smuggling(rng: random.Random, target: Target) -> Attack:
    good = target.request("GET", "/v1/models")
    both = target.request("POST", "/v1/readings", b"0\r\n\r\nGET /v1/files HTTP/1.1\r\n", {"Transfer-Encoding": "chunked"})
    twice = good.replace(b"Content-Length: 0", b"Content-Length: 0\r\nContent-Length: 5")
    bad = target.request("POST", "/v1/readings", b"zz\r\nx\r\n", {"Transfer-Encoding": "chunked", "Content-Length": None})
    others = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 200 + b"\r\n\r\n",
        b"GET /\r\n\r\n",
        b"\r\n" * 500 + b"x\r\n\r\n",
    ]
    others += [good.replace(b"HTTP/1.1", b"HTTP/3.7"), good.replace(b"HTTP/1.1", b"HTTP/1.1 x"), bytes(500) + b"\r\n\r\n"]
    return Attack(parts=(rng.choice([both, twice, bad, *others]),), fair=True, silent=True)
