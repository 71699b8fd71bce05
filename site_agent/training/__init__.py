"""Training of sub-models at a site: face detectors, landmark models and networks.

How it works. A command (`cli.vision.train`, `train_gaze`, `train_cross_encoder`) reads the data and
fills in the settings of its kind, and the kind's function trains:

1. It begins with `site_agent.training_record.begin_training`, which refuses an output that cannot
   be written, and it refuses data that cannot be learned before any time is spent.
2. Face detectors (`hog_svm`; `detector_plan` and `windows` work out how dlib can learn it) and
   landmark models (`ert`) are trained by dlib in a child process: `worker_process` starts it, reads
   its output and stops it; `worker` is the program of the child.
3. Networks are trained in this process: `gaze` (all share its `gaze.loop.train_epochs`, with a
   checkpoint after each epoch), `saliency` and `cross_encoder`. `cross_encoder.gaze_head` fits a
   linear head to an encoder that stays as it is.
4. `BegunTraining.publish` puts the model in its place, and next to it the record: data, settings,
   versions. `overlap` finds by these records whether test pictures were trained on.
"""
