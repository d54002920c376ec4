"""The steps of requests that read records, and fetch sessions."""
