"""Eye aspect ratios of videos by MediaPipe's face mesh, for `blink_peers`.

    python -m venv peers && peers/bin/pip install mediapipe==0.10.21
    peers/bin/python tests/benchmarks/mediapipe_traces.py FOLDER VIDEO...

Needs nothing of this project. Writes a table for each video: timestamp_s, ear, ear_left, ear_right,
and the head's yaw_deg and pitch_deg from the depths of the mesh.
"""

import sys
from pathlib import Path

import cv2
import mediapipe
import numpy as np

RIGHT, LEFT = (33, 160, 158, 133, 153, 144), (362, 385, 387, 263, 373, 380)
"""The points of each eye in the order of the iBUG scheme."""
CORNERS, FOREHEAD_AND_CHIN = (33, 263), (10, 152)


def eye_aspect_ratio(eye: np.ndarray) -> float:
    heights = np.linalg.norm(eye[1] - eye[5]) + np.linalg.norm(eye[2] - eye[4])
    return float(heights / (2.0 * np.linalg.norm(eye[0] - eye[3])))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for video in map(Path, sys.argv[2:]):
        mesh = mediapipe.solutions.face_mesh.FaceMesh(refine_landmarks=True)
        capture = cv2.VideoCapture(str(video))
        rows = ["timestamp_s,ear,ear_left,ear_right,yaw_deg,pitch_deg"]
        while True:
            time_s = len(rows[1:]) / capture.get(cv2.CAP_PROP_FPS)
            read, picture = capture.read()
            if not read:
                break
            faces = mesh.process(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)).multi_face_landmarks
            if not faces:
                rows.append(f"{time_s:.6f},,,,,")
                continue
            height, width = picture.shape[:2]
            points = np.array([(p.x * width, p.y * height, p.z * width) for p in faces[0].landmark])
            left, right = (eye_aspect_ratio(points[list(eye), :2]) for eye in (LEFT, RIGHT))
            across = points[CORNERS[1]] - points[CORNERS[0]]
            down = points[FOREHEAD_AND_CHIN[1]] - points[FOREHEAD_AND_CHIN[0]]
            yaw = np.degrees(np.arctan2(-across[2], across[0]))
            pitch = np.degrees(np.arctan2(down[2], down[1]))
            values = (time_s, (left + right) / 2.0, left, right, yaw, pitch)
            rows.append(",".join(f"{value:.6f}" for value in values))
        (folder / f"{video.stem}.csv").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
