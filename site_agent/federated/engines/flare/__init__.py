"""Live rounds on NVIDIA FLARE: start-up kits, processes, jobs without code, rounds in blocks.

A federation has a server, sites and one submitter, who know each other by certificates (mutual
TLS). The submitter sends jobs that hold a plan and a network; server and sites run only the two
classes of this package that their kits allow. Sites answer with contributions, and the server
combines these by `aggregators.merge`, in the order of the sites' names.

FLARE gives a restarted site no part in a running job. So the rounds are held in blocks, one job
each, and a site that comes back takes part from the next block.
"""
