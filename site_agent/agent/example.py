"""The configuration that ``poolctl agent init`` writes: every key, explained."""

from __future__ import annotations

EXAMPLE_CONFIG = """\
# What the agent of this site does. Try it with: poolctl agent run --dry-run
# Paths are relative to the folder of this file. Keys behind '#' have the value that is shown
# when they are left out.

# Where the agent keeps its state, downloads and models. One agent at a time uses it.
workspace = "agent"

# Which login to use (poolctl auth login URL --profile NAME); the active one when empty.
# profile = ""

# How long from one cycle to the next, and how long to wait after the pool did not answer; each
# further time twice as long.
# interval = "15m"
# retry_after = "30s"

# Processors to use; 0: all.
# threads = 0

# One merged model that the agent keeps as good as it can. There may be several, or none where
# the agent only takes part in rounds (those of networks, for example).
[[merge]]
# It is uploaded as YOUR-SITE/NAME.
name = "eyes-merged"

# "ert" (landmark models) or "hog-svm" (face detectors).
kind = "ert"

# Annotated faces of your own on which all models are scored: imglab XML, COCO JSON, or a folder
# with .pts files. They never leave this machine.
validation = "validation.xml"
# pts_origin = 1.0                # .pts: coordinates of the upper left pixel
# box_margin = 0.1                # .pts: how far boxes go beyond the landmarks, in their extent
# images = ""                     # COCO: the folder of the images; that of the file when empty

# Which sub-models of the pool to take, as in 'poolctl models ls': everything has to hold.
# Only the newest version of each model is taken, and at most so many. Models of the eyes, which
# suit blinks best, have 12 parts.
labels = ["population=infant", "parts=12"]
# metrics = []                    # for example ["mean_error<0.1"]
# sites = []                      # only models of these sites
# text = ""                       # words in name or description
# most = 50
# merged_too = false              # models that were merged themselves, too

# What the merged model is for: models whose terms of use exclude it are left out, as are those
# whose terms contradict each other. For example ["research"].
# purposes = []
# diseases = []

# Your own models, which are always merged with them. Where there are some, those that your site
# has in the pool are left out.
own = ["mine.dat"]

# How they are merged: wba-cascade or wba-final for "ert", mwma for "hog-svm".
# method = "wba-cascade"
# options = { step = 1.1 }
# weight_by = ""                  # a label that all of them have, such as "images"
# weights = {}                    # factors by site, for example { own = 2.0, site-b = 0.5 }

# When the result is uploaded: if it is better than the best of your own models, of the version
# that is published already, and of the models that went into it. Margin: a number, or a part of
# the score to beat.
# metric = "mean_error"           # "f1" for detectors
# margin = "1%"
# against = ["own", "published", "inputs"]
# normaliser = "inter-ocular"     # see 'poolctl evaluate --help'; by the landmarks if left out
# parts = []                      # the models' landmarks, if the validation faces have more

# upload = true                   # false: only keep the best one in the workspace
# upload_labels = {}              # for example { population = "infant" }
# description = ""

# Rounds that other sites invite yours to. Leave the table out to take part in none.
[rounds]
# Only rounds that these sites started.
started_by = ["site-c"]

# Who chooses the base of a round chooses which sums over your data are sent, and could build one
# that photographs your faces. So it has to be made of models that your site trained, or one
# of these. What a refused round lacks stands in the agent's journal.
trust = ["site-b", "site-c"]

# Rounds that ask for less are refused: starting shapes for each face, and faces in every sum that
# is sent. Nothing is sent if your faces are fewer than so many for each leaf of an average tree.
# min_starts = 5
# min_faces = 5
# faces_per_leaf = 2.0

# Annotated faces that the model's leaves are fitted to, in any of those formats. Only sums over
# them are sent. Leave it out if you have gaze data only (gaze, below).
data = "training.xml"
# pts_origin = 1.0                # these three as above
# box_margin = 0.1
# images = ""
# parts = []                      # the model's landmarks, if the faces have more
# gaze = "eyes/"                  # gaze data, for rounds of networks; with or without faces
# persons = []                    # some of its persons; all if left out
# seed = 0                        # of the starting shapes
# finish = false                  # let the pool combine rounds to which all have contributed
"""
