"""One reading as one HTML page: question and answer beside the document with its quotes, and the memory turn by turn.

The page needs no other file and no network, and its size does not grow with the document or the number of turns: it has
at most 200,000 characters of the document, 150 steps of the memory with 12,000 characters each, 200 quotes, and 200 lines
of the last memory.
"""

from memagent.page.write import page_text, write_page

__all__ = ["page_text", "write_page"]
