"""What Java does with texts, numbers, times and regular expressions, in Python."""
