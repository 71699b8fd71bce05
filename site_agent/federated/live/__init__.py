"""Live rounds of whole networks: a server and sites over mutual TLS.

The server (`server`) holds the rounds of a plan: it offers each site the round's network, checks
the contributions, combines them if they are enough for each, and goes on; its folder
(`rounds_folder`) gets each network. A site (`site`) checks a network by its own rules
(`site_rules`) and by audits, trains, and answers with a contribution and the least number of other
sites. No code travels.

Every process may be killed at any moment. A server that is started again goes on with the round
under way, and a site takes part again as soon as it is back.
"""
