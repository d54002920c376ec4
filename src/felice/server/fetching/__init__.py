"""What a broker remembers between the fetches of one consumer or follower."""
