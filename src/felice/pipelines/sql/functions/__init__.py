"""The library of functions.

signatures  what functions take and return, and which of several functions takes the types of a call
table       the table, and the decorators that register functions
"""
