"""The site agent: it keeps merged models of a site as good as it can, and takes part in rounds.

`run_agent` (`agent`) runs one cycle after the other, or one for cron. Models, their scores, and
contributions to rounds leave the site; images never do. A cycle takes these steps for each
``[[merge]]`` table of the configuration (`GoalRun.run` in `merging`):

1. *Push* a better model left by an interrupted cycle (`publishing`).
2. *Subscribe*: list the versions in the pool that match the table, and choose which are merged with
   the site's own models; the others are refused with a reason that is remembered (`choosing`).
3. *Pull*: download and verify them, and refuse those that cannot be merged or scored (`merging`).
4. *Merge*, unless exactly this was merged and scored before.
5. *Evaluate* the result and its rivals on the site's own validation faces (`publishing`).
6. *Push* the result if it is better by the margin; in any case keep the best in ``best/``.

Then it contributes to the rounds that wait for the site, and finishes those that are ready
(`invitations`). Every result is saved in the workspace at once (`workspace`), and every event
in the journal (`workspace.Journal`), so that the agent can be killed at any moment and restarted.
"""
