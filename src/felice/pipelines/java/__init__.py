"""What Java does with texts, numbers, times and regular expressions, in Python.

texts         numbers and times as Java and Kafka print them
regex         regular expressions, also ones that cannot hang a process
patterns      replacement texts of regular expressions, and date patterns of `SimpleDateFormat`
zones         time zones
date_parts    the fields of `DateTimeFormatter`
date_formats  its patterns
"""
