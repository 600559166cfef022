"""Alembic's entry: runs on the connection that the book hands over."""

from alembic import context

from perrun.prices.book.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite")
with context.begin_transaction():
    context.run_migrations()
