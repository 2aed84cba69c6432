"""What a file is: by its first bytes, and where they say nothing, by its extension."""

from __future__ import annotations

import zipfile

from memagent.documents.archive import Archive
from memagent.documents.document import Kind
from memagent.documents.mail import begins_mailbox
from memagent.documents.source import Source

_BY_SUFFIX: dict[str, Kind] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
    ".docx": "docx",
    ".docm": "docx",
    ".pptx": "pptx",
    ".pptm": "pptx",
    ".ppsx": "pptx",
    ".odt": "odt",
    ".epub": "epub",
    ".eml": "eml",
    ".mbox": "mbox",
}

_OTHER = (
    (b"{\\rtf", "an RTF file"),
    (b"AT&TFORM", "a DjVu file"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF89a", "a GIF image"),
    (b"\x7fELF", "a program"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"SQLite format 3\0", "a SQLite database"),
)

_CONVERT = "Convert it to text, PDF, DOCX, ODT, EPUB or HTML first"

_NON_DOCUMENTS = {
    "an image": "png jpg jpeg gif bmp tif tiff webp ico heic heif avif psd xcf",
    "audio": "mp3 wav flac ogg oga opus m4a aac wma mid midi aiff",
    "video": "mp4 m4v mov avi mkv webm wmv flv mpg mpeg",
    "an archive": "zip tar tgz tbz2 txz bz2 xz zst 7z rar jar war whl egg deb rpm dmg iso",
    "a program or compiled code": "exe dll so dylib o a lib class pyc pyo wasm msi apk elf",
    "a font": "ttf otf woff woff2 eot",
    "data, not text": "bin dat db sqlite sqlite3 npy npz pkl pickle pt pth onnx safetensors gguf parquet arrow h5 hdf5",
}
_REASONS = {f".{suffix}": what for what, suffixes in _NON_DOCUMENTS.items() for suffix in suffixes.split()}


def non_document(name: str) -> str | None:
    """What a file plainly is, if its extension says that it holds no text to read: "an image". None otherwise."""
    lower = name.lower()
    if lower.endswith((".tar.gz", ".tar.bz2", ".tar.xz")):
        return "an archive"
    return _REASONS.get("." + lower.rpartition(".")[2])


def kind_of(source: Source) -> Kind:
    """The kind of a source. Raises DocumentError for formats that are recognised and not read."""
    head = source.head(1024)
    for signature, what in _OTHER:
        if head.startswith(signature):
            raise source.error(f"{what}, which is not read", _CONVERT)
    if head[257:262] == b"ustar":
        raise source.error("a tar archive, which is not read", "Unpack it and name the folder")
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        raise _old_office(source)
    if head.lstrip().startswith(b"%PDF-") or (source.suffix == ".pdf" and b"%PDF-" in head):
        return "pdf"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zipped(source)
    if not source.suffix and head.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "html"
    if not source.suffix and begins_mailbox(head):
        return "mbox"
    kind = _BY_SUFFIX.get(source.suffix, "text")
    if kind in ("pdf", "docx", "pptx", "odt", "epub"):
        raise source.error(
            f"not {'an' if kind in ('odt', 'epub') else 'a'} {kind.upper()} file, whatever its name says",
            "Fetch it again, or give its true extension",
        )
    return kind


def is_gzip(source: Source) -> bool:
    """Whether the content is gzip-compressed."""
    return source.head(2) == b"\x1f\x8b"


def _old_office(source: Source) -> Exception:
    """Word before 2007 and encrypted DOCX share one container; the latter names a stream EncryptedPackage."""
    name = "EncryptedPackage".encode("utf-16-le")
    overlap = b""
    for chunk in source.chunks():
        if name in overlap + chunk:
            return source.error("encrypted Office file", "Open it with its password and save it without one")
        overlap = chunk[-len(name) :]
    return source.error("an Office file from before 2007 (.doc, .xls, .ppt)", "Save it as .docx or PDF")


def _open_document(source: Source) -> Kind:
    """Texts and their templates are read, spreadsheets and presentations are not."""
    with Archive(source) as archive:
        if archive.read("mimetype").strip().startswith(b"application/vnd.oasis.opendocument.text"):
            return "odt"
    raise source.error("an OpenDocument file that is no text, which is not read", "Save it as PDF, or as text or CSV")


def _zipped(source: Source) -> Kind:
    """Tells the zip-based formats apart by what they hold."""
    try:
        with zipfile.ZipFile(source.stream) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError) as error:
        what = source.suffix.lstrip(".") or "zip"
        raise source.error(f"damaged or truncated {what} file", "Copy or download it again") from error
    if "META-INF/container.xml" in names:
        return "epub"
    if "[Content_Types].xml" in names and any(name.startswith("ppt/") for name in names):
        return "pptx"
    if "[Content_Types].xml" in names and not any(name.startswith("xl/") for name in names):
        return "docx"
    if "[Content_Types].xml" in names:
        raise source.error("a spreadsheet, which is not read", "Save it as PDF, or as text or CSV")
    if "mimetype" in names and "content.xml" in names:
        return _open_document(source)
    raise source.error("a zip archive, which is not read", "Unpack it and name the folder")
