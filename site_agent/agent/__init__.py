"""The site agent: it keeps merged models of a site as good as it can, and takes part in rounds.

`run_agent` (`agent`) runs one cycle after the other, or one for cron. Models, their scores, and
contributions to rounds leave the site; images never do. A cycle takes these steps for each table
``[merge.NAME]`` of the settings (`GoalRun.run` in `merging`):

1. *Choose*: list the versions in the pool that match the table, and leave out, with a reason, those
   that cannot be merged with the site's own models (`choosing`). If inputs, faces and settings are
   those of the last finished work, nothing else is done.
2. *Fetch*: download and verify them, and leave out those that cannot be read or scored.
3. *Merge* all inputs.
4. *Evaluate* the result and its rivals on the site's own validation faces; scores are kept.
5. *Upload* the result if it is better by the margin; in any case keep the best in ``best/``.

Then it contributes to the rounds that wait for the site, and finishes those that are ready
(`invitations`). Downloads, scores and contributions are kept in the workspace at once (`workspace`)
and every event goes to the journal (`workspace.Journal`): the agent can be killed at any moment and
restarted.
"""
