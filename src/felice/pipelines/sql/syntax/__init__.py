"""The text of SQL: tokens, a typed tree with positions, the parser, and the writer of canonical text.

tokens      divides a text
tree        what statements and expressions consist of
cursor      takes tokens one by one, and refuses
expressions, types, queries, statements   parse, each the part of the language that it is named after
scripts     divides a text into statements, and puts the values of `${name}` into them
writer      a tree as canonical text
"""
