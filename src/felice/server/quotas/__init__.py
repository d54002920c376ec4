"""Client quotas: limits of bytes, time and changes for users and clients, and of connections for addresses.

`rates` measures, `limits` finds the limit of a client, both pure. `client_quotas` keeps what each client has used, and
`throttling` delays the clients that used too much.
"""
