"""The broker's side of security: TLS, log-ins, delegation tokens, SCRAM users, and what a client may do."""
