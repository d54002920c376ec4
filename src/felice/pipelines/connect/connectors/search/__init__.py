"""Documents in Elasticsearch or OpenSearch, through their REST API.

The options are those of Confluent's Elasticsearch sink. No client library is used: Elasticsearch's refuses
OpenSearch, and OpenSearch's is made for OpenSearch alone.
"""
