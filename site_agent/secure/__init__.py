"""The secure sum: labs share vectors, independent servers sum them, and nobody sees a single one.

A secure round at a site goes these steps. `site_agent.rounds.secure` takes all possible steps of a
lab at each visit:

1. Once, every lab and server accepts the same charter: names, keys and rules (`charter`).
2. The first lab opens a session on an untrusted board, with its layout and its deadlines
   (`session`, `board`). The servers post a key each (`server`).
3. *Share*: a lab encodes its contribution (`contributions`), splits it into one share a server and
   seals each to its server (`lab`). The servers post which shares they could open, and commit to
   the sum of those that all of them received (`server`).
4. *Tag*: challenges follow from all messages so far, so that nobody can choose them. On its second
   visit a lab posts the check values of its vector; the servers post those of their sums.
5. Where these agree, the servers open their sums and sign the result; where not, they and the labs
   post the check values of single shares, which reveal the liar without opening a share
   (`verification`).
6. A lab verifies the result, by the signatures of all servers or by all openings (`verification`).

Every message is signed and binds all before it (`messages`). Each party recomputes the state of a
session from the board (`session`), and writes each message to its ledger before it sends it
(`party`), so that it may be killed anywhere and never says two things. `trial` holds a whole
session on one machine.
"""
