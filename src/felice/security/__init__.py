"""Security as pure decisions: principals, and the rules of authentication and authorisation.

Keeps true: nothing here does I/O. Broker and client pass in what they received and read, and act on the results.
"""
