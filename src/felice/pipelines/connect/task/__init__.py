"""The loops of source and sink tasks."""
