"""Fixtures of all tests: `book_url`, a new database on SQLite and on PostgreSQL."""

pytest_plugins = ["postgres"]
