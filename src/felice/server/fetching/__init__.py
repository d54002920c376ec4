"""What a broker remembers between the fetches of a reader."""
