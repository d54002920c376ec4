"""The way to the brokers: connections, versions, metadata, and the requests that several parts send."""
