"""Live rounds of whole networks: a server, sites and a submitter over mutual TLS.

`submitting.hold_live_rounds` sends the server a plan and a network; no code travels. The server
(`server`) holds the rounds of the plan: it offers each site the round's network, checks the
contributions, combines them if they are enough for each, and goes on. A site (`site`) checks a
network by its own rules (`site_rules`) and by audits, trains, and answers with a contribution and
the least number of other sites. The submitter downloads each network.

Every process may be killed at any moment. A server that is started again goes on with the round
under way, and a site takes part again as soon as it is back.
"""
