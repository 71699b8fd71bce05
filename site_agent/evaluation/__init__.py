"""Scores of detectors, landmark models and gaze networks on annotated data.

``poolctl evaluate MODEL... DATA`` goes this way: `cli.vision.evaluate` reads the data set and
fetches models of the pool; `model_runs.evaluate_models` scores the first model here and, from its
time, decides whether the others get processes of their own; `detection` and `landmarks` run one
model over all images, several at once (`site_agent.faces.models`), `gaze` one network over
all samples, and compare the result with what people marked; `landmark_scores` and `bootstrap` make
means of that, and intervals by resampling images. `report` writes them as JSON, CSV, Markdown and,
by `plots`, pictures. With ``--post`` the command sends the scores to the pool, images never.
"""
