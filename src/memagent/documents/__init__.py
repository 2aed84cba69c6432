"""Files, folders, globs and standard input → one text with known file borders.

    with load(["book.pdf", "notes/**/*.md"]) as document:
        print(len(document), document.read(0, 100), document.locate(50))

The text lies in a temporary file, so memory does not grow with the document. Plain text needs no extra; HTML, PDF,
DOCX, PPTX, ODT and EPUB need `pip install 'memagent[documents]'`.
"""

from memagent.documents.document import Document, Kind, Location, Skipped, SourceFile
from memagent.documents.loading import from_text, load

__all__ = ["Document", "Kind", "Location", "Skipped", "SourceFile", "from_text", "load"]
