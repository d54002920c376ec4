"""The steps of requests that read records, and what a broker remembers between the fetches of one client."""
