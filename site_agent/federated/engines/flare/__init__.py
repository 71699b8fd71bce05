"""Live rounds on NVIDIA FLARE: start-up kits, processes, jobs without code, rounds in blocks.

A federation has a server, sites and one submitter, which know each other by certificates (mutual
TLS). The submitter sends jobs that hold a plan and a network; server and sites run only the two
classes of this package that their kits allow. Sites answer with contributions, and the server
combines these by `aggregators.merge`, in the order of the sites' names.

How a live round works. `federation.hold_rounds` at the submitter writes a job for some rounds
(`jobs.write_job`) and sends it. The processes of server and sites (`flare_process`) compare it with
the output of `write_job`, and start the two classes. `controller.RoundsController` sends
the round's network to the sites; `executor.SiteExecutor` checks it (`leak_checks`, and by the
site's own rules, `site_rules`), trains, and answers with a contribution and the least number of
other sites; the controller checks these, combines them if they are enough for each, and goes on.
The submitter downloads the networks of a finished job. `kits` makes the certificates and the
rules of each machine.

FLARE gives a restarted site no part in a running job. So the rounds are held in blocks, one job
each, and a site that comes back takes part from the next block.
"""
