"""Processes that train together over mutual TLS: kits, services, and connections to them.

`site_agent.federated.live` holds rounds of whole networks with them, `site_agent.split` trains
networks in parts.
"""
