"""The app: a lab's daily work on a page that this machine alone can open.

`entry` lets this user in and nobody else; `recordings` keeps the studies, `places` the folders that
may be listed; `pages` and `results` answer requests with `rendering`. A page computes nothing: it
calls the function that the command calls, or asks for a job (`site_agent.jobs`).
"""
