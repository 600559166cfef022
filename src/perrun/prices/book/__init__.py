"""The price book: append-only offers with history, in SQLite or PostgreSQL, by the same code.

book = Book()                      # the user's own; Book("postgresql://...") or PERRUN_DATABASE_URL for a server
book.add("lambda", quotes)         # one source, one transaction: all of it or nothing
book.latest(gpu=["H100-SXM-80GB"]) # also as_of(day), history(...), columns(...)
"""

from perrun.prices.book.store import Added, Book, Held, SourceState

__all__ = ["Added", "Book", "Held", "SourceState"]
